//! The chart's rights: every write of every story must be covered by a right that the chart grants.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use berth_control::write::{Action, Kind, Query, Subresource, Task, Write};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
    verbs: Vec<String>,
}

/// The API group, the resource with its subresource, and the verb of a right.
pub type Right = (String, String, String);

/// The RBAC rules of a file of the chart, of all concerns.
fn rules(file: &str) -> Vec<Rule> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/berth/files").join(file);
    let concerns: BTreeMap<String, Vec<Rule>> =
        serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    concerns.into_values().flatten().collect()
}

/// The rights that the chart grants the manager on every object of a kind in the cluster.
pub static GRANTED: LazyLock<BTreeSet<Right>> = LazyLock::new(|| {
    let mut rights = BTreeSet::new();
    for rule in rules("rules.yaml").iter().filter(|rule| rule.resource_names.is_empty()) {
        for group in &rule.api_groups {
            for resource in &rule.resources {
                rights.extend(rule.verbs.iter().map(|verb| (group.clone(), resource.clone(), verb.clone())));
            }
        }
    }
    rights
});

/// Names and verbs of a file's RBAC rules about Secrets or about all resources.
pub fn of_secrets(file: &str) -> Vec<(Vec<String>, Vec<String>)> {
    let about = |rule: &Rule| {
        rule.api_groups.iter().any(|group| ["", "*"].contains(&group.as_str()))
            && rule.resources.iter().any(|resource| ["secrets", "*"].contains(&resource.as_str()))
    };
    rules(file).into_iter().filter(about).map(|rule| (rule.resource_names, rule.verbs)).collect()
}

/// The right to use a verb on objects of a kind.
pub fn right(kind: Kind, subresource: Subresource, verb: &str) -> Right {
    let (group, _, plural) = kind.resource_kind().expect("an object of the API").resource();
    let tail = if subresource == Subresource::Status { "/status" } else { "" };
    (group.to_owned(), format!("{plural}{tail}"), verb.to_owned())
}

/// The rights that the API server requires for a write.
fn needed(task: &Task) -> Vec<Right> {
    let own = |subresource, verb| right(task.key.kind, subresource, verb);
    match &task.action {
        Action::Write(Write::Create(_)) => vec![own(Subresource::None, "create")],
        // The applied Service or ConfigMap may not exist yet, so that the apply needs the right to create, too.
        Action::Write(Write::Apply { subresource, .. }) if matches!(task.key.kind, Kind::Service | Kind::ConfigMap) => {
            vec![own(*subresource, "patch"), own(*subresource, "create")]
        }
        Action::Write(Write::Apply { subresource, .. } | Write::Merge { subresource, .. }) => {
            vec![own(*subresource, "patch")]
        }
        Action::Write(Write::Delete { .. }) => vec![own(Subresource::None, "delete")],
        Action::Write(Write::AnnotatePods { .. }) => {
            ["list", "patch"].map(|verb| right(Kind::Pod, Subresource::None, verb)).into()
        }
        Action::Query(
            Query::ProbePods { .. }
            | Query::FindStuckPods { .. }
            | Query::FindLeftPods { .. }
            | Query::FindPodsOnNode
            | Query::CountNodes { .. },
        ) => vec![right(Kind::Pod, Subresource::None, "list")],
        Action::Query(Query::ReadObject) => vec![own(Subresource::None, "get")],
        Action::Query(Query::AskAutoscalers { .. }) => vec![(String::new(), "events".to_owned(), "list".to_owned())],
        Action::Query(Query::ListCheckpoints { .. }) | Action::Write(Write::DeleteCheckpoints { .. }) => Vec::new(),
    }
}

/// Panics unless the chart grants all rights that a task needs.
pub fn must_have(task: &Task) {
    for right in needed(task) {
        assert!(GRANTED.contains(&right), "{:?} of {} needs {right:?}", task.purpose, task.key);
    }
}
