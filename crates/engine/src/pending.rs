//! The pending workloads of one ClusterQueue, kept by class of equals: a class is parked and woken as one, so a wake-up
//! costs the number of classes, not of workloads.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{ClassId, WorkloadId};
use crate::model::PendingReason;
use crate::store::Key;

/// Members of one class in one queue.
#[derive(Debug, Default)]
pub(crate) struct ClassQueue {
    pub(crate) members: BTreeSet<(Key, WorkloadId)>,
    /// Set while an equal workload was found not to fit and nothing changed since.
    pub(crate) parked: Option<PendingReason>,
    /// Members that have not been told that they were passed over.
    pub(crate) unannounced: BTreeSet<WorkloadId>,
    /// Reason that was announced to all other members.
    pub(crate) announced: Option<PendingReason>,
}

/// Pending workloads of a queue.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// First member of each active class.
    heads: BTreeMap<(Key, WorkloadId), ClassId>,
    pub(crate) classes: BTreeMap<ClassId, ClassQueue>,
    pub(crate) solo: BTreeSet<WorkloadId>,
    pub(crate) mismatched: BTreeSet<WorkloadId>,
    /// All pending workloads that name this queue.
    pub(crate) total: u32,
    /// The workload that waits for its victims; it goes first.
    pub(crate) sticky: Option<WorkloadId>,
    /// The workload that issued preemptions last, under any strategy.
    pub(crate) preemptor: Option<WorkloadId>,
    /// Epoch of the tree that was last acted on.
    pub(crate) epoch: u64,
}

impl Pending {
    /// Adds a member to its class.
    pub(crate) fn push(&mut self, class: ClassId, key: Key, workload: WorkloadId) {
        let queue = self.classes.entry(class).or_default();
        queue.unannounced.insert(workload);
        if let Some(first) = queue.members.first() {
            self.heads.remove(first);
        }
        queue.members.insert((key, workload));
        if queue.parked.is_none()
            && let Some(first) = queue.members.first()
        {
            self.heads.insert(first.clone(), class);
        }
    }

    /// Takes a member out of its class.
    pub(crate) fn take(&mut self, class: ClassId, key: Key, workload: WorkloadId) {
        let Some(queue) = self.classes.get_mut(&class) else { return };
        if let Some(first) = queue.members.first() {
            self.heads.remove(first);
        }
        queue.members.remove(&(key, workload));
        queue.unannounced.remove(&workload);
        match queue.members.first() {
            Some(first) if queue.parked.is_none() => {
                self.heads.insert(first.clone(), class);
            }
            Some(_) => {}
            // An id of a class without members may come to stand for another class.
            None => {
                self.classes.remove(&class);
            }
        }
    }

    /// The workload was admitted, changed or is gone.
    pub(crate) fn forget_preemptor(&mut self, workload: WorkloadId) {
        self.sticky = self.sticky.filter(|id| *id != workload);
        self.preemptor = self.preemptor.filter(|id| *id != workload);
    }

    /// The workload to try next.
    pub(crate) fn head(&self) -> Option<WorkloadId> {
        self.heads.keys().next().map(|(_, workload)| *workload)
    }

    pub(crate) fn has_heads(&self) -> bool {
        !self.heads.is_empty()
    }

    /// Whether this member is in an active class.
    pub(crate) fn is_active(&self, class: ClassId) -> bool {
        self.classes.get(&class).is_some_and(|queue| queue.parked.is_none())
    }

    /// Parks a whole class. Returns the members that have not been told so with this reason.
    pub(crate) fn park(&mut self, class: ClassId, reason: PendingReason) -> BTreeSet<WorkloadId> {
        let queue = self.classes.entry(class).or_default();
        if let Some(first) = queue.members.first() {
            self.heads.remove(first);
        }
        queue.parked = Some(reason);
        if queue.announced == Some(reason) {
            return std::mem::take(&mut queue.unannounced);
        }
        queue.announced = Some(reason);
        queue.unannounced.clear();
        queue.members.iter().map(|(_, workload)| *workload).collect()
    }

    /// Makes every parked class active.
    pub(crate) fn wake_classes(&mut self) {
        let heads = &mut self.heads;
        self.classes.retain(|class, queue| {
            if queue.parked.take().is_some()
                && let Some(first) = queue.members.first()
            {
                heads.insert(first.clone(), *class);
            }
            !queue.members.is_empty()
        });
    }

    /// Makes one class active.
    pub(crate) fn wake_class(&mut self, class: ClassId) {
        if let Some(queue) = self.classes.get_mut(&class)
            && queue.parked.take().is_some()
            && let Some(first) = queue.members.first()
        {
            self.heads.insert(first.clone(), class);
        }
    }

    /// Workloads that will be tried.
    pub(crate) fn active(&self) -> u32 {
        let active: usize =
            self.classes.values().filter(|queue| queue.parked.is_none()).map(|queue| queue.members.len()).sum();
        u32::try_from(active).unwrap_or(u32::MAX)
    }
}
