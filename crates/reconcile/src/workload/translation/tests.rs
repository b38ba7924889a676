use berth_engine::model::{Blocked, Millis, Preempts, WorkloadState};
use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{
    admitted, changed, condition, deleting, evicted, finished, job, policy, reserved, with_condition, workload,
    workload_of,
};
use crate::testing::step::written;
use crate::testing::{State, at, in_seconds, named, now, own_name};

fn spec(workload: Value) -> engine::WorkloadSpec {
    let state = State::new().with(job("a")).with(workload);
    state.context().engine_workload(state.workload("w"))
}

fn pending() -> Value {
    workload_of(&job("a"))
}

#[test]
fn engine_gets_queue_pods_and_state_of_a_workload() {
    let waits = spec(pending());
    assert_eq!((waits.local_queue.as_str(), waits.pod_sets[0].count), ("lq", 2));
    assert_eq!(waits.state, WorkloadState::Pending { not_before: None, blocked: None });
    let later = changed(pending(), json!({"status": {"requeueState": {"count": 1, "requeueAt": at(9)}}}));
    let not_before = Some(millis(in_seconds(9)));
    assert_eq!(spec(later).state, WorkloadState::Pending { not_before, blocked: None });
    let gated = changed(pending(), json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": "g"}}}));
    assert_eq!(spec(gated).state, WorkloadState::Pending { not_before: None, blocked: Some(Blocked::OutOfQueue) });
    for (workload, expected) in [
        (reserved(pending()), (false, false)),
        (admitted(pending()), (true, false)),
        (evicted(admitted(pending()), "Preempted"), (true, true)),
    ] {
        let WorkloadState::Reserved(held) = spec(workload).state else { panic!("no reservation") };
        assert_eq!((held.admitted, held.evicted), expected);
        assert_eq!((held.cluster_queue.as_str(), held.at), ("cq", millis(in_seconds(-60))));
    }
}

/// Pods that have ended give their quota back, and a waiting workload requests quota only for its other pods.
#[test]
fn engine_gets_only_pods_that_may_still_run() {
    let over = json!({"status": {"reclaimablePods": [{"name": "main", "count": 1}]}});
    assert_eq!(spec(changed(pending(), over)).pod_sets[0].count, 1);
}

#[test]
fn engine_gets_rules_of_the_queues_policy() {
    let bonus = policy("p", json!({"waitingTimeBonus": {"pointsPerHour": 7}}));
    let state = State::new().with(bonus).with(job("a")).with(pending());
    assert_eq!(state.context().engine_workload(state.workload("w")).points_per_hour, 7);
    assert_eq!(spec(pending()).points_per_hour, 0);
}

/// A workload whose reservation the API server refused would preempt again with each try.
#[test]
fn workload_with_refused_reservation_preempts_nobody() {
    let mut state = State::new().with(job("a")).with(pending());
    assert_eq!(state.context().engine_workload(state.workload("w")).preempts, Preempts::AsQueue);
    state.in_flight.refused_reservation(&named(Kind::Workload, "w"), now());
    assert_eq!(state.context().engine_workload(state.workload("w")).preempts, Preempts::Nobody);
}

#[test]
fn revision_follows_spec_and_eviction_but_not_pending_reason() {
    let revised = |workload: Value| spec(workload).revision;
    let before = revised(pending());
    assert_eq!(revised(with_condition(pending(), condition("QuotaReserved", false, "WaitingForQuota"))), before);
    assert_ne!(revised(changed(pending(), json!({"metadata": {"generation": 2}}))), before);
    assert_ne!(revised(with_condition(pending(), condition("Requeued", true, "BackoffFinished"))), before);
}

#[test]
fn workload_reaches_engine_unless_quota_write_is_under_way() {
    let mirrored = |state: &State| {
        let found = state.context().mirrored(&own_name("w"))?;
        Some((matches!(found.delta, engine::Delta::RemoveWorkload(_)), found.is_over, found.is_settled))
    };
    let rows = [
        ("waits", pending(), Some((false, false, false))),
        ("holds quota", admitted(pending()), Some((false, false, true))),
        ("has ended", finished(admitted(pending())), Some((true, true, true))),
        ("goes without quota", deleting(pending()), Some((true, true, true))),
        ("goes with quota", deleting(admitted(pending())), Some((false, false, true))),
        ("inactive", changed(pending(), json!({"spec": {"active": false}})), Some((true, true, true))),
    ];
    for (name, workload, expected) in rows {
        assert_eq!(mirrored(&State::new().with(job("a")).with(workload)), expected, "{name}");
    }
    let busy = |workload: Value| {
        let mut state = State::new().with(job("a")).with(workload);
        state.in_flight.expect(named(Kind::Workload, "w"), 9);
        mirrored(&state)
    };
    assert_eq!(busy(admitted(pending())), None);
    assert_eq!(busy(pending()), Some((false, false, false)), "a reason of waiting holds nothing up");
}

#[test]
fn pending_reason_is_older_kueue_text_without_unadmitted_observation() {
    let describe = |observes: bool| {
        let settings = berth_cache::settings::Settings { observe_unadmitted: observes, ..Default::default() };
        let state = State::with_settings(settings).with(workload("w"));
        let draft =
            state.context().explain("w-uid", Some(engine::PendingReason::WaitingForQuota), "no room", false, now());
        let step = written(&draft.expect("a write"));
        step.condition("QuotaReserved").map(|(_, reason, message)| format!("{reason}: {message}"))
    };
    assert_eq!(describe(true).as_deref(), Some("WaitingForQuota: no room"));
    assert_eq!(describe(false).as_deref(), Some("Pending: no room"));
    assert_eq!(millis(now()), Millis(1_800_000_000_000));
}
