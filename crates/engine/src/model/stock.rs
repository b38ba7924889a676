//! Stock-outs of flavors, and the shapes of pods that they concern.

use std::collections::BTreeMap;

use crate::model::{Amount, Millis, PodSetSpec};

/// The capacity that one pod needs: its requests of devices, or all its requests if it requests no devices, and its constraints on nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Requests of one pod.
    pub requests: BTreeMap<String, Amount>,
    /// The pod template's own node selector, for example for a zone, a topology or a machine type.
    pub node_selector: BTreeMap<String, String>,
    /// Digest of further constraints on the pods' nodes, so that pods with constraints that no node meets cause no stock-out for other pods.
    pub constraints: u64,
}

impl Shape {
    /// The shape of a pod set's pods. Cost of `Shape::of`: the number of the pod set's requests and of the entries of its node selector.
    #[must_use]
    pub fn of(pod_set: &PodSetSpec) -> Self {
        let requests = pod_set.requests.iter().map(|(resource, amount)| (resource.as_str(), *amount));
        Self {
            requests: deciding_requests(requests).map(|(resource, amount)| (resource.to_owned(), amount)).collect(),
            node_selector: pod_set.node_selector.clone(),
            constraints: pod_set.constraints,
        }
    }
}

/// The requests by which machines are chosen: if a pod requests devices, its other requests, such as a sidecar's cpu, do not count.
pub(crate) fn deciding_requests<'a>(
    requests: impl Iterator<Item = (&'a str, Amount)> + Clone,
) -> impl Iterator<Item = (&'a str, Amount)> {
    let is_device = |resource: &str| resource.contains('/');
    let devices = requests.clone().any(|(resource, amount)| is_device(resource) && amount > Amount::ZERO);
    requests.filter(move |(resource, amount)| *amount > Amount::ZERO && (!devices || is_device(resource)))
}

/// A stock-out: a flavor without capacity for some pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockOut {
    /// Flavor.
    pub flavor: String,
    /// Shape of the pods.
    pub shape: Shape,
    /// Number of pods for which the flavor's capacity did not come; fewer pods may still be tried.
    pub pods: i64,
    /// End of the stock-out.
    pub until: Millis,
    /// Text that follows the flavor's name in the reason of workloads that skip the flavor.
    pub text: String,
}
