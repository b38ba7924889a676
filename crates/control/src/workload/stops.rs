//! Queues that stop, or go, and what that means for the quota of their workloads (kueue.md 6.17).

use berth_api::conditions::{own_reasons, reasons, types};
use berth_engine::model as engine;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cache::WorkloadView;
use crate::capacity::watch::returns_at_once;
use crate::controller::Control;
use crate::controller::flight::Decision;
use crate::deltas;
use crate::workload::status::find;
use crate::workload::{evict, has_finalizer, remove_finalizer, status_write};
use crate::write::Purpose;

/// The quota of a workload that was evicted and of which nothing runs any more goes back; for what it was evicted says whether it may be tried
/// again at once.
pub(crate) fn release(workload: &WorkloadView, now: Timestamp) -> Decision {
    let reason = find(&workload.status.conditions, types::EVICTED).map(|condition| condition.reason.as_str());
    release_as(workload, reason.is_some_and(returns_at_once), now)
}

/// The same, where it is known whether it is `requeued`.
pub(crate) fn release_as(workload: &WorkloadView, requeued: bool, now: Timestamp) -> Decision {
    Decision::write(status_write(workload, Purpose::ReleaseQuota, now, |edit| edit.release(requeued)))
}

/// The quota of a workload that goes, and of which nothing runs any more, goes back: it is not tried again.
pub(crate) fn release_for_good(workload: &WorkloadView, message: &str, now: Timestamp) -> Decision {
    match workload.is(types::EVICTED) {
        true => release_as(workload, false, now),
        false => take_back(workload, (reasons::PENDING_EVALUATION, message), now),
    }
}

/// A reservation that no admission has followed yet is given back.
pub(crate) fn take_back(workload: &WorkloadView, (reason, message): (&str, &str), now: Timestamp) -> Decision {
    Decision::write(status_write(workload, Purpose::ReleaseQuota, now, |edit| edit.take_back(reason, message)))
}

/// An admission for other pods than its Workload has is none: the quota goes back, and what runs is stopped first.
pub(crate) fn unfit(workload: &WorkloadView, only_reserved: bool, now: Timestamp) -> Option<Decision> {
    let why = workload.misfit()?;
    Some(match only_reserved {
        true => take_back(workload, (own_reasons::INVALID_ADMISSION, why), now),
        false => Decision::write(evict(workload, now, (own_reasons::INVALID_ADMISSION, ""), why)),
    })
}

/// Whoever says that a Workload is admitted which holds no quota is contradicted: nothing runs on it.
pub(crate) fn unadmitted(control: &Control, workload: &WorkloadView, now: Timestamp) -> Option<Decision> {
    let wrong = control.settings.refuse_invalid && workload.is(types::ADMITTED) && !workload.reserved();
    wrong.then(|| Decision::write(status_write(workload, Purpose::ExplainPending, now, |edit| edit.not_admitted())))
}

/// The last steps of a workload that is being deleted and of which nothing runs: its quota goes back where somebody else's finalizer keeps it,
/// and then our finalizer goes.
pub(crate) fn let_go(workload: &WorkloadView, now: Timestamp) -> Decision {
    let kept = workload.rare.as_ref().is_some_and(|rare| !rare.finalizers.is_empty());
    let holds = workload.holds_quota();
    if holds && (kept || !has_finalizer(workload)) {
        let message = "the Workload is being deleted, and nothing runs by it";
        return take_back(workload, (reasons::PENDING_EVALUATION, message), now);
    }
    if has_finalizer(workload) { Decision::write(remove_finalizer(workload)) } else { Decision::Done }
}

/// Which of the queues of a workload with quota is not there any more, or not for long (kueue.md 6.17).
pub(crate) fn missing_queue(control: &Control, workload: &WorkloadView) -> Option<String> {
    let stays = |metadata: &ObjectMeta| metadata.deletion_timestamp.is_none();
    let local = control.view.local_queues.get(&workload.local_queue());
    // Who names no queue has its quota by somebody else's word.
    if !workload.queue.is_empty() && !local.is_some_and(|queue| stays(&queue.metadata)) {
        return Some(format!("LocalQueue {} is terminating or missing", workload.queue));
    }
    let name = workload.status.admission.as_ref()?.cluster_queue.as_deref().unwrap_or_default();
    let cluster = control.view.cluster_queues.get(name);
    (!cluster.is_some_and(|queue| stays(&queue.metadata)))
        .then(|| format!("ClusterQueue {name} is terminating or missing"))
}

/// The flavor of a workload with quota that its queue does not have any more, as far as the queue is there.
pub(crate) fn lost_flavor(control: &Control, workload: &WorkloadView) -> Option<String> {
    let name = workload.status.admission.as_ref()?.cluster_queue.as_deref().unwrap_or_default();
    let queue = control.view.cluster_queues.get(name)?;
    let has = |flavor: &String| {
        let mut groups = queue.spec.resource_groups.iter();
        groups.any(|group| group.flavors.iter().any(|quota| quota.name == *flavor))
    };
    let flavor = workload.given_flavors().find(|flavor| !has(flavor))?;
    Some(format!("ClusterQueue {name} has flavor {flavor} no longer"))
}

/// A reservation that no admission has followed yet goes back where a queue or a flavor of it is not there any more, or not for long, and where its
/// namespace is not.
pub(crate) fn without_place(control: &Control, workload: &WorkloadView, now: Timestamp) -> Option<Decision> {
    let lost = missing_queue(control, workload)
        .or_else(|| lost_flavor(control, workload).filter(|_| !control.session.is_offline));
    let why = lost.as_deref().map(|message| (reasons::MISCONFIGURED, message));
    let ends = control.is_ending(&workload.namespace);
    let why = why.or_else(|| ends.then_some((reasons::PENDING_EVALUATION, "its namespace is being deleted")))?;
    Some(take_back(workload, why, now))
}

/// Why a workload with quota may not keep it for long: reason of its eviction, whether it leaves when it is admitted, message.
pub(crate) fn queue_stop(control: &Control, workload: &WorkloadView) -> Option<(&'static str, bool, String)> {
    let local = control.view.local_queues.get(&workload.local_queue());
    let name = workload
        .status
        .admission
        .as_ref()
        .and_then(|admission| admission.cluster_queue.clone())
        .or_else(|| local.and_then(|queue| queue.spec.cluster_queue.clone()))?;
    let cluster = control.view.cluster_queues.get(&name);
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

/// How a workload comes back that was told to stay away.
pub(crate) enum WayBack {
    /// Not for now: what it was sent away for goes on.
    Stays,
    /// From that time on, with the reason and message that it is told then.
    At(Timestamp, &'static str, String),
}

/// How a workload comes back that was told to stay away (`Requeued` is False); `None` where it was not. When it may be tried again the
/// engine knows by the same answer, so that it has its place in the first plan after that (`docs/decisions/requeued-in-the-same-plan.md`).
pub(crate) fn way_back(control: &Control, workload: &WorkloadView) -> Option<WayBack> {
    let condition =
        find(&workload.status.conditions, types::REQUEUED).filter(|condition| condition.status == "False")?;
    // Where it has ended nothing of it can run again: it goes with its pod.
    if crate::cache::pods::has_ended(control, workload) || !workload.active || workload.is(types::DEACTIVATION_TARGET) {
        return Some(WayBack::Stays);
    }
    let at_once = |reason, message: &str| WayBack::At(Timestamp::MIN, reason, message.to_owned());
    Some(match condition.reason.as_str() {
        reason if reason.starts_with(reasons::DEACTIVATED) => {
            at_once(reasons::REACTIVATED, "The workload was reactivated")
        }
        reasons::INADMISSIBLE => WayBack::Stays,
        reason @ (reasons::CLUSTER_QUEUE_STOPPED | reasons::LOCAL_QUEUE_STOPPED) => {
            if queue_stop(control, workload).is_some() {
                WayBack::Stays
            } else {
                let (reason, what) = match reason {
                    reasons::CLUSTER_QUEUE_STOPPED => (reasons::CLUSTER_QUEUE_RESTARTED, "ClusterQueue"),
                    _ => (reasons::LOCAL_QUEUE_RESTARTED, "LocalQueue"),
                };
                at_once(reason, &stop_is_over(control, workload, condition.last_transition_time.0, what))
            }
        }
        _ => {
            let state = workload.status.requeue_state.as_ref();
            let at = state.and_then(|state| state.requeue_at.as_ref()).map_or(Timestamp::MIN, |time| time.0);
            WayBack::At(at, reasons::BACKOFF_FINISHED, "The workload backoff was finished".into())
        }
    })
}

/// Why a stop is over: where the LocalQueue is gone, or younger than the stop, nobody has restarted anything.
fn stop_is_over(control: &Control, workload: &WorkloadView, since: Timestamp, what: &str) -> String {
    let Some(local) = control.view.local_queues.get(&workload.local_queue()) else {
        return "The LocalQueue of the workload does not exist any more".into();
    };
    let is_younger = local.metadata.creation_timestamp.as_ref().is_some_and(|created| created.0 > since);
    match &local.spec.cluster_queue {
        Some(queue) if is_younger => {
            format!("The LocalQueue of the workload was created anew, and leads to ClusterQueue {queue}")
        }
        _ => format!("The {what} was restarted after being stopped"),
    }
}
