//! Limits on the structure of the code: the size of import circles, and the parts of the type `Control` that other code can reach.

use super::sources::Sources;
use super::{circles, hub};
use crate::tidy::Finding;

/// Largest allowed number of files in an import circle.
const CIRCLE: usize = 5;
/// Largest allowed number of files with `impl` blocks of `Control`: one each for the controller, its observations, its outcomes, and the interface to the
/// runtime.
const IMPL_FILES: usize = 4;

/// Findings about import circles of too many files, and about parts of the type `Control` that other code can reach.
pub(super) fn check(sources: &Sources<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for package in &sources.packages {
        let larger = circles::circles(package).into_iter().filter(|circle| circle.files.len() > CIRCLE);
        found.extend(larger.filter_map(|circle| {
            let message = format!(
                "is in an import circle of {} files, {CIRCLE} are allowed: `xtask house --files`",
                circle.files.len()
            );
            Some(Finding::new(circle.files.first()?.0.to_owned(), 0, message))
        }));
    }
    let hub = hub::measured(sources);
    let mut add = |message: String| found.push(Finding::new(hub.defined.clone(), 0, message));
    if hub.private_fields < hub.fields {
        add(format!("{} fields of Control are not private", hub.fields - hub.private_fields));
    }
    if hub.impl_files.len() > IMPL_FILES {
        add(format!("impl blocks of Control in {} files, {IMPL_FILES} are allowed", hub.impl_files.len()));
    }
    for taker in hub.takers.iter().chain(&hub.holders) {
        add(format!("{taker} has a reference to Control"));
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::tidy::Tree;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        check(&Sources::read(&Tree::of(files)).unwrap()).iter().map(ToString::to_string).collect()
    }

    /// A package for tests whose files form an import circle.
    fn circle(name: &str, files: usize) -> Vec<(String, String)> {
        let folder = if name == "e2e" { "e2e".to_owned() } else { format!("crates/{name}") };
        let modules: String = (0..files).map(|index| format!("mod m{index};\n")).collect();
        let mut all = vec![(format!("{folder}/Cargo.toml"), String::new()), (format!("{folder}/src/lib.rs"), modules)];
        for index in 0..files {
            let text = format!("use crate::m{0}::T{0};\npub struct T{index}(T{0});\n", (index + 1) % files);
            all.push((format!("{folder}/src/m{index}.rs"), text));
        }
        all
    }

    #[test]
    fn import_circle_of_more_than_five_files_is_found() {
        for (name, files, found) in [("a", 5, false), ("a", 6, true), ("e2e", 6, true)] {
            let all = circle(name, files);
            let all: Vec<(&str, &str)> = all.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            let findings = messages(&all);
            assert_eq!(!findings.is_empty(), found, "{name} {files}: {findings:?}");
            assert!(findings.iter().all(|one| one.contains(&format!("circle of {files} files"))), "{findings:?}");
        }
    }

    #[test]
    fn public_field_and_outside_use_of_control_are_found() {
        let of = |text: &str| messages(&[("crates/control/Cargo.toml", ""), ("crates/control/src/lib.rs", text)]);
        assert_eq!(of("pub struct Control { a: u8 }\nimpl Control { fn f(&self) {} }\n"), [""; 0]);
        assert_eq!(of("pub struct Control { pub a: u8 }\n").len(), 1);
        assert_eq!(of("pub struct Control;\nfn f(control: &Control) {}\n").len(), 1);
    }
}
