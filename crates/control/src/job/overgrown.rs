//! Jobs whose pods are replaced while they end, again and again: their growth has an end.

use berth_api::conditions::own_reasons;
use jiff::Timestamp;

use crate::cache::WorkloadView;
use crate::context::Context;
use crate::decision::Decision;
use crate::job::altered::evict_and_pause;
use crate::moments::after_seconds;
use crate::write::ObjectKey;

/// How long more than twice the pods may run for which quota is held: longer than the grace period that pods have by default, so that two drains one
/// after the other pass.
const OVERGROWN_SECONDS: i64 = 60;

/// Evicts a job when more than twice the pods for which it holds quota have run for a while. Two generations of pods run beside each other when they are
/// replaced at a drain. A third one comes from pods, or Jobs of the job, that are deleted while their predecessors still end. Nothing of the job starts
/// again before all of them are gone.
pub(crate) fn overgrown(
    ctx: &Context<'_>,
    object: &ObjectKey,
    workload: &WorkloadView,
    now: Timestamp,
) -> Option<Decision> {
    let (since, [runs, held]) = ctx.quota.overruns.doubled(object)?;
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
