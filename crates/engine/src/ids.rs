//! Interned ids and the arenas they index. An id is only made by the arena that holds its item, and items are never
//! taken out, so indexing cannot fail; this is the one module where indexing is allowed.

use std::hash::Hash;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use rustc_hash::FxHashMap;

/// A dense id.
pub(crate) trait Id: Copy {
    fn at(index: usize) -> Self;
    fn index(self) -> usize;
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(u32);
        impl Id for $name {
            fn at(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// A ResourceFlavor name.
    FlavorId,
    /// A resource name.
    ResourceId,
    /// A (flavor, resource) pair.
    CellId,
    /// A node of the cohort forest.
    NodeId,
    /// A ClusterQueue name.
    QueueId,
    /// A LocalQueue (namespace, name).
    LocalQueueId,
    /// A workload.
    WorkloadId,
    /// A class of workloads that are equal for scheduling.
    ClassId,
}

/// Items by id.
#[derive(Debug)]
pub(crate) struct Arena<I, T> {
    items: Vec<T>,
    marker: PhantomData<I>,
}

impl<I: Id, T> Arena<I, T> {
    pub(crate) const fn new() -> Self {
        Self { items: Vec::new(), marker: PhantomData }
    }

    pub(crate) fn push(&mut self, item: T) -> I {
        let id = I::at(self.items.len());
        self.items.push(item);
        id
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.items.len()).map(I::at)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.items.iter().enumerate().map(|(i, item)| (I::at(i), item))
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }
}

#[cfg_attr(
    not(test),
    expect(clippy::indexing_slicing, reason = "ids are given out by the arena they index, and never taken back")
)]
impl<I: Id, T> Index<I> for Arena<I, T> {
    type Output = T;
    fn index(&self, id: I) -> &T {
        &self.items[id.index()]
    }
}

#[cfg_attr(
    not(test),
    expect(clippy::indexing_slicing, reason = "ids are given out by the arena they index, and never taken back")
)]
impl<I: Id, T> IndexMut<I> for Arena<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.items[id.index()]
    }
}

/// Keys with dense ids.
#[derive(Debug)]
pub(crate) struct Interner<I, K> {
    ids: FxHashMap<K, I>,
    keys: Arena<I, K>,
}

impl<I: Id, K: Clone + Eq + Hash> Interner<I, K> {
    pub(crate) fn new() -> Self {
        Self { ids: FxHashMap::default(), keys: Arena::new() }
    }

    pub(crate) fn intern(&mut self, key: &K) -> I {
        if let Some(id) = self.ids.get(key) {
            return *id;
        }
        let id = self.keys.push(key.clone());
        self.ids.insert(key.clone(), id);
        id
    }

    pub(crate) fn get(&self, key: &K) -> Option<I> {
        self.ids.get(key).copied()
    }

    pub(crate) fn key(&self, id: I) -> &K {
        &self.keys[id]
    }
}

/// Ids that were marked, each once.
#[derive(Debug)]
pub(crate) struct Marks<I> {
    is_marked: Vec<bool>,
    marked: Vec<I>,
}

impl<I: Id + Ord> Marks<I> {
    pub(crate) const fn new() -> Self {
        Self { is_marked: Vec::new(), marked: Vec::new() }
    }

    pub(crate) fn insert(&mut self, id: I) {
        if self.is_marked.len() <= id.index() {
            self.is_marked.resize(id.index() + 1, false);
        }
        if let Some(is_marked) = self.is_marked.get_mut(id.index())
            && !*is_marked
        {
            *is_marked = true;
            self.marked.push(id);
        }
    }

    pub(crate) fn extend(&mut self, ids: impl IntoIterator<Item = I>) {
        for id in ids {
            self.insert(id);
        }
    }

    /// Takes all marks off.
    pub(crate) fn take(&mut self) -> Vec<I> {
        for id in &self.marked {
            if let Some(is_marked) = self.is_marked.get_mut(id.index()) {
                *is_marked = false;
            }
        }
        std::mem::take(&mut self.marked)
    }
}
