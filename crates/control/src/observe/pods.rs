//! Pods and StatefulSets as they are seen.

use std::sync::Arc;

use berth_api::{PodSet, labels};
use berth_jobs::pods::{PodState, SetState};
use berth_jobs::{LimitSummary, PodSetNeeds, requests_digest, workload_name, workload_needs};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodTemplateSpec};

use super::known;
use crate::cache::pods::{PodBook, group_of, group_uid};
use crate::cache::{Name, WorkloadView};
use crate::context::Context;
use crate::controller::{Control, key};
use crate::event::{Change, FoundBy};
use crate::write::Kind;

impl Control {
    pub(super) fn observe_pods(&mut self, change: Change<Box<Pod>>, now: Timestamp) {
        let known = known(&change, self.view.pods.marked(true).cloned());
        self.each_namespaced(change, known, |me, name, object| match object {
            Some(pod) => {
                let mut state = PodState::read(&pod);
                // The watch shows no other.
                state.marked = true;
                me.take_pod(name, state, *pod, now);
            }
            // The pod has lost the label, and another watch shows it.
            None if me.view.pods.get(&name).is_some_and(|pod| !pod.marked) => {}
            None => me.drop_pod(&name),
        });
    }

    /// Takes over pods without the label of managed pods: of these, the view keeps those that were let in without a review.
    pub(super) fn observe_unmarked_pods(&mut self, by: FoundBy, change: Change<Box<Pod>>, now: Timestamp) {
        let shown = |pod: &PodState| !pod.marked && pod.queue_name.is_some() == (by == FoundBy::Queue);
        let shows = |pods: &PodBook, name: &Name| pods.get(name).is_some_and(shown);
        let known = known(&change, self.view.pods.marked(false).filter(|name| shows(&self.view.pods, name)).cloned());
        let let_in = |me: &Self, pod: Box<Pod>| Some((me.context().let_in_state(&pod)?, pod));
        self.each_namespaced(change, known, |me, name, object| match object.and_then(|pod| let_in(me, pod)) {
            Some((mut state, pod)) => {
                state.marked = false;
                // The pod comes to its group with its mark.
                state.group = None;
                me.take_pod(name, state, *pod, now);
            }
            None if shows(&me.view.pods, &name) => me.drop_pod(&name),
            None => {}
        });
    }

    /// Takes over a state of a pod.
    fn take_pod(&mut self, name: Name, mut state: PodState, pod: Pod, now: Timestamp) {
        // A pod that names a group and no queue is no member: its end would not be that of the group. A pod with quota of its own is none either.
        let silent = !self.context().names_a_queue(&state) && !state.held;
        let group = state.group.as_deref().filter(|group| {
            let alone = self.context().has_quota_of_its_own(&state.uid)
                || self.context().was_started_alone(&name, &pod, &group.name);
            !silent && !alone
        });
        if group.is_none() {
            state.group = None;
        }
        self.view.pods.keep_role(&name, &mut state);
        let asked = (!state.gated && !state.ended()).then(|| self.needs_of_running(pod.spec)).flatten();
        if self.put_pod(name.clone(), state, now) {
            self.view.pods.note_asked(&name, asked);
            self.note_running_pod(&name);
        }
    }

    /// A Workload was seen after `old`: the owner of `old` is looked at, since only that one can take it back. A pod that has quota of its own is of
    /// no group, whichever of the two was seen first.
    pub(super) fn note_hands(&mut self, name: &Name, old: Option<&WorkloadView>) {
        let Some(new) = self.view.workloads.get(name) else { return };
        let before = old.filter(|old| old.owner != new.owner).and_then(WorkloadView::whole);
        let pod = new.owner.as_ref().filter(|owner| owner.kind == Kind::Pod.name() && new.holds().is_some());
        let pod = pod.map(|owner| ((name.0.clone(), owner.name.clone()), owner.uid.clone()));
        if let Some(before) = before {
            self.touch(before);
        }
        let Some((pod, uid)) = pod else { return };
        let Some(state) = self.view.pods.get(&pod).filter(|state| *state.uid == *uid) else { return };
        if let Some(group) = group_of(&pod.0, state) {
            let mut state = state.clone();
            state.group = None;
            self.touch(key(Kind::Pod, &pod));
            self.view.pods.put(pod, state);
            self.touch(key(Kind::PodGroup, &group));
        }
    }

    /// Needs of a pod without a gate, as its Workload would be charged for them: it was given its defaults and its overhead when it was made.
    pub(crate) fn needs_of_running(&mut self, spec: Option<PodSpec>) -> Option<Arc<PodSetNeeds>> {
        let template = PodTemplateSpec { metadata: None, spec };
        let digest = requests_digest(&template);
        let rules = self.context().request_rules();
        self.view.pods.needs(digest, || {
            let set = PodSet { count: Some(1), template, ..PodSet::default() };
            let none = |_: &str| None;
            workload_needs(&[set], &LimitSummary::default(), none, &rules).pod_sets.into_iter().next()
        })
    }

    /// Puts a pod in place of its older state; `false` when a newer one is known.
    fn put_pod(&mut self, name: Name, new: PodState, now: Timestamp) -> bool {
        let object = key(Kind::Pod, &name);
        match self.view.pods.get(&name) {
            Some(old) if old.uid == new.uid && old.version > new.version => return false,
            Some(old) if old.uid != new.uid => self.drop_pod(&name),
            _ => {}
        }
        let version = new.version;
        let group = group_of(&name.0, &new).map(|group| (group, new.role().to_owned()));
        let crowded = group.as_ref().is_some_and(|(group, role)| self.context().is_crowded(group, role));
        let ungated = !new.gated && !new.ended();
        let gated = self.view.pods.get(&name).filter(|old| old.gated && ungated);
        self.reports.measures.extend(gated.and_then(|old| self.context().ungated(&name, old, now)));
        if self.view.pods.get(&name).is_some_and(|old| old.group != new.group) {
            // The group that answered for the pod may not do so any more.
            self.note_running_pod(&name);
        }
        let known = self.view.pods.get(&name);
        // Its Workload is tried, or is not any more.
        let is_otherwise = known.is_some_and(PodState::is_let_in) != new.is_let_in();
        let uid = (is_otherwise || known.is_none_or(|old| !self.context().asks_alike(old, &new)))
            .then(|| new.uid.to_string());
        let founds = group.as_ref().map(|(group, _)| group);
        let founds = founds.filter(|group| is_otherwise || self.view.pods.group(group).is_none()).cloned();
        self.view.pods.put(name, new);
        self.mirror_waiting(uid, founds);
        self.flights.seen(&object, version);
        self.touch_related(&object);
        if let Some((group, _)) = group.filter(|_| crowded) {
            self.view.pods.crowd(group);
        }
        true
    }

    fn drop_pod(&mut self, name: &Name) {
        let object = key(Kind::Pod, name);
        // Objects that depend on the pod are looked at before its group is forgotten.
        self.touch_related(&object);
        self.flights.vanished(&object);
        self.reports.told.remove(&object);
        let Some(pod) = self.view.pods.get(name) else { return };
        let group = group_of(&name.0, pod).map(|group| (group, pod.role().to_owned()));
        let crowded = group.as_ref().is_some_and(|(group, role)| self.context().is_crowded(group, role));
        let uid = pod.uid.to_string();
        self.note_running_pod(name);
        self.view.pods.remove(name, false);
        self.mirror_waiting(Some(uid), None);
        let Some((group, _)) = group else { return };
        if self.view.pods.group(&group).is_none() {
            self.mirror_waiting(None, Some(group.clone()));
            self.reports.told.remove(&key(Kind::PodGroup, &group));
            // No other object waits for that Workload.
            self.touch(key(Kind::Workload, &group));
        } else if crowded {
            self.view.pods.crowd(group);
        }
    }

    /// A pod, or the first or last one of a group, has come or gone.
    fn mirror_waiting(&mut self, uid: Option<String>, group: Option<Name>) {
        let group = group.map(|group| group_uid(&group.0, &group.1));
        for uid in uid.into_iter().chain(group) {
            self.mirror_waiting_of(&uid);
        }
    }

    /// Marks all pods of crowded groups, once for all that has happened to them.
    pub(crate) fn touch_crowded(&mut self) {
        for group in self.view.pods.take_crowded() {
            self.touch_members(&group);
        }
    }

    /// The Workload of a group was seen: its pods are looked at when it has come to another stage.
    pub(super) fn wake_group(&mut self, name: &Name, before: Option<[bool; 5]>) {
        let Some(workload) = self.view.workloads.get(name).filter(|workload| workload.group.is_some()) else { return };
        let moved = before != Some(workload.stage());
        let Some(group) = self.view.pods.group(name) else { return };
        let owned = |pod: &str| {
            let pod = self.view.pods.get(&(name.0.clone(), pod.to_owned()));
            pod.is_some_and(|pod| workload.is_owned_by(&pod.uid))
        };
        let left = group.newcomers.iter().filter(|pod| !owned(pod)).cloned().collect();
        if let Some(group) = self.view.pods.group_mut(name) {
            group.newcomers = left;
        }
        if moved {
            self.touch_members(name);
        }
    }

    pub(super) fn observe_sets(&mut self, change: Change<Box<StatefulSet>>) {
        let known = known(&change, self.view.sets.keys().cloned());
        self.each_namespaced(change, known, |me, name, object| {
            let new = object.as_deref().and_then(SetState::read);
            let old = me.view.sets.get(&name);
            if old.zip(new.as_ref()).is_some_and(|(old, new)| old.uid == new.uid && old.version > new.version) {
                return;
            }
            let groups = [old, new.as_ref()].into_iter().flatten();
            let groups: Vec<Name> = groups.map(|set| (name.0.clone(), set.group.to_string())).collect();
            match new {
                Some(set) => me.view.sets.put(name, set),
                None => me.view.sets.remove(&name),
            }
            for group in groups {
                me.mirror_waiting(None, Some(group.clone()));
                if me.view.sets.of_group(&group).is_none() && me.view.pods.group(&group).is_none() {
                    me.reports.told.remove(&key(Kind::PodGroup, &group));
                }
                me.touch(key(Kind::PodGroup, &group));
                me.touch(key(Kind::Workload, &group));
            }
        });
    }
}

impl Context<'_> {
    /// Whether two states of a pod request quota through the same Workload.
    fn asks_alike(&self, old: &PodState, new: &PodState) -> bool {
        let group = |pod: &PodState| pod.group.as_ref().map(|group| group.name.clone());
        self.names_a_queue(old) == self.names_a_queue(new) && group(old) == group(new) && old.owner == new.owner
    }

    /// Whether a pod that is of that group now says that it was started by a Workload which is none of a group.
    fn was_started_alone(&self, name: &Name, pod: &Pod, group: &str) -> bool {
        let annotations = pod.metadata.annotations.as_ref();
        let Some(by) = annotations.and_then(|all| all.get(labels::WORKLOAD)).filter(|by| *by != group) else {
            return false;
        };
        let own = || workload_name(Kind::Pod.name(), "", &name.1, pod.metadata.uid.as_deref().unwrap_or_default());
        let found = self.view.workloads.get(&(name.0.clone(), by.clone()));
        found.map_or_else(|| *by == own(), |workload| workload.group.is_none())
    }

    /// Whether a Workload holds quota for this pod alone.
    pub(crate) fn has_quota_of_its_own(&self, uid: &str) -> bool {
        self.view.workloads.owned_by(uid).any(|workload| workload.holds_quota())
    }

    /// Whether a pod says that it waits for a queue, or its StatefulSet does.
    pub(crate) fn names_a_queue(&self, pod: &PodState) -> bool {
        let settings = &self.settings;
        let through_set = pod.is_of_set() && settings.job_kinds.contains(&Kind::StatefulSet);
        pod.queue_name.is_some() || through_set || settings.manage_jobs_without_queue_name
    }

    /// Whether a role has more pods than its Workload: a change of one of them may give another one its place.
    fn is_crowded(&self, group: &Name, role: &str) -> bool {
        let Some(workload) = self.view.workloads.get(group).filter(|workload| workload.group.is_some()) else {
            return false;
        };
        let counting = self.view.pods.group(group).map_or(0, |group| group.tally.role(role).counting);
        counting > workload.size(role)
    }
}
