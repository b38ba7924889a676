use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, changed, job, training_job, workload, workload_of};
use crate::testing::step::{Step, step};
use crate::testing::{State, now};

fn eviction() -> engine::Eviction {
    engine::Eviction {
        uid: "w-uid".to_owned(),
        preemptor: "other-uid".to_owned(),
        reason: "InCohortReclamation",
        preemptor_path: "/c/other".to_owned(),
        preemptee_path: "/c/cq".to_owned(),
        gives_up: None,
    }
}

/// The preemption of Workload `w` in a state with these other Workloads.
fn preempted(victim: Value, others: Vec<Value>) -> Step {
    let state = others.into_iter().fold(State::new().with(victim), State::with);
    step(&preempt(&state.context(), state.workload("w"), &eviction(), now()))
}

#[test]
fn victim_eviction_names_reason_and_paths_of_its_preemption() {
    let preemptor = changed(
        workload_of(&job("b")),
        json!({"metadata": {"name": "other", "uid": "other-uid"}, "spec": {"priority": 5}}),
    );
    let found = preempted(admitted(workload_of(&job("a"))), vec![preemptor]);
    assert_eq!(found.what, "Evict: apply status Workload ns/w");
    let message = "Preempted to accommodate a workload (UID: other-uid, JobUID: b-uid) due to reclamation within the cohort; \
                   preemptor path: /c/other; preemptee path: /c/cq";
    assert_eq!(found.condition("Evicted"), Some((true, "Preempted", message)));
    assert_eq!(found.condition("Preempted"), Some((true, "InCohortReclamation", message)));
    assert_eq!(found.condition("QuotaReserved").map(|(is, ..)| is), Some(true), "its quota stays until it has stopped");
    let priorities =
        "preemptor effective priority: 5 (base: 5, boost: 0); preemptee effective priority: 0 (base: 0, boost: 0)";
    assert_eq!(
        found.events,
        [
            format!("Normal EvictedDueToPreempted: {message}"),
            format!("Normal Preempted: {message}; {priorities}"),
            format!("Normal PreemptedWorkload: Preempted workload ns/w (UID: w-uid) in ClusterQueue cq; {priorities}"),
        ]
    );
}

/// A reader of events in one namespace may not be allowed to read another namespace.
#[test]
fn preemptor_of_another_namespace_does_not_get_the_victims_name() {
    let far = changed(workload("other"), json!({"metadata": {"namespace": "far", "uid": "other-uid"}}));
    let found = preempted(admitted(workload_of(&job("a"))), vec![far]);
    assert!(
        found.events[2].starts_with("Normal PreemptedWorkload: Preempted a workload of another namespace"),
        "{:?}",
        found.events
    );
}

#[test]
fn preemptor_that_is_gone_is_unknown_and_gets_no_event() {
    let found = preempted(admitted(workload_of(&job("a"))), Vec::new());
    assert_eq!(found.events.len(), 2);
    assert!(found.events[0].contains("JobUID: UNKNOWN"), "{:?}", found.events);
}

#[test]
fn preempted_training_job_gets_event_naming_both_queues() {
    let training = training_job("a");
    let preemptor = changed(workload("other"), json!({"metadata": {"uid": "other-uid"}}));
    let found = preempted(admitted(workload_of(&training)), vec![training, preemptor]);
    let reported = "Normal Preempted: a Workload of ClusterQueue cq takes the quota that this job holds of ClusterQueue cq: InCohortReclamation";
    assert!(found.events.iter().any(|event| event == reported), "{:?}", found.events);
}

#[test]
fn preemptor_is_read_back_from_its_message() {
    let message = |uid: &str| preemption_message((uid, ""), "InClusterQueue", "/a", "/b");
    assert_eq!(preemptor_named(&message("u-1")), Some("u-1"));
    assert_eq!(preemptor_named(&message("")), None);
    assert_eq!(preemptor_named("something else"), None);
}
