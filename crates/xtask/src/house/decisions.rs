//! Decision files of `reconcile` without unit tests. A decision file lies in the module of a domain and names the type of the state that decisions read, of a
//! decision's result, or of a decision's subject (`JobCase`, `PodCase` and the like). A unit test of a decision calls the functions of the decision file and
//! builds no controller (`reconcile/src/testing.rs`).

use proc_macro2::TokenTree;
use syn::Item;

use super::counted::Counted;
use super::sources::{Source, Sources, attributes, each_group, is_for_tests, is_test_file};
use crate::tidy::Finding;

/// Path of the sources of the crate `reconcile`.
const RECONCILE: &str = "crates/reconcile/src/";
/// Modules of the crate `reconcile` that have decision files.
const DOMAINS: [&str; 10] = [
    "job",
    "workload",
    "pod",
    "pod_group",
    "training_job",
    "queues",
    "policies",
    "capacity",
    "provisioning",
    "overruns",
];
/// Names of two types in decision files: the state that decisions read, and the result of a decision.
const DECIDES: [&str; 2] = ["Context", "Decision"];
/// End of the names of the types that are subjects of decisions, such as `JobCase`.
const SUBJECT: &str = "Case";

/// The number of decision files, and findings about decision files without unit tests.
pub(super) fn counted(sources: &Sources<'_>) -> Counted {
    let all = sources.packages.iter().flat_map(|package| &package.sources);
    let decisions: Vec<&Source<'_>> = all.filter(|source| is_domain(source.path) && decides(source)).collect();
    let untested = decisions.iter().filter(|source| !has_tests(source));
    let text = || "decision file without unit tests".to_owned();
    let found = untested.map(|source| Finding::new(source.path, 1, text())).collect();
    Counted { of: decisions.len(), found }
}

/// Whether a path is a source in the module of a domain, and no file of tests.
fn is_domain(path: &str) -> bool {
    let Some(rest) = path.strip_prefix(RECONCILE).filter(|_| !is_test_file(path)) else { return false };
    let top = rest.split('/').next().unwrap_or_default();
    DOMAINS.contains(&top.strip_suffix(".rs").unwrap_or(top))
}

/// Whether a source is a decision file, because it names a type of decisions outside of test code.
fn decides(source: &Source<'_>) -> bool {
    let mut found = false;
    each_group(source.tokens.clone(), &mut |tokens| {
        found |= tokens.iter().any(|token| match token {
            TokenTree::Ident(ident) => {
                let name = ident.to_string();
                DECIDES.contains(&name.as_str()) || (name.ends_with(SUBJECT) && name != SUBJECT)
            }
            _ => false,
        });
    });
    found
}

fn has_tests(source: &Source<'_>) -> bool {
    let is_tests = |item: &Item| matches!(item, Item::Mod(child) if child.ident == "tests");
    source.file.items.iter().any(|item| is_tests(item) && is_for_tests(attributes(item)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Tree;

    #[test]
    fn untested_decision_files_are_counted_in_reconcile_only() {
        let decides = "//! D.\nfn decide(ctx: &Context<'_>) {}\n";
        let tested = "//! T.\nfn f(case: &PodCase<'_>) {}\n#[cfg(test)]\nmod tests;\n";
        let tree = Tree::of(&[
            ("crates/reconcile/Cargo.toml", ""),
            ("crates/reconcile/src/job.rs", decides),
            ("crates/reconcile/src/job/stop.rs", tested),
            ("crates/reconcile/src/job/stop/tests.rs", decides),
            ("crates/reconcile/src/job/notes.rs", "//! N.\nstruct JobNotes;\n"),
            ("crates/reconcile/src/decide.rs", decides),
            ("crates/jobs/Cargo.toml", ""),
            ("crates/jobs/src/job.rs", decides),
        ]);
        let counted = counted(&Sources::read(&tree).unwrap());
        let found: Vec<String> = counted.found.iter().map(ToString::to_string).collect();
        assert_eq!(counted.of, 2, "{found:?}");
        assert_eq!(found, ["crates/reconcile/src/job.rs:1: decision file without unit tests"]);
    }
}
