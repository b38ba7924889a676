//! Workload slices, as in Kueue: a workload that grows is replaced by a larger one. Until the old slice is gone, both slices hold quota, and the replacement
//! slice is charged only the difference. When the old slice is gone, the replacement slice is charged its full usage.

pub(crate) mod older;

use std::sync::Arc;

use crate::model::{PodSetAssignment, Replaced};
use crate::quota::balance::{Units, Usage, accumulate, in_usage, units};
use crate::world::World;
use crate::world::ids::{CellId, Id as _, QueueId, WorkloadId};
use crate::world::slices::older::Older;
use crate::world::store::{Held, Phase, Store, Workload};

impl Store {
    /// The quota of an old slice, with interned names.
    pub(crate) fn older(&mut self, replaced: &Replaced) -> Older {
        let mut given = Vec::with_capacity(replaced.pod_sets.len());
        for PodSetAssignment { name, flavors, usage, .. } in &replaced.pod_sets {
            let one = |(resource, flavor): (&String, &String)| {
                let amount = usage.get(resource).copied().map_or(0, units).max(0);
                (self.resources.intern(resource), self.flavor_names.intern(flavor), amount)
            };
            given.push((name.clone(), flavors.iter().map(one).collect()));
        }
        Older { uid: Arc::from(replaced.uid.as_str()), given }
    }

    /// The old slice of a workload, as long as the old slice holds quota of the same queue and no other workload has replaced it.
    fn replaced(&self, workload: &Workload, queue: QueueId) -> Option<(&Held, &Older)> {
        let older = self.classes[workload.class].replaces.as_deref().filter(|older| older.uid != workload.uid)?;
        let held = self.workload(self.by_uid.get(&older.uid).copied()?)?.held().filter(|held| held.queue == queue)?;
        let replacement = self.replacement(&older.uid).and_then(|replacement| self.workload(replacement));
        replacement.is_none_or(|replacement| replacement.uid == workload.uid).then_some((held, older))
    }

    /// The replacement slice of a workload, if the replacement holds quota. If there are several replacement slices, the result is the slice that is charged a
    /// difference already, or else the slice that was given quota first. If another replacement slice were chosen, the slice that is charged a difference would
    /// be charged its full usage, for which there may be no room.
    fn replacement(&self, uid: &Arc<str>) -> Option<WorkloadId> {
        let first = (Arc::clone(uid), WorkloadId::at(0));
        let slices = self.slices.range(first..).take_while(|(known, _)| known == uid);
        let rank = |id: WorkloadId| {
            let workload = self.workload(id)?;
            let held = workload.held()?;
            Some((held.full_usage.is_none(), held.at, Arc::clone(&workload.uid), id))
        };
        slices.filter_map(|(_, id)| rank(*id)).min().map(|(.., id)| id)
    }

    /// The old slice, if an assignment may count the old slice's quota as held already: the full usage of the old slice must be the quota that it was given.
    pub(crate) fn grows_from(&self, workload: &Workload, queue: QueueId) -> Option<&Older> {
        let (held, older) = self.replaced(workload, queue)?;
        let mut known_usage = Usage::new();
        for (resource, flavor, amount) in older.given.iter().flat_map(|(_, given)| given) {
            accumulate(&mut known_usage, self.find_cell(*flavor, *resource)?, *amount);
        }
        (known_usage == *held.full_usage()).then_some(older)
    }

    /// The charge of a workload whose full usage is `full_usage`, if it replaces a slice; `None` if the charge is the full usage.
    fn charged(&self, workload: &Workload, queue: QueueId, full_usage: &Usage) -> Option<Usage> {
        let (old, _) = self.replaced(workload, queue)?;
        let more =
            |(cell, value): &(CellId, Units)| (*cell, value.saturating_sub(in_usage(old.full_usage(), *cell)).max(0));
        Some(full_usage.iter().map(more).collect())
    }

    /// Faults in the charges of replacement slices.
    pub(crate) fn mischarged(&self) -> Vec<String> {
        let replacements = self.slices.iter().filter_map(|(_, id)| self.workload(*id));
        let wrong = |workload: &&Workload| {
            workload.held().is_some_and(|held| {
                let charged = self.charged(workload, held.queue, held.full_usage());
                charged.as_ref().unwrap_or(held.full_usage()) != &held.usage
            })
        };
        replacements.filter(wrong).map(|workload| format!("{} is not charged what it has more", workload.uid)).collect()
    }

    /// Whether an old slice and its replacement slice both hold quota. The state in which an old slice and its replacement slice both hold quota ends by
    /// itself, and meanwhile neither slice may be preempted.
    pub(crate) fn is_handing_over(&self, workload: &Workload) -> bool {
        if self.slices.is_empty() {
            return false;
        }
        let is_replacement = workload.held().is_some_and(|held| held.full_usage.is_some());
        is_replacement || self.replacement(&workload.uid).is_some()
    }
}

impl World {
    /// Recomputes the charges of slices that are related to a workload that now holds quota, changed or is gone.
    pub(crate) fn recharge_around(&mut self, id: WorkloadId) {
        if self.store.slices.is_empty() {
            return;
        }
        let Some(workload) = self.store.workload(id) else { return };
        let older = self.store.classes[workload.class].replaces.as_deref().map(|older| Arc::clone(&older.uid));
        let about = [Some(Arc::clone(&workload.uid)), older];
        let slices = self.store.slices.iter().filter(|(uid, _)| about.iter().flatten().any(|known| known == uid));
        for slice in slices.map(|(_, slice)| *slice).collect::<Vec<_>>() {
            self.recharge(slice);
        }
    }

    fn recharge(&mut self, id: WorkloadId) {
        let Some(workload) = self.store.workload(id) else { return };
        let (local_queue, Some(held)) = (workload.local_queue, workload.held()) else { return };
        let (queue, admitted) = (held.queue, held.admitted);
        let full_usage = held.full_usage().clone();
        let charged = self.store.charged(workload, queue, &full_usage);
        let (usage, full_usage) = match charged {
            Some(charged) => (charged, Some(Box::new(full_usage))),
            None => (full_usage, None),
        };
        let before = held.usage.clone();
        if before == usage && held.full_usage == full_usage {
            return;
        }
        let node = self.store.queues[queue].node;
        self.tree.remove(node, &before);
        self.tree.add(node, &usage);
        self.mark(queue);
        self.changed_local_queues.insert(local_queue);
        if let Some(totals) = self.store.local_queues[local_queue].totals_mut(queue) {
            totals.subtract(&before, admitted);
            totals.add(&usage, admitted);
        }
        if let Some(Phase::Held(held)) = self.store.workload_mut(id).map(|workload| &mut workload.phase) {
            held.usage = usage;
            held.full_usage = full_usage;
        }
    }
}
