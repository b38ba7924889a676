use berth_cache::settings::{Settings, WaitForPodsReady};
use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, changed, evicted, job, workload_of};
use crate::testing::step::{Step, step};
use crate::testing::{State, at, named, now};
use crate::write::{EventType, Kind};

/// The admitted Workload of job `a`, evicted `times` times before because of an altered Job.
fn tried(times: i32) -> Value {
    let evictions = json!([{"reason": "JobAltered", "underlyingCause": "", "count": times}]);
    let status = json!({"requeueState": {"count": times}, "schedulingStats": {"evictions": evictions}});
    changed(admitted(workload_of(&job("a"))), json!({ "status": status }))
}

/// The decision that ends the run of the Workload.
fn ended(workload: Value) -> Step {
    let state = State::new().with(job("a")).with(workload);
    let to_notice = |next| Notice {
        key: named(Kind::JOB, "a"),
        uid: "a-uid".to_owned(),
        event_type: EventType::Warning,
        reason: "JobAltered".to_owned(),
        message: format!("{next:?}"),
        reporter: "reporter",
    };
    step(&end_run(&state.context(), state.workload("w"), now(), to_notice))
}

#[test]
fn run_with_altered_job_is_given_up_after_five_tries() {
    let first = ended(admitted(workload_of(&job("a"))));
    assert_eq!(first.what, "Evict: apply status Workload ns/w");
    assert_eq!(first.condition("Evicted"), Some((true, "JobAltered", "After(60)")));
    assert_eq!(first.body["status"]["requeueState"], json!({"count": 1, "requeueAt": at(60)}));
    assert_eq!(first.events, ["Normal EvictedDueToJobAltered: After(60)", "Warning JobAltered: After(60)"]);
    assert_eq!(ended(tried(3)).condition("Evicted"), Some((true, "JobAltered", "After(480)")), "each pause doubles");
    let last = ended(tried(4));
    assert_eq!(last.what, "Deactivate: apply status Workload ns/w");
    assert_eq!(last.condition("DeactivationTarget"), Some((true, "JobAltered", "Never(5)")));
}

/// Evictions for other time-outs make the delay longer, and do not deactivate the Workload.
#[test]
fn timeouts_of_other_kinds_lengthen_pause_but_deactivate_nothing() {
    let workload = changed(admitted(workload_of(&job("a"))), json!({"status": {"requeueState": {"count": 9}}}));
    assert_eq!(ended(workload).condition("Evicted"), Some((true, "JobAltered", "After(3600)")));
}

#[test]
fn evicted_or_inactive_run_is_not_evicted_again() {
    for workload in [
        evicted(admitted(workload_of(&job("a"))), "Preempted"),
        changed(admitted(workload_of(&job("a"))), json!({"spec": {"active": false}})),
    ] {
        assert_eq!(ended(workload).what, "done");
    }
}

#[test]
fn pause_before_next_try_follows_configured_backoff() {
    let settings = WaitForPodsReady {
        timeout_ms: 1,
        recovery_timeout_ms: None,
        block_admission: false,
        order_by_creation: false,
        backoff_limit_count: None,
        backoff_base_seconds: 10,
        backoff_max_seconds: 15,
    };
    let settings = Settings { wait_for_pods_ready: Some(settings), ..Settings::default() };
    for (times, expected) in [(0, (1, 10)), (1, (2, 15))] {
        let state = State::with_settings(settings.clone()).with(tried(times));
        assert_eq!(next_pause(&state.context(), state.workload("w")), expected);
    }
}

#[test]
fn request_above_admission_is_excess_for_covered_resources_only() {
    let asking = |amounts: Value| {
        changed(
            job("a"),
            json!({"spec": {"template": {"spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": amounts}}]}}}}),
        )
    };
    for (amounts, expected) in [
        (json!({"cpu": "1"}), None),
        (json!({"cpu": "500m"}), None),
        (json!({"cpu": "1", "memory": "1Gi"}), None),
        (json!({"cpu": "1500m"}), Some("wants 1500m of cpu for each pod, where quota is held for 1")),
    ] {
        let state = State::new().with(asking(amounts)).with(admitted(workload_of(&job("a"))));
        let job = &state.view.jobs()[&named(Kind::JOB, "a")];
        let found = excess(&state.context(), state.workload("w"), "main", (job, None));
        assert_eq!(found.as_deref(), expected);
    }
}
