//! The oracle's quota by Kueue's rules of borrowing and lending. Values that follow from quotas alone are computed once; usage is computed again after each
//! change, from the leaves up.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use berth_engine::*;

use super::share::Part;

/// Flavor and resource.
pub(crate) type Fr = (String, String);
/// Amounts by flavor and resource.
pub(crate) type Amounts = BTreeMap<Fr, i128>;

/// A queue or a cohort.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Node {
    Cohort(String),
    Queue(String),
}

/// A workload that holds quota.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) uid: String,
    pub(crate) queue: String,
    pub(crate) usage: Rc<Amounts>,
    pub(crate) priority: i64,
    pub(crate) queued_at: Millis,
    /// Start of the work that a preemption of the holder would lose.
    pub(crate) at: Millis,
    pub(crate) evicted: bool,
    /// True if the preemptor must not preempt the holder.
    pub(crate) not_preemptible: bool,
    /// Usage of the holder's LocalQueue when the cycle began; `None` if usage of LocalQueues orders nothing.
    pub(crate) used: Option<f64>,
}

const BOUNDLESS: i128 = i64::MAX as i128;

/// Sum of two quotas; unlimited from the largest amount on.
fn plus(a: i128, b: i128) -> i128 {
    if a >= BOUNDLESS || b >= BOUNDLESS { BOUNDLESS } else { (a + b).min(BOUNDLESS) }
}

/// Difference of quotas.
fn minus(a: i128, b: i128) -> i128 {
    if b >= BOUNDLESS { if a >= BOUNDLESS { 0 } else { -BOUNDLESS } } else { left(a, b) }
}

/// The part of a quota that is left after usage.
fn left(quota: i128, used: i128) -> i128 {
    if quota >= BOUNDLESS { BOUNDLESS } else { quota - used }
}

/// Quota of one flavor and resource at one node of the cohort forest.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    nominal: i128,
    borrowing: Option<i128>,
    lending: Option<i128>,
    /// True if the node or a node below it defines a quota, even a quota of zero.
    has_quota: bool,
    subtree: i128,
    local: i128,
    potential: i128,
}

/// The cohort forest and its quotas.
#[derive(Debug, Default)]
struct Forest {
    places: BTreeMap<Node, usize>,
    nodes: Vec<Node>,
    parents: Vec<Option<usize>>,
    children: Vec<Vec<usize>>,
    /// Queues that may not admit: they do not count as leaves when heights are computed.
    stopped: BTreeSet<usize>,
    frs: BTreeMap<Fr, usize>,
    /// Quotas and potential quota by node of the cohort forest, and by flavor and resource.
    levels: Vec<Vec<Level>>,
}

/// Nominal quota and limits that a node itself defines; `has_quota` is true if it defines any.
fn own(groups: &[ResourceGroup], fr: &Fr) -> Level {
    for group in groups {
        for flavor in group.flavors.iter().filter(|flavor| flavor.flavor == fr.0) {
            for (resource, quota) in group.covered.iter().zip(&flavor.quotas) {
                if *resource == fr.1 {
                    let get = |amount: Amount| i128::from(amount.get());
                    let (borrowing, lending) = (quota.borrowing_limit.map(get), quota.lending_limit.map(get));
                    return Level {
                        nominal: get(quota.nominal),
                        borrowing,
                        lending,
                        has_quota: true,
                        ..Level::default()
                    };
                }
            }
        }
    }
    Level::default()
}

impl Forest {
    fn new(
        queues: &BTreeMap<String, ClusterQueueSpec>,
        cohorts: &BTreeMap<String, CohortSpec>,
        held: impl Iterator<Item = Fr>,
    ) -> Self {
        let nodes: Vec<Node> =
            cohorts.keys().cloned().map(Node::Cohort).chain(queues.keys().cloned().map(Node::Queue)).collect();
        let places: BTreeMap<Node, usize> = nodes.iter().cloned().enumerate().map(|(at, node)| (node, at)).collect();
        let above = |node: &Node| match node {
            Node::Queue(name) => queues[name].cohort.clone(),
            Node::Cohort(name) => cohorts[name].parent.clone(),
        };
        let parents: Vec<Option<usize>> = nodes.iter().map(|node| Some(places[&Node::Cohort(above(node)?)])).collect();
        let below = |parent: usize| (0..nodes.len()).filter(|child| parents[*child] == Some(parent)).collect();
        let children: Vec<Vec<usize>> = (0..nodes.len()).map(below).collect();
        let groups = |node: &Node| match node {
            Node::Queue(name) => queues[name].groups.as_slice(),
            Node::Cohort(name) => cohorts[name].groups.as_slice(),
        };
        let mut frs: BTreeSet<Fr> = held.collect();
        for group in nodes.iter().flat_map(groups) {
            for flavor in &group.flavors {
                frs.extend(group.covered.iter().map(|resource| (flavor.flavor.clone(), resource.clone())));
            }
        }
        let levels = nodes.iter().map(|node| frs.iter().map(|fr| own(groups(node), fr)).collect()).collect();
        let frs = frs.into_iter().enumerate().map(|(at, fr)| (fr, at)).collect();
        let is_stopped = |node: &Node| matches!(node, Node::Queue(name) if queues[name].stop != StopPolicy::None);
        let stopped = (0..nodes.len()).filter(|at| is_stopped(&nodes[*at])).collect();
        let mut forest = Self { places, nodes, parents, children, stopped, frs, levels };
        for root in (0..forest.nodes.len()).filter(|node| forest.parents[*node].is_none()).collect::<Vec<_>>() {
            for at in 0..forest.frs.len() {
                forest.add_up(root, at);
                forest.hand_down(root, at);
            }
        }
        forest
    }

    /// Computes the quotas of subtrees, from the leaves up.
    fn add_up(&mut self, node: usize, at: usize) {
        let mut level = self.levels[node][at];
        level.subtree = level.nominal;
        for child in self.children[node].clone() {
            self.add_up(child, at);
            let below = self.levels[child][at];
            level.subtree = plus(level.subtree, minus(below.subtree, below.local));
            level.has_quota |= below.has_quota;
        }
        level.local = level.lending.map_or(0, |lending| minus(level.subtree, lending).max(0));
        self.levels[node][at] = level;
    }

    /// Computes the quota that each node of the cohort forest could use if nothing were in use, from the roots down.
    fn hand_down(&mut self, node: usize, at: usize) {
        let above = self.parents[node].map(|parent| self.levels[parent][at].potential);
        let level = &mut self.levels[node][at];
        let most = above.map_or(level.subtree, |above| plus(level.local, above));
        let bound = level.borrowing.filter(|_| above.is_some()).map(|limit| plus(level.subtree, limit));
        level.potential = bound.map_or(most, |bound| most.min(bound));
        for child in self.children[node].clone() {
            self.hand_down(child, at);
        }
    }

    fn height(&self, node: usize) -> u32 {
        let children = self.children[node].iter().filter(|child| !self.stopped.contains(child));
        children.map(|child| 1 + self.height(*child)).max().unwrap_or(0)
    }
}

/// Objects of a world, and the holders of quota.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accounting {
    pub(crate) queues: Rc<BTreeMap<String, ClusterQueueSpec>>,
    pub(crate) cohorts: Rc<BTreeMap<String, CohortSpec>>,
    forest: Rc<Forest>,
    pub(crate) holders: Vec<Holder>,
    /// Quota that is kept for earlier heads of the cycle: queue and amounts.
    charged: Vec<(String, Amounts)>,
    /// Usage by node, and by flavor and resource: the full usage, and the part that the parent sees. The table of usage is computed on first use.
    used: OnceCell<Vec<Vec<(i128, i128)>>>,
}

impl Accounting {
    pub(crate) fn new(
        queues: BTreeMap<String, ClusterQueueSpec>,
        cohorts: BTreeMap<String, CohortSpec>,
        holders: Vec<Holder>,
    ) -> Self {
        let held = holders.iter().flat_map(|holder| holder.usage.keys().cloned());
        let forest = Rc::new(Forest::new(&queues, &cohorts, held));
        Self {
            queues: Rc::new(queues),
            cohorts: Rc::new(cohorts),
            forest,
            holders,
            charged: Vec::new(),
            used: OnceCell::new(),
        }
    }

    /// Keeps amounts of quota for a head of a queue.
    pub(crate) fn charge(&mut self, queue: &str, usage: Amounts) {
        self.charged.push((queue.to_owned(), usage));
        self.used.take();
    }

    /// Releases all amounts that were kept for heads.
    pub(crate) fn clear_charged(&mut self) {
        self.charged.clear();
        self.used.take();
    }

    pub(crate) fn hold(&mut self, holder: Holder) {
        self.holders.push(holder);
        self.used.take();
    }

    pub(crate) fn without(&self, uids: &[String]) -> Self {
        let stays = |holder: &&Holder| !uids.contains(&holder.uid);
        let holders = self.holders.iter().filter(stays).cloned().collect();
        let (queues, cohorts) = (Rc::clone(&self.queues), Rc::clone(&self.cohorts));
        let forest = Rc::clone(&self.forest);
        Self { queues, cohorts, forest, holders, charged: self.charged.clone(), used: OnceCell::new() }
    }

    /// A copy of the objects with another preemption policy of one queue, and with workloads that must not be preempted.
    pub(crate) fn seen_by(&self, queue: &str, preemption: Preemption, not_preemptible: &BTreeSet<String>) -> Self {
        let mut accounting = self.clone();
        if accounting.queues[queue].preemption != preemption
            && let Some(spec) = Rc::make_mut(&mut accounting.queues).get_mut(queue)
        {
            spec.preemption = preemption;
        }
        for holder in &mut accounting.holders {
            holder.not_preemptible = not_preemptible.contains(&holder.uid);
        }
        accounting
    }

    fn place(&self, node: &Node) -> usize {
        self.forest.places[node]
    }

    fn level(&self, node: &Node, fr: &Fr) -> Level {
        let at = self.forest.frs.get(fr);
        at.map_or(Level::default(), |at| self.forest.levels[self.place(node)][*at])
    }

    pub(crate) fn parent(&self, node: &Node) -> Option<Node> {
        self.forest.parents[self.place(node)].map(|parent| self.forest.nodes[parent].clone())
    }

    pub(crate) fn line(&self, node: &Node) -> Vec<Node> {
        let places = std::iter::successors(Some(self.place(node)), |at| self.forest.parents[*at]);
        places.map(|at| self.forest.nodes[at].clone()).collect()
    }

    pub(crate) fn children(&self, node: &Node) -> Vec<Node> {
        self.forest.children[self.place(node)].iter().map(|child| self.forest.nodes[*child].clone()).collect()
    }

    pub(crate) fn nominal(&self, node: &Node, fr: &Fr) -> i128 {
        self.level(node, fr).nominal
    }

    pub(crate) fn borrowing_limit(&self, node: &Node, fr: &Fr) -> Option<i128> {
        self.level(node, fr).borrowing
    }

    pub(crate) fn potential(&self, node: &Node, fr: &Fr) -> i128 {
        self.level(node, fr).potential
    }

    fn used(&self) -> &Vec<Vec<(i128, i128)>> {
        self.used.get_or_init(|| {
            let forest = &self.forest;
            let mut used = vec![vec![(0, 0); forest.frs.len()]; forest.nodes.len()];
            let held = self.holders.iter().map(|holder| (&holder.queue, &*holder.usage));
            for (queue, usage) in held.chain(self.charged.iter().map(|(queue, usage)| (queue, usage))) {
                let node = forest.places[&Node::Queue(queue.clone())];
                for (fr, amount) in usage {
                    let of = &mut used[node][forest.frs[fr]];
                    // Negative usage of a queue is counted at this queue alone, not at its cohorts.
                    *of = (of.0 + amount, of.1 + amount.max(&0));
                }
            }
            for root in (0..forest.nodes.len()).filter(|node| forest.parents[*node].is_none()) {
                self.show(root, &mut used);
            }
            used
        })
    }

    /// Adds up the usage of the queues below a node of the cohort forest, and computes the part that the node's parent sees.
    fn show(&self, node: usize, used: &mut Vec<Vec<(i128, i128)>>) {
        for child in &self.forest.children[node] {
            self.show(*child, used);
            for at in 0..used[node].len() {
                let above = used[*child][at].1;
                let of = &mut used[node][at];
                *of = (of.0 + above, of.1 + above);
            }
        }
        for (at, of) in used[node].iter_mut().enumerate() {
            let local = self.forest.levels[node][at].local;
            of.1 = if local >= BOUNDLESS { 0 } else { (of.1 - local).max(0) };
        }
    }

    fn used_at(&self, node: &Node, fr: &Fr) -> (i128, i128) {
        let at = self.forest.frs.get(fr);
        at.map_or((0, 0), |at| self.used()[self.place(node)][*at])
    }

    pub(crate) fn usage(&self, node: &Node, fr: &Fr) -> i128 {
        self.used_at(node, fr).0
    }

    pub(crate) fn local_available(&self, node: &Node, fr: &Fr) -> i128 {
        left(self.level(node, fr).local, self.usage(node, fr)).max(0)
    }

    pub(crate) fn available(&self, node: &Node, fr: &Fr) -> i128 {
        let level = self.level(node, fr);
        let (usage, above) = self.used_at(node, fr);
        let Some(parent) = self.parent(node) else { return left(level.subtree, usage) };
        let mut from_parent = self.available(&parent, fr);
        if let Some(limit) = level.borrowing {
            let lent = minus(level.subtree, level.local);
            from_parent = from_parent.min(plus(left(lent, above), limit));
        }
        plus(self.local_available(node, fr), from_parent)
    }

    pub(crate) fn exceeds(&self, node: &Node, fr: &Fr, more: i128) -> bool {
        let subtree = self.level(node, fr).subtree;
        subtree < BOUNDLESS && self.usage(node, fr) + more > subtree
    }

    /// Whether a queue may admit, and its workloads may be preempted.
    pub(crate) fn is_active(&self, queue: &str) -> bool {
        self.queues[queue].stop == StopPolicy::None
    }

    pub(crate) fn fits(&self, queue: &str, usage: &Amounts) -> bool {
        let node = Node::Queue(queue.to_owned());
        usage.iter().all(|(fr, value)| *value <= self.available(&node, fr).max(0))
    }

    /// Borrowing level of an amount in a queue, and whether a subtree smaller than the whole cohort tree has room.
    pub(crate) fn borrowing_level(&self, queue: &str, fr: &Fr, value: i128) -> (u32, bool) {
        let node = Node::Queue(queue.to_owned());
        let line = self.line(&node);
        if line.len() == 1 || !self.exceeds(&node, fr, value) {
            return (0, line.len() > 1);
        }
        let height = |node: &Node| self.forest.height(self.place(node));
        let mut remaining = value - self.local_available(&node, fr);
        for (index, ancestor) in line.iter().enumerate().skip(1) {
            if !self.exceeds(ancestor, fr, remaining) {
                return (height(ancestor), index + 1 < line.len());
            }
            remaining -= self.local_available(ancestor, fr);
        }
        (height(line.last().unwrap()), false)
    }

    pub(crate) fn all_frs(&self) -> Vec<Fr> {
        self.forest.frs.keys().cloned().collect()
    }

    /// The fair share of a queue or cohort: its usage above its own quota, in the resource with the largest part.
    pub(crate) fn share(&self, node: &Node) -> Part {
        let weight = match node {
            Node::Queue(name) => self.queues[name].weight,
            Node::Cohort(name) => self.cohorts[name].weight,
        };
        let mut part = Part::none(weight);
        let Some(parent) = self.parent(node) else { return part };
        for resource in ["cpu", "gpu", "memory"] {
            let (mut borrowed, mut lendable) = (0, 0);
            for fr in self.forest.frs.keys().filter(|fr| fr.1 == resource) {
                let level = self.level(node, fr);
                if level.has_quota {
                    borrowed += (-left(level.subtree, self.usage(node, fr))).max(0);
                }
                lendable = plus(lendable, self.potential(&parent, fr));
            }
            part = part.with(borrowed, lendable);
        }
        part
    }
}
