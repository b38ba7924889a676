use serde_json::json;

use super::*;
use crate::testing::objects::{admitted, changed, flavor_of_tier, policy, workload};
use crate::testing::step::{Step, written};
use crate::testing::{State, now};
use crate::write::{Kind, cluster_key};

fn status_write(state: &State, name: &str) -> Option<Step> {
    status(&state.context(), &cluster_key(Kind::QueuePolicy, name), now()).map(|draft| written(&draft))
}

#[test]
fn policy_condition_names_its_queues_or_why_it_is_inactive() {
    let active = |state: &State, name: &str| {
        let found = status_write(state, name)?;
        found.condition("Active").map(|(is, reason, message)| (is, format!("{reason}: {message}")))
    };
    let holds = State::new().with(policy("p", json!({"admission": {"maxJobs": 3}})));
    assert_eq!(active(&holds, "p"), Some((true, "Active: Governs 1 ClusterQueue(s)".to_owned())));
    let missing = State::new().with(changed(policy("p", json!({})), json!({"spec": {"clusterQueues": ["none"]}})));
    assert_eq!(
        active(&missing, "p"),
        Some((false, "ClusterQueueNotFound: spec.clusterQueues names none, which do not exist".to_owned()))
    );
    let younger = changed(
        policy("q", json!({"admission": {"maxJobs": 4}})),
        json!({"metadata": {"creationTimestamp": crate::testing::at(-1)}}),
    );
    let conflict = active(&holds.with(younger), "q").expect("a condition");
    assert!(!conflict.0 && conflict.1.starts_with("Conflict: ClusterQueue cq: "), "{conflict:?}");
    assert_eq!(status_write(&State::new(), "p"), None);
}

#[test]
fn policy_with_tiers_counts_admitted_workloads_by_tier() {
    let rules = || policy("p", json!({"capacityTiers": {"default": ["spot"]}}));
    let state = State::new().with(flavor_of_tier("f", "spot")).with(rules()).with(admitted(workload("w")));
    let found = status_write(&state, "p").expect("a status");
    let tier = |name: &str, count: i64| json!({"tier": name, "admittedWorkloads": count});
    assert_eq!(found.body["status"]["tiers"], json!([tier("reserved", 0), tier("on-demand", 0), tier("spot", 1)]));
    assert_eq!(found.body["status"]["clusterQueues"], json!(["cq"]));
    let shown = changed(rules(), json!({"status": found.body["status"].clone()}));
    let again = State::new().with(flavor_of_tier("f", "spot")).with(shown).with(admitted(workload("w")));
    assert_eq!(status_write(&again, "p"), None, "it says all already");
}
