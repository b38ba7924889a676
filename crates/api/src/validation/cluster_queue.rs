//! Rules about ClusterQueues and Cohorts.

use std::collections::BTreeSet;

use berth_quantity::{Nano, parse_quantity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::field_error::{FieldError, supported};
use super::metadata;
use super::names::{label_value, qualified_name};
use crate::{ClusterQueue, ClusterQueueSpec, Cohort, FairSharing, ResourceGroup, ResourceQuota};

const MAX_TOTAL: usize = 256;
const MAX_PAIRS: usize = 512;
const GROUPS: &str = "spec.resourceGroups";

/// Faults of the quotas, selector, policies and checks of a ClusterQueue.
pub fn validate_cluster_queue(queue: &ClusterQueue) -> Vec<FieldError> {
    let spec = &queue.spec;
    let mut errors = Vec::new();
    let above = Above { name: "cohort", present: is_set(spec.cohort_name.as_deref()), lend_within_nominal: true };
    resource_groups(&spec.resource_groups, &above, &mut errors);
    totals(&spec.resource_groups, &mut errors);
    if let Some(selector) = &spec.namespace_selector {
        errors.extend(validate_label_selector(selector, "spec.namespaceSelector"));
    }
    choices(spec, &mut errors);
    policies(spec, &mut errors);
    fair_sharing(spec.fair_sharing.as_ref(), &mut errors);
    admission_checks(spec, &mut errors);
    errors
}

/// Faults of the quotas and weight of a Cohort. A Cohort may lend more than it owns, because the queues below it lend through it.
pub fn validate_cohort(cohort: &Cohort) -> Vec<FieldError> {
    let spec = &cohort.spec;
    let mut errors = Vec::new();
    let above = Above { name: "parent", present: is_set(spec.parent_name.as_deref()), lend_within_nominal: false };
    fair_sharing(spec.fair_sharing.as_ref(), &mut errors);
    resource_groups(&spec.resource_groups, &above, &mut errors);
    errors
}

/// The cohort above a ClusterQueue or Cohort; borrowing and lending limits are allowed only below a cohort.
struct Above {
    name: &'static str,
    present: bool,
    lend_within_nominal: bool,
}

fn is_set(name: Option<&str>) -> bool {
    name.is_some_and(|name| !name.is_empty())
}

fn resource_groups(groups: &[ResourceGroup], above: &Above, errors: &mut Vec<FieldError>) {
    let mut resources = BTreeSet::new();
    let mut flavors = BTreeSet::new();
    for (index, group) in groups.iter().enumerate() {
        let path = format!("{GROUPS}[{index}]");
        for (index, name) in group.covered_resources.iter().enumerate() {
            let path = format!("{path}.coveredResources[{index}]");
            errors.extend(qualified_name(name).map(|wrong| FieldError::new(&path, name, wrong)));
            if !resources.insert(name) {
                errors.push(FieldError::new(path, name, "must be covered by one group only, and once"));
            }
        }
        for (index, flavor) in group.flavors.iter().enumerate() {
            let path = format!("{path}.flavors[{index}]");
            if !flavors.insert(&flavor.name) {
                errors.push(FieldError::new(
                    format!("{path}.name"),
                    &flavor.name,
                    "must be in one group only, and once",
                ));
            }
            if flavor.resources.len() != group.covered_resources.len() {
                errors.push(FieldError::new(
                    format!("{path}.resources"),
                    flavor.resources.len().to_string(),
                    "flavors must have the same number of resources as the coveredResources",
                ));
            }
            for (index, (quota, covered)) in flavor.resources.iter().zip(&group.covered_resources).enumerate() {
                let path = format!("{path}.resources[{index}]");
                if quota.name != *covered {
                    let message = "must match the name in coveredResources";
                    errors.push(FieldError::new(format!("{path}.name"), &quota.name, message));
                }
                resource_quota(quota, above, &path, errors);
            }
        }
    }
}

fn resource_quota(quota: &ResourceQuota, above: &Above, path: &str, errors: &mut Vec<FieldError>) {
    let nominal = amount(&quota.nominal_quota, format!("{path}.nominalQuota"), errors);
    for (name, limit) in [("borrowingLimit", &quota.borrowing_limit), ("lendingLimit", &quota.lending_limit)] {
        let Some(limit) = limit else { continue };
        let path = format!("{path}.{name}");
        let value = amount(limit, path.clone(), errors);
        if !above.present {
            errors.push(FieldError::new(&path, &limit.0, format!("must be nil when {} is empty", above.name)));
        }
        if name == "lendingLimit" && above.lend_within_nominal && value > nominal {
            errors.push(FieldError::new(path, &limit.0, "must be less than or equal to the nominalQuota"));
        }
    }
}

/// The amount of a quota in billionths; zero if the text is no quantity. A negative amount of quota is added to the errors.
fn amount(quantity: &Quantity, path: String, errors: &mut Vec<FieldError>) -> i128 {
    match parse_quantity(&quantity.0) {
        Ok(Nano(nano)) => {
            if nano < 0 {
                errors.push(FieldError::new(path, &quantity.0, "must be greater than or equal to 0"));
            }
            nano
        }
        Err(error) => {
            errors.push(FieldError::new(path, &quantity.0, error.to_string()));
            0
        }
    }
}

fn totals(groups: &[ResourceGroup], errors: &mut Vec<FieldError>) {
    let flavors: usize = groups.iter().map(|group| group.flavors.len()).sum();
    let covered: usize = groups.iter().map(|group| group.covered_resources.len()).sum();
    for (what, total) in [("flavors", flavors), ("covered resources", covered)] {
        if total > MAX_TOTAL {
            let message = format!("total number of {what} of all resourceGroups must be at most {MAX_TOTAL}");
            errors.push(FieldError::new(GROUPS, total.to_string(), message));
        }
    }
    for (index, group) in groups.iter().enumerate() {
        let pairs: usize = group.flavors.iter().map(|flavor| flavor.resources.len()).sum();
        if pairs > MAX_PAIRS {
            let message = format!("pairs of flavor and resource in a resourceGroup must be at most {MAX_PAIRS}");
            errors.push(FieldError::new(format!("{GROUPS}[{index}]"), pairs.to_string(), message));
        }
    }
}

/// Faults of the keys, operators and values of a label selector; `path` is the path of the selector.
pub fn validate_label_selector(selector: &LabelSelector, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(labels) = &selector.match_labels {
        metadata::labels(labels, &format!("{path}.matchLabels"), &mut errors);
    }
    for (index, term) in selector.match_expressions.iter().flatten().enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        let values = term.values.as_deref().unwrap_or_default();
        errors.extend(qualified_name(&term.key).map(|wrong| FieldError::new(format!("{path}.key"), &term.key, wrong)));
        match term.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                let message = format!("must be specified when the operator is {}", term.operator);
                errors.push(FieldError::new(format!("{path}.values"), "", message));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let message = format!("must be empty when the operator is {}", term.operator);
                errors.push(FieldError::new(format!("{path}.values"), values.join(","), message));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                let allowed = ["In", "NotIn", "Exists", "DoesNotExist"];
                errors.push(supported(format!("{path}.operator"), other, allowed));
            }
        }
        for (index, value) in values.iter().enumerate() {
            let path = format!("{path}.values[{index}]");
            errors.extend(label_value(value).map(|wrong| FieldError::new(path, value, wrong)));
        }
    }
    errors
}

/// Faults of fields with a few allowed words: a word that an older schema accepted must not be read as the default.
fn choices(spec: &ClusterQueueSpec, errors: &mut Vec<FieldError>) {
    let preemption = spec.preemption.as_ref();
    let borrow = preemption.and_then(|preemption| preemption.borrow_within_cohort.as_ref());
    let fungibility = spec.flavor_fungibility.as_ref();
    // The words `Borrow` and `Preempt` of v1beta1, which mean `MayStopSearch`, are allowed as well.
    let choices: [(&str, Option<&str>, &[&str]); 9] = [
        ("stopPolicy", spec.stop_policy.as_deref(), &["None", "Hold", "HoldAndDrain"]),
        ("queueingStrategy", spec.queueing_strategy.as_deref(), &["StrictFIFO", "BestEffortFIFO"]),
        (
            "preemption.withinClusterQueue",
            preemption.and_then(|preemption| preemption.within_cluster_queue.as_deref()),
            &["Never", "LowerPriority", "LowerOrNewerEqualPriority"],
        ),
        (
            "preemption.reclaimWithinCohort",
            preemption.and_then(|preemption| preemption.reclaim_within_cohort.as_deref()),
            &["Never", "LowerPriority", "Any"],
        ),
        (
            "preemption.borrowWithinCohort.policy",
            borrow.and_then(|borrow| borrow.policy.as_deref()),
            &["Never", "LowerPriority"],
        ),
        (
            "flavorFungibility.whenCanBorrow",
            fungibility.and_then(|rules| rules.when_can_borrow.as_deref()).filter(|word| *word != "Borrow"),
            &["MayStopSearch", "TryNextFlavor"],
        ),
        (
            "flavorFungibility.whenCanPreempt",
            fungibility.and_then(|rules| rules.when_can_preempt.as_deref()).filter(|word| *word != "Preempt"),
            &["MayStopSearch", "TryNextFlavor"],
        ),
        (
            "flavorFungibility.preference",
            fungibility.and_then(|rules| rules.preference.as_deref()),
            &["BorrowingOverPreemption", "PreemptionOverBorrowing"],
        ),
        (
            "admissionScope.admissionMode",
            spec.admission_scope.as_ref().map(|scope| scope.admission_mode.as_str()),
            &["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"],
        ),
    ];
    for (field, value, allowed) in choices {
        if let Some(value) = value.filter(|value| !allowed.contains(value)) {
            errors.push(supported(format!("spec.{field}"), value, allowed.iter().copied()));
        }
    }
}

fn policies(spec: &ClusterQueueSpec, errors: &mut Vec<FieldError>) {
    let never = |policy: Option<&str>| policy.unwrap_or("Never") == "Never";
    if let Some(preemption) = &spec.preemption {
        let borrow = preemption.borrow_within_cohort.as_ref().and_then(|borrow| borrow.policy.as_deref());
        if never(preemption.reclaim_within_cohort.as_deref()) && !never(borrow) {
            let message = "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never";
            errors.push(FieldError::new("spec.preemption", borrow.unwrap_or_default(), message));
        }
    }
    let Some(fungibility) = &spec.flavor_fungibility else { return };
    let next = |policy: Option<&str>, default| policy.unwrap_or(default) == "TryNextFlavor";
    let both = next(fungibility.when_can_borrow.as_deref(), "MayStopSearch")
        && next(fungibility.when_can_preempt.as_deref(), "TryNextFlavor");
    if let Some(preference) = fungibility.preference.as_deref().filter(|_| !both) {
        let message = "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor";
        errors.push(FieldError::new("spec.flavorFungibility.preference", preference, message));
    }
}

fn fair_sharing(fair_sharing: Option<&FairSharing>, errors: &mut Vec<FieldError>) {
    let Some(weight) = fair_sharing.and_then(|fair| fair.weight.as_ref()) else { return };
    let path = "spec.fairSharing.weight";
    // A weight of one billionth (`1n`), the resolution of a quantity, is too small to divide by.
    if amount(weight, path.into(), errors) == 1 {
        errors.push(FieldError::new(path, &weight.0, "must be 0 or greater than 1n"));
    }
}

fn admission_checks(spec: &ClusterQueueSpec, errors: &mut Vec<FieldError>) {
    let Some(strategy) = &spec.admission_checks_strategy else { return };
    let flavors: BTreeSet<&str> =
        spec.resource_groups.iter().flat_map(|group| &group.flavors).map(|flavor| flavor.name.as_str()).collect();
    for (index, check) in strategy.admission_checks.iter().enumerate() {
        for (at, flavor) in check.on_flavors.iter().enumerate() {
            if !flavors.contains(flavor.as_str()) {
                let path = format!("spec.admissionChecksStrategy.admissionChecks[{index}].onFlavors[{at}]");
                errors.push(supported(path, flavor, flavors.iter().copied()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn queue(spec: Value) -> Vec<(String, String)> {
        let queue: ClusterQueue = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        validate_cluster_queue(&queue).into_iter().map(|error| (error.field, error.message)).collect()
    }

    fn cohort(spec: Value) -> Vec<(String, String)> {
        let cohort: Cohort = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        validate_cohort(&cohort).into_iter().map(|error| (error.field, error.message)).collect()
    }

    fn group(quota: Value) -> Value {
        json!([{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}])
    }

    /// The errors as texts, each with field and message.
    fn messages(found: Vec<(String, String)>) -> Vec<String> {
        found.into_iter().map(|(field, message)| format!("{field}: {message}")).collect()
    }

    #[test]
    fn plain_cluster_queue_is_valid() {
        let groups = json!([
            {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "a", "resources": [
                {"name": "cpu", "nominalQuota": 9, "borrowingLimit": "0", "lendingLimit": "9000m"},
                {"name": "memory", "nominalQuota": "36Gi"}]}]},
            {"coveredResources": ["google.com/tpu"], "flavors": [
                {"name": "b", "resources": [{"name": "google.com/tpu", "nominalQuota": "1e3"}]}]},
        ]);
        let checks = json!({"admissionChecks": [{"name": "c", "onFlavors": ["a", "b"]}, {"name": "d"}]});
        let spec = json!({
            "cohortName": "all", "resourceGroups": groups, "admissionChecksStrategy": checks,
            "namespaceSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [
                {"key": "k", "operator": "In", "values": ["v"]}, {"key": "k", "operator": "Exists"}]},
            "fairSharing": {"weight": "0"},
            "flavorFungibility": {"preference": "BorrowingOverPreemption", "whenCanBorrow": "TryNextFlavor"},
            "preemption": {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}},
        });
        assert_eq!(queue(spec), []);
        assert_eq!(queue(json!({})), []);
    }

    #[test]
    fn unknown_cluster_queue_enum_value_is_refused_with_allowed_values() {
        let check = |spec: Value, field: &str, allowed: &str| {
            let found = queue(spec);
            assert_eq!(found, [(field.to_owned(), format!("supported values: {allowed}"))]);
        };
        check(json!({"stopPolicy": "Perhaps"}), "spec.stopPolicy", r#""None", "Hold", "HoldAndDrain""#);
        check(json!({"queueingStrategy": "LIFO"}), "spec.queueingStrategy", r#""StrictFIFO", "BestEffortFIFO""#);
        check(
            json!({"preemption": {"reclaimWithinCohort": "Some"}}),
            "spec.preemption.reclaimWithinCohort",
            r#""Never", "LowerPriority", "Any""#,
        );
        let search = r#""MayStopSearch", "TryNextFlavor""#;
        for (field, older) in [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")] {
            let path = format!("spec.flavorFungibility.{field}");
            check(json!({"flavorFungibility": {(field): "StopSearch"}}), &path, search);
            assert_eq!(queue(json!({"flavorFungibility": {(field): older}})), [], "as stored in v1beta1");
        }
        check(
            json!({"flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "preference": "Cheapest"}}),
            "spec.flavorFungibility.preference",
            r#""BorrowingOverPreemption", "PreemptionOverBorrowing""#,
        );
        check(
            json!({"admissionScope": {"admissionMode": "Fair"}}),
            "spec.admissionScope.admissionMode",
            r#""UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing""#,
        );
    }

    #[test]
    fn invalid_nominal_quota_or_limit_is_refused_by_field() {
        let nominal = "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota";
        let limit = |name: &str| format!("spec.resourceGroups[0].flavors[0].resources[0].{name}");
        let one = |quota: Value, cohort: &str| queue(json!({"cohortName": cohort, "resourceGroups": group(quota)}));
        let negative = format!("{nominal}: must be greater than or equal to 0");
        assert_eq!(messages(one(json!({"name": "cpu", "nominalQuota": "-1"}), "c")), [negative]);
        let unreadable = parse_quantity("many").unwrap_err();
        assert_eq!(
            messages(one(json!({"name": "cpu", "nominalQuota": "many"}), "c")),
            [format!("{nominal}: {unreadable}")]
        );
        assert_eq!(
            one(json!({"name": "cpu", "nominalQuota": 1, "borrowingLimit": 1}), ""),
            [(limit("borrowingLimit"), "must be nil when cohort is empty".to_owned())]
        );
        assert_eq!(
            one(json!({"name": "cpu", "nominalQuota": 1, "lendingLimit": "1001m"}), "c"),
            [(limit("lendingLimit"), "must be less than or equal to the nominalQuota".to_owned())]
        );
        assert_eq!(
            one(json!({"name": "gpu", "nominalQuota": 1}), "c"),
            [(limit("name"), "must match the name in coveredResources".to_owned())]
        );
        let over = json!({"parentName": "p", "resourceGroups": group(json!({"name": "cpu", "nominalQuota": 1, "lendingLimit": 5}))});
        assert_eq!(cohort(over), []);
        let orphan = json!({"resourceGroups": group(json!({"name": "cpu", "nominalQuota": 1, "lendingLimit": 1}))});
        assert_eq!(cohort(orphan), [(limit("lendingLimit"), "must be nil when parent is empty".to_owned())]);
    }

    #[test]
    fn resources_and_flavors_repeated_across_resource_groups_are_refused() {
        let again = json!([
            {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1}]}]},
            {"coveredResources": ["cpu", "a b"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1}]}]},
        ]);
        assert_eq!(
            messages(queue(json!({"resourceGroups": again}))),
            [
                "spec.resourceGroups[1].coveredResources[0]: must be covered by one group only, and once".to_owned(),
                format!("spec.resourceGroups[1].coveredResources[1]: {}", qualified_name("a b").unwrap()),
                "spec.resourceGroups[1].flavors[0].name: must be in one group only, and once".to_owned(),
                "spec.resourceGroups[1].flavors[0].resources: flavors must have the same number of resources as the \
                 coveredResources"
                    .to_owned(),
            ]
        );
    }

    #[test]
    fn resource_groups_beyond_total_flavor_or_resource_limit_are_refused() {
        let wide = |flavors: usize, resources: usize, first: usize| {
            let names: Vec<String> = (0..resources).map(|r| format!("r{}", first + r)).collect();
            let quotas: Vec<Value> = names.iter().map(|name| json!({"name": name, "nominalQuota": 1})).collect();
            let flavors: Vec<Value> =
                (0..flavors).map(|f| json!({"name": format!("f{}", first + f), "resources": quotas})).collect();
            json!({"coveredResources": names, "flavors": flavors})
        };
        let groups: Vec<Value> = (0..5).map(|g| wide(52, 1, g * 100)).collect();
        let total = |what: &str| {
            format!("spec.resourceGroups: total number of {what} of all resourceGroups must be at most 256")
        };
        assert_eq!(messages(queue(json!({"resourceGroups": groups}))), [total("flavors")]);
        let groups: Vec<Value> = (0..5).map(|g| wide(1, 52, g * 100)).collect();
        assert_eq!(messages(queue(json!({"resourceGroups": groups}))), [total("covered resources")]);
        assert_eq!(
            messages(queue(json!({"resourceGroups": [wide(64, 9, 0)]}))),
            ["spec.resourceGroups[0]: pairs of flavor and resource in a resourceGroup must be at most 512"]
        );
        assert_eq!(queue(json!({"resourceGroups": [wide(64, 8, 0)]})), []);
    }

    #[test]
    fn contradictory_policy_bad_weight_selector_or_check_flavor_is_refused() {
        assert_eq!(
            messages(queue(json!({"preemption": {"borrowWithinCohort": {"policy": "LowerPriority"}}}))),
            ["spec.preemption: reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never"]
        );
        assert_eq!(
            messages(queue(json!({"flavorFungibility": {"preference": "PreemptionOverBorrowing"}}))),
            [
                "spec.flavorFungibility.preference: preference can only be set when both whenCanBorrow and whenCanPreempt are \
              TryNextFlavor"
            ]
        );
        let unreadable = parse_quantity("x").unwrap_err().to_string();
        for (weight, wrong) in [
            ("1n", Some("must be 0 or greater than 1n")),
            ("2n", None),
            ("-1", Some("must be greater than or equal to 0")),
            ("0", None),
            ("x", Some(unreadable.as_str())),
        ] {
            let wrong: Vec<String> = wrong.iter().map(|wrong| format!("spec.fairSharing.weight: {wrong}")).collect();
            assert_eq!(messages(cohort(json!({"fairSharing": {"weight": weight}}))), wrong, "{weight}");
        }
        let selector = json!({"matchLabels": {"a": "/"}, "matchExpressions": [
            {"key": "k", "operator": "In"}, {"key": "k", "operator": "Exists", "values": ["v"]},
            {"key": "", "operator": "Like", "values": ["v"]}]});
        assert_eq!(
            messages(queue(json!({"namespaceSelector": selector}))),
            [
                ("matchLabels[a]", label_value("/").unwrap().as_str()),
                ("matchExpressions[0].values", "must be specified when the operator is In"),
                ("matchExpressions[1].values", "must be empty when the operator is Exists"),
                ("matchExpressions[2].key", "name part must not be empty"),
                ("matchExpressions[2].operator", r#"supported values: "In", "NotIn", "Exists", "DoesNotExist""#),
            ]
            .map(|(field, words)| format!("spec.namespaceSelector.{field}: {words}"))
        );
        let unknown = json!({"admissionChecks": [{"name": "c", "onFlavors": ["x"]}]});
        let found = queue(json!({
            "admissionChecksStrategy": unknown, "resourceGroups": group(json!({"name": "cpu", "nominalQuota": 1})),
        }));
        assert_eq!(found.first().map(|(_, message)| message.as_str()), Some("supported values: \"f\""));
    }
}
