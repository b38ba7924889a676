use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, changed, evicted, workload_of};
use crate::testing::{State, at, in_seconds, named};
use crate::training_job::tests::{restarting, workers};
use crate::write::Kind;

/// The Workload of a TrainingJob, admitted with four workers, with the note of a restart with a number of workers after a number of evictions.
fn noted_with(workers: i32, evictions: i32) -> Value {
    let scale = json!({"workers": workers, "at": at(-20), "workload": "w-uid", "evictions": evictions}).to_string();
    changed(admitted(workload_of(&restarting())), json!({"metadata": {"annotations": {"berth.dev/last-scale": scale}}}))
}

#[test]
fn restart_counts_for_the_run_in_which_it_was_noted() {
    let counts = |workload: Value| scaled(State::new().with(workload).workload("w")).map(|scale| scale.workers);
    let stats = json!({"status": {"schedulingStats": {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]}}});
    assert_eq!(counts(noted_with(3, 0)), Some(3));
    assert_eq!(counts(noted_with(1, 0)), None, "fewer than the run may have");
    assert_eq!(counts(changed(noted_with(3, 0), stats.clone())), None, "it was evicted since");
    assert_eq!(counts(changed(noted_with(3, 1), stats.clone())), Some(3));
    assert_eq!(counts(evicted(changed(noted_with(3, 0), stats), "Preempted")), Some(3), "its quota is not free yet");
    let other = json!({"metadata": {"uid": "other"}});
    assert_eq!(scaled(State::new().with(changed(noted_with(3, 0), other)).workload("w")), None);
}

#[test]
fn run_start_time_is_that_of_its_restart() {
    let state = State::new().with(noted_with(3, 0));
    assert_eq!(begun_at(state.workload("w")), Some(in_seconds(-20)));
    assert_eq!(
        (reported_start(state.workload("w")), jobs_since(state.workload("w"))),
        (Some(in_seconds(-20)), Some(in_seconds(-20)))
    );
    let plain = State::new().with(admitted(workload_of(&restarting())));
    assert_eq!(begun_at(plain.workload("w")), Some(in_seconds(-60)));
    assert!(!runs_on(plain.workload("w")));
}

#[test]
fn job_with_outdated_worker_count_is_deleted_for_restart() {
    let goes = |annotations: Value| {
        let job = workers(json!({"metadata": {"annotations": annotations}}));
        let state = State::new().with(noted_with(3, 0)).with(job);
        goes_for_restart(state.workload("w"), &state.view.jobs()[&named(Kind::JOB, "a-worker")])
    };
    assert!(goes(json!({"berth.dev/told-workers": "4"})));
    assert!(!goes(json!({"berth.dev/told-workers": "3"})));
    assert!(goes(json!({})), "its own number of pods counts where it says none");
}
