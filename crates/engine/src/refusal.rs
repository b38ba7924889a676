//! Heads that are not even nominated (kueue.md 6.3), and what namespaces have to do with that.

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
        match self.store.namespaces.get(self.store.namespace_of(workload)) {
            // Mostly all namespaces are selected, and their labels need not be looked at.
            Some(labels) => selector.0.is_empty() || selects(selector, labels),
            None => !self.lacks_namespace(workload) && selects(selector, &BTreeMap::new()),
        }
    }

    /// Whether there is no such namespace. Every cluster has some: as long as none is known, nothing is known of them.
    pub(crate) fn lacks_namespace(&self, workload: &Workload) -> bool {
        let known = &self.store.namespaces;
        !known.is_empty() && !known.contains_key(self.store.namespace_of(workload))
    }

    /// Why a head can not even be nominated.
    pub(crate) fn refusal(&self, queue: QueueId, id: WorkloadId) -> Option<(Requeue, Finding)> {
        let workload = self.store.workload(id)?;
        if workload.checks_failed {
            let text = Said::Plainly("The workload has failed admission checks");
            return Some((Requeue::Park, (PendingReason::PendingEvaluation, text)));
        }
        if !self.is_selected(queue, workload) {
            if self.lacks_namespace(workload) {
                let name = self.store.namespace_of(workload);
                let text = format!("workload namespace {name:?} does not exist: namespaces {name:?} not found");
                return Some((Requeue::Park, (PendingReason::Misconfigured, Said::AtLength(text))));
            }
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

    /// Labels of a namespace changed, or it is there now: those that it kept waiting are tried again.
    pub(crate) fn namespace_changed(&mut self, name: &str, is_new: bool) {
        for id in self.store.queues.ids() {
            self.retry_mismatched(id, |world, workload| world.store.namespace_of(workload) == name);
            if is_new {
                self.retry_refused(id, name);
            }
        }
    }

    /// Tries those again that were refused before there was their namespace, the head of a strict queue too, which stays in it.
    fn retry_refused(&mut self, id: QueueId, namespace: &str) {
        let is_meant = |workload: &WorkloadId| {
            self.store.workload(*workload).is_some_and(|known| self.store.namespace_of(known) == namespace)
        };
        let retry: Vec<WorkloadId> = self.store.queues[id].pending.solo.iter().copied().filter(is_meant).collect();
        if self.head(id).is_some_and(|head| is_meant(&head)) {
            self.live.insert(self.tree.root(self.store.queues[id].node));
        }
        self.try_again(retry);
    }

    /// Tries those again whose namespace did not match, where this says so of them.
    pub(crate) fn retry_mismatched(&mut self, id: QueueId, is_meant: impl Fn(&Self, &Workload) -> bool) {
        let mismatched = self.store.queues[id].pending.mismatched.iter().copied();
        let is_meant = |id: &WorkloadId| self.store.workload(*id).is_some_and(|workload| is_meant(self, workload));
        let retry: Vec<WorkloadId> = mismatched.filter(is_meant).collect();
        self.try_again(retry);
    }

    fn try_again(&mut self, workloads: Vec<WorkloadId>) {
        for workload in workloads {
            self.unplace(workload);
            self.place(workload);
        }
    }
}
