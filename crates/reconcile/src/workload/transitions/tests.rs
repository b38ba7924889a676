use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{
    admitted, changed, condition, evicted, finished, job, reserved, training_job, with_condition, workload,
};
use crate::testing::{State, named, now};

fn view(object: Value) -> State {
    State::new().with(object)
}

/// Names of the counters and histograms of a Workload's change, with the seconds of each histogram.
fn measured(old: Value, new: Value) -> Vec<String> {
    let (old, new) = (view(old), view(new));
    let found = measures(old.workload("w"), new.workload("w"), false, (now(), new.view.timeline()));
    let text = |measure: Measure| match measure {
        Measure::Count { name, by, .. } => format!("{name} +{by}"),
        Measure::Observe { name, millis, .. } => format!("{name} {}s", millis / 1_000),
        other => format!("{other:?}"),
    };
    found.into_iter().map(text).collect()
}

#[test]
fn changes_of_a_workload_are_counted_once() {
    let pending = || workload("w");
    assert_eq!(measured(reserved(pending()), reserved(pending())), [""; 0]);
    assert_eq!(
        measured(pending(), reserved(pending())),
        ["kueue_quota_reserved_workloads +1", "kueue_quota_reserved_wait_time_seconds 600s",]
    );
    assert_eq!(
        measured(reserved(pending()), admitted(pending())),
        [
            "kueue_admitted_workloads +1",
            "kueue_admission_wait_time_seconds 600s",
            "kueue_admission_checks_wait_time_seconds 60s",
        ]
    );
    assert_eq!(
        measured(admitted(pending()), finished(admitted(pending()))),
        ["kueue_finished_workloads +1", "kueue_execution_time_seconds 60s",]
    );
    assert_eq!(
        measured(pending(), with_condition(pending(), condition("Requeued", true, "R"))),
        [""; 0],
        "it has no queue"
    );
}

#[test]
fn evictions_are_counted_by_reason_and_first_ones_once() {
    let counted = |count: i32| {
        let stats = json!([{"reason": "Preempted", "underlyingCause": "", "count": count}]);
        changed(
            evicted(admitted(workload("w")), "Preempted"),
            json!({"status": {"schedulingStats": {"evictions": stats}}}),
        )
    };
    let before = |count: i32| with_condition(counted(count), condition("Evicted", false, "QuotaReserved"));
    assert_eq!(
        measured(admitted(workload("w")), counted(1)),
        ["kueue_evicted_workloads +1", "kueue_evicted_workloads_once +1"]
    );
    assert_eq!(measured(before(1), counted(2)), ["kueue_evicted_workloads +1"]);
    assert_eq!(measured(counted(1), counted(1)), [""; 0], "it is evicted already");
}

#[test]
fn workload_creation_is_measured_only_for_unedited_jobs() {
    let created = |state: State, kind: Kind| match creation(&state.context(), &named(kind, "a"), now()) {
        Some(Measure::Observe { millis, .. }) => Some(millis),
        _ => None,
    };
    assert_eq!(created(view(job("a")), Kind::JOB), Some(600_000));
    assert_eq!(created(view(training_job("a")), Kind::TrainingJob), Some(600_000));
    assert_eq!(
        created(view(changed(job("a"), json!({"metadata": {"generation": 2}}))), Kind::JOB),
        None,
        "it was edited"
    );
    assert_eq!(created(State::new(), Kind::JOB), None);
}
