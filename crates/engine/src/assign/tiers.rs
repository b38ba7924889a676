//! Capacity tiers: the tiers that a workload accepts, and the order in which the flavors of a resource group are tried for it.
//!
//! Family and tier are two axes: tiers order the flavors, and within a tier the order of the ClusterQueue holds.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use crate::assign::assignment::{Mode, PodSetResult};
use crate::assign::{Request, assign_free};
use crate::preempt::classical::leave;
use crate::quota::balance::{INF, Units, in_usage};
use crate::quota::tree::{Tree, Trial};
use crate::world::World;
use crate::world::ids::{CellId, FlavorId, ResourceId};
use crate::world::store::{Group, PodSet, Store};

/// The way in which capacity is bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Guaranteed: bought beforehand.
    Reserved,
    /// Stable: bought when it is used.
    OnDemand,
    /// Cheap, and taken away without asking.
    Spot,
}

impl Tier {
    /// The name, as in labels and annotations.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Tiers in words.
pub(crate) fn listed(tiers: &[Tier]) -> String {
    tiers.iter().map(|tier| tier.as_str()).collect::<Vec<_>>().join(", ")
}

impl World {
    /// The best tier that a workload with quota could have now without preemption, and the flavors there. `None` unless it accepts a tier that is
    /// better than its worst current one. Costs a scan over the flavors.
    pub fn better_tier(&mut self, uid: &str) -> Option<(Tier, Vec<String>)> {
        let id = self.store.by_uid.get(uid).copied()?;
        let workload = self.store.workload(id)?;
        let held = workload.held().filter(|held| !held.evicted && self.store.queues[held.queue].active)?;
        let request = Request::of(&self.store, &self.options, workload, held.queue);
        let accepted = request.pod_sets.first().and_then(|pod_set| request.tiers_of(pod_set))?;
        if request.pod_sets.iter().any(|pod_set| request.tiers_of(pod_set) != Some(accepted)) {
            return None;
        }
        let tier_of = |flavor: &FlavorId| self.store.flavors.get(flavor).and_then(|spec| spec.tier);
        let has = held.usage.iter().filter_map(|(cell, _)| tier_of(&self.store.cells.key(*cell).0));
        let worst = has.filter_map(|tier| accepted.iter().position(|other| *other == tier)).max()?;
        let mut trial = Trial::new(&mut self.tree);
        leave(&self.store, &mut trial, id, true);
        accepted.iter().take(worst).find_map(|tier| {
            let request = Request { tiers: Some(std::slice::from_ref(tier)), ..request };
            let found = assign_free(&self.store, trial.tree_mut(), &request);
            let given = found.pod_sets.iter().flat_map(PodSetResult::given);
            let flavors = given.map(|(_, flavor, _)| flavor).filter(|flavor| tier_of(flavor).is_some());
            let names: BTreeSet<&str> = flavors.map(|flavor| self.store.flavor(flavor)).collect();
            (found.mode() == Mode::Fit).then(|| (*tier, names.into_iter().map(str::to_owned).collect()))
        })
    }
}

impl<'a> Request<'a> {
    /// The tiers that a pod set accepts, best first; `None` when it takes the flavors in the queue's order. The workload's tiers come before the
    /// queue's tiers, and the queue's tiers do not apply to pods that select a kind of capacity themselves.
    pub(crate) fn tiers_of(&self, pod_set: &PodSet) -> Option<&'a [Tier]> {
        let default = || {
            let tiers = self.queue.spec.as_ref().map(|spec| spec.tiers.as_slice()).filter(|tiers| !tiers.is_empty());
            tiers.filter(|_| !pod_set.spec.asks_for_capacity())
        };
        self.tiers.or_else(default)
    }

    /// The flavors of a group in the order in which they are tried for a pod set. A group without any tier is tried in its own order.
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

    /// Amounts held, requested and allowed, if `value` more of a resource in the tier of a flavor exceeds the share that the queue may hold. Costs
    /// the nodes of its tree, if a share is set.
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

    /// Reason why a flavor is not among the flavors that are tried; `None` if it is.
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
