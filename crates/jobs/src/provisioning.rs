//! The ProvisioningRequests of a Workload, as in Kueue: their names, their content, and the meaning of their conditions.

use crate::limits::LimitSummary;
use crate::names::cut_name;
use crate::placement::{Placement, PlacementError};
use crate::requests::{effective_pod_spec, with_own_limits};
use crate::template::TemplateParts;
use berth_api::autoscaling::{
    PodTemplateReference, ProvisioningRequest, ProvisioningRequestPodSet, ProvisioningRequestSpec,
};
use berth_api::{PodSet, PodSetUpdate, ProvisioningRequestConfigSpec, ProvisioningRequestRetryStrategy, labels};
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Merge policy: pod sets are merged if their templates are equal.
const SAME_TEMPLATES: &str = "IdenticalPodTemplates";
/// Merge policy: pod sets are merged if their requirements for scheduling are equal.
const SAME_REQUIREMENTS: &str = "IdenticalWorkloadSchedulingRequirements";

/// Name of the ProvisioningRequest for a Workload, admission check and attempt.
#[must_use]
pub fn provisioning_request_name(workload: &str, check: &str, attempt: i32) -> String {
    cut_name(format!("{workload}-{check}-{attempt}"))
}

/// Name of the PodTemplate for a pod set of a ProvisioningRequest.
#[must_use]
pub fn pod_template_name(request: &str, pod_set: &str) -> String {
    cut_name(format!("ppt-{request}-{pod_set}"))
}

/// Equal pods of a ProvisioningRequest.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedPods {
    /// Name of the first pod set with these pods.
    pub pod_set: String,
    /// Number of pods in all pod sets with these pods.
    pub count: i32,
    /// Pod template, as the job's pods have it after the start.
    pub template: Value,
}

/// The pods that a ProvisioningRequest lists: the pods of pod sets that request a managed resource, merged by the configured policy.
///
/// # Errors
/// The job could never start as it was admitted; see [`PlacementError`].
pub fn requested_pods(
    pod_sets: &[PodSet],
    placements: &[Placement],
    limits: &LimitSummary,
    config: &ProvisioningRequestConfigSpec,
) -> Result<Vec<RequestedPods>, PlacementError> {
    let mut found: Vec<(Option<Value>, RequestedPods)> = Vec::new();
    for set in pod_sets {
        let name = set.effective_name();
        let empty = PodSpec::default();
        let stored = with_own_limits(set.template.spec.as_ref().unwrap_or(&empty));
        let spec = effective_pod_spec(&stored, None, limits);
        let Some(placement) = placements.iter().find(|placement| placement.pod_set == name) else { continue };
        if placement.count <= 0 || !requests_one_of(&spec, &config.managed_resources) {
            continue;
        }
        let parts = placement.apply(&TemplateParts::of(&set.template, placement.count))?;
        let template = placed(&spec, &parts);
        let likeness = likeness(&template, config.pod_set_merge_policy.as_deref());
        match found.iter_mut().find(|(other, _)| other.is_some() && *other == likeness) {
            Some((_, pods)) => pods.count = pods.count.saturating_add(placement.count),
            None => {
                found.push((likeness, RequestedPods { pod_set: name.to_owned(), count: placement.count, template }));
            }
        }
    }
    Ok(found.into_iter().map(|(_, pods)| pods).collect())
}

/// Whether a pod requests one of the managed resources; an empty list means all resources.
fn requests_one_of(spec: &PodSpec, resources: &[String]) -> bool {
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    resources.is_empty()
        || containers.any(|container| {
            let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
            requests.is_some_and(|requests| resources.iter().any(|resource| requests.contains_key(resource)))
        })
}

fn placed(spec: &PodSpec, parts: &TemplateParts) -> Value {
    let mut template = json!({"spec": spec});
    let spec = template.get_mut("spec").and_then(Value::as_object_mut);
    if let (Some(spec), Value::Object(mut wanted)) = (spec, parts.to_value()) {
        for part in ["nodeSelector", "tolerations", "affinity", "schedulingGates"] {
            spec.remove(part);
        }
        if let Some(Value::Object(parts)) = wanted.remove("spec") {
            spec.extend(parts);
        }
        let metadata = wanted.remove("metadata");
        if let Some(template) = template.as_object_mut() {
            template.extend(metadata.map(|metadata| ("metadata".to_owned(), metadata)));
        }
    }
    template
}

/// Key for merging pod sets in a ProvisioningRequest: pod sets with equal keys are merged, and a pod set with the key `None` is not merged.
fn likeness(template: &Value, policy: Option<&str>) -> Option<Value> {
    match policy {
        Some(SAME_TEMPLATES) => {
            // The label with the pod set's name differs between pod sets whose templates are equal otherwise, so it is left out of the comparison.
            let mut template = template.clone();
            if let Some(own) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
                own.remove(labels::POD_SET);
            }
            Some(template)
        }
        Some(SAME_REQUIREMENTS) => {
            let spec = template.get("spec")?;
            // Two pod sets are merged if the requests of their containers are equal, even if the limits differ.
            let requests = |part: &str| -> Vec<Option<&Value>> {
                let all = spec.get(part).and_then(Value::as_array);
                all.into_iter().flatten().map(|container| container.pointer("/resources/requests")).collect()
            };
            let mut kept = Map::new();
            for part in ["resources", "nodeSelector", "tolerations", "affinity", "resourceClaims"] {
                kept.insert(part.to_owned(), spec.get(part).cloned().unwrap_or_default());
            }
            Some(json!([kept, requests("initContainers"), requests("containers")]))
        }
        _ => None,
    }
}

/// Spec of a ProvisioningRequest for these pods; `own` has the job's own parameters.
#[must_use]
pub fn provisioning_request_spec(
    request: &str,
    pods: &[RequestedPods],
    config: &ProvisioningRequestConfigSpec,
    own: &BTreeMap<String, String>,
) -> ProvisioningRequestSpec {
    let mut parameters = config.parameters.clone();
    parameters.extend(own.iter().map(|(key, value)| (key.clone(), value.clone())));
    let set = |pods: &RequestedPods| ProvisioningRequestPodSet {
        pod_template_ref: PodTemplateReference { name: pod_template_name(request, &pods.pod_set) },
        count: pods.count,
    };
    ProvisioningRequestSpec {
        provisioning_class_name: config.provisioning_class_name.clone(),
        parameters,
        pod_sets: pods.iter().map(set).collect(),
    }
}

/// The parameters of ProvisioningRequests that a job sets by annotations.
#[must_use]
pub fn provisioning_parameters(annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = |(key, value): (&String, &String)| {
        Some((key.strip_prefix(labels::PROVISIONING_REQUEST_PREFIX)?.to_owned(), value.clone()))
    };
    annotations.iter().filter_map(own).collect()
}

/// Answer of an autoscaler to a ProvisioningRequest, with its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provisioning<'a> {
    /// The autoscaler has not answered yet.
    Unanswered,
    /// The autoscaler is provisioning nodes; the message has the expected time, if known.
    Accepted(Option<&'a str>),
    /// The nodes have been created.
    Provisioned(&'a str),
    /// The autoscaler has no capacity for the ProvisioningRequest.
    Failed(&'a str),
    /// The nodes were created, and no pods used them in time.
    BookingExpired(&'a str),
    /// The nodes that the autoscaler created for the ProvisioningRequest do not exist any more.
    CapacityRevoked(&'a str),
}

/// The answer in the conditions of a ProvisioningRequest: conditions that end the request win over earlier ones.
#[must_use]
pub fn provisioning_state(request: &ProvisioningRequest) -> Provisioning<'_> {
    let conditions = request.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let find = |kind: &str| conditions.iter().find(|condition: &&Condition| condition.type_ == kind);
    let words = |kind: &str| find(kind).filter(|found| found.status == "True").map(|found| found.message.as_str());
    if let Some(words) = words("Failed") {
        return Provisioning::Failed(words);
    }
    if let Some(words) = words("CapacityRevoked") {
        return Provisioning::CapacityRevoked(words);
    }
    if let Some(words) = words("BookingExpired") {
        return Provisioning::BookingExpired(words);
    }
    if let Some(words) = words("Provisioned") {
        return Provisioning::Provisioned(words);
    }
    let expected = find("Provisioned").map(|condition| condition.message.as_str());
    words("Accepted").map_or(Provisioning::Unanswered, |_| Provisioning::Accepted(expected))
}

/// Updates of a Workload's pod sets by a successful ProvisioningRequest. A ProvisioningRequest names only the first of the pod sets that it merges, so only
/// this pod set is updated, as in Kueue.
#[must_use]
pub fn provisioned_updates<'a>(
    request: &ProvisioningRequest,
    pod_sets: impl Iterator<Item = &'a str>,
    config: Option<&ProvisioningRequestConfigSpec>,
) -> Vec<PodSetUpdate> {
    let details = request.status.as_ref().map(|status| &status.provisioning_class_details);
    let wanted = config.and_then(|config| config.pod_set_updates.as_ref());
    let wanted = wanted.map(|updates| updates.node_selector.as_slice()).unwrap_or_default();
    let selector: BTreeMap<String, String> = wanted
        .iter()
        .filter_map(|entry| {
            let value = details?.get(&entry.value_from_provisioning_class_detail)?;
            Some((entry.key.clone(), value.clone()))
        })
        .collect();
    let update = |name: &str| PodSetUpdate {
        name: name.to_owned(),
        annotations: BTreeMap::from([
            (labels::CONSUME_PROVISIONING_REQUEST.to_owned(), request.name().to_owned()),
            (labels::PROVISIONING_CLASS_NAME.to_owned(), request.spec.provisioning_class_name.clone()),
        ]),
        node_selector: selector.clone(),
        ..PodSetUpdate::default()
    };
    let named = |name: &&str| {
        let template = pod_template_name(request.name(), name);
        request.spec.pod_sets.iter().any(|set| set.pod_template_ref.name == template)
    };
    pod_sets.filter(named).map(update).collect()
}

/// Seconds to wait for the next ProvisioningRequest after the attempt number `attempt` has failed; `None` if no further attempt is allowed.
#[must_use]
pub fn retry_after(strategy: Option<&ProvisioningRequestRetryStrategy>, attempt: i32) -> Option<i32> {
    let (mut limit, mut base, mut most) = (None, None, None);
    if let Some(strategy) = strategy {
        limit = strategy.backoff_limit_count;
        base = strategy.backoff_base_seconds;
        most = strategy.backoff_max_seconds;
    }
    let (limit, base, most) = (limit.unwrap_or(3), base.unwrap_or(60), most.unwrap_or(1_800));
    let doublings = u32::try_from(attempt.saturating_sub(1)).unwrap_or_default().min(31);
    let delay = i64::from(base).saturating_mul(1_i64 << doublings).min(i64::from(most)).max(0);
    (attempt <= limit).then(|| i32::try_from(delay).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests;
