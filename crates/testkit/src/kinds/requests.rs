//! Cases about requests and quantities.

use crate::amounts::amounts;
use crate::case::Case;
use crate::diff::{Diff, sorted};
use crate::scene::{self, Scene, bare};
use berth_engine::{Amount, Departure, WorkloadState};
use berth_jobs::{LimitSummary, RequestRules, Violation, limit_range_violations, limits_exceeded, spec_as_run};
use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem, PodSpec};
use k8s_openapi::api::node::v1::RuntimeClass;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct QuantityInput {
    resource: String,
    quantity: Option<String>,
    value: Option<i64>,
    /// True if the amount counts devices of resource claims; such a case does not apply to Berth, so the field is decoded and not used.
    #[serde(rename = "binary")]
    _binary: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct QuantityExpect {
    value: Option<i64>,
    unlimited: Option<bool>,
    quantity: Option<String>,
}

/// Name, number of pods, amounts and flavors of a pod set.
type Total = (String, i64, BTreeMap<String, Amount>, BTreeMap<String, String>);

/// Name, number of pods and pod spec of a pod set.
type EffectivePodSet = (Option<String>, Option<i32>, PodSpec);

/// Judges a case of kind `quantity`.
///
/// # Errors
/// A field of the case cannot be read.
pub fn quantity(case: &Case) -> Result<Diff, String> {
    let input: QuantityInput = case.input()?;
    let QuantityExpect { value, unlimited, quantity } = case.expect()?;
    let mut diff = Diff::default();
    if let Some(text) = &input.quantity {
        // A case that expects `unlimited` is about a quota, which may be unlimited; any other case is about a request, whose amount is limited to the largest
        // amount. Berth's parser of quotas refuses negative quantities, which Kueue's conversion accepts.
        let is_quota = unlimited.is_some() && !text.starts_with('-');
        let read = if is_quota { berth_quantity::quota } else { berth_quantity::value };
        let got = read(&input.resource, text).map_err(|error| error.to_string());
        diff.eq_if("value", value.map(Ok).as_ref(), || got.clone().map(Amount::get));
        diff.eq_if("unlimited", unlimited.map(Ok).as_ref(), || got.map(Amount::is_unlimited));
    }
    if let Some(units) = input.value {
        diff.eq_if("quantity", quantity.as_ref(), || berth_quantity::format(&input.resource, Amount::new(units)));
    }
    Ok(diff)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Input {
    workload: Option<String>,
    update: Option<Value>,
    pod_spec: Option<Value>,
    summary: Option<BTreeMap<String, LimitRangeItem>>,
    total_requests: Option<Vec<PodSetRequests>>,
    /// Resource claims that an update keeps, and claimed devices; a case with either does not apply to Berth.
    #[serde(rename = "preserveTotalRequests")]
    _preserve_total_requests: bool,
    #[serde(rename = "dynamicResources")]
    _dynamic_resources: Option<Value>,
    #[serde(rename = "replacedExtendedResources")]
    _replaced_extended_resources: Option<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct PodSetRequests {
    name: String,
    count: i64,
    requests: BTreeMap<String, String>,
    flavors: Option<BTreeMap<String, String>>,
    topology_request: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Expect {
    #[serde(deserialize_with = "crate::case::expected")]
    total_requests: Option<Vec<PodSetRequests>>,
    #[serde(deserialize_with = "crate::case::expected")]
    pod_sets: Option<Vec<berth_api::PodSet>>,
    #[serde(deserialize_with = "crate::case::expected")]
    errors: Option<Vec<Error>>,
    #[serde(deserialize_with = "crate::case::expected")]
    summary: Option<BTreeMap<String, LimitRangeItem>>,
    changed: Option<bool>,
    cluster_queue: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Error {
    #[serde(rename = "type")]
    kind: String,
    field: String,
    bad_value: Vec<String>,
    detail: String,
}

/// Judges a case of kind `requests`.
///
/// # Errors
/// A field of the case cannot be read.
pub fn run(case: &Case) -> Result<Diff, String> {
    let input: Input = case.input()?;
    let Expect { total_requests, pod_sets, errors, summary, changed, cluster_queue } = case.expect()?;
    let mut diff = Diff::default();
    if let Some(want) = summary {
        let got = LimitSummary::of(&limit_ranges(case)?).0;
        let clear = |item: LimitRangeItem| LimitRangeItem { type_: String::new(), ..item };
        let shown = |map: BTreeMap<String, LimitRangeItem>| -> BTreeMap<String, Value> {
            map.into_iter().map(|(kind, item)| (kind, bare(&json!(clear(item))))).collect()
        };
        diff.maps("summary", &shown(want), &shown(got));
    }
    if let Some(mut want) = errors {
        want.sort();
        let mut got = found_errors(case, &input)?;
        got.sort();
        diff.eq("errors", &want, &got);
    }
    if let Some(want) = pod_sets {
        let spec = |set: berth_api::PodSet| (set.name.clone(), set.count, set.template.spec.unwrap_or_default());
        diff.eq("podSets", &want.into_iter().map(spec).collect::<Vec<_>>(), &effective(case, &input)?);
    }
    if let Some(want) = changed {
        let totals = input.total_requests.clone().unwrap_or_default();
        let workload = scene::workload(case, &key(case, &input))?;
        let wanted: Vec<berth_api::PodSetRequest> = totals
            .iter()
            .map(|set| read(json!({"name": set.name, "resources": set.requests})))
            .collect::<Result<_, _>>()?;
        let current = workload.status.unwrap_or_default().resource_requests;
        diff.eq("changed", &want, &berth_control::requests_differ(&current, &wanted));
    }
    if total_requests.is_some() || cluster_queue.is_some() {
        totals(case, &input, total_requests, cluster_queue, &mut diff)?;
    }
    Ok(diff)
}

fn totals(
    case: &Case,
    input: &Input,
    total_requests: Option<Vec<PodSetRequests>>,
    cluster_queue: Option<String>,
    diff: &mut Diff,
) -> Result<(), String> {
    let mut scene = Scene::new(case)?;
    if let Some(update) = &input.update {
        scene.put(update)?;
    }
    let key = match (&input.workload, &input.update) {
        (Some(key), _) => key.clone(),
        (None, Some(update)) => crate::scene::key_of(update),
        (None, None) => return Err("input: no workload".to_owned()),
    };
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    let spec = scene.offline.control().workload_spec(namespace, name).ok_or("input.workload: no such workload")?;
    if let Some(want) = total_requests {
        // Some cases mark the field `flavors` as internal to Kueue; then flavors are not compared.
        let ignored = case.expect.pointer("/internal/ignoredFields").and_then(Value::as_array).cloned();
        let flavors = !ignored.unwrap_or_default().contains(&json!("flavors"));
        if want.iter().any(|set| set.topology_request.is_some()) {
            diff.note("totalRequests: want a topology request, got none");
        }
        let wanted: Vec<_> = want
            .into_iter()
            .map(|set| {
                let flavors = set.flavors.filter(|_| flavors).unwrap_or_default();
                let name = if set.name.is_empty() { "main".to_owned() } else { set.name };
                Ok((name, set.count, amounts(&set.requests)?, flavors))
            })
            .collect::<Result<_, String>>()?;
        let got: Vec<Total> = match &spec.state {
            WorkloadState::Reserved(held) => held
                .pod_sets
                .iter()
                .map(|set| {
                    let given = if flavors { set.flavors.clone() } else { BTreeMap::new() };
                    (set.name.clone(), set.count, set.usage.clone(), given)
                })
                .collect(),
            WorkloadState::Pending { .. } => spec
                .pod_sets
                .iter()
                .map(|set| {
                    let total = |(resource, one): (&String, &Amount)| (resource.clone(), one.mul(set.count));
                    (set.name.clone(), set.count, set.requests.iter().map(total).collect(), BTreeMap::new())
                })
                .collect(),
        };
        diff.eq("totalRequests", &wanted, &got);
    }
    diff.eq_if("clusterQueue", cluster_queue.as_ref(), || match spec.state {
        WorkloadState::Reserved(held) => held.cluster_queue,
        WorkloadState::Pending { .. } => String::new(),
    });
    Ok(())
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct CountsInput {
    pod_sets: Option<Vec<Value>>,
    workload: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct CountsExpect {
    counts: Option<BTreeMap<String, i64>>,
}

/// Judges a case of kind `podset-counts` about the number of pods of each pod set of a Workload. Cases of kind `podset-counts` about workload slices do not
/// apply to Berth.
///
/// # Errors
/// A field of the case cannot be read.
pub fn counts(case: &Case) -> Result<Diff, String> {
    let input: CountsInput = case.input()?;
    let expect: CountsExpect = case.expect()?;
    let mut scene = Scene::new(case)?;
    let key = match input.workload {
        Some(key) => key,
        None => {
            scene.put(&json!({"kind": "Workload", "metadata": {"namespace": "ns", "name": "counted"},
                "spec": {"podSets": input.pod_sets.unwrap_or_default()}}))?;
            "ns/counted".to_owned()
        }
    };
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    let spec = scene.offline.control().workload_spec(namespace, name).ok_or("the workload is not known")?;
    let found: BTreeMap<String, i64> = spec.pod_sets.into_iter().map(|set| (set.name, set.count)).collect();
    let mut diff = Diff::default();
    diff.maps("counts", &expect.counts.unwrap_or_default(), &found);
    Ok(diff)
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn limit_ranges(case: &Case) -> Result<Vec<LimitRange>, String> {
    case.of_kind("LimitRange").map(|object| read(object.clone())).collect()
}

/// The LimitRanges that apply to the Workload: the LimitRanges of its namespace, or all LimitRanges if the Workload has no namespace.
fn limits_around(case: &Case, input: &Input) -> Result<LimitSummary, String> {
    let (namespace, _) = input.workload.as_deref().and_then(|key| key.split_once('/')).unwrap_or_default();
    let all = limit_ranges(case)?;
    let here = |range: &&LimitRange| {
        namespace.is_empty() || range.metadata.namespace.as_deref().unwrap_or_default() == namespace
    };
    Ok(LimitSummary::of(all.iter().filter(here)))
}

/// The Workload that a case is about: the Workload that the input names, or the first Workload of the case.
fn key(case: &Case, input: &Input) -> String {
    let first = || case.of_kind("Workload").next().map(crate::scene::key_of);
    input.workload.clone().or_else(first).unwrap_or_default()
}

fn pod_sets(case: &Case, input: &Input) -> Result<Vec<berth_api::PodSet>, String> {
    scene::workload(case, &key(case, input)).map(|workload| workload.spec.pod_sets)
}

fn specs(case: &Case, input: &Input) -> Result<Vec<PodSpec>, String> {
    Ok(pod_sets(case, input)?.into_iter().map(|set| set.template.spec.unwrap_or_default()).collect())
}

/// Name, number of pods and effective pod spec of each pod set: the effective spec has the defaults of LimitRanges and the overhead of RuntimeClasses.
fn effective(case: &Case, input: &Input) -> Result<Vec<EffectivePodSet>, String> {
    let limits = limits_around(case, input)?;
    let classes: Vec<RuntimeClass> =
        case.of_kind("RuntimeClass").map(|object| read(object.clone())).collect::<Result<_, _>>()?;
    let overhead = |name: &str| {
        let class = classes.iter().find(|class| class.metadata.name.as_deref() == Some(name))?;
        class.overhead.as_ref()?.pod_fixed.as_ref()
    };
    let profile = crate::scene::settings(case)?.engine.profile;
    let to_the_letter = !profile.has(Departure::RequestsAsTheApiServer);
    let rules = RequestRules { to_the_letter, ..RequestRules::default() };
    let effective = |set: berth_api::PodSet| {
        let spec = set.template.spec.unwrap_or_default();
        (set.name, set.count, spec_as_run(&spec, &limits, overhead, &rules))
    };
    Ok(pod_sets(case, input)?.into_iter().map(effective).collect())
}

fn found_errors(case: &Case, input: &Input) -> Result<Vec<Error>, String> {
    let found: Vec<Violation> = match (&input.pod_spec, &input.summary) {
        (Some(spec), summary) => {
            let summary = LimitSummary(summary.clone().unwrap_or_default());
            limit_range_violations(0, &read::<PodSpec>(spec.clone())?, &summary)
        }
        (None, _) => {
            let limits = limits_around(case, input)?;
            // Kueue has one function for the limits of a pod and one for LimitRanges, and each test of Kueue calls only one of them.
            let (own, around) = match case.source.rsplit('.').next() {
                Some("TestValidateResources") => (true, false),
                Some("TestValidateLimitRange") => (false, true),
                _ => (true, true),
            };
            let check = |(index, spec): (usize, &PodSpec)| {
                let own = own.then(|| limits_exceeded(index, spec)).into_iter().flatten();
                let around = around.then(|| limit_range_violations(index, spec, &limits)).into_iter().flatten();
                own.chain(around).collect::<Vec<_>>()
            };
            specs(case, input)?.iter().enumerate().flat_map(check).collect()
        }
    };
    let error = |violation: Violation| Error {
        kind: "FieldValueInvalid".to_owned(),
        field: violation.field,
        bad_value: sorted(&violation.resources),
        detail: violation.detail,
    };
    Ok(found.into_iter().map(error).collect())
}
