//! A pod of a group: the effects of the group's Workload on the pod.

use berth_api::conditions::{own_reasons, reasons, types};
use berth_api::labels::ROLE_HASH;
use berth_cache::{WorkloadPhase, WorkloadView};
use berth_jobs::pods::STATEFUL_SET_FRAMEWORK;

use super::PodCase;
use super::kept::is_needed;
use super::right::{of_no_role, one_too_many};
use crate::decision::Decision;
use crate::workload::status::find_true;
use crate::write::EventType;

/// Decides about one pod of a group. Decisions that depend on other pods of the group are in `pod_group.rs`.
pub(super) fn decide(case: &PodCase<'_>, group: &str) -> Decision {
    let pod = case.pod;
    let leaves = pod.ended() || pod.deleting();
    if pod.held && leaves && pod.parent.as_deref() == Some(STATEFUL_SET_FRAMEWORK) {
        // A StatefulSet creates its next pod under the same name, so the name must become free; running pods of a StatefulSet are observed without Berth's
        // finalizer.
        return case.release();
    }
    let name = (case.name.0.clone(), group.to_owned());
    let Some(workload) = case.ctx.view.workloads().get(&name).filter(|workload| workload.group.is_some()) else {
        // The end of a pod matters to no Workload if the Workload is gone or not created yet.
        return match pod.held && pod.ended() {
            true => case.release(),
            false if case.is_tried() => Decision::Done,
            false if pod.runs() && !pod.reviewed => case.not_admitted(),
            false if pod.runs() => case.stop(reasons::NO_MATCHING_WORKLOAD, "Missing Workload"),
            false => Decision::Done,
        };
    };
    if workload.unreadable {
        return Decision::Done;
    }
    if pod.held && pod.deleting() && pod.ended() && !is_needed(case, workload) {
        return case.release();
    }
    if workload.is_finished() {
        return match (pod.runs(), pod.deleting()) {
            // The quota of a finished Workload is free, so a group that ended before all its pods did (after a failed start, for example) keeps none of them
            // running.
            (true, false) => case.stop(reasons::NOT_ADMITTED, "Workload is finished"),
            (false, _) if pod.held => case.release(),
            _ => Decision::Done,
        };
    }
    if workload.deleting {
        return leaving(case, workload);
    }
    if leaves {
        return Decision::Done;
    }
    let evicted = find_true(&workload.status.conditions, types::EVICTED);
    let admitted = workload.phase == WorkloadPhase::Admitted;
    match (pod.gated, evicted) {
        (false, Some(condition)) => case.evict(&condition.reason, &condition.message),
        (false, None) if !admitted && case.is_tried() => Decision::Done,
        (false, None) if !admitted => case.not_admitted(),
        (false, None) if pod.placing => case.place(workload),
        (false, None) => {
            case.without_right(workload).or_else(|| case.annotate_admission(workload)).unwrap_or(Decision::Done)
        }
        (true, _) if case.ctx.is_ending(&case.name.0) => case.withdraw_start().unwrap_or(Decision::Done),
        (true, _) if workload.sizes().all(|(role, _)| role != pod.role()) => unknown_role(case, workload),
        (true, None) if workload.may_run() && may_start(case, workload) => case.start(workload),
        (true, None) if workload.may_run() => case.withdraw_start().unwrap_or_else(|| without_place(case, workload)),
        _ => case.withdraw_start().unwrap_or(Decision::Done),
    }
}

/// The event about a pod that can never start, because the Workload of the group gets no further pod sets. Kueue sends no event about a pod of an unknown
/// role.
fn unknown_role(case: &PodCase<'_>, workload: &WorkloadView) -> Decision {
    let text = format!(
        "{}: it does not start; make it anew with the annotation {ROLE_HASH} of one of these, or delete the Workload and make all pods of the \
         group anew",
        of_no_role(case.pod, workload)
    );
    Decision::event(case.notice(EventType::Warning, own_reasons::ROLE_NOT_FOUND, text))
}

/// The event about an excess pod of a group. An excess pod is deleted, unless a controller would create it again; in that case, the excess pod waits while
/// other pods of the group run.
fn without_place(case: &PodCase<'_>, workload: &WorkloadView) -> Decision {
    let Some(group) = case.ctx.view.pods().group(&workload.key()) else { return Decision::Done };
    let role = group.tally.role(case.pod.role());
    let (of_set, size) = (case.pod.parent.as_deref() == Some(STATEFUL_SET_FRAMEWORK), workload.size(case.pod.role()));
    // The pod replaces another pod that is being deleted.
    let succeeds = role.counting.saturating_sub(role.leaving) <= size && !of_set;
    if group.tally.running == 0 || succeeds || !(of_set || case.pod.owner.is_some()) {
        return Decision::Done;
    }
    let text = if of_set {
        format!(
            "Workload {:?} was admitted for {size} pods of the StatefulSet, and this is one more: it does not start; scale the \
             StatefulSet to 0 and then to as many replicas as there shall be, or back to {size}",
            workload.name
        )
    } else {
        format!("{}: it does not start until one of them has ended", one_too_many(case.pod, workload))
    };
    Decision::event(case.notice(EventType::Warning, own_reasons::EXCESS_POD, text))
}

/// Decides about a pod whose group's Workload is being deleted: pods that own the Workload are stopped or deleted, and pods of the next group of the name
/// wait.
fn leaving(case: &PodCase<'_>, workload: &WorkloadView) -> Decision {
    let owned = workload.is_owned_by(&case.pod.uid);
    if case.pod.ended() {
        return match (owned, case.pod.deleting()) {
            // An ended pod is deleted with the other pods of its group, because the pod would otherwise count for the next group of the name.
            (true, false) => case.delete(reasons::STOPPED, "The workload is deleted"),
            (true, true) if case.pod.held => case.release(),
            _ => Decision::Done,
        };
    }
    // A running pod has used the quota of this Workload, even if a StatefulSet and not the pod owns the Workload.
    if !owned && !case.pod.runs() {
        return case.withdraw_start().unwrap_or(Decision::Done);
    }
    case.stop(reasons::WORKLOAD_DELETED, "The workload is deleted")
}

/// Whether the pod is among the admitted pods, and fewer pods run than were admitted. The running pods of all roles are counted, because a pod of another
/// role uses quota of the Workload until the pod has ended.
fn may_start(case: &PodCase<'_>, workload: &WorkloadView) -> bool {
    let size = workload.sizes().map(|(_, count)| count).fold(0, i32::saturating_add);
    let running = case.ctx.view.pods().group(&workload.key()).map_or(0, |group| group.tally.running);
    running < size && case.is_admitted(workload)
}

impl PodCase<'_> {
    /// Whether the pod is one of the admitted pods of its role, and not an excess pod.
    pub(super) fn is_admitted(&self, workload: &WorkloadView) -> bool {
        let (name, role) = (workload.key(), self.pod.role());
        let (pods, size) = (self.ctx.view.pods(), workload.size(role));
        let counting = pods.group(&name).map_or(0, |group| group.tally.role(role).counting);
        counting <= size || pods.has_place(&name, (&self.name.1, self.pod), size)
    }
}

#[cfg(test)]
mod tests;
