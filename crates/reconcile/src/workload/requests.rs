//! Requests of a Workload, as the Workload's status shows them.

use berth_api as api;
use berth_cache::deltas;
use berth_cache::workload_view::WorkloadView;

/// The requests of a Workload's pod sets, in the form of `status.resourceRequests`.
pub(crate) fn requests_of(workload: &WorkloadView) -> Vec<api::PodSetRequest> {
    workload
        .shape
        .pod_sets
        .iter()
        .map(|set| api::PodSetRequest {
            name: set.name.clone(),
            resources: set
                .requests
                .iter()
                .map(|(resource, amount)| {
                    let total = amount.mul(set.count);
                    (resource.clone(), deltas::quantity(resource, total))
                })
                .collect(),
        })
        .collect()
}
