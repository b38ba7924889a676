//! The table and the page that is made of it.

use super::*;
use std::fmt::Write as _;
use std::path::Path;

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = TABLE.iter().map(|definition| definition.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), TABLE.len());
}

/// The rows of docs/metrics.md.
fn rows() -> String {
    let mut out = String::new();
    for definition in TABLE {
        let (kind, suffix) = match definition.shape {
            Shape::Counter => ("counter", "_total"),
            Shape::Gauge => ("gauge", ""),
            Shape::Waits(_) | Shape::Doubling(_) | Shape::Creation | Shape::Short | Shape::Brief => ("histogram", ""),
        };
        let name = exposed(definition.name);
        let mut labels: Vec<&str> = definition.labels.split_whitespace().collect();
        if name.starts_with("kueue_") && name != "kueue_build_info" {
            labels.push("replica_role");
        }
        let labels = labels.join(", ");
        writeln!(out, "| `{name}{suffix}` | {kind} | {labels} | {} |", definition.help).unwrap();
    }
    out
}

#[test]
fn the_page_says_the_same() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("|---|---|---|---|\n", "\n<!-- end of the table -->");
    let (before, rest) = page.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    let wanted = format!("{before}{begin}{}{end}{after}", rows());
    if std::env::var("UPDATE").is_ok() {
        std::fs::write(&path, &wanted).unwrap();
    }
    assert!(page == wanted || std::env::var("UPDATE").is_ok(), "run the tests of berth-runtime with UPDATE=1");
}
