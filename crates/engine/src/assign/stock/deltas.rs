//! Stock-outs that begin and end, and the look-up of the stock-out that keeps pods off a flavor.

use crate::assign::stock::StockOuts;
use crate::model::stock::deciding_requests;
use crate::model::{Millis, Shape, StockOut};
use crate::world::World;
use crate::world::ids::FlavorId;
use crate::world::store::{PodSet, Store};

impl Shape {
    fn is_of(&self, store: &Store, pod_set: &PodSet) -> bool {
        let own = self.requests.iter().map(|(resource, amount)| (resource.as_str(), *amount));
        let requests = pod_set.requests.iter();
        let asked =
            requests.map(|(resource, value)| (store.resource(*resource), crate::quota::balance::amount(*value)));
        self.constraints == pod_set.spec.constraints
            && self.node_selector == pod_set.spec.node_selector
            && deciding_requests(asked).eq(own)
    }
}

impl StockOuts {
    /// Reason why a flavor is not tried for `count` pods of a pod set; `None` if the flavor is tried.
    pub(crate) fn find(&self, store: &Store, flavor: FlavorId, pod_set: &PodSet, count: i64) -> Option<&str> {
        let known = self.0.get(&flavor)?;
        let found = known.iter().find(|out| out.pods <= count && out.shape.is_of(store, pod_set));
        found.map(|out| out.text.as_str())
    }
}

impl World {
    /// Takes in a stock-out, in place of an earlier stock-out of the same flavor and shape.
    pub(crate) fn set_stock_out(&mut self, out: StockOut) {
        let flavor = self.store.flavor_names.intern(&out.flavor);
        self.drop_stock_out(flavor, &out.shape);
        self.store.stock_outs.0.entry(flavor).or_default().push(out);
    }

    /// Ends the stock-out of a flavor for pods of a shape.
    pub(crate) fn end_stock_out(&mut self, flavor: &str, shape: &Shape) {
        if let Some(flavor) = self.store.flavor_names.get(&flavor.to_owned()) {
            self.drop_stock_out(flavor, shape);
        }
    }

    fn drop_stock_out(&mut self, flavor: FlavorId, shape: &Shape) {
        let Some(known) = self.store.stock_outs.0.get_mut(&flavor) else { return };
        let before = known.len();
        known.retain(|out| out.shape != *shape);
        let found = known.len() < before;
        if known.is_empty() {
            self.store.stock_outs.0.remove(&flavor);
        }
        if found {
            // The flavor is also tried again if another stock-out follows at once, because the new stock-out may concern fewer workloads.
            self.wake_flavor(flavor);
        }
    }

    /// Lets flavors be tried again whose stock-outs have ended.
    pub(crate) fn release_stock(&mut self, now: Millis) {
        for flavor in self.store.stock_outs.take_over(now) {
            self.wake_flavor(flavor);
        }
    }
}
