//! Usage of pods that outlive their job: the job of their Workload was deleted without its pods. No job counts the pods that outlive their job, so their usage
//! beyond quota is charged to the Workload itself. If the job ran pods beyond its quota when it was deleted, the old charge stays until the pods that are left
//! were counted.

use std::collections::BTreeMap;

use berth_cache::WorkloadView;

use super::Found;
use crate::context::Context;
use crate::pod::job_pods::uncovered_odd_pods;
use crate::write::ObjectKey;

impl Context<'_> {
    /// Running pods of a Workload that has lost its job. As long as any pod of the deleted job may run, the full quota of its Workload counts as used: a query
    /// for the pods shows only some of them.
    pub(super) fn overrun_of_left(&self, object: &ObjectKey) -> Option<Found> {
        let workload = self.view.workloads().get(&(object.namespace.clone(), object.name.clone()))?;
        let job = workload.job_uid.as_deref().filter(|_| workload.owner.is_none() && workload.holds_quota())?;
        if workload.unreadable || self.quota.overruns().outlived.contains_key(&workload.uid) {
            return None;
        }
        let held = self.given_to(workload);
        let mut runs: BTreeMap<&str, i64> = BTreeMap::new();
        let pods = self.notes_of(workload).pods();
        if !pods.are_gone() {
            let left = pods.left().filter(|_| held.len() == 1);
            let left = left.map_or(0, |left| i64::try_from(left.count()).unwrap_or(i64::MAX));
            runs.extend(held.iter().map(|set| (set.name.as_str(), set.count.max(left))));
        }
        let ending = self.view.ending_pods().left_of(&workload.namespace, job);
        for (set, pods) in ending.chain(sets_of_uncovered_odd_pods(self, workload).map(|set| (set, 1))) {
            let sum = runs.entry(set).or_default();
            *sum = sum.saturating_add(pods);
        }
        let mut found = Found { carrier: workload.uid.clone(), queue: self.charged_for(workload), ..Found::default() };
        for set in &workload.shape.pod_sets {
            found.count(self, &held, set, runs.get(set.name.as_str()).copied().unwrap_or_default());
        }
        Some(found)
    }
}

/// Names of the pod sets of the pods that run beyond the quota of a Workload. A client may have changed the pod set's name in a pod: such a pod counts for the
/// first pod set.
pub(super) fn sets_of_uncovered_odd_pods<'a>(
    ctx: &'a Context<'a>,
    workload: &'a WorkloadView,
) -> impl Iterator<Item = &'a str> {
    let sets = &workload.shape.pod_sets;
    let known = |name: &str| sets.iter().find(|set| set.name == name).or_else(|| sets.first());
    uncovered_odd_pods(ctx, workload)
        .filter_map(move |(_, odd_pod)| known(&odd_pod.pod.set))
        .map(|set| set.name.as_str())
}

#[cfg(test)]
mod tests;
