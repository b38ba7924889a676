use serde_json::{Value, json};

use super::*;
use crate::job::tests::{case_of, placed};
use crate::testing::objects::{
    admitted, changed, condition_since, controlled_by, deleting, job, job_set, with_condition, workload_of,
};
use crate::testing::step::step;
use crate::testing::{State, named};
use crate::write::Kind;

/// A suspended Job of JobSet `a` whose controller has reported the suspension.
fn part(name: &str, patch: Value) -> Value {
    let job = changed(
        job(name),
        json!({"metadata": controlled_by(&job_set("a", 2)), "status": {"conditions": [
        {"type": "Suspended", "status": "True", "reason": "R", "message": ""}]}}),
    );
    changed(changed(job, json!({"metadata": {"labels": null}, "spec": {"parallelism": 1, "completions": 1}})), patch)
}

fn with_parts(parts: &[Value]) -> State {
    parts.iter().cloned().fold(State::new().with(job_set("a", 2)), State::with)
}

fn of_set<R>(state: &State, ask: impl FnOnce(JobCase<'_>) -> R) -> R {
    case_of(state, &named(Kind::JOB_SET, "a"), ask)
}

#[test]
fn job_set_is_moving_until_its_jobs_are_stopped() {
    let runs = json!({"spec": {"suspend": false}, "status": {"conditions": null, "active": 1}});
    let ended =
        json!({"status": {"conditions": [{"type": "Complete", "status": "True", "reason": "R", "message": ""}]}});
    let foreign = json!({"metadata": {"ownerReferences": null}});
    for (name, part, moves) in [
        ("still", part("a-main-0", json!({})), false),
        ("runs", part("a-main-0", runs.clone()), true),
        ("ended", part("a-main-0", changed(runs.clone(), ended)), false),
        ("another's", changed(part("a-main-0", runs.clone()), foreign), false),
        ("going, with pods", deleting(part("a-main-0", json!({"status": {"active": 1}}))), true),
        ("going, without pods", deleting(part("a-main-0", json!({}))), false),
    ] {
        assert_eq!(of_set(&with_parts(&[part]), |case| case.has_moving_parts()), moves, "{name}");
    }
}

/// The watch may show the Jobs of a JobSet later than the JobSet itself, so missing Jobs are awaited for three seconds after an admission.
#[test]
fn job_set_start_waits_until_its_jobs_are_seen() {
    let all = [part("a-main-0", json!({})), part("a-main-1", json!({}))];
    let runs = part("a-main-1", json!({"spec": {"suspend": false}, "status": {"conditions": null}}));
    for (name, parts, since, expected) in [
        ("all seen", &all[..], -1, None),
        ("one missing", &all[..1], -1, Some("wait 2s")),
        ("one missing for long", &all[..1], -3, None),
        ("one runs", &[all[0].clone(), runs][..], -9, Some("done")),
    ] {
        let workload = admitted(workload_of(&job_set("a", 2)));
        let state =
            with_parts(parts).with(with_condition(workload, condition_since("Admitted", true, "Admitted", since)));
        let found = of_set(&state, |case| case.parts_unrest(state.workload("w")).map(|decision| step(&decision).what));
        assert_eq!(found.as_deref(), expected, "{name}");
    }
}

#[test]
fn part_kept_by_finalizer_is_deleted_after_its_pods() {
    let kept = || deleting(part("a-main-0", json!({"metadata": {"finalizers": ["x/y"]}, "status": {"active": 1}})));
    let mut state = with_parts(&[kept()]);
    let found = |state: &State| of_set(state, |case| case.drive_out_part().map(|decision| step(&decision).what));
    assert_eq!(found(&state).as_deref(), Some("DeleteChild: delete after its objects Job ns/a-main-0"));
    state.notes.jobs_mut().change("a-main-0-uid", |notes| notes.note_rid_of_pods());
    assert_eq!(found(&state), None, "it was done");
    assert_eq!(found(&with_parts(&[deleting(part("a-main-0", json!({})))])), None, "it has no pods");
}

#[test]
fn job_set_takes_only_jobs_named_like_its_parts() {
    let take = |parts: &[Value]| {
        of_set(&with_parts(parts), |case| case.take_parts(|(_, part)| part.placed).map(|decision| step(&decision).what))
    };
    let first = || part("a-main-0", json!({}));
    let second = placed(part("a-main-1", json!({})), true);
    assert_eq!(take(&[first()]), None);
    assert_eq!(take(&[first(), second.clone()]).as_deref(), Some("DeleteChild: delete Job ns/a-main-1"));
    assert_eq!(take(&[first(), deleting(second)]), None);
    assert_eq!(take(&[placed(part("other", json!({})), true)]), None);
}
