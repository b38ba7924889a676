use berth_cache::priorities::MissingClass;
use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{changed, flavor_of_tier, job, policy, workload_of};
use crate::testing::{State, named};

/// A policy by which the label `team/rank` gives the class `high`.
fn ranked() -> Value {
    policy(
        "p",
        json!({"priorityFromLabel": {"label": "team/rank", "classes": [
        {"value": "first", "workloadPriorityClass": "high"}, {"value": "second", "workloadPriorityClass": "missing"}]}}),
    )
}

fn class(name: &str, value: i32) -> Value {
    json!({"kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value})
}

/// Job `a` with that rank, and its Workload.
fn of_rank(rank: Option<&str>) -> (Value, Value) {
    let label = json!({"spec": {"template": {"metadata": {"labels": {"team/rank": rank}}}}});
    let job = changed(job("a"), label);
    let workload = workload_of(&job);
    (job, workload)
}

fn state(rank: Option<&str>) -> State {
    let (job, workload) = of_rank(rank);
    State::new().with(class("high", 7)).with(class("own", 3)).with(ranked()).with(job).with(workload)
}

#[test]
fn label_gives_the_priority_before_the_class_of_the_job() {
    let wanted = |rank: Option<&str>| {
        let state = state(rank);
        let found = state.context().wanted_priority(state.workload("w"), (Some("own"), None));
        found.map(|wanted| (wanted.priority.value, wanted.by_label))
    };
    assert_eq!(wanted(Some("first")), Ok((7, true)));
    assert_eq!(wanted(Some("second")), Ok((3, false)), "its class does not exist");
    assert_eq!(wanted(Some("other")), Ok((3, false)));
    assert_eq!(wanted(None), Ok((3, false)));
    let missing = state(None);
    assert_eq!(
        missing.context().wanted_priority(missing.workload("w"), (Some("none"), None)).err(),
        Some(MissingClass("none".to_owned()))
    );
}

#[test]
fn label_without_effect_is_reported_once() {
    let reported_by = |rank: &str| {
        let state = state(Some(rank));
        state.context().unsent_event(&named(Kind::JOB, "a"), state.workload("w"), (None, None))
    };
    assert_eq!(reported_by("first"), None);
    let (reason, text) = reported_by("other").expect("an event");
    assert_eq!(reason, "PriorityLabelUnknown");
    assert!(
        text.starts_with("label team/rank: \"other\" has no class in spec.priorityFromLabel.classes of QueuePolicy p"),
        "{text}"
    );
    let (reason, _) = reported_by("second").expect("an event");
    assert_eq!(reason, "WorkloadPriorityClassNotFound");
    let mut state = state(Some("other"));
    let message =
        state.context().unsent_event(&named(Kind::JOB, "a"), state.workload("w"), (None, None)).expect("an event");
    state.note_event(named(Kind::JOB, "a"), message.0, &message.1);
    assert_eq!(
        state.context().unsent_event(&named(Kind::JOB, "a"), state.workload("w"), (None, None)),
        None,
        "it is known"
    );
}

#[test]
fn label_gives_the_tiers_of_a_workload_that_names_none() {
    let rules = json!({"capacityTiers": {"default": ["reserved"], "defaultFor": [{"label": "team/rank", "values": ["first"], "tiers": ["spot"]}]}});
    let tiers = |rank: Option<&str>, tier: &str| {
        let (job, workload) = of_rank(rank);
        let state =
            State::new().with(flavor_of_tier("f", tier)).with(policy("p", rules.clone())).with(job).with(workload);
        let workload = state.workload("w");
        state.context().tiers_by_label(workload, &workload.shape.pod_sets)
    };
    assert_eq!(tiers(Some("first"), "spot"), Some(vec![engine::Tier::Spot]));
    assert_eq!(tiers(Some("first"), "reserved"), None, "the queue offers no such tier");
    assert_eq!(tiers(Some("other"), "spot"), None);
    assert_eq!(tiers(None, "spot"), None);
}

#[test]
fn missing_priority_class_is_reported_unless_workload_has_it() {
    let state = state(None);
    let reported_by =
        |class: &str| state.context().unsent_event(&named(Kind::JOB, "a"), state.workload("w"), (Some(class), None));
    assert_eq!(reported_by("own"), None);
    assert_eq!(reported_by("none").map(|(reason, _)| reason), Some(NO_CLASS));
}
