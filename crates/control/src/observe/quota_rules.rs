//! Owners of the state that follows from the rules of quota.

use crate::cache::View;
use crate::controller::flight::Flights;
use crate::controller::state::{Quota, Reports};
use crate::controller::work_queue::WorkQueue;
use crate::settings::Settings;

/// What a queue, a Cohort, a flavor, a check, a policy or a namespace changes when it is seen.
pub(crate) struct QuotaRules<'a> {
    pub(crate) settings: &'a Settings,
    /// This process keeps the figures that only statuses say; all others follow what the leader wrote.
    pub(crate) leads: bool,
    pub(crate) view: &'a mut View,
    pub(crate) quota: &'a mut Quota,
    pub(crate) flights: &'a mut Flights,
    pub(crate) work: &'a mut WorkQueue,
    pub(crate) reports: &'a mut Reports,
}
