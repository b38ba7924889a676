//! Construction of a Workload's pod sets from the pod templates of a job.

use crate::metadata::go_bool;
use crate::pod_set_error::PodSetError;
use berth_api::labels;
use berth_api::{PodSet, PodSetSliceRequiredTopologyConstraint, PodSetTopologyRequest};
use k8s_openapi::api::core::v1::{EnvVar, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::str::FromStr;

/// Labels that the Job controller adds to a Job's template, with values that differ between Jobs.
pub const BATCH_CONTROLLER_LABELS: [&str; 4] =
    ["batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"];

/// Labels with the index of a kind's pods, for topology requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexLabels {
    /// Label with the pod's index.
    pub pod: Option<String>,
    /// Label with the index of the pod's sub-group.
    pub sub_group: Option<String>,
    /// Number of sub-groups.
    pub sub_groups: Option<i32>,
}

/// The pod set of a template. The template's metadata keeps only labels and annotations, without labels of the Job controller. An environment variable that
/// occurs twice keeps its last value, and topology annotations become a topology request.
///
/// # Errors
/// The error names a topology annotation that cannot be read, and its value.
pub fn pod_set_of(
    name: &str,
    template: &PodTemplateSpec,
    count: i32,
    min_count: Option<i32>,
    index: &IndexLabels,
) -> Result<PodSet, PodSetError> {
    let metadata = template.metadata.as_ref();
    let annotations = metadata.and_then(|m| m.annotations.clone()).filter(|a| !a.is_empty());
    let mut own_labels = metadata.and_then(|m| m.labels.clone()).unwrap_or_default();
    own_labels.retain(|key, _| !BATCH_CONTROLLER_LABELS.contains(&key.as_str()));
    let topology_request = match &annotations {
        Some(annotations) => topology_request(annotations, index)?,
        None => None,
    };
    let own_labels = Some(own_labels).filter(|l| !l.is_empty());
    let metadata = (annotations.is_some() || own_labels.is_some()).then(|| ObjectMeta {
        annotations,
        labels: own_labels,
        ..ObjectMeta::default()
    });
    let mut spec = template.spec.clone().unwrap_or_default();
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        if let Some(env) = &mut container.env {
            keep_last(env);
        }
    }
    Ok(PodSet {
        name: Some(name.to_owned()),
        template: PodTemplateSpec { metadata, spec: Some(spec) },
        count: Some(count),
        min_count,
        topology_request,
    })
}

/// Keeps the last of environment variables with one name: the Workload's list is keyed by name, and the API server would refuse duplicates.
fn keep_last(env: &mut Vec<EnvVar>) {
    let mut seen = BTreeSet::new();
    env.reverse();
    env.retain(|variable| seen.insert(variable.name.clone()));
    env.reverse();
}

fn topology_request(
    annotations: &BTreeMap<String, String>,
    index: &IndexLabels,
) -> Result<Option<PodSetTopologyRequest>, PodSetError> {
    let get = |key: &str| annotations.get(key).cloned();
    // A slice level without a slice size, or a size without a level, is a fault that the rules of the job report.
    let slice = get(labels::POD_SET_SLICE_REQUIRED_TOPOLOGY).zip(get(labels::POD_SET_SLICE_SIZE));
    let layers = get(labels::POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS);
    let mut request = PodSetTopologyRequest::default();
    if let Some(level) = get(labels::POD_SET_REQUIRED_TOPOLOGY) {
        request.required = Some(level);
    } else if let Some(level) = get(labels::POD_SET_PREFERRED_TOPOLOGY) {
        request.preferred = Some(level);
    } else if let Some(text) = get(labels::POD_SET_UNCONSTRAINED_TOPOLOGY) {
        let key = labels::POD_SET_UNCONSTRAINED_TOPOLOGY;
        let free = go_bool(&text).ok_or_else(|| PodSetError::NoBool { key, text: text.clone() })?;
        request.unconstrained = Some(free);
    } else if slice.is_none() && layers.is_none() {
        return Ok(None);
    }
    request.pod_index_label.clone_from(&index.pod);
    request.sub_group_index_label.clone_from(&index.sub_group);
    request.sub_group_count = index.sub_groups;
    request.pod_set_group_name = get(labels::POD_SET_GROUP_NAME);
    if let Some((level, size)) = slice {
        request.pod_set_slice_required_topology = Some(level);
        request.pod_set_slice_size = Some(parse(labels::POD_SET_SLICE_SIZE, &size)?);
    }
    if let Some(text) = layers {
        let key = labels::POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS;
        let layers: Result<Vec<PodSetSliceRequiredTopologyConstraint>, _> = serde_json::from_str(&text);
        request.podset_slice_required_topology_constraints = layers.map_err(|error| unreadable(key, &text, error))?;
    }
    Ok(Some(request))
}

fn parse<T: FromStr<Err: Display>>(key: &'static str, text: &str) -> Result<T, PodSetError> {
    text.parse().map_err(|error| unreadable(key, text, error))
}

fn unreadable(key: &'static str, text: &str, fault: impl Display) -> PodSetError {
    PodSetError::Annotation { key, text: text.to_owned(), fault: fault.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(template: Value, expected: Value) {
        let template: PodTemplateSpec = serde_json::from_value(template).expect("template");
        let index = IndexLabels { pod: Some("index".to_owned()), ..IndexLabels::default() };
        let set = pod_set_of("main", &template, 3, Some(1), &index).expect("pod set");
        assert_eq!(serde_json::to_value(set).expect("serialises"), expected);
    }

    #[test]
    fn pod_set_template_drops_job_labels_and_duplicate_variables() {
        let bare = json!({"containers": [{"name": "c"}]});
        check(json!({"spec": bare}), json!({"name": "main", "count": 3, "minCount": 1, "template": {"spec": bare}}));
        check(
            json!({"metadata": {"name": "x", "labels": {"a": "1", "job-name": "j", "controller-uid": "u",
                "batch.kubernetes.io/job-name": "j", "batch.kubernetes.io/controller-uid": "u"}}, "spec": bare}),
            json!({"name": "main", "count": 3, "minCount": 1, "template": {"metadata": {"labels": {"a": "1"}},
                "spec": bare}}),
        );
        let env = |list: Value| json!({"containers": [{"name": "c", "env": list}], "initContainers": [{"name": "i"}]});
        check(
            json!({"spec": env(json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"},
                {"name": "A", "value": "3"}]))}),
            json!({"name": "main", "count": 3, "minCount": 1, "template": {"spec":
                env(json!([{"name": "B", "value": "2"}, {"name": "A", "value": "3"}]))}}),
        );
    }

    #[test]
    fn topology_annotations_become_topology_request_of_pod_set() {
        let request = |annotations: Value| {
            let template = json!({"metadata": {"annotations": annotations}, "spec": {"containers": []}});
            let template: PodTemplateSpec = serde_json::from_value(template).expect("template");
            let index = IndexLabels { pod: Some("index".to_owned()), ..IndexLabels::default() };
            pod_set_of("main", &template, 1, None, &index)
                .map(|set| serde_json::to_value(set.topology_request).expect("serialises"))
        };
        let key = |name: &str| format!("kueue.x-k8s.io/podset-{name}");
        assert_eq!(request(json!({"other": "x"})), Ok(Value::Null));
        assert_eq!(
            request(json!({key("required-topology"): "rack"})),
            Ok(json!({"required": "rack", "podIndexLabel": "index"}))
        );
        assert_eq!(
            request(json!({key("unconstrained-topology"): "true", key("group-name"): "g"})),
            Ok(json!({"unconstrained": true, "podIndexLabel": "index", "podSetGroupName": "g"}))
        );
        assert_eq!(
            request(json!({key("unconstrained-topology"): "F"})),
            Ok(json!({"unconstrained": false, "podIndexLabel": "index"}))
        );
        assert!(
            request(json!({key("unconstrained-topology"): "no"}))
                .is_err_and(|error| error.to_string().contains("\"no\""))
        );
        assert_eq!(
            request(json!({key("slice-required-topology"): "host", key("slice-size"): "2"})),
            Ok(json!({"podIndexLabel": "index", "podSetSliceRequiredTopology": "host", "podSetSliceSize": 2}))
        );
        for half in [json!({key("slice-required-topology"): "host"}), json!({key("slice-size"): "2"})] {
            assert_eq!(request(half), Ok(Value::Null));
        }
        let half = json!({key("required-topology"): "rack", key("slice-required-topology"): "host"});
        assert_eq!(request(half), Ok(json!({"required": "rack", "podIndexLabel": "index"})));
        assert_eq!(
            request(json!({key("slice-required-topology-constraints"): r#"[{"topology": "rack", "size": 4}]"#})),
            Ok(json!({"podIndexLabel": "index",
                "podsetSliceRequiredTopologyConstraints": [{"topology": "rack", "size": 4}]}))
        );
        let error = request(json!({key("slice-required-topology"): "host", key("slice-size"): "two"}));
        let text = error.map_or_else(|error| error.to_string(), |_| String::new());
        assert!(text.contains("podset-slice-size") && text.contains("two"), "{text:?}");
    }
}
