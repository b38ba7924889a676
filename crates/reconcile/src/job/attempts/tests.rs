use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, changed, controlled_by, job, job_set, workload_of};
use crate::testing::{State, named, own_name};
use crate::write::Kind;

/// JobSet `a` of three Jobs with one pod each; the JobSet's status says that `succeeded` Jobs have succeeded.
fn set(succeeded: i32) -> Value {
    let status = json!({"restarts": 1, "replicatedJobsStatus": [
        {"name": "main", "active": 0, "ready": 0, "succeeded": succeeded, "failed": 0, "suspended": 0}]});
    changed(job_set("a", 3), json!({"spec": {"suspend": false}, "status": status}))
}

/// A Job of JobSet `a` that has succeeded in the given attempt.
fn part(index: i32, attempt: i32) -> Value {
    let end = json!([{"type": "Complete", "status": "True", "reason": "R", "message": ""}]);
    let labels = json!({"kueue.x-k8s.io/queue-name": null, "jobset.sigs.k8s.io/restart-attempt": attempt.to_string()});
    let patch = json!({"metadata": {"labels": labels}, "spec": {"suspend": false}, "status": {"conditions": end}});
    changed(changed(job(&format!("a-main-{index}")), json!({"metadata": controlled_by(&set(0))})), patch)
}

fn over(state: &State) -> i32 {
    let object = named(Kind::JOB_SET, "a");
    over_of(&state.view, &object, &state.view.jobs()[&object]).iter().map(|pods| pods.count).sum()
}

/// After a restart, the status of a JobSet still counts ended Jobs of the earlier attempt, although these Jobs run again.
#[test]
fn ended_pods_count_only_in_jobs_of_this_attempt() {
    let state = |parts: &[Value]| parts.iter().cloned().fold(State::new().with(set(2)), State::with);
    assert_eq!(over(&state(&[part(0, 1), part(1, 1)])), 2);
    assert_eq!(over(&state(&[part(0, 1), part(1, 0)])), 1, "one has succeeded in the attempt before");
    assert_eq!(over(&state(&[part(0, 1), part(7, 1)])), 1, "one is beyond the replicas");
    assert_eq!(over(&state(&[])), 0, "the Jobs of the second attempt are not seen yet");
    let first = changed(set(2), json!({"status": {"restarts": 0}}));
    assert_eq!(over(&State::new().with(first)), 2, "only the status counts where no Job is there");
}

#[test]
fn restarted_pods_with_returned_quota_count_as_running_again() {
    let back = json!({"status": {"reclaimablePods": [{"name": "main", "count": 2}]}});
    let workload = changed(admitted(workload_of(&job_set("a", 3))), back);
    let mut state = State::new().with(set(2)).with(part(0, 1)).with(part(1, 0)).with(workload);
    assert_eq!(gave_back(&state.view, "a-uid"), [own_name("w")]);
    assert!(note_again(&mut state.view, &own_name("w")));
    let again = |state: &State| state.workload("w").runs_again().iter().map(|pods| pods.count).sum::<i32>();
    assert_eq!(again(&state), 1);
    assert!(!note_again(&mut state.view, &own_name("w")), "it is known");
    state.put(part(1, 1));
    assert!(note_again(&mut state.view, &own_name("w")));
    assert_eq!(again(&state), 0, "the second Job has succeeded again");
}
