//! The owners of the state that depends on pods.

use crate::cache::View;
use crate::overruns::Overruns;
use crate::settings::Settings;
use crate::state::Reports;
use crate::state::flight::Flights;
use crate::state::work_queue::WorkQueue;

/// The owners of the state that changes when a pod is observed or removed.
pub(crate) struct PodChange<'a> {
    /// The settings of control.
    pub(crate) settings: &'a Settings,
    /// True if this process leads; only the leader charges pods that run beyond quota.
    pub(crate) leads: bool,
    /// The observed objects.
    pub(crate) view: &'a mut View,
    /// Usage beyond quota.
    pub(crate) overruns: &'a mut Overruns,
    /// Writes under way.
    pub(crate) flights: &'a mut Flights,
    /// The objects to decide about.
    pub(crate) work: &'a mut WorkQueue,
    /// Reports to users and operators.
    pub(crate) reports: &'a mut Reports,
}
