//! Managed pods in the view, the groups of pods, and the StatefulSets of such groups.
//!
//! A group is found by its name, and its counts are updated for each pod that is added or removed: a change of one pod costs the same however many pods the
//! group has.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use berth_jobs::PodSetNeeds;
use berth_jobs::pods::{Place, PodState, SetState, Tally, last_place};

use crate::event::FoundBy;
use crate::names::Name;

/// For one role of a pod group: a number of admitted pods, and the place of the last pod among that number of the role's first pods; `None` if there is no such
/// pod.
type LastPlace = (i32, Option<Place>);

/// The pods that name one group.
#[derive(Debug, Default)]
pub struct Group {
    /// Names of the pods of the group.
    members: BTreeSet<Box<str>>,
    /// The numbers of the group's pods in each state.
    pub tally: Tally,
    /// Pods of the group that were not observed among the owners of the group's Workload yet.
    pub newcomers: BTreeSet<Box<str>>,
    /// For each role of the group, a number of admitted pods and the place of the last pod among that number of the role's first pods. Every pod of a role that
    /// has more pods than were admitted is compared with the last admitted place, and the cache `last_places` keeps each pod from being compared with all other
    /// pods. The cache `last_places` is cleared when a pod of the group is created, changed or deleted.
    last_places: RefCell<BTreeMap<Box<str>, LastPlace>>,
}

/// A managed pod that was observed.
#[derive(Debug)]
struct Known {
    state: Box<PodState>,
    /// The requests of a pod without a scheduling gate.
    asked: Option<Arc<PodSetNeeds>>,
}

/// All managed pods, by name and by group.
#[derive(Debug, Default)]
pub struct PodIndex {
    all: BTreeMap<Name, Known>,
    /// The requests of running pods, by their digest; pods with equal requests share one entry.
    needs: BTreeMap<[u8; 16], Weak<PodSetNeeds>>,
    groups: BTreeMap<Name, Group>,
    /// Groups that have more pods than were admitted, and whose pods have changed.
    crowded: BTreeSet<Name>,
    /// Running pods that no webhook has reviewed; there are nearly always none.
    let_in: BTreeSet<Name>,
}

/// The group of a pod of a namespace.
pub fn group_of(namespace: &str, pod: &PodState) -> Option<Name> {
    Some((namespace.to_owned(), pod.group.as_ref()?.name.to_string()))
}

/// The text that stands for the uid of a pod group, which is not an object: its name.
pub fn group_uid(namespace: &str, name: &str) -> String {
    format!("group/{namespace}/{name}")
}

impl PodIndex {
    /// The last observed state of a pod; `None` if the pod is not known as a managed pod.
    pub fn get(&self, name: &Name) -> Option<&PodState> {
        self.all.get(name).map(|known| &*known.state)
    }

    /// Names of the pods without the label of managed pods that the given watch has found.
    pub fn found_by(&self, by: FoundBy) -> impl Iterator<Item = &Name> {
        self.marked(false).filter(move |name| self.is_found_by(name, by))
    }

    /// Whether a known pod has no label of managed pods and was found by the given watch.
    pub fn is_found_by(&self, name: &Name, by: FoundBy) -> bool {
        self.get(name).is_some_and(|pod| !pod.marked && pod.queue_name.is_some() == (by == FoundBy::Queue))
    }

    /// The pods with the label of managed pods if `marked` is true, otherwise the pods without the label.
    pub fn marked(&self, marked: bool) -> impl Iterator<Item = &Name> {
        self.all.iter().filter(move |(_, known)| known.state.marked == marked).map(|(name, _)| name)
    }

    /// The running pods that no webhook has reviewed.
    pub fn let_in(&self) -> impl Iterator<Item = (&Name, &PodState)> {
        self.let_in.iter().filter_map(|name| Some((name, self.get(name)?)))
    }

    /// Whether there is a running pod that no webhook has reviewed.
    pub fn has_let_in(&self) -> bool {
        !self.let_in.is_empty()
    }

    /// The pods of a namespace, by name.
    pub fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a Name, &'a PodState)> {
        let first = (namespace.to_owned(), String::new());
        let all = self.all.range(first..).take_while(move |(name, _)| name.0 == namespace);
        all.map(|(name, known)| (name, &*known.state))
    }

    /// The requests of a pod without a scheduling gate.
    pub fn asked(&self, name: &Name) -> Option<&PodSetNeeds> {
        self.all.get(name)?.asked.as_deref()
    }

    /// Records the requests of a pod without a scheduling gate.
    pub fn note_asked(&mut self, name: &Name, asked: Option<Arc<PodSetNeeds>>) {
        if let Some(known) = self.all.get_mut(name) {
            known.asked = asked;
        }
    }

    /// The requests of pods whose requests have the given digest; `compute` computes the requests if no pod with the digest is known.
    pub fn needs(
        &mut self,
        digest: [u8; 16],
        compute: impl FnOnce() -> Option<PodSetNeeds>,
    ) -> Option<Arc<PodSetNeeds>> {
        if let Some(known) = self.needs.get(&digest).and_then(Weak::upgrade) {
            return Some(known);
        }
        // The map `needs` grows only with different requests of pods, which is rare.
        self.needs.retain(|_, known| known.strong_count() > 0);
        let made = Arc::new(compute()?);
        self.needs.insert(digest, Arc::downgrade(&made));
        Some(made)
    }

    /// Keeps the role with which a pod was started, whatever role the pod's annotation names later.
    pub fn keep_role(&self, name: &Name, pod: &mut PodState) {
        let old = self.get(name).filter(|old| old.uid == pod.uid && !old.gated);
        if let (Some(old), Some(new)) = (old.and_then(|old| old.group.as_ref()), pod.group.as_mut())
            && old.name == new.name
        {
            new.role.clone_from(&old.role);
        }
    }

    /// The pods that name a group; `None` if no known pod names the group.
    pub fn group(&self, name: &Name) -> Option<&Group> {
        self.groups.get(name)
    }

    /// The Workload of a group is gone: the next Workload will have to name all pods of the group as owners.
    pub fn forget_owners(&mut self, group: &Name) {
        if let Some(group) = self.groups.get_mut(group) {
            group.newcomers = group.members.clone();
        }
    }

    /// Handles the owners of a group's Workload: a pod for which `is_owner` returns true is no newcomer any more.
    pub(crate) fn note_owners(&mut self, group: &Name, is_owner: impl Fn(&PodState) -> bool) {
        let Some(known) = self.groups.get(group) else { return };
        let is_owned = |pod: &str| self.get(&(group.0.clone(), pod.to_owned())).is_some_and(&is_owner);
        let left = known.newcomers.iter().filter(|pod| !is_owned(pod)).cloned().collect();
        if let Some(known) = self.groups.get_mut(group) {
            known.newcomers = left;
        }
    }

    /// The pods of a group in the order of their names.
    pub fn members(&self, group: &Name) -> impl Iterator<Item = (&str, &PodState)> + use<'_> {
        let namespace = group.0.clone();
        let names = self.groups.get(group).into_iter().flat_map(|group| &group.members);
        names.filter_map(move |name| Some((&**name, self.get(&(namespace.clone(), name.to_string()))?)))
    }

    /// Whether a pod is among the first `size` pods of its role.
    pub fn has_place(&self, group: &Name, (name, pod): (&str, &PodState), size: i32) -> bool {
        let Some(known) = self.groups.get(group) else { return false };
        let mut places = known.last_places.borrow_mut();
        if places.get(pod.role()).is_none_or(|(of, _)| *of != size) {
            let of_role = self.members(group).filter(|(_, other)| other.role() == pod.role());
            places.insert(pod.role().into(), (size, last_place(of_role, size)));
        }
        let last = places.get(pod.role()).and_then(|(_, last)| last.as_ref());
        last.is_some_and(|last| Place::of(name, pod) <= *last)
    }

    /// Marks a pod group: before the next decision, control looks at all pods of the group, once for any number of changes.
    pub fn crowd(&mut self, group: Name) {
        self.crowded.insert(group);
    }

    /// Removes and returns the marks of the groups that [`Self::crowd`] has marked.
    pub fn take_crowded(&mut self) -> BTreeSet<Name> {
        std::mem::take(&mut self.crowded)
    }

    /// Stores a pod in place of its older state.
    pub fn put(&mut self, name: Name, pod: PodState) {
        let stays = self.get(&name).is_some_and(|old| group_of(&name.0, old) == group_of(&name.0, &pod));
        let same = self.all.get(&name).filter(|known| known.state.uid == pod.uid && !pod.gated);
        let asked = same.and_then(|known| known.asked.clone());
        let known = self.remove(&name, stays) && stays;
        if let Some(place) = group_of(&name.0, &pod) {
            let group = self.groups.entry(place).or_default();
            group.tally.add(&pod);
            group.last_places.get_mut().clear();
            group.members.insert(name.1.as_str().into());
            if !known {
                group.newcomers.insert(name.1.as_str().into());
            }
        }
        if pod.is_let_in() {
            self.let_in.insert(name.clone());
        }
        self.all.insert(name, Known { state: Box::new(pod), asked });
    }

    /// Forgets a pod; true if the pod was known. If `returns` is true, a newer state of the removed pod follows, and the pod stays a member of its pod group
    /// meanwhile.
    pub fn remove(&mut self, name: &Name, returns: bool) -> bool {
        let Some(Known { state: old, .. }) = self.all.remove(name) else { return false };
        self.let_in.remove(name);
        let Some(place) = group_of(&name.0, &old) else { return true };
        if let Some(group) = self.groups.get_mut(&place) {
            group.tally.remove(&old);
            group.last_places.get_mut().clear();
            if !returns {
                group.members.remove(name.1.as_str());
                group.newcomers.remove(name.1.as_str());
            }
            if group.members.is_empty() {
                self.groups.remove(&place);
            }
        }
        true
    }

    /// Names of the pods, of one namespace or of all namespaces.
    pub fn names<'a>(&'a self, namespace: Option<&'a str>) -> impl Iterator<Item = &'a Name> {
        of_namespace(&self.all, namespace)
    }

    /// Names of the pod groups, of one namespace or of all namespaces.
    pub(crate) fn group_names<'a>(&'a self, namespace: Option<&'a str>) -> impl Iterator<Item = &'a Name> {
        of_namespace(&self.groups, namespace)
    }
}

fn of_namespace<'a, T>(
    map: &'a BTreeMap<Name, T>,
    namespace: Option<&'a str>,
) -> impl Iterator<Item = &'a Name> + use<'a, T> {
    let first = (namespace.unwrap_or_default().to_owned(), String::new());
    map.range(first..).map(|(name, _)| name).take_while(move |name| namespace.is_none_or(|place| name.0 == place))
}

/// The StatefulSets whose pods are managed, by name and by group.
#[derive(Debug, Default)]
pub struct SetIndex {
    all: BTreeMap<Name, SetState>,
    groups: BTreeMap<Name, Name>,
}

impl SetIndex {
    /// Names of the pod groups of StatefulSets, of one namespace or of all namespaces.
    pub(crate) fn group_names<'a>(&'a self, namespace: Option<&'a str>) -> impl Iterator<Item = &'a Name> {
        of_namespace(&self.groups, namespace)
    }

    /// The last observed state of a StatefulSet; `None` if its pods are not managed, or it does not exist.
    pub fn get(&self, name: &Name) -> Option<&SetState> {
        self.all.get(name)
    }

    /// Names of all StatefulSets whose pods are managed, in the order of the names.
    pub fn keys(&self) -> impl Iterator<Item = &Name> {
        self.all.keys()
    }

    /// The StatefulSet whose pods form a group, with its name.
    pub fn of_group(&self, group: &Name) -> Option<(&str, &SetState)> {
        let name = self.groups.get(group)?;
        Some((name.1.as_str(), self.all.get(name)?))
    }

    /// Stores a StatefulSet in place of its older state.
    pub fn put(&mut self, name: Name, set: SetState) {
        self.remove(&name);
        self.groups.insert((name.0.clone(), set.group.to_string()), name.clone());
        self.all.insert(name, set);
    }

    /// Removes a StatefulSet, also from the index by group. The removal of a StatefulSet with an unknown name changes nothing.
    pub fn remove(&mut self, name: &Name) {
        if let Some(old) = self.all.remove(name) {
            self.groups.remove(&(name.0.clone(), old.group.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{from_value, json};

    use super::*;

    fn name(pod: i32) -> Name {
        ("n".to_owned(), format!("p-{pod:03}"))
    }

    /// A pod of group `g`, in one of two roles.
    fn made(pod: i32, gates: &[&str]) -> PodState {
        let role = if pod % 2 == 0 { "even" } else { "odd" };
        let gates: Vec<_> = gates.iter().map(|gate| json!({"name": gate})).collect();
        let object = json!({
            "metadata": {
                "name": name(pod).1, "uid": format!("u-{pod}"), "finalizers": ["kueue.x-k8s.io/managed"],
                "labels": {"kueue.x-k8s.io/pod-group-name": "g"},
                "annotations": {"kueue.x-k8s.io/role-hash": role},
            },
            "spec": {"schedulingGates": gates, "containers": []},
        });
        PodState::read(&from_value::<Pod>(object).expect("a pod"))
    }

    fn waiting(pod: i32) -> PodState {
        made(pod, &["kueue.x-k8s.io/admission"])
    }

    /// Names of the pods that are among the first `size` pods of their role, for both roles.
    fn placed(index: &PodIndex, size: i32) -> Vec<&str> {
        let group = ("n".to_owned(), "g".to_owned());
        let all = index.all.iter().filter(|(name, pod)| index.has_place(&group, (&name.1, &*pod.state), size));
        all.map(|(name, _)| name.1.as_str()).collect()
    }

    #[test]
    fn pod_group_places_follow_pod_changes_and_group_size() {
        let mut index = PodIndex::default();
        (0..10).for_each(|pod| index.put(name(pod), waiting(pod)));
        assert_eq!(placed(&index, 2), ["p-000", "p-001", "p-002", "p-003"]);
        assert_eq!(placed(&index, 1), ["p-000", "p-001"]);
        assert!(placed(&index, 0).is_empty());
        assert_eq!(placed(&index, 9).len(), 10);
        assert_eq!(placed(&index, 2), ["p-000", "p-001", "p-002", "p-003"]);
        index.remove(&name(0), false);
        assert_eq!(placed(&index, 2), ["p-001", "p-002", "p-003", "p-004"], "one went");
        index.put(name(8), made(8, &[]));
        assert_eq!(placed(&index, 2), ["p-001", "p-002", "p-003", "p-008"], "one was started");
        index.put(name(0), waiting(0));
        assert_eq!(placed(&index, 2), ["p-000", "p-001", "p-003", "p-008"], "one came");
    }

    #[test]
    fn pod_group_is_walked_once_to_place_all_its_pods() {
        let mut index = PodIndex::default();
        (0..10).for_each(|pod| index.put(name(pod), waiting(pod)));
        let group = ("n".to_owned(), "g".to_owned());
        assert_eq!(placed(&index, 2).len(), 4);
        // The pod is removed only from the map of all pods: a walk over the map would find that the pod is gone, and the cache of last places does not.
        index.all.remove(&name(0));
        assert!(!index.has_place(&group, ("p-004", &waiting(4)), 2));
        assert!(index.has_place(&group, ("p-004", &waiting(4)), 3));
        assert_eq!(index.groups[&group].last_places.borrow().len(), 2, "by role, and none is kept for an older size");
    }

    #[test]
    fn marked_pod_group_is_taken_once_however_often_marked() {
        let mut index = PodIndex::default();
        let group = ("n".to_owned(), "g".to_owned());
        (0..3).for_each(|_| index.crowd(group.clone()));
        assert_eq!(index.take_crowded().into_iter().collect::<Vec<_>>(), [group]);
        assert!(index.take_crowded().is_empty());
    }
}
