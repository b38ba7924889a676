//! Forms of names, as Kubernetes defines them. Each function of this module returns the fault of a name, or `None` if the name is valid.

const NAME_SHAPE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                          alphanumeric character";

/// Checks a lower-case DNS subdomain of at most 253 characters.
pub fn subdomain(text: &str) -> Option<String> {
    if text.len() > 253 {
        return Some("must be no more than 253 characters".into());
    }
    let part_ok = |part: &str| {
        let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        part.bytes().all(inner) && !part.is_empty() && !part.starts_with('-') && !part.ends_with('-')
    };
    (!text.split('.').all(part_ok)).then(|| {
        "must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
         character"
            .into()
    })
}

/// Checks a label key: an optional DNS subdomain and a slash, then a name of at most 63 characters.
pub fn qualified_name(text: &str) -> Option<String> {
    let name = match text.split_once('/') {
        Some(("", _)) => return Some("prefix part must not be empty".into()),
        Some((prefix, name)) => {
            if let Some(wrong) = subdomain(prefix) {
                return Some(format!("prefix part {wrong}"));
            }
            name
        }
        None => text,
    };
    if name.is_empty() {
        return Some("name part must not be empty".into());
    }
    if name.len() > 63 {
        return Some("name part must be no more than 63 characters".into());
    }
    (!shape(name)).then(|| format!("name part {NAME_SHAPE}"))
}

/// Checks a label value: empty, or in the form of a name of at most 63 characters.
pub fn label_value(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some("must be no more than 63 characters".into());
    }
    (!text.is_empty() && !shape(text)).then(|| format!("a valid label value {NAME_SHAPE}"))
}

/// Checks a lower-case DNS subdomain that is followed by a slash and characters that are allowed in the path of a URL.
pub(super) fn domain_prefixed_path(text: &str) -> Option<String> {
    let Some((domain, path)) = text.split_once('/').filter(|(domain, path)| !domain.is_empty() && !path.is_empty())
    else {
        return Some("must have a domain prefix, such as example.com/name".into());
    };
    if let Some(wrong) = subdomain(domain) {
        return Some(format!("prefix part {wrong}"));
    }
    let in_paths = |c: u8| c.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&c);
    (!path.bytes().all(in_paths)).then(|| "path part must consist of characters that a URL may have in its path".into())
}

fn shape(text: &str) -> bool {
    let ends = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(ends)
        && text.ends_with(ends)
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_accepted_or_refused_by_their_kubernetes_syntax() {
        for good in ["a", "A_b.c-1", "example.com/x", "cpu", "nvidia.com/gpu", &"a".repeat(63)] {
            assert_eq!(qualified_name(good), None, "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "A.com/x", "-a", "a-", "a b", &"a".repeat(64), "é"] {
            assert!(qualified_name(bad).is_some(), "{bad}");
        }
        for good in ["", "a", "A.b_c-d"] {
            assert_eq!(label_value(good), None, "{good}");
        }
        for bad in ["-", "a/b", &"a".repeat(64)] {
            assert!(label_value(bad).is_some(), "{bad}");
        }
        for good in ["a.io/x", "a/b/c", "a.io/_x", "a.io/x~y:1"] {
            assert_eq!(domain_prefixed_path(good), None, "{good}");
        }
        for bad in ["", "a", "/a", "a/", "A.io/x", "a_b/x", "a.io/x y", "a.io/é", "a.io/x?"] {
            assert!(domain_prefixed_path(bad).is_some(), "{bad}");
        }
        assert!(subdomain(&"a".repeat(254)).is_some() && subdomain("a..b").is_some() && subdomain("a.b").is_none());
    }
}
