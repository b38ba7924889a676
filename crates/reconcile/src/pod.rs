//! The life of a managed pod. A managed pod waits behind its scheduling gate until its Workload is admitted, is deleted when the Workload is evicted, and is
//! held by Berth's finalizer until its end is recorded. A managed pod outside a pod group has a Workload of its own, about which `pod.rs` decides. A pod of a
//! group shares the Workload of the group; `member.rs` decides about the pod, and `pod_group.rs` about the Workload. Each decision about a pod gives at most
//! one write.

mod case;
pub(crate) mod job_pods;
pub(crate) mod kept;
pub mod let_in;
mod member;
mod place;
pub(crate) mod right;
pub(crate) mod trials;

use std::collections::BTreeSet;

use berth_api::conditions::{event_reasons, reasons, types};
use berth_jobs::pods::{OwningSet, Phase, PodState, condemnation, pod_workload};
use berth_jobs::{JobOwner, ObjectPatch, PodSetNeeds, Priority};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::context::Context;
use crate::decision::{Decision, Draft};
use crate::job::UNMANAGED_NAMESPACE;
use crate::job::placement::placements;
use crate::policies::{NamedClasses, Wanted, no_class};
use crate::workload::checks;
use crate::workload::follow::{DesiredFields, adopt, finish, follow, out_of_sync};
use crate::workload::names::{create, made_for_another, may_adopt};
use crate::workload::orphan::lost_by;
use crate::workload::pods_ready;
use crate::workload::status::{find_true, seconds};
use crate::workload::stops::{let_go, release, release_as, take_back};
use crate::workload::{cannot_start, has_finalizer, remove_finalizer};
use crate::write::{Body, EventType, Kind, Notice, ObjectKey, Purpose, Subresource, Write, key};
use berth_cache::{Name, WorkloadPhase, WorkloadView};
pub use case::{PodCase, notice};

/// Decides about one pod.
pub fn decide(ctx: &Context<'_>, name: &Name, now: Timestamp) -> Decision {
    let Some(pod) = ctx.view.pods().get(name) else { return Decision::Done };
    let case = PodCase { ctx, name, pod, now };
    let managed = case.managed();
    if !pod.marked {
        return case.mark();
    }
    match &pod.group {
        Some(group) if managed || case.runs_with(&group.name) => {
            case.without_own().unwrap_or_else(|| member::decide(&case, &group.name))
        }
        None if managed || case.has_own() => case.single(),
        _ => case.unmanaged(),
    }
}

/// The reason why a pod does not request quota through a Workload of its own, in words for the user; `None` if the pod does.
pub(crate) fn unasked(ctx: &Context<'_>, name: &Name, pod: &PodState) -> Option<String> {
    if !ctx.manages(&name.0) {
        return Some(UNMANAGED_NAMESPACE.to_owned());
    }
    if !ctx.names_a_queue(pod) {
        return Some("its pod names no queue".to_owned());
    }
    if let Some(owner) = pod.owner.as_ref().filter(|owner| is_admitted_with(owner)) {
        return Some(format!("its pod is admitted with {} {:?}, which controls it", owner.kind, owner.name));
    }
    pod.group.as_ref().map(|group| format!("its pod is one of group {:?}", group.name))
}

/// Whether the pods of an owner are admitted together with the owner.
fn is_admitted_with(owner: &JobOwner) -> bool {
    Kind::of_owner(&owner.kind).is_some_and(Kind::is_admitted_with_pods)
}

impl<'a> DesiredFields<'a> {
    /// The fields that the Workload of a pod takes over from the pod.
    pub(crate) fn of_pod(pod: &'a PodState, priority: Option<Wanted>) -> Self {
        let prebuilt = pod.prebuilt_workload.is_some();
        Self {
            pod_sets: None,
            queue: pod.queue_name.as_deref(),
            priority: priority.filter(|_| !prebuilt),
            gated_by: pod.admission_gates.as_deref(),
            tiers: pod.capacity_tiers.as_deref(),
            limit: (!prebuilt).then(|| json!(pod.max_execution_seconds)),
            preempts: None,
            prebuilt,
        }
    }
}

/// The priority classes that a pod names.
pub(crate) fn classes_of(pod: &PodState) -> NamedClasses<'_> {
    (pod.workload_priority_class.as_deref(), pod.pod_priority_class.as_deref())
}

impl PodCase<'_> {
    fn managed(&self) -> bool {
        let settings = &self.ctx.settings;
        settings.job_kinds.contains(&Kind::Pod)
            && self.ctx.names_a_queue(self.pod)
            && self.ctx.manages(&self.name.0)
            && !self.pod.owner.as_deref().is_some_and(is_admitted_with)
    }

    /// Whether the pod has a Workload of its own that needs decisions even if the pod is not managed any more: the Workload holds quota, or its finalizer is
    /// still to be removed.
    fn has_own(&self) -> bool {
        let mut owned = self.ctx.view.workloads().owned_by(&self.pod.uid);
        owned.any(|workload| match workload.is_finished() {
            true => has_finalizer(workload),
            false => workload.reserved() || (workload.deleting && has_finalizer(workload)),
        })
    }

    /// The next step to remove the Workload that the pod had before it joined a group; `None` if the pod has no such Workload.
    fn without_own(&self) -> Option<Decision> {
        let mut owned = self.ctx.view.workloads().owned_by(&self.pod.uid);
        let own = owned.find(|workload| !workload.deleting || has_finalizer(workload))?;
        let object = own.object_key();
        Some(if self.ctx.in_flight.busy(&object) {
            Decision::Done
        } else if own.deleting {
            let_go(own, self.now)
        } else {
            Decision::write(Draft::delete(Purpose::DeleteWorkload, object, &own.uid))
        })
    }

    /// Whether the pod was started, and the Workload of its group holds quota.
    fn runs_with(&self, group: &str) -> bool {
        let workload = self.ctx.view.workloads().get(&(self.name.0.clone(), group.to_owned()));
        !self.pod.gated && workload.is_some_and(|workload| workload.group.is_some() && workload.holds().is_some())
    }

    /// Releases an ended pod that is not managed any more, because it names no LocalQueue now, or its namespace or pods as a kind are not managed. The deletion
    /// of an unmanaged pod still waits for Berth's finalizer, which no other controller removes.
    fn unmanaged(&self) -> Decision {
        let seen = self.ctx.view.namespaces().contains_key(&self.name.0);
        match seen && self.pod.held && self.pod.deleting() && self.pod.ended() {
            true => self.release(),
            false => Decision::Done,
        }
    }

    fn key(&self) -> ObjectKey {
        key(Kind::Pod, self.name)
    }

    fn notice(&self, event_type: EventType, reason: &str, message: String) -> Notice {
        notice(self.key(), self.pod, event_type, reason, message)
    }

    fn write(&self, purpose: Purpose, write: Write<Body>, notices: Vec<Notice>) -> Decision {
        Decision::write(Draft { purpose, key: self.key(), action: write.into(), based_on: self.pod.version, notices })
    }

    /// A patch of the pod.
    fn patch(&self, purpose: Purpose, patch: ObjectPatch, notices: Vec<Notice>) -> Decision {
        Decision::write(Draft { notices, ..Draft::merge(purpose, self.key(), patch, self.pod.version) })
    }

    /// Decides about a pod outside a group.
    fn single(&self) -> Decision {
        let owned = self.ctx.view.workloads_of(&self.pod.uid);
        let busy = |workload: &&WorkloadView| self.ctx.in_flight.busy(&workload.object_key());
        if owned.iter().any(busy) || owned.iter().any(|workload| workload.unreadable) {
            return Decision::Done;
        }
        let live = owned.iter().copied().find(|workload| !workload.deleting);
        if self.pod.ended() {
            let leaving = owned.iter().copied().find(|workload| workload.deleting && has_finalizer(workload));
            return match (live, leaving) {
                // A foreground deletion of the pod waits until the Workload is gone.
                (None, Some(workload)) if !self.pod.held => Decision::write(remove_finalizer(workload)),
                _ => self.over(live),
            };
        }
        if self.pod.deleting() {
            // Control decides about the pod again when the pod has ended.
            return Decision::Done;
        }
        match (live, owned.first()) {
            (Some(workload), _) => self.with_workload(workload),
            // The pod is not managed, and has not run on quota of the Workload, so the Workload is released.
            (None, Some(workload)) if !workload.reserved() && !self.managed() => let_go(workload, self.now),
            (None, None) if self.lost().is_some() => Decision::Done,
            (None, Some(_)) => self.stop(reasons::WORKLOAD_DELETED, "The workload is deleted"),
            (None, None) if self.pod.gated || self.is_tried() => self.without_workload(),
            (None, None) if !self.pod.reviewed => self.not_admitted(),
            (None, None) => self.stop(reasons::NO_MATCHING_WORKLOAD, "Missing Workload"),
        }
    }

    /// Handles a pod that has ended: its end is recorded, and then the pod is released.
    fn over(&self, live: Option<&WorkloadView>) -> Decision {
        if let Some(workload) = live.filter(|workload| !workload.is_finished()) {
            let evicted = workload.is(types::EVICTED);
            // A failed pod of an evicted Workload that Berth has not stopped has failed by itself, and no pod is created in its place.
            let stopped = evicted && (self.pod.condemned || self.pod.deleting());
            if self.pod.phase == Phase::Succeeded || (self.pod.phase == Phase::Failed && !stopped) {
                return self.finish(workload);
            }
            if workload.phase.is_evicting() {
                // A stopped pod cannot start again, and a pod that its user or its owner creates in its place gets a Workload of its own.
                return release_as(workload, false, self.now);
            }
        }
        if self.pod.held {
            return self.release();
        }
        match live {
            Some(workload) if workload.is_finished() && has_finalizer(workload) => {
                Decision::write(remove_finalizer(workload))
            }
            _ => Decision::Done,
        }
    }

    fn finish(&self, workload: &WorkloadView) -> Decision {
        let success = self.pod.phase == Phase::Succeeded;
        let usual = if success { "Pod succeeded" } else { "Pod failed" };
        let message = self.pod.message.as_deref().filter(|text| !text.is_empty()).unwrap_or(usual);
        finish(workload, self.now, (success, message), |kind, reason, text| Some(self.notice(kind, reason, text)))
    }

    fn with_workload(&self, workload: &WorkloadView) -> Decision {
        let evicted = find_true(&workload.status.conditions, types::EVICTED);
        let admitted = workload.phase == WorkloadPhase::Admitted;
        match (self.pod.gated, evicted) {
            (true, _) if workload.is_finished() => Decision::Done,
            (false, _) if workload.is_finished() => self.stop(reasons::NOT_ADMITTED, "Workload is finished"),
            // The pod was not started, so its Workload may be tried again.
            (true, Some(_)) if workload.reserved() => {
                self.withdraw_start().unwrap_or_else(|| release(workload, self.now))
            }
            (false, Some(condition)) => self.evict(&condition.reason, &condition.message),
            (true, None) if self.pod.prebuilt_workload.is_some() && !self.is_as(workload) => {
                self.withdraw_start().unwrap_or_else(|| self.out_of_sync(workload))
            }
            (true, None) if workload.reserved() && !self.managed() => {
                self.withdraw_start().unwrap_or_else(|| self.give_back(workload))
            }
            (true, None) if workload.may_run() && self.ctx.is_ending(&self.name.0) => {
                self.withdraw_start().unwrap_or(Decision::Done)
            }
            (true, None) if workload.may_run() => self.start(workload),
            (true, _) => self.follow(workload),
            (false, None) if admitted && self.pod.placing => self.place(workload),
            (false, None) if admitted => self.running(workload),
            (false, None) if self.is_tried() => self.follow(workload),
            (false, None) => self.not_admitted(),
        }
    }

    /// Whether a prebuilt Workload requests the same resources as its pod. Admission plugins change much of a pod, but not its requests.
    fn is_as(&self, workload: &WorkloadView) -> bool {
        let Some(pod) = self.pod.decode() else { return true };
        match (self.needs(&pod), workload.shape.pod_sets.as_slice()) {
            (Some(own), [given]) => i64::from(own.count) == given.count && own.requests == given.requests,
            _ => false,
        }
    }

    /// The requests of a pod, computed as for its Workload.
    fn needs(&self, pod: &Pod) -> Option<PodSetNeeds> {
        let made = pod_workload(pod, Priority::default(), &BTreeSet::new()).ok()?;
        self.ctx.needs_of(&self.name.0, &made.spec.pod_sets).into_iter().next()
    }

    /// The resource of which the pod requests more than its admitted pod set. A pod may exceed its pod set, because the user sets the role of a pod, and
    /// because a Workload may be edited.
    fn exceeds(&self, workload: &WorkloadView) -> Option<String> {
        workload.shape.exceeded_by(self.pod.role(), &self.needs(&self.pod.decode()?)?).map(|excess| excess.resource)
    }

    fn out_of_sync(&self, workload: &WorkloadView) -> Decision {
        out_of_sync(workload, self.now, |kind, reason, text| self.notice(kind, reason, text))
    }

    fn follow(&self, workload: &WorkloadView) -> Decision {
        let prebuilt = self.pod.prebuilt_workload.is_some();
        if let Some((reason, text)) =
            self.ctx.unsent_event(&self.key(), workload, classes_of(self.pod)).filter(|_| !prebuilt)
        {
            return Decision::event(self.notice(EventType::Warning, reason, text));
        }
        let next_event = || checks::check_event(workload, |kind, reason, text| self.notice(kind, reason, text));
        let wanted = self.ctx.wanted_priority(workload, classes_of(self.pod)).ok();
        follow(workload, DesiredFields::of_pod(self.pod, wanted)).unwrap_or_else(next_event)
    }

    /// The unfinished Workload from which the owner reference to the pod was removed; the reference will be restored.
    fn lost(&self) -> Option<&WorkloadView> {
        let name = berth_jobs::workload_name(Kind::Pod.name(), "", &self.name.1, &self.pod.uid);
        let found = lost_by(self.ctx, &(self.name.0.clone(), name), &self.pod.uid)?;
        (!found.is_finished()).then_some(found)
    }

    /// Gives back quota that the pod does not request any more and that no container of the pod uses.
    fn give_back(&self, workload: &WorkloadView) -> Decision {
        let why = unasked(self.ctx, self.name, self.pod).unwrap_or_default();
        take_back(workload, (reasons::PENDING_EVALUATION, &why), self.now)
    }

    fn running(&self, workload: &WorkloadView) -> Decision {
        if let Some(decision) = self.too_large(workload) {
            return decision;
        }
        let next_event = self.annotate_admission(workload);
        let follows = || if self.managed() { self.follow(workload) } else { Decision::Done };
        let decision = next_event.unwrap_or_else(follows);
        if !matches!(decision, Decision::Done) {
            return decision;
        }
        pods_ready::follow(self.ctx, workload, self.pod.ready, self.now).map_or(Decision::Done, Decision::write)
    }

    fn without_workload(&self) -> Decision {
        if let Some(prebuilt) = &self.pod.prebuilt_workload {
            let name = (self.name.0.clone(), prebuilt.to_string());
            return match self.ctx.view.workloads().get(&name) {
                Some(found) if found.owner.is_none() && may_adopt(found, &self.pod.uid) => self.adopt(found),
                Some(found) => made_for_another(self.ctx, &self.key(), found, |reason, text| {
                    self.notice(EventType::Warning, reason, text)
                }),
                // As long as the prebuilt Workload names no owner, only the waiting pod names the Workload.
                None => Decision::WaitFor(key(Kind::Workload, &name)),
            };
        }
        if self.ctx.is_ending(&self.name.0) {
            return Decision::Done;
        }
        if self.ctx.in_flight.creations_full() {
            return Decision::WaitForCreations;
        }
        let Some(pod) = self.pod.decode() else { return Decision::Done };
        let copied = &self.ctx.settings.label_keys_to_copy;
        let made = pod_workload(&pod, Priority::default(), copied)
            .map_err(|error| (event_reasons::ERR_WORKLOAD_COMPOSE, error.to_string()));
        let made = made.and_then(|made| {
            self.ctx.with_priority(made, classes_of(self.pod)).map_err(|class| no_class(&class, "the pod"))
        });
        match made {
            Ok(workload) => create(self.ctx, &self.key(), &workload, |message| {
                self.notice(EventType::Normal, event_reasons::CREATED_WORKLOAD, message)
            }),
            Err((reason, message)) => Decision::event(self.notice(EventType::Warning, reason, message)),
        }
    }

    fn adopt(&self, workload: &WorkloadView) -> Decision {
        adopt(self.ctx, workload, ("v1", "Pod"), (&self.name.1, &self.pod.uid))
    }

    /// Starts the pod: one write removes the scheduling gate and adds the placement.
    fn start(&self, workload: &WorkloadView) -> Decision {
        if let Some(resource) = self.exceeds(workload) {
            let text = format!(
                "the pod asks for more {resource} than pod set {:?} of Workload {:?}, by which it was admitted; it does not start",
                self.pod.role(),
                workload.name
            );
            return Decision::event(self.notice(EventType::Warning, reasons::OUT_OF_SYNC, text));
        }
        let set = self.owning_set();
        let placed = placements(self.ctx, workload);
        let placed = placed.and_then(|placements| self.pod.start_patch(&placements, set.as_ref()));
        match placed {
            Ok(Some(patch)) => {
                let admission = workload.status.admission.as_ref();
                let queue = admission.and_then(|admission| admission.cluster_queue.as_deref()).unwrap_or_default();
                let notice =
                    self.notice(EventType::Normal, reasons::STARTED, format!("Admitted by clusterQueue {queue}"));
                self.patch(Purpose::StartJob, patch, vec![notice])
            }
            Ok(None) => Decision::Done,
            Err(error) => self.withdraw_start().unwrap_or_else(|| {
                let to_notice = |reason: &str, text| self.notice(EventType::Warning, reason, text);
                Decision::write(cannot_start(workload, self.now, &error, to_notice))
            }),
        }
    }

    /// The observed state of the StatefulSet through which the pod is managed.
    fn owning_set(&self) -> Option<OwningSet> {
        let owner = self.pod.owner.as_ref().filter(|_| self.pod.is_of_set())?;
        let set = self.ctx.view.sets().get(&(self.name.0.clone(), owner.name.to_string()))?;
        set.decode().as_ref().map(OwningSet::of)
    }

    /// The write after which no unresolved start of the pod can be applied; `None` if there is no unresolved start.
    fn withdraw_start(&self) -> Option<Decision> {
        if !self.pod.gated || !self.ctx.in_flight.unresolved().may_apply(&self.key()) {
            return None;
        }
        Some(self.patch(Purpose::WithdrawStart, self.pod.withdrawal(), Vec::new()))
    }

    /// Stops a pod whose Workload was evicted.
    fn evict(&self, reason: &str, message: &str) -> Decision {
        self.stop(&format!("WorkloadEvictedDueTo{reason}"), message)
    }

    /// Stops the pod by two writes, because a pod cannot be suspended: the reason is written into its status, and then the pod is deleted.
    fn stop(&self, reason: &str, message: &str) -> Decision {
        if self.pod.deleting() {
            return Decision::Done;
        }
        if !self.pod.condemned {
            let at = seconds(self.now).to_string();
            let body = condemnation((&self.name.0, &self.name.1, &self.pod.uid), (reason, message), &at);
            let write = Write::Apply { manager: "kueue", subresource: Subresource::Status, body: body.into() };
            return self.write(Purpose::CondemnPod, write, Vec::new());
        }
        self.delete(reasons::STOPPED, message)
    }

    /// Deletes the pod, and sends an event.
    pub(crate) fn delete(&self, reason: &str, message: &str) -> Decision {
        let notice = self.notice(EventType::Normal, reason, message.to_owned());
        self.write(
            Purpose::DeletePod,
            Write::Delete { uid: self.pod.uid.to_string(), owned_first: false },
            vec![notice],
        )
    }

    /// Removes Berth's finalizer from the pod.
    pub fn release(&self) -> Decision {
        self.patch(Purpose::ReleasePod, self.pod.release_patch(), Vec::new())
    }
}

#[cfg(test)]
mod tests;
