//! Members of projects: AxLearn has regular expressions of user ids, and RBAC needs names of users.

/// The user ids that a regular expression matches, if these can be listed: the expression may have plain text, escaped characters and `|` between ids. A single
/// `.` of the regular expression is read as a dot, so the list has fewer user ids than the expression would match.
pub(crate) fn user_ids(pattern: &str) -> Option<Vec<String>> {
    let mut ids = Vec::new();
    let mut id = String::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // In a regular expression, a letter or digit after a backslash is a character class, an anchor or a reference, and not the text of a user id.
            '\\' => id.push(chars.next().filter(|escaped| !escaped.is_alphanumeric())?),
            '|' => ids.push(std::mem::take(&mut id)),
            '^' if id.is_empty() => {}
            '$' if chars.peek().is_none_or(|next| *next == '|') => {}
            '^' | '$' | '*' | '+' | '?' | '{' | '}' | '[' | ']' | '(' | ')' => return None,
            '.' if chars.peek().is_some_and(|next| matches!(next, '*' | '+' | '?' | '{')) => return None,
            plain => id.push(plain),
        }
    }
    ids.push(id);
    ids.iter().all(|id| !id.is_empty()).then_some(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership_pattern_yields_user_ids_only_if_it_lists_them() {
        for (pattern, expected) in [
            ("user1", vec!["user1"]),
            ("first.last@example.com", vec!["first.last@example.com"]),
            (r"first\.last@example\.com", vec!["first.last@example.com"]),
            ("^ann$", vec!["ann"]),
            ("ann|bob|^eve$", vec!["ann", "bob", "eve"]),
        ] {
            assert_eq!(user_ids(pattern), Some(expected.into_iter().map(str::to_owned).collect()), "{pattern}");
        }
        for pattern in
            [".*", "user[12]", "user.+", "(ann|bob)", r"\d+", "a?", "a{2}", "", "ann|", "a^b", "a$b", "\\", "a|.*"]
        {
            assert_eq!(user_ids(pattern), None, "{pattern}");
        }
    }
}
