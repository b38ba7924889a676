//! Managed pods as control remembers them, the groups that they form, and the StatefulSets whose groups they are.
//!
//! A group is found by its name, and its figures are kept by adding and taking away pods one by one: what happens to one pod
//! costs the same however many there are.

use std::collections::{BTreeMap, BTreeSet};

use berth_jobs::pods::{PodState, SetState, Tally};

use crate::core::{Control, key};
use crate::view::{Name, View, WorkloadView};
use crate::write::{Kind, ObjectKey};

/// The pods that name one group.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Names of its pods.
    members: BTreeSet<Box<str>>,
    /// How they stand.
    pub(crate) tally: Tally,
    /// Pods that were not seen among the owners of the Workload yet.
    pub(crate) newcomers: BTreeSet<Box<str>>,
}

/// All managed pods, by name and by group.
#[derive(Debug, Default)]
pub(crate) struct PodBook {
    all: BTreeMap<Name, Box<PodState>>,
    groups: BTreeMap<Name, Group>,
}

/// The group of a pod of that namespace.
pub(crate) fn group_of(namespace: &str, pod: &PodState) -> Option<Name> {
    Some((namespace.to_owned(), pod.group.as_ref()?.name.to_string()))
}

impl PodBook {
    pub(crate) fn get(&self, name: &Name) -> Option<&PodState> {
        self.all.get(name).map(Box::as_ref)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Name> {
        self.all.keys()
    }

    pub(crate) fn group(&self, name: &Name) -> Option<&Group> {
        self.groups.get(name)
    }

    /// The Workload of a group is gone: another one will have to name all its pods.
    pub(crate) fn forget_owners(&mut self, group: &Name) {
        if let Some(group) = self.groups.get_mut(group) {
            group.newcomers = group.members.clone();
        }
    }

    pub(crate) fn group_mut(&mut self, name: &Name) -> Option<&mut Group> {
        self.groups.get_mut(name)
    }

    /// The pods of a group in the order of their names.
    pub(crate) fn members(&self, group: &Name) -> impl Iterator<Item = (&str, &PodState)> + use<'_> {
        let namespace = group.0.clone();
        let names = self.groups.get(group).into_iter().flat_map(|group| &group.members);
        names.filter_map(move |name| Some((&**name, self.get(&(namespace.clone(), name.to_string()))?)))
    }

    /// Puts a pod in place of its older state.
    pub(crate) fn put(&mut self, name: Name, pod: PodState) {
        let stays = self.get(&name).is_some_and(|old| group_of(&name.0, old) == group_of(&name.0, &pod));
        let known = self.remove(&name, stays) && stays;
        if let Some(place) = group_of(&name.0, &pod) {
            let group = self.groups.entry(place).or_default();
            group.tally.add(&pod);
            group.members.insert(name.1.as_str().into());
            if !known {
                group.newcomers.insert(name.1.as_str().into());
            }
        }
        self.all.insert(name, Box::new(pod));
    }

    /// Forgets a pod; `true` when there was one. Its group stays when the pod `returns`.
    pub(crate) fn remove(&mut self, name: &Name, returns: bool) -> bool {
        let Some(old) = self.all.remove(name) else { return false };
        let Some(place) = group_of(&name.0, &old) else { return true };
        if let Some(group) = self.groups.get_mut(&place) {
            group.tally.remove(&old);
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

    fn of_namespace<'a, T>(
        map: &'a BTreeMap<Name, T>,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Name> + use<'a, T> {
        let first = (namespace.unwrap_or_default().to_owned(), String::new());
        map.range(first..).map(|(name, _)| name).take_while(move |name| namespace.is_none_or(|place| name.0 == place))
    }
}

/// The StatefulSets whose pods are managed, by name and by group.
#[derive(Debug, Default)]
pub(crate) struct SetBook {
    all: BTreeMap<Name, SetState>,
    groups: BTreeMap<Name, Name>,
}

impl SetBook {
    pub(crate) fn get(&self, name: &Name) -> Option<&SetState> {
        self.all.get(name)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Name> {
        self.all.keys()
    }

    /// The StatefulSet with that group, and its name.
    pub(crate) fn of_group(&self, group: &Name) -> Option<(&str, &SetState)> {
        let name = self.groups.get(group)?;
        Some((name.1.as_str(), self.all.get(name)?))
    }

    /// Puts a StatefulSet in place of its older state.
    pub(crate) fn put(&mut self, name: Name, set: SetState) {
        self.remove(&name);
        self.groups.insert((name.0.clone(), set.group.to_string()), name.clone());
        self.all.insert(name, set);
    }

    pub(crate) fn remove(&mut self, name: &Name) {
        if let Some(old) = self.all.remove(name) {
            self.groups.remove(&(name.0.clone(), old.group.to_string()));
        }
    }
}

/// Whether a workload is that of a pod by itself which has been started, and which therefore cannot wait again.
pub(crate) fn has_ended(control: &Control, workload: &WorkloadView) -> bool {
    let Some(whole) = workload.whole().filter(|whole| whole.kind == Kind::Pod) else { return false };
    control.view.pods.get(&(whole.namespace, whole.name)).is_none_or(|pod| !pod.gated || pod.deleting())
}

impl View {
    /// The keys of all pods and groups, or of those of a namespace.
    pub(crate) fn pod_keys<'a>(&'a self, namespace: Option<&'a str>) -> impl Iterator<Item = ObjectKey> + use<'a> {
        let pods = PodBook::of_namespace(&self.pods.all, namespace).map(|name| key(Kind::Pod, name));
        let groups = PodBook::of_namespace(&self.pods.groups, namespace);
        let sets = PodBook::of_namespace(&self.sets.groups, namespace);
        pods.chain(groups.chain(sets).map(|name| key(Kind::PodGroup, name)))
    }
}
