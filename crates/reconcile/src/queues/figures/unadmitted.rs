//! Gauges of Workloads that are not admitted, by cause: the reason of the condition Admitted, and the reason of the condition QuotaReserved as the underlying
//! cause.

use std::collections::BTreeMap;

use berth_api::conditions::{reasons, types};
use berth_cache::WorkloadView;

use super::Gauges;
use crate::context::Context;
use crate::workload::status::find;

/// The reasons of the conditions Admitted and QuotaReserved, as the labels `reason` and `underlying_cause`.
fn why(workload: &WorkloadView) -> (&str, &str) {
    let conditions = &workload.status.conditions;
    let reason =
        find(conditions, types::ADMITTED).map_or(reasons::NO_RESERVATION, |condition| condition.reason.as_str());
    let cause = match find(conditions, types::QUOTA_RESERVED) {
        // No reason has been written to the status yet.
        None => reasons::PENDING_EVALUATION,
        Some(condition) if condition.status == "True" => "",
        Some(condition) => condition.reason.as_str(),
    };
    (reason, cause)
}

impl Context<'_> {
    /// Counts the unadmitted Workloads of each ClusterQueue and LocalQueue. The cost of counting the unadmitted Workloads grows with the number of Workloads.
    pub(super) fn unadmitted_gauges(&self, gauges: &mut Gauges) {
        let mut counts: BTreeMap<_, usize> = BTreeMap::new();
        let live = self.view.workloads().values().filter(|workload| !workload.deleting);
        for workload in live.filter(|workload| !workload.is(types::ADMITTED) && !workload.is_finished()) {
            let given = workload.status.admission.as_ref().and_then(|admission| admission.cluster_queue.as_deref());
            let local = (workload.namespace.as_str(), workload.queue.as_str());
            let count = counts.entry((local, given, why(workload))).or_default();
            *count = count.saturating_add(1);
        }
        // The ClusterQueue of Workloads without quota is looked up once for each LocalQueue, and not for each Workload.
        let mut locally: BTreeMap<_, usize> = BTreeMap::new();
        for ((local, given, why), count) in counts {
            let named = || {
                let local = self.view.local_queues().get(&(local.0.to_owned(), local.1.to_owned()))?;
                local.spec.cluster_queue.as_deref()
            };
            let Some(queue) = given.or_else(named) else { continue };
            let sum = locally.entry((queue, why, local)).or_default();
            *sum = sum.saturating_add(count);
        }
        let mut sums: BTreeMap<_, usize> = BTreeMap::new();
        for ((queue, why, local), count) in locally {
            let sum = sums.entry((queue, why)).or_default();
            *sum = sum.saturating_add(count);
            if self.settings.local_queue_metrics {
                let mut labels = vec![("name", local.1.to_owned()), ("namespace", local.0.to_owned())];
                labels.extend(labels_of(queue, why));
                gauges.count("kueue_local_queue_unadmitted_workloads", labels, count);
            }
        }
        for ((queue, why), sum) in sums {
            gauges.count("kueue_unadmitted_workloads", labels_of(queue, why).to_vec(), sum);
        }
    }
}

fn labels_of(queue: &str, (reason, cause): (&str, &str)) -> [(&'static str, String); 3] {
    [("cluster_queue", queue.to_owned()), ("reason", reason.to_owned()), ("underlying_cause", cause.to_owned())]
}

#[cfg(test)]
mod tests;
