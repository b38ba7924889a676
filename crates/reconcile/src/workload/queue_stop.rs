//! Effects on a workload with quota if its LocalQueue or ClusterQueue is stopped, gone or being deleted.

use berth_api::conditions::reasons;
use berth_cache::WorkloadView;
use berth_cache::deltas;
use berth_engine::model as engine;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::context::Context;

/// Message about the LocalQueue or ClusterQueue of a workload with quota that is gone or being deleted.
pub(crate) fn missing_queue(ctx: &Context<'_>, workload: &WorkloadView) -> Option<String> {
    let stays = |metadata: &ObjectMeta| metadata.deletion_timestamp.is_none();
    let local = ctx.view.local_queues().get(&workload.local_queue());
    // A workload that names no LocalQueue got its quota from another client.
    if !workload.queue.is_empty() && !local.is_some_and(|queue| stays(&queue.metadata)) {
        return Some(format!("LocalQueue {} is terminating or missing", workload.queue));
    }
    let name = workload.status.admission.as_ref()?.cluster_queue.as_deref().unwrap_or_default();
    let cluster = ctx.view.cluster_queues().get(name);
    (!cluster.is_some_and(|queue| stays(&queue.metadata)))
        .then(|| format!("ClusterQueue {name} is terminating or missing"))
}

/// Message about a flavor of a workload with quota that its ClusterQueue does not have any more; `None` if the ClusterQueue is gone.
pub(crate) fn lost_flavor(ctx: &Context<'_>, workload: &WorkloadView) -> Option<String> {
    let name = workload.status.admission.as_ref()?.cluster_queue.as_deref().unwrap_or_default();
    let queue = ctx.view.cluster_queues().get(name)?;
    let has = |flavor: &String| {
        let mut groups = queue.spec.resource_groups.iter();
        groups.any(|group| group.flavors.iter().any(|quota| quota.name == *flavor))
    };
    let flavor = workload.given_flavors().find(|flavor| !has(flavor))?;
    Some(format!("ClusterQueue {name} has flavor {flavor} no longer"))
}

/// The reason why a workload with quota may not keep the quota for long: reason of its eviction, true if an admitted workload is evicted, too, and the message.
pub(crate) fn queue_stop(ctx: &Context<'_>, workload: &WorkloadView) -> Option<(&'static str, bool, String)> {
    let local = ctx.view.local_queues().get(&workload.local_queue());
    let name = workload
        .status
        .admission
        .as_ref()
        .and_then(|admission| admission.cluster_queue.clone())
        .or_else(|| local.and_then(|queue| queue.spec.cluster_queue.clone()))?;
    let cluster = ctx.view.cluster_queues().get(&name);
    match cluster.map(|queue| deltas::stop(queue.spec.stop_policy.as_deref())) {
        Some(engine::StopPolicy::Hold) => {
            return Some((reasons::CLUSTER_QUEUE_STOPPED, false, format!("ClusterQueue {name} is stopped")));
        }
        Some(engine::StopPolicy::HoldAndDrain) => {
            return Some((reasons::CLUSTER_QUEUE_STOPPED, true, "The ClusterQueue is stopped".into()));
        }
        _ => {}
    }
    match local.map(|queue| deltas::stop(queue.spec.stop_policy.as_deref())) {
        Some(engine::StopPolicy::Hold) => {
            Some((reasons::LOCAL_QUEUE_STOPPED, false, format!("LocalQueue {} is stopped", workload.queue)))
        }
        Some(engine::StopPolicy::HoldAndDrain) => {
            Some((reasons::LOCAL_QUEUE_STOPPED, true, "The LocalQueue is stopped".into()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
