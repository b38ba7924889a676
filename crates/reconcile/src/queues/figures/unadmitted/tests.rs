use berth_cache::settings::Settings;

use super::*;
use crate::queues::figures::tests::gauges_of;
use crate::testing::State;
use crate::testing::objects::{admitted, condition, deleting, finished, reserved, with_condition, workload};

#[test]
fn unadmitted_workloads_are_counted_by_cause() {
    let counted = |object| gauges_of(&State::new().with(object), "kueue_unadmitted_workloads");
    let cause = |text: &str| vec![(text.to_owned(), 1.0)];
    assert_eq!(counted(workload("w")), cause("PendingEvaluation"));
    assert_eq!(
        counted(with_condition(workload("w"), condition("QuotaReserved", false, "WaitingForQuota"))),
        cause("WaitingForQuota")
    );
    assert_eq!(counted(reserved(workload("w"))), cause(""), "it has quota");
    for object in [admitted(workload("w")), finished(workload("w")), deleting(workload("w"))] {
        assert_eq!(counted(object), []);
    }
    let state = State::with_settings(Settings { observe_unadmitted: false, ..Settings::default() }).with(workload("w"));
    assert_eq!(gauges_of(&state, "kueue_unadmitted_workloads"), [], "the gate is off");
}

#[test]
fn unadmitted_cause_is_taken_from_admitted_condition() {
    let state = State::new()
        .with(with_condition(reserved(workload("w")), condition("Admitted", false, "UnsatisfiedAdmissionChecks")));
    assert_eq!(why(state.workload("w")), ("UnsatisfiedAdmissionChecks", ""));
    let silent = State::new().with(workload("w"));
    assert_eq!(why(silent.workload("w")), ("NoReservation", "PendingEvaluation"));
}
