use berth_cache::settings::Settings;
use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{
    admitted, changed, condition_since, deleting, evicted, finished, job, job_set, reserved, with_condition, workload,
    workload_of,
};
use crate::testing::step::step;
use crate::testing::{State, now};
use crate::write::Kind;

fn decided(state: &State) -> Option<String> {
    decide(&state.context(), state.workload("w"), now()).map(|decision| step(&decision).what)
}

fn of_job() -> Value {
    workload_of(&job("a"))
}

/// The state after the pods of Workload `w` were observed to be gone.
fn without_pods(mut state: State) -> State {
    state.notes.workloads_mut().change("w-uid", |notes| notes.pods_mut().note_gone());
    state
}

#[test]
fn orphaned_workload_loses_finalizer_when_no_pod_is_left() {
    let guarded =
        |workload: Value| changed(workload, json!({"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}}));
    let going = |workload: Value| deleting(guarded(workload));
    let just = |workload: Value| with_condition(workload, condition_since("Admitted", true, "Admitted", -1));
    let rows: Vec<(&str, State, Option<&str>)> = vec![
        ("its job is there", State::new().with(job("a")).with(admitted(of_job())), None),
        ("its job goes", State::new().with(deleting(job("a"))).with(admitted(of_job())), None),
        ("its job is gone", State::new().with(admitted(of_job())), Some("done")),
        (
            "it goes, never admitted",
            State::new().with(going(reserved(of_job()))),
            Some("RemoveFinalizer: merge Workload ns/w"),
        ),
        ("it goes, just admitted", State::new().with(going(just(admitted(of_job())))), Some("wait 2s")),
        ("it goes, admitted", State::new().with(going(admitted(of_job()))), Some("ProbePods: ask Workload ns/w")),
        (
            "it goes, no pod is left",
            without_pods(State::new().with(going(admitted(of_job())))),
            Some("RemoveFinalizer: merge Workload ns/w"),
        ),
    ];
    for (name, state, expected) in rows {
        assert_eq!(decided(&state).as_deref(), expected, "{name}");
    }
}

#[test]
fn jobs_of_deleted_job_set_go_before_its_workload() {
    let part = |patch: Value| {
        let owner = crate::testing::objects::controlled_by(&job_set("a", 1));
        changed(changed(job("a-main-0"), json!({ "metadata": owner })), patch)
    };
    let workload = || {
        deleting(changed(
            admitted(workload_of(&job_set("a", 1))),
            json!({"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}}),
        ))
    };
    let state = |part: Value| State::new().with(workload()).with(part);
    assert_eq!(decided(&state(part(json!({})))).as_deref(), Some("wait 1s"), "the garbage collector takes it");
    let kept = || deleting(part(json!({"metadata": {"finalizers": ["x/y"]}})));
    assert_eq!(decided(&state(kept())).as_deref(), Some("DeleteChild: delete after its objects Job ns/a-main-0"));
    let mut rid = state(kept());
    rid.notes.jobs_mut().change("a-main-0-uid", |notes| notes.note_rid_of_pods());
    assert_eq!(decided(&rid).as_deref(), Some("ProbePods: ask Workload ns/w"));
}

#[test]
fn workload_whose_reference_was_removed_is_taken_back_or_finished() {
    let unowned = |workload: Value| changed(workload, json!({"metadata": {"ownerReferences": null}}));
    let rows: Vec<(&str, State, Option<&str>)> = vec![
        (
            "its job is there",
            State::new().with(job("a")).with(unowned(of_job())),
            Some("AdoptWorkload: merge Workload ns/w"),
        ),
        ("its job is gone", State::new().with(unowned(of_job())), Some("FindLeftPods: ask Workload ns/w")),
        (
            "its job is gone without pods",
            without_pods(State::new().with(unowned(of_job()))),
            Some("FinishWorkload: apply status Workload ns/w"),
        ),
        ("its pods may run", State::new().with(unowned(admitted(of_job()))), None),
        (
            "its pods have gone",
            without_pods(State::new().with(unowned(admitted(of_job())))),
            Some("FinishWorkload: apply status Workload ns/w"),
        ),
        (
            "evicted, its pods may run",
            State::new().with(unowned(evicted(admitted(of_job()), "Preempted"))),
            Some("FindLeftPods: ask Workload ns/w"),
        ),
        ("finished, left behind", State::new().with(unowned(finished(of_job()))), Some("done")),
    ];
    for (name, state, expected) in rows {
        let found = decided(&state);
        match (name, expected) {
            // The presence of the finalizer decides about a finished Workload that was left behind.
            ("finished, left behind", _) => assert!(found.is_some() || !state.workload("w").guarded, "{name}"),
            _ => assert_eq!(found.as_deref(), expected, "{name}"),
        }
    }
}

#[test]
fn workload_that_never_had_an_owner_releases_an_evicted_reservation() {
    assert_eq!(decided(&State::new().with(workload("w"))), None);
    assert_eq!(decided(&State::new().with(reserved(workload("w")))), None);
    let evicted = || State::new().with(evicted(reserved(workload("w")), "Preempted"));
    assert_eq!(decided(&evicted()).as_deref(), Some("ReleaseQuota: apply status Workload ns/w"));
    let mut offline = evicted();
    offline.session.go_offline();
    assert_eq!(decided(&offline), None, "the caller decides when it leaves");
}

/// An owner of a kind that Berth does not know has a controller of its own, which starts and stops the job: Berth keeps the quota of a Workload with an unknown
/// owner kind until the finalizer of the Workload is removed.
#[test]
fn workload_with_owner_of_unknown_kind_keeps_its_quota() {
    let owner = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "t-uid", "controller": true}]}});
    let owned = |workload: Value| changed(workload, owner.clone());
    let decided = |workload: Value| {
        let state = State::new().with(owned(workload));
        decide(&state.context(), state.workload("w"), now()).map(|decision| step(&decision))
    };
    assert_eq!(decided(workload("w")), None);
    assert_eq!(
        decided(deleting(workload("w"))).map(|step| step.what).as_deref(),
        Some("RemoveFinalizer: merge Workload ns/w")
    );
    for (workload, kind, holds) in [
        (reserved(workload("w")), "Normal", "whoever made it starts and stops it"),
        (deleting(reserved(workload("w"))), "Warning", "it holds its quota until nothing of it runs"),
    ] {
        let expected =
            format!("{kind} OwnerKindUnknown: its owner, Thing \"t\", is of a kind that Berth does not know: {holds}");
        let event = decided(workload).map(|step| step.events.concat()).unwrap_or_default();
        assert!(event.starts_with(&expected), "{event}");
    }
}

#[test]
fn owner_of_configured_kind_is_managed() {
    let managed = |kinds: &[Kind], workload: Value| {
        let settings = Settings { job_kinds: kinds.iter().copied().collect(), ..Settings::default() };
        let state = State::with_settings(settings).with(workload);
        state.context().manages_owner(state.workload("w"))
    };
    assert!(managed(&[Kind::JOB], of_job()));
    assert!(!managed(&[Kind::JOB_SET], of_job()));
    assert!(managed(&[], workload("w")), "it has no owner");
}
