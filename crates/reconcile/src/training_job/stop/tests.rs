use serde_json::json;

use super::*;
use crate::testing::objects::{admitted, changed, controlled_by, deleting, evicted, job, training_job};
use crate::testing::step::step;
use crate::testing::{State, named};
use crate::training_job::tests::{case_of, pending, running, workers};

fn deleted(state: &State) -> Option<String> {
    case_of(state, |case| case.delete_children("why").map(|decision| step(&decision).what))
}

#[test]
fn jobs_of_a_training_job_are_deleted_and_no_others() {
    let state = || State::new().with(training_job("a")).with(admitted(pending()));
    assert_eq!(deleted(&state()), None);
    assert_eq!(deleted(&state().with(job("a-worker"))), None, "another object's Job");
    assert_eq!(deleted(&running()).as_deref(), Some("StopTraining: delete Job ns/a-worker"));
    let extra = changed(job("a-ps"), json!({"metadata": controlled_by(&training_job("a"))}));
    assert_eq!(
        deleted(&state().with(extra)).as_deref(),
        Some("StopTraining: delete Job ns/a-ps"),
        "a role of an older spec"
    );
    let mut busy = running();
    busy.in_flight.expect(named(Kind::JOB, "a-worker"), 9);
    assert_eq!(deleted(&busy).as_deref(), Some("done"), "a write of it is under way");
}

/// The pods of a Job that a finalizer keeps run as long as the Job exists.
#[test]
fn job_kept_by_finalizer_is_deleted_after_its_pods() {
    let kept = || State::new().with(training_job("a")).with(admitted(pending())).with(deleting(workers(json!({}))));
    assert_eq!(deleted(&kept()).as_deref(), Some("StopTraining: delete after its objects Job ns/a-worker"));
    let mut rid = kept();
    rid.notes.jobs_mut().change("a-worker-uid", |notes| notes.note_rid_of_pods());
    assert_eq!(deleted(&rid), None);
    let driven = case_of(&running(), |case| case.drive_out_where("why", |_| true).map(|decision| step(&decision).what));
    assert_eq!(driven.as_deref(), Some("StopTraining: delete after its objects Job ns/a-worker"));
}

#[test]
fn pods_are_probed_until_they_were_seen_gone() {
    let probed =
        |state: &State| case_of(state, |case| case.probe(state.workload("w")).map(|decision| step(&decision).what));
    let mut state = State::new().with(training_job("a")).with(evicted(admitted(pending()), "Preempted"));
    assert_eq!(probed(&state).as_deref(), Some("ProbePods: ask Workload ns/w"));
    state
        .in_flight
        .unresolved_mut()
        .note_unresolved_creation(named(Kind::JOB, "a-worker"), crate::testing::in_seconds(-5));
    assert_eq!(probed(&state).as_deref(), Some("wait 15s"), "a creation may still be applied");
    let mut gone = State::new().with(training_job("a")).with(admitted(pending()));
    gone.notes.workloads_mut().change("w-uid", |notes| notes.pods_mut().note_gone());
    assert_eq!(probed(&gone), None);
}

#[test]
fn save_request_result_is_described_with_its_step() {
    let value_of = |saved: bool, annotations: serde_json::Value| {
        let job = changed(training_job("a"), json!({"metadata": {"annotations": annotations}}));
        let (reason, message, until) = (String::new(), String::new(), crate::testing::now());
        let grace = Grace { reason, message, until, saved };
        case_of(&State::new().with(job), |case| case.what_was_saved(&grace))
    };
    assert_eq!(value_of(false, json!({})), "saved no checkpoint after it was asked to");
    assert_eq!(value_of(true, json!({})), "saved a checkpoint");
    let step =
        json!({"berth.dev/last-checkpoint-time": crate::testing::at(-1), "berth.dev/last-checkpoint-step": "40"});
    assert_eq!(value_of(true, step), "saved its checkpoint of step 40");
}
