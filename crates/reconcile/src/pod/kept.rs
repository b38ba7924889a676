//! The time for which Berth's finalizer holds an ended and deleted pod of a group: until the end of the pod is recorded. The finalizer does not wait for a
//! replacement pod, because the replacement may need the pod's name or namespace, or may never be created.

use berth_api::conditions::types;
use berth_cache::WorkloadView;
use berth_jobs::pods::PodState;

use super::PodCase;

/// Whether a group still needs a pod that has ended and is being deleted.
pub(crate) fn is_needed(case: &PodCase<'_>, workload: &WorkloadView) -> bool {
    let (ctx, pod, name) = (case.ctx, case.pod, workload.key());
    let Some(group) = ctx.view.pods().group(&name).filter(|_| !ctx.is_ending(&name.0)) else { return false };
    let staying = group.tally.staying;
    let comes = |other: &str| {
        let other = ctx.view.pods().get(&(name.0.clone(), other.to_owned()));
        other.is_some_and(|other| other.counts() && !other.deleting())
    };
    // A pod that was observed after its Workload may own the Workload already.
    let is_new = |other: &&str| {
        let other = ctx.view.pods().get(&(name.0.clone(), (*other).to_owned()));
        other.is_some_and(|other| !workload.is_owned_by(&other.uid))
    };
    let newcomers: Vec<&str> = group.newcomers.iter().map(|other| &**other).filter(is_new).collect();
    let is_owned_by_none = i32::try_from(newcomers.len()).is_ok_and(|newcomers| staying <= newcomers);
    if staying > 0 && is_owned_by_none && newcomers.into_iter().any(comes) {
        // The pods that stay do not own the Workload yet, and the garbage collector would delete the Workload with the last pod that owns it.
        return true;
    }
    let evicted = workload.is(types::EVICTED);
    if counts_for_the_end(pod) {
        return staying > 0 || evicted;
    }
    // The Workload of an evicted group waits with its place in the queue. If no controller owns the Workload of an evicted group, one pod must stay as its
    // owner.
    let several = workload.sizes().map(|(_, count)| count).fold(0, i32::saturating_add) > 1;
    let keeps = |pod: &PodState| {
        pod.held && pod.condemned && pod.owner.is_none() && !counts_for_the_end(pod) && workload.is_owned_by(&pod.uid)
    };
    let first = || ctx.view.pods().members(&name).find(|(_, pod)| keeps(pod)).map(|(first, _)| first);
    evicted && several && staying == 0 && keeps(pod) && first() == Some(case.name.1.as_str())
}

/// Whether the success of a pod is part of the end of its group. A stopped pod with a controller is created again, possibly under the same name.
fn counts_for_the_end(pod: &PodState) -> bool {
    let serves = pod.group.as_ref().is_some_and(|group| group.serving);
    let stopped = pod.condemned && pod.owner.is_some();
    pod.succeeded() && !serves && !stopped
}

#[cfg(test)]
mod tests;
