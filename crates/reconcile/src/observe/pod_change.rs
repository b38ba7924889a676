//! The owners of the state that depends on pods.

use berth_cache::View;
use berth_cache::settings::Settings;

use crate::overruns::Overruns;
use crate::state::Reports;
use crate::state::in_flight::InFlightWrites;
use crate::state::work_queue::WorkQueue;

/// The owners of the state that changes when a pod is observed or removed.
pub struct PodChange<'a> {
    /// The settings of control.
    pub settings: &'a Settings,
    /// True if this process leads; only the leader charges pods that run beyond quota.
    pub leads: bool,
    /// The observed objects.
    pub view: &'a mut View,
    /// Usage beyond quota.
    pub overruns: &'a mut Overruns,
    /// Writes under way.
    pub in_flight: &'a mut InFlightWrites,
    /// The queue of objects that control decides about.
    pub work: &'a mut WorkQueue,
    /// The reports to users and operators: statuses, events and metrics.
    pub reports: &'a mut Reports,
}
