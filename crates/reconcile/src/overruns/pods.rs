//! Usage beyond quota of pods that are admitted by themselves or in groups: pods that run without quota, or are larger than their share of the admission, until
//! they have ended.

use std::collections::BTreeMap;

use berth_cache::pods::{group_of, group_uid};
use berth_cache::{Name, View, WorkloadView};
use berth_engine::model as engine;
use berth_engine::model::Amount;
use berth_jobs::pods::PodState;

use super::{Found, Overruns, Requests};
use crate::context::Context;
use crate::pod::right::beyond;
use crate::write::{Kind, key};

/// Requests that the admission covers for each pod of a pod set: the present requests or the given quota, whichever is more, since LimitRanges, overheads and
/// the configuration may have changed since the admission.
pub(super) fn place(set: &engine::PodSetSpec, given: &engine::PodSetAssignment) -> Requests {
    let mut place = set.requests.clone();
    for (resource, total) in &given.usage {
        let each = Amount::new(total.get().checked_div(given.count).unwrap_or_default());
        let most = place.entry(resource.clone()).or_default();
        *most = (*most).max(each);
    }
    place
}

impl Overruns {
    /// Marks a pod that was observed, or is gone, for a new count of usage beyond quota, but only if the pod or its group may run beyond quota.
    pub(crate) fn note_running_pod(&mut self, view: &View, reclaims: bool, name: &Name) {
        let Some(pod) = view.pods().get(name) else { return };
        let group = group_of(&name.0, pod);
        let object = group.as_ref().map_or_else(|| key(Kind::Pod, name), |group| key(Kind::PodGroup, group));
        if self.known.contains_key(&object) || (pod.runs() && may_overrun(view, reclaims, name, pod, group.as_ref())) {
            self.unsure.insert(object);
        }
    }
}

fn may_overrun(view: &View, reclaims: bool, name: &Name, pod: &PodState, group: Option<&Name>) -> bool {
    let workload = match group {
        Some(group) => view.workloads().get(group).filter(|workload| workload.group.is_some()),
        None => view.workloads().owned_by(&pod.uid).find(|workload| workload.holds_quota()),
    };
    let Some(workload) = workload.filter(|workload| workload.holds_quota()) else { return true };
    let asked = view.pods().asked(name);
    if asked.is_some_and(|asked| beyond(workload, pod.role(), asked).is_some()) {
        return true;
    }
    let Some(group) = group.and_then(|group| view.pods().group(group)) else { return false };
    let left = workload.remaining(pod.role(), reclaims).unwrap_or_default();
    i64::from(group.tally.role(pod.role()).running) > left || workload.size(pod.role()) == 0
}

impl Context<'_> {
    /// Usage of a running pod that is in no group, and its usage beyond quota.
    pub(super) fn overrun_of_pod(&self, name: &Name) -> Option<Found> {
        let pod = self.view.pods().get(name).filter(|pod| pod.runs() && pod.group.is_none())?;
        let live = || self.view.workloads().owned_by(&pod.uid).filter(|workload| !workload.is_finished());
        let workload = live().find(|workload| workload.holds_quota()).or_else(|| live().next());
        let mut found = self.found_of(name, pod, workload, &pod.uid)?;
        let set = workload.and_then(|workload| workload.shape.pod_sets.first());
        self.count_role(&mut found, workload, set, &[name]);
        Some(found)
    }

    /// Running pods of a pod group, and their usage beyond quota.
    pub(super) fn overrun_of_group(&self, group: &Name) -> Option<Found> {
        if self.view.pods().group(group)?.tally.running <= 0 {
            return None;
        }
        let workload = self.view.workloads().get(group).filter(|workload| workload.group.is_some());
        let workload = workload.filter(|workload| !workload.is_finished());
        let mut roles: BTreeMap<&str, Vec<Name>> = BTreeMap::new();
        let mut found = None;
        for (name, pod) in self.view.pods().members(group).filter(|(_, pod)| pod.runs()) {
            let name = (group.0.clone(), name.to_owned());
            if found.is_none() {
                found = self.found_of(&name, pod, workload, &group_uid(&group.0, &group.1));
            }
            roles.entry(pod.role()).or_default().push(name);
        }
        let mut found = found?;
        for (role, pods) in roles {
            let sets = workload.into_iter().flat_map(|workload| &workload.shape.pod_sets);
            let set = sets.into_iter().find(|set| set.name == role);
            self.count_role(&mut found, workload, set, &pods.iter().collect::<Vec<_>>());
        }
        Some(found)
    }

    /// The Workload or pod that is charged with a pod's usage: the pod's Workload, or the pod itself, if the pod names a LocalQueue and pods are managed.
    fn found_of(&self, name: &Name, pod: &PodState, workload: Option<&WorkloadView>, uid: &str) -> Option<Found> {
        let queue = match workload {
            Some(workload) if workload.unreadable => return None,
            Some(workload) => self.charged_for(workload),
            None => {
                let asks = self.settings.job_kinds.contains(&Kind::Pod) && self.manages(&name.0);
                let local = pod.queue_name.as_deref().filter(|_| asks)?;
                self.charged_behind(&(name.0.clone(), local.to_owned()))
            }
        };
        let carrier = workload.map_or(uid, |workload| workload.uid.as_str()).to_owned();
        Some(Found { carrier, queue, ..Found::default() })
    }

    /// Counts the pods of one role: all their requests together, less the quota that is held for the pods.
    fn count_role(
        &self,
        found: &mut Found,
        workload: Option<&WorkloadView>,
        set: Option<&engine::PodSetSpec>,
        pods: &[&Name],
    ) {
        let given = workload.filter(|workload| workload.holds_quota()).map(|workload| self.given_to(workload));
        let given = given.into_iter().flatten().find(|given| set.is_some_and(|set| set.name == given.name));
        let held = given.as_ref().map_or(0, |given| given.count);
        let place = set.zip(given.as_ref()).map(|(set, given)| place(set, given)).unwrap_or_default();
        let runs = i64::try_from(pods.len()).unwrap_or(i64::MAX);
        found.pods = [found.pods[0].saturating_add(runs), found.pods[1].saturating_add(held)];
        let mut beyond = Requests::new();
        for asked in pods.iter().filter_map(|name| self.view.pods().asked(name)) {
            for (resource, each) in &asked.requests {
                let sum = beyond.entry(resource.clone()).or_default();
                *sum = sum.add(*each);
            }
        }
        beyond.insert("pods".to_owned(), Amount::new(runs));
        for (resource, sum) in &mut beyond {
            let each =
                if resource == "pods" { Amount::new(1) } else { place.get(resource).copied().unwrap_or_default() };
            *sum = sum.sub(each.mul(held)).max(Amount::ZERO);
        }
        found.charge_amounts(self, given.as_ref().map(|given| &given.flavors), beyond);
    }
}

#[cfg(test)]
mod tests;
