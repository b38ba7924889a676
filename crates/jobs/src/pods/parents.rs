//! Deployments and StatefulSets, which are admitted through their pods.
//!
//! Pods of a Deployment are admitted one by one, so that an autoscaler may add and remove replicas, and the pod template has the queue. Pods of a StatefulSet
//! are one pod group of the set's size. Each pod of a StatefulSet gets its queue and priority class at its creation instead of from the pod template, so that a
//! StatefulSet that another operator created gets no new revision.

use super::governing::is_left_to_controller;
use super::names::{DEPLOYMENT_FRAMEWORK, STATEFUL_SET_FRAMEWORK};
use super::owning_set::replicas;
use super::role::shape;
use super::rules::{fill, keep_lacking};
use super::workload::stateful_set_workload;
use crate::admission::{DEFAULT_NAME, Facts, elastic_rule, label_path, metadata_rules, priority_class_change};
use crate::build::Priority;
use crate::equivalence::same;
use crate::limits::LimitSummary;
use crate::metadata::{annotation, controller, label, queue_name, workload_priority_class};
use crate::requests::effective_pod_spec;
use crate::size::size_rule;
use berth_api::labels;
use berth_api::validation::{FieldError, newly_broken, validate_admission_gates_update};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Defaults that a review sets in a Deployment or StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParentDefaults {
    /// Labels that the Deployment or StatefulSet itself lacks.
    pub own_labels: BTreeMap<&'static str, String>,
    /// Labels that the pod template lacks, or has with another value.
    pub labels: BTreeMap<&'static str, String>,
    /// Annotations that the pod template lacks, or has with another value.
    pub annotations: BTreeMap<&'static str, String>,
}

/// Defaults for a Deployment at each write; `stored` is the Deployment before an update.
#[must_use]
pub fn deployment_defaults(object: &Deployment, stored: Option<&Deployment>, facts: Facts) -> ParentDefaults {
    let template = object.spec.as_ref().map(|spec| &spec.template);
    let metadata = &object.metadata;
    let before = stored.map(|stored| &stored.metadata);
    let Some(managed) = Managed::of(metadata, before, template, facts).filter(|_| facts.deployments) else {
        return ParentDefaults::default();
    };
    let mut result = managed.defaults();
    result.labels.extend(managed.queue.map(|queue| (labels::QUEUE_NAME, queue.to_owned())));
    let default = facts.default_priority_class.then_some(DEFAULT_NAME);
    if let Some(class) = workload_priority_class(metadata).or(default) {
        result.labels.insert(labels::PRIORITY_CLASS, class.to_owned());
    }
    // If Kueue takes over again, it gates pods with the annotation `pod-suspending-parent`, but manages only pods with the label of managed pods.
    result.labels.insert(labels::MANAGED, "true".to_owned());
    result.annotations.insert(labels::POD_SUSPENDING_PARENT, DEPLOYMENT_FRAMEWORK.to_owned());
    // Each pod of a Deployment has a Workload made of the pod, so the pod template gets the Deployment's annotation with capacity tiers.
    if let Some(tiers) = annotation(metadata, labels::CAPACITY_TIERS) {
        result.annotations.insert(labels::CAPACITY_TIERS, tiers.to_owned());
    }
    result.lacked_by(managed.template)
}

/// Defaults for a StatefulSet at each write; `stored` is the StatefulSet before an update.
#[must_use]
pub fn stateful_set_defaults(object: &StatefulSet, stored: Option<&StatefulSet>, facts: Facts) -> ParentDefaults {
    let template = object.spec.as_ref().map(|spec| &spec.template);
    let metadata = &object.metadata;
    let before = stored.map(|stored| &stored.metadata);
    let ours = facts.stateful_sets && !waits_with_controller(object);
    let Some(managed) = Managed::of(metadata, before, template, facts).filter(|_| ours) else {
        return ParentDefaults::default();
    };
    let template = managed.template;
    let mut result = managed.defaults();
    result.annotations.insert(labels::POD_SUSPENDING_PARENT, STATEFUL_SET_FRAMEWORK.to_owned());
    // An older version of Berth wrote labels with queue and priority class into pod templates. An update that lacks the template's labels of queue and priority
    // class is not meant to change the template, which would restart the StatefulSet's pods.
    let before = stored.and_then(|set| set.spec.as_ref()?.template.metadata.as_ref());
    let now = template.metadata.as_ref();
    for key in [labels::QUEUE_NAME, labels::PRIORITY_CLASS] {
        if let (Some(label_value), None) =
            (before.and_then(|have| label(have, key)), now.and_then(|have| label(have, key)))
        {
            result.labels.insert(key, label_value.to_owned());
        }
    }
    let joins = stored.is_none_or(|set| queue_name(&set.metadata).is_none());
    // An update of a StatefulSet that lacks the label with the default priority class is not meant to remove the class.
    let was_given = stored.is_some_and(|set| workload_priority_class(&set.metadata) == Some(DEFAULT_NAME));
    if (was_given || joins && facts.default_priority_class) && workload_priority_class(metadata).is_none() {
        result.own_labels.insert(labels::PRIORITY_CLASS, DEFAULT_NAME.to_owned());
    }
    result.lacked_by(template)
}

impl ParentDefaults {
    /// Writes the defaults into a Deployment or StatefulSet and its pod template, for callers that do not answer a review with patches.
    pub fn fill(self, own: &mut ObjectMeta, template: &mut PodTemplateSpec) {
        fill(&mut own.labels, self.own_labels);
        if !self.labels.is_empty() || !self.annotations.is_empty() {
            let metadata = template.metadata.get_or_insert_default();
            fill(&mut metadata.labels, self.labels);
            fill(&mut metadata.annotations, self.annotations);
        }
    }

    /// The defaults that the template lacks, or has with another value.
    fn lacked_by(mut self, template: &PodTemplateSpec) -> Self {
        let have = template.metadata.as_ref();
        keep_lacking(&mut self.labels, have.and_then(|metadata| metadata.labels.as_ref()));
        keep_lacking(&mut self.annotations, have.and_then(|metadata| metadata.annotations.as_ref()));
        self
    }
}

/// A Deployment or StatefulSet whose pods are managed through it.
struct Managed<'a> {
    template: &'a PodTemplateSpec,
    /// LocalQueue of the pods of the Deployment or StatefulSet; `None` if the pods wait until the Deployment or StatefulSet names one.
    queue: Option<&'a str>,
    /// True if the Deployment or StatefulSet names no queue itself and gets the LocalQueue `default`.
    given: bool,
}

impl<'a> Managed<'a> {
    /// The Deployment or StatefulSet with this metadata and template; `None` if its pods are not managed through it. The parameter `before` is the metadata
    /// before an update.
    fn of(
        metadata: &'a ObjectMeta,
        before: Option<&ObjectMeta>,
        template: Option<&'a PodTemplateSpec>,
        facts: Facts,
    ) -> Option<Self> {
        let template = template.filter(|_| facts.managed_namespace && !is_left_to_controller(metadata))?;
        let named = queue_name(metadata);
        // If a Deployment's or StatefulSet's pod template names a queue, the pods wait for this queue one by one, and the object gets no default LocalQueue.
        let pods_name_one = template.metadata.as_ref().is_some_and(|metadata| queue_name(metadata).is_some());
        // An existing Deployment or StatefulSet may have running pods, so an update gives it no default LocalQueue that it did not have. An update that lacks
        // the label with the default LocalQueue is not meant to remove the queue.
        let gives = before.map_or(!pods_name_one, |before| queue_name(before) == Some(DEFAULT_NAME));
        let given = named.is_none() && facts.default_queue && gives;
        let queue = named.or(given.then_some(DEFAULT_NAME));
        let waits = queue.is_some() || facts.without_queue_name && !pods_name_one;
        waits.then_some(Self { template, queue, given })
    }

    /// Defaults for a Deployment or StatefulSet: the label with the default queue.
    fn defaults(&self) -> ParentDefaults {
        let mut result = ParentDefaults::default();
        if self.given {
            result.own_labels.insert(labels::QUEUE_NAME, DEFAULT_NAME.to_owned());
        }
        result
    }
}

/// Faults of a Deployment that do not depend on its earlier state.
#[must_use]
pub fn validate_deployment(object: &Deployment) -> Vec<FieldError> {
    parent_rules(&object.metadata, "Deployment")
}

/// Faults of a change of a Deployment.
#[must_use]
pub fn validate_deployment_update(old: &Deployment, new: &Deployment) -> Vec<FieldError> {
    let mut errors = newly_broken(validate_deployment(new), &validate_deployment(old));
    let ready = old.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
    errors.extend(changed(&old.metadata, &new.metadata, ready));
    errors
}

/// Whether the pods of a StatefulSet wait with the set's controller, as the pods of a LeaderWorkerSet do under Kueue.
fn waits_with_controller(set: &StatefulSet) -> bool {
    let pods = set.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
    let parent = pods.and_then(|pods| annotation(pods, labels::POD_SUSPENDING_PARENT));
    controller(&set.metadata).is_some() && parent.is_some_and(|parent| parent != STATEFUL_SET_FRAMEWORK)
}

/// Faults of a StatefulSet that do not depend on its earlier state.
#[must_use]
pub fn validate_stateful_set(object: &StatefulSet) -> Vec<FieldError> {
    if waits_with_controller(object) {
        return Vec::new();
    }
    let mut errors = parent_rules(&object.metadata, "StatefulSet");
    if queue_name(&object.metadata).is_some() {
        let workload = || stateful_set_workload(object, replicas(object), Priority::default(), &BTreeSet::new()).ok();
        errors.extend(size_rule(object, 1, workload));
    }
    errors
}

/// Faults of a change of a StatefulSet.
#[must_use]
pub fn validate_stateful_set_update(old: &StatefulSet, new: &StatefulSet) -> Vec<FieldError> {
    if waits_with_controller(old) && waits_with_controller(new) {
        return Vec::new();
    }
    let mut errors = newly_broken(validate_stateful_set(new), &validate_stateful_set(old));
    let ready = old.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
    errors.extend(changed(&old.metadata, &new.metadata, ready));
    if queue_name(&new.metadata).is_none() {
        return errors;
    }
    errors.extend(reshaped(old, new));
    let (was, is) = (replicas(old), replicas(new));
    let refuse = |message: String| FieldError::new("spec.replicas", is.to_string(), message);
    if was != is && was != 0 && is != 0 {
        errors.push(refuse(format!("must stay {was} or become 0: its quota is reserved as a whole")));
    }
    let left = new.status.as_ref().map_or(0, |status| status.replicas);
    if was == 0 && is > 0 && left > 0 {
        errors.push(refuse(format!("must stay 0 until the pods of the last scale are gone: {left} are left")));
    }
    errors
}

/// Faults of metadata fields of a Deployment or StatefulSet. The maximum execution time of a Deployment or StatefulSet is not checked, as in Kueue.
fn parent_rules(metadata: &ObjectMeta, kind: &str) -> Vec<FieldError> {
    let mut errors = metadata_rules(metadata, queue_name(metadata));
    errors.extend(elastic_rule(metadata, kind));
    errors
}

/// Faults of a StatefulSet's changed pod fields. The Workload of a StatefulSet stays through updates, so the fields that decide about quota must stay, too.
fn reshaped(old: &StatefulSet, new: &StatefulSet) -> Vec<FieldError> {
    let of = |set: &StatefulSet| set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).map(shape_of_pods);
    let (Some(Value::Object(was)), Some(Value::Object(is))) = (of(old), of(new)) else { return Vec::new() };
    let value_of = |shape: &Map<String, Value>, field: &str| shape.get(field).cloned().unwrap_or_default();
    // The error about a removed label or annotation has its path in the pod template before the change.
    let fields: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    let differs = fields.into_iter().map(|field| (field, value_of(&was, field), value_of(&is, field)));
    let differs = differs.filter(|(_, was, is)| !same(was.clone(), is.clone()));
    let refuse = |(field, _, value): (&String, Value, Value)| {
        let message = "is immutable while a queue manages the StatefulSet: its quota is reserved for these pods";
        FieldError::new(format!("spec.template.spec.{field}"), value.to_string(), message)
    };
    differs.map(refuse).collect()
}

/// Fields of a pod template that decide about the admission of its pods. Limits are among these fields of the pod template, because they count as requests if
/// there are none, and so are restartable init containers, because they need quota beside the containers.
fn shape_of_pods(template: &PodSpec) -> Value {
    let spec = effective_pod_spec(template, None, &LimitSummary::default());
    let mut shape = shape(&spec);
    let containers = shape.get_mut("initContainers").and_then(Value::as_array_mut);
    for (container, message) in spec.init_containers.iter().flatten().zip(containers.into_iter().flatten()) {
        if let (Some(policy), Value::Object(fields)) = (&container.restart_policy, message) {
            fields.insert("restartPolicy".to_owned(), Value::from(policy.as_str()));
        }
    }
    shape
}

/// Faults of changes to the metadata of a Deployment or StatefulSet; the queue may change only while no replica is ready.
fn changed(old: &ObjectMeta, new: &ObjectMeta, ready: i32) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (was, is) = (queue_name(old), queue_name(new));
    if was != is && (ready > 0 || is.is_none()) {
        let message = if is.is_none() { "must not be removed" } else { "is immutable while replicas are ready" };
        errors.push(FieldError::new(label_path(labels::QUEUE_NAME), is.or(was).unwrap_or_default(), message));
    }
    errors.extend(priority_class_change(old, new, ready == 0));
    errors.extend(validate_admission_gates_update(old, new));
    errors
}
