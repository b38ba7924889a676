//! What a workload holds.

use super::{amount, cells};
use crate::case::{Case, Cells};
use crate::diff::Diff;
use crate::scene::{Scene, text};
use berth_engine::{Amount, Delta, FlavorResource, PodSetAssignment, Replaced, WorkloadSpec, WorkloadState, World};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct UsageInput {
    workload: Option<String>,
    assignment: Option<Value>,
    total_requests: Vec<Totals>,
    replaced_workload_slice: Option<super::assignment::Older>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Totals {
    name: String,
    #[serde(rename = "count")]
    _count: i64,
    requests: BTreeMap<String, String>,
    flavors: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct UsageExpect {
    usage: Option<Cells>,
    unassigned_usage: Option<BTreeMap<String, String>>,
}

/// Books a workload as the one that takes the place of another, which holds `pod_sets`.
fn stand_in_place(world: &mut World, new: WorkloadSpec, pod_sets: Vec<PodSetAssignment>) -> Result<(), String> {
    let (uid, mut older) = ("older".to_owned(), new.clone());
    older.uid.clone_from(&uid);
    if let WorkloadState::Reserved(held) = &mut older.state {
        held.pod_sets.clone_from(&pod_sets);
    }
    let new = WorkloadSpec { replaces: Some(Replaced { uid, pod_sets }), ..new };
    for spec in [older, new] {
        world.apply(Delta::Workload(spec)).map_err(|refusal| refusal.to_string())?;
    }
    Ok(())
}

/// Kind `usage`: what a workload with that admission holds.
///
/// # Errors
/// What cannot be read.
pub fn usage(case: &Case) -> Result<Diff, String> {
    let input: UsageInput = case.input()?;
    let UsageExpect { usage, unassigned_usage } = case.expect()?;
    let sets = input.assignment.iter().filter_map(|assignment| assignment.get("podSets")?.as_array()).flatten();
    let given: BTreeMap<String, BTreeMap<String, String>> = sets
        .map(|set| {
            let flavors = set.get("flavors").and_then(Value::as_object).cloned().unwrap_or_default();
            let flavors = flavors.into_iter().map(|(resource, flavor)| (resource, text(&flavor, "/name"))).collect();
            (text(set, "/name"), flavors)
        })
        .collect();
    let mut case = case.clone();
    let assignments: Vec<Value> = input
        .total_requests
        .iter()
        .enumerate()
        .map(|(index, set)| {
            let name = if set.name.is_empty() { format!("set-{index}") } else { set.name.clone() };
            let flavors = set.flavors.clone().or_else(|| given.get(&set.name).cloned()).unwrap_or_default();
            json!({"name": name, "count": 1, "flavors": flavors, "resourceUsage": set.requests})
        })
        .collect();
    let key = input.workload.clone().unwrap_or_else(|| "/holder".to_owned());
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    case.objects = vec![json!({"kind": "Workload", "metadata": {"namespace": namespace, "name": name},
        "spec": {"podSets": []}, "status": {
            "admission": {"clusterQueue": "cq", "podSetAssignments": assignments},
            "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
                "lastTransitionTime": "1970-01-01T00:00:00Z"}]}})];
    let mut scene = Scene::new(&case)?;
    let mut diff = Diff::default();
    if let Some(want) = usage {
        let mut older: BTreeMap<FlavorResource, i64> = BTreeMap::new();
        if let Some(slice) = &input.replaced_workload_slice {
            let told = scene.offline.control().told(namespace, name).ok_or("the workload is not known")?;
            let pod_sets = slice.given(&given)?;
            for set in &pod_sets {
                for (resource, used) in &set.usage {
                    let flavor = set.flavors.get(resource).cloned().unwrap_or_default();
                    *older.entry(FlavorResource { flavor, resource: resource.clone() }).or_default() += used.get();
                }
            }
            stand_in_place(scene.offline.control().world(), told, pod_sets)?;
        }
        // What is booked on the older slice is not what the new one asks for.
        let asked = |(flavor, resource, used, _): (String, String, Amount, Amount)| {
            let cell = FlavorResource { flavor, resource };
            let used = Amount::new(used.get() - older.get(&cell).copied().unwrap_or_default());
            (cell, used)
        };
        let rows = scene.offline.control().world().snapshot("cq", true);
        let got: BTreeMap<FlavorResource, _> = rows.into_iter().map(asked).collect();
        diff.eq("usage", &cells(&want)?, &got);
    }
    // Nothing unassigned is written as null.
    let told = scene.offline.control().told(namespace, name).ok_or("the workload is not known")?;
    if case.expect.get("unassignedUsage").is_some() {
        let mut got: BTreeMap<String, Amount> = BTreeMap::new();
        if let WorkloadState::Reserved(held) = told.state {
            for set in held.pod_sets {
                for (resource, used) in set.usage.iter().filter(|(resource, _)| !set.flavors.contains_key(*resource)) {
                    let sum = got.entry(resource.clone()).or_default();
                    *sum = sum.add(*used);
                }
            }
        }
        let mut wanted = BTreeMap::new();
        for (resource, text) in unassigned_usage.unwrap_or_default() {
            wanted.insert(resource.clone(), amount(&resource, &text)?);
        }
        diff.eq("unassignedUsage", &wanted, &got);
    }
    Ok(diff)
}
