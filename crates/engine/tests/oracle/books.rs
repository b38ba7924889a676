//! Quota as the specification states it, computed from the objects each time it is asked for.

use std::collections::BTreeMap;

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

/// Who holds what.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) uid: String,
    pub(crate) queue: String,
    pub(crate) usage: Amounts,
    pub(crate) priority: i64,
    pub(crate) queued_at: Millis,
    pub(crate) at: Millis,
    pub(crate) evicted: bool,
}

/// Objects and holders; nothing is remembered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    pub(crate) queues: BTreeMap<String, ClusterQueueSpec>,
    pub(crate) cohorts: BTreeMap<String, CohortSpec>,
    pub(crate) holders: Vec<Holder>,
    /// Kept for others in the cycle: queue and amounts.
    pub(crate) booked: Vec<(String, Amounts)>,
}

const BOUNDLESS: i128 = i64::MAX as i128;

/// Sum of quotas; with no end as soon as it comes to the largest amount.
fn plus(a: i128, b: i128) -> i128 {
    if a >= BOUNDLESS || b >= BOUNDLESS { BOUNDLESS } else { (a + b).min(BOUNDLESS) }
}

/// Difference of quotas.
fn minus(a: i128, b: i128) -> i128 {
    if b >= BOUNDLESS { if a >= BOUNDLESS { 0 } else { -BOUNDLESS } } else { left(a, b) }
}

/// What of a quota is left beside usage.
fn left(quota: i128, used: i128) -> i128 {
    if quota >= BOUNDLESS { BOUNDLESS } else { quota - used }
}

/// Nominal quota, borrowing limit and lending limit.
type Limits3 = (i128, Option<i128>, Option<i128>);

impl Books {
    pub(crate) fn parent(&self, node: &Node) -> Option<Node> {
        let name = match node {
            Node::Queue(name) => self.queues[name].cohort.clone(),
            Node::Cohort(name) => self.cohorts.get(name).and_then(|cohort| cohort.parent.clone()),
        };
        name.map(Node::Cohort)
    }

    pub(crate) fn line(&self, node: &Node) -> Vec<Node> {
        let mut line = vec![node.clone()];
        while let Some(parent) = self.parent(line.last().unwrap()) {
            line.push(parent);
        }
        line
    }

    pub(crate) fn children(&self, node: &Node) -> Vec<Node> {
        let mut all: Vec<Node> = self.cohorts.keys().cloned().map(Node::Cohort).collect();
        all.extend(self.queues.keys().cloned().map(Node::Queue));
        all.retain(|child| self.parent(child).as_ref() == Some(node));
        all
    }

    fn groups(&self, node: &Node) -> &[ResourceGroup] {
        match node {
            Node::Queue(name) => &self.queues[name].groups,
            Node::Cohort(name) => self.cohorts.get(name).map_or(&[], |cohort| &cohort.groups),
        }
    }

    fn limits(&self, node: &Node, fr: &Fr) -> Limits3 {
        for group in self.groups(node) {
            for flavor in group.flavors.iter().filter(|flavor| flavor.flavor == fr.0) {
                for (resource, quota) in group.covered.iter().zip(&flavor.quotas) {
                    if *resource == fr.1 {
                        let get = |amount: Amount| i128::from(amount.get());
                        return (get(quota.nominal), quota.borrowing_limit.map(get), quota.lending_limit.map(get));
                    }
                }
            }
        }
        (0, None, None)
    }

    /// Whether the node or one below it says a quota, be it zero.
    fn has_quota(&self, node: &Node, fr: &Fr) -> bool {
        let says = |group: &ResourceGroup| {
            group.covered.contains(&fr.1) && group.flavors.iter().any(|flavor| flavor.flavor == fr.0)
        };
        self.groups(node).iter().any(says) || self.children(node).iter().any(|child| self.has_quota(child, fr))
    }

    pub(crate) fn nominal(&self, node: &Node, fr: &Fr) -> i128 {
        self.limits(node, fr).0
    }

    pub(crate) fn borrowing_limit(&self, node: &Node, fr: &Fr) -> Option<i128> {
        self.limits(node, fr).1
    }

    pub(crate) fn subtree(&self, node: &Node, fr: &Fr) -> i128 {
        let lent = self.children(node).into_iter().map(|child| minus(self.subtree(&child, fr), self.local(&child, fr)));
        lent.fold(self.nominal(node, fr), plus)
    }

    fn local(&self, node: &Node, fr: &Fr) -> i128 {
        self.limits(node, fr).2.map_or(0, |lending| minus(self.subtree(node, fr), lending).max(0))
    }

    /// What a node takes from the quota of its parent. What is booked below zero shows at its queue alone (kueue.md 6.4, `add`).
    fn above(&self, node: &Node, fr: &Fr) -> i128 {
        let local = self.local(node, fr);
        let is_less = |(queue, _): &&(String, Amounts)| *node == Node::Queue(queue.clone());
        let less = |(_, usage): &(String, Amounts)| usage.get(fr).copied().unwrap_or(0).min(0);
        let less: i128 = self.booked.iter().filter(is_less).map(less).sum();
        if local >= BOUNDLESS { 0 } else { (self.usage(node, fr) - less - local).max(0) }
    }

    pub(crate) fn usage(&self, node: &Node, fr: &Fr) -> i128 {
        match node {
            Node::Queue(name) => {
                let amount = |amounts: &Amounts| amounts.get(fr).copied().unwrap_or(0);
                let held = self.holders.iter().filter(|h| h.queue == *name).map(|h| amount(&h.usage));
                let booked = self.booked.iter().filter(|(queue, _)| queue == name).map(|(_, usage)| amount(usage));
                held.chain(booked).sum()
            }
            Node::Cohort(_) => self.children(node).iter().map(|child| self.above(child, fr)).sum(),
        }
    }

    pub(crate) fn local_available(&self, node: &Node, fr: &Fr) -> i128 {
        left(self.local(node, fr), self.usage(node, fr)).max(0)
    }

    pub(crate) fn available(&self, node: &Node, fr: &Fr) -> i128 {
        let subtree = self.subtree(node, fr);
        let Some(parent) = self.parent(node) else { return left(subtree, self.usage(node, fr)) };
        let mut from_parent = self.available(&parent, fr);
        if let Some(limit) = self.borrowing_limit(node, fr) {
            let lent = minus(subtree, self.local(node, fr));
            from_parent = from_parent.min(plus(left(lent, self.above(node, fr)), limit));
        }
        plus(self.local_available(node, fr), from_parent)
    }

    pub(crate) fn potential(&self, node: &Node, fr: &Fr) -> i128 {
        let subtree = self.subtree(node, fr);
        let Some(parent) = self.parent(node) else { return subtree };
        let value = plus(self.local(node, fr), self.potential(&parent, fr));
        self.borrowing_limit(node, fr).map_or(value, |limit| value.min(plus(subtree, limit)))
    }

    pub(crate) fn exceeds(&self, node: &Node, fr: &Fr, more: i128) -> bool {
        let subtree = self.subtree(node, fr);
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

    fn height(&self, node: &Node) -> u32 {
        self.children(node).iter().map(|child| 1 + self.height(child)).max().unwrap_or(0)
    }

    /// Borrowing level, and whether less than the whole tree has room.
    pub(crate) fn level(&self, queue: &str, fr: &Fr, value: i128) -> (u32, bool) {
        let node = Node::Queue(queue.to_owned());
        let line = self.line(&node);
        if line.len() == 1 || !self.exceeds(&node, fr, value) {
            return (0, line.len() > 1);
        }
        let mut remaining = value - self.local_available(&node, fr);
        for (index, ancestor) in line.iter().enumerate().skip(1) {
            if !self.exceeds(ancestor, fr, remaining) {
                return (self.height(ancestor), index + 1 < line.len());
            }
            remaining -= self.local_available(ancestor, fr);
        }
        (self.height(line.last().unwrap()), false)
    }

    pub(crate) fn all_frs(&self) -> Vec<Fr> {
        let mut frs = Vec::new();
        let queues = self.queues.values().flat_map(|queue| &queue.groups);
        for group in queues.chain(self.cohorts.values().flat_map(|cohort| &cohort.groups)) {
            for flavor in &group.flavors {
                frs.extend(group.covered.iter().map(|resource| (flavor.flavor.clone(), resource.clone())));
            }
        }
        frs.sort();
        frs.dedup();
        frs
    }

    /// What a node takes beyond its own, of the resource of which it takes the most.
    pub(crate) fn share(&self, node: &Node) -> Part {
        let weight = match node {
            Node::Queue(name) => self.queues[name].weight,
            Node::Cohort(name) => self.cohorts.get(name).map_or(1_000_000_000, |cohort| cohort.weight),
        };
        let mut part = Part::none(weight);
        let Some(parent) = self.parent(node) else { return part };
        let frs = self.all_frs();
        for resource in ["cpu", "gpu", "memory"] {
            let of = |fr: &&Fr| fr.1 == resource;
            let over = |fr: &Fr| (-left(self.subtree(node, fr), self.usage(node, fr))).max(0);
            let borrowed: i128 = frs.iter().filter(of).filter(|fr| self.has_quota(node, fr)).map(over).sum();
            let lendable = frs.iter().filter(of).map(|fr| self.potential(&parent, fr)).fold(0, plus);
            part = part.with(borrowed, lendable);
        }
        part
    }

    pub(crate) fn without(&self, uids: &[String]) -> Self {
        let mut books = self.clone();
        books.holders.retain(|holder| !uids.contains(&holder.uid));
        books
    }
}
