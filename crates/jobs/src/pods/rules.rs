//! What an admission webhook says about a pod: what makes it wait and be held, and what is refused.

use super::parents::OwningSet;
use super::role::role_hash;
use super::workload::{POD_INDEX_LABEL, pod_workload};
use super::{STATEFUL_SET_FRAMEWORK, group_name, group_of_stateful_set, is_admitted_with_owner};
use crate::admission::{
    DEFAULT_NAME, Facts, Place, annotation_path, elastic_rule, label_path, metadata_change_rules, metadata_rules,
    prebuilt_path, prebuilt_rule, time_rule,
};
use crate::build::Priority;
use crate::kind::{annotation, controller, group_of, prebuilt_workload_name, queue_name, workload_priority_class};
use crate::size::size_rule;
use berth_api::validation::{FieldError, newly_broken, subdomain};
use berth_api::{DEFAULT_POD_SET_NAME, labels};
use k8s_openapi::api::core::v1::{Pod, PodSchedulingGate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::{BTreeMap, BTreeSet};

/// Annotation by which a kubelet shows a pod that it runs of itself.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// What a pod gets at its creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDefaults {
    /// Labels that it has not, or with other values.
    pub labels: BTreeMap<&'static str, String>,
    /// Annotations that it has not, or with other values.
    pub annotations: BTreeMap<&'static str, String>,
    /// Our finalizer is missing.
    pub finalizer: bool,
    /// Our gate is missing.
    pub gate: bool,
}

impl PodDefaults {
    /// Nothing is to be changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Puts it into the pod, where no review is answered with operations on it.
    pub fn fill(self, pod: &mut Pod) {
        fill(&mut pod.metadata.labels, self.labels);
        fill(&mut pod.metadata.annotations, self.annotations);
        if self.finalizer {
            pod.metadata.finalizers.get_or_insert_default().push(labels::MANAGED.to_owned());
        }
        if self.gate {
            let gates = pod.spec.get_or_insert_default().scheduling_gates.get_or_insert_default();
            gates.push(PodSchedulingGate { name: labels::ADMISSION_GATE.to_owned() });
        }
    }
}

/// The StatefulSet through which a pod is managed, as the pod refers to it.
#[must_use]
pub fn controlling_set(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let waits = annotation(metadata, labels::POD_SUSPENDING_PARENT) == Some(STATEFUL_SET_FRAMEWORK);
    controller(metadata).filter(|owner| waits && is_set(owner))
}

/// What is filled in when a pod is created, nothing for one that is not managed. A pod of a StatefulSet is told what its `set` says;
/// where that is not known yet it waits all the same, and is told when it starts. A pod that says that it waits with a parent waits, too, before it
/// names a queue. Who names no queue is given the one called [`DEFAULT_NAME`], where there is one.
#[must_use]
pub fn pod_defaults(pod: &Pod, facts: Facts, set: Option<&OwningSet>) -> PodDefaults {
    let metadata = &pod.metadata;
    let parent = annotation(metadata, labels::POD_SUSPENDING_PARENT);
    let named = queue_name(metadata).is_some();
    let through_set = facts.stateful_sets && controlling_set(metadata).is_some();
    let may_be_given = !named && !through_set && !goes_without(metadata);
    let given = may_be_given && facts.default_queue;
    // What its parent is, and when that names a queue, is not ours to know: it waits until it names one.
    let of_free_set = controlling_set(metadata).is_some() && !facts.stateful_sets;
    let told_to_wait = parent.is_some() && !of_free_set && annotation(metadata, MIRROR).is_none();
    let asked = named || through_set || told_to_wait || given || may_be_given && facts.without_queue_name;
    if !facts.pods || !facts.managed_namespace || !asked || is_admitted_with_owner(metadata) {
        return PodDefaults::default();
    }
    let mut defaults = PodDefaults::default();
    defaults.labels.insert(labels::MANAGED, "true".to_owned());
    if given {
        defaults.labels.insert(labels::QUEUE_NAME, DEFAULT_NAME.to_owned());
    }
    let class = facts.default_priority_class && parent.is_none() && workload_priority_class(metadata).is_none();
    if class {
        defaults.labels.insert(labels::PRIORITY_CLASS, DEFAULT_NAME.to_owned());
    }
    // What is not managed through its StatefulSet is no part of a group for its sake.
    if let Some(owner) = controlling_set(metadata).filter(|_| named || through_set) {
        let group = group_of_stateful_set(&owner.name, &owner.uid);
        if crate::is_label_value(&group) {
            defaults.labels.insert(labels::POD_GROUP_NAME, group.clone());
        }
        defaults.annotations.insert(labels::POD_GROUP_NAME, group.clone());
        defaults.annotations.insert(labels::PREBUILT_WORKLOAD_NAME, group);
        defaults.annotations.insert(labels::POD_GROUP_FAST_ADMISSION, "true".to_owned());
        defaults.annotations.insert(labels::POD_GROUP_SERVING, "true".to_owned());
        defaults.annotations.insert(labels::ROLE_HASH, DEFAULT_POD_SET_NAME.to_owned());
        defaults.annotations.insert(labels::POD_GROUP_POD_INDEX_LABEL, POD_INDEX_LABEL.to_owned());
        if let Some(set) = set.filter(|set| set.uid == owner.uid) {
            let [told, noted] = set.tells();
            defaults.labels.extend(told);
            defaults.annotations.extend(noted);
        }
    } else if let (Some(spec), None) = (&pod.spec, annotation(metadata, labels::ROLE_HASH)) {
        defaults.annotations.insert(labels::ROLE_HASH, role_hash(spec));
    }
    keep_lacking(&mut defaults.labels, metadata.labels.as_ref());
    keep_lacking(&mut defaults.annotations, metadata.annotations.as_ref());
    // What a parent makes again is counted while it is there, and must be able to go while we are down.
    defaults.finalizer = parent.is_none() && !metadata.finalizers.iter().flatten().any(|name| name == labels::MANAGED);
    defaults.gate = !is_gated(pod);
    defaults
}

/// What is wrong with a new pod that nobody but the Job controller makes, and that somebody else does: it would run by quota that a Job
/// holds for other pods, or by none. A pod that would be left alone without its controller is left alone with it.
#[must_use]
pub fn forged_controller(pod: &Pod, facts: Facts) -> Option<FieldError> {
    let metadata = &pod.metadata;
    let asked = queue_name(metadata).is_some() || facts.default_queue || facts.without_queue_name;
    let forged = asked && facts.pods && facts.managed_namespace && is_admitted_with_owner(metadata);
    let kind = controller(metadata).map(|owner| owner.kind.as_str()).filter(|_| forged)?;
    let message = format!(
        "a pod of a {kind} is made by the Job controller alone: leave the controller out, and the pod waits in a queue by itself"
    );
    Some(FieldError::new("metadata.ownerReferences", "", message))
}

/// Of what an object is to get, leaves what it has not, or with another value.
pub(super) fn keep_lacking(wanted: &mut BTreeMap<&'static str, String>, have: Option<&BTreeMap<String, String>>) {
    wanted.retain(|key, value| have.and_then(|have| have.get(*key)) != Some(value));
}

/// Gives an object what it is to get.
pub(super) fn fill(have: &mut Option<BTreeMap<String, String>>, given: BTreeMap<&'static str, String>) {
    if !given.is_empty() {
        have.get_or_insert_default().extend(given.into_iter().map(|(key, value)| (key.to_owned(), value)));
    }
}

/// Whether a pod is left alone where it names no queue: one of a DaemonSet has its node, which is not for a flavor to choose, and one
/// that a kubelet runs of itself is only shown, and cannot wait.
fn goes_without(metadata: &ObjectMeta) -> bool {
    let of_daemon_set = |owner: &OwnerReference| owner.kind == "DaemonSet" && group_of(&owner.api_version) == "apps";
    annotation(metadata, MIRROR).is_some() || controller(metadata).is_some_and(of_daemon_set)
}

fn is_set(owner: &OwnerReference) -> bool {
    owner.kind == "StatefulSet" && owner.api_version.starts_with("apps/")
}

fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.into_iter().flatten().any(|gate| gate.name == labels::ADMISSION_GATE)
}

/// What is wrong with a pod by itself.
#[must_use]
pub fn validate_pod(pod: &Pod) -> Vec<FieldError> {
    let metadata = &pod.metadata;
    let mut errors = metadata_rules(metadata, queue_name(metadata));
    errors.extend(time_rule(metadata));
    errors.extend(elastic_rule(metadata, "Pod"));
    errors.extend(prebuilt_rule(metadata, group_name(metadata)));
    if let Some(value) = metadata.labels.as_ref().and_then(|all| all.get(labels::MANAGED))
        && value != "true"
    {
        errors.push(FieldError::new(label_path(labels::MANAGED), value, "must be true or absent"));
    }
    errors.extend(group_rules(metadata));
    if !is_admitted_with_owner(metadata) {
        // How many pods there are like it, it does not know.
        errors.extend(Place { path: "metadata".to_owned(), metadata: Some(metadata), count: None }.rules());
    }
    if queue_name(metadata).is_some() && prebuilt_workload_name(metadata).is_none() {
        errors.extend(size_rule(pod, 1, || pod_workload(pod, Priority::default(), &BTreeSet::new()).ok()));
    }
    errors
}

/// Where the group of a pod stands that names one: the annotation wins over the label.
fn group_path(metadata: &ObjectMeta) -> String {
    let key = labels::POD_GROUP_NAME;
    if annotation(metadata, key).is_some() { annotation_path(key) } else { label_path(key) }
}

fn group_rules(metadata: &ObjectMeta) -> Vec<FieldError> {
    let given = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
    let total = given(labels::POD_GROUP_TOTAL_COUNT);
    let mut errors = Vec::new();
    let Some(group) = group_name(metadata) else {
        if total.is_some() {
            let message = format!("is required with the annotation {}", labels::POD_GROUP_TOTAL_COUNT);
            errors.push(FieldError::new(label_path(labels::POD_GROUP_NAME), "", message));
        }
        return errors;
    };
    if let Some(wrong) = subdomain(group) {
        errors.push(FieldError::new(group_path(metadata), group, wrong));
    }
    let path = || annotation_path(labels::POD_GROUP_TOTAL_COUNT);
    match total {
        // Its StatefulSet says it.
        None if annotation(metadata, labels::POD_SUSPENDING_PARENT).is_some() => {}
        None => {
            let message =
                format!("is required with the label {}: the number of pods in the group", labels::POD_GROUP_NAME);
            errors.push(FieldError::new(path(), "", message));
        }
        Some(text) if !text.parse::<i32>().is_ok_and(|total| total > 0) => {
            errors.push(FieldError::new(path(), text, "must be a whole number greater than 0"));
        }
        Some(_) => {}
    }
    errors
}

/// What is wrong with a change of a pod. Errors that it had before are no reason to refuse.
#[must_use]
pub fn validate_pod_update(old: &Pod, new: &Pod, default_queue: bool) -> Vec<FieldError> {
    let (before, after) = (&old.metadata, &new.metadata);
    let mut errors = newly_broken(validate_pod(new), &validate_pod(old));
    let queues = (queue_name(before), queue_name(after));
    // What has ended moves with those of its group that wait again.
    let rests = |pod: &Pod| is_gated(pod) || has_ended(pod);
    errors.extend(metadata_change_rules(before, after, queues, (rests(old), rests(new)), default_queue));
    errors.extend(identity_change_rules(old, new));
    let refuses = |metadata| annotation(metadata, labels::RETRIABLE_IN_GROUP) == Some("false");
    // Of a pod by itself nobody asks, as in Kueue.
    if group_name(after).is_some() && refuses(before) && !refuses(after) {
        let value = annotation(after, labels::RETRIABLE_IN_GROUP).unwrap_or_default();
        let message = "must stay false: a group that fails with one of its pods does not become another";
        errors.push(FieldError::new(annotation_path(labels::RETRIABLE_IN_GROUP), value, message));
    }
    errors
}

/// What is wrong with the change of a pod that is being deleted: until it has ended it stays what its group and its queue count it for.
/// Nothing else may hold it up.
#[must_use]
pub fn validate_leaving_pod(old: &Pod, new: &Pod) -> Vec<FieldError> {
    if has_ended(old) {
        return mark_rule(old, new).into_iter().collect();
    }
    if !is_managed(&old.metadata) {
        return Vec::new();
    }
    let mut errors = identity_change_rules(old, new);
    let queue = queue_name(&new.metadata);
    if queue_name(&old.metadata) != queue {
        errors.push(FieldError::new(label_path(labels::QUEUE_NAME), queue.unwrap_or_default(), UNTIL_ENDED));
    }
    let prebuilt = prebuilt_workload_name(&new.metadata);
    if !is_gated(old) && prebuilt_workload_name(&old.metadata) != prebuilt {
        // What is gone stood in the pod as it was.
        let path = prebuilt_path(if prebuilt.is_some() { &new.metadata } else { &old.metadata });
        errors.push(FieldError::new(path, prebuilt.unwrap_or_default(), UNTIL_ENDED));
    }
    errors
}

const UNTIL_ENDED: &str = "must stay until the pod has ended";

/// By what a pod is known must stay: its group always, and until it has ended that it is managed, and by which place. A pod that runs by a
/// place of its own joins no group: its Workload would be nobody's. Neither does it change its role, which names the place in its group.
fn identity_change_rules(old: &Pod, new: &Pod) -> Vec<FieldError> {
    let (before, after) = (&old.metadata, &new.metadata);
    let mut errors = Vec::new();
    let runs = is_managed(before) && !is_gated(old) && !has_ended(old);
    let (was, is) = (group_name(before), group_name(after));
    if was != is && (was.is_some() || runs) {
        // What is gone stood in the pod as it was.
        let (path, value) = match is {
            Some(group) => (group_path(after), group),
            None => (group_path(before), ""),
        };
        let message = if was.is_some() {
            "is immutable"
        } else {
            "must not be added while the pod runs: it has a place of its own"
        };
        errors.push(FieldError::new(path, value, message));
    }
    let role = |metadata| annotation(metadata, labels::ROLE_HASH);
    if runs && role(before) != role(after) {
        let value = role(after).unwrap_or_default();
        errors.push(FieldError::new(annotation_path(labels::ROLE_HASH), value, UNTIL_ENDED));
    }
    if is_managed(before) && is_admitted_with_owner(after) && !is_admitted_with_owner(before) {
        let message = "a controller that is admitted with its pods cannot be added: the pod has a place of its own";
        errors.push(FieldError::new("metadata.ownerReferences", "", message));
    }
    errors.extend(mark_rule(old, new));
    errors
}

/// Without its mark a pod is not seen any more: its quota is neither used nor given back, and nobody takes our finalizer off.
fn mark_rule(old: &Pod, new: &Pod) -> Option<FieldError> {
    let is_held = new.metadata.finalizers.iter().flatten().any(|name| name == labels::MANAGED);
    let lost = is_managed(&old.metadata) && !is_managed(&new.metadata);
    let message = match has_ended(old) {
        _ if !lost => return None,
        false => UNTIL_ENDED,
        true if is_held => "must stay until the finalizer of that name is off: nobody would take it off",
        true => return None,
    };
    Some(FieldError::new(label_path(labels::MANAGED), "", message))
}

fn is_managed(metadata: &ObjectMeta) -> bool {
    metadata.labels.as_ref().is_some_and(|all| all.contains_key(labels::MANAGED))
}

pub(super) fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
