//! Heads that are not even nominated (kueue.md 6.3).

use std::collections::BTreeMap;

use crate::cycle::Requeue;
use crate::ids::{QueueId, WorkloadId};
use crate::matching::selects;
use crate::model::{JobLimit, PendingReason};
use crate::store::Workload;
use crate::why::{Finding, Said};
use crate::world::World;

impl World {
    /// Whether the queue takes workloads of that namespace.
    pub(crate) fn is_selected(&self, queue: QueueId, workload: &Workload) -> bool {
        let Some(spec) = &self.store.queues[queue].spec else { return true };
        let Some(selector) = &spec.namespace_selector else { return false };
        // Mostly all namespaces are selected, and their labels need not be looked up.
        if selector.0.is_empty() {
            return true;
        }
        match self.store.namespaces.get(self.store.namespace_of(workload)) {
            Some(labels) => selects(selector, labels),
            None => selects(selector, &BTreeMap::new()),
        }
    }

    /// Why a head can not even be nominated.
    pub(crate) fn refusal(&self, queue: QueueId, id: WorkloadId) -> Option<(Requeue, Finding)> {
        let workload = self.store.workload(id)?;
        if workload.checks_failed {
            let text = Said::Plainly("The workload has failed admission checks");
            return Some((Requeue::Park, (PendingReason::PendingEvaluation, text)));
        }
        if !self.is_selected(queue, workload) {
            let text = Said::Plainly("workload namespace doesn't match ClusterQueue selector");
            return Some((Requeue::Mismatch, (PendingReason::Misconfigured, text)));
        }
        // Who takes the place of another takes no further one.
        if let Some(JobLimit { most, source }) = self.store.queues[queue].reached_limit()
            && self.store.grows_from(workload, queue).is_none()
        {
            let held = self.store.queues[queue].held.len();
            let text = format!("{source} is {most}, and {held} workloads hold quota of the ClusterQueue");
            return Some((Requeue::NoRoom, (PendingReason::AdmissionLimit, Said::AtLength(text))));
        }
        if let Some(text) = &workload.refused {
            return Some((Requeue::Park, (PendingReason::Misconfigured, Said::AtLength(text.to_string()))));
        }
        let pod_sets = &self.store.classes[workload.class].pod_sets;
        let asks_topology = pod_sets.iter().find(|pod_set| pod_set.spec.topology_request)?;
        let text = format!("pod set {}: topologyRequest is not supported yet", asks_topology.spec.name);
        Some((Requeue::Park, (PendingReason::Misconfigured, Said::AtLength(text))))
    }
}
