//! Pods and StatefulSets as the watch shows them.

use std::sync::Arc;

use berth_api::PodSet;
use berth_cache::names::Name;
use berth_cache::pods::{group_of, group_uid};
use berth_cache::settings::Settings;
use berth_cache::slim::request_rules;
use berth_cache::workload_view::WorkloadStage;
use berth_cache::{View, WorkloadView};
use berth_jobs::pods::{PodState, SetState};
use berth_jobs::{LimitSummary, PodSetNeeds, requests_digest, workload_needs};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodTemplateSpec};

use crate::observe::pod_change::PodChange;
use crate::state::work_queue::WorkQueue;
use crate::workload::transitions;
use crate::write::{Kind, key};

impl PodChange<'_> {
    /// Handles a pod with the label of managed pods, or the removal of such a pod.
    pub fn take_marked(&mut self, name: Name, object: Option<Box<Pod>>, now: Timestamp) {
        match object {
            Some(pod) => {
                let mut state = PodState::read(&pod);
                // The watch of managed pods selects only pods with the label of managed pods.
                state.marked = true;
                self.take_pod(name, state, *pod, now);
            }
            // The pod has lost the label of managed pods, and another watch shows the pod now.
            None if self.view.pods().get(&name).is_some_and(|pod| !pod.marked) => {}
            None => self.drop_pod(&name),
        }
    }

    /// Handles an observed state of a pod.
    pub fn take_pod(&mut self, name: Name, mut state: PodState, pod: Pod, now: Timestamp) {
        // A pod that names a pod group but no LocalQueue is no member of the group, so that its end does not count as the group's end. A pod that has quota of
        // its own is no member of the pod group that it names.
        let silent = !self.settings.names_a_queue(&state) && !state.held;
        let group = state.group.as_deref().filter(|group| {
            let alone =
                self.view.has_quota_of_its_own(&state.uid) || self.view.was_started_alone(&name, &pod, &group.name);
            !silent && !alone
        });
        if group.is_none() {
            state.group = None;
        }
        self.view.pods().keep_role(&name, &mut state);
        let asked = (!state.gated && !state.ended()).then(|| self.needs_of_running(pod.spec)).flatten();
        if self.put_pod(name.clone(), state, now) {
            self.view.pods_mut().note_asked(&name, asked);
            self.note_running_pod(&name);
        }
    }

    /// The requests of a pod without a gate, computed as for its Workload. Defaults and overhead are in the spec of a pod since its creation, and are not
    /// added again.
    pub(crate) fn needs_of_running(&mut self, spec: Option<PodSpec>) -> Option<Arc<PodSetNeeds>> {
        let template = PodTemplateSpec { metadata: None, spec };
        let digest = requests_digest(&template);
        let rules = request_rules(self.settings);
        self.view.pods_mut().needs(digest, || {
            let set = PodSet { count: Some(1), template, ..PodSet::default() };
            let none = |_: &str| None;
            workload_needs(&[set], &LimitSummary::default(), none, &rules).pod_sets.into_iter().next()
        })
    }

    /// Stores a pod in place of its older state; `false` if a newer state is known.
    fn put_pod(&mut self, name: Name, new: PodState, now: Timestamp) -> bool {
        let object = key(Kind::Pod, &name);
        match self.view.pods().get(&name) {
            Some(old) if old.uid == new.uid && old.version > new.version => return false,
            Some(old) if old.uid != new.uid => self.drop_pod(&name),
            _ => {}
        }
        let version = new.version;
        let group = group_of(&name.0, &new).map(|group| (group, new.role().to_owned()));
        let crowded = group.as_ref().is_some_and(|(group, role)| self.view.is_crowded(group, role));
        let may_start = !new.gated && !new.ended();
        let gated = self.view.pods().get(&name).filter(|old| old.gated && may_start);
        let ungated = gated.filter(|_| self.leads).and_then(|old| transitions::ungated(self.view, &name, old, now));
        self.reports.add_measures(ungated);
        if self.view.pods().get(&name).is_some_and(|old| old.group != new.group) {
            // The pod may have left the group that has quota for it.
            self.note_running_pod(&name);
        }
        let known = self.view.pods().get(&name);
        // The trial of the pod has begun or ended, which changes the decision about its Workload.
        let is_otherwise = known.is_some_and(PodState::is_let_in) != new.is_let_in();
        let uid = (is_otherwise || known.is_none_or(|old| !asks_alike(self.settings, old, &new)))
            .then(|| new.uid.to_string());
        let founds = group.as_ref().map(|(group, _)| group);
        let founds = founds.filter(|group| is_otherwise || self.view.pods().group(group).is_none()).cloned();
        self.view.pods_mut().put(name, new);
        self.mirror_waiting(uid, founds);
        self.in_flight.seen(&object, version);
        self.work.touch_related(self.view, &object);
        if let Some((group, _)) = group.filter(|_| crowded) {
            self.view.pods_mut().crowd(group);
        }
        true
    }

    /// Forgets a pod that is gone.
    pub fn drop_pod(&mut self, name: &Name) {
        let object = key(Kind::Pod, name);
        // The objects that depend on the pod are marked before the pod leaves its group in the view.
        self.work.touch_related(self.view, &object);
        self.in_flight.vanished(&object);
        self.reports.forget_events(&object);
        let Some(pod) = self.view.pods().get(name) else { return };
        let group = group_of(&name.0, pod).map(|group| (group, pod.role().to_owned()));
        let crowded = group.as_ref().is_some_and(|(group, role)| self.view.is_crowded(group, role));
        let uid = pod.uid.to_string();
        self.note_running_pod(name);
        self.view.pods_mut().remove(name, false);
        self.mirror_waiting(Some(uid), None);
        let Some((group, _)) = group else { return };
        if self.view.pods().group(&group).is_none() {
            self.mirror_waiting(None, Some(group.clone()));
            self.reports.forget_events(&key(Kind::PodGroup, &group));
            // No other object waits for the Workload of the removed group.
            self.work.touch(key(Kind::Workload, &group));
        } else if crowded {
            self.view.pods_mut().crowd(group);
        }
    }

    /// Has the engine get the pending Workloads of a pod or of a pod group again.
    pub(crate) fn mirror_waiting(&mut self, uid: Option<String>, group: Option<Name>) {
        let group = group.map(|group| group_uid(&group.0, &group.1));
        for uid in uid.into_iter().chain(group) {
            self.work.mirror_waiting_of(self.view, &uid);
        }
    }

    /// Handles a StatefulSet that was observed or removed.
    pub fn put_set(&mut self, name: Name, object: Option<&StatefulSet>) {
        let new = object.and_then(SetState::read);
        let old = self.view.sets().get(&name);
        if old.zip(new.as_ref()).is_some_and(|(old, new)| old.uid == new.uid && old.version > new.version) {
            return;
        }
        let groups = [old, new.as_ref()].into_iter().flatten();
        let groups: Vec<Name> = groups.map(|set| (name.0.clone(), set.group.to_string())).collect();
        self.view.put_stateful_set(name, new);
        for group in groups {
            self.mirror_waiting(None, Some(group.clone()));
            if self.view.sets().of_group(&group).is_none() && self.view.pods().group(&group).is_none() {
                self.reports.forget_events(&key(Kind::PodGroup, &group));
            }
            self.work.touch(key(Kind::PodGroup, &group));
            self.work.touch(key(Kind::Workload, &group));
        }
    }

    fn note_running_pod(&mut self, name: &Name) {
        if self.leads {
            self.overruns.note_running_pod(self.view, self.settings.reclaimable_pods, name);
        }
    }
}

/// Handles the newer state of a Workload. If the Workload has changed its owner, the older owner is marked, because only that owner can take the Workload back.
/// A pod that owns a Workload with quota leaves its group.
pub fn note_hands(view: &mut View, work: &mut WorkQueue, name: &Name, old: Option<&WorkloadView>) {
    let Some(new) = view.workloads().get(name) else { return };
    let before = old.filter(|old| old.owner != new.owner).and_then(WorkloadView::owner_key);
    let pod = new.owner.as_ref().filter(|owner| owner.kind == Kind::Pod.name() && new.holds().is_some());
    let pod = pod.map(|owner| ((name.0.clone(), owner.name.clone()), owner.uid.clone()));
    if let Some(before) = before {
        work.touch(before);
    }
    let Some((pod, uid)) = pod else { return };
    let Some(state) = view.pods().get(&pod).filter(|state| *state.uid == *uid) else { return };
    if let Some(group) = group_of(&pod.0, state) {
        let mut state = state.clone();
        state.group = None;
        work.touch(key(Kind::Pod, &pod));
        view.pods_mut().put(pod, state);
        work.touch(key(Kind::PodGroup, &group));
    }
}

/// Marks all pods of the crowded groups for a decision, once for any number of changes.
pub fn touch_crowded(view: &mut View, work: &mut WorkQueue) {
    for group in view.pods_mut().take_crowded() {
        work.touch_members(view, &group);
    }
}

/// Handles the newer state of a pod group's Workload: its pods are marked when the Workload has reached another stage.
pub fn wake_group(view: &mut View, work: &mut WorkQueue, name: &Name, before: Option<WorkloadStage>) {
    let Some(workload) = view.workloads().get(name).filter(|workload| workload.group.is_some()) else { return };
    let moved = before != Some(workload.stage());
    view.note_group_owners(name);
    if moved {
        work.touch_members(view, name);
    }
}

/// Whether two states of a pod request quota through the same Workload.
fn asks_alike(settings: &Settings, old: &PodState, new: &PodState) -> bool {
    let group = |pod: &PodState| pod.group.as_ref().map(|group| group.name.clone());
    settings.names_a_queue(old) == settings.names_a_queue(new) && group(old) == group(new) && old.owner == new.owner
}
