//! A pod group has one Workload, starts with all its pods or not at all, and ends when all its pods have ended. The figures of a pod group come from a tally,
//! and its pods are iterated only to choose one pod. Decisions about a single pod that do not depend on other pods are in `pod/member.rs`.

mod compose;
mod empty;
mod set;
mod waiting;

use std::collections::BTreeSet;

use berth_api::conditions::{event_reasons, reasons, types};
use berth_api::json::to_value;
use berth_api::labels::FIELD_MANAGER_RECLAIMABLE_PODS;
use berth_cache::pods::Group;
use berth_cache::{Name, WorkloadPhase, WorkloadView};
use berth_jobs::pods::{PodState, STATEFUL_SET_FRAMEWORK, SetState, Tally, excess, replaced};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

pub(crate) use empty::without_pods;
use waiting::{WAITING, waits_for_pods};

use crate::context::Context;
use crate::decision::{Decision, Draft};
use crate::job::UNMANAGED_NAMESPACE;
use crate::pod::kept::is_needed;
use crate::pod::{classes_of, notice};
use crate::workload::checks;
use crate::workload::follow::{DesiredFields, finish, follow};
use crate::workload::pods_ready;
use crate::workload::status::{find, find_true};
use crate::workload::stops::{let_go, release, take_back};
use crate::workload::{has_finalizer, object_write, remove_finalizer, remove_finalizer_and, separate_write};
use crate::write::{EventType, Kind, Notice, Purpose, key};

/// A pod group to decide about, with the context and the time of the decision.
struct PodGroupCase<'a> {
    ctx: &'a Context<'a>,
    name: &'a Name,
    group: &'a Group,
    /// The StatefulSet of the group's pods, with its name; `None` if the pods belong to no StatefulSet.
    set: Option<(&'a str, &'a SetState)>,
    now: Timestamp,
}

/// Decides about one pod group.
pub(crate) fn decide(ctx: &Context<'_>, name: &Name, now: Timestamp) -> Decision {
    let none = Group::default();
    let (group, set) = (ctx.view.pods().group(name), ctx.view.sets().of_group(name));
    let case = PodGroupCase { ctx, name, group: group.unwrap_or(&none), set, now };
    if !(case.managed() || case.has_quota()) || (group.is_none() && set.is_none()) {
        return Decision::Done;
    }
    match ctx.view.workloads().get(name) {
        None => case.without_workload(),
        Some(workload) if workload.group.is_none() => case.name_taken(workload),
        Some(_) if ctx.in_flight.busy(&key(Kind::Workload, name)) => Decision::Done,
        Some(workload) if workload.unreadable => Decision::Done,
        Some(workload) if workload.deleting => case.leaving(workload),
        Some(workload) => case.with_workload(workload),
    }
}

impl<'a> PodGroupCase<'a> {
    fn managed(&self) -> bool {
        self.ctx.settings.job_kinds.contains(&Kind::Pod) && self.ctx.manages(&self.name.0)
    }

    /// Whether the Workload of an unmanaged group still needs decisions: the Workload holds quota, or its finalizer is still to be removed.
    fn has_quota(&self) -> bool {
        let workload = self.ctx.view.workloads().get(self.name).filter(|workload| workload.group.is_some());
        workload.is_some_and(|workload| {
            let goes = workload.deleting || workload.is_finished();
            workload.holds().is_some() || (goes && has_finalizer(workload))
        })
    }

    fn tally(&self) -> &Tally {
        &self.group.tally
    }

    fn members(&self) -> impl Iterator<Item = (&'a str, &'a PodState)> {
        self.ctx.view.pods().members(self.name)
    }

    /// The first pod that counts for the group; events about the group are sent at this pod.
    fn first(&self) -> Option<(&'a str, &'a PodState)> {
        self.members().find(|(_, pod)| pod.counts())
    }

    /// Whether a gated pod may have started already, because a write to the pod is under way or a start of the pod is unresolved.
    fn may_be_starting(&self) -> bool {
        let in_flight = &self.ctx.in_flight;
        self.members().filter(|(_, pod)| pod.gated && !pod.ended()).any(|(name, _)| {
            let object = key(Kind::Pod, &self.pod_name(name));
            in_flight.busy(&object) || in_flight.unresolved().may_apply(&object)
        })
    }

    fn pod(&self, name: &str) -> Option<&'a PodState> {
        self.ctx.view.pods().get(&self.pod_name(name))
    }

    fn pod_name(&self, name: &str) -> Name {
        (self.name.0.clone(), name.to_owned())
    }

    fn event(&self, reason: &str, message: String) -> Decision {
        let Some((name, pod)) = self.first() else { return Decision::Done };
        Decision::event(self.notice(name, pod, EventType::Warning, reason, message))
    }

    fn notice(&self, name: &str, pod: &PodState, event_type: EventType, reason: &str, message: String) -> Notice {
        notice(key(Kind::Pod, &self.pod_name(name)), pod, event_type, reason, message)
    }

    fn name_taken(&self, other: &WorkloadView) -> Decision {
        if let Some(set) = self.set {
            return self.set_name_taken(set, other);
        }
        let name = &self.name.1;
        let problem = "already exists but is not a pod group workload; this pod group cannot be admitted";
        let message = format!("A Workload named {name:?} {problem}");
        self.event(event_reasons::WORKLOAD_NAME_CONFLICT, message)
    }

    fn leaving(&self, workload: &WorkloadView) -> Decision {
        // No decision stops a pod that is not managed any more and does not run.
        let ours = |pod: &PodState| self.managed() && self.ctx.names_a_queue(pod);
        let stopped = |pod: &PodState| if ours(pod) { pod.ended() && pod.deleting() } else { !pod.runs() };
        let left = |(_, pod): (&str, &PodState)| !stopped(pod) && workload.is_owned_by(&pod.uid);
        let running = self.tally().running > 0 || self.members().any(left) || self.may_be_starting();
        let running = running && !workload.is_finished();
        if running { Decision::Done } else { let_go(workload, self.now) }
    }

    fn with_workload(&self, workload: &WorkloadView) -> Decision {
        if workload.is_finished() {
            return if has_finalizer(workload) {
                Decision::write(self.let_finished_go(workload))
            } else {
                Decision::Done
            };
        }
        if let Some(decision) = self.set.and_then(|set| self.scaled(workload, set)) {
            return decision;
        }
        let size = workload.sizes().map(|(_, count)| count).fold(0, i32::saturating_add);
        if let Some(end) = self.tally().finish(size) {
            return finish(workload, self.now, (end.success, &end.message), |kind, reason, text| {
                let (name, pod) = self.members().next()?;
                Some(self.notice(name, pod, kind, reason, text))
            });
        }
        let steps = self.owners(workload).or_else(|| self.let_go(workload)).or_else(|| self.surplus(workload));
        if let Some(decision) = steps.or_else(|| self.waiting(workload)).or_else(|| self.reclaimable(workload)) {
            return decision;
        }
        if workload.phase.is_evicting() {
            // The pods of an evicted group are being stopped; control decides again when the last pod has ended.
            return match self.tally().running > 0 || self.may_be_starting() {
                false => release(workload, self.now),
                true => Decision::Done,
            };
        }
        if self.managed() { self.follow(workload) } else { self.kept(workload) }
    }

    /// Decides about a group in a namespace that is not managed any more: running pods run on, and quota that no pod uses is given back.
    fn kept(&self, workload: &WorkloadView) -> Decision {
        if self.tally().running == 0 && !self.may_be_starting() {
            return take_back(workload, (reasons::PENDING_EVALUATION, UNMANAGED_NAMESPACE), self.now);
        }
        let ready = self.tally().is_ready(workload.sizes());
        pods_ready::follow(self.ctx, workload, ready, self.now).map_or(Decision::Done, Decision::write)
    }

    fn follow(&self, workload: &WorkloadView) -> Decision {
        let first = self.first();
        if let Some(decision) = self.desired(workload, first).and_then(|desired| follow(workload, desired)) {
            return decision;
        }
        if let Some(decision) = self.set.and_then(|set| self.report_to_set(workload, set)) {
            return decision;
        }
        let Some((name, pod)) = first else { return Decision::Done };
        let unsent_event = self.ctx.unsent_event(&key(Kind::PodGroup, self.name), workload, classes_of(pod));
        if let Some((reason, text)) = unsent_event.filter(|_| pod.prebuilt_workload.is_none() && self.set.is_none()) {
            return Decision::event(self.notice(name, pod, EventType::Warning, reason, text));
        }
        if workload.phase != WorkloadPhase::Admitted {
            // One pod of the group gets the event for all pods.
            return checks::check_event(workload, |kind, reason, text| self.notice(name, pod, kind, reason, text));
        }
        let ready = self.tally().is_ready(workload.sizes());
        pods_ready::follow(self.ctx, workload, ready, self.now).map_or(Decision::Done, Decision::write)
    }

    /// The fields that the Workload of the group takes over from its StatefulSet or else from its first pod. The Workload never takes fields over from the
    /// pods of a StatefulSet, because such a pod has the fields that the StatefulSet had at the pod's creation.
    fn desired(&self, workload: &WorkloadView, first: Option<(&'a str, &'a PodState)>) -> Option<DesiredFields<'a>> {
        if let Some((_, set)) = self.set {
            return Some(self.desired_of_set(workload, set));
        }
        let (_, pod) = first.filter(|(_, pod)| pod.parent.as_deref() != Some(STATEFUL_SET_FRAMEWORK))?;
        let desired = DesiredFields::of_pod(pod, self.ctx.wanted_priority(workload, classes_of(pod)).ok());
        // The Workload of a serving group outlives its pods, so the Workload does not take over the LocalQueue of a pod, as in Kueue.
        let queue = desired.queue.filter(|_| self.tally().serving == 0);
        Some(DesiredFields { queue, ..desired })
    }

    /// Adds owner references to the Workload. Pods that are created later become owners of the Workload, so that the Workload outlives the replaced pods.
    /// Controllers that create pods again become owners of the Workload, so that the Workload outlives a time without pods. The Workload of a StatefulSet
    /// outlives all pods.
    fn owners(&self, workload: &WorkloadView) -> Option<Decision> {
        let new = self.group.newcomers.iter().filter_map(|name| Some((&**name, self.pod(name)?)));
        let new = new.filter(|(_, pod)| pod.counts() && !workload.is_owned_by(&pod.uid));
        let new: Vec<(&str, &PodState)> = new.collect();
        if new.is_empty() || self.set.is_some() {
            return None;
        }
        // A merge patch replaces the list of owner references, so the patch repeats the other owners.
        let mut others = workload.rare.as_ref().map_or_else(Vec::new, |rare| rare.owners.clone());
        let before = others.len();
        for maker in new.iter().filter_map(|(_, pod)| made_by(pod)) {
            if !others.iter().any(|known| known.get("uid") == maker.get("uid")) {
                others.push(maker);
            }
        }
        let added = new.len().saturating_add(others.len().saturating_sub(before));
        let references = self.references(workload, others, &new);
        let mut draft = object_write(workload, Purpose::AddOwners, |patch| patch.owner_references(references));
        draft.notices.push(crate::workload::notice(
            workload,
            EventType::Normal,
            event_reasons::OWNER_REFERENCES_ADDED,
            format!("Added {added} owner reference(s)"),
            berth_jobs::pods::POD_REPORTER,
        ));
        Some(Decision::write(draft))
    }

    /// The owner references of a pod group's Workload: the references `others` to owners that are no pods, the existing pods that own the Workload, and the
    /// `new` pods.
    fn references(&self, workload: &WorkloadView, others: Vec<Value>, new: &[(&str, &PodState)]) -> Vec<Value> {
        let known = workload.group.iter().flatten();
        let known = known.filter(|member| self.pod(&member.name).is_some_and(|pod| pod.uid == member.uid));
        let known = known.map(|member| (&*member.name, &*member.uid));
        let new = new.iter().map(|(name, pod)| (*name, &*pod.uid));
        let reference =
            |(name, uid): (&str, &str)| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
        others.into_iter().chain(known.chain(new).map(reference)).collect()
    }

    /// Removes the finalizer of a finished Workload, and its owner references to the controllers that created the pods. Pods that a controller creates under
    /// the name of a finished group are another run.
    fn let_finished_go(&self, workload: &WorkloadView) -> Draft {
        let others = workload.rare.as_ref().map_or(&[][..], |rare| &rare.owners);
        let makes = |owner: &Value| {
            let ours = |pod: &PodState| {
                pod.prebuilt_workload.is_none()
                    && made_by(pod).is_some_and(|maker| maker.get("uid") == owner.get("uid"))
            };
            self.members().any(|(_, pod)| ours(pod))
        };
        let stay: Vec<Value> = others.iter().filter(|owner| !makes(owner)).cloned().collect();
        if stay.len() == others.len() {
            return remove_finalizer(workload);
        }
        remove_finalizer_and(workload, |patch| patch.owner_references(self.references(workload, stay, &[])))
    }

    /// Releases a pod that was kept because of other pods of the group and is not needed any more.
    fn let_go(&self, workload: &WorkloadView) -> Option<Decision> {
        let tally = self.tally();
        if tally.kept == 0 || (tally.staying > 0 && tally.kept_failed == 0) {
            return None;
        }
        let kept = self.members().filter(|(_, pod)| pod.held && pod.deleting() && pod.ended());
        let free = kept.map(|(name, _)| self.pod_name(name)).find(|name| {
            let busy = self.ctx.in_flight.busy(&key(Kind::Pod, name));
            !busy && self.member(name).is_some_and(|member| !is_needed(&member, workload))
        })?;
        Some(self.member(&free)?.release())
    }

    /// Deletes excess pods of a role, and releases failed pods that have been replaced.
    fn surplus(&self, workload: &WorkloadView) -> Option<Decision> {
        workload.sizes().find_map(|(role, size)| {
            let tally = self.tally().role(role);
            let of_role = || self.members().filter(|(_, pod)| pod.role() == role);
            // A pod that is being deleted does not make its successor an excess pod. An excess pod that a controller would at once create again waits until
            // another pod of its role may start.
            let excess = tally.counting.saturating_sub(tally.leaving) > size && self.set.is_none();
            if let Some(decision) = excess.then(|| self.delete_excess(of_role(), size)).flatten() {
                return Some(decision);
            }
            let taken = tally.inactive > 0 && tally.inactive.saturating_add(tally.counting) > size;
            let name = self.pod_name(replaced(of_role()).filter(|_| taken)?);
            Some(self.member(&name)?.release())
        })
    }

    /// Deletes the first of the excess pods of a role.
    fn delete_excess(&self, pods: impl Iterator<Item = (&'a str, &'a PodState)>, size: i32) -> Option<Decision> {
        let name = self.pod_name(excess(pods, size)?);
        Some(self.member(&name)?.delete(event_reasons::EXCESS_POD_DELETED, "Excess pod deleted"))
    }

    /// The input of a decision about one pod of the group.
    fn member<'b>(&self, name: &'b Name) -> Option<crate::pod::PodCase<'b>>
    where
        'a: 'b,
    {
        let pod = self.ctx.view.pods().get(name)?;
        Some(crate::pod::PodCase { ctx: self.ctx, name, pod, now: self.now })
    }

    /// Writes the condition `WaitingForReplacementPods`; while the condition is true, the Workload is not admitted again.
    fn waiting(&self, workload: &WorkloadView) -> Option<Decision> {
        let of_set = |(_, pod): (&str, &PodState)| pod.parent.as_deref() == Some(STATEFUL_SET_FRAMEWORK);
        if self.set.is_some() || self.first().is_some_and(of_set) {
            return None;
        }
        let old = find(&workload.status.conditions, WAITING);
        let was = old.is_some_and(|condition| condition.status == "True");
        let absent = self.tally().absent(workload.sizes()) > 0;
        // The pods of a prebuilt Workload may not have been created yet.
        let made_of_them = || self.members().next().is_some_and(|(_, pod)| pod.prebuilt_workload.is_none());
        let waits = absent && (was || self.tally().has_inactive() || made_of_them() || self.has_lost_one(workload));
        if !waits && !was {
            return None;
        }
        let evicted = find_true(&workload.status.conditions, types::EVICTED);
        let text = |condition: &Condition| (condition.reason.clone(), condition.message.clone());
        let (reason, message) = match (waits, evicted, old) {
            (false, ..) => (reasons::PODS_READY.to_owned(), "No pods need replacement".to_owned()),
            (true, Some(evicted), _) => text(evicted),
            (true, None, Some(old)) if was => text(old),
            (true, None, _) => (reasons::PODS_FAILED.to_owned(), "Some Failed pods need replacement".to_owned()),
        };
        waits_for_pods(workload, (waits, &reason, &message), old, self.now)
    }

    /// Whether a pod that owned the Workload is gone.
    fn has_lost_one(&self, workload: &WorkloadView) -> bool {
        workload.group.iter().flatten().any(|member| self.pod(&member.name).is_none_or(|pod| pod.uid != member.uid))
    }

    fn reclaimable(&self, workload: &WorkloadView) -> Option<Decision> {
        let wanted = self.tally().reclaimable();
        let old = &workload.status.reclaimable_pods;
        let before = |name: &str| old.iter().find(|old| old.name == name).map_or(0, |old| old.count);
        let known: BTreeSet<&str> = workload.sizes().map(|(name, _)| name).collect();
        let grown = wanted.iter().any(|pods| known.contains(pods.name.as_str()) && pods.count > before(&pods.name));
        let pods = json!({ "reclaimablePods": wanted });
        (grown && workload.reserved() && self.ctx.settings.reclaimable_pods)
            .then(|| separate_write(workload, Purpose::SetReclaimable, FIELD_MANAGER_RECLAIMABLE_PODS, pods))
    }
}

/// The owner reference to the controller that creates a pod again.
fn made_by(pod: &PodState) -> Option<Value> {
    Some(to_value(&pod.maker_reference()?))
}

#[cfg(test)]
mod tests;
