//! Every kind of job by its case files: `cases/<kind>/*.yaml`. What can stand in them is told in `cases/README.md`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod case;
mod group;
mod job;
mod parent;
mod pod;
mod reviews;

use berth_jobs::{BatchJob, JobSet};
use case::{Case, File, Found};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// What a kind says to one expectation of a case, by its name; `None` where the kind knows none of that name.
type Answer = fn(&Case, &str) -> Option<Found>;
/// What holds in every case, whatever is expected.
type Law = fn(&Case) -> Vec<String>;

/// A line for each kind.
const KINDS: [(&str, Answer, Law); 6] = [
    ("job", job::answer::<BatchJob>, job::laws::<BatchJob>),
    ("jobset", job::answer::<JobSet>, job::laws::<JobSet>),
    ("pod", pod::answer, pod::laws),
    ("pod-group", group::answer, |_| Vec::new()),
    ("deployment", parent::deployment, |_| Vec::new()),
    ("statefulset", parent::stateful_set, |_| Vec::new()),
];
/// TrainingJobs, whose golden files `tests/training_jobs` reads.
const OTHERS: [&str; 1] = ["training"];

#[test]
fn every_case_of_every_kind() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut wrong = Vec::new();
    let mut told = BTreeSet::new();
    for folder in sorted(&root).into_iter().filter(|path| path.is_dir()) {
        let kind = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let Some((_, answer, laws)) = KINDS.iter().find(|(name, ..)| *name == kind) else {
            assert!(OTHERS.contains(&kind.as_str()), "cases/{kind}: no kind of that name; add a line to KINDS");
            continue;
        };
        for path in sorted(&folder) {
            let name = path.strip_prefix(&root).unwrap().display().to_string();
            let file = File::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            for case in file.cases() {
                told.insert(kind.clone());
                let found = check(&case, *answer, *laws);
                wrong.extend(found.into_iter().map(|problem| format!("{name}, {:?}: {problem}", case.name)));
            }
        }
    }
    for (kind, ..) in KINDS {
        assert!(told.contains(kind), "cases/{kind} has no case");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn sorted(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn check(case: &Case, answer: Answer, laws: Law) -> Vec<String> {
    let mut wrong = laws(case);
    for (key, wanted) in &case.expected {
        match answer(case, key) {
            None => wrong.push(format!("{key}: nothing of that name is expected of this kind")),
            Some(found) => wrong.extend(found.differs(wanted).map(|problem| format!("{key}: {problem}"))),
        }
    }
    wrong
}

/// The object of a case as a kind reads it.
fn read<T: serde::de::DeserializeOwned>(object: &Value) -> T {
    serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object}"))
}
