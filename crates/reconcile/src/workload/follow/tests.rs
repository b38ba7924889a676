use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, changed, job, workload, workload_of};
use crate::testing::step::{Step, step};
use crate::testing::{State, named, now};
use crate::write::Kind;

fn desired<'a>() -> DesiredFields<'a> {
    DesiredFields {
        pod_sets: None,
        queue: None,
        priority: None,
        gated_by: None,
        tiers: None,
        limit: None,
        preempts: None,
        prebuilt: false,
    }
}

/// The body of the write that updates a Workload to the values of its owner.
fn followed(workload: Value, desired: DesiredFields<'_>) -> Option<Value> {
    let state = State::new().with(workload);
    follow(state.workload("w"), desired).map(|decision| step(&decision).body)
}

#[test]
fn workload_without_quota_follows_its_owner() {
    let metadata = |body: Value| changed(body, json!({"metadata": {"uid": "w-uid", "resourceVersion": "7"}}));
    let pending = || workload("w");
    let rows = [
        ("nothing", desired(), None),
        ("the same queue", DesiredFields { queue: Some("lq"), ..desired() }, None),
        ("another queue", DesiredFields { queue: Some("x"), ..desired() }, Some(json!({"spec": {"queueName": "x"}}))),
        (
            "a limit of time",
            DesiredFields { limit: Some(json!(60)), ..desired() },
            Some(json!({"spec": {"maximumExecutionTimeSeconds": 60}})),
        ),
        ("the same limit", DesiredFields { limit: Some(Value::Null), ..desired() }, None),
        (
            "tiers",
            DesiredFields { tiers: Some("spot"), ..desired() },
            Some(json!({"metadata": {"annotations": {"berth.dev/capacity-tiers": "spot"}}})),
        ),
    ];
    for (name, desired, expected) in rows {
        assert_eq!(followed(pending(), desired), expected.map(metadata), "{name}");
    }
    let with_quota = || admitted(workload("w"));
    assert_eq!(followed(with_quota(), DesiredFields { queue: Some("x"), tiers: Some("spot"), ..desired() }), None);
}

/// A job removes names from its Workload's gates one by one; a prebuilt Workload keeps its own gates if the job names no gates.
#[test]
fn workload_gates_are_removed_but_never_added() {
    let gates = json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": "a,b"}}});
    let gated = || changed(workload("w"), gates.clone());
    let left = |named: Option<&'static str>, prebuilt: bool| {
        let body = followed(gated(), DesiredFields { gated_by: named, prebuilt, ..desired() })?;
        Some(body["metadata"]["annotations"]["kueue.x-k8s.io/admission-gated-by"].clone())
    };
    assert_eq!(left(Some("a,b"), false), None);
    assert_eq!(left(Some("b"), false), Some(json!("b")));
    assert_eq!(left(Some("b,c"), false), None, "names are never added");
    assert_eq!(left(None, false), Some(Value::Null));
    assert_eq!(left(None, true), None);
}

#[test]
fn adopted_workload_names_its_owner_and_its_size() {
    let state = State::new().with(workload("w"));
    let found = step(&adopt(&state.context(), state.workload("w"), ("batch/v1", "Job"), ("a", "a-uid")));
    assert_eq!(found.what, "AdoptWorkload: merge Workload ns/w");
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "a-uid", "controller": true, "blockOwnerDeletion": true}]);
    assert_eq!(found.body["metadata"]["ownerReferences"], owner);
    assert_eq!(found.body["metadata"]["labels"], json!({"kueue.x-k8s.io/job-uid": "a-uid"}));
    assert_eq!(found.body["metadata"]["annotations"], json!({"berth.dev/size": "2 pods, cpu 2"}));
}

#[test]
fn finished_workload_says_how_its_owner_ended() {
    let state = State::new().with(admitted(workload_of(&job("a"))));
    let notice = |kind, reason: &str, message| {
        let (key, uid, reason) = (named(Kind::JOB, "a"), "a-uid".to_owned(), reason.to_owned());
        Notice { key, uid, event_type: kind, reason, message, reporter: "reporter" }
    };
    let ended = |success: bool| -> Step {
        let decision = finish(state.workload("w"), now(), (success, "in words"), |kind, reason, text| {
            Some(notice(kind, reason, text))
        });
        step(&decision)
    };
    assert_eq!(ended(true).condition("Finished"), Some((true, "Succeeded", "in words")));
    assert_eq!(ended(false).condition("Finished"), Some((true, "Failed", "in words")));
    assert_eq!(ended(true).events, ["Normal FinishedWorkload: Workload 'ns/w' is declared finished"]);
    let found = step(&out_of_sync(state.workload("w"), now(), notice));
    assert_eq!(found.condition("Finished"), Some((true, "OutOfSync", OUT_OF_SYNC)));
    assert_eq!(found.events, [format!("Warning OutOfSync: {OUT_OF_SYNC}")]);
}
