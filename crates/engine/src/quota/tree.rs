//! The cohort forest: In the cohort tree, ClusterQueues are leaves and cohorts are inner nodes. When an object changes, the quotas of its cohort tree are
//! rebuilt; a change of usage updates only the nodes from the queue to the root.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::WEIGHT_ONE;
use crate::quota::balance::{Cell, INF, Units, Usage, accumulate, add_to, in_usage, left, plus};
use crate::world::ids::{Arena, CellId, NodeId, QueueId, ResourceId};

/// A queue or a cohort.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) is_queue: bool,
    pub(crate) parent: Option<NodeId>,
    /// Children of the node in the cohort forest, sorted by (kind, name).
    pub(crate) children: Vec<NodeId>,
    /// Sorted by key.
    pub(crate) cells: Vec<Cell>,
    /// At a queue: usage beyond quota, which no cohort sees; in most cases there is none.
    pub(crate) beyond: Usage,
    /// At a root: the queues of its tree; `World::rebuild` updates this list.
    pub(crate) queues: Arc<[QueueId]>,
    /// Quota that may be lent below a cohort, by resource; `World::rebuild` updates it.
    pub(crate) lendable: Vec<(ResourceId, Units)>,
    /// Weight of the queue or cohort in fair sharing, in billionths.
    pub(crate) weight: i64,
    /// True for a cohort on a declared cycle of parents or below one: the cohort is kept without a parent, so that the forest itself never has cycles.
    pub(crate) cyclic: bool,
    /// At a queue: true if the queue may admit workloads.
    pub(crate) active: bool,
    /// Number of levels below this node in the cohort forest. A queue that may not admit does not count as a level, although its quota and usage count.
    pub(crate) height: u32,
    /// At a root: number of changes that may let parked workloads fit.
    pub(crate) epoch: u64,
    /// At a queue: number of changes that make the recorded progress of a flavor scan out of date.
    pub(crate) generation: u64,
}

impl Node {
    pub(crate) fn cell(&self, key: CellId) -> Cell {
        let found = self.cells.binary_search_by_key(&key, |c| c.key).ok();
        found.and_then(|at| self.cells.get(at)).copied().unwrap_or(Cell::empty(key))
    }

    fn update(&mut self, key: CellId, change: impl FnOnce(&mut Cell)) {
        let at = match self.cells.binary_search_by_key(&key, |c| c.key) {
            Ok(at) => at,
            Err(at) => {
                self.cells.insert(at, Cell::empty(key));
                at
            }
        };
        if let Some(cell) = self.cells.get_mut(at) {
            change(cell);
        }
    }
}

/// Own quota of a node: cell, nominal quota, borrowing limit and lending limit.
pub(crate) type OwnQuota = (CellId, Units, Units, Units);

/// All nodes of the cohort forest.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) nodes: Arena<NodeId, Node>,
    cohorts: FxHashMap<String, NodeId>,
}

impl Tree {
    pub(crate) fn new() -> Self {
        Self { nodes: Arena::new(), cohorts: FxHashMap::default() }
    }

    pub(crate) fn add_node(&mut self, name: &str, is_queue: bool) -> NodeId {
        self.nodes.push(Node {
            name: name.to_owned(),
            is_queue,
            parent: None,
            children: Vec::new(),
            cells: Vec::new(),
            beyond: Usage::new(),
            queues: Arc::new([]),
            lendable: Vec::new(),
            weight: WEIGHT_ONE,
            cyclic: false,
            active: false,
            height: 0,
            epoch: 0,
            generation: 0,
        })
    }

    /// The cohort with the name `name`, which exists as soon as an object names it.
    pub(crate) fn cohort(&mut self, name: &str) -> NodeId {
        if let Some(id) = self.cohorts.get(name) {
            return *id;
        }
        let id = self.add_node(name, false);
        self.cohorts.insert(name.to_owned(), id);
        id
    }

    pub(crate) fn find_cohort(&self, name: &str) -> Option<NodeId> {
        self.cohorts.get(name).copied()
    }

    /// The root of the cohort tree that contains a node.
    pub(crate) fn root(&self, node: NodeId) -> NodeId {
        self.ancestors(node).last().unwrap_or(node)
    }

    /// Parent to root.
    pub(crate) fn ancestors(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        std::iter::successors(self.nodes[node].parent, |n| self.nodes[*n].parent)
    }

    /// Whether a node is below cohorts whose parents were declared in a circle.
    pub(crate) fn is_below_cycle(&self, node: NodeId) -> bool {
        self.ancestors(node).any(|cohort| self.nodes[cohort].cyclic)
    }

    /// The path of a node in the form `/root/../node`.
    pub(crate) fn path(&self, node: NodeId) -> String {
        let mut names: Vec<&str> = self.ancestors(node).map(|n| self.nodes[n].name.as_str()).collect();
        names.reverse();
        names.push(&self.nodes[node].name);
        format!("/{}", names.join("/"))
    }

    /// All nodes of a cohort tree, children before their parents.
    pub(crate) fn bottom_up(&self, root: NodeId) -> Vec<NodeId> {
        let mut order = vec![root];
        let mut next: usize = 0;
        while let Some(node) = order.get(next).copied() {
            order.extend(self.nodes[node].children.iter().copied());
            next = next.saturating_add(1);
        }
        order.reverse();
        order
    }

    /// Moves a node below another parent. The caller must rebuild the cohort trees that the node leaves and joins.
    pub(crate) fn set_parent(&mut self, node: NodeId, parent: Option<NodeId>) {
        let old = self.nodes[node].parent;
        if old == parent {
            return;
        }
        if let Some(old) = old {
            self.nodes[old].children.retain(|c| *c != node);
        }
        self.nodes[node].parent = parent;
        if let Some(parent) = parent {
            let mut children = std::mem::take(&mut self.nodes[parent].children);
            let key = |n: NodeId| (self.nodes[n].is_queue, self.nodes[n].name.as_str());
            let at = children.partition_point(|c| key(*c) < key(node));
            children.insert(at, node);
            self.nodes[parent].children = children;
        }
    }

    /// Replaces the own quota of a node and keeps its usage. The caller of `set_quota` must rebuild the cohort tree.
    pub(crate) fn set_quota(&mut self, node: NodeId, quotas: &[OwnQuota]) {
        let node = &mut self.nodes[node];
        node.cells.retain(|c| c.usage != 0);
        for cell in &mut node.cells {
            *cell = Cell { usage: cell.usage, ..Cell::empty(cell.key) };
        }
        for (key, nominal, borrowing, lending) in quotas.iter().copied() {
            node.update(key, |cell| {
                *cell = Cell {
                    key,
                    nominal,
                    borrowing_limit: borrowing,
                    lending_limit: lending,
                    subtree: nominal,
                    usage: cell.usage,
                    own: true,
                    has_quota: true,
                };
            });
        }
    }

    /// Recomputes subtree quotas, cohort usage and heights of the cohort tree that contains a node, from the queues of the tree.
    pub(crate) fn rebuild(&mut self, around: NodeId) {
        for node in self.bottom_up(self.root(around)) {
            if self.nodes[node].is_queue {
                let generation = &mut self.nodes[node].generation;
                *generation = generation.saturating_add(1);
                continue;
            }
            let children = self.nodes[node].children.clone();
            for cell in &mut self.nodes[node].cells {
                cell.subtree = cell.nominal;
                cell.usage = 0;
                cell.has_quota = cell.own;
            }
            for child in children {
                for cell in self.nodes[child].cells.clone() {
                    self.nodes[node].update(cell.key, |own| {
                        own.subtree = plus(own.subtree, cell.lent());
                        add_to(&mut own.usage, cell.used_in_parent());
                        own.has_quota |= cell.has_quota;
                    });
                }
            }
        }
        self.measure(around);
    }

    /// Recomputes the heights of the cohort tree that contains a node.
    pub(crate) fn measure(&mut self, around: NodeId) {
        for node in self.bottom_up(self.root(around)) {
            let above = self.nodes[node].children.iter().map(|child| {
                let child = &self.nodes[*child];
                if child.is_queue { u32::from(child.active) } else { child.height.saturating_add(1) }
            });
            let height = above.max().unwrap_or(0);
            self.nodes[node].height = height;
        }
    }

    pub(crate) fn cell(&self, node: NodeId, key: CellId) -> Cell {
        self.nodes[node].cell(key)
    }

    /// Amount that a node may still use; negative if more is used than the quota allows.
    pub(crate) fn raw_available(&self, node: NodeId, key: CellId) -> Units {
        let debt = in_usage(&self.nodes[node].beyond, key).saturating_neg();
        let (mut at, mut local, mut bound): (_, Units, _) = (node, debt, INF);
        loop {
            let cell = self.cell(at, key);
            let Some(parent) = self.nodes[at].parent else {
                return match left(cell.subtree, cell.usage) {
                    INF => bound,
                    rest => bound.min(local.saturating_add(rest)),
                };
            };
            match cell.local_available() {
                INF => return bound,
                // The sum of the quotas that the nodes on the way to the root keep for themselves must be exact: a sum that saturated at INF here would hide a
                // debt further up in the tree.
                own => add_to(&mut local, own),
            }
            match cell.bound_from_parent() {
                INF => {}
                more => bound = bound.min(local.saturating_add(more)),
            }
            at = parent;
        }
    }

    /// Amount that a queue may still use, never negative.
    pub(crate) fn available(&self, node: NodeId, key: CellId) -> Units {
        self.raw_available(node, key).max(0)
    }

    /// Amount that a node could use if no quota were in use.
    pub(crate) fn potential(&self, node: NodeId, key: CellId) -> Units {
        let (mut at, mut local, mut bound) = (node, 0, INF);
        loop {
            let cell = self.cell(at, key);
            let Some(parent) = self.nodes[at].parent else {
                return bound.min(plus(local, cell.subtree));
            };
            if cell.borrowing_limit < INF {
                bound = bound.min(plus(local, plus(cell.subtree, cell.borrowing_limit)));
            }
            local = plus(local, cell.local());
            at = parent;
        }
    }

    /// Adds usage at a queue, and the part above the local quota at its cohorts. Negative usage of a queue is never added at its cohorts.
    pub(crate) fn add(&mut self, node: NodeId, usage: &[(CellId, Units)]) {
        for (key, value) in usage.iter().copied() {
            let (mut at, mut value) = (node, value);
            loop {
                let above = self.cell(at, key).above_local(value);
                self.nodes[at].update(key, |cell| add_to(&mut cell.usage, value));
                match self.nodes[at].parent {
                    Some(parent) if above > 0 => (at, value) = (parent, above),
                    _ => break,
                }
            }
        }
    }

    /// Removes usage at a queue and its cohorts; the exact inverse of [`Tree::add`].
    pub(crate) fn remove(&mut self, node: NodeId, usage: &[(CellId, Units)]) {
        for (key, value) in usage.iter().copied() {
            let (mut at, mut value) = (node, value);
            loop {
                let above = self.cell(at, key).used_in_parent();
                self.nodes[at].update(key, |cell| cell.usage = cell.usage.saturating_sub(value));
                match self.nodes[at].parent {
                    Some(parent) if above > 0 && value > 0 => (at, value) = (parent, value.min(above)),
                    _ => break,
                }
            }
        }
    }

    /// Charges a queue for usage beyond quota, or takes the charge back. The cohorts above the queue do not see the charge for usage beyond quota.
    pub(crate) fn charge_beyond(&mut self, node: NodeId, usage: &[(CellId, Units)], back: bool) {
        let beyond = &mut self.nodes[node].beyond;
        for (key, value) in usage {
            accumulate(beyond, *key, if back { value.saturating_neg() } else { *value });
        }
        beyond.retain(|(_, value)| *value != 0);
    }

    /// Height of the lowest subtree around a queue that has room for `value`, and whether this subtree is smaller than the whole cohort tree.
    pub(crate) fn height_that_fits(&self, queue: NodeId, key: CellId, value: Units) -> (u32, bool) {
        let cell = self.cell(queue, key);
        let has_parent = self.nodes[queue].parent.is_some();
        if !cell.exceeds_with(value) || !has_parent {
            return (0, has_parent);
        }
        let mut remaining = cell.above_local(value);
        let mut height = 0;
        for node in self.ancestors(queue) {
            let cell = self.cell(node, key);
            height = self.nodes[node].height;
            if !cell.exceeds_with(remaining) {
                return (height, self.nodes[node].parent.is_some());
            }
            remaining = remaining.saturating_sub(cell.local_available());
        }
        (height, false)
    }

    /// Whether a node is within its subtree's quota in all cells of `keys`.
    pub(crate) fn within_quota(&self, node: NodeId, keys: &[CellId]) -> bool {
        keys.iter().all(|key| !self.cell(node, *key).exceeds_with(0))
    }

    /// Whether the full amount of a usage is available to a queue.
    pub(crate) fn fits(&self, queue: NodeId, usage: &[(CellId, Units)]) -> bool {
        usage.iter().all(|(key, value)| *value <= self.available(queue, *key))
    }
}

/// Kinds of change that a trial makes to a node.
#[derive(Clone, Copy)]
enum Change {
    Added,
    Removed,
    /// The trial took back a charge for usage beyond quota.
    Lifted,
    /// The trial charged usage beyond quota.
    Charged,
}

/// A change of a trial: kind, node, and cell with amount.
type Undo = (Change, NodeId, (CellId, Units));

/// A trial: changes of usage in the cohort tree that are undone when the trial is dropped.
pub(crate) struct Trial<'t> {
    tree: &'t mut Tree,
    log: Vec<Undo>,
}

impl<'t> Trial<'t> {
    pub(crate) const fn new(tree: &'t mut Tree) -> Self {
        Self { tree, log: Vec::new() }
    }

    pub(crate) fn add(&mut self, node: NodeId, usage: &[(CellId, Units)]) {
        self.tree.add(node, usage);
        self.note(Change::Added, node, usage);
    }

    pub(crate) fn remove(&mut self, node: NodeId, usage: &[(CellId, Units)]) {
        self.tree.remove(node, usage);
        self.note(Change::Removed, node, usage);
    }

    pub(crate) fn charge_beyond(&mut self, node: NodeId, usage: &[(CellId, Units)], back: bool) {
        self.tree.charge_beyond(node, usage, back);
        self.note(if back { Change::Lifted } else { Change::Charged }, node, usage);
    }

    fn note(&mut self, change: Change, node: NodeId, usage: &[(CellId, Units)]) {
        self.log.extend(usage.iter().map(|part| (change, node, *part)));
    }

    pub(crate) const fn tree(&self) -> &Tree {
        self.tree
    }

    /// The cohort tree, for searches inside the trial that undo their own changes.
    pub(crate) const fn tree_mut(&mut self) -> &mut Tree {
        self.tree
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        // Quota cells are independent of each other, so the usage of a workload may be undone cell by cell.
        while let Some((change, node, part)) = self.log.pop() {
            match change {
                Change::Added => self.tree.remove(node, &[part]),
                Change::Removed => self.tree.add(node, &[part]),
                Change::Lifted => self.tree.charge_beyond(node, &[part], false),
                Change::Charged => self.tree.charge_beyond(node, &[part], true),
            }
        }
    }
}
