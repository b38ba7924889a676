//! Interned ids and the arenas whose items they index. An id is made only by the arena that holds its item, and items are never removed, so indexing cannot
//! fail. The module `ids` is the only module of the engine that may index.

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

/// Number of items in each part of an arena, which stores items by id. Parts of an arena are never moved, and only the last part has unused room.
const PART: usize = 256;

/// Items by id.
#[derive(Debug)]
pub(crate) struct Arena<I, T> {
    parts: Vec<Vec<T>>,
    marker: PhantomData<I>,
}

impl<I: Id, T> Arena<I, T> {
    pub(crate) const fn new() -> Self {
        Self { parts: Vec::new(), marker: PhantomData }
    }

    pub(crate) fn push(&mut self, item: T) -> I {
        let id = I::at(self.len());
        match self.parts.last_mut().filter(|part| part.len() < PART) {
            Some(part) => part.push(item),
            None => {
                // Most arenas of small worlds stay small, so the first part starts empty; an arena that has filled its first part will fill more of them.
                let mut part = Vec::with_capacity(if self.parts.is_empty() { 0 } else { PART });
                part.push(item);
                self.parts.push(part);
            }
        }
        id
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.len()).map(I::at)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.parts.iter().flatten().enumerate().map(|(i, item)| (I::at(i), item))
    }

    pub(crate) fn len(&self) -> usize {
        let before = self.parts.len().saturating_sub(1).saturating_mul(PART);
        before.saturating_add(self.parts.last().map_or(0, Vec::len))
    }
}

#[cfg_attr(
    not(test),
    expect(clippy::indexing_slicing, reason = "ids are given out by the arena they index, and never taken back")
)]
impl<I: Id, T> Index<I> for Arena<I, T> {
    type Output = T;
    fn index(&self, id: I) -> &T {
        &self.parts[id.index() / PART][id.index() % PART]
    }
}

#[cfg_attr(
    not(test),
    expect(clippy::indexing_slicing, reason = "ids are given out by the arena they index, and never taken back")
)]
impl<I: Id, T> IndexMut<I> for Arena<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.parts[id.index() / PART][id.index() % PART]
    }
}

/// Keys with dense ids.
#[derive(Debug)]
pub(crate) struct Interner<I, K> {
    ids: FxHashMap<K, I>,
    keys: Arena<I, K>,
    /// Released ids, which can be given to another key.
    free: Vec<I>,
}

impl<I: Id, K: Clone + Eq + Hash> Interner<I, K> {
    pub(crate) fn new() -> Self {
        Self { ids: FxHashMap::default(), keys: Arena::new(), free: Vec::new() }
    }

    pub(crate) fn intern(&mut self, key: &K) -> I {
        if let Some(id) = self.ids.get(key) {
            return *id;
        }
        let id = match self.free.pop() {
            Some(id) => {
                self.keys[id] = key.clone();
                id
            }
            None => self.keys.push(key.clone()),
        };
        self.ids.insert(key.clone(), id);
        id
    }

    /// Releases an id, so that the arena may give it to another key.
    pub(crate) fn release(&mut self, id: I) {
        if self.ids.remove(&self.keys[id]).is_some() {
            self.free.push(id);
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<I> {
        self.ids.get(key).copied()
    }

    pub(crate) fn key(&self, id: I) -> &K {
        &self.keys[id]
    }
}

/// Ids that were marked, for example because their objects changed; each id is in the list once.
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
            self.is_marked.resize(id.index().saturating_add(1), false);
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

    /// Removes the marks of all ids, and returns the ids that were marked.
    pub(crate) fn take(&mut self) -> Vec<I> {
        for id in &self.marked {
            if let Some(is_marked) = self.is_marked.get_mut(id.index()) {
                *is_marked = false;
            }
        }
        std::mem::take(&mut self.marked)
    }
}
