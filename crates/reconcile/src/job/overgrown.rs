//! Jobs whose pods are repeatedly replaced while they end, so that ever more pods run; such a job is evicted.

use berth_api::conditions::own_reasons;
use berth_cache::WorkloadView;
use berth_cache::moments::after_seconds;
use jiff::Timestamp;

use crate::context::Context;
use crate::decision::Decision;
use crate::job::altered::evict_and_pause;
use crate::write::ObjectKey;

/// Time in seconds for which more than twice as many pods may run as quota is held for. The time for which too many pods may run is longer than the default
/// grace period of pods, so that a job survives two drains one after the other.
const OVERGROWN_SECONDS: i64 = 60;

/// Evicts a job when more than twice as many pods as it holds quota for have run for a while. Two generations of pods of a job run together when its pods are
/// replaced in a drain. A third generation of a job's pods is created if pods or Jobs are deleted while the earlier pods still end. An evicted job starts again
/// only when all its pods are gone.
pub(crate) fn overgrown(
    ctx: &Context<'_>,
    object: &ObjectKey,
    workload: &WorkloadView,
    now: Timestamp,
) -> Option<Decision> {
    let (since, [runs, held]) = ctx.quota.overruns().doubled(object)?;
    let due = after_seconds(since, OVERGROWN_SECONDS);
    if due > now {
        return Some(Decision::Wait(due));
    }
    let text = format!(
        "{runs} pods of the job run or end, and it has quota for {held}, as where pods are replaced while they end. It starts again when all of them \
         are gone, and not at once"
    );
    Some(evict_and_pause(ctx, workload, now, (own_reasons::PODS_BEYOND_QUOTA, &text)))
}

#[cfg(test)]
mod tests;
