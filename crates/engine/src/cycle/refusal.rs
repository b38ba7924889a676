//! Reasons to refuse a head before nomination, and the namespaces on which these reasons depend.

use std::collections::BTreeMap;

use crate::assign::matching::selects;
use crate::cycle::outcome::Requeue;
use crate::explain::why::{Finding, Message};
use crate::model::{JobLimit, PendingReason};
use crate::world::World;
use crate::world::ids::{LocalQueueId, QueueId, WorkloadId};
use crate::world::store::{Phase, Place, Store, Workload};

impl World {
    /// Whether the namespace selector of the queue selects the workload's namespace.
    pub(crate) fn is_selected(&self, queue: QueueId, workload: &Workload) -> bool {
        let Some(spec) = &self.store.queues[queue].spec else { return true };
        let Some(selector) = &spec.namespace_selector else { return false };
        if self.lacks_namespace(workload) {
            return false;
        }
        // An empty selector, which is the most frequent one, selects all namespaces, so that the labels of the namespace need not be looked up.
        selector.0.is_empty() || {
            let nothing = BTreeMap::new();
            selects(selector, self.store.namespaces.get(self.store.namespace_of(workload)).unwrap_or(&nothing))
        }
    }

    /// Whether the workload's namespace does not exist, as its LocalQueue has recorded.
    pub(crate) fn lacks_namespace(&self, workload: &Workload) -> bool {
        self.store.local_queues[workload.local_queue].lacks_namespace
    }

    /// Reason why a head is refused before nomination; `None` if it is not refused.
    pub(crate) fn refusal(&self, queue: QueueId, id: WorkloadId) -> Option<(Requeue, Finding)> {
        let workload = self.store.workload(id)?;
        if workload.checks_failed {
            let text = Message::Plainly("The workload has failed admission checks");
            return Some((Requeue::Park, (PendingReason::PendingEvaluation, text)));
        }
        if !self.is_selected(queue, workload) {
            if self.lacks_namespace(workload) {
                let name = self.store.namespace_of(workload);
                let text = format!("workload namespace {name:?} does not exist: namespaces {name:?} not found");
                return Some((Requeue::Park, (PendingReason::Misconfigured, Message::AtLength(text))));
            }
            let text = Message::Plainly("workload namespace doesn't match ClusterQueue selector");
            return Some((Requeue::Mismatch, (PendingReason::Misconfigured, text)));
        }
        // A replacement slice does not add to the number of workloads, so the limit of workloads with quota does not apply to it.
        if let Some(JobLimit { most, source }) = self.store.queues[queue].reached_limit()
            && self.store.grows_from(workload, queue).is_none()
        {
            let held = self.store.queues[queue].held.len();
            let text = format!("{source} is {most}, and {held} workloads hold quota of the ClusterQueue");
            return Some((Requeue::NoRoom, (PendingReason::AdmissionLimit, Message::AtLength(text))));
        }
        if let Some(text) = &workload.refused {
            return Some((Requeue::Park, (PendingReason::Misconfigured, Message::AtLength(text.to_string()))));
        }
        let pod_sets = &self.store.classes[workload.class].pod_sets;
        let asks_topology = pod_sets.iter().find(|pod_set| pod_set.spec.topology_request)?;
        let text = format!("pod set {}: topologyRequest is not supported yet", asks_topology.spec.name);
        Some((Requeue::Park, (PendingReason::Misconfigured, Message::AtLength(text))))
    }

    /// Takes in a namespace with its labels: workloads that waited for the namespace or for its labels are tried again.
    pub(crate) fn set_namespace(&mut self, name: String, labels: BTreeMap<String, String>) {
        let known = self.store.namespaces.get(&name);
        if known == Some(&labels) {
            return;
        }
        let is_new = known.is_none();
        let is_first = self.store.namespaces.is_empty();
        self.store.namespaces.insert(name.clone(), labels);
        let theirs = self.store.local_queues_of(&name);
        if is_first {
            self.store.mark_lacking(self.store.local_queues.ids());
        } else if is_new {
            self.store.mark_lacking(theirs.iter().copied());
        }
        for id in theirs {
            self.try_again_of(id, is_new);
        }
    }

    /// Removes a namespace: its remaining workloads are refused when they are tried again.
    pub(crate) fn remove_namespace(&mut self, name: &str) {
        if self.store.namespaces.remove(name).is_none() {
            return;
        }
        if self.store.namespaces.is_empty() {
            self.store.mark_lacking(self.store.local_queues.ids());
        } else {
            self.store.mark_lacking(self.store.local_queues_of(name).into_iter());
        }
    }

    /// Tries workloads of a LocalQueue again whose namespace labels did not match. If the namespace is new, workloads that were refused because the namespace
    /// was absent are tried again, too; in a strict queue such a workload stayed in its queue as the head.
    fn try_again_of(&mut self, id: LocalQueueId, is_new: bool) {
        let local_queue = &self.store.local_queues[id];
        let Some(queue) = local_queue.queue else { return };
        let is_head = self.head(queue).is_some_and(|head| local_queue.pending.contains(&head));
        let is_meant = |id: &WorkloadId| {
            self.store.workload(*id).is_some_and(|workload| match workload.phase {
                Phase::Pending(Place::Mismatched) => true,
                Phase::Pending(Place::Solo) => is_new,
                _ => false,
            })
        };
        let retry: Vec<WorkloadId> = local_queue.pending.iter().copied().filter(is_meant).collect();
        if is_new && is_head {
            self.live.insert(self.tree.root(self.store.queues[queue].node));
        }
        self.try_again(retry);
    }

    /// Tries workloads of a ClusterQueue again whose namespace did not match, if `is_meant` returns true for them.
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

impl Store {
    pub(crate) fn namespace_of(&self, workload: &Workload) -> &str {
        &self.local_queue_names.key(workload.local_queue).0
    }

    /// Whether the namespace `namespace` does not exist. No namespace counts as missing while no namespace is known at all, because every cluster has
    /// namespaces.
    pub(crate) fn lacks(&self, namespace: &str) -> bool {
        !self.namespaces.is_empty() && !self.namespaces.contains_key(namespace)
    }

    fn local_queues_of(&self, namespace: &str) -> Vec<LocalQueueId> {
        self.local_queues.ids().filter(|id| self.local_queue_names.key(*id).0 == namespace).collect()
    }

    /// Records at LocalQueues whether their namespace exists, so that no head has to look up the namespace.
    fn mark_lacking(&mut self, ids: impl Iterator<Item = LocalQueueId>) {
        for id in ids {
            self.local_queues[id].lacks_namespace = self.lacks(&self.local_queue_names.key(id).0);
        }
    }

    /// Error messages about LocalQueues whose record about their namespace is wrong.
    pub(crate) fn misled(&self) -> impl Iterator<Item = String> + '_ {
        let is_known = |id: &LocalQueueId| self.local_queue_names.get(self.local_queue_names.key(*id)) == Some(*id);
        let known = self.local_queues.ids().filter(is_known);
        let key = known.map(|id| (self.local_queues[id].lacks_namespace, self.local_queue_names.key(id)));
        let wrong = key.filter(|(lacks, (namespace, _))| *lacks != self.lacks(namespace));
        wrong.map(|(lacks, (namespace, name))| format!("LocalQueue {namespace}/{name}: lacks its namespace: {lacks}"))
    }
}
