use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, changed, condition_since, job, training_job, with_condition, workload_of};
use crate::testing::step::{Step, step};
use crate::testing::{State, at, in_seconds, named};
use crate::training_job::tests::{case_of, listed, pending, running, saving, store, workers};

fn started(state: &State) -> Step {
    case_of(state, |case| step(&case.start(state.workload("w"))))
}

fn admitted_state() -> State {
    State::new().with(training_job("a")).with(admitted(pending()))
}

/// The state after all objects were applied that a start applies before the Jobs.
fn prepared(mut state: State) -> State {
    for _ in 0..3 {
        let next = case_of(&state, |case| case.start(state.workload("w")));
        match next {
            Decision::Write(draft) if draft.purpose == Purpose::PrepareTraining => {
                state.notes.jobs_mut().change("a-uid", |notes| notes.training_mut().note_prepared(draft.key));
            }
            _ => break,
        }
    }
    state
}

#[test]
fn start_makes_the_jobs_of_an_admitted_training_job() {
    let found = started(&prepared(admitted_state()));
    assert_eq!(found.what, "StartTraining: create Job ns/a-worker");
    assert_eq!((&found.body["spec"]["completions"], &found.body["spec"]["parallelism"]), (&json!(2), &json!(2)));
    assert_eq!(found.body["metadata"]["ownerReferences"][0]["uid"], json!("a-uid"));
    assert!(
        found.events[0].starts_with("Normal Started: Created Job a-worker, admitted by clusterQueue cq"),
        "{:?}",
        found.events
    );
    let taken = prepared(admitted_state()).with(job("a-worker"));
    assert_eq!(started(&taken).what, "wait 10s", "another object's Job has its name");
    let mut refused = prepared(admitted_state());
    refused.in_flight.failed(&named(Kind::JOB, "a-worker"), crate::testing::now(), 5_000);
    assert_eq!(started(&refused).what, "wait 5s");
}

#[test]
fn start_with_other_pods_than_were_admitted_is_queued_again() {
    let edited = changed(training_job("a"), json!({"spec": {"resources": {"replicaResources": {"cpu": "2"}}}}));
    let found = started(&State::new().with(edited).with(admitted(pending())));
    assert_eq!(found.condition("Evicted").map(|(is, reason, _)| (is, reason)), Some((true, "SpecChanged")));
    let fewer = changed(training_job("a"), json!({"spec": {"resources": {"maxReplicas": 1}}}));
    assert_eq!(started(&State::new().with(fewer).with(admitted(pending()))).what, "Evict: apply status Workload ns/w");
    let invalid = changed(training_job("a"), json!({"spec": {"resources": {"maxReplicas": 0}}}));
    let mut never = State::new().with(invalid).with(admitted(pending()));
    never.notes.workloads_mut().change("w-uid", |notes| notes.pods_mut().note_gone());
    let found = started(&never);
    assert_eq!(found.condition("Finished").map(|(is, reason, _)| (is, reason)), Some((true, "FailedToStart")));
}

/// Before a start, the checkpoint store is listed, so that the start resumes from the last checkpoint in the store.
#[test]
fn start_waits_to_know_its_last_checkpoint() {
    let state = || {
        prepared(
            State::new().with(store()).with(saving("main", -500)).with(admitted(workload_of(&saving("main", -500)))),
        )
    };
    let young = || {
        state().with(with_condition(
            admitted(workload_of(&saving("main", -500))),
            condition_since("Admitted", true, "Admitted", -10),
        ))
    };
    assert_eq!(started(&young()).what, "wait 50s");
    let found = started(&listed(young(), &[40], 4));
    assert_eq!(found.what, "StartTraining: create Job ns/a-worker");
    assert!(found.events[0].ends_with("; it goes on from its checkpoint of step 40"), "{:?}", found.events);
    assert_eq!(started(&state()).what, "StartTraining: create Job ns/a-worker", "it was patient for a minute");
}

/// The pods of a gang must get nodes within ten minutes.
#[test]
fn gang_without_all_pods_is_released_after_its_time() {
    let within = |timeout: &str, child: Value| {
        let training =
            changed(training_job("a"), json!({"spec": {"schedulingConfig": {"schedulingTimeout": timeout}}}));
        let state = State::new().with(training).with(admitted(pending())).with(child);
        case_of(&state, |case| step(&case.within_time(state.workload("w"))))
    };
    let lacks = || workers(json!({"status": {"active": 1, "ready": 1}}));
    assert_eq!(within("90s", lacks()).what, "wait 30s");
    let found = within("60s", lacks());
    let (_, reason, message) = found.condition("Evicted").expect("an eviction");
    assert_eq!(reason, "SchedulingTimeout");
    assert!(message.starts_with("not all pods had nodes 60s after the admission; tried again after 60s"), "{message}");
    assert_eq!(found.body["status"]["requeueState"], json!({"count": 1, "requeueAt": at(60)}));
}

#[test]
fn training_start_obstacle_has_reason_and_message() {
    let obstacle = |state: &State| case_of(state, |case| case.obstacle());
    assert_eq!(obstacle(&running()), None);
    let taken = admitted_state().with(job("a-worker"));
    let message = "Job ns/a-worker exists and belongs to somebody else; delete or rename it".to_owned();
    assert_eq!(obstacle(&taken), Some(("NameTaken".to_owned(), message)));
    let mut refused = admitted_state();
    refused.in_flight.refused(&named(Kind::TrainingJob, "a"), &named(Kind::JOB, "a-worker"), "too many");
    let message = "the API server refused Job a-worker: too many".to_owned();
    assert_eq!(obstacle(&refused), Some(("FailedCreate".to_owned(), message)));
}

#[test]
fn job_is_missing_since_time_in_running_condition() {
    let reported_by = |status: &str, reason: &str, since: i64| {
        let condition = json!({"type": "Running", "status": status, "reason": reason, "message": "", "lastTransitionTime": at(since)});
        let state = running().with(changed(training_job("a"), json!({"status": {"conditions": [condition]}})));
        case_of(&state, |case| case.gone_since(state.workload("w")))
    };
    assert_eq!(reported_by("True", "PodsReady", -9), Some(in_seconds(0)));
    assert_eq!(reported_by("False", "JobGone", -9), Some(in_seconds(-9)));
    assert_eq!(reported_by("False", "JobGone", -90), None, "it was an earlier run");
    assert_eq!(reported_by("False", "PodsNotReady", -9), None);
}
