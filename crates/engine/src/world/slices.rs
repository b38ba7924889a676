//! Workload slices, as in Kueue: a workload that grows is replaced by a larger one. Until the old slice is gone both hold quota, and the
//! replacement slice is charged only the difference. Once the old slice is gone, the replacement slice is charged its full usage.

use std::sync::Arc;

use crate::assign::assignment::Mode;
use crate::assign::{Request, assign_free};
use crate::explain::why::Why;
use crate::model::{PendingReason, PodSetAssignment, Replaced};
use crate::quota::balance::{Units, Usage, accumulate, in_usage, units};
use crate::world::World;
use crate::world::ids::{CellId, FlavorId, Id as _, NodeId, QueueId, ResourceId, WorkloadId};
use crate::world::store::{Held, Phase, Store, Workload};

/// Quota given for one resource: flavor and quantity.
type Given = (ResourceId, FlavorId, Units);

/// Quota that the old slice was given, with interned names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Older {
    pub(crate) uid: Arc<str>,
    /// Per pod set: name, and flavor and amount by resource.
    given: Vec<(String, Vec<Given>)>,
}

impl Older {
    /// Flavor and amount that a pod set was given of a resource; `None` where it was given none.
    pub(crate) fn given(&self, pod_set: &str, resource: ResourceId) -> Option<(FlavorId, Units)> {
        let (_, given) = self.given.iter().find(|(name, _)| name == pod_set)?;
        given.iter().find(|(known, ..)| *known == resource).map(|(_, flavor, amount)| (*flavor, *amount))
    }

    /// The request beyond the old slice. It is negative where the pod set shrinks, which leaves that amount to pod sets that grow.
    pub(crate) fn less(&self, pod_set: &str, resource: ResourceId, asked: Units) -> Units {
        self.given(pod_set, resource).map_or(asked, |(_, amount)| asked.saturating_sub(amount))
    }

    /// Reason why a flavor is not for the replacement slice: its pods run beside the existing ones, in the same flavor.
    pub(crate) fn mismatch(&self, store: &Store, pod_set: &str, resource: ResourceId, flavor: FlavorId) -> Option<Why> {
        let given = self.given(pod_set, resource).map(|(given, _)| given);
        if given == Some(flavor) {
            return None;
        }
        let (asked, given) = (store.flavor(flavor), given.map_or("", |given| store.flavor(given)));
        let text = format!("could not assign {asked} flavor since the original workload is assigned: {given}");
        Some(Why::Mismatch(text.into_boxed_str()))
    }
}

impl Store {
    /// The old slice with interned names.
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

    /// The old slice of a workload, as long as it holds quota of the same queue and no other workload has replaced it.
    fn replaced(&self, workload: &Workload, queue: QueueId) -> Option<(&Held, &Older)> {
        let older = self.classes[workload.class].replaces.as_deref().filter(|older| older.uid != workload.uid)?;
        let held = self.workload(self.by_uid.get(&older.uid).copied()?)?.held().filter(|held| held.queue == queue)?;
        let heir = self.heir(&older.uid).and_then(|heir| self.workload(heir));
        heir.is_none_or(|heir| heir.uid == workload.uid).then_some((held, older))
    }

    /// The replacement slice of a workload that holds quota. If there are several, the one that is charged a difference already, else the first
    /// that was given quota. Another choice would charge that one its full usage, without room for it.
    fn heir(&self, uid: &Arc<str>) -> Option<WorkloadId> {
        let first = (Arc::clone(uid), WorkloadId::at(0));
        let slices = self.slices.range(first..).take_while(|(known, _)| known == uid);
        let rank = |id: WorkloadId| {
            let workload = self.workload(id)?;
            let held = workload.held()?;
            Some((held.whole.is_none(), held.at, Arc::clone(&workload.uid), id))
        };
        slices.filter_map(|(_, id)| rank(*id)).min().map(|(.., id)| id)
    }

    /// The old slice, if an assignment may count its quota as held already: its full usage has to be the quota it was given.
    pub(crate) fn grows_from(&self, workload: &Workload, queue: QueueId) -> Option<&Older> {
        let (held, older) = self.replaced(workload, queue)?;
        let mut told = Usage::new();
        for (resource, flavor, amount) in older.given.iter().flat_map(|(_, given)| given) {
            accumulate(&mut told, self.find_cell(*flavor, *resource)?, *amount);
        }
        (told == *held.whole()).then_some(older)
    }

    /// The charge of a workload whose full usage is `whole`, if it replaces a slice; `None` when the charge is the full usage.
    fn charged(&self, workload: &Workload, queue: QueueId, whole: &Usage) -> Option<Usage> {
        let (old, _) = self.replaced(workload, queue)?;
        let more = |(cell, value): &(CellId, Units)| (*cell, value.saturating_sub(in_usage(old.whole(), *cell)).max(0));
        Some(whole.iter().map(more).collect())
    }

    /// Faults in the charges of replacement slices.
    pub(crate) fn mischarged(&self) -> Vec<String> {
        let heirs = self.slices.iter().filter_map(|(_, id)| self.workload(*id));
        let wrong = |workload: &&Workload| {
            workload.held().is_some_and(|held| {
                let charged = self.charged(workload, held.queue, held.whole());
                charged.as_ref().unwrap_or(held.whole()) != &held.usage
            })
        };
        heirs.filter(wrong).map(|workload| format!("{} is not charged what it has more", workload.uid)).collect()
    }

    /// Whether an old slice and its replacement slice both hold quota. That ends by itself, and neither may be preempted meanwhile.
    pub(crate) fn is_handing_over(&self, workload: &Workload) -> bool {
        if self.slices.is_empty() {
            return false;
        }
        let is_heir = workload.held().is_some_and(|held| held.whole.is_some());
        is_heir || self.heir(&workload.uid).is_some()
    }
}

impl World {
    /// Recomputes the charges of slices around a workload that came to hold quota, changed or went.
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
        let whole = held.whole().clone();
        let charged = self.store.charged(workload, queue, &whole);
        let (usage, whole) = match charged {
            Some(charged) => (charged, Some(Box::new(whole))),
            None => (whole, None),
        };
        let before = held.usage.clone();
        if before == usage && held.whole == whole {
            return;
        }
        let node = self.store.queues[queue].node;
        self.tree.remove(node, &before);
        self.tree.add(node, &usage);
        self.mark(queue);
        self.changed_local_queues.insert(local_queue);
        if let Some(totals) = self.store.local_queues[local_queue].totals_mut(queue) {
            totals.count(&before, admitted, true);
            totals.count(&usage, admitted, false);
        }
        if let Some(Phase::Held(held)) = self.store.workload_mut(id).map(|workload| &mut workload.phase) {
            held.usage = usage;
            held.whole = whole;
        }
    }

    /// Whether a workload with quota, given as `given`, could have `counts` pods in its pod sets with idle quota: free quota of the same flavors
    /// while no workload of its tree waits for quota. Costs the classes that wait in its tree.
    pub fn could_grow(&mut self, uid: &str, counts: &[i64], given: &[PodSetAssignment]) -> bool {
        let Some(id) = self.store.by_uid.get(uid).copied() else { return false };
        let older = self.store.older(&Replaced { uid: uid.to_owned(), pod_sets: given.to_vec() });
        let Some(workload) = self.store.workload(id) else { return false };
        let Some(held) = workload.held().filter(|held| !held.evicted && held.giving == 0) else { return false };
        let queue = &self.store.queues[held.queue];
        let root = self.tree.root(queue.node);
        if !queue.active || self.store.is_handing_over(workload) || self.is_waited_for(root) {
            return false;
        }
        let request = Request::of(&self.store, &self.options, workload, held.queue);
        let request = Request { counts: Some(counts), replaced: Some(&older), ..request };
        assign_free(&self.store, &mut self.tree, &request).mode() == Mode::Fit
    }

    /// Whether a workload in a tree waits for quota; pending replacement slices do not count.
    fn is_waited_for(&self, root: NodeId) -> bool {
        let waits = |reason: Option<PendingReason>| {
            matches!(reason, None | Some(PendingReason::WaitingForQuota | PendingReason::WaitingForPreemptedWorkloads))
        };
        let queues = self.tree.nodes[root].queues.iter().map(|queue| &self.store.queues[*queue]);
        let mut classes = queues.filter(|queue| queue.active).flat_map(|queue| &queue.pending.classes);
        classes.any(|(id, class)| class.len() > 0 && self.store.classes[*id].replaces.is_none() && waits(class.parked))
    }
}
