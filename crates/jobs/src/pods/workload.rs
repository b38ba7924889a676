//! Construction of the Workloads of a pod, a pod group and a StatefulSet.

use super::governing::is_left_to_controller;
use super::names::STATEFUL_SET_FRAMEWORK;
use super::owning_set::group_of_stateful_set;
use super::state::template;
use crate::build::{OwnerKind, Priority, workload_of};
use crate::metadata::{annotation, queue_name, version_of, workload_priority_class};
use crate::pod_set::{IndexLabels, pod_set_of};
use crate::pod_set_error::PodSetError;
use berth_api::json::to_text;
use berth_api::{DEFAULT_POD_SET_NAME, PodSet, Workload, labels};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeSet;

const POD: OwnerKind = OwnerKind { group: "", api_version: "v1", kind: "Pod" };
const STATEFUL_SET: OwnerKind = OwnerKind { group: "apps", api_version: "apps/v1", kind: "StatefulSet" };
/// Label with the index of a StatefulSet's pod.
pub(super) const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// The Workload to create for a single pod.
///
/// # Errors
/// The error names the annotation that cannot be read, with its value.
pub fn pod_workload(pod: &Pod, priority: Priority, copied: &BTreeSet<String>) -> Result<Workload, PodSetError> {
    let set = pod_set(DEFAULT_POD_SET_NAME, pod, 1)?;
    let mut workload = workload_of(&pod.metadata, POD, vec![set], priority, copied);
    workload.spec.queue_name = queue_name(&pod.metadata).map(str::to_owned);
    Ok(workload)
}

/// The Workload to create for a pod group. `roles` has one pod of each role with the number of pods, and `members` has name and uid of all pods.
///
/// # Errors
/// The error names the annotation that cannot be read, with its value.
pub fn group_workload(
    name: &str,
    roles: &[(&str, Pod, i32)],
    members: &[(&str, &str)],
    priority: Priority,
    copied: &BTreeSet<String>,
) -> Result<Workload, PodSetError> {
    let Some((_, first, _)) = roles.first() else { return Err(PodSetError::NoPods) };
    let sets = roles.iter().map(|(role, pod, count)| pod_set(role, pod, *count)).collect::<Result<Vec<_>, _>>()?;
    let mut workload = workload_of(&first.metadata, POD, sets, priority, copied);
    workload.spec.queue_name = queue_name(&first.metadata).map(str::to_owned);
    let owners = members.iter().map(|(name, uid)| member_reference(name, uid));
    workload.metadata.owner_references = Some(owners.collect());
    mark_group(&mut workload.metadata, name);
    if let Some(own) = &mut workload.metadata.labels {
        own.remove(labels::JOB_UID);
    }
    Ok(workload)
}

/// The facts about a StatefulSet on which its Workload depends.
#[derive(Clone, Debug, PartialEq)]
pub struct SetState {
    /// The StatefulSet's `metadata.uid`.
    pub uid: Box<str>,
    /// The StatefulSet's `metadata.resourceVersion` as a number; 0 if it has none.
    pub version: u64,
    /// True if the StatefulSet is being deleted.
    pub deleting: bool,
    /// Number of replicas in the StatefulSet's spec.
    pub replicas: i32,
    /// LocalQueue of the StatefulSet.
    pub queue_name: Option<Box<str>>,
    /// WorkloadPriorityClass of the StatefulSet.
    pub workload_priority_class: Option<Box<str>>,
    /// PriorityClass of the StatefulSet's pods.
    pub pod_priority_class: Option<Box<str>>,
    /// Value of the annotation that lists the controllers which keep the StatefulSet from being admitted (admission gates).
    pub admission_gates: Option<Box<str>>,
    /// Annotation with the capacity tiers that the StatefulSet accepts.
    pub capacity_tiers: Option<Box<str>>,
    /// Name of the pod group of the StatefulSet's pods, and of the group's Workload.
    pub group: Box<str>,
    packed: Box<str>,
}

impl SetState {
    /// Reads the state of a StatefulSet; `None` if its pods are not managed through it.
    #[must_use]
    pub fn read(set: &StatefulSet) -> Option<Self> {
        let metadata = &set.metadata;
        let spec = set.spec.as_ref()?;
        let pods = spec.template.metadata.as_ref()?;
        let parent = annotation(pods, labels::POD_SUSPENDING_PARENT)?;
        if parent != STATEFUL_SET_FRAMEWORK || is_left_to_controller(metadata) {
            return None;
        }
        let uid = metadata.uid.as_deref().unwrap_or_default();
        let class = spec.template.spec.as_ref().and_then(|spec| spec.priority_class_name.as_deref());
        Some(Self {
            uid: uid.into(),
            version: version_of(metadata),
            deleting: metadata.deletion_timestamp.is_some(),
            replicas: spec.replicas.unwrap_or(1),
            queue_name: queue_name(metadata).map(Into::into),
            workload_priority_class: annotation_of(set, workload_priority_class).map(Into::into),
            pod_priority_class: class.filter(|name| !name.is_empty()).map(Into::into),
            admission_gates: annotation(metadata, labels::ADMISSION_GATED_BY).map(Into::into),
            capacity_tiers: annotation_of(set, tiers).map(Into::into),
            group: group_of_stateful_set(metadata.name.as_deref().unwrap_or_default(), uid).into(),
            packed: to_text(set).into(),
        })
    }

    /// The complete StatefulSet.
    #[must_use]
    pub fn decode(&self) -> Option<StatefulSet> {
        serde_json::from_str(&self.packed).ok()
    }
}

/// A metadata value of a StatefulSet, or else of its pod template, where the webhook writes the default class.
fn annotation_of<'a>(set: &'a StatefulSet, read: impl Fn(&'a ObjectMeta) -> Option<&'a str>) -> Option<&'a str> {
    let template = set.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
    read(&set.metadata).or_else(|| template.and_then(read))
}

fn tiers(metadata: &ObjectMeta) -> Option<&str> {
    annotation(metadata, labels::CAPACITY_TIERS)
}

/// The Workload to create for a StatefulSet with this number of replicas, which is the Workload of its pods' group.
///
/// # Errors
/// The error names the annotation that cannot be read, with its value.
pub fn stateful_set_workload(
    set: &StatefulSet,
    replicas: i32,
    priority: Priority,
    copied: &BTreeSet<String>,
) -> Result<Workload, PodSetError> {
    let Some(spec) = &set.spec else { return Err(PodSetError::Missing("spec".to_owned())) };
    let index = IndexLabels { pod: Some(POD_INDEX_LABEL.to_owned()), ..IndexLabels::default() };
    let mut pods = pod_set_of(DEFAULT_POD_SET_NAME, &spec.template, replicas, None, &index)?;
    pods.template.metadata = None;
    let mut workload = workload_of(&set.metadata, STATEFUL_SET, vec![pods], priority, copied);
    workload.spec.queue_name = queue_name(&set.metadata).map(str::to_owned);
    let name = set.metadata.name.clone().unwrap_or_default();
    let group = group_of_stateful_set(&name, set.metadata.uid.as_deref().unwrap_or_default());
    mark_group(&mut workload.metadata, &group);
    // The StatefulSet owns its Workload without controlling it, because other owners may follow.
    for owner in workload.metadata.owner_references.iter_mut().flatten() {
        owner.controller = None;
        owner.block_owner_deletion = None;
    }
    let notes = workload.metadata.annotations.get_or_insert_default();
    notes.insert(labels::JOB_OWNER_GVK.to_owned(), "apps/v1, Kind=StatefulSet".to_owned());
    notes.insert(labels::JOB_OWNER_NAME.to_owned(), name);
    notes.extend(annotation_of(set, tiers).map(|tiers| (labels::CAPACITY_TIERS.to_owned(), tiers.to_owned())));
    Ok(workload)
}

/// Owner reference from a Workload to a pod of its group.
fn member_reference(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: POD.api_version.to_owned(),
        kind: POD.kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: None,
        block_owner_deletion: None,
    }
}

fn mark_group(metadata: &mut ObjectMeta, name: &str) {
    metadata.name = Some(name.to_owned());
    let notes = metadata.annotations.get_or_insert_default();
    notes.insert(labels::IS_GROUP_WORKLOAD.to_owned(), "true".to_owned());
}

/// The pod set of pods equal to this pod, as their user wrote them, without Berth's gate.
fn pod_set(name: &str, pod: &Pod, count: i32) -> Result<PodSet, PodSetError> {
    let mut template: PodTemplateSpec = template(pod);
    if let Some(spec) = &mut template.spec {
        let gates = spec.scheduling_gates.get_or_insert_default();
        gates.retain(|gate| gate.name != labels::ADMISSION_GATE);
        if gates.is_empty() {
            spec.scheduling_gates = None;
        }
    }
    let mut set = pod_set_of(name, &template, count, None, &IndexLabels::default())?;
    set.template.metadata = None;
    Ok(set)
}
