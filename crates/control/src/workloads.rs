//! The workloads of the view with their indexes.
//!
//! What is asked for by key only is hashed: a search tree of 15,000 names costs a dozen cold reads per look. No decision
//! may depend on the order of these maps, so whoever walks all workloads sorts, counts, or fills a set.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::view::{Name, WorkloadView};

/// Workloads by name, and the ways to find them. Each stands in a box: the map moves its entries about when it grows.
#[derive(Debug, Default)]
pub(crate) struct Workloads {
    all: FxHashMap<Name, Box<WorkloadView>>,
    /// Name by workload uid.
    names: FxHashMap<String, Name>,
    /// Names by the uid of their controlling owner.
    owned: FxHashMap<String, BTreeSet<Name>>,
    /// Those that hold quota, by ClusterQueue.
    reserving: FxHashMap<String, BTreeSet<Name>>,
    /// Those that hold quota, by LocalQueue.
    holding: FxHashMap<Name, BTreeSet<Name>>,
    /// Those that are not finished, by LocalQueue.
    members: FxHashMap<Name, BTreeSet<Name>>,
}

impl Workloads {
    /// The workload of a name.
    pub(crate) fn get(&self, name: &Name) -> Option<&WorkloadView> {
        self.all.get(name).map(Box::as_ref)
    }

    /// The workload of a name, for changes that no index sees.
    pub(crate) fn get_mut(&mut self, name: &Name) -> Option<&mut WorkloadView> {
        self.all.get_mut(name).map(Box::as_mut)
    }

    /// The name of the workload with a uid.
    pub(crate) fn name_of(&self, uid: &str) -> Option<&Name> {
        self.names.get(uid)
    }

    /// All names, in no order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Name> {
        self.all.keys()
    }

    /// All workloads, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &WorkloadView> {
        self.all.values().map(Box::as_ref)
    }

    /// All workloads in no order, for changes that no index sees.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&Name, &mut WorkloadView)> {
        self.all.iter_mut().map(|(name, workload)| (name, workload.as_mut()))
    }

    /// The workload with a uid.
    pub(crate) fn by_uid(&self, uid: &str) -> Option<&WorkloadView> {
        self.get(self.name_of(uid)?)
    }

    /// Those of an index entry.
    fn of<'a>(&'a self, entry: Option<&'a BTreeSet<Name>>) -> impl Iterator<Item = &'a WorkloadView> {
        entry.into_iter().flatten().filter_map(|name| self.get(name))
    }

    /// Those that an owner controls.
    pub(crate) fn owned_by(&self, uid: &str) -> impl Iterator<Item = &WorkloadView> {
        self.of(self.owned.get(uid))
    }

    /// Those that hold quota of a ClusterQueue.
    pub(crate) fn reserving(&self, cluster_queue: &str) -> impl Iterator<Item = &WorkloadView> {
        self.of(self.reserving.get(cluster_queue))
    }

    /// Those that hold quota of any ClusterQueue, in no order.
    pub(crate) fn all_reserving(&self) -> impl Iterator<Item = &WorkloadView> {
        self.reserving.values().flat_map(|names| self.of(Some(names)))
    }

    /// Those of a LocalQueue that hold quota.
    pub(crate) fn holding(&self, local_queue: &Name) -> impl Iterator<Item = &WorkloadView> {
        self.of(self.holding.get(local_queue))
    }

    /// Those of a LocalQueue that are not finished.
    pub(crate) fn members(&self, local_queue: &Name) -> impl Iterator<Item = &WorkloadView> {
        self.of(self.members.get(local_queue))
    }

    /// Puts a workload in place of its older state; returns the old one.
    pub(crate) fn put(&mut self, new: Box<WorkloadView>) -> Option<Box<WorkloadView>> {
        let key = new.key();
        if let Some(known) = self.all.get_mut(&key)
            && known.indexed_as(&new)
        {
            return Some(std::mem::replace(known, new));
        }
        let old = self.remove(&key);
        if let Some(owner) = &new.owner {
            self.owned.entry(owner.uid.clone()).or_default().insert(key.clone());
        }
        if let Some(queue) = new.holds() {
            self.reserving.entry(queue.to_owned()).or_default().insert(key.clone());
            self.holding.entry(new.local_queue()).or_default().insert(key.clone());
        }
        if !new.is("Finished") {
            self.members.entry(new.local_queue()).or_default().insert(key.clone());
        }
        self.names.insert(new.uid.clone(), key.clone());
        self.all.insert(key, new);
        old
    }

    /// Forgets a workload and every index entry of it.
    pub(crate) fn remove(&mut self, key: &Name) -> Option<Box<WorkloadView>> {
        let old = self.all.remove(key)?;
        self.names.remove(&old.uid);
        if let Some(owner) = &old.owner {
            remove_from(&mut self.owned, owner.uid.as_str(), key);
        }
        if let Some(queue) = old.holds() {
            remove_from(&mut self.reserving, queue, key);
            remove_from(&mut self.holding, &old.local_queue(), key);
        }
        if !old.is("Finished") {
            remove_from(&mut self.members, &old.local_queue(), key);
        }
        Some(old)
    }
}

fn remove_from<K, Q>(index: &mut FxHashMap<K, BTreeSet<Name>>, key: &Q, name: &Name)
where
    K: Borrow<Q> + Hash + Eq,
    Q: Hash + Eq + ?Sized,
{
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}
