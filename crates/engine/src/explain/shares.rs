//! Queries about the fair shares of ClusterQueues and Cohorts.

use std::collections::BTreeMap;

use crate::model::{Amount, FlavorResource};
use crate::quota::balance::{Usage, accumulate, amount, in_usage, units};
use crate::quota::share::{ShareFigures, borrows_any, lendable, share_of};
use crate::world::World;

impl World {
    /// Share of a ClusterQueue (if `is_queue`) or Cohort, with its own usage increased by `extra`; `None` if there is no such object.
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

    /// True if a ClusterQueue, with its own usage increased by `extra`, is above its quota in a requested cell; `None` if there is no such ClusterQueue.
    #[must_use]
    pub fn borrows_requested(
        &self,
        cluster_queue: &str,
        requested: &BTreeMap<FlavorResource, Amount>,
        extra: &BTreeMap<FlavorResource, Amount>,
    ) -> Option<bool> {
        let node = self.store.queues[self.store.queue_ids.get(cluster_queue).copied()?].node;
        let (requested, extra) = (self.known_usage(requested), self.known_usage(extra));
        // A queue without a cohort does not borrow.
        Some(self.tree.nodes[node].parent.is_some() && borrows_any(&self.tree, node, &requested, &extra))
    }

    /// Quota that may be lent below a cohort, by resource; `None` if there is no such cohort.
    #[must_use]
    pub fn lendable(&self, cohort: &str) -> Option<BTreeMap<String, Amount>> {
        let lent = lendable(&self.store, &self.tree, self.tree.find_cohort(cohort)?);
        Some(lent.into_iter().map(|(resource, sum)| (self.store.resource(resource).to_owned(), amount(sum))).collect())
    }

    /// Usage by cell, without flavors and resources that the world does not know.
    fn known_usage(&self, named: &BTreeMap<FlavorResource, Amount>) -> Usage {
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
