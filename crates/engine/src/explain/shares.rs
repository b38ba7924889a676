//! Queries about the fair shares of ClusterQueues and Cohorts.

use std::collections::BTreeMap;

use crate::model::{Amount, FlavorResource};
use crate::quota::balance::{Usage, accumulate, in_usage, units};
use crate::quota::share::{ShareFigures, share_of};
use crate::world::World;

impl World {
    /// Share of a ClusterQueue (if `is_queue`) or Cohort, with its own usage increased by `extra`; `None` if there is no such object. Cost of `share`: the
    /// number of the ClusterQueue's or Cohort's cells and of the cells in `extra`.
    #[must_use]
    pub fn share(&self, name: &str, is_queue: bool, extra: &BTreeMap<FlavorResource, Amount>) -> Option<ShareFigures> {
        let node = if is_queue {
            self.store.queues[self.store.queue_ids.get(name).copied()?].node
        } else {
            self.tree.find_cohort(name)?
        };
        let on_top = self.known_usage(extra);
        let (share, dominant) = share_of(&self.store, &self.tree, node, &on_top);
        let has_parent = self.tree.nodes[node].parent.is_some();
        let cells = self.tree.nodes[node].cells.iter().filter(|cell| cell.has_quota);
        let over = cells.filter(|cell| cell.exceeds_with(in_usage(&on_top, cell.key)));
        let mut borrowed: Vec<FlavorResource> =
            over.filter(|_| has_parent).map(|cell| self.store.named(cell.key)).collect();
        borrowed.sort();
        let dominant_resource = dominant.map(|resource| self.store.resource(resource).to_owned());
        Some(ShareFigures { share, dominant_resource, borrowed })
    }

    /// Usage by cell, without flavors and resources that the world does not know.
    pub(crate) fn known_usage(&self, named: &BTreeMap<FlavorResource, Amount>) -> Usage {
        let mut usage = Usage::new();
        for (cell, value) in named {
            let flavor = self.store.flavor_names.get(&cell.flavor);
            let resource = self.store.resources.get(&cell.resource);
            let cell = flavor.zip(resource).and_then(|(flavor, resource)| self.store.find_cell(flavor, resource));
            if let Some(cell) = cell {
                accumulate(&mut usage, cell, units(*value));
            }
        }
        usage
    }
}
