//! Dominant resource shares, as in Kueue: the usage of a queue or cohort above its quota, relative to the lendable quota and to the weight of the queue or
//! cohort.

#![expect(clippy::float_arithmetic, reason = "shares are ratios, compared as floats as Kueue does")]

use std::cmp::Ordering;

use crate::model::FlavorResource;
use crate::quota::balance::{INF, Units, add_to, in_usage, plus};
use crate::quota::tree::Tree;
use crate::world::ids::{CellId, NodeId, ResourceId};
use crate::world::store::Store;

const NANO: f64 = 1_000_000_000.0;

/// The value that decides between two queues or cohorts under fair sharing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Largest borrowed part over all resources, in thousandths of the lendable quota, before it is divided by the weight.
    pub ratio: f64,
    /// Weight of the queue or cohort in fair sharing; a negative weight counts as 0.
    pub weight: f64,
    /// True if the usage of some cell exceeds the quota of the subtree, even if no quota of its resource may be lent.
    pub borrowing: bool,
}

impl Share {
    /// The ratio divided by the weight, as gauges show it: not rounded, and infinite for a borrower with weight 0. Cost: constant.
    #[must_use]
    pub fn value(&self) -> f64 {
        if self.ratio <= 0.0 {
            0.0
        } else if self.weight <= 0.0 {
            f64::INFINITY
        } else {
            self.ratio / self.weight
        }
    }

    /// The share as the status shows it: rounded up, and `i64::MAX` for a borrower with weight 0. Cost: constant.
    #[must_use]
    pub fn rounded(&self) -> i64 {
        let value = self.value().ceil();
        #[expect(clippy::cast_possible_truncation, reason = "a cast from float saturates")]
        {
            value as i64
        }
    }

    /// Compares two shares, the smaller share first. Borrowers with weight 0 come last, and among them the ratio decides. Cost: constant.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        let is_boundless = |share: &Self| share.weight <= 0.0 && share.ratio > 0.0;
        match (is_boundless(self), is_boundless(other)) {
            (true, true) => self.ratio.total_cmp(&other.ratio),
            (false, false) => self.value().total_cmp(&other.value()),
            (own, _) => own.cmp(&!own),
        }
    }
}

/// Share of a queue or cohort, with the resource and the cells from which it comes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShareFigures {
    /// The share.
    pub share: Share,
    /// Resource that gave the ratio; of several resources with the same ratio, the first one by name.
    pub dominant_resource: Option<String>,
    /// Cells in which usage is above the quota of the subtree.
    pub borrowed: Vec<FlavorResource>,
}

/// Amount that the nodes below a cohort may use if no quota is in use, by resource.
pub(crate) fn lendable(store: &Store, tree: &Tree, cohort: NodeId) -> Vec<(ResourceId, Units)> {
    let mut sums: Vec<(ResourceId, Units)> = Vec::new();
    for cell in &tree.nodes[tree.root(cohort)].cells {
        let resource = store.cells.key(cell.key).1;
        let value = tree.potential(cohort, cell.key);
        match sums.iter_mut().find(|(known, _)| *known == resource) {
            Some((_, sum)) => *sum = plus(*sum, value),
            None => sums.push((resource, value)),
        }
    }
    sums
}

/// Share of a queue or cohort with its usage increased by `extra`, and the resource that gave the share. A root has no share. The cost of `share_of` is the
/// number of cells of the queue or cohort.
pub(crate) fn share_of(
    store: &Store,
    tree: &Tree,
    node: NodeId,
    extra: &[(CellId, Units)],
) -> (Share, Option<ResourceId>) {
    let weight = tree.nodes[node].weight;
    let mut share = Share { ratio: 0.0, weight: weight.max(0) as f64 / NANO, borrowing: false };
    let Some(parent) = tree.nodes[node].parent else { return (share, None) };
    let mut borrowed: Vec<(ResourceId, Units)> = Vec::new();
    for cell in tree.nodes[node].cells.iter().filter(|cell| cell.has_quota) {
        let used = || cell.usage.saturating_add(in_usage(extra, cell.key));
        let over = if cell.subtree >= INF { 0 } else { used().saturating_sub(cell.subtree) };
        if over > 0 {
            share.borrowing = true;
            let resource = store.cells.key(cell.key).1;
            match borrowed.iter_mut().find(|(known, _)| *known == resource) {
                Some((_, sum)) => add_to(sum, over),
                None => borrowed.push((resource, over)),
            }
        }
    }
    let mut dominant: Option<ResourceId> = None;
    for (resource, over) in borrowed {
        let lent = tree.nodes[parent].lendable.iter().find(|(known, _)| *known == resource).map_or(0, |(_, sum)| *sum);
        if lent <= 0 {
            continue;
        }
        let ratio = over as f64 * 1000.0 / lent as f64;
        let first = |known: ResourceId| store.resource(resource) < store.resource(known);
        if ratio > share.ratio || (ratio == share.ratio && dominant.is_none_or(first)) {
            share.ratio = ratio;
            dominant = Some(resource);
        }
    }
    (share, dominant)
}

/// Whether a request has a positive amount in a borrowed cell.
pub(crate) fn asks_for<K>(requested: impl IntoIterator<Item = (K, Units)>, is_borrowed: impl Fn(&K) -> bool) -> bool {
    requested.into_iter().any(|(key, value)| value > 0 && is_borrowed(&key))
}

/// Whether a queue or cohort, with its usage increased by `extra`, is above its quota in one of the requested cells. Usage of a cell without quota is left over
/// from an earlier quota and does not count, as for shares.
pub(crate) fn borrows_any(tree: &Tree, node: NodeId, usage: &[(CellId, Units)], extra: &[(CellId, Units)]) -> bool {
    asks_for(usage.iter().copied(), |key| {
        let cell = tree.cell(node, *key);
        cell.has_quota && cell.exceeds_with(in_usage(extra, *key))
    })
}
