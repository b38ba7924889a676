//! Stock-outs: capacity that quota promises and that was not to be had lately. A flavor that is out of stock for pods of a
//! shape is skipped by every workload that asks for as many of them, until its time has passed.
//!
//! Who learns of stock-outs and how long they last is `control`'s business; here they are data with an end.

use std::collections::BTreeMap;

use crate::model::{Amount, Millis, PodSetSpec};
use crate::world::World;
use crate::world::ids::FlavorId;
use crate::world::store::{PodSet, Store};

/// What capacity is asked for pod by pod: devices, or cpu and memory where there are none, and what the pods select.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Requests of one pod.
    pub requests: BTreeMap<String, Amount>,
    /// The template's own node selector: zone, topology, machine.
    pub node_selector: BTreeMap<String, String>,
    /// Digest of what else narrows the pods' nodes: whoever asks for what no node has, runs out of it alone.
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

/// The requests by which machines are chosen: a sidecar's cpu beside a device tells nothing.
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
    /// So many pods at once were not to be had; fewer may be tried.
    pub pods: i64,
    /// Until then it is not tried.
    pub until: Millis,
    /// What workloads are told that skip it, after the flavor's name.
    pub text: String,
}

/// The stock-outs that hold.
#[derive(Debug, Default)]
pub(crate) struct StockOuts(BTreeMap<FlavorId, Vec<StockOut>>);

impl StockOuts {
    /// Why a flavor is not tried for pods.
    pub(crate) fn find(&self, store: &Store, flavor: FlavorId, pod_set: &PodSet, count: i64) -> Option<&str> {
        let known = self.0.get(&flavor)?;
        let found = known.iter().find(|out| out.pods <= count && out.shape.is_of(store, pod_set));
        found.map(|out| out.text.as_str())
    }

    /// When the next one ends.
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
    /// A flavor is out of stock; what was known of the same shape is replaced.
    pub(crate) fn set_stock_out(&mut self, out: StockOut) {
        let flavor = self.store.flavor_names.intern(&out.flavor);
        self.drop_stock_out(flavor, &out.shape);
        self.store.stock_outs.0.entry(flavor).or_default().push(out);
    }

    /// A flavor is in stock again for a shape.
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
            // Also where another one follows at once: it may concern fewer workloads.
            self.wake_flavor(flavor);
        }
    }

    /// Lets flavors be tried again whose time has passed.
    pub(crate) fn release_stock(&mut self, now: Millis) {
        for flavor in self.store.stock_outs.take_over(now) {
            self.wake_flavor(flavor);
        }
    }
}
