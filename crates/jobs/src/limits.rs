//! Summary of a namespace's LimitRanges, and checks of pod requests against limits and against this summary.

use crate::requests::{Quantities, counted, exact, pod_requests};
use berth_quantity::{Amount, parse_quantity};
use k8s_openapi::api::core::v1::{Container, LimitRange, LimitRangeItem, PodSpec, ResourceRequirements};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

mod server;

pub use server::refused_by;

const EXCEEDS_LIMITS: &str = "requests must not exceed its limits";
const ABOVE_MAX: &str = "requests must not be above the limitRange max";
const BELOW_MIN: &str = "requests must not be below the limitRange min";

/// The combined LimitRanges of a namespace by type (`Container`, `Pod`, ...): the strictest bounds and the first defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitSummary(pub BTreeMap<String, LimitRangeItem>);

impl LimitSummary {
    /// The summary of the LimitRanges `ranges`, which must be sorted by name, because the default of the first LimitRange counts.
    pub fn of<'a>(ranges: impl IntoIterator<Item = &'a LimitRange>) -> Self {
        let mut summary = BTreeMap::<String, LimitRangeItem>::new();
        for item in ranges.into_iter().filter_map(|range| range.spec.as_ref()).flat_map(|spec| &spec.limits) {
            let sum = summary.entry(item.type_.clone()).or_default();
            merge(&mut sum.max, item.max.as_ref(), Some(Ordering::Less));
            merge(&mut sum.min, item.min.as_ref(), Some(Ordering::Greater));
            merge(&mut sum.max_limit_request_ratio, item.max_limit_request_ratio.as_ref(), Some(Ordering::Less));
            merge(&mut sum.default, item.default.as_ref(), None);
            merge(&mut sum.default_request, item.default_request.as_ref(), None);
        }
        Self(summary)
    }

    /// The bounds and defaults for one type of a LimitRange.
    #[must_use]
    pub fn get(&self, kind: &str) -> Option<&LimitRangeItem> {
        self.0.get(kind)
    }
}

/// Merges the quantities `from` into the quantities `into` by resource; a quantity of `from` replaces the one of `into` if comparing it with that one gives
/// `wins`.
fn merge(into: &mut Option<Quantities>, from: Option<&Quantities>, wins: Option<Ordering>) {
    for (resource, quantity) in from.into_iter().flatten() {
        let into = into.get_or_insert_default();
        let replace = into.get(resource).is_none_or(|old| {
            let (new, old) = (parse_quantity(&quantity.0), parse_quantity(&old.0));
            matches!((new, old), (Ok(new), Ok(old)) if Some(new.cmp(&old)) == wins)
        });
        if replace {
            into.insert(resource.clone(), quantity.clone());
        }
    }
}

/// A violated bound of requests or limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field in the Workload.
    pub field: String,
    /// Names of the resources that violate the bound.
    pub resources: Vec<String>,
    /// Description of the fault, in Kueue's words.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: Invalid value: [", self.field)?;
        for (index, resource) in self.resources.iter().enumerate() {
            write!(f, "{}{resource:?}", if index == 0 { "" } else { "," })?;
        }
        write!(f, "]: {}", self.detail)
    }
}

/// Requests of pod set `index` that exceed their own limits.
#[must_use]
pub fn limits_exceeded(index: usize, spec: &PodSpec) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut check = |field: String, resources: Option<&ResourceRequirements>| {
        let [requests, limits] = requests_and_limits(resources);
        report(&mut found, field, &requests, &limits, Ordering::Greater, EXCEEDS_LIMITS);
    };
    for (field, container) in containers(index, spec) {
        check(field, container.resources.as_ref());
    }
    check(format!("{}.resources", path(index)), spec.resources.as_ref());
    found
}

/// Amounts in the units of quota, in which Kueue compares requests with limits; amounts less than a unit apart may be equal.
type Counted = BTreeMap<String, Amount>;

/// The amounts of a resource list in the units of quota; empty if a text in the list is no quantity.
fn amounts(quantities: Option<&Quantities>) -> Counted {
    counted(quantities.and_then(|quantities| exact(quantities).ok()).unwrap_or_default())
}

fn requests_and_limits(resources: Option<&ResourceRequirements>) -> [Counted; 2] {
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    [requests, limits].map(amounts)
}

/// The smallest and the largest amount that a container states for each resource; a LimitRange bounds limits as well as requests.
fn span(resources: Option<&ResourceRequirements>) -> [Counted; 2] {
    let [mut least, limits] = requests_and_limits(resources);
    let mut most = least.clone();
    for (resource, limit) in limits {
        let low = least.entry(resource.clone()).or_insert(limit);
        *low = limit.min(*low);
        let high = most.entry(resource).or_insert(limit);
        *high = limit.max(*high);
    }
    [least, most]
}

/// Requests and limits of pod set `index` that are outside of the namespace's LimitRanges. [`pod_requests`] refuses requests that are no quantities.
#[must_use]
pub fn limit_range_violations(index: usize, spec: &PodSpec, summary: &LimitSummary) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut check = |field: &str, least: &Counted, most: &Counted, item: &LimitRangeItem| {
        let [min, max] = [&item.min, &item.max].map(|bound| amounts(bound.as_ref()));
        report(&mut found, field.to_owned(), most, &max, Ordering::Greater, ABOVE_MAX);
        report(&mut found, field.to_owned(), least, &min, Ordering::Less, BELOW_MIN);
    };
    if let Some(item) = summary.get("Container") {
        for (field, container) in containers(index, spec) {
            let [least, most] = span(container.resources.as_ref());
            check(&field, &least, &most, item);
        }
    }
    if let Some(item) = summary.get("Pod") {
        let requests = counted(pod_requests(spec).unwrap_or_default());
        check(&path(index), &requests, &requests, item);
    }
    found
}

/// Reason why pods with these effective specs (in the order of their pod sets) may not be admitted, in Kueue's words; `None` if they may be admitted.
#[must_use]
pub fn validate_requests(specs: &[PodSpec], summary: &LimitSummary) -> Option<String> {
    let over: Vec<_> = specs.iter().enumerate().flat_map(|(i, spec)| limits_exceeded(i, spec)).collect();
    if !over.is_empty() {
        return Some(format!("resources validation failed: {}", aggregate(&over)));
    }
    let outside: Vec<_> =
        specs.iter().enumerate().flat_map(|(i, spec)| limit_range_violations(i, spec, summary)).collect();
    (!outside.is_empty()).then(|| format!("resources didn't satisfy LimitRange constraints: {}", aggregate(&outside)))
}

/// A single violation as text, or several violations in brackets.
fn aggregate(violations: &[Violation]) -> String {
    match violations {
        [one] => one.to_string(),
        many => format!("[{}]", many.iter().map(Violation::to_string).collect::<Vec<_>>().join(", ")),
    }
}

fn report(
    found: &mut Vec<Violation>,
    field: String,
    requests: &Counted,
    bounds: &Counted,
    wrong: Ordering,
    detail: &str,
) {
    let resources: Vec<String> = requests
        .iter()
        .filter(|(resource, amount)| bounds.get(*resource).is_some_and(|bound| amount.cmp(&bound) == wrong))
        .map(|(resource, _)| resource.clone())
        .collect();
    if !resources.is_empty() {
        found.push(Violation { field, resources, detail: detail.to_owned() });
    }
}

fn path(index: usize) -> String {
    format!("spec.podSets[{index}].template.spec")
}

/// The init containers and then the containers of a pod spec, with their paths.
fn containers(index: usize, spec: &PodSpec) -> impl Iterator<Item = (String, &Container)> {
    let base = path(index);
    let init = spec.init_containers.iter().flatten().enumerate().map(|(i, c)| ("initContainers", i, c));
    let main = spec.containers.iter().enumerate().map(|(i, c)| ("containers", i, c));
    init.chain(main).map(move |(list, i, container)| (format!("{base}.{list}[{i}]"), container))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(requests: &Value, limits: &Value) -> PodSpec {
        let resources = json!({"requests": requests, "limits": limits});
        serde_json::from_value(json!({"containers": [{"name": "c", "resources": resources}]})).expect("pod spec")
    }

    fn summary(limits: &Value) -> LimitSummary {
        let range: LimitRange = serde_json::from_value(json!({"spec": {"limits": limits}})).expect("limit range");
        LimitSummary::of([&range])
    }

    #[test]
    fn requests_beyond_limits_or_limit_range_are_refused_by_field() {
        let max = json!([{"type": "Container", "max": {"cpu": "1"}, "min": {"memory": "1Gi"}}]);
        let pod_max = json!([{"type": "Pod", "max": {"cpu": "1"}}]);
        let base = "spec.podSets[0].template.spec";
        let cases = [
            (json!({"cpu": "1"}), json!({"cpu": "1000m"}), max.clone(), None),
            // In this case, a pod's request exceeds its limit by less than a unit of quota, so the two count as equal.
            (json!({"cpu": "1500u", "memory": "500m"}), json!({"cpu": "1100u", "memory": "100m"}), json!([]), None),
            (
                json!({"cpu": "2", "memory": "2"}),
                json!({"cpu": "1", "memory": "1"}),
                max.clone(),
                Some(format!(
                    "resources validation failed: {base}.containers[0]: Invalid value: [\"cpu\",\"memory\"]: requests \
                     must not exceed its limits"
                )),
            ),
            (
                json!({"cpu": "1"}),
                json!({"cpu": "2", "memory": "1Mi"}),
                max.clone(),
                Some(format!(
                    "resources didn't satisfy LimitRange constraints: [{base}.containers[0]: Invalid value: [\"cpu\"]: \
                     requests must not be above the limitRange max, {base}.containers[0]: Invalid value: [\"memory\"]: \
                     requests must not be below the limitRange min]"
                )),
            ),
            (json!({"cpu": "1"}), json!({"cpu": "2"}), pod_max.clone(), None),
            (
                json!({"cpu": "1001m"}),
                json!({}),
                pod_max,
                Some(format!(
                    "resources didn't satisfy LimitRange constraints: {base}: Invalid value: [\"cpu\"]: requests must \
                     not be above the limitRange max"
                )),
            ),
            (
                json!({"cpu": "2", "memory": "2"}),
                json!({}),
                max,
                Some(format!(
                    "resources didn't satisfy LimitRange constraints: [{base}.containers[0]: Invalid value: [\"cpu\"]: \
                     requests must not be above the limitRange max, {base}.containers[0]: Invalid value: [\"memory\"]: \
                     requests must not be below the limitRange min]"
                )),
            ),
        ];
        for (requests, limits, ranges, expected) in cases {
            assert_eq!(validate_requests(&[pod(&requests, &limits)], &summary(&ranges)), expected);
        }
    }
}
