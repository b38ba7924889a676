//! Cases about fair shares of ClusterQueues, Cohorts and LocalQueues.

use crate::amounts::cells;
use crate::case::{Case, Cells};
use crate::diff::Diff;
use crate::scene::{Scene, key_of, text};
use berth_engine::Share;
use berth_engine::steps::weighted_usage;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Input {
    usage: BTreeMap<String, Cells>,
    additional_usage: Cells,
    cluster_queue: Option<String>,
    requested: Cells,
    fair_weight: f64,
    unweighted_ratio: f64,
    local_queue: Option<String>,
    local_queue_weight: f64,
    consumed_resources: BTreeMap<String, String>,
    entry_penalty: BTreeMap<String, String>,
    resource_weights: BTreeMap<String, f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Expect {
    shares: Option<Vec<NodeShare>>,
    borrowing: Option<bool>,
    borrowing_on_requested: Option<bool>,
    serialized: Option<String>,
    usage: Option<Value>,
    weight: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct NodeShare {
    kind: String,
    name: String,
    dominant_resource: Option<String>,
    weighted_share: Option<i64>,
    borrowing: Option<bool>,
}

/// Judges a case of kind `fair-share`.
///
/// # Errors
/// A field of the case cannot be read.
pub fn run(case: &Case) -> Result<Diff, String> {
    let input: Input = case.input()?;
    let Expect { shares, borrowing, borrowing_on_requested, serialized, usage, weight } = case.expect()?;
    let mut scene = Scene::new(case)?;
    scene.lay_usage(&input.usage)?;
    let extra = cells(&input.additional_usage)?;
    let mut diff = Diff::default();
    for want in shares.into_iter().flatten() {
        let place = format!("shares[{}]", want.name);
        let is_queue = match want.kind.as_str() {
            "ClusterQueue" => true,
            "Cohort" => false,
            other => return Err(format!("expect.shares: unknown kind {other:?}")),
        };
        let got = scene.offline.control().world().share(&want.name, is_queue, &extra);
        let Some(got) = got else {
            diff.note(format!("{place}: no such {}", want.kind));
            continue;
        };
        diff.eq_if(&format!("{place}.borrowing"), want.borrowing.as_ref(), || got.share.borrowing);
        diff.eq_if(&format!("{place}.weightedShare"), want.weighted_share.as_ref(), || got.share.rounded());
        diff.eq_if(&format!("{place}.dominantResource"), want.dominant_resource.as_ref(), || {
            got.dominant_resource.clone().unwrap_or_default()
        });
    }
    if borrowing.is_some() || borrowing_on_requested.is_some() {
        let queue = input.cluster_queue.as_deref().ok_or("input: clusterQueue is needed")?;
        let got = scene.offline.control().world().share(queue, true, &extra).ok_or("input: no such ClusterQueue")?;
        let requested = cells(&input.requested)?;
        diff.eq_if("borrowing", borrowing.as_ref(), || got.share.borrowing);
        let world = scene.offline.control().world();
        let on_requested = world.steps().borrows_requested(queue, &requested, &extra).unwrap_or_default();
        diff.eq_if("borrowingOnRequested", borrowing_on_requested.as_ref(), || on_requested);
    }
    diff.eq_if("serialized", serialized.as_ref(), || {
        let share = Share { ratio: input.unweighted_ratio, weight: input.fair_weight, borrowing: true };
        number(share.value())
    });
    if let Some(want) = usage {
        let mut parts: Vec<(&str, f64)> = Vec::new();
        for (resource, quantity) in input.consumed_resources.iter().chain(&input.entry_penalty) {
            let nano = berth_quantity::parse_quantity(quantity).map_err(|error| format!("{resource}: {error}"))?;
            parts.push((resource.as_str(), in_units(resource, nano.0)));
        }
        let got = number(weighted_usage(parts.into_iter(), &input.resource_weights, input.local_queue_weight));
        diff.eq("usage", &want.as_f64().map_or_else(|| want.as_str().unwrap_or_default().to_owned(), number), &got);
    }
    if let Some(want) = weight {
        let key = input.local_queue.as_deref().ok_or("input: localQueue is needed")?;
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let nano = scene.offline.control().local_queue_spec(namespace, name).weight;
        #[allow(clippy::cast_precision_loss, reason = "weights of cases are small")]
        let got = nano as f64 / 1e9;
        diff.eq("weight", &want, &got);
    }
    Ok(diff)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct PenaltyInput {
    workload: String,
    admission_mode: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PenaltyExpect {
    apply_penalty: bool,
}

/// Judges a case of kind `entry-penalty`: whether a cycle that admits the Workload charges the Workload's LocalQueue. A Workload that has a quota reservation
/// already is not admitted again, so its LocalQueue is not charged.
///
/// # Errors
/// A field of the case cannot be read.
pub fn entry_penalty(case: &Case) -> Result<Diff, String> {
    let input: PenaltyInput = case.input()?;
    let expect: PenaltyExpect = case.expect()?;
    let mut case = case.clone();
    let found = case.of_kind("Workload").find(|object| key_of(object) == input.workload);
    let workload = found.cloned().ok_or("input.workload: no such workload")?;
    let (namespace, local_queue) = (text(&workload, "/metadata/namespace"), text(&workload, "/spec/queueName"));
    let containers = workload.pointer("/spec/podSets").and_then(Value::as_array).into_iter().flatten();
    let containers = containers.filter_map(|set| set.pointer("/template/spec/containers")?.as_array()).flatten();
    let requests = containers.filter_map(|container| container.pointer("/resources/requests")?.as_object());
    let resources: BTreeSet<&String> = requests.flat_map(|requests| requests.keys()).collect();
    let quotas: Vec<Value> = resources.iter().map(|resource| json!({"name": resource, "nominalQuota": "1P"})).collect();
    let mode = Some(&input.admission_mode).filter(|mode| !mode.is_empty());
    let queue = json!({"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"namespaceSelector": {},
        "admissionScope": mode.map(|mode| json!({"admissionMode": mode})),
        "resourceGroups": [{"coveredResources": resources, "flavors": [{"name": "default", "resources": quotas}]}]}});
    case.objects.extend([
        json!({"kind": "Namespace", "metadata": {"name": namespace}}),
        json!({"kind": "ResourceFlavor", "metadata": {"name": "default"}, "spec": {}}),
        queue,
        json!({"kind": "LocalQueue", "metadata": {"namespace": namespace, "name": local_queue},
            "spec": {"clusterQueue": "cq"}}),
    ]);
    let mut scene = Scene::new(&case)?;
    scene.offline.run(1);
    let usage = scene.offline.control().world().local_queue_usage(&namespace, &local_queue);
    let mut diff = Diff::default();
    diff.eq("applyPenalty", &expect.apply_penalty, &usage.is_some_and(|usage| usage > 0.0));
    Ok(diff)
}

/// An amount in nano units as a number of the units in which quota is counted.
#[allow(clippy::cast_precision_loss, reason = "amounts of cases are small")]
fn in_units(resource: &str, nano: i128) -> f64 {
    let unit: i128 = if resource == "cpu" { 1_000_000 } else { 1_000_000_000 };
    if nano % unit == 0 { (nano / unit) as f64 } else { nano as f64 / unit as f64 }
}

/// A number in the text form of Kueue's cases.
fn number(value: f64) -> String {
    if value.is_infinite() { "+Inf".to_owned() } else { value.to_string() }
}
