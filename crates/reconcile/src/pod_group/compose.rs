//! Creates the Workload of a pod group that has none: once all pods exist, or from the first pod if the group asks for fast admission.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::conditions::event_reasons;
use berth_jobs::Priority;
use berth_jobs::pods::{MOST_ROLES, PodState, STATEFUL_SET_FRAMEWORK, group_workload, placed, role_hash};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::PodGroupCase;
use crate::decision::Decision;
use crate::pod::classes_of;
use crate::policies::no_class;
use crate::workload::names::create;
use crate::write::{EventType, Kind, key};

impl PodGroupCase<'_> {
    /// Decides about a pod group without a Workload.
    pub(super) fn without_workload(&self) -> Decision {
        if self.ctx.is_ending(&self.name.0) {
            // No pod starts in a namespace that is being deleted.
            return Decision::Done;
        }
        if let Some(set) = self.set {
            return self.compose_set(set);
        }
        if self.tally().running > 0 && self.members().any(|(_, pod)| pod.runs() && !pod.is_let_in()) {
            // Pods that run without an admission are stopped first, except let-in pods, which may still be admitted.
            return Decision::Done;
        }
        let Some((name, first)) = self.first() else { return Decision::Done };
        if first.parent.as_deref() == Some(STATEFUL_SET_FRAMEWORK) {
            // The Workload of a StatefulSet's pods is made from the StatefulSet, which may not have been observed yet.
            return self.refuse(format!("pod {name}: its StatefulSet is not there, or names no queue"));
        }
        if first.prebuilt_workload.is_some() {
            // A prebuilt Workload has the name of the group.
            return Decision::WaitFor(key(Kind::Workload, self.name));
        }
        let Some(size) = first.group.as_ref().and_then(|group| group.total) else {
            let total = berth_api::labels::POD_GROUP_TOTAL_COUNT;
            return self.refuse(format!("pod {name}: annotation {total} must be the number of pods in the group"));
        };
        let there = self.tally().counting().saturating_sub(self.tally().leaving());
        if there < size && self.tally().fast == 0 {
            return self.refuse(format!("group {:?} has fewer runnable pods than its size, {size}", self.name.1));
        }
        if let Some(decision) = (there > size).then(|| self.delete_excess(self.members(), size)).flatten() {
            return decision;
        }
        if let Some(problem) = self.disagreement(name, first, size) {
            return self.refuse(problem);
        }
        if self.ctx.in_flight.creations_full() {
            return Decision::WaitForCreations;
        }
        self.compose(name, first, size)
    }

    fn refuse(&self, problem: String) -> Decision {
        self.event(event_reasons::ERR_WORKLOAD_COMPOSE, problem)
    }

    /// The reason why the pods of a group contradict each other, so that no Workload can be made of them; `None` if they agree.
    fn disagreement(&self, name: &str, first: &PodState, size: i32) -> Option<String> {
        let roles = self.tally().counting_roles().count();
        if roles > MOST_ROLES {
            return Some(format!("group {:?} has {roles} roles; {MOST_ROLES} are allowed", self.name.1));
        }
        self.members().filter(|(_, pod)| pod.counts()).find_map(|(other, pod)| {
            if pod.queue_name != first.queue_name {
                let queue = |pod: &PodState| pod.queue_name.as_deref().unwrap_or_default().to_owned();
                return Some(format!(
                    "pods {name} and {other} have different queues: {} and {}",
                    queue(first),
                    queue(pod)
                ));
            }
            let total = pod.group.as_ref().and_then(|group| group.total);
            (total != Some(size)).then(|| {
                let total = total.map_or_else(|| "none".to_owned(), |total| total.to_string());
                format!("pods {name} and {other} say different sizes of their group: {size} and {total}")
            })
        })
    }

    /// The labels that the Workload takes over from its pods. Any pod of the group may have a label that is copied, and all pods with the label must have one
    /// value of the label.
    fn copied_labels(&self) -> Result<BTreeMap<String, String>, String> {
        let keys = &self.ctx.settings.label_keys_to_copy;
        let mut found: BTreeMap<String, (&str, String)> = BTreeMap::new();
        // If no labels are to be copied, the pods of a large group need not be decoded.
        for (name, pod) in self.members().filter(|(_, pod)| !keys.is_empty() && pod.counts()) {
            let labels = pod.decode().and_then(|pod| pod.metadata.labels).unwrap_or_default();
            for (key, value) in labels.into_iter().filter(|(key, _)| keys.contains(key)) {
                match found.get(&key) {
                    Some((other, before)) if *before != value => {
                        return Err(format!(
                            "pods {other} and {name} have different values of label {key}, which the Workload takes over: \
                             {before} and {value}"
                        ));
                    }
                    Some(_) => {}
                    None => drop(found.insert(key, (name, value))),
                }
            }
        }
        Ok(found.into_iter().map(|(key, (_, value))| (key, value)).collect())
    }

    fn compose(&self, name: &str, first: &PodState, size: i32) -> Decision {
        // Pods beyond the size of the group wait, because their controllers would create them again after a deletion.
        let members = placed(self.members(), size);
        let mut counts: BTreeMap<&str, i32> = BTreeMap::new();
        for (_, pod) in &members {
            let count = counts.entry(pod.role()).or_default();
            *count = count.saturating_add(1);
        }
        let partial = counts.values().fold(0, |sum: i32, count| sum.saturating_add(*count)) < size;
        let mut roles: Vec<(String, &str, Pod, i32)> = Vec::new();
        for (role, count) in counts {
            let of_role = self.members().filter(|(_, pod)| pod.counts() && pod.role() == role);
            // All pods of one role of a group are alike. The object of a pod that has ended under an earlier Workload is not kept.
            let Some(pod) = of_role.map(|(_, pod)| pod).find_map(PodState::decode) else { return Decision::Done };
            let shape = pod.spec.as_ref().map(role_hash).unwrap_or_default();
            roles.push((shape, role, pod, count));
            if partial {
                // Pods that are not created yet are assumed to be like the first pod.
                break;
            }
        }
        // The role that is tried first gets the better flavor, so the roles are ordered by their pods and not by their names.
        roles.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
        let named = roles.into_iter().map(|(_, role, pod, count)| (role, pod, if partial { size } else { count }));
        let roles: Vec<(&str, Pod, i32)> = named.collect();
        let mut makers: Vec<OwnerReference> = Vec::new();
        for maker in members.iter().filter_map(|(_, pod)| pod.maker_reference()) {
            if !makers.iter().any(|known| known.uid == maker.uid) {
                makers.push(maker);
            }
        }
        let members: Vec<(&str, &str)> = members.iter().map(|(name, pod)| (*name, &*pod.uid)).collect();
        let made = self.copied_labels().and_then(|labels| {
            let made = group_workload(&self.name.1, &roles, &members, Priority::default(), &BTreeSet::new());
            let mut made = made.map_err(|error| error.to_string())?;
            made.metadata.labels.get_or_insert_default().extend(labels);
            made.metadata.owner_references.get_or_insert_default().extend(makers);
            Ok(made)
        });
        let made = match made {
            Ok(made) => made,
            Err(problem) => return self.refuse(problem),
        };
        match self.ctx.with_priority(made, classes_of(first)) {
            Ok(workload) => create(self.ctx, &key(Kind::PodGroup, self.name), &workload, |message| {
                self.notice(name, first, EventType::Normal, event_reasons::CREATED_WORKLOAD, message)
            }),
            Err(class) => {
                let (reason, text) = no_class(&class, "the pods");
                self.event(reason, text)
            }
        }
    }
}

#[cfg(test)]
mod tests;
