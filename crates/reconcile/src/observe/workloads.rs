//! A new state of a Workload, and the effects of the new state on statuses and metrics.

use berth_cache::WorkloadView;
use jiff::Timestamp;

use crate::context::Context;
use crate::measure::Measure;
use crate::queues::schedule::QueueSchedule;
use crate::workload::transitions;
use crate::write::Kind;

/// Marks for a write the statuses of the ClusterQueue that the Workload's admission names, and of the Workload's LocalQueue.
pub fn mark_queues(schedule: &mut QueueSchedule, workload: &WorkloadView, now: Timestamp) {
    if let Some(queue) = workload.status.admission.as_ref().and_then(|admission| admission.cluster_queue.as_ref()) {
        schedule.mark(Kind::ClusterQueue, "", queue, now);
        schedule.mark(Kind::LocalQueue, &workload.namespace, &workload.queue, now);
    }
}

/// The metric changes (`Measure`) for the change of a Workload from `old` to `new`, observed at `now`.
pub fn measures(ctx: &Context<'_>, old: &WorkloadView, new: &WorkloadView, now: Timestamp) -> Vec<Measure> {
    let local = ctx.settings.local_queue_metrics;
    let mut measures = transitions::measures(old, new, local, (now, ctx.view.timeline()));
    measures.extend(ctx.tier_measures(old, new, now));
    measures.extend(ctx.training_measures(old, new, now));
    if ctx.settings.cohort_metrics {
        measures.extend(ctx.cohort_measures(old, new));
    }
    measures
}
