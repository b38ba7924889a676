//! Creation of pods, and of the kinds that are admitted through their pods, with the functions that answer an admission review of Berth's webhooks. This module
//! creates the objects of the pods that a controller would create from a pod template.

use std::collections::BTreeMap;

use berth_api::json::to_value;
use berth_api::labels;
use berth_api::validation::FieldError;
use berth_jobs::pods::{
    DEPLOYMENT_FRAMEWORK, STATEFUL_SET_FRAMEWORK, SetState, controlling_set, deployment_defaults,
    is_admitted_with_owner, pod_defaults, stateful_set_defaults, validate_deployment, validate_pod,
    validate_stateful_set,
};
use berth_jobs::{Facts, controller};
use berth_reconcile::write::Kind;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::Value;

use super::error::ObjectError;
use super::{Offline, object_key, read};

/// Largest number of pods that are created from one pod template, so that a user who requests too many pods does not wait long.
const MOST_REPLICAS: usize = 5_000;
/// Largest number of pods that are created from all templates together, not counting the first pod of each template.
const MOST_PODS: usize = 20_000;
/// Kind of the object that is the controlling owner of a Deployment's pods.
const REPLICA_SET: &str = "ReplicaSet";

/// Result of the creation of a Pod, a Deployment or a StatefulSet in an offline run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Creation {
    /// Berth manages the object.
    Managed {
        /// Names of the pods that stand for a Deployment or StatefulSet; empty for a StatefulSet that is one group, and for a single pod.
        pods: Vec<String>,
        /// Number of replicas that were not created, because only a limited number of pods is created from a pod template.
        left_out: usize,
    },
    /// Berth does not manage the created object; the text is the reason.
    Unmanaged(String),
    /// Berth's webhook refuses the object to create because of these faults.
    Refused(Vec<FieldError>),
}

/// A Deployment or StatefulSet, with the template of its pods.
struct Maker<'a> {
    metadata: &'a ObjectMeta,
    /// The kind of the pods' controller; the ReplicaSet of a Deployment does not exist offline.
    controller: &'static str,
    template: &'a PodTemplateSpec,
    /// The reason why the queue that the Deployment or StatefulSet names has no effect.
    overruled: Option<String>,
}

impl Offline {
    /// Creates a Pod, a Deployment or a StatefulSet with its pods, as an API server would that calls Berth's webhooks. An object that has a uid comes from an
    /// API server, which has called the webhooks already: the object is taken unchanged.
    ///
    /// # Errors
    /// The fault of the object, or a message that the object is of another kind.
    pub fn create(&mut self, kind: Kind, object: &Value) -> Result<Creation, ObjectError> {
        match kind {
            Kind::Pod => self.create_pod(read(object)?),
            Kind::Deployment => self.create_deployment(read(object)?),
            Kind::StatefulSet => self.create_stateful_set(read(object)?),
            other => Err(ObjectError::NoPods(other)),
        }
    }

    fn create_pod(&mut self, mut pod: Pod) -> Result<Creation, ObjectError> {
        let namespace = namespace(&pod.metadata);
        let facts = self.cluster_facts.facts(&namespace);
        if is_new(&pod.metadata) {
            let owner = controlling_set(&pod.metadata);
            let set = owner.and_then(|owner| self.cluster_facts.stateful_set(&namespace, &owner.name));
            pod_defaults(&pod, facts, set.as_ref()).fill(&mut pod);
            // No webhook reviews pods without the label of managed pods and without a queue.
            let asked = has_label(&pod.metadata, labels::MANAGED) || has_label(&pod.metadata, labels::QUEUE_NAME);
            let faults = if asked && facts.pods && facts.managed_namespace { validate_pod(&pod) } else { Vec::new() };
            if !faults.is_empty() {
                return Ok(Creation::Refused(faults));
            }
        }
        let managed = pod.metadata.labels.as_ref().and_then(|labels| labels.get(labels::MANAGED));
        if managed.is_none_or(|value| value != "true") {
            return Ok(Creation::Unmanaged(why_unmanaged(&pod.metadata, facts)));
        }
        self.put_as(Kind::Pod, &to_value(&pod))?;
        Ok(Creation::Managed { pods: Vec::new(), left_out: 0 })
    }

    fn create_deployment(&mut self, mut object: Deployment) -> Result<Creation, ObjectError> {
        let facts = self.cluster_facts.facts(&namespace(&object.metadata));
        if is_new(&object.metadata) {
            let defaults = deployment_defaults(&object, None, facts);
            if let Some(spec) = &mut object.spec {
                defaults.fill(&mut object.metadata, &mut spec.template);
            }
            let managed = facts.deployments && facts.managed_namespace;
            let faults = if managed { validate_deployment(&object) } else { Vec::new() };
            if !faults.is_empty() {
                return Ok(Creation::Refused(faults));
            }
        }
        let Deployment { metadata, spec, .. } = object;
        let spec = spec.unwrap_or_default();
        let replicas = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or_default();
        let overruled = overruled(&metadata, facts, (facts.deployments, DEPLOYMENT_FRAMEWORK));
        let maker = Maker { metadata: &metadata, controller: REPLICA_SET, template: &spec.template, overruled };
        let there = self.pods_of(&metadata, &spec.selector.match_labels.unwrap_or_default());
        let name = metadata.name.clone().unwrap_or_default();
        self.create_pods(&maker, there, replicas, (0_usize..).map(|number| format!("{name}-{number}")))
    }

    fn create_stateful_set(&mut self, mut object: StatefulSet) -> Result<Creation, ObjectError> {
        let facts = self.cluster_facts.facts(&namespace(&object.metadata));
        if is_new(&object.metadata) {
            let defaults = stateful_set_defaults(&object, None, facts);
            if let Some(spec) = &mut object.spec {
                defaults.fill(&mut object.metadata, &mut spec.template);
            }
            let managed = facts.stateful_sets && facts.managed_namespace;
            let faults = if managed { validate_stateful_set(&object) } else { Vec::new() };
            if !faults.is_empty() {
                return Ok(Creation::Refused(faults));
            }
        }
        if let Some(set) = SetState::read(&object).filter(|_| facts.stateful_sets) {
            if set.queue_name.is_none() {
                return Ok(Creation::Unmanaged("it names no queue, and its pods wait until it does".to_owned()));
            }
            self.put_as(Kind::StatefulSet, &to_value(&object))?;
            return Ok(Creation::Managed { pods: Vec::new(), left_out: 0 });
        }
        let StatefulSet { metadata, spec, .. } = object;
        let spec = spec.unwrap_or_default();
        let replicas = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or_default();
        // The ordinals of a StatefulSet's pods have a wider type than the first ordinal in the API, so that later ordinals fit, too.
        let first = i64::from(spec.ordinals.and_then(|ordinals| ordinals.start).unwrap_or_default());
        let overruled = overruled(&metadata, facts, (facts.stateful_sets, STATEFUL_SET_FRAMEWORK));
        let maker = Maker { metadata: &metadata, controller: "StatefulSet", template: &spec.template, overruled };
        let name = metadata.name.clone().unwrap_or_default();
        self.create_pods(&maker, Vec::new(), replicas, (first..).map(|number| format!("{name}-{number}")))
    }

    /// Names of the existing pods that belong to a Deployment with the given selector.
    fn pods_of(&self, parent: &ObjectMeta, selector: &BTreeMap<String, String>) -> Vec<String> {
        let namespace = namespace(parent);
        // The Deployment's controller begins the names of ReplicaSets with the name of the Deployment.
        let beginning = format!("{}-", parent.name.as_deref().unwrap_or_default());
        let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
        let is_one = |pod: &Value| {
            let own = pod.pointer("/metadata/labels");
            let selected =
                |(key, value): (&String, &String)| own.and_then(|own| text(own, key)).as_ref() == Some(value);
            let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            let of_parent = |owner: &Value| {
                let is_named_after = text(owner, "name").is_some_and(|name| name.starts_with(&beginning));
                is_named_after && text(owner, "kind").as_deref() == Some(REPLICA_SET)
            };
            selector.iter().all(selected) && owners.into_iter().flatten().any(of_parent)
        };
        let pods = self.objects.iter().filter(|(key, _)| key.kind == Kind::Pod && key.namespace == namespace);
        let pods = pods.filter(|(_, pod)| !selector.is_empty() && is_one(pod));
        pods.map(|(key, _)| key.name.clone()).collect()
    }

    /// Creates the pods that a Deployment or StatefulSet lacks, under the first of the given names that are free. All pods of a template are alike, so the
    /// webhook's answer for the first pod holds for all of them.
    fn create_pods(
        &mut self,
        maker: &Maker<'_>,
        there: Vec<String>,
        replicas: usize,
        names: impl Iterator<Item = String>,
    ) -> Result<Creation, ObjectError> {
        let namespace = namespace(maker.metadata);
        let lacking = replicas.saturating_sub(there.len());
        let made = lacking.min(MOST_REPLICAS).min(MOST_PODS.saturating_sub(self.made_pods).max(1));
        let mut pods = there;
        let wanted = pods.len().saturating_add(made);
        for name in names {
            if pods.len() >= wanted {
                break;
            }
            if self.objects.contains_key(&object_key(Kind::Pod, &namespace, &name)) {
                continue;
            }
            match self.create_pod(maker.pod(&namespace, &name))? {
                Creation::Managed { .. } => {
                    self.made_pods = self.made_pods.saturating_add(1);
                    pods.push(name);
                }
                Creation::Refused(faults) => {
                    return Ok(Creation::Refused(faults.into_iter().map(in_template).collect()));
                }
                Creation::Unmanaged(why) => return Ok(Creation::Unmanaged(maker.overruled.clone().unwrap_or(why))),
            }
        }
        Ok(Creation::Managed { pods, left_out: lacking.saturating_sub(made) })
    }
}

impl Maker<'_> {
    fn pod(&self, namespace: &str, name: &str) -> Pod {
        let parent = self.metadata.name.clone().unwrap_or_default();
        let given = self.metadata.uid.clone().filter(|uid| !uid.is_empty());
        let owner = OwnerReference {
            api_version: "apps/v1".to_owned(),
            kind: self.controller.to_owned(),
            uid: given.unwrap_or_else(|| format!("{}/{namespace}/{parent}", self.controller)),
            name: parent,
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        let own = self.template.metadata.clone().unwrap_or_default();
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: own.labels,
            annotations: own.annotations,
            finalizers: own.finalizers,
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        Pod { metadata, spec: self.template.spec.clone(), status: None }
    }
}

fn namespace(metadata: &ObjectMeta) -> String {
    metadata.namespace.clone().unwrap_or_default()
}

/// Whether no API server has stored the object yet: the object has no uid.
fn is_new(metadata: &ObjectMeta) -> bool {
    metadata.uid.as_ref().is_none_or(String::is_empty)
}

fn has_label(metadata: &ObjectMeta, key: &str) -> bool {
    metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(key))
}

/// A fault of a pod, with the path that the faulty field has in the pod template.
fn in_template(fault: FieldError) -> FieldError {
    FieldError { field: format!("spec.template.{}", fault.field), ..fault }
}

/// The reason why the queue that a Deployment or StatefulSet names has no effect; `managed` is true if the object's kind is managed.
fn overruled(metadata: &ObjectMeta, facts: Facts, (managed, integration): (bool, &str)) -> Option<String> {
    if !facts.managed_namespace || !has_label(metadata, labels::QUEUE_NAME) {
        return None;
    }
    if !managed {
        return Some(format!("the configuration does not name the integration {integration}"));
    }
    let owner = controller(metadata).filter(|_| is_admitted_with_owner(metadata))?;
    Some(format!("{} {} controls it, and says what it runs", owner.kind, owner.name))
}

/// The reason why Berth does not manage a pod, so that the pod does not wait for quota.
fn why_unmanaged(metadata: &ObjectMeta, facts: Facts) -> String {
    if !facts.managed_namespace {
        return "the configuration does not select its namespace".to_owned();
    }
    match controller(metadata).filter(|_| is_admitted_with_owner(metadata)) {
        Some(owner) => format!("it is admitted with {} {}, which controls it", owner.kind, owner.name),
        None if has_label(metadata, labels::QUEUE_NAME) && facts.pods => {
            "it was created without Berth's webhook, so that it does not wait".to_owned()
        }
        None => "it names no queue".to_owned(),
    }
}
