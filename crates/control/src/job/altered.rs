//! Jobs that differ from the part of a JobSet or TrainingJob for which quota was admitted. The run of the JobSet or TrainingJob ends, because the
//! controller that made such a Job would start it again.

use berth_api::conditions::{own_reasons, types};
use berth_jobs::JobState;
use jiff::Timestamp;

use crate::cache::WorkloadView;
use crate::context::Context;
use crate::decision::Decision;
use crate::workload::evictions::evicted_for;
use crate::workload::pods_ready;
use crate::workload::{evict_for_seconds, status_write};
use crate::write::{Notice, Purpose};

/// Runs in a row that may end with such a Job before the Workload is deactivated: each run may preempt other workloads for nothing.
const MOST_TRIES: i32 = 5;
/// Delay in seconds after the first failed run, where the configuration has none; it doubles with each.
const BACKOFF_BASE_SECONDS: i64 = 60;
/// Longest delay in seconds, where the configuration has none.
const BACKOFF_MAX_SECONDS: i64 = 3_600;

/// Whether a workload that was evicted for this reason runs beyond the quota that it holds: it gets no grace period.
pub(crate) fn runs_beyond_quota(reason: &str) -> bool {
    reason.ends_with(own_reasons::JOB_ALTERED)
}

/// Time of the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// After this many seconds.
    After(i64),
    /// Never after this many tries, until a user activates the Workload.
    Never(i32),
}

/// Number of failed tries in a row, including this one, and the seconds before the next one.
pub(crate) fn next_pause(ctx: &Context<'_>, workload: &WorkloadView) -> (i32, i64) {
    let state = workload.status.requeue_state.as_ref();
    let count = state.and_then(|state| state.count).unwrap_or_default().saturating_add(1);
    let settings = ctx.settings.wait_for_pods_ready.as_ref();
    let (base, most) = settings.map_or((BACKOFF_BASE_SECONDS, BACKOFF_MAX_SECONDS), |settings| {
        (settings.backoff_base_seconds, settings.backoff_max_seconds)
    });
    (count, pods_ready::backoff_seconds(base, most, count))
}

/// Evicts a workload for a cause that may recur as soon as it runs: the pause before the next try grows with each.
pub(crate) fn evict_and_pause(
    ctx: &Context<'_>,
    workload: &WorkloadView,
    now: Timestamp,
    (reason, message): (&str, &str),
) -> Decision {
    Decision::write(evict_for_seconds(workload, now, (reason, ""), message, next_pause(ctx, workload)))
}

/// Ends the run of a workload because of one of its Jobs. `tell` makes the event at the controlling job, and the eviction has the same message.
pub(crate) fn end_run(
    ctx: &Context<'_>,
    workload: &WorkloadView,
    now: Timestamp,
    tell: impl FnOnce(Next) -> Notice,
) -> Decision {
    if !workload.active || workload.is(types::DEACTIVATION_TARGET) || workload.is(types::EVICTED) {
        // The run ends already.
        return Decision::Done;
    }
    let (count, delay) = next_pause(ctx, workload);
    // Other time-outs add to the count, which makes the pause longer, but they never deactivate the Workload.
    let tries = count.min(evicted_for(workload, own_reasons::JOB_ALTERED).saturating_add(1));
    let gives_up = tries >= MOST_TRIES;
    let notice = tell(if gives_up { Next::Never(tries) } else { Next::After(delay) });
    let draft = if gives_up {
        status_write(workload, Purpose::Deactivate, now, |edit| {
            edit.set(types::DEACTIVATION_TARGET, true, own_reasons::JOB_ALTERED, &notice.message);
        })
    } else {
        evict_for_seconds(workload, now, (own_reasons::JOB_ALTERED, ""), &notice.message, (count, delay))
    };
    Decision::write(draft.telling(notice))
}

/// Text about a resource of which the pods of a Job ask for more than their pod set was admitted with; `None` if there is none. Only resources
/// count for which the queue has quota. Pods that ask for less are left alone, as those of groups are. A Job that cannot be read was not made as it
/// was to be, and may ask for anything. `asks` is the digest of the Job's requests, where that is known.
pub(crate) fn excess(
    ctx: &Context<'_>,
    workload: &WorkloadView,
    pod_set: &str,
    (job, asks): (&JobState, Option<&[u8; 16]>),
) -> Option<String> {
    if asks.is_some_and(|asks| workload.shape.is_asked_by(pod_set, asks)) {
        // In nearly every case nothing has to be decoded.
        return None;
    }
    let whole = job.whole()?;
    let Ok(sets) = whole.pod_sets() else { return Some("wants pods that cannot be read".to_owned()) };
    let queue = workload.holds().and_then(|queue| ctx.view.cluster_queues.get(queue));
    let counts = |resource: &String| {
        queue.is_none_or(|queue| {
            queue.spec.resource_groups.iter().any(|group| group.covered_resources.contains(resource))
        })
    };
    let over = ctx.needs_of(&workload.namespace, &sets).into_iter().find_map(|mut own| {
        own.requests.retain(|resource, _| counts(resource));
        workload.shape.exceeded_by(pod_set, &own)
    })?;
    let [asked, given] = [over.asked, over.given].map(|amount| berth_quantity::format(&over.resource, amount));
    Some(format!("wants {asked} of {} for each pod, where quota is held for {given}", over.resource))
}

#[cfg(test)]
mod tests;
