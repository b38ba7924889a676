//! Rule about texts that no file of the repository may have: package registries, folders of one machine, and marks of unfinished work.

use super::{Finding, Tree};

/// Hosts of package registries, each in two parts so that this file does not name the host. A repository that names a package registry cannot be built where a
/// mirror takes the registry's place.
const REGISTRIES: [(&str, &str); 9] = [
    ("crates", ".io"),
    ("proxy.golang", ".org"),
    ("sum.golang", ".org"),
    ("gopro", "xy.io"),
    ("pypi", ".org"),
    ("pythonhosted", ".org"),
    ("npmjs", ".org"),
    ("npmjs", ".com"),
    ("rubygems", ".org"),
];
/// Beginnings of paths that exist on one person's machine only, each in two parts.
const MACHINES: [(&str, &str); 5] = [("/ho", "me/"), ("/Us", "ers/"), ("/ro", "ot/"), ("/wo", "rk/"), ("/tmp", "/w/")];
/// Marks of unfinished work, each in two parts; unfinished work belongs in an issue.
const LEFT_OVER: [(&str, &str); 3] = [("TO", "DO"), ("FIX", "ME"), ("XX", "X")];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.files() {
        for (index, line) in text.lines().enumerate() {
            let mut add = |message: String| found.push(Finding::new(path, index + 1, message));
            // Lock files are not checked for registries, because cargo writes the registry's name into its lock file.
            if path != "Cargo.lock"
                && let Some(host) = joined(&REGISTRIES).into_iter().find(|host| line.contains(host.as_str()))
            {
                add(format!("names the package registry {host}"));
            }
            if let Some(folder) = joined(&MACHINES).into_iter().find(|folder| begins_path(line, folder)) {
                add(format!("names a folder of one machine, {folder}..."));
            }
            if path.ends_with(".rs") && joined(&LEFT_OVER).iter().any(|mark| has_word(line, mark)) {
                add("work left over belongs into an issue".to_owned());
            }
        }
    }
    found
}

fn joined(parts: &[(&str, &str)]) -> Vec<String> {
    parts.iter().map(|(a, b)| format!("{a}{b}")).collect()
}

/// Whether a path in the line begins with the given folder: the folder is not the middle of a longer path or address, and the name of a folder or file follows.
fn begins_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + folder.len()..].chars().next();
        let alone = before.is_none_or(|c| " \t\"'`=:(<,".contains(c));
        // Paths of the cohort tree are written `/root/cohort/queue`, so of paths in the home folder of the user root only hidden files are findings.
        let hidden = line[at + folder.len()..].strip_prefix('.').and_then(|rest| rest.chars().next());
        let named = if folder.contains("oot") { hidden } else { after };
        alone && named.is_some_and(|c| c.is_ascii_alphanumeric())
    })
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_ascii_alphanumeric()).any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn package_registry_host_is_found() {
        for host in joined(&REGISTRIES) {
            assert_eq!(count("docs/a.md", &format!("see https://{host}/a")), 1, "{host}");
        }
        assert_eq!(count("Cargo.lock", &format!("source = \"index.{}\"", joined(&REGISTRIES)[0])), 0);
        assert_eq!(count("docs/a.md", "a crate's page"), 0);
    }

    #[test]
    fn folder_of_one_machine_is_found() {
        let folders = joined(&MACHINES);
        let (home, users, root) = (&folders[0], &folders[1], &folders[2]);
        assert_eq!(count("a.rs", &format!("let p = \"{home}me/berth\";")), 1);
        assert_eq!(count("a.md", &format!("cd {users}me")), 1);
        assert_eq!(count("a.md", &format!("ls {root}.cache")), 1);
        assert_eq!(count("a.md", "`/root/left/queue` of a cohort, https://a.example/home/me, e2e/work/x"), 0);
    }

    #[test]
    fn unfinished_work_mark_in_source_is_refused() {
        let mark = joined(&LEFT_OVER)[0].clone();
        assert_eq!(count("a.rs", &format!("// {mark}: later")), 1);
        assert_eq!(count("a.rs", "// todo list of a user"), 0);
    }
}
