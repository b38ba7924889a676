//! The world: the type `World` takes in deltas and keeps the accounting of quota. Cycles are in the module `cycle`, queries in `explain/figures.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::{ClusterQueueSpec, CohortSpec, Delta, LocalQueueSpec, Millis, Refusal, ResourceGroup};
use crate::options::Options;
use crate::options::profile::Departure;
use crate::queue::pending::Pending;
use crate::queue::tie::TieRule;
use crate::quota::balance::{INF, units};
use crate::quota::tree::{OwnQuota, Tree};
use crate::world::ids::{LocalQueueId, Marks, NodeId, QueueId, WorkloadId};
use crate::world::store::{Group, Holders, Queue, Store};

/// Names of objects whose figures or readiness changed, each name once, in no particular order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// ClusterQueues.
    pub cluster_queues: Vec<Arc<str>>,
    /// Changed LocalQueues, each with namespace and name.
    pub local_queues: Vec<(String, String)>,
    /// Cohorts.
    pub cohorts: Vec<String>,
}

/// The long-lived model of the cluster on which decisions are based. A `World` is changed in place and cannot be copied.
#[derive(Debug)]
pub struct World {
    pub(crate) options: Options,
    /// The rule by which workloads of equal priority and time are ordered.
    pub(crate) ties: TieRule,
    pub(crate) store: Store,
    pub(crate) tree: Tree,
    pub(crate) cohorts: BTreeMap<String, CohortSpec>,
    /// Roots of cohort trees in which a cycle may find something to do.
    pub(crate) live: BTreeSet<NodeId>,
    /// Roots of cohort trees with an admission after the last check of the parked classes of equals that other admissions may let fit.
    pub(crate) stirred: BTreeSet<NodeId>,
    /// Workloads in back-off.
    pub(crate) timers: BTreeSet<(Millis, WorkloadId)>,
    /// Workloads whose reason to wait will be in the verdicts of the next plan.
    pub(crate) notices: BTreeSet<WorkloadId>,
    pub(crate) cycle: u64,
    pub(crate) epoch: u64,
    /// Time of the last update of the ledgers of admission fair sharing.
    pub(crate) settled_at: Option<Millis>,
    /// True if a ledger has usage to update when the sampling interval is over.
    pub(crate) unsettled: bool,
    /// Admitted workloads whose penalty becomes usage in the next plan, by LocalQueue.
    pub(crate) admitted_lately: BTreeSet<(LocalQueueId, WorkloadId)>,
    /// Number of sets of victims that the second check of the preemption rules refused.
    pub(crate) refused_victims: u64,
    pub(crate) changed_queues: Marks<QueueId>,
    pub(crate) changed_local_queues: Marks<LocalQueueId>,
    pub(crate) changed_cohorts: Marks<NodeId>,
}

impl Default for World {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl World {
    /// An empty world. Cost: constant.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            ties: TieRule::new(options.profile.has(Departure::EqualsByLot)),
            options,
            store: Store::new(),
            tree: Tree::new(),
            cohorts: BTreeMap::new(),
            live: BTreeSet::new(),
            stirred: BTreeSet::new(),
            timers: BTreeSet::new(),
            notices: BTreeSet::new(),
            cycle: 0,
            epoch: 0,
            settled_at: None,
            unsettled: false,
            admitted_lately: BTreeSet::new(),
            refused_victims: 0,
            changed_queues: Marks::new(),
            changed_local_queues: Marks::new(),
            changed_cohorts: Marks::new(),
        }
    }

    /// Takes in one change.
    ///
    /// A planned admission keeps its quota while deltas still show the workload as pending under the `revision` of the plan. A planned eviction is kept while
    /// deltas still show the victim as not evicted. A delta `Delta::Forget` cancels a planned admission or eviction of the workload that it names,
    /// and `Delta::Spare` cancels a planned eviction alone.
    ///
    /// Cost of `apply`: for a workload, its pod sets and resources, the depth of its cohort tree and the number of replacement slices, and under admission fair
    /// sharing the number of LocalQueues of its ClusterQueue; for usage beyond quota, its cells and the depth of the cohort tree; for a LocalQueue, its pending
    /// workloads; for a flavor or the end of a stock-out, all ClusterQueues with their flavors; for a ClusterQueue, the nodes and cells of the cohort trees
    /// that it leaves and joins, and its pending workloads; for a cohort, all cohorts and ClusterQueues, and the nodes and cells of the trees that change; for
    /// a namespace, all LocalQueues, and the pending workloads of its own LocalQueues; for a ledger, its resources; for a tie salt, all workloads. A
    /// ClusterQueue that becomes active or inactive adds the nodes of its tree and its pending workloads. A delta that repeats what is known of an object other
    /// than a workload costs the comparison.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the delta names an unknown workload; a refused delta changes nothing.
    pub fn apply(&mut self, delta: Delta) -> Result<(), Refusal> {
        match delta {
            Delta::Flavor(spec) => {
                let id = self.store.flavor_names.intern(&spec.name);
                if self.store.flavors.get(&id) != Some(&spec) {
                    self.store.flavors.insert(id, spec);
                    self.flavor_changed(id);
                }
            }
            Delta::RemoveFlavor(name) => {
                if let Some(id) = self.store.flavor_names.get(&name)
                    && self.store.flavors.remove(&id).is_some()
                {
                    self.flavor_changed(id);
                }
            }
            Delta::Cohort(spec) => self.set_cohort(&spec.name.clone(), Some(spec)),
            Delta::RemoveCohort(name) => self.set_cohort(&name, None),
            Delta::ClusterQueue(spec) => self.set_cluster_queue(spec),
            Delta::RemoveClusterQueue(name) => self.remove_cluster_queue(&name),
            Delta::LocalQueue(spec) => {
                let id = self.store.local_queue_id(&spec.namespace, &spec.name);
                if self.store.local_queues[id].spec.as_ref() != Some(&spec) {
                    self.set_local_queue(id, Some(spec));
                }
            }
            Delta::Ledger(namespace, name, figures) => self.set_ledger(&namespace, &name, &figures),
            Delta::RemoveLocalQueue(namespace, name) => {
                let id = self.store.local_queue_id(&namespace, &name);
                self.set_local_queue(id, None);
            }
            Delta::Namespace(name, labels) => self.set_namespace(name, labels),
            Delta::RemoveNamespace(name) => self.remove_namespace(&name),
            Delta::TieSalt(text) => self.set_tie_salt(&text),
            Delta::Workload(spec) => self.set_workload(spec),
            Delta::Beyond(spec) => self.set_beyond(&spec),
            Delta::StockOut(out) => self.set_stock_out(out),
            Delta::InStock(flavor, shape) => self.end_stock_out(&flavor, &shape),
            Delta::RemoveWorkload(uid) => {
                let id = self.known(&uid)?;
                self.clear_eviction_history_of(id);
                self.drop_penalty(id);
                self.detach(id);
                self.notices.remove(&id);
                self.store.delete_workload(id);
            }
            Delta::Forget(uid) => self.forget(self.known(&uid)?),
            Delta::Spare(uid) => self.spare(self.known(&uid)?),
        }
        Ok(())
    }

    fn known(&self, uid: &str) -> Result<WorkloadId, Refusal> {
        self.store.by_uid.get(uid).copied().ok_or_else(|| Refusal::UnknownWorkload(uid.to_owned()))
    }

    /// The id of the ClusterQueue with the name `name`; a ClusterQueue has an id as soon as an object names it.
    pub(crate) fn queue_id(&mut self, name: &str) -> QueueId {
        if let Some(id) = self.store.queue_ids.get(name) {
            return *id;
        }
        let node = self.tree.add_node(name, true);
        let id = self.store.queues.push(Queue {
            name: Arc::from(name),
            node,
            spec: None,
            groups: Vec::new(),
            active: false,
            pending: Pending::default(),
            held: Holders::default(),
            local_queues: BTreeSet::new(),
        });
        self.store.queue_ids.insert(name.to_owned(), id);
        self.store.queue_of_node.insert(node, id);
        id
    }

    /// Lets parked workloads of the whole cohort tree be tried again.
    pub(crate) fn wake(&mut self, node: NodeId) {
        let root = self.tree.root(node);
        self.epoch = self.epoch.saturating_add(1);
        self.tree.nodes[root].epoch = self.epoch;
        self.live.insert(root);
    }

    pub(crate) fn mark(&mut self, queue: QueueId) {
        self.changed_queues.insert(queue);
        let node = self.store.queues[queue].node;
        self.changed_cohorts.extend(self.tree.ancestors(node));
    }

    fn own_quota(&mut self, groups: &[ResourceGroup]) -> (Vec<OwnQuota>, Vec<Group>) {
        let mut quotas = Vec::new();
        let mut interned = Vec::new();
        for group in groups {
            for flavor in &group.flavors {
                for (resource, quota) in group.covered.iter().zip(&flavor.quotas) {
                    let cell = self.store.intern_cell(&flavor.flavor, resource);
                    quotas.push((
                        cell,
                        units(quota.nominal),
                        quota.borrowing_limit.map_or(INF, units),
                        quota.lending_limit.map_or(INF, units),
                    ));
                }
            }
            interned.push(Group {
                covered: group.covered.iter().map(|r| self.store.resources.intern(r)).collect(),
                flavors: group.flavors.iter().map(|f| self.store.flavor_names.intern(&f.flavor)).collect(),
            });
        }
        (quotas, interned)
    }

    /// Links a node below a cohort, and rebuilds and wakes the cohort trees that the node left and joined.
    fn link(&mut self, node: NodeId, parent: Option<NodeId>, quotas: &[OwnQuota]) {
        self.clear_eviction_history();
        let old_root = self.tree.root(node);
        self.tree.set_quota(node, quotas);
        self.tree.set_parent(node, parent);
        if self.tree.root(node) != old_root && old_root != node {
            self.rebuild(old_root);
            self.wake(old_root);
        }
        self.rebuild(node);
        self.wake(node);
    }

    fn rebuild(&mut self, around: NodeId) {
        self.tree.rebuild(around);
        let root = self.tree.root(around);
        let mut queues = Vec::new();
        for node in self.tree.bottom_up(root) {
            if self.tree.nodes[node].is_queue {
                queues.extend(self.store.queue_of_node.get(&node).copied());
            } else {
                self.tree.nodes[node].lendable = crate::quota::share::lendable(&self.store, &self.tree, node);
            }
        }
        self.tree.nodes[root].queues = queues.into();
    }

    fn set_cluster_queue(&mut self, spec: ClusterQueueSpec) {
        let id = self.queue_id(&spec.name);
        let old = self.store.queues[id].spec.as_ref();
        if old == Some(&spec) {
            return;
        }
        // Pending workloads are in the lanes that the old spec requires (one for each LocalQueue, or one for all), so they are taken out before the spec
        // changes.
        let moves = old.is_none_or(|old| old.usage_based != spec.usage_based);
        let members = if moves { self.unplace_members(id) } else { Vec::new() };
        let old = self.store.queues[id].spec.take();
        let (quotas, groups) = self.own_quota(&spec.groups);
        let parent = spec.cohort.as_ref().map(|name| self.tree.cohort(name));
        let node = self.store.queues[id].node;
        self.tree.nodes[node].weight = spec.weight;
        let was_guarded = old.as_ref().is_some_and(|old| !old.guard.is_idle());
        let guarded = self.store.guarded.saturating_add(usize::from(!spec.guard.is_idle()));
        self.store.guarded = guarded.saturating_sub(usize::from(was_guarded));
        let lists = |groups: &[Group]| -> Vec<_> { groups.iter().map(|group| group.flavors.clone()).collect() };
        if lists(&self.store.queues[id].groups) != lists(&groups) {
            // The progress of scans over flavors is kept as indexes into the lists of flavors.
            self.forget_progress(id);
        }
        let queue = &mut self.store.queues[id];
        let selector_changed = old.as_ref().is_none_or(|old| old.namespace_selector != spec.namespace_selector);
        queue.groups = groups;
        queue.spec = Some(spec);
        self.mark(id);
        self.link(node, parent, &quotas);
        self.mark(id);
        if old.is_none() {
            self.changed_local_queues.extend(self.store.queues[id].local_queues.iter().copied());
        } else if selector_changed {
            self.retry_mismatched(id, |_, _| true);
        }
        for workload in members {
            self.place(workload);
        }
        self.refresh_active(id);
    }

    fn remove_cluster_queue(&mut self, name: &str) {
        let Some(id) = self.store.queue_ids.get(name).copied() else { return };
        if self.store.queues[id].spec.is_none() {
            return;
        }
        let members = self.unplace_members(id);
        let Some(old) = self.store.queues[id].spec.take() else { return };
        self.store.guarded = self.store.guarded.saturating_sub(usize::from(!old.guard.is_idle()));
        self.mark(id);
        self.store.queues[id].groups.clear();
        let node = self.store.queues[id].node;
        self.link(node, None, &[]);
        self.changed_local_queues.extend(self.store.queues[id].local_queues.iter().copied());
        for workload in members {
            self.place(workload);
        }
        self.refresh_active(id);
    }

    fn set_cohort(&mut self, name: &str, spec: Option<CohortSpec>) {
        if self.cohorts.get(name) == spec.as_ref() {
            return;
        }
        let node = self.tree.cohort(name);
        self.tree.nodes[node].weight = spec.as_ref().map_or(1_000_000_000, |spec| spec.weight);
        let (quotas, _) = self.own_quota(spec.as_ref().map_or(&[], |spec| spec.groups.as_slice()));
        match spec {
            Some(spec) => self.cohorts.insert(name.to_owned(), spec),
            None => self.cohorts.remove(name),
        };
        self.changed_cohorts.insert(node);
        let parent = self.tree.nodes[node].parent;
        self.link(node, parent, &quotas);
        self.relink_cohorts();
    }

    /// Sets the parent of every cohort as declared, except for a cohort on a cycle of parents or below one.
    fn relink_cohorts(&mut self) {
        let names: Vec<String> = self.cohorts.keys().cloned().collect();
        let mut wanted: Vec<(NodeId, Option<NodeId>, bool)> = Vec::new();
        for name in &names {
            let is_cyclic = self.is_cyclic(name);
            let parent = self.cohorts.get(name).and_then(|spec| spec.parent.clone());
            let parent = parent.filter(|_| !is_cyclic).map(|parent| self.tree.cohort(&parent));
            wanted.push((self.tree.cohort(name), parent, is_cyclic));
        }
        let objects: BTreeSet<NodeId> = wanted.iter().map(|(node, ..)| *node).collect();
        let implicit = self.tree.nodes.ids().filter(|n| !self.tree.nodes[*n].is_queue && !objects.contains(n));
        wanted.extend(implicit.map(|node| (node, None, false)).collect::<Vec<_>>());
        let mut touched = Vec::new();
        for (node, parent, is_cyclic) in &wanted {
            if self.tree.nodes[*node].cyclic != *is_cyclic || self.tree.nodes[*node].parent != *parent {
                touched.push((*node, self.tree.root(*node)));
                self.tree.nodes[*node].cyclic = *is_cyclic;
                // All changed cohorts are unlinked before any is linked, so that no order of linking closes a loop.
                self.tree.set_parent(*node, None);
            }
        }
        for (node, parent, _) in &wanted {
            self.tree.set_parent(*node, *parent);
        }
        for (node, old_root) in touched {
            for root in [old_root, node] {
                self.rebuild(root);
                self.wake(root);
            }
        }
        for id in self.store.queues.ids() {
            self.refresh_active(id);
        }
    }

    /// Whether the declared parents of a cohort lead into a cycle.
    pub(crate) fn is_cyclic(&self, name: &str) -> bool {
        let mut at = name;
        for _ in 0..=self.cohorts.len() {
            match self.cohorts.get(at).and_then(|spec| spec.parent.as_deref()) {
                None => return false,
                Some(parent) => at = parent,
            }
        }
        true
    }

    /// The cohorts of the cycle into which the declared parents of a cohort lead; the first cohort of the cycle is repeated at the end.
    pub(crate) fn cycle_above<'a>(&'a self, name: &'a str) -> Option<Vec<&'a str>> {
        let mut way = vec![name];
        let mut at = name;
        loop {
            at = self.cohorts.get(at)?.parent.as_deref()?;
            let met = way.iter().position(|passed| *passed == at);
            way.push(at);
            if let Some(first) = met {
                return Some(way.split_off(first));
            }
        }
    }

    fn flavor_changed(&mut self, flavor: crate::world::ids::FlavorId) {
        self.clear_eviction_history();
        for id in self.wake_flavor(flavor) {
            self.refresh_active(id);
        }
    }

    /// Lets parked workloads be tried again in the cohort trees of the queues that offer a flavor; returns these queues.
    pub(crate) fn wake_flavor(&mut self, flavor: crate::world::ids::FlavorId) -> Vec<QueueId> {
        let offers = |id: &QueueId| self.store.queues[*id].groups.iter().any(|group| group.flavors.contains(&flavor));
        let offering: Vec<QueueId> = self.store.queues.ids().filter(offers).collect();
        for id in &offering {
            let node = self.store.queues[*id].node;
            self.wake(node);
        }
        offering
    }

    /// Recomputes whether a queue may admit; if that changes, the workloads of the queue get new reasons.
    fn refresh_active(&mut self, id: QueueId) {
        let active = self.readiness_of(id).is_some_and(|readiness| readiness.active);
        if self.store.queues[id].active == active {
            return;
        }
        self.store.queues[id].active = active;
        let node = self.store.queues[id].node;
        self.tree.nodes[node].active = active;
        self.tree.measure(node);
        self.mark(id);
        self.changed_local_queues.extend(self.store.queues[id].local_queues.iter().copied());
        if active {
            self.wake(node);
        } else {
            let members = self.store.queues[id].pending.classes.values().flat_map(|class| class.members());
            self.notices.extend(members.map(|(_, workload)| *workload).collect::<Vec<_>>());
        }
    }

    fn set_local_queue(&mut self, id: LocalQueueId, spec: Option<LocalQueueSpec>) {
        if let Some(old) = self.store.local_queues[id].queue {
            self.store.queues[old].local_queues.remove(&id);
        }
        let members: Vec<WorkloadId> = self.store.local_queues[id].pending.iter().copied().collect();
        let queue_positions: Vec<_> = members.iter().map(|workload| self.queue_position(*workload)).collect();
        for workload in &members {
            self.unplace(*workload);
        }
        if spec.is_none() {
            self.store.local_queues[id].ledger = crate::queue::afs::Ledger::default();
        }
        let queue = spec.as_ref().map(|spec| spec.cluster_queue.clone()).map(|name| self.queue_id(&name));
        if queue != self.store.local_queues[id].queue {
            self.forget_progress_of(&members);
        }
        if let Some(queue) = queue {
            self.store.queues[queue].local_queues.insert(id);
        }
        self.store.local_queues[id].queue = queue;
        self.store.local_queues[id].spec = spec;
        self.changed_local_queues.insert(id);
        for (workload, queue_position) in members.into_iter().zip(queue_positions) {
            self.place(workload);
            self.restore_queue_position(workload, queue_position);
        }
        self.store.release_local_queue(id);
    }

    /// Lets the next scans of a queue's pending workloads begin at the first flavor.
    fn forget_progress(&mut self, id: QueueId) {
        let local_queues = &self.store.queues[id].local_queues;
        let members = local_queues.iter().flat_map(|local| &self.store.local_queues[*local].pending).copied();
        let members: Vec<WorkloadId> = members.collect();
        self.forget_progress_of(&members);
    }

    fn forget_progress_of(&mut self, members: &[WorkloadId]) {
        for workload in members {
            if let Some(workload) = self.store.workload_mut(*workload) {
                workload.progress = None;
            }
        }
    }

    /// Takes the pending workloads of a queue out of their places; returns them.
    fn unplace_members(&mut self, id: QueueId) -> Vec<WorkloadId> {
        let local_queues = &self.store.queues[id].local_queues;
        let members: Vec<WorkloadId> =
            local_queues.iter().flat_map(|local| &self.store.local_queues[*local].pending).copied().collect();
        for workload in &members {
            self.unplace(*workload);
        }
        members
    }
}

pub(crate) mod beyond;
pub(crate) mod check;
pub(crate) mod digest;
pub(crate) mod held;
pub(crate) mod ids;
pub(crate) mod podset;
pub(crate) mod salt;
pub(crate) mod slices;
pub(crate) mod spare;
pub(crate) mod store;
#[cfg(test)]
mod tests;
pub(crate) mod workloads;
