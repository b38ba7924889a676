//! Rules about Workloads.

use std::collections::{BTreeMap, BTreeSet};

use berth_quantity::{Nano, parse_quantity};
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::admission::misfit;
use super::field_error::{FieldError, supported};
use super::metadata;
use super::names::qualified_name;
use crate::conditions::{is_true, types};
use crate::labels::{ELASTIC_JOB, PRIORITY_BOOST};
use crate::{Admission, PodSet, PodSetTopologyRequest, Workload, WorkloadStatus};

/// Faults of a Workload: of its pod sets, admission, checks, annotations and condition names.
pub fn validate_workload(workload: &Workload) -> Vec<FieldError> {
    let mut errors = validate_pod_sets(&workload.spec.pod_sets);
    errors.extend(validate_beside_pod_sets(workload));
    errors.extend(condition_names(workload));
    errors.extend(admitted_without_quota(workload));
    errors
}

/// Fault of a Workload with the condition Admitted but without quota: only the condition QuotaReserved counts.
fn admitted_without_quota(workload: &Workload) -> Option<FieldError> {
    let conditions = &workload.status.as_ref()?.conditions;
    let wrong = is_true(conditions, types::ADMITTED) && !is_true(conditions, types::QUOTA_RESERVED);
    let field = format!("status.conditions[{}].status", types::ADMITTED);
    wrong.then(|| FieldError::new(field, "True", "must not be True while QuotaReserved is not"))
}

/// Faults of condition names, whose length alone the schema limits. `validate_beside_pod_sets` omits faults of condition names, so that a wrong name
/// does not stop the job.
fn condition_names(workload: &Workload) -> Vec<FieldError> {
    let conditions = workload.status.iter().flat_map(|status| &status.conditions).enumerate();
    let messages = conditions.filter_map(|(index, condition)| {
        let wrong = qualified_name(&condition.type_)?;
        Some(FieldError::new(format!("status.conditions[{index}].type"), &condition.type_, wrong))
    });
    messages.collect()
}

/// Errors of [`validate_workload`] about metadata, status, and several pod sets together, without those of [`validate_pod_sets`] and of condition
/// names.
pub fn validate_beside_pod_sets(workload: &Workload) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let sets = &workload.spec.pod_sets;
    let none = BTreeMap::new();
    let annotations = workload.metadata.annotations.as_ref().unwrap_or(&none);
    let variable = sets.iter().filter(|set| set.min_count.is_some()).count();
    let mut refuse = |message: &str| errors.push(FieldError::new("spec.podSets", variable.to_string(), message));
    if variable > 1 {
        refuse("at most one podSet can use minCount");
    }
    if variable > 0 && annotations.get(ELASTIC_JOB).is_some_and(|value| value == "true") {
        refuse("partial admission and elastic job cannot be used together");
    }
    errors.extend(metadata::admission_gates(annotations).err());
    if let Some(status) = &workload.status {
        validate_status(sets, status, &mut errors);
    }
    errors.extend(misfit(workload));
    errors
}

/// Fault of a priority boost that is no number; called only while the feature gate `PriorityBoost` is on.
pub fn validate_priority_boost(workload: &Workload) -> Option<FieldError> {
    let boost = workload.metadata.annotations.as_ref()?.get(PRIORITY_BOOST)?;
    let message = format!("must be a whole number from {} to {}", i32::MIN, i32::MAX);
    let path = format!("metadata.annotations[{PRIORITY_BOOST}]");
    boost.parse::<i32>().is_err().then(|| FieldError::new(path, boost, message))
}

/// Faults within the pod sets: requests that are no quantities, and names that are not distinct.
pub fn validate_pod_sets(sets: &[PodSet]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut names = BTreeSet::new();
    if sets.is_empty() {
        errors.push(FieldError::new("spec.podSets", "", "must have at least one pod set"));
    }
    for (index, set) in sets.iter().enumerate() {
        let path = format!("spec.podSets[{index}]");
        if !names.insert(set.effective_name()) {
            errors.push(FieldError::new(format!("{path}.name"), set.effective_name(), "must be unique"));
        }
        let count = set.effective_count();
        if count < 0 {
            let message = "must be greater than or equal to 0";
            errors.push(FieldError::new(format!("{path}.count"), count.to_string(), message));
        }
        if let Some(least) = set.min_count.filter(|least| *least < 1 || *least > count) {
            let message = format!("must be between 1 and the count, {count}");
            errors.push(FieldError::new(format!("{path}.minCount"), least.to_string(), message));
        }
        if set.template.spec.as_ref().is_none_or(|spec| spec.containers.is_empty()) {
            let message = "must have at least one container";
            errors.push(FieldError::new(format!("{path}.template.spec.containers"), "", message));
        }
        pod_set(set, &path, &mut errors);
    }
    errors
}

fn validate_status(sets: &[PodSet], status: &WorkloadStatus, errors: &mut Vec<FieldError>) {
    let counts: BTreeMap<&str, i32> = sets.iter().map(|set| (set.effective_name(), set.effective_count())).collect();
    if is_true(&status.conditions, types::QUOTA_RESERVED) {
        match &status.admission {
            None => {
                let message = "must be set while the QuotaReserved condition is true";
                errors.push(FieldError::new("status.admission", "", message));
            }
            Some(admission) => assignments(admission, errors),
        }
    }
    for pods in &status.reclaimable_pods {
        let path = format!("status.reclaimablePods[{}]", pods.name);
        match counts.get(pods.name.as_str()) {
            None => errors.push(supported(format!("{path}.name"), &pods.name, counts.keys().copied())),
            Some(count) if pods.count > *count => {
                let message = format!("should be less or equal to {count}");
                errors.push(FieldError::new(format!("{path}.count"), pods.count.to_string(), message));
            }
            Some(_) => {}
        }
    }
    for (index, check) in status.admission_checks.iter().enumerate() {
        for (at, update) in check.pod_set_updates.iter().enumerate() {
            let path = format!("status.admissionChecks[{index}].podSetUpdates[{at}]");
            if !counts.contains_key(update.name.as_str()) {
                errors.push(supported(format!("{path}.name"), &update.name, counts.keys().copied()));
            }
            metadata::tolerations(&update.tolerations, &format!("{path}.tolerations"), errors);
            metadata::annotations(&update.annotations, &format!("{path}.annotations"), errors);
            metadata::labels(&update.node_selector, &format!("{path}.nodeSelector"), errors);
            metadata::labels(&update.labels, &format!("{path}.labels"), errors);
        }
    }
}

/// Faults of an admission's amounts: an amount must be a quantity and divisible by the number of pods.
fn assignments(admission: &Admission, errors: &mut Vec<FieldError>) {
    for (index, assignment) in admission.pod_set_assignments.iter().enumerate() {
        let path = format!("status.admission.podSetAssignments[{index}]");
        let count = i64::from(assignment.count.unwrap_or_default());
        for (resource, usage) in &assignment.resource_usage {
            let path = format!("{path}.resourceUsage[{resource}]");
            match berth_quantity::value(resource, &usage.0) {
                Err(error) => errors.push(FieldError::new(path, &usage.0, error.to_string())),
                Ok(value) if count > 0 && value.get() % count != 0 => {
                    errors.push(FieldError::new(path, &usage.0, format!("is not a multiple of {count}")));
                }
                Ok(_) => {}
            }
        }
    }
}

fn pod_set(set: &PodSet, path: &str, errors: &mut Vec<FieldError>) {
    let template = format!("{path}.template");
    if let Some(meta) = &set.template.metadata {
        let metadata_path = format!("{template}.metadata");
        metadata::labels(meta.labels.as_ref().unwrap_or(&BTreeMap::new()), &format!("{metadata_path}.labels"), errors);
        let annotations = meta.annotations.as_ref();
        let annotations_path = format!("{metadata_path}.annotations");
        metadata::annotations(annotations.unwrap_or(&BTreeMap::new()), &annotations_path, errors);
    }
    if let Some(spec) = &set.template.spec {
        for (name, containers) in
            [("initContainers", spec.init_containers.as_deref().unwrap_or_default()), ("containers", &spec.containers)]
        {
            for (index, container) in containers.iter().enumerate() {
                let path = format!("{template}.spec.{name}[{index}].resources");
                requirements(container.resources.as_ref(), &path, errors);
            }
        }
        requirements(spec.resources.as_ref(), &format!("{template}.spec.resources"), errors);
    }
    if let Some(request) = &set.topology_request {
        slices(request, &format!("{path}.topologyRequest"), errors);
    }
}

fn requirements(resources: Option<&ResourceRequirements>, path: &str, errors: &mut Vec<FieldError>) {
    let Some(resources) = resources else { return };
    for (name, list) in [("requests", &resources.requests), ("limits", &resources.limits)] {
        for (resource, quantity) in list.iter().flatten() {
            amount(resource, quantity, format!("{path}.{name}[{resource}]"), errors);
        }
    }
}

fn amount(resource: &str, quantity: &Quantity, path: String, errors: &mut Vec<FieldError>) {
    if resource == "pods" {
        errors.push(FieldError::new(&path, resource, "the key is reserved for internal kueue use"));
    }
    match parse_quantity(&quantity.0) {
        Ok(Nano(nano)) if nano < 0 => {
            errors.push(FieldError::new(path, &quantity.0, "must be greater than or equal to 0"));
        }
        Ok(_) => {}
        Err(error) => errors.push(FieldError::new(path, &quantity.0, error.to_string())),
    }
}

fn slices(request: &PodSetTopologyRequest, path: &str, errors: &mut Vec<FieldError>) {
    let size = request.pod_set_slice_size;
    let size_path = format!("{path}.podSetSliceSize");
    let size_text = size.map(|size| size.to_string()).unwrap_or_default();
    match (&request.pod_set_slice_required_topology, size) {
        (Some(_), None) => {
            errors.push(FieldError::new(size_path, "", "must be set together with podSetSliceRequiredTopology"));
        }
        (Some(_), Some(size)) if size <= 0 => {
            errors.push(FieldError::new(size_path, size_text, "must be greater than 0"))
        }
        (None, Some(_)) => {
            errors.push(FieldError::new(size_path, size_text, "must not be set without podSetSliceRequiredTopology"));
        }
        _ => {}
    }
    for (index, constraint) in request.podset_slice_required_topology_constraints.iter().enumerate() {
        if constraint.size <= 0 {
            let path = format!("{path}.podsetSliceRequiredTopologyConstraints[{index}].size");
            errors.push(FieldError::new(path, constraint.size.to_string(), "must be greater than 0"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::label_value;
    use super::*;
    use crate::labels::ADMISSION_GATED_BY;

    fn check(spec: Value, status: Value, annotations: Value) -> Vec<(String, String)> {
        let object = json!({"metadata": {"annotations": annotations}, "spec": spec, "status": status});
        let workload: Workload = serde_json::from_value(object).unwrap();
        validate_workload(&workload).into_iter().map(|error| (error.field, error.message)).collect()
    }

    fn plain() -> Value {
        json!({"spec": {"containers": [{"name": "c"}]}})
    }

    /// The errors as texts, each with field and message.
    fn messages(found: Vec<(String, String)>) -> Vec<String> {
        found.into_iter().map(|(field, message)| format!("{field}: {message}")).collect()
    }

    fn sets(sets: Value) -> Vec<String> {
        messages(check(json!({"podSets": sets}), json!({}), json!({})))
    }

    fn status(status: Value) -> Vec<String> {
        let spec = json!({"podSets": [{"name": "main", "count": 3, "template": plain()}]});
        messages(check(spec, status, json!({})))
    }

    fn reserved(assignment: Value) -> Value {
        json!({
            "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "admission": {"clusterQueue": "q", "podSetAssignments": [assignment]},
        })
    }

    #[test]
    fn plain_workload_is_valid() {
        let template = json!({
            "metadata": {"labels": {"a": "b"}, "annotations": {"Example.com/x": "anything goes"}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
        });
        let spec = json!({"podSets": [{"template": template, "minCount": 1, "count": 3}]});
        let mut reserved = reserved(json!({"count": 3, "resourceUsage": {"cpu": "3", "memory": "3Gi"}}));
        reserved["reclaimablePods"] = json!([{"name": "main", "count": 3}]);
        assert_eq!(check(spec, reserved, json!({ADMISSION_GATED_BY: "a.io/b"})), []);
    }

    #[test]
    fn invalid_pod_sets_are_refused_by_field() {
        let two = json!([{"name": "a", "minCount": 1, "template": plain()}, {"name": "b", "minCount": 1, "template": plain()}]);
        assert_eq!(sets(two), ["spec.podSets: at most one podSet can use minCount"]);
        let elastic = json!({ELASTIC_JOB: "true"});
        let one = json!({"podSets": [{"minCount": 1, "template": plain()}]});
        let both = "spec.podSets: partial admission and elastic job cannot be used together";
        assert_eq!(messages(check(one, json!({}), elastic)), [both]);
        let resources = |list: Value| json!({"requests": list});
        let spec = json!({
            "initContainers": [{"name": "i", "resources": resources(json!({"cpu": "-1"}))}],
            "containers": [{"name": "c", "resources": {"limits": {"pods": 1}}}],
            "resources": resources(json!({"memory": "much"})),
        });
        let path = "spec.podSets[0].template.spec";
        assert_eq!(
            sets(
                json!([{"template": {"metadata": {"labels": {"-": ""}, "annotations": {"a/b/c": ""}}, "spec": spec}}])
            ),
            [
                format!("spec.podSets[0].template.metadata.labels: {}", qualified_name("-").unwrap()),
                format!("spec.podSets[0].template.metadata.annotations: {}", qualified_name("a/b/c").unwrap()),
                format!("{path}.initContainers[0].resources.requests[cpu]: must be greater than or equal to 0"),
                format!("{path}.containers[0].resources.limits[pods]: the key is reserved for internal kueue use"),
                format!("{path}.resources.requests[memory]: {}", parse_quantity("much").unwrap_err()),
            ]
        );
    }

    #[test]
    fn pod_sets_that_schema_refuses_are_also_refused_by_validation() {
        for (given, wrong) in [
            (json!([]), "spec.podSets: must have at least one pod set"),
            (json!([{"template": {}}]), "spec.podSets[0].template.spec.containers: must have at least one container"),
            (json!([{"count": -1, "template": plain()}]), "spec.podSets[0].count: must be greater than or equal to 0"),
            (
                json!([{"count": 2, "minCount": 3, "template": plain()}]),
                "spec.podSets[0].minCount: must be between 1 and the count, 2",
            ),
            (
                json!([{"template": plain()}, {"template": plain(), "name": "main"}]),
                "spec.podSets[1].name: must be unique",
            ),
        ] {
            assert_eq!(sets(given), [wrong]);
        }
    }

    #[test]
    fn topology_slice_without_positive_size_or_topology_is_refused() {
        let request = |request: Value| sets(json!([{"template": plain(), "topologyRequest": request}]));
        let size = |words: &str| [format!("spec.podSets[0].topologyRequest.podSetSliceSize: {words}")];
        assert_eq!(request(json!({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 4})), [""; 0]);
        assert_eq!(
            request(json!({"podSetSliceRequiredTopology": "rack"})),
            size("must be set together with podSetSliceRequiredTopology")
        );
        assert_eq!(
            request(json!({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 0})),
            size("must be greater than 0")
        );
        assert_eq!(request(json!({"podSetSliceSize": 4})), size("must not be set without podSetSliceRequiredTopology"));
        assert_eq!(
            request(json!({"podsetSliceRequiredTopologyConstraints": [{"topology": "r", "size": 0}]})),
            ["spec.podSets[0].topologyRequest.podsetSliceRequiredTopologyConstraints[0].size: must be greater than 0"]
        );
    }

    #[test]
    fn reserved_workload_with_missing_or_wrong_admission_is_refused() {
        let mut without = reserved(json!({}));
        without["admission"] = Value::Null;
        assert_eq!(status(without), ["status.admission: must be set while the QuotaReserved condition is true"]);
        let path = "status.admission.podSetAssignments[0]";
        let missing = "status.admission.podSetAssignments: must have one for each pod set: none is for \"main\"";
        let unknown = format!("{path}.name: supported values: \"main\"");
        assert_eq!(status(reserved(json!({"name": "other"}))), [unknown.as_str(), missing]);
        let usage = |amount: &str| status(reserved(json!({"count": 3, "resourceUsage": {"cpu": amount}})));
        assert_eq!(usage("1"), [format!("{path}.resourceUsage[cpu]: is not a multiple of 3")]);
        assert_eq!(usage("1500m"), [""; 0]);
        assert_eq!(status(json!({"admission": {"podSetAssignments": [{"name": "other"}]}})), [""; 0]);
    }

    #[test]
    fn invalid_condition_type_is_refused_but_stops_no_stored_workload() {
        let with = |name: &str| {
            json!({"conditions": [{"type": name, "status": "True", "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
        };
        assert_eq!(status(with("example.com/Checked")), [""; 0]);
        let long = "x".repeat(64);
        for name in [long.as_str(), "a b", ""] {
            let wrong = format!("status.conditions[0].type: {}", qualified_name(name).unwrap());
            assert_eq!(status(with(name)), [wrong], "{name}");
            let stored = json!({"spec": {"podSets": []}, "metadata": {}, "status": with(name)});
            let stored: Workload = serde_json::from_value(stored).unwrap();
            assert_eq!(validate_beside_pod_sets(&stored), [], "{name}");
        }
    }

    #[test]
    fn invalid_reclaimable_pods_check_updates_and_gates_are_refused() {
        assert_eq!(
            status(json!({"reclaimablePods": [{"name": "main", "count": 4}, {"name": "x", "count": 1}]})),
            [
                "status.reclaimablePods[main].count: should be less or equal to 3",
                "status.reclaimablePods[x].name: supported values: \"main\""
            ]
        );
        let update = json!({
            "name": "x", "labels": {"a": "/"}, "nodeSelector": {"/": ""}, "annotations": {"": ""},
            "tolerations": [{"key": "a b"}],
        });
        let path = "status.admissionChecks[0].podSetUpdates[0]";
        assert_eq!(
            status(json!({"admissionChecks": [{"name": "c", "state": "Ready", "podSetUpdates": [update]}]})),
            [
                ("name", "supported values: \"main\"".to_owned()),
                ("tolerations[0].key", qualified_name("a b").unwrap()),
                ("annotations", "name part must not be empty".to_owned()),
                ("nodeSelector", "prefix part must not be empty".to_owned()),
                ("labels[a]", label_value("/").unwrap()),
            ]
            .map(|(field, words)| format!("{path}.{field}: {words}"))
        );
        let one = json!({"podSets": [{"template": plain()}]});
        let found = check(one, json!({}), json!({ADMISSION_GATED_BY: "plain"}));
        let words = "\"plain\": must have a domain prefix, such as example.com/name";
        assert_eq!(messages(found), [format!("metadata.annotations[kueue.x-k8s.io/admission-gated-by]: {words}")]);
    }
}
