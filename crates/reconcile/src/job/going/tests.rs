use serde_json::{Value, json};

use crate::job::tests::{case_of, placed, running};
use crate::testing::objects::{admitted, changed, deleting, evicted, job, reserved, workload_of};
use crate::testing::step::{Step, step};
use crate::testing::{State, named};
use crate::write::Kind;

/// The decision about job `a`, which is being deleted, with its Workload.
fn going(state: &State) -> Step {
    case_of(state, &named(Kind::JOB, "a"), |case| step(&case.going(&[state.workload("w")])))
}

fn with(job: Value, workload: Value) -> State {
    State::new().with(deleting(job)).with(workload)
}

#[test]
fn deleted_job_releases_quota_that_no_pod_uses() {
    let workload = || workload_of(&job("a"));
    let gone = |mut state: State| {
        state.notes.workloads_mut().change("w-uid", |notes| notes.pods_mut().note_gone());
        state
    };
    let orphaning = || changed(placed(job("a"), true), json!({"metadata": {"finalizers": ["orphan"]}}));
    let active = || changed(placed(job("a"), true), json!({"status": {"active": 1}}));
    let rid = |mut state: State| {
        state.notes.jobs_mut().change("a-uid", |notes| notes.note_rid_of_pods());
        state
    };
    let rows: Vec<(&str, State, &str)> = vec![
        ("no quota", with(job("a"), workload()), "done"),
        ("never ran", with(job("a"), reserved(workload())), "ReleaseQuota: apply status Workload ns/w"),
        ("runs on", with(running(), admitted(workload())), "done"),
        ("runs, evicted", with(running(), evicted(admitted(workload()), "Preempted")), "SuspendJob: merge Job ns/a"),
        ("suspended, may have run", with(placed(job("a"), true), admitted(workload())), "ProbePods: ask Workload ns/w"),
        (
            "suspended, pods seen gone",
            gone(with(placed(job("a"), true), admitted(workload()))),
            "ReleaseQuota: apply status Workload ns/w",
        ),
        (
            "evicted, pods run",
            with(active(), evicted(admitted(workload()), "Preempted")),
            "DeleteChild: delete after its objects Job ns/a",
        ),
        (
            "evicted, pods are driven out",
            rid(with(active(), evicted(admitted(workload()), "Preempted"))),
            "ProbePods: ask Workload ns/w",
        ),
        ("leaves its pods", with(orphaning(), admitted(workload())), "FindLeftPods: ask Workload ns/w"),
        (
            "its Workload goes, too",
            with(active(), deleting(admitted(workload()))),
            "DeleteChild: delete after its objects Job ns/a",
        ),
        (
            "its Workload goes, too, and it runs",
            with(running(), deleting(admitted(workload()))),
            "SuspendJob: merge Job ns/a",
        ),
    ];
    for (name, state, expected) in rows {
        assert_eq!(going(&state).what, expected, "{name}");
    }
}

/// A Workload that was not evicted is not requeued, because it ends with its job.
#[test]
fn quota_of_deleted_job_is_released_without_requeue() {
    let found = going(&with(job("a"), reserved(workload_of(&job("a")))));
    assert_eq!(found.condition("QuotaReserved"), Some((false, "PendingEvaluation", "Job is being deleted")));
    assert_eq!(found.condition("Requeued"), None);
    let evicted = evicted(reserved(workload_of(&job("a"))), "Preempted");
    assert_eq!(going(&with(job("a"), evicted)).condition("Requeued").map(|(is_requeued, ..)| is_requeued), Some(false));
}

#[test]
fn job_with_quota_or_pods_ends_with_its_namespace() {
    let ends = |job: Value, workload: Value| {
        let state = State::new().with(job).with(workload);
        case_of(&state, &named(Kind::JOB, "a"), |case| case.ends_with_namespace(&[state.workload("w")]))
    };
    let workload = || workload_of(&job("a"));
    let ended =
        json!({"status": {"conditions": [{"type": "Complete", "status": "True", "reason": "R", "message": ""}]}});
    assert!(!ends(job("a"), workload()));
    assert!(ends(job("a"), reserved(workload())));
    assert!(ends(changed(job("a"), json!({"status": {"active": 1}})), workload()));
    assert!(!ends(changed(job("a"), ended), reserved(workload())));
}
