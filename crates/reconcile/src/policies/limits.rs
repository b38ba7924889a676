//! The limits of admission that a QueuePolicy sets for the Workloads of its ClusterQueues.

use berth_cache::WorkloadView;
use berth_cache::policy_rules::{Limits, fields};
use berth_engine::model as engine;
use berth_jobs::training::Accelerators;

use super::gpus;
use crate::context::Context;

/// The limit that forbids a Workload to hold quota, if `pods` gives the number of pods of each pod set: the field, and its value with the Workload's
/// request.
fn broken_by(
    limits: &Limits,
    workload: &WorkloadView,
    accelerators: &Accelerators,
    pods: impl Fn(&engine::PodSetSpec) -> i64,
) -> Option<(&'static str, String)> {
    let sets = &workload.shape.pod_sets;
    let asked = gpus::gpus(sets, accelerators, &pods);
    if let Some(most) = limits.max_gpus.filter(|most| asked > *most) {
        let least = if sets.iter().any(|set| pods(set) < set.count) { " at least" } else { "" };
        return Some((fields::MAX_GPUS, format!("is {most}, and the workload asks for {asked}{least}")));
    }
    let priority = workload.priority;
    if let Some(least) = limits.min_priority.filter(|least| priority < i64::from(*least)) {
        return Some((fields::MIN_PRIORITY, format!("is {least}, and the workload's priority is {priority}")));
    }
    let most = limits.max_priority.filter(|most| priority > i64::from(*most))?;
    Some((fields::MAX_PRIORITY, format!("is {most}, and the workload's priority is {priority}")))
}

impl Context<'_> {
    /// The limit that keeps a waiting Workload from admission for good, even with the fewest pods that the Workload accepts.
    pub(crate) fn limit_on(&self, workload: &WorkloadView) -> Option<String> {
        self.limit_with(workload, self.fewest(workload))
    }

    /// The limit that would keep a Workload from admission if `pods` gives the number of pods of each pod set.
    pub(crate) fn limit_with(
        &self,
        workload: &WorkloadView,
        pods: impl Fn(&engine::PodSetSpec) -> i64,
    ) -> Option<String> {
        let rules = self.rules_for(workload)?;
        let (field, text) = broken_by(&rules.limits, workload, &self.settings.accelerators, pods)?;
        Some(format!("QueuePolicy {}: {field} {text}", rules.source(field)))
    }
}

#[cfg(test)]
mod tests;
