//! Cases about the usage of a Workload with quota, or of an assignment.

use super::assignment::{Older, Total};
use crate::amounts::{amount, cells};
use crate::case::{Case, Cells};
use crate::diff::Diff;
use crate::scene::{Scene, text};
use berth_engine::{Amount, FlavorResource, PodSetAssignment, WorkloadState};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Input {
    workload: Option<String>,
    assignment: Option<Value>,
    total_requests: Vec<Total>,
    replaced_workload_slice: Option<Older>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Expect {
    usage: Option<Cells>,
    unassigned_usage: Option<BTreeMap<String, String>>,
}

/// Judges a case of kind `usage`: the quota that an assignment needs beyond the quota of the slice that its Workload replaces. A case without an assignment is
/// about the quota that is charged for a Workload with the case's total requests.
///
/// # Errors
/// A field of the case cannot be read.
pub fn usage(case: &Case) -> Result<Diff, String> {
    let input: Input = case.input()?;
    let Expect { usage, unassigned_usage } = case.expect()?;
    let flavors = flavors(input.assignment.as_ref());
    let mut totals = Vec::new();
    for (index, total) in input.total_requests.iter().enumerate() {
        let mut set = total.given(&flavors)?;
        if set.name.is_empty() {
            set.name = format!("set-{index}");
        }
        totals.push(set);
    }
    let mut diff = Diff::default();
    if let Some(want) = usage {
        let got = match &input.assignment {
            Some(_) => asked(case, &input, &flavors, &totals)?,
            None => held(case, &totals)?.0,
        };
        diff.eq("usage", &cells(&want)?, &got);
    }
    // A case writes null if it expects an empty `unassignedUsage`.
    if case.expect.get("unassignedUsage").is_some() {
        let mut wanted = BTreeMap::new();
        for (resource, text) in unassigned_usage.unwrap_or_default() {
            wanted.insert(resource.clone(), amount(&resource, &text)?);
        }
        diff.eq("unassignedUsage", &wanted, &held(case, &totals)?.1);
    }
    Ok(diff)
}

/// Flavors of an assignment, by pod set and resource.
fn flavors(assignment: Option<&Value>) -> BTreeMap<String, BTreeMap<String, String>> {
    let sets = assignment.and_then(|assignment| assignment.get("podSets")?.as_array()).into_iter().flatten();
    let given = |set: &Value| {
        let flavors = set.get("flavors").and_then(Value::as_object).cloned().unwrap_or_default();
        let flavors = flavors.into_iter().map(|(resource, flavor)| (resource, text(&flavor, "/name"))).collect();
        (text(set, "/name"), flavors)
    };
    sets.map(given).collect()
}

fn asked(
    case: &Case,
    input: &Input,
    flavors: &BTreeMap<String, BTreeMap<String, String>>,
    totals: &[PodSetAssignment],
) -> Result<BTreeMap<FlavorResource, Amount>, String> {
    let mut scene = Scene::new(case)?;
    let replaced = match &input.replaced_workload_slice {
        Some(older) => older.given(case, &mut scene, flavors)?,
        None => None,
    };
    let sets = input.assignment.as_ref().and_then(|assignment| assignment.get("podSets")?.as_array());
    let count = |set: &Value| set.get("count").and_then(Value::as_i64).unwrap_or_default();
    let counts: Vec<i64> = sets.into_iter().flatten().map(count).collect();
    Ok(scene.offline.control().world().steps().usage_asked(totals, &counts, replaced.as_deref()))
}

/// Charged usage of a Workload by flavor and resource, and by resource the requested amounts that have no flavor.
type HeldUsage = (BTreeMap<FlavorResource, Amount>, BTreeMap<String, Amount>);

/// Usage that control charges for a reserved Workload whose pod sets have the total requests and flavors `totals`.
fn held(case: &Case, totals: &[PodSetAssignment]) -> Result<HeldUsage, String> {
    let quantities = |set: &PodSetAssignment| -> BTreeMap<String, String> {
        let text =
            |(resource, amount): (&String, &Amount)| (resource.clone(), berth_quantity::format(resource, *amount));
        set.usage.iter().map(text).collect()
    };
    let sets = totals.iter().map(
        |set| json!({"name": set.name, "count": set.count, "flavors": set.flavors, "resourceUsage": quantities(set)}),
    );
    let specs = totals
        .iter()
        .map(|set| json!({"name": set.name, "count": set.count, "template": {"spec": {"containers": []}}}));
    let mut case = case.clone();
    case.objects = vec![json!({"kind": "Workload", "metadata": {"namespace": "", "name": "holder"},
        "spec": {"podSets": specs.collect::<Vec<_>>()}, "status": {
            "admission": {"clusterQueue": "cq", "podSetAssignments": sets.collect::<Vec<_>>()},
            "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
                "lastTransitionTime": "1970-01-01T00:00:00Z"}]}})];
    let mut scene = Scene::new(&case)?;
    let rows = scene.offline.control().world().snapshot("cq", true);
    let held_usage = rows.into_iter().map(|(flavor, resource, used, _)| (FlavorResource { flavor, resource }, used));
    let spec = scene.offline.control().workload_spec("", "holder").ok_or("the workload is not known")?;
    let mut unassigned: BTreeMap<String, Amount> = BTreeMap::new();
    if let WorkloadState::Reserved(held) = spec.state {
        for set in held.pod_sets {
            for (resource, used) in set.usage.iter().filter(|(resource, _)| !set.flavors.contains_key(*resource)) {
                let sum = unassigned.entry(resource.clone()).or_default();
                *sum = sum.add(*used);
            }
        }
    }
    Ok((held_usage.collect(), unassigned))
}
