//! Rules by which the API server refuses pods for their limits and their namespace's LimitRanges, in Kueue's words with added numbers, including rules of the
//! plugin `LimitRanger` that Kueue does not check (`docs/departures/0040-limit-ranges-as-the-api-server.md`).

use berth_quantity::format;
use k8s_openapi::api::core::v1::{LimitRangeItem, PodSpec, ResourceRequirements};
use std::collections::BTreeMap;

use super::{
    ABOVE_MAX, BELOW_MIN, Counted, EXCEEDS_LIMITS, LimitSummary, Violation, aggregate, amounts, containers, path,
    requests_and_limits, span,
};
use crate::requests::{Quantities, counted, pod_requests};

/// Reason why the API server would refuse pods with these effective specs (in the order of their pod sets); `None` if it would accept them.
#[must_use]
pub fn refused_by(specs: &[PodSpec], summary: &LimitSummary) -> Option<String> {
    let over: Vec<_> = specs.iter().enumerate().flat_map(|(index, spec)| beyond_limits(index, spec, summary)).collect();
    if !over.is_empty() {
        return Some(format!("resources validation failed: {}", aggregate(&over)));
    }
    let outside: Vec<_> =
        specs.iter().enumerate().flat_map(|(index, spec)| out_of_range(index, spec, summary)).collect();
    (!outside.is_empty()).then(|| format!("resources didn't satisfy LimitRange constraints: {}", aggregate(&outside)))
}

fn violation(field: &str, resource: &str, detail: String) -> Violation {
    Violation { field: field.to_owned(), resources: vec![resource.to_owned()], detail }
}

/// Requests of a pod set that exceed their limits. If the exceeded limit is a default of the namespace's LimitRanges, the violation's message says so.
fn beyond_limits(index: usize, spec: &PodSpec, summary: &LimitSummary) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut check = |field: String, resources: Option<&ResourceRequirements>, kind: &str| {
        let [requests, limits] = requests_and_limits(resources);
        let defaults = amounts(summary.get(kind).and_then(|item| item.default.as_ref()));
        for (resource, request) in &requests {
            let Some(limit) = limits.get(resource).filter(|limit| request > *limit) else { continue };
            let (asked, most) = (format(resource, *request), format(resource, *limit));
            let by = if defaults.get(resource) == Some(limit) {
                ", as a LimitRange of the namespace has it by default"
            } else {
                ""
            };
            let detail = format!("{EXCEEDS_LIMITS}: {resource} is {asked}, and its limit {most}{by}");
            found.push(violation(&field, resource, detail));
        }
    };
    for (field, container) in containers(index, spec) {
        check(field, container.resources.as_ref(), "Container");
    }
    check(format!("{}.resources", path(index)), spec.resources.as_ref(), "Pod");
    found
}

/// Requests and limits of a pod set outside of the namespace's LimitRanges.
fn out_of_range(index: usize, spec: &PodSpec, summary: &LimitSummary) -> Vec<Violation> {
    let mut found = Vec::new();
    if let Some(item) = summary.get("Container") {
        for (field, container) in containers(index, spec) {
            let [least, most] = span(container.resources.as_ref());
            found.extend(bounds(&field, &least, &most, item));
            let [requests, limits] = requests_and_limits(container.resources.as_ref());
            found.extend(ratios(&field, &requests, &limits, item));
        }
    }
    if let Some(item) = summary.get("Pod") {
        let field = path(index);
        let requests = counted(pod_requests(spec).unwrap_or_default());
        let limits = counted(pod_requests(&limits_alone(spec)).unwrap_or_default());
        let most: Counted = requests
            .iter()
            .map(|(resource, amount)| (resource.clone(), limits.get(resource).copied().unwrap_or(*amount).max(*amount)))
            .collect();
        found.extend(bounds(&field, &requests, &most, item));
        found.extend(ratios(&field, &requests, &limits, item));
        // The admission plugin `LimitRanger` requires a limit for each resource with a maximum, and a request for each resource with a minimum.
        for resource in item.max.iter().flat_map(BTreeMap::keys) {
            if !limits.contains_key(resource) {
                let most = shown(item.max.as_ref(), resource);
                let detail =
                    format!("limits must be given, since a LimitRange allows pods no more than {most} of {resource}");
                found.push(violation(&field, resource, detail));
            }
        }
        for resource in item.min.iter().flat_map(BTreeMap::keys) {
            if !requests.contains_key(resource) {
                let least = shown(item.min.as_ref(), resource);
                let detail =
                    format!("requests must be given, since a LimitRange wants at least {least} of {resource} of pods");
                found.push(violation(&field, resource, detail));
            }
        }
    }
    found
}

fn shown(bound: Option<&Quantities>, resource: &str) -> String {
    bound.and_then(|bound| bound.get(resource)).map(|quantity| quantity.0.clone()).unwrap_or_default()
}

/// A copy of the pod spec with limits in place of requests, so that the code for requests adds up limits, too.
fn limits_alone(spec: &PodSpec) -> PodSpec {
    let mut spec = spec.clone();
    let turned = |resources: &mut Option<ResourceRequirements>| {
        if let Some(resources) = resources {
            resources.requests = resources.limits.take();
        }
    };
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        turned(&mut container.resources);
    }
    turned(&mut spec.resources);
    spec.overhead = None;
    spec
}

fn bounds(field: &str, least: &Counted, most: &Counted, item: &LimitRangeItem) -> Vec<Violation> {
    let [min, max] = [&item.min, &item.max].map(|bound| amounts(bound.as_ref()));
    let above = most.iter().filter_map(|(resource, amount)| {
        let bound = max.get(resource).filter(|bound| amount > *bound)?;
        let (amount, bound) = (format(resource, *amount), format(resource, *bound));
        Some(violation(field, resource, format!("{ABOVE_MAX}: {resource} is {amount}, and at most {bound} is allowed")))
    });
    let below = least.iter().filter_map(|(resource, amount)| {
        let bound = min.get(resource).filter(|bound| amount < *bound)?;
        let (amount, bound) = (format(resource, *amount), format(resource, *bound));
        Some(violation(
            field,
            resource,
            format!("{BELOW_MIN}: {resource} is {amount}, and at least {bound} is allowed"),
        ))
    });
    above.chain(below).collect()
}

/// Violations of a LimitRange's maximum ratio of limit to request.
fn ratios(field: &str, requests: &Counted, limits: &Counted, item: &LimitRangeItem) -> Vec<Violation> {
    let Some(ratios) = &item.max_limit_request_ratio else { return Vec::new() };
    let beyond = ratios.iter().filter_map(|(resource, ratio)| {
        let nano = berth_quantity::parse_quantity(&ratio.0).ok()?.0;
        let (request, limit) = (requests.get(resource)?, limits.get(resource)?);
        let allowed = i128::from(request.get()).saturating_mul(nano);
        let is_beyond = i128::from(limit.get()).saturating_mul(1_000_000_000) > allowed;
        is_beyond.then(|| {
            let (asked, most) = (format(resource, *request), format(resource, *limit));
            let detail = format!(
                "limits must not be more than {} times the requests, as a LimitRange has it: {resource} is {asked}, and its limit {most}",
                ratio.0
            );
            violation(field, resource, detail)
        })
    });
    beyond.collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::LimitRange;
    use serde_json::{Value, json};

    use super::*;

    fn refused(resources: &Value, range: &Value) -> Option<String> {
        let spec = json!({"containers": [{"name": "c", "resources": resources}]});
        let range: LimitRange = serde_json::from_value(json!({"spec": {"limits": [range]}})).expect("LimitRange");
        refused_by(&[serde_json::from_value(spec).expect("pod spec")], &LimitSummary::of([&range]))
    }

    #[test]
    fn pod_that_api_server_would_refuse_is_reported_with_amounts() {
        let of_container = "spec.podSets[0].template.spec.containers[0]: Invalid value: [\"cpu\"]: ";
        let of_pod = "spec.podSets[0].template.spec: Invalid value: [\"cpu\"]: ";
        let by_default = json!({"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "1"}});
        let container = |field: &str, cpu: &str| json!({"type": "Container", field: {"cpu": cpu}});
        let pod = |field: &str, cpu: &str| json!({"type": "Pod", field: {"cpu": cpu}});
        let resources = |request: &str, limit: &str| json!({"requests": {"cpu": request}, "limits": {"cpu": limit}});
        let asks = json!({"requests": {"cpu": "1"}});
        let rows = [
            (
                resources("2", "1"),
                by_default,
                of_container,
                "requests must not exceed its limits: cpu is 2, and its limit 1, as a LimitRange",
            ),
            (
                resources("3", "3"),
                container("max", "2"),
                of_container,
                "requests must not be above the limitRange max: cpu is 3, and at most 2",
            ),
            (
                resources("1", "1"),
                container("min", "2"),
                of_container,
                "requests must not be below the limitRange min: cpu is 1, and at least 2",
            ),
            (
                resources("1", "3"),
                container("maxLimitRequestRatio", "2"),
                of_container,
                "limits must not be more than 2 times the requests",
            ),
            (
                resources("1", "3"),
                pod("maxLimitRequestRatio", "2500m"),
                of_pod,
                "limits must not be more than 2500m times the requests",
            ),
            (
                resources("1", "3"),
                pod("max", "2"),
                of_pod,
                "requests must not be above the limitRange max: cpu is 3, and at most 2",
            ),
            (
                asks,
                pod("max", "2"),
                of_pod,
                "limits must be given, since a LimitRange allows pods no more than 2 of cpu",
            ),
            (json!({}), pod("min", "2"), of_pod, "requests must be given, since a LimitRange wants at least 2 of cpu"),
        ];
        for (resources, range, field, words) in rows {
            let message = refused(&resources, &range).unwrap_or_default();
            assert!(message.contains(field) && message.contains(words), "{range}: {message}");
        }
    }

    #[test]
    fn pod_that_api_server_accepts_is_accepted() {
        let resources = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}});
        for range in [
            json!({"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "2"}}),
            json!({"type": "Pod", "max": {"cpu": "2"}, "min": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "2"}}),
            json!({"type": "PersistentVolumeClaim", "max": {"storage": "1"}}),
        ] {
            assert_eq!(refused(&resources, &range), None, "{range}");
        }
    }
}
