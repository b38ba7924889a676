//! Deployments and StatefulSets: they are admitted through their pods, so what says who may run them goes into the template.
//!
//! Pods of a Deployment are admitted one by one, which lets an autoscaler add and take away replicas as it likes. Pods of a
//! StatefulSet are one group, as large as the set.

use super::role::shape;
use super::rules::keep_lacking;
use super::{DEPLOYMENT_FRAMEWORK, STATEFUL_SET_FRAMEWORK};
use crate::admission::{DEFAULT_NAME, Facts, elastic_rule, label_path, metadata_rules, priority_class_change};
use crate::equivalence::same;
use crate::kind::{annotation, controller, queue_name, workload_priority_class};
use crate::limits::LimitSummary;
use crate::names::workload_name;
use crate::requests::effective_pod_spec;
use berth_api::labels;
use berth_api::validation::{FieldError, newly_broken, validate_admission_gates_update};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use std::collections::BTreeMap;

/// What the pod template of such an object gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParentDefaults {
    /// Labels that it has not, or with other values.
    pub labels: BTreeMap<&'static str, String>,
    /// Annotations that it has not, or with other values.
    pub annotations: BTreeMap<&'static str, String>,
}

/// Name of the group of a StatefulSet's pods, and of its Workload.
#[must_use]
pub fn group_of_stateful_set(name: &str, uid: &str) -> String {
    workload_name("StatefulSet", "apps", name, uid)
}

/// What a Deployment's pod template gets whenever the Deployment is written.
#[must_use]
pub fn deployment_defaults(object: &Deployment, facts: Facts) -> ParentDefaults {
    let template = object.spec.as_ref().map(|spec| &spec.template);
    defaults(&object.metadata, template, DEPLOYMENT_FRAMEWORK, Facts { pods: facts.deployments, ..facts })
}

/// What a StatefulSet's pod template gets whenever the StatefulSet is written.
#[must_use]
pub fn stateful_set_defaults(object: &StatefulSet, facts: Facts) -> ParentDefaults {
    let template = object.spec.as_ref().map(|spec| &spec.template);
    defaults(&object.metadata, template, STATEFUL_SET_FRAMEWORK, Facts { pods: facts.stateful_sets, ..facts })
}

fn defaults(
    metadata: &ObjectMeta,
    template: Option<&PodTemplateSpec>,
    framework: &str,
    facts: Facts,
) -> ParentDefaults {
    let mut result = ParentDefaults::default();
    // What another object controls is run as that one says.
    let (Some(template), Some(queue)) = (template, queue_name(metadata)) else { return result };
    if !facts.pods || !facts.managed_namespace || controller(metadata).is_some() {
        return result;
    }
    result.labels.insert(labels::QUEUE_NAME, queue.to_owned());
    let default = facts.default_priority_class.then_some(DEFAULT_NAME);
    if let Some(class) = workload_priority_class(metadata).or(default) {
        result.labels.insert(labels::PRIORITY_CLASS, class.to_owned());
    }
    result.annotations.insert(labels::POD_SUSPENDING_PARENT, framework.to_owned());
    if framework == DEPLOYMENT_FRAMEWORK {
        // A Kueue that takes over again gates pods with that annotation, but looks only after those that have the label.
        result.labels.insert(labels::MANAGED, "true".to_owned());
    }
    // Each pod of a Deployment has a Workload of its own, made of the pod; that of a StatefulSet is made of the set.
    if let Some(tiers) = annotation(metadata, labels::CAPACITY_TIERS).filter(|_| framework == DEPLOYMENT_FRAMEWORK) {
        result.annotations.insert(labels::CAPACITY_TIERS, tiers.to_owned());
    }
    let have = template.metadata.as_ref();
    keep_lacking(&mut result.labels, have.and_then(|metadata| metadata.labels.as_ref()));
    keep_lacking(&mut result.annotations, have.and_then(|metadata| metadata.annotations.as_ref()));
    result
}

/// What is wrong with a Deployment by itself.
#[must_use]
pub fn validate_deployment(object: &Deployment) -> Vec<FieldError> {
    parent_rules(&object.metadata, "Deployment")
}

/// What is wrong with a change of a Deployment.
#[must_use]
pub fn validate_deployment_update(old: &Deployment, new: &Deployment) -> Vec<FieldError> {
    let mut errors = newly_broken(validate_deployment(new), &validate_deployment(old));
    let ready = old.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
    errors.extend(changed(&old.metadata, &new.metadata, ready));
    errors
}

/// What is wrong with a StatefulSet by itself.
#[must_use]
pub fn validate_stateful_set(object: &StatefulSet) -> Vec<FieldError> {
    parent_rules(&object.metadata, "StatefulSet")
}

/// What is wrong with a change of a StatefulSet.
#[must_use]
pub fn validate_stateful_set_update(old: &StatefulSet, new: &StatefulSet) -> Vec<FieldError> {
    let mut errors = newly_broken(validate_stateful_set(new), &validate_stateful_set(old));
    let ready = old.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
    errors.extend(changed(&old.metadata, &new.metadata, ready));
    if queue_name(&new.metadata).is_some() {
        errors.extend(reshaped(old, new));
    }
    let replicas = |set: &StatefulSet| set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
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

/// What is wrong with what every parent keeps in its metadata.
fn parent_rules(metadata: &ObjectMeta, kind: &str) -> Vec<FieldError> {
    let mut errors = metadata_rules(metadata, queue_name(metadata));
    errors.extend(elastic_rule(metadata, kind));
    errors
}

/// Its Workload stays through its updates, so that what decides about the quota of its pods must stay, too.
fn reshaped(old: &StatefulSet, new: &StatefulSet) -> Vec<FieldError> {
    let of = |set: &StatefulSet| set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).map(shape_of_pods);
    let (Some(Value::Object(was)), Some(Value::Object(is))) = (of(old), of(new)) else { return Vec::new() };
    let differs =
        is.into_iter().filter(|(field, value)| !same(was.get(field).cloned().unwrap_or_default(), value.clone()));
    let refuse = |(field, value): (String, Value)| {
        let message = "is immutable while a queue manages the StatefulSet: its quota is reserved for these pods";
        FieldError::new(format!("spec.template.spec.{field}"), value.to_string(), message)
    };
    differs.map(refuse).collect()
}

/// What decides about the admission of the pods that are made of a template: their limits are requests where it names none, and what
/// of their preparation runs on asks for quota beside them.
fn shape_of_pods(template: &PodSpec) -> Value {
    let spec = effective_pod_spec(template, None, &LimitSummary::default());
    let mut shape = shape(&spec);
    let containers = shape.get_mut("initContainers").and_then(Value::as_array_mut);
    for (container, said) in spec.init_containers.iter().flatten().zip(containers.into_iter().flatten()) {
        if let (Some(policy), Value::Object(fields)) = (&container.restart_policy, said) {
            fields.insert("restartPolicy".to_owned(), Value::from(policy.as_str()));
        }
    }
    shape
}

/// What must not change of a parent's metadata, with or without pods that are ready.
fn changed(old: &ObjectMeta, new: &ObjectMeta, ready: i32) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (was, is) = (queue_name(old), queue_name(new));
    if was.is_some() && was != is && (ready > 0 || is.is_none()) {
        let message = if is.is_none() { "must not be removed" } else { "is immutable while replicas are ready" };
        errors.push(FieldError::new(label_path(labels::QUEUE_NAME), is.or(was).unwrap_or_default(), message));
    }
    errors.extend(priority_class_change(old, new, ready == 0));
    errors.extend(validate_admission_gates_update(old, new));
    errors
}
