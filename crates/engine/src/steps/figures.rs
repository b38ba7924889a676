//! Figures of quota that only tests ask for.

use std::collections::BTreeMap;

use super::Steps;
use crate::model::{Amount, FlavorResource};
use crate::quota::balance::amount;
use crate::quota::share::{borrows_any, lendable};

impl Steps<'_> {
    /// True if a ClusterQueue, with its own usage increased by `extra`, is above its quota in a requested cell; `None` if there is no such ClusterQueue. Cost
    /// of `borrows_requested`: the number of cells in `requested` and `extra`.
    #[must_use]
    pub fn borrows_requested(
        &self,
        cluster_queue: &str,
        requested: &BTreeMap<FlavorResource, Amount>,
        extra: &BTreeMap<FlavorResource, Amount>,
    ) -> Option<bool> {
        let node = self.0.store.queues[self.0.store.queue_ids.get(cluster_queue).copied()?].node;
        let (requested, extra) = (self.0.known_usage(requested), self.0.known_usage(extra));
        // A queue without a cohort does not borrow.
        Some(self.0.tree.nodes[node].parent.is_some() && borrows_any(&self.0.tree, node, &requested, &extra))
    }

    /// Quota that may be lent below a cohort, by resource; `None` if there is no such cohort. Cost of `lendable`: the number of cells at the root of the cohort
    /// tree times the depth of the cohort.
    #[must_use]
    pub fn lendable(&self, cohort: &str) -> Option<BTreeMap<String, Amount>> {
        let lent = lendable(&self.0.store, &self.0.tree, self.0.tree.find_cohort(cohort)?);
        Some(
            lent.into_iter().map(|(resource, sum)| (self.0.store.resource(resource).to_owned(), amount(sum))).collect(),
        )
    }
}
