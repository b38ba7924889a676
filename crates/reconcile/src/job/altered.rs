//! Jobs that differ from the part of a JobSet or TrainingJob for which quota was admitted. An altered Job ends the run of the JobSet or TrainingJob, because
//! the controller of the Job would start the Job again.

use berth_api::conditions::{own_reasons, types};
use berth_cache::WorkloadView;
use berth_jobs::JobState;
use jiff::Timestamp;

use crate::context::Context;
use crate::decision::Decision;
use crate::workload::evictions::evicted_for;
use crate::workload::pods_ready;
use crate::workload::{evict_for_seconds, status_write};
use crate::write::{Notice, Purpose};

/// Number of runs in a row that may end because of an altered Job; then the Workload is deactivated, because each run may preempt other Workloads for
/// nothing.
const MOST_TRIES: i32 = 5;
/// Delay in seconds after the first failed run, if the configuration sets none; the delay doubles with each failed run.
const BACKOFF_BASE_SECONDS: i64 = 60;
/// Maximum delay in seconds between two runs, if the configuration sets none.
const BACKOFF_MAX_SECONDS: i64 = 3_600;

/// Whether a Workload that was evicted for the given reason runs beyond its quota; such a Workload gets no grace period.
pub(crate) fn runs_beyond_quota(reason: &str) -> bool {
    reason.ends_with(own_reasons::JOB_ALTERED)
}

/// The time of the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The next run starts after the given number of seconds.
    After(i64),
    /// No further run starts after the given number of tries, until a user activates the Workload.
    Never(i32),
}

/// The number of failed tries of a Workload in a row, including the present try, and the delay in seconds before the next try.
pub(crate) fn next_pause(ctx: &Context<'_>, workload: &WorkloadView) -> (i32, i64) {
    let state = workload.status.requeue_state.as_ref();
    let count = state.and_then(|state| state.count).unwrap_or_default().saturating_add(1);
    let settings = ctx.settings.wait_for_pods_ready.as_ref();
    let (base, most) = settings.map_or((BACKOFF_BASE_SECONDS, BACKOFF_MAX_SECONDS), |settings| {
        (settings.backoff_base_seconds, settings.backoff_max_seconds)
    });
    (count, pods_ready::backoff_seconds(base, most, count))
}

/// Evicts a Workload for a cause that may recur as soon as the Workload runs; the delay before the next try grows with each eviction.
pub(crate) fn evict_and_pause(
    ctx: &Context<'_>,
    workload: &WorkloadView,
    now: Timestamp,
    (reason, message): (&str, &str),
) -> Decision {
    Decision::write(evict_for_seconds(workload, now, (reason, ""), message, next_pause(ctx, workload)))
}

/// Ends the run of a Workload because of an altered Job. `to_notice` makes the event at the controlling job, and the eviction has the message of the event.
pub(crate) fn end_run(
    ctx: &Context<'_>,
    workload: &WorkloadView,
    now: Timestamp,
    to_notice: impl FnOnce(Next) -> Notice,
) -> Decision {
    if !workload.active || workload.is(types::DEACTIVATION_TARGET) || workload.is(types::EVICTED) {
        // An evicted or deactivated Workload ends its run already.
        return Decision::Done;
    }
    let (count, delay) = next_pause(ctx, workload);
    // Evictions for other time-outs add to the count of tries, which makes the delay longer, but such evictions never deactivate the Workload.
    let tries = count.min(evicted_for(workload, own_reasons::JOB_ALTERED).saturating_add(1));
    let gives_up = tries >= MOST_TRIES;
    let notice = to_notice(if gives_up { Next::Never(tries) } else { Next::After(delay) });
    let draft = if gives_up {
        status_write(workload, Purpose::Deactivate, now, |edit| {
            edit.set(types::DEACTIVATION_TARGET, true, own_reasons::JOB_ALTERED, &notice.message);
        })
    } else {
        evict_for_seconds(workload, now, (own_reasons::JOB_ALTERED, ""), &notice.message, (count, delay))
    };
    Decision::write(draft.with_event(notice))
}

/// Text about a resource of which the pods of a Job request more than their admitted pod set; `None` if there is no such resource. The comparison of a Job's
/// pods with their admitted pod set covers only resources for which the queue has quota. Pods that request less than their pod set are left alone, as in pod
/// groups. An unreadable Job differs from the Job that was to be created, and may request any amount. The argument `asks` is the digest of the Job's requests,
/// if the digest is known.
pub(crate) fn excess(
    ctx: &Context<'_>,
    workload: &WorkloadView,
    pod_set: &str,
    (job, asks): (&JobState, Option<&[u8; 16]>),
) -> Option<String> {
    if asks.is_some_and(|asks| workload.shape.is_asked_by(pod_set, asks)) {
        // The requests of a Job nearly always have the digest of the admitted pod set, and then the Job need not be decoded.
        return None;
    }
    let object = job.decode()?;
    let Ok(sets) = object.pod_sets() else { return Some("wants pods that cannot be read".to_owned()) };
    let queue = workload.holds().and_then(|queue| ctx.view.cluster_queues().get(queue));
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
