//! State of the world except the cohort tree: flavors, queues, workloads and their classes of equals.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};

pub(crate) use crate::assign::progress::{Progress, UNSURE};
use crate::assign::stock::StockOuts;
use crate::model::{
    Blocked, ClusterQueueSpec, FlavorResource, FlavorSpec, JobLimit, LocalQueueSpec, Millis, PendingReason, PodSetSpec,
    Preempts, Strategy, Tier, WorkloadSpec,
};
use crate::preempt::eviction_history::EvictionHistory;
use crate::queue::afs::Ledger;
use crate::queue::pending::Pending;
use crate::queue::tie::Tie;
use crate::world::beyond::charge::Beyond;
pub(crate) use crate::world::held::{Held, Holders, Rank, Totals};
use crate::world::ids::{
    Arena, CellId, ClassId, FlavorId, Interner, LocalQueueId, NodeId, QueueId, ResourceId, WorkloadId,
};
pub(crate) use crate::world::podset::PodSet;
use crate::world::podset::Shapes;
use crate::world::slices::older::Older;

const BYPASSED: &str = "Bypassed scheduling evaluation because an equivalent workload recently failed";

/// A class of equals: workloads that nothing distinguishes for scheduling.
#[derive(Debug)]
pub(crate) struct Class {
    /// Key of `Store::class_ids`.
    pub(crate) digest: u64,
    pub(crate) priority: i64,
    pub(crate) pod_sets: Arc<[PodSet]>,
    pub(crate) members: u32,
    /// The only flavors that members of the class of equals may get.
    pub(crate) allowed: Option<Box<[FlavorId]>>,
    /// The tiers that members of the class of equals accept, the best tier first.
    pub(crate) tiers: Option<Box<[Tier]>>,
    /// Preemption scope of the members of the class of equals.
    pub(crate) preempts: Preempts,
    /// True if the pods of the members run already, charged as usage beyond quota.
    pub(crate) runs: bool,
    /// The old slice that the only member of the class of equals replaces.
    pub(crate) replaces: Option<Box<Older>>,
    /// Next class of equals whose digest is equal to the digest of this class.
    next: Option<ClassId>,
}

fn digest(priority: i64, pod_sets: &[PodSetSpec]) -> u64 {
    let mut hasher = FxHasher::default();
    (priority, pod_sets).hash(&mut hasher);
    hasher.finish()
}

/// The place where a pending workload waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The workload is in no queue, because its LocalQueue or ClusterQueue is missing or stopped.
    Nowhere,
    /// The workload is in its class of equals, which is active or parked.
    Class,
    /// The workload is parked apart from its class of equals, until its cohort tree is woken.
    Solo,
    /// The workload is parked until its namespace or queue changes.
    Mismatched,
    /// Back-off.
    Until(Millis),
    /// Blocked from outside.
    Blocked,
    /// The workload was taken from its queue for the current cycle.
    InFlight,
}

/// State of a workload.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    Pending(Place),
    Held(Box<Held>),
}

/// A workload.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) uid: Arc<str>,
    pub(crate) tie: Tie,
    pub(crate) local_queue: LocalQueueId,
    pub(crate) priority: i64,
    pub(crate) queued_at: Millis,
    /// True if the workload goes before workloads of equal priority in its queue.
    pub(crate) at_front: bool,
    pub(crate) points_per_hour: u32,
    pub(crate) waits_since: Millis,
    pub(crate) revision: u64,
    pub(crate) not_before: Option<Millis>,
    pub(crate) blocked: Option<Blocked>,
    /// True if an admission check of the workload has the state Retry or Rejected.
    pub(crate) checks_failed: bool,
    /// True if a preemption gate of the workload is closed.
    pub(crate) preemption_gated: bool,
    /// Reason why the requests of the workload are out of bounds.
    pub(crate) refused: Option<Box<str>>,
    pub(crate) class: ClassId,
    pub(crate) phase: Phase,
    pub(crate) progress: Option<Box<Progress>>,
    pub(crate) verdict: Option<(PendingReason, Arc<str>)>,
}

impl Workload {
    pub(crate) fn rank(&self, id: WorkloadId, held: &Held) -> Rank {
        Rank::new(self.priority, held.loses_since(), &self.tie, id)
    }

    /// Whether the figures of the workload's queue count the workload while it is pending.
    pub(crate) fn is_listed(&self) -> bool {
        self.blocked != Some(Blocked::OutOfQueue)
    }

    pub(crate) fn held(&self) -> Option<&Held> {
        match &self.phase {
            Phase::Held(held) => Some(held),
            Phase::Pending(_) => None,
        }
    }
}

/// A resource group with interned names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) covered: Vec<ResourceId>,
    pub(crate) flavors: Vec<FlavorId>,
}

/// A ClusterQueue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) name: Arc<str>,
    pub(crate) node: NodeId,
    pub(crate) spec: Option<ClusterQueueSpec>,
    pub(crate) groups: Vec<Group>,
    /// True if heads may be taken from the queue.
    pub(crate) active: bool,
    pub(crate) pending: Pending,
    pub(crate) held: Holders,
    pub(crate) local_queues: BTreeSet<LocalQueueId>,
}

impl Queue {
    pub(crate) fn group_of(&self, resource: ResourceId) -> Option<&Group> {
        self.groups.iter().find(|group| group.covered.contains(&resource))
    }

    /// The limit of the number of workloads with quota, if the queue has reached this limit.
    pub(crate) fn reached_limit(&self) -> Option<&JobLimit> {
        let limit = self.spec.as_ref()?.max_jobs.as_ref()?;
        (self.held.len() >= usize::try_from(limit.most).unwrap_or(usize::MAX)).then_some(limit)
    }

    /// Largest number of scans over flavors for a workload with `pod_sets` pod sets: the number of combinations of flavors, at most 256.
    pub(crate) fn most_scans(&self, pod_sets: usize) -> usize {
        const REASON: usize = 256;
        let combinations = self.groups.iter().map(|group| group.flavors.len().max(1));
        let of_all = combinations.flat_map(|count| std::iter::repeat_n(count, pod_sets));
        of_all.fold(1, |most, count| most.saturating_mul(count).min(REASON))
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.strategy == Strategy::StrictFifo)
    }
}

/// A LocalQueue.
#[derive(Debug, Default)]
pub(crate) struct LocalQueue {
    pub(crate) spec: Option<LocalQueueSpec>,
    pub(crate) queue: Option<QueueId>,
    /// True if the namespace of the LocalQueue does not exist; false while no namespace is known at all.
    pub(crate) lacks_namespace: bool,
    pub(crate) pending: BTreeSet<WorkloadId>,
    held: u32,
    /// Quota that workloads of the LocalQueue hold, by ClusterQueue. The list `totals` of a LocalQueue has several entries after the LocalQueue has changed its
    /// ClusterQueue.
    totals: Vec<(QueueId, Totals)>,
    pub(crate) ledger: Ledger,
}

impl LocalQueue {
    /// Quota that workloads of the LocalQueue hold of the ClusterQueue that the LocalQueue names.
    pub(crate) fn own_totals(&self) -> Option<&Totals> {
        let own = self.queue?;
        self.totals.iter().find(|(queue, _)| *queue == own).map(|(_, totals)| totals)
    }

    pub(crate) fn totals_mut(&mut self, queue: QueueId) -> Option<&mut Totals> {
        self.totals.iter_mut().find(|(known, _)| *known == queue).map(|(_, totals)| totals)
    }

    /// Adds the quota that a workload holds to the LocalQueue's totals.
    pub(crate) fn add(&mut self, held: &Held) {
        self.held = self.held.saturating_add(1);
        if self.totals_mut(held.queue).is_none() {
            self.totals.retain(|(_, totals)| totals.reserving > 0);
            self.totals.reserve_exact(1);
            self.totals.push((held.queue, Totals::default()));
        }
        let Some(totals) = self.totals_mut(held.queue) else { return };
        totals.reserving = totals.reserving.saturating_add(1);
        totals.add(&held.usage, held.admitted);
    }

    /// Subtracts the quota that a workload held from the LocalQueue's totals.
    pub(crate) fn remove(&mut self, held: &Held) {
        self.held = self.held.saturating_sub(1);
        let Some(totals) = self.totals_mut(held.queue) else { return };
        totals.reserving = totals.reserving.saturating_sub(1);
        totals.subtract(&held.usage, held.admitted);
        if totals.reserving == 0 {
            // The next workload holds quota of the same queue in most cases, so the entry of its totals stays.
            totals.usage.clear();
            totals.admitted.clear();
        }
    }
}

/// The state of the world except the cohort tree.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) flavor_names: Interner<FlavorId, String>,
    pub(crate) flavors: FxHashMap<FlavorId, FlavorSpec>,
    pub(crate) eviction_history: EvictionHistory,
    pub(crate) stock_outs: StockOuts,
    pub(crate) resources: Interner<ResourceId, String>,
    pub(crate) cells: Interner<CellId, (FlavorId, ResourceId)>,
    pub(crate) queues: Arena<QueueId, Queue>,
    pub(crate) queue_ids: FxHashMap<String, QueueId>,
    pub(crate) queue_of_node: FxHashMap<NodeId, QueueId>,
    pub(crate) local_queue_names: Interner<LocalQueueId, (String, String)>,
    pub(crate) local_queues: Arena<LocalQueueId, LocalQueue>,
    pub(crate) namespaces: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) workloads: Arena<WorkloadId, Option<Workload>>,
    pub(crate) free: Vec<WorkloadId>,
    pub(crate) by_uid: FxHashMap<Arc<str>, WorkloadId>,
    /// Replacement slices, by the uid of the old slice.
    pub(crate) slices: BTreeSet<(Arc<str>, WorkloadId)>,
    pub(crate) classes: Arena<ClassId, Class>,
    /// First class of equals with each digest; in most cases the only class with this digest.
    pub(crate) class_ids: FxHashMap<u64, ClassId>,
    pub(crate) free_classes: Vec<ClassId>,
    shapes: Shapes,
    pub(crate) pods: ResourceId,
    /// Usage beyond quota, by the uid of the workload or job that is responsible for it.
    pub(crate) beyond: BTreeMap<Arc<str>, Beyond>,
    /// The time of the last plan.
    pub(crate) now: Millis,
    /// Number of ClusterQueues with bounds of preemption.
    pub(crate) guarded: usize,
    /// Kueue's message for workloads that are equal to a workload without room, used if no better message is known.
    pub(crate) bypassed: Arc<str>,
}

impl Store {
    pub(crate) fn new() -> Self {
        let mut resources = Interner::new();
        let pods = resources.intern(&"pods".to_owned());
        Self {
            flavor_names: Interner::new(),
            flavors: FxHashMap::default(),
            eviction_history: EvictionHistory::default(),
            stock_outs: StockOuts::default(),
            resources,
            cells: Interner::new(),
            queues: Arena::new(),
            queue_ids: FxHashMap::default(),
            queue_of_node: FxHashMap::default(),
            local_queue_names: Interner::new(),
            local_queues: Arena::new(),
            namespaces: BTreeMap::new(),
            workloads: Arena::new(),
            free: Vec::new(),
            by_uid: FxHashMap::default(),
            slices: BTreeSet::new(),
            classes: Arena::new(),
            class_ids: FxHashMap::default(),
            free_classes: Vec::new(),
            shapes: Shapes::default(),
            pods,
            beyond: BTreeMap::new(),
            now: Millis::default(),
            guarded: 0,
            bypassed: Arc::from(BYPASSED),
        }
    }

    pub(crate) fn resource(&self, id: ResourceId) -> &str {
        self.resources.key(id)
    }

    pub(crate) fn flavor(&self, id: FlavorId) -> &str {
        self.flavor_names.key(id)
    }

    /// The cell of a flavor and resource, if some quota or usage already names both.
    pub(crate) fn find_cell(&self, flavor: FlavorId, resource: ResourceId) -> Option<CellId> {
        self.cells.get(&(flavor, resource))
    }

    /// The cell of a flavor and resource by their names, as [`Store::find_cell`].
    pub(crate) fn cell_called(&self, flavor: &str, resource: &str) -> Option<CellId> {
        self.find_cell(self.flavor_names.get(&flavor.to_owned())?, self.resources.get(&resource.to_owned())?)
    }

    pub(crate) fn named(&self, cell: CellId) -> FlavorResource {
        let (flavor, resource) = *self.cells.key(cell);
        FlavorResource { flavor: self.flavor(flavor).to_owned(), resource: self.resource(resource).to_owned() }
    }

    pub(crate) fn intern_cell(&mut self, flavor: &str, resource: &str) -> CellId {
        let flavor = self.flavor_names.intern(&flavor.to_owned());
        let resource = self.resources.intern(&resource.to_owned());
        self.cells.intern(&(flavor, resource))
    }

    pub(crate) fn local_queue_id(&mut self, namespace: &str, name: &str) -> LocalQueueId {
        let key = (namespace.to_owned(), name.to_owned());
        if let Some(id) = self.local_queue_names.get(&key) {
            return id;
        }
        let id = self.local_queue_names.intern(&key);
        while self.local_queues.len() <= crate::world::ids::Id::index(id) {
            self.local_queues.push(LocalQueue::default());
        }
        self.local_queues[id].lacks_namespace = self.lacks(namespace);
        id
    }

    pub(crate) fn workload(&self, id: WorkloadId) -> Option<&Workload> {
        self.workloads[id].as_ref()
    }

    pub(crate) fn workload_mut(&mut self, id: WorkloadId) -> Option<&mut Workload> {
        self.workloads[id].as_mut()
    }

    /// Records that a workload with quota is evicted, or is no longer evicted; returns true if that changed.
    pub(crate) fn set_evicted(&mut self, id: WorkloadId, evicted: bool) -> bool {
        let Some(workload) = self.workloads[id].as_mut() else { return false };
        let Phase::Held(held) = &mut workload.phase else { return false };
        if held.evicted == evicted {
            return false;
        }
        held.evicted = evicted;
        let Some(held) = workload.held() else { return false };
        let rank = workload.rank(id, held);
        let holders = &mut self.queues[held.queue].held;
        holders.remove(&rank, !evicted);
        holders.insert(rank, evicted);
        true
    }

    /// Records the preemptor of an evicted workload.
    pub(crate) fn set_evicted_for(&mut self, id: WorkloadId, preemptor: Option<&Arc<str>>) {
        if let Some(Phase::Held(held)) = self.workloads[id].as_mut().map(|workload| &mut workload.phase) {
            held.evicted_for = preemptor.filter(|_| held.evicted).cloned();
        }
    }

    /// Records the number of surplus pods that a workload gives up; returns true if the number is higher than before.
    pub(crate) fn set_giving(&mut self, id: WorkloadId, pods: i64) -> bool {
        let Some(Phase::Held(held)) = self.workloads[id].as_mut().map(|workload| &mut workload.phase) else {
            return false;
        };
        let is_news = pods > held.giving;
        held.giving = held.giving.max(pods);
        is_news
    }

    /// Adds a workload to the list of replacement slices, or removes it.
    pub(crate) fn list_slice(&mut self, id: WorkloadId, listed: bool) {
        let class = self.workloads[id].as_ref().map(|workload| workload.class);
        let Some(older) = class.and_then(|class| self.classes[class].replaces.as_deref()) else { return };
        let entry = (Arc::clone(&older.uid), id);
        if listed {
            self.slices.insert(entry);
        } else {
            self.slices.remove(&entry);
        }
    }

    pub(crate) fn insert_workload(&mut self, workload: Workload) -> WorkloadId {
        let uid = Arc::clone(&workload.uid);
        let id = match self.free.pop() {
            Some(id) => {
                self.workloads[id] = Some(workload);
                id
            }
            None => self.workloads.push(Some(workload)),
        };
        self.by_uid.insert(uid, id);
        self.list_slice(id, true);
        id
    }

    pub(crate) fn delete_workload(&mut self, id: WorkloadId) {
        self.list_slice(id, false);
        if let Some(workload) = self.workloads[id].take() {
            self.by_uid.remove(&workload.uid);
            self.release_class(workload.class);
            self.free.push(id);
            self.release_local_queue(workload.local_queue);
        }
    }

    /// Forgets a LocalQueue that does not exist and that no workload names. Memory would grow if LocalQueues were kept, because namespaces come and go and
    /// workloads may name any queue.
    pub(crate) fn release_local_queue(&mut self, id: LocalQueueId) {
        let local_queue = &mut self.local_queues[id];
        if local_queue.spec.is_none() && local_queue.pending.is_empty() && local_queue.held == 0 {
            *local_queue = LocalQueue::default();
            self.local_queue_names.release(id);
        }
    }

    /// The class of equals of a workload, with its number of members increased by one.
    pub(crate) fn class(&mut self, spec: &WorkloadSpec) -> ClassId {
        let WorkloadSpec { priority, ref pod_sets, .. } = *spec;
        let names = spec.allowed_flavors.as_deref();
        let allowed: Option<Box<[FlavorId]>> =
            names.map(|names| names.iter().map(|name| self.flavor_names.intern(name)).collect());
        let replaces = spec.replaces.as_ref().map(|replaced| Box::new(self.older(replaced)));
        let digest = digest(priority, pod_sets);
        let is_same = |id: &ClassId| {
            let class = &self.classes[*id];
            class.priority == priority
                && class.allowed == allowed
                && class.tiers.as_deref() == spec.tiers.as_deref()
                && class.preempts == spec.preempts
                && class.runs == spec.runs
                && class.replaces == replaces
                && class.pod_sets.len() == pod_sets.len()
                && class.pod_sets.iter().zip(pod_sets).all(|(known, spec)| known.is_as(spec, &self.resources))
        };
        let first = self.class_ids.get(&digest).copied();
        if let Some(id) = std::iter::successors(first, |id| self.classes[*id].next).find(is_same) {
            self.classes[id].members = self.classes[id].members.saturating_add(1);
            return id;
        }
        let pod_sets = pod_sets.iter().map(|spec| self.shapes.pod_set(spec, &mut self.resources)).collect();
        let tiers = spec.tiers.as_deref().map(Box::from);
        let class = Class {
            digest,
            priority,
            pod_sets,
            members: 1,
            allowed,
            tiers,
            preempts: spec.preempts,
            runs: spec.runs,
            replaces,
            next: first,
        };
        let id = match self.free_classes.pop() {
            Some(id) => {
                self.classes[id] = class;
                id
            }
            None => self.classes.push(class),
        };
        self.class_ids.insert(digest, id);
        id
    }

    pub(crate) fn release_class(&mut self, id: ClassId) {
        let class = &mut self.classes[id];
        class.members = class.members.saturating_sub(1);
        if class.members == 0 {
            let (digest, next) = (class.digest, class.next.take());
            self.shapes.release(&std::mem::replace(&mut class.pod_sets, Arc::new([])));
            class.replaces = None;
            let before = std::iter::successors(self.class_ids.get(&digest).copied(), |id| self.classes[*id].next)
                .find(|known| self.classes[*known].next == Some(id));
            if let Some(before) = before {
                self.classes[before].next = next;
            } else if let Some(next) = next {
                self.class_ids.insert(digest, next);
            } else {
                self.class_ids.remove(&digest);
            }
            self.free_classes.push(id);
        }
    }
}

#[cfg(test)]
mod tests;
