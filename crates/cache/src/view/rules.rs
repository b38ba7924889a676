//! Changes of the observed rules: queues, flavors, QueuePolicies, admission checks, priority classes and namespaces, and the facts on which the requests of
//! pods depend.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_api as api;
use berth_api::berth::QueuePolicy;
use k8s_openapi::api::core::v1::LimitRange;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::admission_checks::Check;
use crate::event::Unlisted;
use crate::names::{Name, same_intent};
use crate::policy_merge;
use crate::policy_rules::Policy;
use crate::view::View;

/// Empty labels, for an object without labels.
static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

/// Stores a value in place of the older value of a name, and returns the older value. The name is not copied if the map has a value for it.
fn replace<V>(map: &mut BTreeMap<String, V>, name: &str, value: V) -> Option<V> {
    match map.get_mut(name) {
        Some(known) => Some(std::mem::replace(known, value)),
        None => map.insert(name.to_owned(), value),
    }
}

impl View {
    /// Stores a ClusterQueue in place of its older state; returns the older state.
    pub fn put_cluster_queue(&mut self, name: &str, object: Box<api::ClusterQueue>) -> Option<Box<api::ClusterQueue>> {
        replace(&mut self.cluster_queues, name, object)
    }

    /// Forgets a ClusterQueue, with the rules that it follows.
    pub fn remove_cluster_queue(&mut self, name: &str) {
        self.cluster_queues.remove(name);
        self.claims.remove(name);
    }

    /// Stores a LocalQueue in place of its older state.
    pub fn put_local_queue(&mut self, name: &Name, object: Box<api::LocalQueue>) {
        match self.local_queues.get_mut(name) {
            Some(known) => *known = object,
            None => {
                self.local_queues.insert(name.clone(), object);
            }
        }
    }

    /// Forgets a LocalQueue.
    pub fn remove_local_queue(&mut self, name: &Name) {
        self.local_queues.remove(name);
    }

    /// Stores a Cohort object in place of its older state.
    pub fn put_cohort(&mut self, name: &str, object: Box<api::Cohort>) {
        replace(&mut self.cohorts, name, object);
    }

    /// Forgets a Cohort object.
    pub fn remove_cohort(&mut self, name: &str) {
        self.cohorts.remove(name);
    }

    /// Stores a ResourceFlavor in place of its older state.
    pub fn put_flavor(&mut self, name: &str, object: Box<api::ResourceFlavor>) {
        replace(&mut self.flavors, name, object);
    }

    /// Forgets a ResourceFlavor.
    pub fn remove_flavor(&mut self, name: &str) {
        self.flavors.remove(name);
    }

    /// Stores an AdmissionCheck in place of its older state; returns the older state.
    pub fn put_check(&mut self, name: &str, check: Check) -> Option<Check> {
        replace(&mut self.checks, name, check)
    }

    /// Forgets an AdmissionCheck; returns its last state.
    pub fn remove_check(&mut self, name: &str) -> Option<Check> {
        self.checks.remove(name)
    }

    /// Records a policy that was observed, or its deletion. The result of `put_policy` has the ClusterQueues that the QueuePolicy claims now or claimed before;
    /// `None` if nothing but the policy's status has changed.
    pub fn put_policy(&mut self, name: &str, object: Option<Box<QueuePolicy>>) -> Option<Vec<String>> {
        let old = match (self.policies.get_mut(name), object) {
            (Some(known), Some(object)) if same_intent(&known.object.metadata, &object.metadata) => {
                known.object = object;
                return None;
            }
            (_, Some(object)) => self.policies.insert(name.to_owned(), Policy::new(object)),
            (_, None) => self.policies.remove(name),
        };
        let new = self.policies.get(name);
        let claimed = self.cluster_queues.iter().filter(|(queue, object)| {
            let labels = object.metadata.labels.as_ref().unwrap_or(&NO_LABELS);
            old.as_ref().into_iter().chain(new).any(|policy| policy.claims(queue, labels))
        });
        Some(claimed.map(|(queue, _)| queue.clone()).collect())
    }

    /// Finds the rules that a ClusterQueue with the given labels follows. The result of `claim` has the QueuePolicies that claim the ClusterQueue now or
    /// claimed it before; `None` if the rules of the queue have not changed.
    pub fn claim(&mut self, queue: &str, labels: Option<&BTreeMap<String, String>>) -> Option<Vec<Arc<str>>> {
        let labels = labels.unwrap_or(&NO_LABELS);
        let claiming = self.policies.values().filter(|policy| policy.claims(queue, labels));
        let new = policy_merge::merged(claiming.collect());
        if self.claims.get(queue) == new.as_ref() {
            return None;
        }
        let old = match new {
            Some(new) => self.claims.insert(queue.to_owned(), new),
            None => self.claims.remove(queue),
        };
        let claims = [old.as_ref(), self.claims.get(queue)];
        Some(claims.into_iter().flatten().flat_map(|claim| claim.of.iter().cloned()).collect())
    }

    /// Stores the spec of a CheckpointStore in place of its older state; `None` removes the CheckpointStore.
    pub fn put_store(&mut self, name: &str, store: Option<Arc<api::berth::CheckpointStoreSpec>>) {
        match store {
            Some(store) => replace(&mut self.stores, name, store),
            None => self.stores.remove(name),
        };
    }

    /// Records the value of a WorkloadPriorityClass, or its deletion. The result of `put_workload_priority` has the Workloads that have to take over the value;
    /// no Workload takes over an unchanged value.
    pub fn put_workload_priority(&mut self, name: &str, value: Option<i32>) -> Vec<Name> {
        let old = match value {
            Some(value) => self.workload_priorities.insert(name.to_owned(), value),
            None => self.workload_priorities.remove(name),
        };
        if old == value { Vec::new() } else { self.reprice(Some(name)) }
    }

    /// Records the value of a PriorityClass, and true if the class is the global default; `None` removes the class.
    pub fn put_priority_class(&mut self, name: String, class: Option<(i32, bool)>) {
        match class {
            Some(class) => self.priorities.insert(name, class),
            None => self.priorities.remove(&name),
        };
    }

    /// Records the labels of a namespace, and whether the namespace is being deleted. The result of `put_namespace` is true if the labels of the namespace have
    /// changed, or if the namespace has begun to be deleted.
    pub fn put_namespace(&mut self, name: &str, labels: BTreeMap<String, String>, is_ending: bool) -> bool {
        let ends = is_ending && self.ending.insert(name.to_owned());
        if !is_ending {
            self.ending.remove(name);
        }
        let is_labelled_otherwise = self.namespaces.get(name) != Some(&labels);
        if is_labelled_otherwise {
            replace(&mut self.namespaces, name, labels);
        }
        is_labelled_otherwise || ends
    }

    /// Forgets a namespace.
    pub fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
        self.ending.remove(name);
    }

    /// Stores a LimitRange in place of its older state; `None` removes the LimitRange.
    pub fn put_limit_range(&mut self, name: Name, object: Option<Box<LimitRange>>) {
        match object {
            Some(object) => self.limit_ranges.insert(name, object),
            None => self.limit_ranges.remove(&name),
        };
    }

    /// Records the overhead of the pods of a RuntimeClass; `None` removes the RuntimeClass.
    pub fn put_overhead(&mut self, name: String, overhead: Option<BTreeMap<String, Quantity>>) {
        match overhead {
            Some(overhead) => self.overheads.insert(name, overhead),
            None => self.overheads.remove(&name),
        };
    }

    /// Records that a resource cannot be listed, or can be listed again; true if this has changed.
    pub fn put_unlisted(&mut self, Unlisted { resource, kind, why }: Unlisted) -> bool {
        let Some(kind) = kind else { return false };
        let entry = (kind, resource);
        match why {
            Some(why) => self.unlisted.insert(entry, why.clone()) != Some(why),
            None => self.unlisted.remove(&entry).is_some(),
        }
    }
}
