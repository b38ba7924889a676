//! The Workloads of the view with their indexes.
//!
//! Look-ups that need only the key are hashed: a search tree of 15,000 names costs a dozen cold reads for each look-up. No decision may depend on the order of
//! the Workloads in these hash maps, so that a walk over all Workloads sorts, counts, or fills a set.
//!
//! Most Workloads of a cluster with 50,000 Workloads have finished, and are kept only so that control knows them. Each Workload has a place, and the tables by
//! name and by uid contain only the number of the place, because the name and the uid can be read there.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash};

use hashbrown::HashTable;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::{Name, WorkloadView};

/// The Workloads, with the indexes by which they are found.
#[derive(Debug, Default)]
pub struct Workloads {
    /// Each Workload is in a box, because larger values would be copied when the list grows.
    places: Vec<Option<Box<WorkloadView>>>,
    /// Free places.
    free: Vec<u32>,
    /// The place of a Workload by its name.
    by_name: HashTable<u32>,
    /// The place of a Workload by its uid.
    by_uid: HashTable<u32>,
    /// Names of Workloads by the uid of their controlling owner.
    owned: FxHashMap<String, BTreeSet<Name>>,
    /// Workloads that hold quota, by ClusterQueue.
    reserving: FxHashMap<String, BTreeSet<Name>>,
    /// Workloads that hold quota, by LocalQueue.
    holding: FxHashMap<Name, BTreeSet<Name>>,
    /// Workloads that are not finished, by LocalQueue.
    members: FxHashMap<Name, BTreeSet<Name>>,
}

fn hash_of_name(namespace: &str, name: &str) -> u64 {
    FxBuildHasher.hash_one((namespace, name))
}

fn hash_of_uid(uid: &str) -> u64 {
    FxBuildHasher.hash_one(uid)
}

/// The workload at a place.
fn at(places: &[Option<Box<WorkloadView>>], place: u32) -> Option<&WorkloadView> {
    places.get(usize::try_from(place).ok()?)?.as_deref()
}

impl Workloads {
    fn place_of(&self, namespace: &str, name: &str) -> Option<u32> {
        let here = |place: &u32| {
            at(&self.places, *place).is_some_and(|found| found.namespace == namespace && found.name == name)
        };
        self.by_name.find(hash_of_name(namespace, name), here).copied()
    }

    /// The Workload with a name.
    pub fn get(&self, name: &Name) -> Option<&WorkloadView> {
        at(&self.places, self.place_of(&name.0, &name.1)?)
    }

    /// The Workload with a name, for changes of fields that no index uses.
    pub fn get_mut(&mut self, name: &Name) -> Option<&mut WorkloadView> {
        self.slot(self.place_of(&name.0, &name.1)?)?.as_deref_mut()
    }

    fn slot(&mut self, place: u32) -> Option<&mut Option<Box<WorkloadView>>> {
        self.places.get_mut(usize::try_from(place).ok()?)
    }

    /// The name of the workload with a uid.
    pub fn name_of(&self, uid: &str) -> Option<Name> {
        self.by_uid(uid).map(WorkloadView::key)
    }

    /// The names of all Workloads, in no particular order.
    pub fn keys(&self) -> impl Iterator<Item = Name> {
        self.values().map(WorkloadView::key)
    }

    /// All Workloads, in no particular order.
    pub fn values(&self) -> impl Iterator<Item = &WorkloadView> {
        self.places.iter().flatten().map(Box::as_ref)
    }

    /// All Workloads in no particular order, for changes of fields that no index uses.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut WorkloadView> {
        self.places.iter_mut().flatten().map(Box::as_mut)
    }

    /// The workload with a uid.
    pub fn by_uid(&self, uid: &str) -> Option<&WorkloadView> {
        let here = |place: &u32| at(&self.places, *place).is_some_and(|found| found.uid == uid);
        at(&self.places, *self.by_uid.find(hash_of_uid(uid), here)?)
    }

    /// Workloads of an index entry.
    fn of<'a>(&'a self, entry: Option<&'a BTreeSet<Name>>) -> impl Iterator<Item = &'a WorkloadView> {
        entry.into_iter().flatten().filter_map(|name| self.get(name))
    }

    /// Workloads that an owner controls.
    pub fn owned_by(&self, uid: &str) -> impl Iterator<Item = &WorkloadView> {
        self.of(self.owned.get(uid))
    }

    /// Workloads that hold quota of a ClusterQueue.
    pub fn reserving(&self, cluster_queue: &str) -> impl Iterator<Item = &WorkloadView> {
        self.of(self.reserving.get(cluster_queue))
    }

    /// Workloads that hold quota of any ClusterQueue, in no particular order.
    pub fn all_reserving(&self) -> impl Iterator<Item = &WorkloadView> {
        self.reserving.values().flat_map(|names| self.of(Some(names)))
    }

    /// Workloads of a LocalQueue that hold quota.
    pub fn holding(&self, local_queue: &Name) -> impl Iterator<Item = &WorkloadView> {
        self.of(self.holding.get(local_queue))
    }

    /// Workloads of a LocalQueue that are not finished.
    pub fn members(&self, local_queue: &Name) -> impl Iterator<Item = &WorkloadView> {
        self.of(self.members.get(local_queue))
    }

    /// Stores a Workload in place of its older state; returns the older state.
    pub fn put(&mut self, new: Box<WorkloadView>) -> Option<Box<WorkloadView>> {
        let key = new.key();
        let known = self.place_of(&key.0, &key.1);
        if let Some(known) = known.and_then(|place| self.slot(place)).and_then(Option::as_mut)
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
        if !new.is_finished() {
            self.members.entry(new.local_queue()).or_default().insert(key);
        }
        self.settle(new);
        old
    }

    /// Gives a new Workload a place, and adds the place to the tables by name and by uid.
    fn settle(&mut self, new: Box<WorkloadView>) {
        let (by_name, by_uid) = (hash_of_name(&new.namespace, &new.name), hash_of_uid(&new.uid));
        // No memory holds as many Workloads as a 32-bit number can count.
        let next = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        let place = self.free.pop().unwrap_or(next);
        match self.slot(place) {
            Some(slot) => *slot = Some(new),
            None => self.places.push(Some(new)),
        }
        let places = &self.places;
        let named = |place: &u32| at(places, *place).map_or(0, |found| hash_of_name(&found.namespace, &found.name));
        self.by_name.insert_unique(by_name, place, named);
        self.by_uid.insert_unique(by_uid, place, |place| at(places, *place).map_or(0, |found| hash_of_uid(&found.uid)));
    }

    /// Forgets a Workload and all its index entries.
    pub fn remove(&mut self, key: &Name) -> Option<Box<WorkloadView>> {
        let place = self.place_of(&key.0, &key.1)?;
        let old = self.slot(place)?.take()?;
        for (table, hash) in
            [(&mut self.by_name, hash_of_name(&key.0, &key.1)), (&mut self.by_uid, hash_of_uid(&old.uid))]
        {
            if let Ok(entry) = table.find_entry(hash, |other| *other == place) {
                entry.remove();
            }
        }
        self.free.push(place);
        if let Some(owner) = &old.owner {
            remove_from(&mut self.owned, owner.uid.as_str(), key);
        }
        if let Some(queue) = old.holds() {
            remove_from(&mut self.reserving, queue, key);
            remove_from(&mut self.holding, &old.local_queue(), key);
        }
        if !old.is_finished() {
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
