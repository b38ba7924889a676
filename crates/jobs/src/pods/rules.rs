//! Reviews of pods by the admission webhook: defaults with the gate and the finalizer of managed pods, and the rules that refuse a creation or a change.

use super::governing::{group_name, is_admitted_with_owner};
use super::owning_set::{OwningSet, controlling_set, group_of_stateful_set};
use super::role::role_hash;
use super::workload::{POD_INDEX_LABEL, pod_workload};
use crate::admission::{
    DEFAULT_NAME, Facts, Place, annotation_path, elastic_rule, label_path, metadata_change_rules, metadata_rules,
    prebuilt_path, prebuilt_rule, time_rule,
};
use crate::build::Priority;
use crate::metadata::{annotation, controller, group_of, prebuilt_workload_name, queue_name, workload_priority_class};
use crate::size::size_rule;
use berth_api::validation::{FieldError, newly_broken, subdomain};
use berth_api::{DEFAULT_POD_SET_NAME, labels};
use k8s_openapi::api::core::v1::{Pod, PodSchedulingGate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::{BTreeMap, BTreeSet};

/// Annotation of a mirror pod, which shows a kubelet's static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Defaults that a pod gets at its creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDefaults {
    /// Labels that the pod lacks, or has with another value.
    pub labels: BTreeMap<&'static str, String>,
    /// Annotations that the pod lacks, or has with another value.
    pub annotations: BTreeMap<&'static str, String>,
    /// True if the pod lacks Berth's finalizer.
    pub finalizer: bool,
    /// True if the pod lacks Berth's scheduling gate.
    pub gate: bool,
}

impl PodDefaults {
    /// Whether the webhook has nothing to change in the pod.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Writes the defaults into the pod, for callers that do not answer a review with patches.
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

/// Defaults for a pod at its creation; empty for a pod that is not managed. A pod of a StatefulSet gets queue and priority class from its StatefulSet `set`. A
/// pod whose StatefulSet is not known yet gets a scheduling gate nevertheless, and gets the StatefulSet's queue and priority class when the pod starts. A pod
/// with the annotation of a suspending parent waits even before it names a queue. A pod that names no queue gets the LocalQueue [`DEFAULT_NAME`] if the
/// namespace has it, unless the pod is managed through a StatefulSet, belongs to a DaemonSet, or is a mirror pod.
#[must_use]
pub fn pod_defaults(pod: &Pod, facts: Facts, set: Option<&OwningSet>) -> PodDefaults {
    let metadata = &pod.metadata;
    let parent = annotation(metadata, labels::POD_SUSPENDING_PARENT);
    let named = queue_name(metadata).is_some();
    let through_set = facts.stateful_sets && controlling_set(metadata).is_some();
    let may_be_given = !named && !through_set && !goes_without(metadata);
    let given = may_be_given && facts.default_queue;
    // A pod with the annotation of a suspending parent gets a scheduling gate even without a queue, because its parent may name the queue later.
    let of_free_set = controlling_set(metadata).is_some() && !facts.stateful_sets;
    let has_to_wait = parent.is_some() && !of_free_set && annotation(metadata, MIRROR).is_none();
    let asked = named || through_set || has_to_wait || given || may_be_given && facts.without_queue_name;
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
    // A pod of a StatefulSet joins the StatefulSet's pod group only if the pod names a queue or is managed through the StatefulSet.
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
            let [own_labels, noted] = set.labels_and_annotations();
            defaults.labels.extend(own_labels);
            defaults.annotations.extend(noted);
        }
    } else if let (Some(spec), None) = (&pod.spec, annotation(metadata, labels::ROLE_HASH)) {
        defaults.annotations.insert(labels::ROLE_HASH, role_hash(spec));
    }
    keep_lacking(&mut defaults.labels, metadata.labels.as_ref());
    keep_lacking(&mut defaults.annotations, metadata.annotations.as_ref());
    // A pod of a Deployment or StatefulSet, which its controller creates again, gets no finalizer of Berth, so that it can be deleted while Berth is down.
    defaults.finalizer = parent.is_none() && !metadata.finalizers.iter().flatten().any(|name| name == labels::MANAGED);
    defaults.gate = !is_gated(pod);
    defaults
}

/// Whether a pod without the label of managed pods may be a pod that a review would have gated: the pod or its StatefulSet names a queue, and the pod is not
/// admitted with its controller. A mirror pod does not count as a pod that was let in, because its deletion would not stop the static pod that it shows.
#[must_use]
pub fn may_be_let_in(pod: &Pod) -> bool {
    let metadata = &pod.metadata;
    let asks = queue_name(metadata).is_some() || controlling_set(metadata).is_some();
    asks && !is_admitted_with_owner(metadata) && annotation(metadata, MIRROR).is_none()
}

/// Fault of a new pod whose controller is admitted together with its pods, if another client than the Job controller creates the pod: such a pod would run with
/// quota that a job holds for other pods, or without quota. A pod that Berth would not manage if it had no controller is not checked.
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

/// Keeps the wanted entries that an object lacks, or has with another value.
pub(super) fn keep_lacking(wanted: &mut BTreeMap<&'static str, String>, have: Option<&BTreeMap<String, String>>) {
    wanted.retain(|key, value| have.and_then(|have| have.get(*key)) != Some(value));
}

/// Adds entries to the labels or annotations of an object.
pub(super) fn fill(have: &mut Option<BTreeMap<String, String>>, given: BTreeMap<&'static str, String>) {
    if !given.is_empty() {
        have.get_or_insert_default().extend(given.into_iter().map(|(key, value)| (key.to_owned(), value)));
    }
}

/// Whether a pod without a queue is not managed: the node of a DaemonSet's pod is fixed, which leaves no choice of flavors, and a mirror pod runs already.
fn goes_without(metadata: &ObjectMeta) -> bool {
    let of_daemon_set = |owner: &OwnerReference| owner.kind == "DaemonSet" && group_of(&owner.api_version) == "apps";
    annotation(metadata, MIRROR).is_some() || controller(metadata).is_some_and(of_daemon_set)
}

fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.into_iter().flatten().any(|gate| gate.name == labels::ADMISSION_GATE)
}

/// Faults of a pod that do not depend on its earlier state.
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
        // The number of pods in a pod's pod set is not known from the pod, so `count` is `None`.
        errors.extend(Place { path: "metadata".to_owned(), metadata: Some(metadata), count: None }.rules());
    }
    if queue_name(metadata).is_some() && prebuilt_workload_name(metadata).is_none() {
        errors.extend(size_rule(pod, 1, || pod_workload(pod, Priority::default(), &BTreeSet::new()).ok()));
    }
    errors
}

/// Path of the group name in a pod's metadata: the annotation wins over the label.
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
        // A pod with a suspending parent needs no annotation with the total count, because the size of its pod group is that of its StatefulSet.
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

/// Faults of a change of a pod. A fault that the pod had before the change is no fault of the change.
#[must_use]
pub fn validate_pod_update(old: &Pod, new: &Pod, default_queue: bool) -> Vec<FieldError> {
    let (before, after) = (&old.metadata, &new.metadata);
    let mut errors = newly_broken(validate_pod(new), &validate_pod(old));
    let queues = (queue_name(before), queue_name(after));
    // A pod that has ended may change its queue as a waiting pod may, so that all pods of a pod group can move to another queue.
    let rests = |pod: &Pod| is_gated(pod) || has_ended(pod);
    errors.extend(metadata_change_rules(before, after, queues, (rests(old), rests(new)), default_queue));
    errors.extend(identity_change_rules(old, new));
    let refuses = |metadata| annotation(metadata, labels::RETRIABLE_IN_GROUP) == Some("false");
    // The annotation `retriable-in-group` has an effect only on pods of a pod group, as in Kueue.
    if group_name(after).is_some() && refuses(before) && !refuses(after) {
        let value = annotation(after, labels::RETRIABLE_IN_GROUP).unwrap_or_default();
        let message = "must stay false: a group that fails with one of its pods does not become another";
        errors.push(FieldError::new(annotation_path(labels::RETRIABLE_IN_GROUP), value, message));
    }
    errors
}

/// Faults of a change of a pod that is being deleted. Until the pod has ended, its pod group, role, queue and Workload must stay, because its quota is counted
/// by them; all other changes are allowed.
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
        // The error about a removed pod group or prebuilt Workload has the path of the removed name in the pod before the change.
        let path = prebuilt_path(if prebuilt.is_some() { &new.metadata } else { &old.metadata });
        errors.push(FieldError::new(path, prebuilt.unwrap_or_default(), UNTIL_ENDED));
    }
    errors
}

const UNTIL_ENDED: &str = "must stay until the pod has ended";

/// Faults of changes to the identity of a pod. The name of the pod's group must stay always, and the mark of managed pods and the role must stay until the pod
/// has ended. A pod that runs with a Workload of its own must not join a group, because this Workload would lose its pod.
fn identity_change_rules(old: &Pod, new: &Pod) -> Vec<FieldError> {
    let (before, after) = (&old.metadata, &new.metadata);
    let mut errors = Vec::new();
    let runs = is_managed(before) && !is_gated(old) && !has_ended(old);
    let (was, is) = (group_name(before), group_name(after));
    if was != is && (was.is_some() || runs) {
        // The error about a removed pod group or prebuilt Workload has the path of the removed name in the pod before the change.
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
    // A pod without the annotation of its role would look as if no review had checked it.
    let forgets = is_managed(before) && !has_ended(old) && role(before).is_some() && role(after).is_none();
    if runs && role(before) != role(after) || forgets {
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

/// Fault of the removal of the mark of managed pods: Without the label of managed pods, Berth would no longer observe the pod, so its quota would stay charged
/// and its finalizer would remain.
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
