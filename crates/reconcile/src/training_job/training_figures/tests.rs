use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, changed, condition, finished, training_job, with_condition};
use crate::testing::{State, at, now, own_name};
use crate::training_job::tests::pending;

/// Counters and histograms as texts: the name, the last label, and the seconds or the increment.
fn texts(measures: Vec<Measure>) -> Vec<String> {
    let last = |labels: &Labels| labels.last().map(|(_, value)| value.clone()).unwrap_or_default();
    let text = |measure: Measure| match measure {
        Measure::Count { name, labels, by } => format!("{name} {} +{by}", last(&labels)),
        Measure::Observe { name, labels, millis } => format!("{name} {} {}s", last(&labels), millis / 1_000),
        other => format!("{other:?}"),
    };
    measures.into_iter().map(text).collect()
}

fn measured(old: Value, new: Value) -> Vec<String> {
    let before = State::new().with(training_job("a")).with(old);
    let after = State::new().with(training_job("a")).with(new);
    texts(after.context().training_measures(before.workload("w"), after.workload("w"), now()))
}

#[test]
fn training_job_transitions_yield_their_metrics() {
    assert_eq!(measured(pending(), pending()), [""; 0]);
    assert_eq!(measured(pending(), admitted(pending())), ["training_job_scheduling_duration_seconds admitted 600s"]);
    assert_eq!(
        measured(admitted(pending()), finished(admitted(pending()))),
        ["training_job_completion_seconds succeeded 600s"]
    );
    let out_of_time = with_condition(pending(), condition("Finished", true, "MaxWaitTimeExceeded"));
    assert_eq!(measured(pending(), out_of_time), ["training_job_scheduling_duration_seconds timeout 600s"]);
    let preempted = with_condition(admitted(pending()), condition("Preempted", true, "InClusterQueue"));
    assert_eq!(measured(admitted(pending()), preempted), ["training_job_preemptions InClusterQueue +1"]);
}

#[test]
fn checkpoint_saves_are_counted_as_saved_or_missed() {
    let status = |conditions: Value, saved: i64| {
        let checkpoint = json!({"latest": {"time": at(saved)}});
        let object =
            changed(training_job("a"), json!({"status": {"conditions": conditions, "checkpoint": checkpoint}}));
        State::new().with(object)
    };
    let counted = |old: &State, new: &State| {
        let name = own_name("a");
        texts(status_measures(&name, &old.view.training()[&name], &new.view.training()[&name]))
    };
    let asked = || json!([condition("CheckpointRequested", true, "Preempted")]);
    let late = || json!([condition("CheckpointOverdue", true, "IntervalMissed")]);
    let missed = || json!([condition("CheckpointRequested", false, "NoCheckpointInTime")]);
    let none = || json!([]);
    assert_eq!(counted(&status(none(), -50), &status(none(), -50)), [""; 0]);
    assert_eq!(counted(&status(none(), -50), &status(none(), -5)), ["training_checkpoint_saves saved +1"]);
    assert_eq!(counted(&status(none(), -50), &status(late(), -50)), ["training_checkpoint_saves missed +1"]);
    assert_eq!(counted(&status(asked(), -50), &status(missed(), -50)), ["training_checkpoint_saves missed +1"]);
}

#[test]
fn waiting_trainings_are_counted_by_queue_and_priority() {
    let state = State::new().with(training_job("a")).with(pending());
    let waiting: Vec<_> = state.context().waiting_trainings().into_iter().collect();
    assert_eq!(waiting, [(("cq".to_owned(), "0".to_owned()), 1)]);
    let runs = State::new().with(training_job("a")).with(admitted(pending()));
    let waiting: Vec<usize> = runs.context().waiting_trainings().into_values().collect();
    assert_eq!(waiting, [0]);
}
