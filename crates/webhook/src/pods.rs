//! Reviews of pods, and of the kinds that are admitted through their pods (Deployment, StatefulSet).

use crate::patch::{add, entries, item};
use crate::review::{Answer, Request, Unreadable};
use crate::routes::Around;
use berth_api::labels;
use berth_api::validation::FieldError;
use berth_jobs::Facts;
use berth_jobs::pods::{self, ParentDefaults, PodDefaults};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

type Reply = Result<Answer, Unreadable>;

/// Adds a scheduling gate and a finalizer to a managed pod. A pod that names no queue gets the default queue of its namespace, if there is one.
pub(crate) fn mutate_pod(request: &Request, around: &Around<'_>) -> Reply {
    if request.operation != "CREATE" {
        return Ok(Answer::Allow);
    }
    let pod: Pod = request.object()?;
    let facts = facts(request, around);
    if let Some(forged) =
        pods::forged_controller(&pod, facts).filter(|_| !is_of_kubernetes(&request.user_info.username))
    {
        return Ok(Answer::of(vec![forged]));
    }
    let owner = pods::controlling_set(&pod.metadata);
    let set = owner.and_then(|owner| around.cluster_facts.stateful_set(&request.namespace, &owner.name));
    let defaults = pods::pod_defaults(&pod, facts, set.as_ref());
    Ok(Answer::Change(pod_operations(&pod, defaults)))
}

/// Whether a user is one of Kubernetes' own controllers. The match conditions of the chart's webhooks exclude the pods that Kubernetes' controllers
/// create; a webhook configuration taken over from Kueue may include them.
fn is_of_kubernetes(user: &str) -> bool {
    user == "system:kube-controller-manager" || user.starts_with("system:serviceaccount:kube-system:")
}

/// Refuses an invalid pod, and changes of a pod that come too late.
pub(crate) fn validate_pod(request: &Request, around: &Around<'_>) -> Reply {
    let facts = facts(request, around);
    let managed = facts.pods && facts.managed_namespace;
    if request.is_leaving() {
        return validate(request, managed, |_: &Pod| Vec::new(), pods::validate_leaving_pod);
    }
    let update = |old: &Pod, new: &Pod| pods::validate_pod_update(old, new, facts.default_queue);
    validate(request, managed, pods::validate_pod, update)
}

/// Refuses a change that removes the metadata by which a pod of a job is counted. The match conditions of the chart's webhook send only changes of this
/// metadata to `validate_pod_of_job`.
pub(crate) fn validate_pod_of_job(request: &Request) -> Reply {
    let new: Pod = request.object()?;
    let old = request.old_object::<Pod>().filter(|_| !is_of_kubernetes(&request.user_info.username));
    Ok(Answer::of(old.map(|old| pods::validate_pod_of_job(&old, &new)).unwrap_or_default()))
}

/// Marks the pod template of a Deployment, so that its pods are managed. A Deployment that names no queue gets the default queue of its namespace, if
/// there is one.
pub(crate) fn mutate_deployment(request: &Request, around: &Around<'_>) -> Reply {
    let object: Deployment = request.object()?;
    let stored: Option<Deployment> = request.stored();
    let defaults = pods::deployment_defaults(&object, stored.as_ref(), facts(request, around));
    Ok(Answer::Change(parent_operations(&object.metadata, object.spec.as_ref().map(|spec| &spec.template), defaults)))
}

/// Refuses an invalid Deployment, and changes of a Deployment that come too late.
pub(crate) fn validate_deployment(request: &Request, around: &Around<'_>) -> Reply {
    let facts = facts(request, around);
    let managed = facts.deployments && facts.managed_namespace;
    validate(request, managed, pods::validate_deployment, pods::validate_deployment_update)
}

/// Marks the pod template of a StatefulSet, so that its pods wait for admission. A StatefulSet that names no queue gets the default queue of its
/// namespace, if there is one.
pub(crate) fn mutate_stateful_set(request: &Request, around: &Around<'_>) -> Reply {
    let object: StatefulSet = request.object()?;
    let stored: Option<StatefulSet> = request.stored();
    let defaults = pods::stateful_set_defaults(&object, stored.as_ref(), facts(request, around));
    Ok(Answer::Change(parent_operations(&object.metadata, object.spec.as_ref().map(|spec| &spec.template), defaults)))
}

/// Refuses an invalid StatefulSet, and changes of its queue or pod template that its Workload could not follow.
pub(crate) fn validate_stateful_set(request: &Request, around: &Around<'_>) -> Reply {
    let facts = facts(request, around);
    let managed = facts.stateful_sets && facts.managed_namespace;
    validate(request, managed, pods::validate_stateful_set, pods::validate_stateful_set_update)
}

fn facts(request: &Request, around: &Around<'_>) -> Facts {
    around.cluster_facts.facts(&request.namespace)
}

/// Errors of a managed object: errors of the object itself at its creation, and errors of the change in an update.
fn validate<T: DeserializeOwned>(
    request: &Request,
    managed: bool,
    alone: impl FnOnce(&T) -> Vec<FieldError>,
    changed: impl FnOnce(&T, &T) -> Vec<FieldError>,
) -> Reply {
    let object: T = request.object()?;
    if !managed {
        return Ok(Answer::Allow);
    }
    Ok(Answer::of(match request.old_object::<T>() {
        None => alone(&object),
        Some(old) => changed(&old, &object),
    }))
}

fn pod_operations(pod: &Pod, defaults: PodDefaults) -> Vec<Value> {
    let metadata = &pod.metadata;
    let mut operations = entries("/metadata/labels", metadata.labels.as_ref(), defaults.labels);
    operations.extend(entries("/metadata/annotations", metadata.annotations.as_ref(), defaults.annotations));
    if defaults.finalizer {
        operations.push(item("/metadata/finalizers", metadata.finalizers.as_ref(), json!(labels::MANAGED)));
    }
    if defaults.gate {
        let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
        operations.push(item("/spec/schedulingGates", gates, json!({"name": labels::ADMISSION_GATE})));
    }
    operations
}

fn parent_operations(own: &ObjectMeta, template: Option<&PodTemplateSpec>, defaults: ParentDefaults) -> Vec<Value> {
    let path = "/spec/template/metadata";
    let metadata = template.and_then(|template| template.metadata.as_ref());
    let mut operations = entries("/metadata/labels", own.labels.as_ref(), defaults.own_labels);
    let wanted = !defaults.labels.is_empty() || !defaults.annotations.is_empty();
    let missing = (metadata.is_none() && wanted).then(|| add(path.to_owned(), json!({})));
    let labels = entries(&format!("{path}/labels"), metadata.and_then(|m| m.labels.as_ref()), defaults.labels);
    let notes = metadata.and_then(|m| m.annotations.as_ref());
    let notes = entries(&format!("{path}/annotations"), notes, defaults.annotations);
    operations.extend(missing.into_iter().chain(labels).chain(notes));
    operations
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn paths(operations: &[Value]) -> Vec<&str> {
        operations.iter().map(|operation| operation["path"].as_str().unwrap()).collect()
    }

    #[test]
    fn pod_defaults_add_only_missing_metadata_and_gates() {
        let defaults = || PodDefaults {
            labels: [(labels::MANAGED, "true".to_owned())].into(),
            annotations: [(labels::ROLE_HASH, "abc".to_owned())].into(),
            finalizer: true,
            gate: true,
        };
        let bare: Pod = serde_json::from_value(json!({"spec": {"containers": []}})).unwrap();
        let (label, note) =
            ("/metadata/labels/kueue.x-k8s.io~1managed", "/metadata/annotations/kueue.x-k8s.io~1role-hash");
        let operations = pod_operations(&bare, defaults());
        let all =
            ["/metadata/labels", label, "/metadata/annotations", note, "/metadata/finalizers", "/spec/schedulingGates"];
        assert_eq!(paths(&operations), all);
        assert_eq!(operations[5]["value"], json!([{"name": "kueue.x-k8s.io/admission"}]));
        let full: Pod = serde_json::from_value(json!({
            "metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["x/y"]},
            "spec": {"containers": [], "schedulingGates": [{"name": "g"}]},
        }))
        .unwrap();
        let operations = pod_operations(&full, defaults());
        assert_eq!(paths(&operations), [label, note, "/metadata/finalizers/-", "/spec/schedulingGates/-"]);
        assert!(pod_operations(&full, PodDefaults::default()).is_empty());
    }

    /// The object `object` after the additions by the operations of a JSON patch.
    fn added(mut object: Value, operations: &[Value]) -> Value {
        for operation in operations {
            let (parent, member) = operation["path"].as_str().unwrap().rsplit_once('/').unwrap();
            let (member, value) = (member.replace("~1", "/").replace("~0", "~"), operation["value"].clone());
            match object.pointer_mut(parent).unwrap() {
                Value::Array(items) => items.push(value),
                Value::Object(fields) => drop(fields.insert(member, value)),
                other => panic!("nothing can be added to {other}"),
            }
        }
        object
    }

    #[test]
    fn patch_operations_equal_the_filled_defaults_for_pods_and_parents() {
        let given = || BTreeMap::from([(labels::MANAGED, "true".to_owned())]);
        let defaults = || PodDefaults { labels: given(), annotations: given(), finalizer: true, gate: true };
        let parents = || ParentDefaults { own_labels: given(), labels: given(), annotations: given() };
        for (metadata, gates) in [
            (json!({}), Value::Null),
            (json!({"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["x/y"]}), json!([{"name": "g"}])),
        ] {
            let pod = json!({"metadata": metadata, "spec": {"containers": [], "schedulingGates": gates}});
            let mut pod: Pod = serde_json::from_value(pod).unwrap();
            let reviewed = added(json!(pod), &pod_operations(&pod, defaults()));
            defaults().fill(&mut pod);
            assert_eq!(json!(pod), reviewed);
            let template = if gates.is_null() { json!({}) } else { json!({"metadata": metadata}) };
            let object = json!({"metadata": metadata, "spec": {"template": template, "selector": {}}});
            let mut object: Deployment = serde_json::from_value(object).unwrap();
            let template = object.spec.as_ref().map(|spec| &spec.template);
            let operations = parent_operations(&object.metadata, template, parents());
            let reviewed = added(json!(object), &operations);
            let Deployment { metadata, spec, .. } = &mut object;
            parents().fill(metadata, &mut spec.as_mut().unwrap().template);
            assert_eq!(json!(object), reviewed);
        }
    }

    #[test]
    fn parent_defaults_add_missing_labels_to_parent_and_template() {
        let defaults = || ParentDefaults {
            own_labels: BTreeMap::new(),
            labels: [(labels::QUEUE_NAME, "q".to_owned())].into(),
            annotations: [(labels::POD_SUSPENDING_PARENT, "deployment".to_owned())].into(),
        };
        let base = "/spec/template/metadata";
        let own = ObjectMeta::default();
        let operations = parent_operations(&own, None, defaults());
        assert_eq!(
            paths(&operations)[..3],
            [base, &format!("{base}/labels"), &format!("{base}/labels/kueue.x-k8s.io~1queue-name")]
        );
        let template = json!({"metadata": {"labels": {"app": "web"}}});
        let template: PodTemplateSpec = serde_json::from_value(template).unwrap();
        let operations = parent_operations(&own, Some(&template), defaults());
        assert_eq!(paths(&operations)[0], format!("{base}/labels/kueue.x-k8s.io~1queue-name"));
        assert_eq!(operations.len(), 3);
        assert!(parent_operations(&own, None, ParentDefaults::default()).is_empty());
        let class = [(labels::PRIORITY_CLASS, "default".to_owned())].into();
        let operations = parent_operations(&own, None, ParentDefaults { own_labels: class, ..Default::default() });
        assert_eq!(paths(&operations), ["/metadata/labels", "/metadata/labels/kueue.x-k8s.io~1priority-class"]);
    }
}
