use serde_json::{Value, json};

use super::*;
use crate::job::tests::{case_of, decided};
use crate::testing::objects::{
    admitted, changed, controlled_by, deleting, evicted, job, job_set, training_job, workload_of,
};
use crate::testing::step::{Step, step};
use crate::testing::{State, at, named};

fn started() -> Value {
    changed(job_set("s", 2), json!({"spec": {"suspend": false}}))
}

/// A running Job of JobSet `s`.
fn part(name: &str, patch: Value) -> Value {
    let mut part = changed(job(name), json!({"metadata": controlled_by(&job_set("s", 2))}));
    part = changed(
        part,
        json!({"metadata": {"labels": null}, "spec": {"suspend": false, "parallelism": 1, "completions": 1}}),
    );
    changed(part, patch)
}

fn below(state: &State, name: &str) -> Step {
    step(&super::super::decide(&state.context(), &named(Kind::JOB, name), crate::testing::now()))
}

#[test]
fn child_job_runs_only_while_its_job_set_is_admitted() {
    let workload = || workload_of(&job_set("s", 2));
    let state = |set: Value, workload: Value, part: Value| State::new().with(set).with(workload).with(part);
    let stopped = |status: Value| changed(job_set("s", 2), json!({ "status": status }));
    let suspended = json!({"conditions": [{"type": "Suspended", "status": "True", "reason": "R", "message": "", "lastTransitionTime": at(-30)}]});
    let failed = json!({"conditions": [{"type": "Failed", "status": "True", "reason": "R", "message": "", "lastTransitionTime": at(-30)}]});
    let name = "s-main-0";
    let rows = [
        ("admitted", state(started(), admitted(workload()), part(name, json!({}))), "done"),
        (
            "suspended",
            state(stopped(suspended.clone()), workload(), part(name, json!({"spec": {"suspend": true}}))),
            "done",
        ),
        (
            "runs on without its set",
            state(stopped(suspended), workload(), part(name, json!({}))),
            "SuspendJob: merge Job ns/s-main-0",
        ),
        ("its set still runs", state(started(), workload(), part(name, json!({}))), "wait 1s"),
        (
            "its set has ended",
            state(stopped(failed), admitted(workload()), part(name, json!({}))),
            "SuspendJob: merge Job ns/s-main-0",
        ),
    ];
    for (row, state, expected) in rows {
        assert_eq!(below(&state, name).what, expected, "{row}");
    }
}

#[test]
fn job_that_differs_from_its_job_set_evicts_it() {
    let ends = |name: &str, patch: Value| {
        let workload = admitted(workload_of(&job_set("s", 2)));
        let state = State::new().with(started()).with(workload).with(part(name, patch));
        let found = below(&state, name);
        found.condition("Evicted").map(|(_, reason, message)| format!("{reason}: {message}"))
    };
    let advice = "Say in the JobSet what its Jobs are to be. Tried again after 60s";
    assert_eq!(ends("s-main-0", json!({})), None);
    let larger = ends("s-main-0", json!({"spec": {"parallelism": 3, "completions": 3}}));
    assert_eq!(larger, Some(format!("JobAltered: Job s-main-0 wants 3 pods, where quota is held for 1. {advice}")));
    let stranger = "names JobSet s as its controller, and is none of the Jobs that this is made of";
    for name in ["s-main-2", "other"] {
        assert_eq!(ends(name, json!({})), Some(format!("JobAltered: Job {name} {stranger}. {advice}")));
    }
}

#[test]
fn job_runs_with_owning_job_set_or_by_itself() {
    let of = |owner: &Value, name: &str| changed(job(name), json!({"metadata": controlled_by(owner)}));
    let set = job_set("s", 2);
    let free = changed(set.clone(), json!({"metadata": {"labels": null}}));
    let other = changed(set.clone(), json!({"metadata": {"uid": "x"}}));
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c", "uid": "c-uid"}});
    let rows = [
        ("no owner", State::new().with(job("a")), "a", "itself"),
        ("an owner of another kind", State::new().with(of(&cron, "a")), "a", "itself"),
        ("a JobSet", State::new().with(set.clone()).with(of(&set, "s-main-0")), "s-main-0", "JobSet s"),
        ("another JobSet of that name", State::new().with(other).with(of(&set, "s-main-0")), "s-main-0", "itself"),
        (
            "a JobSet without a queue",
            State::new().with(free.clone()).with(of(&free, "s-main-0")),
            "s-main-0",
            "free JobSet s",
        ),
        ("no part of such a JobSet", State::new().with(free.clone()).with(of(&free, "a")), "a", "itself"),
        (
            "such a JobSet goes",
            State::new().with(deleting(free.clone())).with(of(&free, "s-main-0")),
            "s-main-0",
            "itself",
        ),
        (
            "a TrainingJob that is not there",
            State::new().with(of(&training_job("t"), "t-worker")),
            "t-worker",
            "itself",
        ),
    ];
    for (row, state, name, expected) in rows {
        let found = case_of(&state, &named(Kind::JOB, name), |case| match case.runs_with() {
            RunsWith::Itself => "itself".to_owned(),
            RunsWith::TrainingJob => "TrainingJob".to_owned(),
            RunsWith::JobSet((set, _)) => format!("JobSet {}", set.name),
            RunsWith::FreeJobSet((set, _)) => format!("free JobSet {}", set.name),
            RunsWith::Unlisted => "unlisted".to_owned(),
        });
        assert_eq!(found, expected, "{row}");
    }
}

#[test]
fn job_that_lost_its_own_quota_evicts_its_job_set() {
    let own = |part: &Value| {
        changed(
            workload_of(&changed(part.clone(), json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}}))),
            json!({"metadata": {"name": "own", "uid": "own-uid"}}),
        )
    };
    let part = part("s-main-0", json!({}));
    let kept = evicted(admitted(own(&part)), "Preempted");
    let state = State::new().with(started()).with(admitted(workload_of(&job_set("s", 2)))).with(part).with(kept);
    let found = below(&state, "s-main-0");
    assert_eq!(found.what, "Evict: apply status Workload ns/w");
    let (_, _, message) = found.condition("Evicted").expect("an eviction");
    assert!(message.starts_with("Job s-main-0 has lost its own quota"), "{message}");
}

#[test]
fn queue_label_below_queueless_job_set_is_reported_as_misplaced() {
    let misplaced = changed(
        job_set("a", 1),
        json!({"metadata": {"labels": null}, "spec": {"replicatedJobs": [
        {"name": "main", "replicas": 1, "template": {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "lq"}},
            "spec": job_set("a", 1)["spec"]["replicatedJobs"][0]["template"]["spec"].clone()}}]}}),
    );
    let state = State::new().with(misplaced);
    let found = step(&super::super::decide(&state.context(), &named(Kind::JOB_SET, "a"), crate::testing::now()));
    assert_eq!(found.what, "tell");
    assert!(found.events[0].starts_with("Warning QueueMisplaced: spec.replicatedJobs[0]"), "{:?}", found.events);
    assert!(found.events[0].ends_with("Neither the JobSet nor its Jobs wait for quota"), "{:?}", found.events);
    let silent = State::new().with(changed(job("a"), json!({"metadata": {"labels": null}})));
    assert_eq!(decided(&silent).what, "done");
}
