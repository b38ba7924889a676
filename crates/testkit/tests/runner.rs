//! The runner of decision cases as a program: its first and last lines of output, and its exit code.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn conformance(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_berth-testkit")).arg("conformance").args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn last_line(output: &Output) -> String {
    text(output).lines().last().unwrap_or_default().to_owned()
}

fn own(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// A new folder of case families with these files.
fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("runner").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    for (path, text) in files {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

/// A case of Berth's own suite, and a copy of the case with a wrong expectation.
fn right_and_wrong() -> (String, String) {
    let right = own("admission-checks.yaml");
    let wrong = right.replace("admissionChecks: [a]}", "admissionChecks: [b]}");
    assert_ne!(right, wrong);
    (right, wrong)
}

/// A copy of a case with a feature gate that Berth does not have.
fn beyond(right: &str) -> String {
    let beyond = right.replace("featureGates: {}", "featureGates: {SchedulerLibraryIntegration: true}");
    assert_ne!(right, beyond);
    beyond
}

#[test]
fn absent_folder_is_named_and_fails_the_run() {
    let absent = folder("absent", &[]);
    let path = absent.to_str().unwrap();
    let output = conformance(&[path]);
    let message = format!("{}{}", text(&output), String::from_utf8_lossy(&output.stderr));
    assert!(message.contains(&format!("{path}: no such folder of cases")), "{message}");
    assert!(!output.status.success());
}

#[test]
fn conformance_run_ends_with_totals_line() {
    let (right, _) = right_and_wrong();
    let cases = folder("passing", &[("own/a.yaml", &right), ("own/deep/b.yaml", &right), ("own/c.txt", "no case")]);
    let output = conformance(&[cases.to_str().unwrap()]);
    assert_eq!(last_line(&output), "conformance: 2 cases, 2 passed, 0 failed, 0 not applicable", "{}", text(&output));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn failing_case_is_named_and_fails_the_run() {
    let (right, wrong) = right_and_wrong();
    let cases = folder("failing", &[("own/a.yaml", &right), ("own/b.yaml", &wrong), ("own/c.yaml", "[")]);
    let output = conformance(&[cases.to_str().unwrap()]);
    let printed = text(&output);
    assert_eq!(last_line(&output), "conformance: 3 cases, 1 passed, 2 failed, 0 not applicable", "{printed}");
    assert!(printed.contains("FAILED own/b.yaml\n") && printed.contains("FAILED own/c.yaml\n"), "{printed}");
    assert_eq!(output.status.code(), Some(1), "{printed}");
    // With `--only a.yaml`, the runner runs the passing case and not the failing one.
    let output = conformance(&[cases.to_str().unwrap(), "--only", "a.yaml"]);
    assert_eq!(last_line(&output), "conformance: 1 cases, 1 passed, 0 failed, 0 not applicable");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn known_differences_fail_their_case_and_not_the_run() {
    let (right, wrong) = right_and_wrong();
    let cases = folder("known", &[("own/a.yaml", &right), ("own/b.yaml", &wrong)]);
    let listed = |name: &str, text: &str| {
        let list = folder(name, &[("list.txt", text)]).join("list.txt");
        conformance(&[cases.to_str().unwrap(), "--known", list.to_str().unwrap()])
    };
    let output = listed("listed", "# one\nown/b.yaml\n");
    assert_eq!(last_line(&output), "conformance: 2 cases, 1 passed, 1 failed, 0 not applicable");
    assert!(text(&output).contains("FAILED as known own/b.yaml\n"), "{}", text(&output));
    assert_eq!(output.status.code(), Some(0));
    // The cases listed in several `--known` files are all known to fail.
    let none = folder("none", &[("list.txt", "# none\n")]).join("list.txt");
    let list = cases.parent().unwrap().join("listed/list.txt");
    let [at, list, none] = [&cases, &list, &none].map(|path| path.to_str().unwrap());
    for lists in [[list, none], [none, list]] {
        let output = conformance(&[at, "--known", lists[0], "--known", lists[1]]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
}

#[test]
fn outdated_list_of_known_differences_fails_the_run() {
    let (right, wrong) = right_and_wrong();
    let beyond = beyond(&right);
    let cases = folder("outdated-cases", &[("own/a.yaml", &right), ("own/b.yaml", &wrong), ("own/c.yaml", &beyond)]);
    for (more, reported) in [
        ("own/a.yaml", "passed, but is listed as known to differ: own/a.yaml\n"),
        ("own/c.yaml", "not applicable, but is listed as known to differ: own/c.yaml\n"),
        ("own/d.yaml", "no case, but is listed as known to differ: own/d.yaml\n"),
    ] {
        let list = folder("outdated", &[("list.txt", &format!("own/b.yaml\n{more}\n"))]).join("list.txt");
        let [at, list] = [&cases, &list].map(|path| path.to_str().unwrap());
        let output = conformance(&[at, "--known", list]);
        assert!(text(&output).contains(reported), "{}", text(&output));
        assert_eq!(output.status.code(), Some(1), "{more}");
        // A run with `--only` does not report cases that are known to fail and that it leaves out.
        let output = conformance(&[at, "--known", list, "--only", "b.yaml"]);
        assert_eq!(output.status.code(), Some(0), "{more}: {}", text(&output));
    }
}

/// Output of a verbose run for two families.
const REPORT: &str = "\
passed one/a.yaml
FAILED one/b.yaml
    admissionChecks:
      want Some([\"b\"])
      got  Some([\"a\"])
not applicable (SchedulerLibraryIntegration) one/c.yaml
passed two/a.yaml
FAILED two/b.yaml
    value:
      want Ok(501)
      got  Ok(500)
not applicable (dynamic resource allocation) two/c.yaml
passed two/d.yaml
family               kind                  passed  failed  not applicable
one                  admission-checks           1       1               1
two                  admission-checks           1       0               0
two                  quantity                   1       1               1
one                  not applicable: 1 for SchedulerLibraryIntegration
two                  not applicable: 1 for dynamic resource allocation
conformance: 7 cases, 3 passed, 2 failed, 2 not applicable
";

#[test]
fn conformance_report_shows_failed_and_inapplicable_cases_by_family() {
    let (right, wrong) = right_and_wrong();
    let beyond = beyond(&right);
    let amount = own("quantity.yaml");
    let larger = amount.replace("value: 500", "value: 501");
    let claimed = amount.replace("quantity: \"500m\"}", "quantity: \"500m\", binary: true}");
    let one = [("one/a.yaml", &*right), ("one/b.yaml", &*wrong), ("one/c.yaml", &*beyond)];
    let two = [("two/a.yaml", &*amount), ("two/b.yaml", &*larger), ("two/c.yaml", &*claimed), ("two/d.yaml", &*right)];
    let cases = folder("report", &[one.as_slice(), two.as_slice()].concat());
    let at = cases.to_str().unwrap();
    assert_eq!(text(&conformance(&[at, "--verbose"])), REPORT);
    let is_given = |line: &&str| !line.starts_with("passed ") && !line.starts_with("not applicable (");
    let message: Vec<&str> = REPORT.lines().filter(is_given).collect();
    assert_eq!(text(&conformance(&[at])).lines().collect::<Vec<_>>(), message);
}

#[test]
fn entry_order_case_with_reserved_head_is_inapplicable_for_topology() {
    let heads = own("entry-order.yaml");
    let reserved = "  status: {conditions: [{type: QuotaReserved, status: \"True\", reason: QuotaReserved, message: \"\", \
                    lastTransitionTime: \"2025-12-31T00:00:00Z\"}]}\ninput: {entries";
    let second = heads.replace("input: {entries", reserved);
    assert_ne!(heads, second);
    let cases = folder("second-pass", &[("own/a.yaml", &heads), ("own/b.yaml", &second)]);
    let reported = text(&conformance(&[cases.to_str().unwrap(), "--verbose"]));
    assert!(
        reported.contains("passed own/a.yaml\n") && reported.contains("not applicable (topology) own/b.yaml\n"),
        "{reported}"
    );
}

#[test]
fn conformance_with_bad_arguments_fails_without_output() {
    for arguments in [&["--nonsense"][..], &[], &["a", "b"], &["a", "--known"], &["a", "--known", "/no/such/file"]] {
        let output = conformance(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output).is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
}
