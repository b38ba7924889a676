use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{
    admitted, changed, cluster_queue, condition_since, deleting, evicted, job, local_queue, reserved, with_condition,
    workload, workload_of,
};
use crate::testing::step::step;
use crate::testing::{State, at, in_seconds, now};

fn pending() -> Value {
    workload_of(&job("a"))
}

/// A Workload that was evicted for a reason and is not requeued, with the time of its next try.
fn not_requeued(reason: &str, again: Option<i64>) -> Value {
    let workload = with_condition(pending(), condition_since("Requeued", false, reason, -10));
    match again {
        Some(again) => changed(workload, json!({"status": {"requeueState": {"count": 1, "requeueAt": at(again)}}})),
        None => workload,
    }
}

#[test]
fn evicted_workload_is_requeued_when_its_cause_is_over() {
    let stopped = || changed(cluster_queue("cq", &[("f", 10)]), json!({"spec": {"stopPolicy": "Hold"}}));
    let younger = || changed(local_queue("lq", "cq"), json!({"metadata": {"creationTimestamp": at(-5)}}));
    let inactive = changed(not_requeued("Preempted", None), json!({"spec": {"active": false}}));
    type Requeued = Option<(Timestamp, &'static str, &'static str)>;
    let rows: Vec<(&str, State, Option<Requeued>)> = vec![
        ("was never evicted", State::new().with(pending()), None),
        (
            "back-off",
            State::new().with(not_requeued("PodsReadyTimeout", Some(9))),
            Some(Some((in_seconds(9), "BackoffFinished", "The workload backoff was finished"))),
        ),
        (
            "no back-off",
            State::new().with(not_requeued("Preempted", None)),
            Some(Some((Timestamp::MIN, "BackoffFinished", "The workload backoff was finished"))),
        ),
        (
            "activated",
            State::new().with(not_requeued("Deactivated", None)),
            Some(Some((Timestamp::MIN, "Reactivated", "The workload was reactivated"))),
        ),
        ("inactive", State::new().with(inactive), Some(None)),
        ("its queue stands", State::new().with(stopped()).with(not_requeued("ClusterQueueStopped", None)), Some(None)),
        (
            "its queue runs again",
            State::new().with(not_requeued("ClusterQueueStopped", None)),
            Some(Some((Timestamp::MIN, "ClusterQueueRestarted", "The ClusterQueue was restarted after being stopped"))),
        ),
        (
            "its LocalQueue is younger",
            State::new().with(younger()).with(not_requeued("LocalQueueStopped", None)),
            Some(Some((
                Timestamp::MIN,
                "LocalQueueRestarted",
                "The LocalQueue of the workload was created anew, and leads to ClusterQueue cq",
            ))),
        ),
        ("inadmissible", State::new().with(not_requeued("Inadmissible", None)), Some(None)),
    ];
    for (name, state, expected) in rows {
        let found = way_back(&state.context(), state.workload("w"));
        let found = found.as_ref().map(|back| match back {
            WayBack::Stays => None,
            WayBack::At(at, reason, message) => Some((*at, *reason, message.as_str())),
        });
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn reservation_without_a_place_is_taken_back_with_the_reason() {
    let lost = |state: State| {
        let found = without_place(&state.context(), state.workload("w"), now()).map(|decision| step(&decision));
        found.map(|step| step.condition("QuotaReserved").map(|(_, reason, message)| format!("{reason}: {message}")))
    };
    let state = || State::new().with(job("a")).with(reserved(pending()));
    assert_eq!(lost(state()), None);
    let ending = || {
        let mut state = state();
        state.end_namespace();
        state
    };
    assert_eq!(lost(ending()), Some(Some("PendingEvaluation: its namespace is being deleted".to_owned())));
    let gone = state().with(deleting(local_queue("lq", "cq")));
    assert_eq!(lost(gone), Some(Some("Misconfigured: LocalQueue lq is terminating or missing".to_owned())));
    let flavor = state().with(cluster_queue("cq", &[("g", 1)]));
    assert_eq!(lost(flavor), Some(Some("Misconfigured: ClusterQueue cq has flavor f no longer".to_owned())));
}

/// Quota is released before the finalizer is removed, if another finalizer keeps the Workload.
#[test]
fn workload_kept_by_foreign_finalizer_releases_quota_before_own_finalizer() {
    let guarded =
        |names: &[&str], workload: Value| deleting(changed(workload, json!({"metadata": {"finalizers": names}})));
    let ours = "kueue.x-k8s.io/resource-in-use";
    let rows = [
        ("ours alone", guarded(&[ours], admitted(pending())), "RemoveFinalizer: merge Workload ns/w"),
        ("another's, too", guarded(&[ours, "x/y"], admitted(pending())), "ReleaseQuota: apply status Workload ns/w"),
        ("another's, too, without quota", guarded(&[ours, "x/y"], pending()), "RemoveFinalizer: merge Workload ns/w"),
        ("none", guarded(&[], pending()), "done"),
    ];
    for (name, workload, expected) in rows {
        let state = State::new().with(workload);
        assert_eq!(step(&let_go(state.workload("w"), now())).what, expected, "{name}");
    }
    let state = State::new().with(guarded(&[ours, "x/y"], pending()));
    let found = step(&let_go(state.workload("w"), now()));
    assert_eq!(found.body["metadata"]["finalizers"], json!(["x/y"]), "the other one stays");
}

#[test]
fn admission_that_does_not_fit_its_workload_ends() {
    let misfit = || {
        let mut workload = reserved(workload("w"));
        workload["status"]["admission"]["podSetAssignments"][0]["name"] = json!("other");
        workload
    };
    let state = State::new().with(misfit());
    let found = unfit(state.workload("w"), true, now()).map(|decision| step(&decision).what);
    assert_eq!(found.as_deref(), Some("ReleaseQuota: apply status Workload ns/w"));
    let found = unfit(state.workload("w"), false, now()).map(|decision| step(&decision));
    let reason = found.as_ref().and_then(|step| step.condition("Evicted")).map(|(is, reason, _)| (is, reason));
    assert_eq!(reason, Some((true, "InvalidAdmission")));
    let fits = State::new().with(reserved(workload("w")));
    assert!(unfit(fits.workload("w"), true, now()).is_none());
}

#[test]
fn workload_released_for_good_is_not_requeued() {
    let released = |workload: Value| {
        let state = State::new().with(workload);
        let found = step(&release_for_good(state.workload("w"), "its job goes", now()));
        (
            found.condition("Requeued").map(|(is, ..)| is),
            found.condition("QuotaReserved").map(|(_, _, text)| text.to_owned()),
        )
    };
    assert_eq!(released(reserved(pending())), (None, Some("its job goes".to_owned())));
    assert_eq!(
        released(evicted(reserved(pending()), "Preempted")),
        (Some(false), Some("Preempted, in words".to_owned()))
    );
}

/// Another client has set `Admitted` on a Workload without quota, by which no pod would run.
#[test]
fn admitted_condition_without_quota_is_contradicted() {
    let claimed = || with_condition(pending(), condition_since("Admitted", true, "Admitted", -1));
    let state = State::new().with(claimed());
    let found = unadmitted(&state.context(), state.workload("w"), now()).map(|decision| step(&decision));
    assert_eq!(found.as_ref().and_then(|step| step.condition("Admitted")).map(|(is, ..)| is), Some(false));
    for workload in [pending(), reserved(pending()), admitted(pending())] {
        let state = State::new().with(workload);
        assert!(unadmitted(&state.context(), state.workload("w"), now()).is_none());
    }
}
