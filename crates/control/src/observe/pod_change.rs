//! Owners of the state that follows from pods.

use crate::cache::View;
use crate::controller::flight::Flights;
use crate::controller::state::Reports;
use crate::controller::work_queue::WorkQueue;
use crate::overruns::Overruns;
use crate::settings::Settings;

/// Owners of the state that changes when a pod is seen, or is gone.
pub(crate) struct PodChange<'a> {
    pub(crate) settings: &'a Settings,
    /// This process leads: it charges pods that run beyond quota.
    pub(crate) leads: bool,
    pub(crate) view: &'a mut View,
    pub(crate) overruns: &'a mut Overruns,
    pub(crate) flights: &'a mut Flights,
    pub(crate) work: &'a mut WorkQueue,
    pub(crate) reports: &'a mut Reports,
}
