//! The family `requests` of Kueue's decision cases, as far as it is about pod specs. The folder lies beside the repository;
//! without it there is nothing to compare, and the test says so.

use berth_api::{PodSet, Workload};
use berth_jobs::{
    LimitSummary, Quantities, RequestRules, Transformation, Violation, effective_pod_spec, limit_range_violations,
    limits_exceeded, workload_needs,
};
use berth_quantity::Amount;
use k8s_openapi::api::core::v1::{LimitRange, PodSpec};
use k8s_openapi::api::node::v1::RuntimeClass;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What is in the family but not in this crate.
const ELSEWHERE: [(&str, &str); 8] = [
    ("TestAmountFromQuantity", "quantities: crate quantity"),
    ("TestResourceQuantityRoundTrips", "quantities: crate quantity"),
    ("TestResourceValueClampsOutsideInt64", "quantities: crate quantity"),
    ("TestCountIn", "topology"),
    ("TestCountInWithLimitingResource", "topology"),
    ("TestPropagateResourceRequests", "writing of status.resourceRequests: control"),
    ("TestPodSetsCounts_HasFewerReplicasThan", "elastic jobs"),
    ("TestResourceUsage", "usage of an assignment: engine"),
];

enum Verdict {
    Passed,
    Elsewhere(String),
    Failed(String),
}

#[test]
fn cases_about_pod_specs_agree() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance/requests");
    let Ok(folders) = std::fs::read_dir(&root) else {
        println!("conformance: {} absent, 0 cases", root.display());
        return;
    };
    let mut files: Vec<PathBuf> = folders
        .filter_map(|folder| std::fs::read_dir(folder.expect("entry").path()).ok())
        .flat_map(|files| files.map(|file| file.expect("entry").path()))
        .collect();
    files.sort();
    let (mut passed, mut elsewhere, mut failed) = (0, BTreeMap::<String, usize>::new(), Vec::new());
    for path in &files {
        let text = std::fs::read_to_string(path).expect("readable case");
        let case: Value = serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        match check(&case) {
            Verdict::Passed => passed += 1,
            Verdict::Elsewhere(reason) => *elsewhere.entry(reason).or_default() += 1,
            Verdict::Failed(difference) => failed.push(format!("{}\n{difference}", path.display())),
        }
    }
    println!("requests: {passed} passed, {} failed, not here: {elsewhere:?}", failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    // All that is not listed as belonging elsewhere: a reader that skips cases must not look like success.
    assert!(passed >= 37, "only {passed} of {} cases were compared", files.len());
}

fn check(case: &Value) -> Verdict {
    let source = case["source"].as_str().unwrap_or_default();
    let function = source.rsplit('.').next().unwrap_or_default();
    if let Some((_, reason)) = ELSEWHERE.iter().find(|(name, _)| *name == function) {
        return Verdict::Elsewhere((*reason).to_owned());
    }
    let input = &case["input"];
    if !input["dynamicResources"].is_null() || !input["replacedExtendedResources"].is_null() {
        return Verdict::Elsewhere("resource claims".to_owned());
    }
    if !input["counts"].is_null() || function == "TestExtractPodSetCounts" {
        return Verdict::Elsewhere("counts of partial admission: control".to_owned());
    }
    let expect = &case["expect"];
    if expect["summary"].is_object() {
        return summary(case);
    }
    if expect["errors"].is_array() {
        return errors(case);
    }
    if expect["podSets"].is_array() {
        return pod_sets(case);
    }
    if expect["totalRequests"].is_array() {
        return total_requests(case);
    }
    Verdict::Failed(format!("an unknown form of case: {expect}"))
}

fn compare<T: PartialEq + std::fmt::Debug>(found: T, expected: T) -> Verdict {
    if found == expected {
        Verdict::Passed
    } else {
        Verdict::Failed(format!("expected {expected:#?}\nfound    {found:#?}"))
    }
}

fn objects<T: DeserializeOwned>(case: &Value, kind: &str) -> Vec<T> {
    let all = case["objects"].as_array().into_iter().flatten();
    all.filter(|object| object["kind"] == kind).map(|object| parse(object.clone())).collect()
}

fn parse<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error} in {value}"))
}

fn limits_of(case: &Value) -> LimitSummary {
    LimitSummary::of(&objects::<LimitRange>(case, "LimitRange"))
}

fn overheads(case: &Value) -> BTreeMap<String, Quantities> {
    let classes = objects::<RuntimeClass>(case, "RuntimeClass").into_iter();
    classes.filter_map(|class| Some((class.metadata.name?, class.overhead.and_then(|o| o.pod_fixed)?))).collect()
}

fn workload(case: &Value) -> Workload {
    match &case["input"]["update"] {
        Value::Null => objects::<Workload>(case, "Workload").into_iter().next().expect("a workload"),
        update => parse(update.clone()),
    }
}

fn spec_of(set: &PodSet) -> PodSpec {
    set.template.spec.clone().unwrap_or_default()
}

fn summary(case: &Value) -> Verdict {
    let mut found = BTreeMap::new();
    for (kind, mut item) in limits_of(case).0 {
        item.type_ = String::new();
        found.insert(kind, item);
    }
    compare(json!(found), case["expect"]["summary"].clone())
}

fn errors(case: &Value) -> Verdict {
    let found: Vec<Violation> = if case["input"]["podSpec"].is_object() {
        let summary: BTreeMap<_, _> = parse(case["input"]["summary"].clone());
        limit_range_violations(0, &parse::<PodSpec>(case["input"]["podSpec"].clone()), &LimitSummary(summary))
    } else {
        let limits = limits_of(case);
        let sets = workload(case).spec.pod_sets;
        let specs = sets.iter().map(spec_of).enumerate();
        specs
            .flat_map(|(index, spec)| {
                let ranges = limit_range_violations(index, &spec, &limits);
                limits_exceeded(index, &spec).into_iter().chain(ranges).collect::<Vec<_>>()
            })
            .collect()
    };
    let found = found.into_iter().map(|violation| {
        json!({"type": "FieldValueInvalid", "field": violation.field, "badValue": violation.resources,
            "detail": violation.detail})
    });
    compare(Value::Array(found.collect()), case["expect"]["errors"].clone())
}

fn pod_sets(case: &Value) -> Verdict {
    let (limits, overheads) = (limits_of(case), overheads(case));
    let found: Vec<PodSpec> = workload(case)
        .spec
        .pod_sets
        .iter()
        .map(|set| {
            let spec = spec_of(set);
            let overhead = spec.runtime_class_name.as_ref().and_then(|class| overheads.get(class));
            effective_pod_spec(&spec, overhead, &limits)
        })
        .collect();
    let expected: Vec<PodSet> = parse(case["expect"]["podSets"].clone());
    compare(found, expected.iter().map(spec_of).collect())
}

fn rules(config: &Value) -> RequestRules {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |key: &str| config[key].as_array().cloned().unwrap_or_default();
    let rule = |value: &Value| {
        let outputs = value["outputs"].as_object().cloned().unwrap_or_default();
        let outputs: Vec<_> = outputs.iter().map(|(key, factor)| (key.clone(), text(factor))).collect();
        let outputs = outputs.iter().map(|(key, factor)| (key.as_str(), factor.as_str()));
        Transformation::new(
            &text(&value["input"]),
            value["multiplyBy"].as_str(),
            outputs,
            value["strategy"] != "Replace",
        )
        .expect("factors")
    };
    RequestRules {
        exclude_prefixes: list("excludeResourcePrefixes").iter().map(text).collect(),
        transformations: list("resourceTransformations").iter().map(rule).collect(),
    }
}

/// Totals of pending workloads; those of admitted ones come from the assignment, which is control's.
fn total_requests(case: &Value) -> Verdict {
    let workload = workload(case);
    if workload.status.as_ref().is_some_and(|status| status.admission.is_some()) {
        return Verdict::Elsewhere("totals of an admitted workload: control".to_owned());
    }
    let is_off = case["featureGates"]["ReclaimablePods"] == false;
    let reclaimable: BTreeMap<&str, i32> = workload
        .status
        .iter()
        .flat_map(|status| &status.reclaimable_pods)
        .map(|pods| (pods.name.as_str(), if is_off { 0 } else { pods.count }))
        .collect();
    let overheads = overheads(case);
    let needs = workload_needs(
        &workload.spec.pod_sets,
        &limits_of(case),
        |class| overheads.get(class),
        &rules(&case["config"]),
    );
    let found: Vec<_> = needs
        .pod_sets
        .into_iter()
        .map(|set| {
            let count = set.count - reclaimable.get(set.name.as_str()).copied().unwrap_or(0);
            let total = |amount: Amount| amount.mul(i64::from(count));
            (count, set.requests.into_iter().map(|(resource, amount)| (resource, total(amount))).collect())
        })
        .collect();
    let expected = case["expect"]["totalRequests"].as_array().expect("list").iter().map(|set| {
        let requests = set["requests"].as_object().cloned().unwrap_or_default();
        let amount = |resource: &str, value: &Value| {
            berth_quantity::request(resource, value.as_str().expect("quantity")).expect("quantity")
        };
        let requests: BTreeMap<String, Amount> =
            requests.iter().map(|(resource, value)| (resource.clone(), amount(resource, value))).collect();
        (i32::try_from(set["count"].as_i64().expect("count")).expect("count"), requests)
    });
    compare(found, expected.collect::<Vec<(i32, BTreeMap<String, Amount>)>>())
}
