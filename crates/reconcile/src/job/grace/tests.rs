use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, changed, condition_since, policy, training_job, with_condition, workload_of};
use crate::testing::step::step;
use crate::testing::{State, at, in_seconds, named, now};
use crate::write::{EventType, Kind};

/// TrainingJob `a`, which saves checkpoints and saved last at second `last`.
fn saving(last: Option<i64>) -> Value {
    let checkpoint = json!({"spec": {"checkpoint": {"enabled": true}}});
    let job = changed(training_job("a"), checkpoint);
    match last {
        Some(last) => changed(job, json!({"metadata": {"annotations": {"berth.dev/last-checkpoint-time": at(last)}}})),
        None => job,
    }
}

/// The admitted Workload of TrainingJob `a`, evicted `ago` seconds ago.
fn evicting(reason: &str, ago: i64) -> Value {
    with_condition(admitted(workload_of(&training_job("a"))), condition_since("Evicted", true, reason, -ago))
}

fn state(job: Value, workload: Value, grace: Option<&str>) -> State {
    let state = State::new().with(job).with(workload);
    match grace {
        Some(grace) => state.with(policy("p", json!({"preemption": {"gracePeriod": grace}}))),
        None => state,
    }
}

#[test]
fn grace_of_evicted_training_job_ends_once_saved() {
    let rows = [
        ("has never saved", saving(None), evicting("Preempted", 10), None, Some((20, false))),
        ("grace of a policy", saving(None), evicting("Preempted", 10), Some("1m"), Some((50, false))),
        ("saved before", saving(Some(-11)), evicting("Preempted", 10), None, Some((20, false))),
        ("saved since", saving(Some(-5)), evicting("Preempted", 10), None, Some((20, true))),
        ("moves back, saved just before", saving(Some(-70)), evicting("ClimbedBack", 10), None, Some((20, true))),
        ("runs beyond its quota", saving(None), evicting("JobAltered", 10), None, None),
        ("does not save", training_job("a"), evicting("Preempted", 10), None, None),
        ("not evicted", saving(None), admitted(workload_of(&training_job("a"))), None, None),
    ];
    for (name, job, workload, grace, expected) in rows {
        let state = state(job, workload, grace);
        let found = state.context().grace_of(state.workload("w"));
        let found = found.map(|grace| (grace.until, grace.saved));
        assert_eq!(found, expected.map(|(until, saved)| (in_seconds(until), saved)), "{name}");
    }
}

#[test]
fn grace_ends_with_save_or_when_time_is_over() {
    let grace = |until: i64, saved: bool| {
        let (reason, message) = ("Preempted".to_owned(), "by another".to_owned());
        Grace { reason, message, until: in_seconds(until), saved }
    };
    assert!(grace(1, false).lasts(now()));
    assert!(!grace(0, false).lasts(now()), "the time is over");
    assert!(!grace(1, true).lasts(now()), "it has saved");
    let words = format!("asked to save a checkpoint before {}: by another", in_seconds(1));
    assert_eq!(grace(1, false).request(), words);
}

/// Pods are asked to save only once, and a repeated request would not extend the grace period.
#[test]
fn pods_are_asked_to_save_only_once() {
    let mut state = state(saving(None), evicting("Preempted", 10), None);
    let found = |state: &State| {
        let ctx = state.context();
        let grace = ctx.grace_of(state.workload("w")).expect("a grace period");
        let notice = Notice {
            key: named(Kind::TrainingJob, "a"),
            uid: "a-uid".to_owned(),
            event_type: EventType::Normal,
            reason: "CheckpointRequested".to_owned(),
            message: grace.request(),
            reporter: "reporter",
        };
        let decision = grace.wait(&ctx, state.workload("w"), notice);
        let Decision::Write(draft) = &decision else { return (step(&decision), None) };
        (step(&decision), noted(&ctx, draft, now()))
    };
    let (asked, noted) = found(&state);
    assert_eq!(asked.what, "NotifyPods: annotate pods Workload ns/w");
    let reason = "Preempted: Preempted, in words";
    assert_eq!(asked.body, json!({"berth.dev/stop-at": in_seconds(20).to_string(), "berth.dev/stop-reason": reason}));
    let (uid, noted) = noted.expect("a note");
    state.notes.workloads_mut().change(&uid, |notes| notes.save_mut().note(noted));
    assert_eq!(found(&state).0.what, "NotifyPods: annotate pods Workload ns/w", "the answer is not known");
    state.notes.workloads_mut().change(&uid, |notes| notes.save_mut().note_notified());
    assert_eq!(found(&state).0.what, "wait 20s");
}

#[test]
fn job_saved_within_a_minute_shrinks_without_save_request() {
    let asked = |job: Value| {
        let state = state(job, admitted(workload_of(&training_job("a"))), None);
        let ctx = state.context();
        ctx.time_to_save(state.workload("w"), now(), (SCALING_DOWN, "a worker goes")).map(|grace| grace.until)
    };
    assert_eq!(asked(saving(None)), Some(in_seconds(30)));
    assert_eq!(asked(saving(Some(-61))), Some(in_seconds(30)));
    assert_eq!(asked(saving(Some(-60))), None);
    assert_eq!(asked(training_job("a")), None, "it does not save");
}
