use berth_cache::settings::Settings;
use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{
    admitted, changed, condition, deleting, finished, job, training_job, with_condition, workload, workload_of,
};
use crate::testing::step::{Step, step};
use crate::testing::{State, now};

fn kept_for(millis: Option<i64>) -> Settings {
    Settings { retain_finished_ms: millis, retain_deactivated_ms: millis, ..Settings::default() }
}

/// The Workload of job `a`, deactivated a minute ago for a reason.
fn deactivated(reason: &str) -> Value {
    let workload = with_condition(workload_of(&job("a")), condition("Evicted", true, reason));
    changed(workload, json!({"spec": {"active": false}}))
}

#[test]
fn job_of_a_deactivated_workload_is_deleted_after_its_retention() {
    let found = |keep: Option<i64>, workload: Value| -> Step {
        let state = State::with_settings(kept_for(keep)).with(job("a")).with(workload);
        step(&retention(&state.context(), state.workload("w"), now()))
    };
    let reason = "DeactivatedDueToRequeuingLimitExceeded";
    assert_eq!(found(None, deactivated(reason)).what, "done");
    assert_eq!(found(Some(61_000), deactivated(reason)).what, "wait 1s");
    assert_eq!(found(Some(60_000), deactivated("Deactivated")).what, "done", "a user has deactivated it");
    assert_eq!(found(Some(60_000), admitted(deactivated(reason))).what, "done", "it holds quota");
    let deleted = found(Some(60_000), deactivated(reason));
    assert_eq!((deleted.what.as_str(), &deleted.body), ("DeleteJob: delete Job ns/a", &json!("a-uid")));
    assert_eq!(deleted.events, ["Normal Deleted: Deleted job: deactivation retention period expired"]);
}

#[test]
fn workload_without_a_known_job_is_left_to_its_controller() {
    let workload = with_condition(workload("w"), condition("Evicted", true, "DeactivatedDueToRequeuingLimitExceeded"));
    let state = State::with_settings(kept_for(Some(1))).with(workload);
    assert_eq!(step(&retention(&state.context(), state.workload("w"), now())).what, "done");
}

/// If the Workload were deleted before the status of its TrainingJob shows the end, the job would run again.
#[test]
fn finished_workload_stays_until_its_training_job_shows_the_end() {
    let ended = changed(training_job("a"), json!({"status": {"phase": "Succeeded"}}));
    let found = |training: Value, workload: Value| {
        let state = State::with_settings(kept_for(Some(60_000))).with(training).with(workload);
        step(&super::finished(&state.context(), state.workload("w"), now())).what
    };
    let workload = || finished(admitted(workload_of(&training_job("a"))));
    let guarded =
        || deleting(changed(workload(), json!({"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}})));
    assert_eq!(found(training_job("a"), workload()), "wait 60s");
    assert_eq!(found(training_job("a"), guarded()), "wait 60s");
    assert_eq!(found(ended.clone(), workload()), "DeleteWorkload: delete Workload ns/w");
    assert_eq!(found(ended, guarded()), "RemoveFinalizer: merge Workload ns/w");
    assert_eq!(found(deleting(training_job("a")), workload()), "DeleteWorkload: delete Workload ns/w");
}
