//! Reasons of evictions by which a workload leaves its capacity.

use berth_api::conditions::{own_reasons, reasons};

/// Reason of the eviction of a workload whose capacity never turned up.
pub(crate) const STOCK_OUT: &str = own_reasons::STOCK_OUT;
/// Reason of the eviction of a workload that lost nodes and gets no others.
pub(crate) const RECLAIMED: &str = own_reasons::CAPACITY_RECLAIMED;

/// Reason of the eviction of a workload whose job asks for other pods than those for which it holds quota.
pub(crate) const SPEC_CHANGED: &str = own_reasons::SPEC_CHANGED;
/// Reason of the eviction of a workload that goes to a better tier.
pub(crate) const CLIMBED_BACK: &str = own_reasons::CLIMBED_BACK;
/// Reasons of evictions by which a workload leaves its tier.
pub(crate) const LEAVES_TIER: [&str; 3] = [STOCK_OUT, RECLAIMED, CLIMBED_BACK];

/// Whether a workload that was evicted for a reason is back in its queue as soon as it has stopped.
pub(crate) fn returns_at_once(reason: &str) -> bool {
    matches!(reason, reasons::PREEMPTED | reasons::NODE_FAILURES | SPEC_CHANGED | own_reasons::INVALID_ADMISSION)
        || LEAVES_TIER.contains(&reason)
}
