//! Decisions about odd pods: pods of a job that no Job counts, and pods that request more than at their creation. For an odd pod that no Job counts, the Job
//! has created another pod: the odd pod gets the reason in its status and is deleted, and no quota of its Workload is given back until the odd pod is gone. For
//! a pod that requests more than at its creation, the Workload is evicted like a victim if its queue has no room for the additional requests.

use berth_api::conditions::{own_reasons, reasons};
use berth_cache::job_pods::{Look, OddPod};
use berth_cache::moments::after;
use berth_cache::{Name, WorkloadPhase, WorkloadView};
use berth_jobs::pods::{POD_REPORTER, condemnation};
use jiff::Timestamp;

use crate::context::Context;
use crate::decision::{Decision, Draft};
use crate::job::altered::evict_and_pause;
use crate::job::left;
use crate::pod::right::outgrown;
use crate::workload::orphan::{OwnerState, owner_state, probe_pods};
use crate::workload::status::seconds;
use crate::write::{EventType, Kind, Notice, ObjectKey, Purpose, Query, Subresource, Write, key};

/// Time in milliseconds in which a Job can adopt a pod again that has lost its owner reference to the Job.
const ADOPTION_MS: i64 = 2_000;
/// Pause in milliseconds between two reads of a pod that is being deleted and that no watch shows.
const CHASE_MS: i64 = 5_000;
/// Pause in milliseconds between two reads of a deleted pod that the watch shows; the pod may have ended, and be kept by a finalizer.
const WATCHED_MS: i64 = 30_000;

/// An odd pod to decide about, with the context and the time of the decision.
struct JobPodCase<'a> {
    ctx: &'a Context<'a>,
    name: &'a Name,
    odd: &'a OddPod,
    now: Timestamp,
}

/// Decides about one odd pod.
pub(crate) fn decide(ctx: &Context<'_>, name: &Name, now: Timestamp) -> Decision {
    let Some(odd) = ctx.view.odd_pods().get(name) else { return Decision::Done };
    let case = JobPodCase { ctx, name, odd, now };
    let Some(workload) = ctx.workload_of_odd(&name.0, odd).filter(|_| !odd.has_ended()) else {
        return Decision::Done;
    };
    if ctx.unlisted_owner(workload).is_some() {
        // Jobs of the owner's kind cannot be listed, so the view does not show whether a Job counts the pod.
        return Decision::Done;
    }
    match odd.is_beside() {
        false => case.changed(workload),
        true if is_uncovered_odd_pod(ctx, odd, workload) => case.stop(workload),
        true => Decision::Done,
    }
}

/// Replaces a decision that gives back quota of a Workload by a wait, as long as pods of the Workload run that no Job counts. A decision that gives back no
/// quota of the Workload is returned unchanged.
pub(crate) fn after_uncovered_odd_pods(ctx: &Context<'_>, decision: Decision, now: Timestamp) -> Decision {
    if ctx.view.odd_pods().is_empty() && ctx.view.ending_pods().is_empty() {
        return decision;
    }
    let Decision::Write(draft) = &decision else { return decision };
    let gives_back =
        matches!(draft.purpose, Purpose::ReleaseQuota | Purpose::FinishWorkload | Purpose::RemoveFinalizer);
    let name = (draft.key.namespace.clone(), draft.key.name.clone());
    let workload = ctx.view.workloads().get(&name).filter(|_| gives_back && draft.key.kind == Kind::Workload);
    let Some(workload) = workload.filter(|workload| workload.holds_quota()) else {
        return decision;
    };
    if let Some((odd_pod, _)) = uncovered_odd_pods(ctx, workload).next() {
        return Decision::WaitFor(key(Kind::JobPod, odd_pod));
    }
    // A finalizer may keep a job whose pods were orphaned: the status of the job does not count these pods, and the job may even end.
    let mut let_go = ctx.odd_pods_of(workload).filter(|(_, odd)| odd.is_beside());
    if let_go.next().is_some() && !ctx.notes_of(workload).pods().are_gone_without_job() {
        return left::of_leaving(ctx, workload, now);
    }
    // The status of a job at rest does not count pods whose Job was deleted before the pods. If another workload slice has taken over, that slice waits until
    // the pods of the deleted Job are gone.
    let has_left = ctx.view.ending_pods().has_left(workload) && !ctx.notes_of(workload).pods().are_gone();
    let owner = workload.owner.as_ref().filter(|_| has_left);
    if owner.is_some_and(|owner| ctx.view.slice_of(&owner.uid).is_none_or(|slice| slice.uid == workload.uid)) {
        return probe_pods(ctx, workload, now);
    }
    decision
}

/// The odd pods of a Workload that run in addition to the pods that its Jobs count, and that are to be deleted.
pub(crate) fn uncovered_odd_pods<'a>(
    ctx: &'a Context<'a>,
    workload: &'a WorkloadView,
) -> impl Iterator<Item = (&'a Name, &'a OddPod)> {
    let odd = ctx.odd_pods_of(workload).filter(|(_, odd)| odd.is_beside());
    odd.filter(move |(_, odd)| is_uncovered_odd_pod(ctx, odd, workload))
}

/// Whether a pod that no Job counts is to be deleted. A pod whose job was deleted without its pods runs on and is found by its labels (see `job/left.rs`). A
/// pod of a finished Workload that lost its Job before this process began is ignored.
fn is_uncovered_odd_pod(ctx: &Context<'_>, odd: &OddPod, workload: &WorkloadView) -> bool {
    let owner = workload.owner.as_ref().map(|owner| owner.uid.as_str());
    let job = [owner, workload.job_uid.as_deref()];
    let is_named = odd.pod.named.iter().any(|uid| job.contains(&Some(&**uid)));
    let is_ours = match workload.owner_key() {
        Some(owner_key) => owner_key.kind.is_admitted_with_pods(),
        // A Workload without an owner had a job that was deleted without its pods if the Workload has the label with the job's uid, or if the odd pod was
        // observed to lose its Job; other odd pods of such Workloads are ignored.
        None => owner.is_none() && (odd.witnessed || workload.job_uid.is_some()),
    };
    if !is_ours || !odd.witnessed && workload.is_finished() {
        return false;
    }
    // If only a Job is deleted, the JobSet or TrainingJob that controls the Job creates the Job and its pods again.
    let is_left = || owner.is_none() || owner_state(ctx, workload) != OwnerState::There;
    let goes = || ctx.job_of_odd(&workload.namespace, odd).is_none_or(|(_, job)| job.deleting);
    !(odd.watched && is_named && is_left() && goes())
}

impl JobPodCase<'_> {
    fn key(&self) -> ObjectKey {
        key(Kind::JobPod, self.name)
    }

    fn look(&self) -> Decision {
        Decision::write(Draft::ask(Purpose::ReadPod, self.key(), Query::ReadObject))
    }

    /// Decides about a pod that its Job counts. A pod that a Job counts may have been resized, so the pod is read once for each change of its spec.
    fn changed(&self, workload: &WorkloadView) -> Decision {
        let runs = workload.phase == WorkloadPhase::Admitted && !workload.deleting && !workload.unreadable;
        if !self.odd.pod.is_changed() || !runs {
            return Decision::Done;
        }
        let asks = match &self.odd.look {
            Some((_, generation, look)) if *generation >= self.odd.pod.generation => match look {
                Look::Runs { asks: Some(asks), .. } => asks,
                _ => return Decision::Done,
            },
            _ => return self.look(),
        };
        outgrown(self.ctx, workload, (&self.odd.pod.set, asks), &self.name.1).map_or(Decision::Done, |text| {
            evict_and_pause(self.ctx, workload, self.now, (own_reasons::POD_RESIZED, &text))
        })
    }

    /// The next step to delete the pod. If no watch shows the end of the pod, the pod is read again after a pause.
    fn stop(&self, workload: &WorkloadView) -> Decision {
        let due = after(self.odd.since, ADOPTION_MS);
        if self.odd.watched && due > self.now {
            return Decision::Wait(due);
        }
        match &self.odd.look {
            None | Some((_, _, Look::Ended)) => self.look(),
            Some((at, ..)) if self.odd.pod.deleting => {
                let due = after(*at, if self.odd.watched { WATCHED_MS } else { CHASE_MS });
                if due > self.now { Decision::Wait(due) } else { self.look() }
            }
            Some((_, _, Look::Runs { condemned: false, .. })) => {
                let at = seconds(self.now).to_string();
                let pod = (self.name.0.as_str(), self.name.1.as_str(), &*self.odd.pod.uid);
                let why = self.why(workload);
                let body = condemnation(pod, (own_reasons::EXCESS_POD, &why), &at);
                let write = Write::Apply { manager: "kueue", subresource: Subresource::Status, body: body.into() };
                Decision::write(Draft::of_any_version(Purpose::CondemnPod, self.key(), write))
            }
            Some(_) => {
                let draft = Draft::delete(Purpose::DeletePod, self.key(), &self.odd.pod.uid);
                Decision::write(self.with_events(draft, workload))
            }
        }
    }

    fn why(&self, workload: &WorkloadView) -> String {
        let lost = if self.odd.watched { "no Job counts it any more" } else { "it has lost its label" };
        format!("{lost}, and Workload {:?} has no quota for it beside the pods of its job", workload.name)
    }

    /// Adds an event about the pod, and an event about its Job, at which users look first.
    fn with_events(&self, draft: Draft, workload: &WorkloadView) -> Draft {
        let why = self.why(workload);
        let own = Notice {
            key: self.key(),
            uid: self.odd.pod.uid.to_string(),
            event_type: EventType::Normal,
            reason: reasons::STOPPED.to_owned(),
            message: why.clone(),
            reporter: POD_REPORTER,
        };
        let at_job = self.ctx.job_of_odd(&self.name.0, self.odd).map(|(key, job)| Notice {
            key: key.clone(),
            uid: job.uid.clone(),
            event_type: EventType::Warning,
            reason: own_reasons::EXCESS_POD.to_owned(),
            message: format!("Pod {} is deleted: {why}", self.name.1),
            reporter: Kind::JOB.reporter(),
        });
        at_job.into_iter().fold(draft.with_event(own), Draft::with_event)
    }
}

#[cfg(test)]
mod tests;
