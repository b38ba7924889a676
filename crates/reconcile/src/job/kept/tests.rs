use berth_cache::settings::Settings;
use serde_json::{Value, json};

use super::*;
use crate::job::tests::{case_of, decided, placed, running};
use crate::testing::objects::{admitted, changed, deleting, evicted, finished, job, reserved, workload_of};
use crate::testing::{State, named};
use crate::write::Kind;

fn without_queue(job: Value) -> Value {
    changed(job, json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": null}}}))
}

fn workload() -> Value {
    workload_of(&job("a"))
}

#[test]
fn job_without_queue_is_followed_until_its_quota_is_free() {
    let ended =
        json!({"status": {"conditions": [{"type": "Complete", "status": "True", "reason": "R", "message": "done"}]}});
    let rows = [
        ("runs on", running(), admitted(workload()), "done"),
        ("waits with quota", job("a"), reserved(workload()), "ReleaseQuota: apply status Workload ns/w"),
        ("waits", job("a"), workload(), "done"),
        ("runs without admission", running(), reserved(workload()), "SuspendJob: merge Job ns/a"),
        ("evicted", running(), evicted(admitted(workload()), "Preempted"), "SuspendJob: merge Job ns/a"),
        (
            "ended",
            changed(running(), ended.clone()),
            admitted(workload()),
            "FinishWorkload: apply status Workload ns/w",
        ),
        (
            "ended before",
            changed(running(), ended),
            finished(admitted(workload())),
            "LetFinishedGo: merge Workload ns/w",
        ),
        ("Workload goes, without quota", job("a"), deleting(workload()), "RemoveFinalizer: merge Workload ns/w"),
    ];
    for (name, job, workload, expected) in rows {
        let state = State::new().with(without_queue(job)).with(workload);
        assert_eq!(decided(&state).what, expected, "{name}");
    }
}

#[test]
fn event_names_reason_why_job_requests_no_quota() {
    let unmanaged = || Settings { job_kinds: [Kind::JOB_SET].into(), ..Settings::default() };
    let prebuilt = |name: &str| {
        changed(job("a"), json!({"metadata": {"labels": {"kueue.x-k8s.io/prebuilt-workload-name": name}}}))
    };
    let kind = "its job is of a kind that is not managed (integrations.frameworks)";
    let rows = [
        (State::new().with(job("a")), None),
        (State::new().with(without_queue(job("a"))), Some("its job names no queue")),
        (State::with_settings(unmanaged()).with(job("a")), Some(kind)),
        (State::new().with(prebuilt("w")), None),
        (State::new().with(prebuilt("x")), Some("its job names Workload \"x\" in its place")),
    ];
    for (state, expected) in rows {
        let state = state.with(admitted(workload()));
        let object = named(Kind::JOB, "a");
        let found = unasked(&state.context(), &object, &state.view.jobs()[&object], state.workload("w"));
        assert_eq!(found.as_deref(), expected);
    }
}

/// A suspended job waits for a Workload that has taken its name; a running job is suspended first.
#[test]
fn job_waits_for_workload_name_that_is_taken() {
    let name = berth_jobs::workload_name("Job", "batch", "a", "a-uid");
    let named_so = |patch: Value| changed(changed(workload(), json!({"metadata": {"name": name}})), patch);
    let free = json!({"metadata": {"ownerReferences": null, "labels": {"kueue.x-k8s.io/job-uid": null}}});
    let lost = json!({"metadata": {"ownerReferences": null}});
    let of_another = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "b", "uid": "b-uid", "controller": true}]}});
    let rows = [
        ("nobody's", job("a"), named_so(free.clone()), Some("tell")),
        ("nobody's, and the job runs", running(), named_so(free), None),
        ("of a job that is gone", job("a"), named_so(of_another), Some(&*format!("wait for Workload ns/{name}"))),
        ("its own, without its reference", job("a"), named_so(lost.clone()), Some("done")),
        (
            "its own, and ended",
            job("a"),
            finished(named_so(lost)),
            Some(&*format!("DeleteWorkload: delete Workload ns/{name}")),
        ),
    ]
    .map(|(name, job, workload, expected)| (name, job, workload, expected.map(str::to_owned)));
    for (row, job, workload, expected) in rows {
        let state = State::new().with(job).with(workload);
        let found = case_of(&state, &named(Kind::JOB, "a"), |case| case.namesake());
        assert_eq!(found.map(|decision| crate::testing::step::step(&decision).what), expected, "{row}");
    }
    assert!(placed(job("a"), true)["spec"]["suspend"] == json!(true));
}
