//! Tests of every job kind by its case files `cases/<kind>/*.yaml`, whose format `cases/README.md` explains.

mod case;
mod group;
mod job;
mod parent;
mod pod;
mod reviews;

use berth_jobs::JobType;
use case::{Case, File, Found};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Function that gives a kind's result for a named expectation of a case; `None` if the kind has no expectation of that name.
type Answer = fn(&Case, &str) -> Option<Found>;
/// Function that checks a law that holds in every case, and returns the violations.
type Law = fn(&Case) -> Vec<String>;

/// The kind of the objects in a folder of cases.
#[derive(Clone, Copy)]
enum Kind {
    /// A kind that can be suspended.
    Job(JobType),
    /// Pods, or a kind that is admitted through pods.
    Pods(Answer, Law),
}

/// Kinds that cannot be suspended, with their answers and laws.
const PODS: [(&str, Answer, Law); 4] = [
    ("pod", pod::answer, pod::laws),
    ("pod-group", group::answer, |_| Vec::new()),
    ("deployment", parent::deployment, |_| Vec::new()),
    ("statefulset", parent::stateful_set, |_| Vec::new()),
];
/// Folders of TrainingJobs, whose golden files `tests/training_jobs` reads.
const OTHERS: [&str; 1] = ["training"];

/// The required folders of cases: one for each kind that can be suspended, with the kind's name in lower case, and the folders of pods.
fn kinds() -> BTreeMap<String, Kind> {
    let jobs = berth_jobs::KINDS.into_iter().map(|kind| (kind.info().kind.to_lowercase(), Kind::Job(kind)));
    let pods = PODS.into_iter().map(|(name, answer, laws)| (name.to_owned(), Kind::Pods(answer, laws)));
    jobs.chain(pods).collect()
}

impl Kind {
    fn answer(self, case: &Case, key: &str) -> Option<Found> {
        match self {
            Self::Job(kind) => job::answer(kind, case, key),
            Self::Pods(answer, _) => answer(case, key),
        }
    }

    /// The laws that a case violates.
    fn broken_laws(self, case: &Case) -> Vec<String> {
        match self {
            Self::Job(kind) => job::laws(kind, case),
            Self::Pods(_, laws) => laws(case),
        }
    }
}

#[test]
fn job_kind_cases_give_their_expected_answers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let kinds = kinds();
    let mut wrong = Vec::new();
    let mut reported = BTreeSet::new();
    for folder in sorted(&root).into_iter().filter(|path| path.is_dir()) {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let Some(kind) = kinds.get(&name) else {
            assert!(OTHERS.contains(&name.as_str()), "cases/{name}: berth_jobs::KINDS has no kind of that name");
            continue;
        };
        for path in sorted(&folder) {
            let file_name = path.strip_prefix(&root).unwrap().display().to_string();
            let file = File::read(&path).unwrap_or_else(|error| panic!("{file_name}: {error}"));
            for case in file.cases() {
                reported.insert(name.clone());
                let found = check(&case, *kind);
                wrong.extend(found.into_iter().map(|problem| format!("{file_name}, {:?}: {problem}", case.name)));
            }
        }
    }
    for name in kinds.keys() {
        assert!(reported.contains(name), "cases/{name} has no case");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn sorted(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn check(case: &Case, kind: Kind) -> Vec<String> {
    let mut wrong = kind.broken_laws(case);
    for (key, wanted) in &case.expected {
        match kind.answer(case, key) {
            None => wrong.push(format!("{key}: nothing of that name is expected of this kind")),
            Some(found) => wrong.extend(found.differs(wanted).map(|problem| format!("{key}: {problem}"))),
        }
    }
    wrong
}

/// The object of a case, decoded as a kind's type.
fn read<T: serde::de::DeserializeOwned>(object: &Value) -> T {
    serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object}"))
}
