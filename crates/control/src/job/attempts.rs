//! Pods that are over for good, of a job that is made of Jobs. The status of such a job counts Jobs that a restart runs again, and the restart may
//! come after the quota of their pods went back. Pods that run again are charged again.

use berth_api::ReclaimablePod;
use berth_jobs::JobState;

use crate::cache::{Name, Rare, View, WorkloadView};
use crate::write::ObjectKey;

/// Stores which pods of a workload run again; true if they have changed.
pub(crate) fn note_again(view: &mut View, name: &Name) -> bool {
    let Some(workload) = view.workloads.get(name) else { return false };
    let again = again_of(view, workload);
    if *workload.runs_again() == *again {
        return false;
    }
    if let Some(workload) = view.workloads.get_mut(name) {
        let mut rare = workload.rare.take().map_or_else(Rare::default, |rare| *rare);
        rare.again = again;
        workload.rare = rare.kept();
    }
    true
}

/// Workloads of a job that have given back quota of pods that are over. The job is made of Jobs, and has changed, or one of its Jobs has: some of the
/// pods may run again.
pub(crate) fn gave_back(view: &View, uid: &str) -> Vec<Name> {
    let gave_back = |workload: &&WorkloadView| !workload.status.reclaimable_pods.is_empty();
    view.workloads.owned_by(uid).filter(gave_back).map(WorkloadView::key).collect()
}

/// Pods of a job that will not run again, by pod set: as its status counts them, and for a job made of Jobs at most as many as its Jobs of the
/// present attempt show.
pub(crate) fn over_of(view: &View, key: &ObjectKey, job: &JobState) -> Vec<ReclaimablePod> {
    let mut told = job.reclaimable.clone();
    if told.is_empty() || !key.kind.is_made_of_jobs() {
        return told;
    }
    let named = || view.jobs.controlled_by(&key.namespace, &job.uid);
    if job.attempt == Some(0) && named().next().is_none() {
        // Only the JobSet's status counts its ended Jobs: no controller creates Jobs here, or all Jobs were cleaned up.
        return told;
    }
    for pods in &mut told {
        let ended = named().filter(|(name, part)| {
            let called = job.part_called(&key.name, &name.name);
            let counts = called.is_some_and(|(part, index)| *part.name == *pods.name && index < part.replicas);
            counts && part.attempt == job.attempt && part.finished.as_ref().is_some_and(|end| end.success)
        });
        let ended = i32::try_from(ended.count()).unwrap_or(i32::MAX);
        let each = job.parts.iter().find(|part| *part.name == *pods.name).map_or(0, |part| part.pods);
        pods.count = pods.count.min(ended.saturating_mul(each));
    }
    told.retain(|pods| pods.count > 0);
    told
}

/// Pods whose quota went back and that run again, by pod set.
fn again_of(view: &View, workload: &WorkloadView) -> Vec<ReclaimablePod> {
    let given_back = &workload.status.reclaimable_pods;
    if given_back.is_empty() || workload.is_finished() {
        return Vec::new();
    }
    let whole = workload.job().filter(|key| key.kind.is_made_of_jobs());
    let Some((key, job)) = whole.zip(view.job_of(workload)) else { return Vec::new() };
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
