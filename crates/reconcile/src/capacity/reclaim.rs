//! Nodes that are being taken away, and started Workloads that have pods on these nodes.
//!
//! A taint announces that a node is going to be taken away ([`berth_cache::settings::Settings::reclaim_taints`]). Berth reads the pods of the node once, and
//! evicts at once a Workload that has a pod of the spot tier on the node: otherwise the Workload would hold its quota until the pod is lost and the patience is
//! over.

use berth_cache::tier_reasons::RECLAIMED;
use berth_cache::{Name, WorkloadView};
use berth_engine::model::Tier;
use jiff::Timestamp;

use super::tier_assignment::TierAssignment;
use super::tier_assignments::tier_assignments;
use crate::context::Context;
use crate::decision::{Decision, Draft};
use crate::workload::evict;
use crate::write::{Kind, ObjectKey, PodOnNode, Purpose, Query};

/// The Workloads that lose capacity with the given pods of a node, by name and uid.
pub fn lost_with(ctx: &Context<'_>, pods: &[PodOnNode]) -> Vec<(Name, String, TierAssignment)> {
    let lost = pods.iter().filter_map(|pod| {
        let (workload, pod_set) = ctx.workload_of_pod(pod)?;
        Some((workload.key(), workload.uid.clone(), ctx.leaves_with(workload, pod_set)?))
    });
    lost.collect()
}

impl<'a> Context<'a> {
    /// The Workload of a pod on a node, and the pod set of the pod.
    fn workload_of_pod(&self, pod: &'a PodOnNode) -> Option<(&'a WorkloadView, &'a str)> {
        let name: Name = (pod.namespace.clone(), pod.name.clone());
        if let Some(managed) = self.view.pods().get(&name).filter(|managed| *managed.uid == *pod.uid) {
            let group = || self.view.workloads().get(&berth_cache::pods::group_of(&pod.namespace, managed)?);
            return Some((self.view.workloads().owned_by(&pod.uid).next().or_else(group)?, managed.role()));
        }
        let (job, uid) = pod.job.as_ref()?;
        let object = ObjectKey { kind: Kind::JOB, namespace: pod.namespace.clone(), name: job.clone() };
        let job = self.view.jobs().get(&object).filter(|job| job.uid == *uid)?;
        // A Job has a Workload of its own, or is a part of a job with a Workload.
        let running = |owner: &str| self.view.workloads().owned_by(owner).find(|workload| workload.holds().is_some());
        // The older slices of an elastic job have ended.
        let above = || running(&job.owner.as_ref()?.uid);
        let workload = running(uid).or_else(above)?;
        Some((workload, &pod.pod_set))
    }

    /// The capacity that a Workload leaves because it loses a pod of a pod set with the pod's node; `None` if the Workload stays.
    fn leaves_with(&self, workload: &WorkloadView, pod_set: &str) -> Option<TierAssignment> {
        self.tier_rules(workload).filter(|rules| rules.signals.node_reclaimed)?;
        if self.view.job_of(workload).is_some_and(|job| job.independent) {
            return None;
        }
        tier_assignments(self, workload)
            .into_iter()
            .find(|assignment| assignment.tier == Tier::Spot && assignment.pod_set == pod_set)
    }
}

/// Reads the pods of a node.
pub fn ask(ctx: &Context<'_>, object: &ObjectKey) -> Decision {
    if !ctx.capacity.is_node_unasked(&object.name) {
        return Decision::Done;
    }
    Decision::write(Draft::ask(Purpose::FindPodsOnNode, object.clone(), Query::FindPodsOnNode))
}

/// Evicts a Workload that was admitted at the given time and has lost a node since; `None` if the Workload has lost no node.
pub(super) fn decide(
    ctx: &Context<'_>,
    workload: &WorkloadView,
    admitted: Timestamp,
    now: Timestamp,
) -> Option<Decision> {
    let loss = ctx.notes_of(workload).capacity().loss().filter(|loss| loss.at() >= admitted)?;
    Some(Decision::write(evict(workload, now, (RECLAIMED, ""), &loss.message())))
}

#[cfg(test)]
mod tests;
