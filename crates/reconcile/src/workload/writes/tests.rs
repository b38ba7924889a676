use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, changed, deleting, finished, workload};
use crate::testing::step::written;
use crate::testing::{State, at, now};

fn view(object: Value) -> State {
    State::new().with(object)
}

#[test]
fn patch_of_a_workload_carries_its_uid_and_version() {
    let state = view(workload("w"));
    let draft = object_write(state.workload("w"), Purpose::UpdateWorkload, |patch| patch.label("a", "b"));
    let body = json!({"metadata": {"labels": {"a": "b"}, "uid": "w-uid", "resourceVersion": "7"}});
    assert_eq!((written(&draft).body, draft.based_on), (body, 7));
    let separate = separate_write(state.workload("w"), Purpose::SetReclaimable, "manager", json!({"x": 1}));
    let crate::decision::Decision::Write(draft) = separate else { panic!("no write") };
    let body = written(&draft).body;
    assert_eq!(
        body["metadata"],
        json!({"namespace": "ns", "name": "w", "uid": "w-uid"}),
        "it is valid for any version"
    );
    assert_eq!(body["status"], json!({"x": 1}));
}

#[test]
fn finalizer_is_removed_and_others_stay() {
    let guarded = || changed(workload("w"), json!({"metadata": {"finalizers": ["x/y", FINALIZER]}}));
    let removed = |object: Value| written(&remove_finalizer(view(object).workload("w")));
    let found = removed(deleting(guarded()));
    assert_eq!(found.what, "RemoveFinalizer: merge Workload ns/w");
    assert_eq!(found.body["metadata"]["finalizers"], json!(["x/y"]));
    assert_eq!(removed(finished(guarded())).what, "LetFinishedGo: merge Workload ns/w");
    assert!(has_finalizer(view(guarded()).workload("w")));
    assert!(!has_finalizer(view(changed(guarded(), json!({"metadata": {"finalizers": ["x/y"]}}))).workload("w")));
}

#[test]
fn eviction_has_the_event_of_its_reason_and_counts() {
    let state = view(admitted(workload("w")));
    let found = written(&evict(state.workload("w"), now(), ("Preempted", ""), "by another"));
    assert_eq!(found.condition("Evicted"), Some((true, "Preempted", "by another")));
    assert_eq!(found.events, ["Normal EvictedDueToPreempted: by another"]);
    let counted = json!([{"reason": "Preempted", "underlyingCause": "", "count": 1}]);
    assert_eq!(found.body["status"]["schedulingStats"]["evictions"], counted);
    let caused = written(&evict(state.workload("w"), now(), ("Deactivated", "JobAltered"), "given up"));
    assert_eq!(caused.condition("Evicted").map(|(_, reason, _)| reason), Some("DeactivatedDueToJobAltered"));
    assert_eq!(caused.events, ["Normal EvictedDueToDeactivatedDueToJobAltered: given up"]);
    let paused = written(&evict_for_seconds(state.workload("w"), now(), ("PodsReadyTimeout", ""), "late", (3, 40)));
    assert_eq!(paused.body["status"]["requeueState"], json!({"count": 3, "requeueAt": at(40)}));
}

/// A flavor that is missing for a moment costs the reservation, and any other fault ends the workload.
#[test]
fn workload_that_cannot_start_is_requeued_or_finished() {
    let state = view(admitted(workload("w")));
    let to_notice =
        |reason: &str, text: String| notice(state.workload("w"), EventType::Warning, reason, text, REPORTER);
    let ends = PlacementError::PodSets { given: 2, wanted: 1 };
    let found = written(&cannot_start(state.workload("w"), now(), &ends, to_notice));
    assert_eq!(found.what, "FinishWorkload: apply status Workload ns/w");
    assert_eq!(found.condition("Finished").map(|(is, reason, _)| (is, reason)), Some((true, "FailedToStart")));
    let passes = PlacementError::FlavorNotFound("f".to_owned());
    let found = written(&cannot_start(state.workload("w"), now(), &passes, to_notice));
    assert_eq!(found.condition("Evicted").map(|(is, reason, _)| (is, reason)), Some((true, "PlacementFailed")));
    assert_eq!(found.body["status"]["requeueState"], json!({"requeueAt": at(60)}));
    assert_eq!(found.events.len(), 2, "one at the Workload, and one at its job");
}
