//! Owners of the state that follows from pods.

use crate::cache::View;
use crate::overruns::Overruns;
use crate::settings::Settings;
use crate::state::Reports;
use crate::state::flight::Flights;
use crate::state::work_queue::WorkQueue;

/// Owners of the state that changes when a pod is seen, or is gone.
pub(crate) struct PodChange<'a> {
    pub(crate) settings: &'a Settings,
    /// True if this process leads; only the leader charges pods that run beyond quota.
    pub(crate) leads: bool,
    pub(crate) view: &'a mut View,
    pub(crate) overruns: &'a mut Overruns,
    pub(crate) flights: &'a mut Flights,
    pub(crate) work: &'a mut WorkQueue,
    pub(crate) reports: &'a mut Reports,
}
