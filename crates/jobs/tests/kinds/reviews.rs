//! Check that every refusal in the cases is also tried on a real API server: each rule has a row in `e2e/cases/reviews`.

use crate::kinds::case::{Case, File, Found};
use crate::kinds::{kinds, sorted};
use berth_api::validation::FieldError;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Rules of the webhook that no row of `e2e/cases/reviews` can trigger on a real API server: kind, field, and the beginning of the message.
const NOT_COME_TO: [(&str, &str, &str); 6] = [
    // The rule about ended pods is not triggered, because no pod of `e2e/cases/reviews` has ended.
    ("Pod", "metadata.labels[kueue.x-k8s.io/managed]", "must stay until the finalizer"),
    // The schema of JobSet refuses wrong `replicatedJobs` before the webhook reviews the JobSet.
    ("JobSet", "spec.replicatedJobs", ""),
    // The webhook gives an object with an empty queue name the LocalQueue `default`, so the rules about empty queue names are not triggered.
    ("Pod", QUEUE_NAME, "must not be empty"),
    ("Deployment", QUEUE_NAME, "must not be empty"),
    ("StatefulSet", QUEUE_NAME, "must not be empty"),
    ("JobSet", QUEUE_NAME, "must name the queue"),
];

const QUEUE_NAME: &str = "metadata.labels[kueue.x-k8s.io/queue-name]";

fn is_come_to(kind: &str, error: &FieldError) -> bool {
    !NOT_COME_TO
        .iter()
        .any(|(of, field, message)| *of == kind && error.field == *field && error.message.starts_with(message))
}

#[derive(Deserialize)]
struct Table {
    cases: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    refused: Option<Value>,
    #[serde(default)]
    field: String,
    #[serde(default)]
    says: String,
}

/// The text of an error with all numbers replaced by `#`, because the numbers differ between the cases and `e2e/cases/reviews`.
fn plain(text: &str) -> String {
    let mut plain = text.replace(|letter: char| letter.is_ascii_digit(), "#");
    while plain.contains("##") {
        plain = plain.replace("##", "#");
    }
    plain
}

fn is_reported(error: &FieldError, table: &Table) -> bool {
    let rows = table.cases.iter().filter(|row| row.refused.is_some());
    let (field, message) = (plain(&error.field), plain(&error.message));
    rows.into_iter().any(|row| plain(&row.field) == field && message.contains(&plain(&row.says)))
}

#[test]
fn job_rule_of_each_case_has_a_refused_review_row() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tables = sorted(&root.join("../../e2e/cases/reviews"));
    let kinds = kinds();
    let names: Vec<&str> = tables.iter().map(|path| path.file_stem().unwrap().to_str().unwrap()).collect();
    for kind in berth_jobs::KINDS.map(|kind| kind.info().kind) {
        assert!(names.contains(&kind), "e2e/cases/reviews has no table of {kind}");
    }
    let mut missing = BTreeSet::new();
    for (path, kind) in tables.iter().zip(names) {
        let table: Table = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        // The folder of a kind's cases has the kind's name in lower case.
        let folder = kind.to_lowercase();
        let of = kinds[&folder];
        let files = sorted(&root.join("cases").join(folder));
        let cases: Vec<Case> = files.iter().flat_map(|path| File::read(path).unwrap().cases()).collect();
        let asked = cases.iter().flat_map(|case| case.expected.keys().map(move |key| (case, key)));
        for error in asked.filter_map(|(case, key)| of.answer(case, key)).flat_map(errors) {
            if is_come_to(kind, &error) && !is_reported(&error, &table) {
                missing.insert(format!("{kind}: {}: {}", plain(&error.field), plain(&error.message)));
            }
        }
    }
    let missing: Vec<String> = missing.into_iter().collect();
    assert!(missing.is_empty(), "{} rules have no row in e2e/cases/reviews:\n{}", missing.len(), missing.join("\n"));
}

fn errors(found: Found) -> Vec<FieldError> {
    match found {
        Found::Errors(errors) => errors,
        Found::Exact(_) | Found::Part(_) | Found::Text(_) => Vec::new(),
    }
}
