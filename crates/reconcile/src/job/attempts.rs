//! Pods of a JobSet that will not run again. The status of a JobSet also counts Jobs that a restart runs again, and the restart may come after the quota of
//! their pods was given back. Pods of a JobSet that run again after a restart are charged again.

use berth_api::ReclaimablePod;
use berth_cache::{Name, View, WorkloadView};
use berth_jobs::JobState;

use crate::write::ObjectKey;

/// Stores the pods of a Workload that run again after their quota was given back; true if these pods have changed.
pub fn note_again(view: &mut View, name: &Name) -> bool {
    let Some(workload) = view.workloads().get(name) else { return false };
    let again = again_of(view, workload);
    if *workload.runs_again() == *again {
        return false;
    }
    view.put_pods_that_run_again(name, again);
    true
}

/// The Workloads of a JobSet that have given back quota of ended pods. Some of the ended pods of these Workloads may run again, because the JobSet or one of
/// its Jobs has changed.
pub(crate) fn gave_back(view: &View, uid: &str) -> Vec<Name> {
    let gave_back = |workload: &&WorkloadView| !workload.status.reclaimable_pods.is_empty();
    view.workloads().owned_by(uid).filter(gave_back).map(WorkloadView::key).collect()
}

/// The pods of a job that will not run again, by pod set. The job's status counts the pods that will not run again; for a JobSet, the count is limited to the
/// pods of ended Jobs of the present attempt.
pub(crate) fn over_of(view: &View, key: &ObjectKey, job: &JobState) -> Vec<ReclaimablePod> {
    let mut reported = job.reclaimable.clone();
    if reported.is_empty() || !key.kind.is_made_of_jobs() {
        return reported;
    }
    let named = || view.jobs().controlled_by(&key.namespace, &job.uid);
    if job.attempt == Some(0) && named().next().is_none() {
        // The JobSet's status alone counts its ended Jobs if no JobSet controller creates Jobs in this cluster, or if all Jobs were cleaned up.
        return reported;
    }
    for pods in &mut reported {
        let ended = named().filter(|(name, part)| {
            let called = job.part_called(&key.name, &name.name);
            let counts = called.is_some_and(|(part, index)| *part.name == *pods.name && index < part.replicas);
            counts && part.attempt == job.attempt && part.finished.as_ref().is_some_and(|end| end.success)
        });
        let ended = i32::try_from(ended.count()).unwrap_or(i32::MAX);
        let each = job.parts.iter().find(|part| *part.name == *pods.name).map_or(0, |part| part.pods);
        pods.count = pods.count.min(ended.saturating_mul(each));
    }
    reported.retain(|pods| pods.count > 0);
    reported
}

/// The pods whose quota was given back and that run again, by pod set.
fn again_of(view: &View, workload: &WorkloadView) -> Vec<ReclaimablePod> {
    let given_back = &workload.status.reclaimable_pods;
    if given_back.is_empty() || workload.is_finished() {
        return Vec::new();
    }
    let owner_key = workload.job().filter(|key| key.kind.is_made_of_jobs());
    let Some((key, job)) = owner_key.zip(view.job_of(workload)) else { return Vec::new() };
    if job.finished.is_some() {
        return Vec::new();
    }
    let over = over_of(view, &key, job);
    let again = given_back.iter().filter_map(|back| {
        let over = over.iter().find(|over| over.name == back.name).map_or(0, |over| over.count);
        let count = back.count.saturating_sub(over);
        (count > 0).then(|| ReclaimablePod { name: back.name.clone(), count })
    });
    again.collect()
}

#[cfg(test)]
mod tests;
