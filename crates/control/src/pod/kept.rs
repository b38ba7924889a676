//! How long our finalizer holds a pod of a group that is being deleted and has ended: until its end is recorded. The finalizer waits for no
//! replacement, which may need the pod's name or its namespace, and may never come.

use berth_api::conditions::types;
use berth_jobs::pods::PodState;

use super::PodCase;
use crate::cache::WorkloadView;

/// Whether a group still needs a pod that is being deleted and has ended.
pub(crate) fn is_needed(case: &PodCase<'_>, workload: &WorkloadView) -> bool {
    let (ctx, pod, name) = (case.ctx, case.pod, workload.key());
    let Some(group) = ctx.view.pods.group(&name).filter(|_| !ctx.is_ending(&name.0)) else { return false };
    let staying = group.tally.staying;
    let comes = |other: &str| {
        let other = ctx.view.pods.get(&(name.0.clone(), other.to_owned()));
        other.is_some_and(|other| other.counts() && !other.deleting())
    };
    let newcomers = i32::try_from(group.newcomers.len()).unwrap_or(i32::MAX);
    if staying > 0 && staying <= newcomers && group.newcomers.iter().any(|other| comes(other)) {
        // The pods that stay do not own the Workload yet: the garbage collector takes it with the last of its owners.
        return true;
    }
    let evicted = workload.is(types::EVICTED);
    if counts_for_the_end(pod) {
        return staying > 0 || evicted;
    }
    // The Workload of an evicted group waits with its place in the queue. Where no controller owns it, one pod must.
    let several = workload.sizes().map(|(_, count)| count).fold(0, i32::saturating_add) > 1;
    let keeps = |pod: &PodState| {
        pod.held && pod.condemned && pod.owner.is_none() && !counts_for_the_end(pod) && workload.is_owned_by(&pod.uid)
    };
    let first = || ctx.view.pods.members(&name).find(|(_, pod)| keeps(pod)).map(|(first, _)| first);
    evicted && several && staying == 0 && keeps(pod) && first() == Some(case.name.1.as_str())
}

/// Whether the success of this pod is part of the end of its group. A pod that was stopped and has a controller is made again, maybe under its name.
fn counts_for_the_end(pod: &PodState) -> bool {
    let serves = pod.group.as_ref().is_some_and(|group| group.serving);
    let stopped = pod.condemned && pod.owner.is_some();
    pod.succeeded() && !serves && !stopped
}
