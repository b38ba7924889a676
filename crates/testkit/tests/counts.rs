//! Counts of verdicts on Kueue's cases: passed and failed cases by family, and cases that do not apply by reason. The test of the counts fails if a case of
//! Kueue that Berth judged before is no longer judged.
//!
//! `UPDATE=1` writes the counts into the file of expected counts.

use berth_testkit::conformance::{Counts, Options, Report, run};
use std::collections::BTreeMap;
use std::path::Path;

/// The counts of a run, a line for each number.
fn lines(report: &Report) -> String {
    let mut families: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for ((family, _), counts) in &report.groups {
        let (passed, failed) = families.entry(family).or_default();
        *passed += counts.passed;
        *failed += counts.failed;
    }
    let mut text = String::new();
    for (family, (passed, failed)) in families {
        text += &format!("{family}: {passed} pass, {failed} differ\n");
        for ((_, reason), count) in report.reasons.iter().filter(|((of, _), _)| of == family) {
            text += &format!("{family}: {count} not applicable for {reason}\n");
        }
    }
    text
}

#[test]
fn case_counts_equal_recorded_file_and_decision_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let report = run(&root.join("cases"), &Options::default(), &mut std::io::sink()).unwrap();
    let found = lines(&report);
    let path = root.join("tests/counts.txt");
    if std::env::var("UPDATE").is_ok() {
        std::fs::write(&path, &found).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap();
    assert_eq!(found, known, "the tests of berth-testkit with UPDATE=1 renew the file");
    let Counts { passed, failed, not_applicable } = report.totals;
    let all = passed + failed + not_applicable;
    let message = format!("Of {all} cases {passed} pass, {failed} differ and {not_applicable} are not applicable.");
    let page = std::fs::read_to_string(root.join("../../docs/decisions/0001-conformance.md")).unwrap();
    assert!(page.contains(&message), "docs/decisions/0001-conformance.md does not say: {message}");
}
