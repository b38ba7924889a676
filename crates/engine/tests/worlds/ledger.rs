//! Quota of a cohort forest, counted from the objects in two passes: usage and quota from the leaves up, free quota from the roots down. The file is written
//! from Kueue's rules of borrowing and lending, apart from the engine.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use berth_engine::*;

use super::Objects;

/// Flavor and resource.
pub(crate) type Fr = (String, String);
/// Kind (true for a queue) and name of a node of the cohort tree.
pub(crate) type Name = (bool, String);

/// The amount of an unlimited quota.
pub(crate) const UNLIMITED: i128 = i64::MAX as i128;

/// Sum of two quotas; unlimited from the largest amount on.
fn plus(a: i128, b: i128) -> i128 {
    if a >= UNLIMITED || b >= UNLIMITED { UNLIMITED } else { (a + b).min(UNLIMITED) }
}

/// Difference of quotas.
fn minus(a: i128, b: i128) -> i128 {
    match (a >= UNLIMITED, b >= UNLIMITED) {
        (true, true) => 0,
        (true, false) => UNLIMITED,
        (false, true) => -UNLIMITED,
        (false, false) => a - b,
    }
}

/// Quota minus usage; the difference is exact for numbers of any size.
fn left(quota: i128, used: i128) -> i128 {
    if quota >= UNLIMITED { UNLIMITED } else { quota - used }
}

/// Quota and usage of one flavor and resource at one node of the cohort forest.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Level {
    pub(crate) nominal: i128,
    borrowing: Option<i128>,
    lending: Option<i128>,
    pub(crate) has_parent: bool,
    pub(crate) subtree: i128,
    pub(crate) usage: i128,
    local: i128,
    /// Amount that may still be used; negative if the node is in debt.
    pub(crate) room: i128,
    /// Amount that the queue or cohort could use if no quota were in use.
    pub(crate) most: i128,
}

impl Level {
    fn lent(&self) -> i128 {
        minus(self.subtree, self.local)
    }

    fn used_above(&self) -> i128 {
        if self.local >= UNLIMITED { 0 } else { (self.usage - self.local).max(0) }
    }

    /// Usage of the queue or cohort above its own quota and limits.
    fn debt(&self) -> i128 {
        let (used, bound) = match (self.has_parent, self.borrowing) {
            (false, _) => (self.usage, self.subtree),
            (true, Some(limit)) => (self.used_above(), plus(self.lent(), limit)),
            (true, None) => return 0,
        };
        if bound >= UNLIMITED { 0 } else { (used - bound).max(0) }
    }
}

/// All nodes of the forest with all flavors and resources.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    pub(crate) nodes: Vec<Name>,
    pub(crate) frs: Vec<Fr>,
    /// Quota and usage by node of the cohort forest, and then by flavor and resource.
    pub(crate) levels: Vec<Vec<Level>>,
}

fn groups<'a>(objects: &'a Objects, node: &Name) -> &'a [ResourceGroup] {
    if node.0 {
        objects.queues.iter().find(|queue| queue.name == node.1).map_or(&[], |queue| &queue.groups)
    } else {
        objects.cohorts.iter().find(|cohort| cohort.name == node.1).map_or(&[], |cohort| &cohort.groups)
    }
}

fn parent(objects: &Objects, node: &Name) -> Option<Name> {
    let above = if node.0 {
        objects.queues.iter().find(|queue| queue.name == node.1).and_then(|queue| queue.cohort.clone())
    } else {
        objects.cohorts.iter().find(|cohort| cohort.name == node.1).and_then(|cohort| cohort.parent.clone())
    };
    above.map(|name| (false, name))
}

/// Usage of the workloads that hold quota, by queue, flavor and resource.
fn held(objects: &Objects) -> BTreeMap<(String, Fr), i128> {
    let mut held = BTreeMap::new();
    for spec in &objects.workloads {
        let WorkloadState::Reserved(reservation) = &spec.state else { continue };
        for set in &reservation.pod_sets {
            for (resource, flavor) in &set.flavors {
                let cell = (reservation.cluster_queue.clone(), (flavor.clone(), resource.clone()));
                *held.entry(cell).or_insert(0) += i128::from(set.usage[resource].get());
            }
        }
    }
    held
}

impl Ledger {
    pub(crate) fn of(objects: &Objects) -> Self {
        let held = held(objects);
        let declared = objects.cohorts.iter().flat_map(|cohort| std::iter::once(&cohort.name).chain(&cohort.parent));
        let mut cohorts: BTreeSet<String> = declared.cloned().collect();
        cohorts.extend(objects.queues.iter().filter_map(|queue| queue.cohort.clone()));
        let mut nodes: Vec<Name> = cohorts.into_iter().map(|name| (false, name)).collect();
        nodes.extend(objects.queues.iter().map(|queue| (true, queue.name.clone())));
        let above = |node: &Name| parent(objects, node).and_then(|above| nodes.iter().position(|name| *name == above));
        let parents: Vec<Option<usize>> = nodes.iter().map(above).collect();
        let mut frs: BTreeSet<Fr> = held.keys().map(|(_, fr)| fr.clone()).collect();
        for group in nodes.iter().flat_map(|node| groups(objects, node)) {
            for flavor in &group.flavors {
                frs.extend(group.covered.iter().map(|resource| (flavor.flavor.clone(), resource.clone())));
            }
        }
        let frs: Vec<Fr> = frs.into_iter().collect();
        let mut levels: Vec<Vec<Level>> = Vec::new();
        for (node, parent) in nodes.iter().zip(&parents) {
            let own = |fr: &Fr| Level {
                has_parent: parent.is_some(),
                usage: if node.0 { held.get(&(node.1.clone(), fr.clone())).copied().unwrap_or(0) } else { 0 },
                ..quota(groups(objects, node), fr)
            };
            levels.push(frs.iter().map(own).collect());
        }
        let depth = |node: usize| std::iter::successors(parents[node], |above| parents[*above]).count();
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_by_key(|node| Reverse(depth(*node)));
        for (at, _) in frs.iter().enumerate() {
            for node in &order {
                let mut level = levels[*node][at];
                level.local = level.lending.map_or(0, |lending| minus(level.subtree, lending).max(0));
                levels[*node][at] = level;
                if let Some(parent) = parents[*node] {
                    let above = &mut levels[parent][at];
                    above.subtree = plus(above.subtree, level.lent());
                    above.usage += level.used_above();
                }
            }
            for node in order.iter().rev() {
                let above = parents[*node].map(|parent| levels[parent][at]);
                let level = &mut levels[*node][at];
                let Some(above) = above else {
                    (level.room, level.most) = (left(level.subtree, level.usage), level.subtree);
                    continue;
                };
                let (mut from_above, mut most) = (above.room, plus(level.local, above.most));
                if let Some(limit) = level.borrowing {
                    from_above = from_above.min(plus(left(level.lent(), level.used_above()), limit));
                    most = most.min(plus(level.subtree, limit));
                }
                level.room = plus(left(level.local, level.usage).max(0), from_above);
                level.most = most;
            }
        }
        Self { nodes, frs, levels }
    }

    /// Nodes of the cohort forest that are over their quota, with flavor, resource and amount.
    pub(crate) fn debts(&self) -> BTreeMap<(Name, Fr), i128> {
        let mut debts = BTreeMap::new();
        for (node, levels) in self.nodes.iter().zip(&self.levels) {
            for (fr, level) in self.frs.iter().zip(levels).filter(|(_, level)| level.debt() > 0) {
                debts.insert((node.clone(), fr.clone()), level.debt());
            }
        }
        debts
    }

    /// Quota and usage of a queue in a flavor and resource; no quota and no usage if one of them is unknown.
    pub(crate) fn queue(&self, name: &str, flavor: &str, resource: &str) -> Level {
        let node = self.nodes.iter().position(|(is_queue, known)| *is_queue && known == name);
        let at = self.frs.iter().position(|fr| fr.0 == flavor && fr.1 == resource);
        node.zip(at).map_or(Level::default(), |(node, at)| self.levels[node][at])
    }
}

/// Own quota and limits of a node of the cohort forest, before quotas of other nodes are added.
fn quota(groups: &[ResourceGroup], fr: &Fr) -> Level {
    let amount = |amount: Amount| i128::from(amount.get());
    for group in groups {
        let Some(at) = group.covered.iter().position(|resource| *resource == fr.1) else { continue };
        let Some(flavor) = group.flavors.iter().find(|flavor| flavor.flavor == fr.0) else { continue };
        let quota = flavor.quotas[at];
        return Level {
            nominal: amount(quota.nominal),
            borrowing: quota.borrowing_limit.map(amount),
            lending: quota.lending_limit.map(amount),
            subtree: amount(quota.nominal),
            ..Level::default()
        };
    }
    Level::default()
}
