//! Fields that decide whether or where a job may run and that Berth does not support. Berth does not ignore an unsupported field of a job: it does not admit
//! the job's Workload, and a message names the field.

use crate::metadata::annotation;
use berth_api::{Workload, labels};
use k8s_openapi::api::core::v1::{Container, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Annotations of pods that request or name a topology domain.
pub(crate) const TOPOLOGY: [&str; 7] = [
    labels::POD_SET_REQUIRED_TOPOLOGY,
    labels::POD_SET_PREFERRED_TOPOLOGY,
    labels::POD_SET_UNCONSTRAINED_TOPOLOGY,
    labels::POD_SET_SLICE_REQUIRED_TOPOLOGY,
    labels::POD_SET_SLICE_SIZE,
    labels::POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS,
    labels::POD_SET_GROUP_NAME,
];

fn message(field: &str) -> String {
    format!("{field} is not supported yet")
}

/// Message about the first unsupported annotation of a job or Workload.
#[must_use]
pub fn unsupported_metadata(metadata: &ObjectMeta) -> Option<String> {
    let elastic = annotation(metadata, labels::ELASTIC_JOB).filter(|value| *value == "true");
    elastic.map(|_| message(&format!("annotation {}", labels::ELASTIC_JOB)))
}

/// Message about the first unsupported field of a pod template at `path`.
#[must_use]
pub fn unsupported_template(path: &str, template: &PodTemplateSpec) -> Option<String> {
    if let Some(key) =
        TOPOLOGY.iter().find(|key| template.metadata.as_ref().is_some_and(|m| annotation(m, key).is_some()))
    {
        return Some(message(&format!("{path}.metadata.annotations[{key}]")));
    }
    let spec = template.spec.as_ref()?;
    if spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
        return Some(message(&format!("{path}.spec.resourceClaims")));
    }
    let claims = |container: &&Container| {
        let claims = container.resources.as_ref().and_then(|resources| resources.claims.as_ref());
        claims.is_some_and(|claims| !claims.is_empty())
    };
    let lists = [
        ("initContainers", spec.init_containers.as_deref().unwrap_or_default()),
        ("containers", spec.containers.as_slice()),
    ];
    let (list, container) =
        lists.into_iter().find_map(|(list, containers)| Some((list, containers.iter().find(claims)?)))?;
    Some(message(&format!("{path}.spec.{list}[name={}].resources.claims", container.name)))
}

/// Reason to hold a Workload with preemption gates, if Berth does not support them.
#[must_use]
pub fn unsupported_gates(workload: &Workload) -> Option<String> {
    (!workload.spec.preemption_gates.is_empty()).then(|| message("spec.preemptionGates"))
}

/// Message about the first unsupported field of a Workload, including its pod sets.
#[must_use]
pub fn unsupported_workload(workload: &Workload) -> Option<String> {
    let metadata = &workload.metadata;
    if let Some(text) = unsupported_metadata(metadata) {
        return Some(text);
    }
    if annotation(metadata, labels::WORKLOAD_ALLOWED_RESOURCE_FLAVORS).is_some() {
        return Some(message(&format!("annotation {}", labels::WORKLOAD_ALLOWED_RESOURCE_FLAVORS)));
    }
    if metadata.labels.as_ref().is_some_and(|l| l.contains_key(labels::CONCURRENT_ADMISSION_PARENT)) {
        return Some(message(&format!("label {}", labels::CONCURRENT_ADMISSION_PARENT)));
    }
    workload.spec.pod_sets.iter().enumerate().find_map(|(index, set)| {
        let path = format!("spec.podSets[{index}]");
        match &set.topology_request {
            Some(request) if request.asks() => Some(message(&format!("{path}.topologyRequest"))),
            _ => unsupported_template(&format!("{path}.template"), &set.template),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn unsupported_workload_field_is_named_in_message() {
        let cases = [
            (json!({}), None),
            (
                json!({"metadata": {"annotations": {labels::ELASTIC_JOB: "false", labels::ADMISSION_GATED_BY: "a"}}}),
                None,
            ),
            (
                json!({"metadata": {"annotations": {labels::ELASTIC_JOB: "true"}}}),
                Some("annotation kueue.x-k8s.io/elastic-job"),
            ),
            (
                json!({"metadata": {"annotations": {labels::WORKLOAD_ALLOWED_RESOURCE_FLAVORS: "a"}}}),
                Some("annotation kueue.x-k8s.io/workload-allowed-resource-flavors"),
            ),
            (
                json!({"metadata": {"labels": {labels::CONCURRENT_ADMISSION_PARENT: "true"}}}),
                Some("label kueue.x-k8s.io/concurrent-admission-parent"),
            ),
            (json!({"spec": {"preemptionGates": [{"name": "a"}]}}), None),
            (
                json!({"spec": {"podSets": [{"name": "a"}, {"name": "b", "topologyRequest": {"required": "rack"}}]}}),
                Some("spec.podSets[1].topologyRequest"),
            ),
            (
                json!({"spec": {"podSets": [{"name": "a", "topologyRequest": {"podIndexLabel": "index",
                    "subGroupIndexLabel": "group", "subGroupCount": 2}}]}}),
                None,
            ),
            (
                template(json!({"resourceClaims": [{"name": "c"}]})),
                Some("spec.podSets[0].template.spec.resourceClaims"),
            ),
            (
                template(json!({"containers": [{"name": "c", "resources": {"claims": [{"name": "x"}]}}]})),
                Some("spec.podSets[0].template.spec.containers[name=c].resources.claims"),
            ),
            (
                template(json!({"initContainers": [{"name": "i", "resources": {"claims": [{"name": "x"}]}}]})),
                Some("spec.podSets[0].template.spec.initContainers[name=i].resources.claims"),
            ),
        ];
        for (workload, expected) in cases {
            let workload: Workload = serde_json::from_value(workload).expect("workload");
            assert_eq!(unsupported_workload(&workload), expected.map(message));
        }
    }

    fn template(mut spec: Value) -> Value {
        if spec.get("containers").is_none() {
            spec["containers"] = json!([]);
        }
        json!({"spec": {"podSets": [{"name": "a", "template": {"spec": spec}}]}})
    }
}
