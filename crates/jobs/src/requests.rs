//! Requests of a pod: the pod spec as it will run (`effective_pod_spec`), the sum over the pod's containers (`pod_requests`), and the amounts that are charged
//! as quota (`quota_requests`).

use crate::limits::LimitSummary;
use crate::transform::{Transformation, transform};
use berth_quantity::{Amount, Nano, ParseError, parse_quantity};
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Quantities by resource, in the types of the API.
pub type Quantities = BTreeMap<String, Quantity>;
/// Exact amounts by resource, in nano units.
pub type Exact = BTreeMap<String, i128>;

/// Error about a request that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request of {resource}: {source}")]
pub struct RequestError {
    /// Name of the requested resource.
    pub resource: String,
    /// Fault of the quantity's text.
    pub source: ParseError,
}

/// Rules that turn requests into charged quota: the `resources` section of the configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestRules {
    /// Prefixes of resources that are not charged.
    pub exclude_prefixes: Vec<String>,
    /// The `transformations` of the configuration, at most one per input resource.
    pub transformations: Vec<Transformation>,
    /// True if Kueue's rules for requests apply where Berth's differ: then LimitRange defaults apply before a container's own limits, excluded resources are
    /// not transformed, a missing RuntimeClass is ignored, and LimitRanges bound requests only.
    pub to_the_letter: bool,
}

/// The pod spec as it will run: with the RuntimeClass' `overhead` if the spec has none, with LimitRange defaults, and with limits in place of missing requests.
#[must_use]
pub fn effective_pod_spec(spec: &PodSpec, overhead: Option<&Quantities>, limits: &LimitSummary) -> PodSpec {
    let mut spec = spec.clone();
    if spec.runtime_class_name.is_some()
        && spec.overhead.as_ref().is_none_or(BTreeMap::is_empty)
        && let Some(overhead) = overhead
    {
        spec.overhead = Some(overhead.clone());
    }
    let container_defaults = limits.get("Container");
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let had_resources = container.resources.is_some();
        let resources = container.resources.get_or_insert_default();
        if let Some(item) = container_defaults {
            fill(&mut resources.limits, item.default.as_ref());
            fill(&mut resources.requests, item.default_request.as_ref());
        }
        limits_as_requests(resources);
        if !had_resources && resources.limits.is_none() && resources.requests.is_none() {
            container.resources = None;
        }
    }
    if let (Some(resources), Some(item)) = (&mut spec.resources, limits.get("Pod")) {
        fill(&mut resources.limits, item.default.as_ref());
        fill(&mut resources.requests, item.default_request.as_ref());
    }
    pod_limits_as_requests(&mut spec);
    spec
}

/// The pod spec as the API server stores it before LimitRanges apply: a container without requests requests its own limits. Kueue applies LimitRange defaults
/// before it copies a container's own limits to missing requests (`docs/departures/0013-own-limits-before-limit-ranges.md`).
pub(crate) fn with_own_limits(spec: &PodSpec) -> PodSpec {
    let mut spec = spec.clone();
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        container.resources.iter_mut().for_each(limits_as_requests);
    }
    pod_limits_as_requests(&mut spec);
    spec
}

/// Uses pod-level limits for missing pod-level requests, as the API server does, except for a resource that a container requests: the pod then requests the sum
/// over its containers. The limit of huge pages is always the request, because huge pages cannot be overcommitted.
fn pod_limits_as_requests(spec: &mut PodSpec) {
    let PodSpec { resources: Some(pod_level), containers, init_containers, .. } = spec else { return };
    let all = || containers.iter().chain(init_containers.iter().flatten());
    let requests = |container: &Container, resource: &String| {
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        requests.is_some_and(|requests| requests.contains_key(resource))
    };
    let mut limits = pod_level.limits.clone().unwrap_or_default();
    limits.retain(|resource, _| {
        resource.starts_with("hugepages-") || !all().any(|container| requests(container, resource))
    });
    fill(&mut pod_level.requests, Some(&limits));
}

pub(crate) fn limits_as_requests(resources: &mut ResourceRequirements) {
    let ResourceRequirements { limits, requests, .. } = resources;
    fill(requests, limits.as_ref());
}

/// Adds entries of `from` that `into` does not have.
fn fill(into: &mut Option<Quantities>, from: Option<&Quantities>) {
    for (resource, quantity) in from.into_iter().flatten() {
        into.get_or_insert_default().entry(resource.clone()).or_insert_with(|| quantity.clone());
    }
}

/// Exact requests of a pod: the maximum of the sum over its containers (with restartable init containers) and of each step of its initialisation. Pod-level
/// requests of a resource replace the sum over the pod's containers, and the pod's overhead is added.
///
/// # Errors
/// A request is not a quantity; see [`RequestError`].
pub fn pod_requests(spec: &PodSpec) -> Result<Exact, RequestError> {
    let mut total = Exact::new();
    for container in &spec.containers {
        add(&mut total, &requests_of(container)?);
    }
    let mut sidecars = Exact::new();
    let mut initial = Exact::new();
    for container in spec.init_containers.iter().flatten() {
        let mut step = requests_of(container)?;
        if container.restart_policy.as_deref() == Some("Always") {
            // A restartable init container keeps running beside the containers and every later init container.
            add(&mut total, &step);
            add(&mut sidecars, &step);
            step.clone_from(&sidecars);
        } else {
            add(&mut step, &sidecars);
        }
        raise(&mut initial, step);
    }
    raise(&mut total, initial);
    if let Some(requests) = spec.resources.as_ref().and_then(|r| r.requests.as_ref()) {
        let pod_level = exact(requests)?;
        total.extend(pod_level.into_iter().filter(|(resource, _)| is_pod_level(resource)));
    }
    if let Some(overhead) = &spec.overhead {
        add(&mut total, &exact(overhead)?);
    }
    Ok(total)
}

/// Whether a resource can be requested at pod level.
fn is_pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

/// Charged quota of one pod with an effective spec: transformed requests without excluded resources, in the units of quota, never negative. With
/// `to_the_letter`, an excluded resource is not transformed (`docs/departures/0054-transform-before-exclude.md`).
///
/// # Errors
/// A request is not a quantity; see [`RequestError`].
pub fn quota_requests(spec: &PodSpec, rules: &RequestRules) -> Result<BTreeMap<String, Amount>, RequestError> {
    let mut requests = pod_requests(spec)?;
    let counts = |resource: &String| !rules.exclude_prefixes.iter().any(|prefix| resource.starts_with(prefix.as_str()));
    if rules.to_the_letter {
        requests.retain(|resource, _| counts(resource));
    }
    let mut requests = transform(requests, &rules.transformations);
    if !rules.to_the_letter {
        requests.retain(|resource, _| counts(resource));
    }
    Ok(requests
        .into_iter()
        .map(|(resource, nano)| {
            let amount = to_amount(&resource, nano);
            (resource, amount)
        })
        .collect())
}

/// An amount in the unit of quota, rounded up; a negative amount gives zero.
fn to_amount(resource: &str, nano: i128) -> Amount {
    in_units(resource, nano.max(0))
}

/// An amount in the unit of quota, rounded away from zero.
fn in_units(resource: &str, nano: i128) -> Amount {
    let unit = if resource == "cpu" { 1_000_000 } else { 1_000_000_000 };
    Amount::clamped((nano / unit).saturating_add((nano % unit).signum()))
}

/// Exact amounts in the units of quota, which may be negative.
pub(crate) fn counted(exact: Exact) -> BTreeMap<String, Amount> {
    let amount = |(resource, nano): (String, i128)| {
        let amount = in_units(&resource, nano);
        (resource, amount)
    };
    exact.into_iter().map(amount).collect()
}

fn requests_of(container: &Container) -> Result<Exact, RequestError> {
    container.resources.as_ref().and_then(|r| r.requests.as_ref()).map_or_else(|| Ok(Exact::new()), exact)
}

/// The exact amounts of a resource list.
pub(crate) fn exact(quantities: &Quantities) -> Result<Exact, RequestError> {
    quantities
        .iter()
        .map(|(resource, quantity)| match parse_quantity(&quantity.0) {
            Ok(Nano(nano)) => Ok((resource.clone(), nano)),
            Err(source) => Err(RequestError { resource: resource.clone(), source }),
        })
        .collect()
}

fn add(into: &mut Exact, from: &Exact) {
    for (resource, nano) in from {
        let sum = into.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*nano);
    }
}

fn raise(into: &mut Exact, from: Exact) {
    for (resource, nano) in from {
        let most = into.entry(resource).or_insert(nano);
        *most = nano.max(*most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(spec: Value, expected: &[(&str, i64)]) {
        let spec: PodSpec = serde_json::from_value(spec).expect("pod spec");
        let requests = quota_requests(&spec, &RequestRules::default()).expect("requests");
        let expected: BTreeMap<_, _> =
            expected.iter().map(|(resource, units)| ((*resource).to_owned(), Amount::new(*units))).collect();
        assert_eq!(requests, expected);
    }

    fn container(requests: Value) -> Value {
        json!({"name": "c", "resources": {"requests": requests}})
    }

    #[test]
    fn pod_requests_take_larger_of_containers_or_init_plus_overhead() {
        check(json!({"containers": []}), &[]);
        check(
            json!({"containers": [container(json!({"cpu": "1", "memory": "1Gi"})), container(json!({"cpu": "500m"}))]}),
            &[("cpu", 1500), ("memory", 1 << 30)],
        );
        check(
            json!({"containers": [container(json!({"cpu": "1"}))], "initContainers": [container(json!({"cpu": "3"})),
                container(json!({"cpu": "2", "memory": "1"}))], "overhead": {"cpu": "100m"}}),
            &[("cpu", 3100), ("memory", 1)],
        );
    }

    #[test]
    fn fractional_requests_are_summed_before_rounding_up() {
        let half = || container(json!({"memory": "500m", "cpu": "500u"}));
        check(json!({"containers": [half()]}), &[("cpu", 1), ("memory", 1)]);
        check(json!({"containers": [half(), half()]}), &[("cpu", 1), ("memory", 1)]);
        check(json!({"containers": [half(), half(), half()]}), &[("cpu", 2), ("memory", 2)]);
    }

    #[test]
    fn sidecar_requests_add_to_later_init_steps_and_containers() {
        let sidecar =
            |cpu: &str| json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        let main = || container(json!({"cpu": "2"}));
        let init = |cpu: &str| container(json!({"cpu": cpu}));
        let pod = |init: Vec<Value>| json!({"containers": [main()], "initContainers": init});
        check(pod(vec![sidecar("1")]), &[("cpu", 3000)]);
        check(pod(vec![init("4"), sidecar("1")]), &[("cpu", 4000)]);
        check(pod(vec![sidecar("1"), init("4")]), &[("cpu", 5000)]);
        check(pod(vec![sidecar("1"), init("2"), sidecar("3")]), &[("cpu", 6000)]);
    }

    #[test]
    fn pod_level_requests_replace_sums_of_containers() {
        check(
            json!({"containers": [container(json!({"cpu": "1", "memory": "1", "example.com/gpu": "2"}))],
                "resources": {"requests": {"cpu": "5", "example.com/gpu": "9"}}, "overhead": {"cpu": "1"}}),
            &[("cpu", 6000), ("memory", 1), ("example.com/gpu", 2)],
        );
    }

    #[test]
    fn pod_level_limit_is_its_request_if_no_container_requests() {
        let check = |resources: Value, containers: Value, init: Value, expected: &[(&str, i64)]| {
            let spec = json!({"containers": containers, "initContainers": init, "resources": resources});
            let spec: PodSpec = serde_json::from_value(spec).expect("pod spec");
            let stored = effective_pod_spec(&with_own_limits(&spec), None, &LimitSummary::default());
            check(serde_json::to_value(stored).expect("pod spec"), expected);
        };
        let limits = |amounts: Value| json!({"limits": amounts});
        let one = || json!([container(json!({"cpu": "1"}))]);
        let none = || json!([]);
        check(limits(json!({"cpu": "6"})), one(), none(), &[("cpu", 1000)]);
        check(limits(json!({"cpu": "6", "memory": "1Gi"})), one(), none(), &[("cpu", 1000), ("memory", 1 << 30)]);
        check(limits(json!({"cpu": "6"})), json!([{"name": "c"}]), none(), &[("cpu", 6000)]);
        let limited = json!([{"name": "c", "resources": {"limits": {"cpu": "2"}}}]);
        check(limits(json!({"cpu": "6"})), limited, none(), &[("cpu", 2000)]);
        let sidecar = json!([{"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}}]);
        check(limits(json!({"cpu": "6"})), one(), sidecar.clone(), &[("cpu", 1500)]);
        check(limits(json!({"cpu": "6"})), json!([{"name": "c"}]), sidecar, &[("cpu", 500)]);
        let pages = json!([container(json!({"hugepages-2Mi": "2Mi", "cpu": "1"}))]);
        check(limits(json!({"hugepages-2Mi": "4Mi"})), pages, none(), &[("cpu", 1000), ("hugepages-2Mi", 4 << 20)]);
        let both = json!({"limits": {"cpu": "6"}, "requests": {"cpu": "3"}});
        check(both, one(), none(), &[("cpu", 3000)]);
    }

    #[test]
    fn negative_request_counts_zero_and_unreadable_one_is_error() {
        check(
            json!({"containers": [container(json!({"cpu": "-10m", "memory": "100Ei"}))]}),
            &[("cpu", 0), ("memory", i64::MAX)],
        );
        let spec: PodSpec =
            serde_json::from_value(json!({"containers": [container(json!({"cpu": "x"}))]})).expect("pod spec");
        let error = pod_requests(&spec).expect_err("not a quantity");
        assert_eq!(error.resource, "cpu");
    }

    #[test]
    fn resources_with_excluded_prefix_are_not_charged() {
        let spec: PodSpec = serde_json::from_value(
            json!({"containers": [container(json!({"cpu": "1", "networking.example.com/vpc1": "1"}))]}),
        )
        .expect("pod spec");
        let rules =
            RequestRules { exclude_prefixes: vec!["networking.example.com/".to_owned()], ..RequestRules::default() };
        let requests = quota_requests(&spec, &rules).expect("requests");
        assert_eq!(requests.keys().collect::<Vec<_>>(), ["cpu"]);
    }

    /// A transformation of a slice of an accelerator into ten units of `output`; `retain` keeps the input.
    fn of_slice(output: &str, multiply_by: Option<&str>, retain: bool) -> Transformation {
        Transformation::new("example.com/slice", multiply_by, [(output, "10")], retain).expect("factors")
    }

    /// Charged quota of a pod that requests one slice of an accelerator and two units of another resource, with the prefix `example.com/` excluded.
    fn charged(rule: Transformation, to_the_letter: bool) -> Vec<(String, i64)> {
        let asks = json!({"example.com/slice": "1", "example.com/copies": "2"});
        let spec: PodSpec = serde_json::from_value(json!({"containers": [container(asks)]})).expect("pod spec");
        let rules = RequestRules {
            exclude_prefixes: vec!["example.com/".to_owned()],
            transformations: vec![rule],
            to_the_letter,
        };
        let found = quota_requests(&spec, &rules).expect("requests");
        found.into_iter().map(|(resource, amount)| (resource, amount.get())).collect()
    }

    #[test]
    fn excluded_resource_is_transformed_before_it_is_dropped() {
        let memory = |amount: i64| vec![("gpu-memory".to_owned(), amount)];
        assert_eq!(charged(of_slice("gpu-memory", None, false), false), memory(10));
        let kept = charged(of_slice("gpu-memory", None, true), false);
        assert_eq!(kept, memory(10), "kept, it is excluded afterwards");
        assert_eq!(charged(of_slice("gpu-memory", Some("example.com/copies"), false), false), memory(20));
        let by_letter = charged(of_slice("gpu-memory", None, false), true);
        assert!(by_letter.is_empty(), "by Kueue's letter nothing is charged");
    }

    #[test]
    fn excluded_transformation_output_is_not_charged() {
        assert!(charged(of_slice("example.com/memory", None, false), false).is_empty());
    }
}
