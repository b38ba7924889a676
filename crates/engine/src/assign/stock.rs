//! Stock-outs: quota promises capacity, but its nodes did not come lately. A flavor that is out of stock for pods of a shape is skipped by
//! every workload that asks for at least as many of them, until the stock-out ends.
//!
//! `control` detects stock-outs and sets their length; here they are data with an end.

use std::collections::BTreeMap;

use crate::model::{Amount, Millis, PodSetSpec};
use crate::world::World;
use crate::world::ids::FlavorId;
use crate::world::store::{PodSet, Store};

/// The capacity that one pod needs: devices, or all requests where there are no devices, and the constraints on nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Requests of one pod.
    pub requests: BTreeMap<String, Amount>,
    /// The template's own node selector: zone, topology, machine.
    pub node_selector: BTreeMap<String, String>,
    /// Digest of further constraints on the pods' nodes: pods with constraints that no node meets cause no stock-out for other pods.
    pub constraints: u64,
}

impl Shape {
    /// The shape of a pod set's pods.
    #[must_use]
    pub fn of(pod_set: &PodSetSpec) -> Self {
        let requests = pod_set.requests.iter().map(|(resource, amount)| (resource.as_str(), *amount));
        Self {
            requests: telling(requests).map(|(resource, amount)| (resource.to_owned(), amount)).collect(),
            node_selector: pod_set.node_selector.clone(),
            constraints: pod_set.constraints,
        }
    }

    fn is_of(&self, store: &Store, pod_set: &PodSet) -> bool {
        let own = self.requests.iter().map(|(resource, amount)| (resource.as_str(), *amount));
        let requests = pod_set.requests.iter();
        let asked =
            requests.map(|(resource, value)| (store.resource(*resource), crate::quota::balance::amount(*value)));
        self.constraints == pod_set.spec.constraints
            && self.node_selector == pod_set.spec.node_selector
            && telling(asked).eq(own)
    }
}

/// The requests by which machines are chosen: beside devices, other requests such as a sidecar's cpu do not count.
fn telling<'a>(requests: impl Iterator<Item = (&'a str, Amount)> + Clone) -> impl Iterator<Item = (&'a str, Amount)> {
    let is_device = |resource: &str| resource.contains('/');
    let devices = requests.clone().any(|(resource, amount)| is_device(resource) && amount > Amount::ZERO);
    requests.filter(move |(resource, amount)| *amount > Amount::ZERO && (!devices || is_device(resource)))
}

/// A flavor without capacity for some pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockOut {
    /// Flavor.
    pub flavor: String,
    /// Shape of the pods.
    pub shape: Shape,
    /// Number of pods for which the capacity did not come; fewer pods may be tried.
    pub pods: i64,
    /// End of the stock-out.
    pub until: Millis,
    /// Reason for workloads that skip the flavor, to follow the flavor's name.
    pub text: String,
}

/// The stock-outs that hold.
#[derive(Debug, Default)]
pub(crate) struct StockOuts(BTreeMap<FlavorId, Vec<StockOut>>);

impl StockOuts {
    /// Reason why a flavor is not tried for `count` pods; `None` if it is tried.
    pub(crate) fn find(&self, store: &Store, flavor: FlavorId, pod_set: &PodSet, count: i64) -> Option<&str> {
        let known = self.0.get(&flavor)?;
        let found = known.iter().find(|out| out.pods <= count && out.shape.is_of(store, pod_set));
        found.map(|out| out.text.as_str())
    }

    /// End of the stock-out that ends next.
    pub(crate) fn next_end(&self) -> Option<Millis> {
        self.0.values().flatten().map(|out| out.until).min()
    }

    fn take_over(&mut self, now: Millis) -> Vec<FlavorId> {
        let mut freed = Vec::new();
        self.0.retain(|flavor, known| {
            let before = known.len();
            known.retain(|out| out.until > now);
            if known.len() < before {
                freed.push(*flavor);
            }
            !known.is_empty()
        });
        freed
    }
}

impl World {
    /// Takes in a stock-out, in place of an earlier one of the same flavor and shape.
    pub(crate) fn set_stock_out(&mut self, out: StockOut) {
        let flavor = self.store.flavor_names.intern(&out.flavor);
        self.drop_stock_out(flavor, &out.shape);
        self.store.stock_outs.0.entry(flavor).or_default().push(out);
    }

    /// Ends the stock-out of a flavor for a shape.
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
            // The flavor is also woken where another stock-out follows at once: that one may concern fewer workloads.
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
