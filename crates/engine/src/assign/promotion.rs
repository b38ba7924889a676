//! Better tiers for workloads that hold quota of a tier that is not their best one.

use std::collections::BTreeSet;

use crate::assign::assign_free;
use crate::assign::assignment::PodSetResult;
use crate::assign::mode::Mode;
use crate::assign::request::Request;
use crate::model::Tier;
use crate::preempt::trials::leave;
use crate::quota::tree::Trial;
use crate::world::World;
use crate::world::ids::FlavorId;

impl World {
    /// The best tier that a workload with quota could have now without preemption, and the flavors of that tier. The result is `None` if the workload accepts
    /// no tier that is better than its worst current tier, or no better tier has free quota. Cost of `better_tier`: a scan over the flavors for each better
    /// tier, without a search for victims.
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
