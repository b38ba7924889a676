use berth_cache::settings::Settings;

use super::*;
use crate::testing::State;
use crate::testing::objects::{admitted, finished, workload};

/// The gauges of a metric with their last label.
pub(super) fn gauges_of(state: &State, name: &str) -> Vec<(String, f64)> {
    let all = state.context().figures().gauges.into_iter().filter(|gauge| gauge.name == name);
    all.map(|gauge| (gauge.labels.last().map(|(_, value)| value.clone()).unwrap_or_default(), gauge.value)).collect()
}

/// A state with one workload that holds quota, and one that waits.
pub(super) fn busy(settings: Settings) -> State {
    let mut state = State::with_settings(settings).with(admitted(workload("w"))).with(workload("x"));
    state.pass_on_workloads();
    state
}

#[test]
fn gauges_of_a_queue_count_its_workloads_and_quota() {
    let settings = Settings { queue_resource_metrics: true, local_queue_metrics: true, ..Settings::default() };
    let state = busy(settings);
    let one = |name: &str| gauges_of(&state, name).into_iter().map(|(_, value)| value).collect::<Vec<_>>();
    assert_eq!(one("kueue_admitted_active_workloads"), [1.0]);
    assert_eq!(
        gauges_of(&state, "kueue_pending_workloads"),
        [("active".to_owned(), 1.0), ("inadmissible".to_owned(), 0.0)]
    );
    assert_eq!(one("kueue_cluster_queue_resource_usage"), [2.0]);
    assert_eq!(one("kueue_cluster_queue_nominal_quota"), [10.0]);
    assert_eq!(one("kueue_cluster_queue_resource_pending"), [2.0]);
    assert_eq!(gauges_of(&state, "kueue_cluster_queue_status")[0], ("active".to_owned(), 1.0));
    assert_eq!(gauges_of(&busy(Settings::default()), "kueue_cluster_queue_nominal_quota"), [], "it is off");
}

#[test]
fn finished_workloads_are_counted_while_they_exist() {
    let state = State::new().with(finished(admitted(workload("w"))));
    assert_eq!(gauges_of(&state, "kueue_finished_workloads"), [("cq".to_owned(), 1.0)]);
}

#[test]
fn metric_amounts_are_in_cores_or_resource_units() {
    assert_eq!(shown("cpu", Amount::new(1_500)), 1.5);
    assert_eq!(shown("memory", Amount::new(1_500)), 1_500.0);
    assert!(shown("cpu", Amount::UNLIMITED).is_infinite());
}
