//! Reasons of evictions after which a Workload leaves its capacity.

use berth_api::conditions::{own_reasons, reasons};

/// Reason of the eviction of a Workload that never got nodes.
pub const STOCK_OUT: &str = own_reasons::STOCK_OUT;
/// Reason of the eviction of a Workload that lost nodes and gets no other nodes.
pub const RECLAIMED: &str = own_reasons::CAPACITY_RECLAIMED;

/// Reason of the eviction of a Workload whose job requests other pods than the Workload holds quota for.
pub const SPEC_CHANGED: &str = own_reasons::SPEC_CHANGED;
/// Reason of the eviction of a Workload that moves back to a better tier.
pub const CLIMBED_BACK: &str = own_reasons::CLIMBED_BACK;
/// Reasons of evictions after which a Workload leaves its tier.
pub const LEAVES_TIER: [&str; 3] = [STOCK_OUT, RECLAIMED, CLIMBED_BACK];

/// Whether a Workload that was evicted for a reason waits for quota again as soon as it has stopped.
pub fn returns_at_once(reason: &str) -> bool {
    matches!(reason, reasons::PREEMPTED | reasons::NODE_FAILURES | SPEC_CHANGED | own_reasons::INVALID_ADMISSION)
        || LEAVES_TIER.contains(&reason)
}
