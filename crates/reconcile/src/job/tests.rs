//! Unit tests of decisions about a job.

use berth_cache::settings::Settings;
use berth_engine::model::{Requirement, Selector, SelectorOp};
use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, changed, deleting, evicted, finished, job, reserved, workload_of};
use crate::testing::step::{Step, step};
use crate::testing::{State, named, now};

/// Calls `ask` with the decision's input (`JobCase`) for a job of the test's state.
pub(super) fn case_of<R>(state: &State, object: &ObjectKey, ask: impl FnOnce(JobCase<'_>) -> R) -> R {
    let ctx = state.context();
    let job = ctx.view.jobs().get(object).unwrap_or_else(|| panic!("no {object}"));
    ask(JobCase { ctx: &ctx, key: object, job, now: now() })
}

/// A job whose template has the placement of a start by Workload `w`; the job is suspended if `suspended`.
pub(super) fn placed(job: Value, suspended: bool) -> Value {
    let metadata =
        json!({"labels": {"kueue.x-k8s.io/podset": "main"}, "annotations": {"kueue.x-k8s.io/workload": "w"}});
    changed(job, json!({"spec": {"suspend": suspended, "template": {"metadata": metadata}}}))
}

/// Running job `a` with a placement.
pub(super) fn running() -> Value {
    placed(job("a"), false)
}

/// The pending Workload of Job `a`.
pub(super) fn pending() -> Value {
    workload_of(&job("a"))
}

/// The decision about Job `a`.
pub(super) fn decided(state: &State) -> Step {
    step(&decide(&state.context(), &named(Kind::JOB, "a"), now()))
}

/// A state with Job `a` and its Workload.
fn both(job: Value, workload: Value) -> State {
    State::new().with(job).with(workload)
}

#[test]
fn job_decision_follows_job_and_its_workload() {
    let unmanaged = || {
        let (key, op, values) = ("managed".to_owned(), SelectorOp::In, vec!["yes".to_owned()]);
        let managed_namespaces = Selector(vec![Requirement { key, op, values }]);
        State::with_settings(Settings { managed_namespaces, ..Settings::default() })
    };
    let suspended = || job("a");
    let unsuspended = || changed(job("a"), json!({"spec": {"suspend": false}}));
    let ended = || {
        let end = json!({"type": "Complete", "status": "True", "reason": "R", "message": "all done"});
        changed(running(), json!({"status": {"conditions": [end]}}))
    };
    let other = || changed(pending(), json!({"metadata": {"name": "x", "uid": "x-uid"}}));
    let larger = || {
        changed(
            pending(),
            json!({"spec": {"podSets": [changed(pending()["spec"]["podSets"][0].clone(), json!({"count": 5}))]}}),
        )
    };
    let created = berth_jobs::workload_name("Job", "batch", "a", "a-uid");
    let created = format!("CreateWorkload: create Workload ns/{created}");
    let ending = || {
        let mut state = both(running(), admitted(pending()));
        state.end_namespace();
        state
    };
    let busy = || {
        let mut state = both(suspended(), admitted(pending()));
        state.in_flight.expect(named(Kind::Workload, "w"), 9);
        state
    };
    let stopped_just_now = || {
        let mut state = both(running(), reserved(pending()));
        state.notes.jobs_mut().change("a-uid", |notes| notes.note_stopped(now()));
        state
    };
    let rows: Vec<(&str, State, &str)> = vec![
        ("no job", State::new(), "done"),
        ("suspended, no Workload", State::new().with(suspended()), &created),
        ("running, no Workload", State::new().with(unsuspended()), "SuspendJob: merge Job ns/a"),
        ("namespace not managed", unmanaged().with(unsuspended()), "done"),
        ("pending", both(suspended(), pending()), "done"),
        ("reserved", both(suspended(), reserved(pending())), "done"),
        ("admitted", both(suspended(), admitted(pending())), "StartJob: merge Job ns/a"),
        ("running, admitted", both(running(), admitted(pending())), "done"),
        ("running, only reserved", both(running(), reserved(pending())), "SuspendJob: merge Job ns/a"),
        ("running, only reserved, stopped a moment ago", stopped_just_now(), "wait 1s"),
        ("running, evicted", both(running(), evicted(admitted(pending()), "Preempted")), "SuspendJob: merge Job ns/a"),
        ("running, finished Workload", both(running(), finished(pending())), "SuspendJob: merge Job ns/a"),
        ("ended", both(ended(), admitted(pending())), "FinishWorkload: apply status Workload ns/w"),
        ("ended with its Workload", both(ended(), finished(admitted(pending()))), "LetFinishedGo: merge Workload ns/w"),
        (
            "a second Workload",
            both(running(), admitted(pending())).with(other()),
            "DeleteWorkload: delete Workload ns/x",
        ),
        ("pending for more pods", both(suspended(), larger()), "UpdateWorkload: merge Workload ns/w"),
        ("quota for more pods", both(suspended(), admitted(larger())), "DeleteWorkload: delete Workload ns/w"),
        ("going, no quota", both(deleting(suspended()), pending()), "done"),
        ("going with its namespace", ending(), "DeleteJob: delete Job ns/a"),
        ("Workload about to change", busy(), "done"),
    ];
    for (name, state, expected) in rows {
        assert_eq!(decided(&state).what, expected, "{name}");
    }
}

/// The body of a start unsuspends the job and places its pods, and changes no other field of the job.
#[test]
fn start_of_admitted_job_unsuspends_and_places_it() {
    let flavor = json!({"kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": {"nodeLabels": {"pool": "a"}}});
    let found = decided(&both(job("a"), admitted(pending())).with(flavor));
    assert_eq!(found.body["metadata"], json!({"uid": "a-uid", "resourceVersion": "7"}));
    let template = &found.body["spec"]["template"];
    assert_eq!(found.body["spec"]["suspend"], json!(false));
    assert_eq!(template["spec"], json!({"nodeSelector": {"pool": "a"}}));
    assert_eq!(template["metadata"]["labels"]["kueue.x-k8s.io/podset"], json!("main"));
    assert_eq!(found.events, ["Normal Started: Admitted by clusterQueue cq"]);
}

#[test]
fn suspension_says_why_the_job_must_not_run() {
    let evicted = both(running(), evicted(admitted(pending()), "Preempted"));
    for (state, message) in [
        (State::new().with(running()), "Missing Workload; unable to restore pod templates"),
        (both(running(), reserved(pending())), "Not admitted by cluster queue"),
        (both(running(), finished(pending())), "Workload is finished"),
        (both(running(), deleting(admitted(pending()))), "Workload is deleted"),
        (evicted, "Preempted, in words"),
    ] {
        let found = decided(&state);
        assert_eq!(found.body["spec"]["suspend"], json!(true));
        assert_eq!(found.body["metadata"]["annotations"], json!({"kueue.x-k8s.io/stopping": "true"}));
        assert_eq!(found.events, [format!("Normal Stopped: {message}")]);
    }
}

/// A pod that has succeeded gives its quota back: at once if another Workload waits, otherwise together with the pods that end in the next five seconds.
#[test]
fn ended_pods_give_quota_back_together_unless_others_wait() {
    let succeeded = || {
        let job = changed(running(), json!({"spec": {"completions": 4}, "status": {"succeeded": 3, "active": 1}}));
        let workload = admitted(workload_of(&changed(job.clone(), json!({"spec": {"suspend": true}}))));
        both(job, workload)
    };
    let at_once = succeeded();
    let found = decided(&at_once);
    assert_eq!(found.what, "SetReclaimable: apply status Workload ns/w");
    assert_eq!(found.body["status"], json!({"reclaimablePods": [{"name": "main", "count": 1}]}));
    let mut noted = succeeded();
    noted.notes.jobs_mut().change("a-uid", |notes| notes.note_ended(crate::testing::in_seconds(-2)));
    assert_eq!(decided(&noted).what, "wait 3s");
    // The ClusterQueue has ten cpus, so the other Workload, which requests twelve, waits.
    let waits = changed(
        crate::testing::objects::workload("other"),
        json!({"spec": {"podSets": [
        changed(pending()["spec"]["podSets"][0].clone(), json!({"count": 12}))]}}),
    );
    noted.put(waits);
    noted.pass_on_workloads();
    let plan = noted
        .quota
        .world_mut()
        .plan(berth_cache::moments::millis(now()), berth_engine::model::Limits { max_admissions: 9 });
    assert_eq!(plan.admissions.len(), 0);
    assert_eq!(decided(&noted).what, "SetReclaimable: apply status Workload ns/w");
}

#[test]
fn suspended_job_moves_workload_without_quota_to_new_queue() {
    let moved = || changed(job("a"), json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}));
    let found = decided(&both(moved(), pending()));
    assert_eq!(found.what, "UpdateWorkload: merge Workload ns/w");
    assert_eq!(found.body["spec"], json!({"queueName": "other"}));
    let found = decided(&both(moved(), admitted(pending())));
    assert_eq!(found.what, "ReleaseQuota: apply status Workload ns/w", "it follows once the quota is back");
}

#[test]
fn job_that_names_a_prebuilt_workload_takes_that_alone() {
    let label = json!({"metadata": {"labels": {"kueue.x-k8s.io/prebuilt-workload-name": "w"}}});
    let prebuilt = || changed(job("a"), label.clone());
    let free = || {
        let unowned = json!({"metadata": {"ownerReferences": null, "labels": null}});
        changed(workload_of(&prebuilt()), unowned)
    };
    let of_another = || {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "b", "uid": "b-uid", "controller": true});
        State::new().with(changed(free(), json!({"metadata": {"ownerReferences": [owner]}}))).with(job("b"))
    };
    let rows: Vec<(&str, State, &str)> = vec![
        ("not there", State::new().with(prebuilt()), "wait for Workload ns/w"),
        ("free", State::new().with(prebuilt()).with(free()), "AdoptWorkload: merge Workload ns/w"),
        ("another job's", of_another().with(prebuilt()), "tell"),
        ("its own", State::new().with(prebuilt()).with(admitted(workload_of(&prebuilt()))), "StartJob: merge Job ns/a"),
    ];
    for (name, state, expected) in rows {
        assert_eq!(decided(&state).what, expected, "{name}");
    }
}
