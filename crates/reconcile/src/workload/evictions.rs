//! Past evictions of a Workload, as its status counts them.

use berth_api::conditions::types;
use berth_cache::WorkloadView;
use jiff::Timestamp;

use crate::workload::status::since;

/// Time of a workload's creation, or of its last requeueing.
pub(crate) fn queued_since(workload: &WorkloadView) -> Timestamp {
    since(&workload.status.conditions, types::REQUEUED, "True").unwrap_or(workload.created)
}

/// Evictions of a workload: reason, underlying cause and number.
pub(super) fn evictions(workload: &WorkloadView) -> impl Iterator<Item = (&str, &str, i32)> {
    let stats = workload.status.scheduling_stats.as_ref();
    let entries = stats.map(|stats| stats.evictions.as_slice()).unwrap_or_default();
    entries.iter().map(|entry| (entry.reason.as_str(), entry.underlying_cause.as_str(), entry.count))
}

/// Number of evictions of a workload over its lifetime.
pub(crate) fn times_evicted(workload: &WorkloadView) -> i32 {
    evictions(workload).map(|(.., count)| count).fold(0, i32::saturating_add)
}

/// Number of evictions of a workload for a reason over its lifetime: a slice has taken over the counts of the slice that it replaced.
pub(crate) fn evicted_for(workload: &WorkloadView, reason: &str) -> i32 {
    let counts = evictions(workload).filter(|(known, ..)| *known == reason).map(|(.., count)| count);
    counts.fold(0, i32::saturating_add)
}
