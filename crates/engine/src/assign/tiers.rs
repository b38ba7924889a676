//! Capacity tiers: the tiers that a workload accepts, and the order in which the flavors of a resource group are tried for the workload.
//!
//! Tiers order the flavors; within a tier, the order of the ClusterQueue holds.

use std::borrow::Cow;

use crate::assign::request::Request;
use crate::model::Tier;
use crate::quota::balance::{INF, Units, in_usage};
use crate::quota::tree::Tree;
use crate::world::ids::{CellId, FlavorId, ResourceId};
use crate::world::store::{Group, PodSet, Store};

/// Tiers in words.
pub(crate) fn listed(tiers: &[Tier]) -> String {
    tiers.iter().map(|tier| tier.as_str()).collect::<Vec<_>>().join(", ")
}

impl<'a> Request<'a> {
    /// The tiers that a pod set accepts, the best tier first; `None` if the flavors are tried in the queue's order. The workload's tiers take precedence over
    /// the queue's tiers, and the queue's tiers do not apply to pods that select a kind of capacity themselves.
    pub(crate) fn tiers_of(&self, pod_set: &PodSet) -> Option<&'a [Tier]> {
        let default = || {
            let tiers = self.queue.spec.as_ref().map(|spec| spec.tiers.as_slice()).filter(|tiers| !tiers.is_empty());
            tiers.filter(|_| !pod_set.spec.asks_for_capacity())
        };
        self.tiers.or_else(default)
    }

    /// The flavors of a resource group in the order in which they are tried for a pod set. A group in which no flavor has a tier is tried in its own order.
    pub(crate) fn line(&self, store: &Store, pod_set: &PodSet, group: &'a Group) -> Cow<'a, [FlavorId]> {
        let tier_of = |flavor: &FlavorId| store.flavors.get(flavor).and_then(|spec| spec.tier);
        match self.tiers_of(pod_set).filter(|_| group.flavors.iter().any(|flavor| tier_of(flavor).is_some())) {
            None => Cow::Borrowed(&group.flavors),
            Some(accepted) => {
                let of = |tier: &Tier| {
                    let tier = *tier;
                    group.flavors.iter().copied().filter(move |flavor| tier_of(flavor) == Some(tier))
                };
                accepted.iter().flat_map(of).collect()
            }
        }
    }

    /// Amounts held, requested and allowed, if `value` more of a resource in the tier of a flavor exceeds the share of the tier that the queue may hold;
    /// otherwise `None`. The cost of `over_share` is the number of nodes of the cohort tree, if a share is set.
    pub(crate) fn over_share(
        &self,
        store: &Store,
        tree: &Tree,
        (flavor, resource): (FlavorId, ResourceId),
        value: Units,
        assumed: &[(CellId, Units)],
    ) -> Option<[Units; 3]> {
        let tier = store.flavors.get(&flavor)?.tier?;
        let [reserved, on_demand, spot] = self.queue.spec.as_ref()?.max_shares;
        let percent = match tier {
            Tier::Reserved => reserved,
            Tier::OnDemand => on_demand,
            Tier::Spot => spot,
        }?;
        let flavors = store.flavors.iter().filter(|(_, spec)| spec.tier == Some(tier));
        let cells: Vec<CellId> = flavors.filter_map(|(flavor, _)| store.find_cell(*flavor, resource)).collect();
        let nominal = |node| cells.iter().map(move |cell| tree.cell(node, *cell).nominal);
        let nodes = tree.bottom_up(tree.root(self.queue.node));
        let all = nodes.into_iter().flat_map(nominal).fold(0, |sum: Units, own| sum.saturating_add(own).min(INF));
        let held = |cell: &CellId| tree.cell(self.queue.node, *cell).usage.saturating_add(in_usage(assumed, *cell));
        let held: Units = cells.iter().map(held).sum();
        let most = if all >= INF { INF } else { all.saturating_mul(Units::from(percent)) / 100 };
        (held.saturating_add(value) > most).then_some([held, value, most])
    }

    /// Reason why a flavor is not among the flavors that are tried for a pod set; `None` if the flavor is among them.
    pub(crate) fn not_accepted(
        &self,
        store: &Store,
        pod_set: &PodSet,
        group: &'a Group,
        flavor: FlavorId,
    ) -> Option<String> {
        if self.line(store, pod_set, group).contains(&flavor) {
            return None;
        }
        let accepted = listed(self.tiers_of(pod_set).unwrap_or_default());
        let tier = store.flavors.get(&flavor).and_then(|spec| spec.tier);
        Some(match tier {
            Some(tier) => format!("flavor {} is {tier} capacity; accepted are {accepted}", store.flavor(flavor)),
            None => format!("flavor {} is of no tier; accepted are {accepted}", store.flavor(flavor)),
        })
    }
}
