//! Cases about quota: available and used amounts, statuses of queues, and whether a ClusterQueue is active.

use crate::amounts::{amount, amounts};
use crate::case::{Case, Cells};
use crate::diff::{Diff, sorted};
use crate::scene::{Scene, text};
use berth_control::write::Kind;
use berth_engine::{Amount, Readiness, ResourceGroup};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

type Amounts = BTreeMap<String, BTreeMap<String, Amount>>;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct AvailabilityInput {
    usage: BTreeMap<String, Cells>,
    cohort: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct AvailabilityExpect {
    available: Option<BTreeMap<String, Cells>>,
    potentially_available: Option<BTreeMap<String, Cells>>,
    #[serde(deserialize_with = "crate::case::expected")]
    lendable: Option<BTreeMap<String, String>>,
}

/// Judges a case of kind `availability`: the quota available to each queue.
///
/// # Errors
/// A field of the case cannot be read.
pub fn availability(case: &Case) -> Result<Diff, String> {
    let input: AvailabilityInput = case.input()?;
    let AvailabilityExpect { available, potentially_available, lendable } = case.expect()?;
    let mut scene = Scene::new(case)?;
    scene.lay_usage(&input.usage)?;
    let world = scene.offline.control().world();
    let mut diff = Diff::default();
    for (place, want, now) in [("available", available, true), ("potentiallyAvailable", potentially_available, false)] {
        for (queue, flavors) in want.into_iter().flatten() {
            for (flavor, resources) in flavors {
                for (resource, text) in resources {
                    let got = world.availability(&queue, &flavor, &resource);
                    let got = got.map(|(available, potential)| if now { available } else { potential });
                    diff.eq(&format!("{place}/{queue}/{flavor}/{resource}"), &Some(amount(&resource, &text)?), &got);
                }
            }
        }
    }
    if let Some(want) = lendable {
        let cohort = input.cohort.ok_or("input: no cohort")?;
        let got = world.steps().lendable(&cohort).ok_or_else(|| format!("input.cohort: no cohort {cohort}"))?;
        diff.maps("lendable", &amounts(&want)?, &got);
    }
    Ok(diff)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct SnapshotInput {
    remove: Vec<String>,
    add: Vec<String>,
    then_apply: Vec<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct SnapshotExpect {
    #[serde(deserialize_with = "crate::case::expected")]
    cluster_queues: Option<BTreeMap<String, Node>>,
    #[serde(deserialize_with = "crate::case::expected")]
    cohorts: Option<BTreeMap<String, Node>>,
    #[serde(deserialize_with = "crate::case::expected")]
    inactive_cluster_queues: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Node {
    status: Option<String>,
    cohort: Option<String>,
    fair_weight: Option<f64>,
    quotas: Option<BTreeMap<String, BTreeMap<String, Quota>>>,
    usage: Option<Cells>,
    subtree_quota: Option<Cells>,
    workloads: Option<Vec<String>>,
    /// Facts about Kueue's inner state, which the runner does not compare.
    #[serde(rename = "internal")]
    _internal: Option<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Quota {
    nominal: Option<String>,
    borrowing_limit: Option<String>,
    lending_limit: Option<String>,
}

/// Judges a case of kind `snapshot`: quotas, usage and Workloads of each ClusterQueue and Cohort.
///
/// # Errors
/// A field of the case cannot be read.
pub fn snapshot(case: &Case) -> Result<Diff, String> {
    let input: SnapshotInput = case.input()?;
    let expect: SnapshotExpect = case.expect()?;
    let mut scene = Scene::new(case)?;
    for key in &input.remove {
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        scene.offline.remove(Kind::Workload, namespace, name);
    }
    for key in &input.add {
        let object = case.of_kind("Workload").find(|object| crate::scene::key_of(object) == *key);
        scene.put(object.ok_or_else(|| format!("input.add: no workload {key}"))?)?;
    }
    for object in &input.then_apply {
        scene.put(object)?;
    }
    // If a case removes or adds Workloads, an empty list of expected Workloads of a ClusterQueue with usage is not compared.
    let edited = !input.remove.is_empty() || !input.add.is_empty();
    let held = super::statuses::assignments(&scene)?;
    let queues = scene.cluster_queues();
    let control = scene.offline.control();
    let all = queues.clone();
    let (active, inactive): (Vec<String>, Vec<String>) = queues
        .into_iter()
        .partition(|queue| control.world().readiness(queue).is_some_and(|readiness| readiness.active));
    let mut diff = Diff::default();
    diff.eq_if("inactiveClusterQueues", expect.inactive_cluster_queues.map(|list| sorted(&list)).as_ref(), || inactive);
    if let Some(want) = expect.cluster_queues {
        diff.eq("clusterQueues", &want.keys().cloned().collect::<Vec<_>>(), &active);
        for (name, want) in want {
            let Some(spec) = control.cluster_queue_spec(&name) else { continue };
            let held = held.iter().filter(|(_, admission)| admission.cluster_queue.as_deref() == Some(&name));
            let held: Vec<String> = held.map(|(key, _)| key.clone()).collect();
            let place = format!("clusterQueues/{name}");
            let is_used =
                want.usage.iter().flatten().flat_map(|(_, resources)| resources.values()).any(|text| text != "0");
            let unlisted = |list: &Vec<String>| edited && is_used && list.is_empty();
            let listed = want.workloads.as_ref().filter(|list| !unlisted(list)).map(|list| sorted(list));
            diff.eq_if(&format!("{place}/workloads"), listed.as_ref(), || held);
            diff.eq_if(&format!("{place}/status"), want.status.as_ref(), || {
                let is_active = control.world().readiness(&name).is_some_and(|readiness| readiness.active);
                if is_active { "active".to_owned() } else { "pending".to_owned() }
            });
            diff.eq_if(&format!("{place}/cohort"), want.cohort.as_ref(), || spec.cohort.clone().unwrap_or_default());
            let rows = control.world().snapshot(&name, true);
            node(&mut diff, &place, &want, (spec.weight, &spec.groups), &rows)?;
        }
    }
    if let Some(want) = expect.cohorts {
        // The expected Cohorts include the Cohorts of inactive ClusterQueues.
        let cohorts: BTreeSet<String> = control.cohorts_above(&all);
        diff.eq("cohorts", &want.keys().cloned().collect::<BTreeSet<_>>(), &cohorts);
        for (name, mut want) in want {
            // The weight of a Cohort without an object is not compared: the weight is 1 in the API, and 0 in Kueue's snapshot.
            let object = case.of_kind("Cohort").any(|object| text(object, "/metadata/name") == name);
            want.fair_weight = want.fair_weight.filter(|_| object);
            if want.status.is_some() {
                diff.note(format!("cohorts/{name}: a cohort has no status"));
            }
            let spec = control.cohort_spec(&name);
            let rows = control.world().snapshot(&name, false);
            node(&mut diff, &format!("cohorts/{name}"), &want, (spec.weight, &spec.groups), &rows)?;
        }
    }
    Ok(diff)
}

type Row = (String, String, Amount, Amount);
/// Nominal quota, borrowing limit and lending limit of a flavor and resource.
type Limits = (Option<Amount>, Option<Amount>, Option<Amount>);

fn node(
    diff: &mut Diff,
    place: &str,
    want: &Node,
    (weight, groups): (i64, &[ResourceGroup]),
    rows: &[Row],
) -> Result<(), String> {
    #[allow(clippy::cast_precision_loss, reason = "weights of cases are small")]
    let nano = weight as f64 / 1e9;
    diff.eq_if(&format!("{place}/fairWeight"), want.fair_weight.as_ref(), || nano);
    if let Some(want) = &want.quotas {
        quotas(diff, &format!("{place}/quotas"), want, groups)?;
    }
    for (field, want, of) in [
        ("usage", &want.usage, (|row: &Row| row.2) as fn(&Row) -> Amount),
        ("subtreeQuota", &want.subtree_quota, |row| row.3),
    ] {
        // An absent list of usage in a case means an empty list.
        let empty = Cells::new();
        let want = want.as_ref().unwrap_or(&empty);
        let mut wanted = Amounts::new();
        for (flavor, resources) in want {
            wanted.insert(flavor.clone(), amounts(resources)?);
        }
        let mut found = Amounts::new();
        for row in rows {
            let named = want.get(&row.0).is_some_and(|resources| resources.contains_key(&row.1));
            if named || of(row) != Amount::ZERO {
                found.entry(row.0.clone()).or_default().insert(row.1.clone(), of(row));
            }
        }
        for (flavor, resources) in &wanted {
            // The engine has no row for a flavor and resource without usage, so expected zeros are added to the result.
            for (resource, amount) in resources.iter().filter(|(_, amount)| **amount == Amount::ZERO) {
                found.entry(flavor.clone()).or_default().entry(resource.clone()).or_insert(*amount);
            }
        }
        diff.maps(&format!("{place}/{field}"), &wanted, &found);
    }
    Ok(())
}

fn quotas(
    diff: &mut Diff,
    place: &str,
    want: &BTreeMap<String, BTreeMap<String, Quota>>,
    groups: &[ResourceGroup],
) -> Result<(), String> {
    let mut got: BTreeMap<String, Limits> = BTreeMap::new();
    for group in groups {
        for flavor in &group.flavors {
            for (resource, quota) in group.covered.iter().zip(&flavor.quotas) {
                let key = format!("{}/{resource}", flavor.flavor);
                got.insert(key, (Some(quota.nominal), quota.borrowing_limit, quota.lending_limit));
            }
        }
    }
    let mut wanted = BTreeMap::new();
    for (flavor, resources) in want {
        for (resource, quota) in resources {
            let read = |text: &Option<String>| text.as_deref().map(|text| amount(resource, text)).transpose();
            // An absent borrowing or lending limit means that there is no such limit.
            let limit = |text: &Option<String>| read(text).map(|limit| limit.filter(|limit| !limit.is_unlimited()));
            let quota = (read(&quota.nominal)?, limit(&quota.borrowing_limit)?, limit(&quota.lending_limit)?);
            wanted.insert(format!("{flavor}/{resource}"), quota);
        }
    }
    diff.maps(place, &wanted, &got);
    Ok(())
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct UsageInput {
    cluster_queue: Option<String>,
    local_queue: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct UsageExpect {
    reserving_workloads: Option<i64>,
    admitted_workloads: Option<i64>,
    #[serde(deserialize_with = "crate::case::expected")]
    flavors_reservation: Option<Vec<Value>>,
    #[serde(deserialize_with = "crate::case::expected")]
    flavors_usage: Option<Vec<Value>>,
    #[serde(deserialize_with = "crate::case::expected")]
    not_counted: Option<Vec<String>>,
}

/// Judges a case of kind `usage-status`: the status of a queue that control writes.
///
/// # Errors
/// A field of the case cannot be read.
pub fn usage_status(case: &Case) -> Result<Diff, String> {
    let input: UsageInput = case.input()?;
    let UsageExpect { reserving_workloads, admitted_workloads, flavors_reservation, flavors_usage, not_counted } =
        case.expect()?;
    let mut scene = Scene::new(case)?;
    scene.offline.run(0);
    let (kind, key) = match (&input.cluster_queue, &input.local_queue) {
        (Some(name), None) => (Kind::ClusterQueue, name),
        (None, Some(name)) => (Kind::LocalQueue, name),
        _ => return Err("input: clusterQueue or localQueue is needed".to_owned()),
    };
    let status = scene.object(kind, key).and_then(|object| object.get("status")).cloned().unwrap_or_default();
    let count = |field: &str| status.get(field).and_then(Value::as_i64).unwrap_or_default();
    let mut diff = Diff::default();
    diff.eq_if("reservingWorkloads", reserving_workloads.as_ref(), || count("reservingWorkloads"));
    diff.eq_if("admittedWorkloads", admitted_workloads.as_ref(), || count("admittedWorkloads"));
    for (field, want) in [("flavorsReservation", flavors_reservation), ("flavorsUsage", flavors_usage)] {
        let got = status.get(field).cloned().unwrap_or_else(|| json!([]));
        diff.eq_if(field, want.map(|want| flavors(&Value::Array(want))).as_ref(), || flavors(&got));
    }
    if let Some(want) = not_counted {
        let all: Vec<String> = scene.workloads().map(|(key, _)| key).collect();
        let holders = match (&input.cluster_queue, key.split_once('/')) {
            (None, Some((namespace, name))) => {
                let world = scene.offline.control().world();
                let queue = world.cluster_queue_of(namespace, name).map(str::to_owned).unwrap_or_default();
                world.steps().holders(&queue, Some((namespace, name)))
            }
            _ => scene.offline.control().world().steps().holders(key, None),
        };
        let holders = scene.names(&holders);
        let free = all.iter().filter(|key| !holders.contains(key));
        let names = free.map(|key| key.rsplit('/').next().unwrap_or_default().to_owned());
        diff.eq("notCounted", &sorted(&want), &sorted(&names.collect::<Vec<_>>()));
    }
    Ok(diff)
}

/// Flavor, resource, total and borrowed amount of each entry of a status's usage list, in order; an absent `borrowed` means zero.
fn flavors(list: &Value) -> Vec<(String, String, String, String)> {
    let items = |list: Option<&Value>| list.and_then(Value::as_array).cloned().unwrap_or_default();
    let mut rows = Vec::new();
    for flavor in items(Some(list)) {
        let resources = items(flavor.get("resources"));
        if resources.is_empty() {
            rows.push((text(&flavor, "/name"), String::new(), String::new(), String::new()));
        }
        for resource in resources {
            let name = text(&resource, "/name");
            let canonical = |field: &str| {
                let text = text(&resource, field);
                let amount = if text.is_empty() { Ok(Amount::ZERO) } else { amount(&name, &text) };
                amount.map_or(text, |amount| berth_quantity::format(&name, amount))
            };
            rows.push((text(&flavor, "/name"), name.clone(), canonical("/total"), canonical("/borrowed")));
        }
    }
    rows
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ReadinessInput {
    cluster_queue: String,
    terminating: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ReadinessExpect {
    status: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    active: Option<bool>,
    terminating: Option<bool>,
}

/// Judges a case of kind `readiness`: the condition `Active` that control writes.
///
/// # Errors
/// A field of the case cannot be read.
pub fn readiness(case: &Case) -> Result<Diff, String> {
    let input: ReadinessInput = case.input()?;
    let ReadinessExpect { status, reason, message, active, terminating } = case.expect()?;
    let mut case = case.clone();
    for object in case.objects.iter_mut().filter(|_| input.terminating) {
        let is_queue = text(object, "/kind") == "ClusterQueue" && text(object, "/metadata/name") == input.cluster_queue;
        if let (true, Some(Value::Object(metadata))) = (is_queue, object.get_mut("metadata")) {
            metadata.insert("deletionTimestamp".to_owned(), json!("2026-01-01T00:00:00Z"));
            metadata.insert("finalizers".to_owned(), json!(["kueue.x-k8s.io/resource-in-use"]));
        }
    }
    let mut scene = Scene::new(&case)?;
    let found = scene.offline.control().world().readiness(&input.cluster_queue);
    // A ClusterQueue that does not exist has no readiness, so its fields are compared as empty.
    let value_of = |part: fn(&Readiness) -> String| found.as_ref().map(part).unwrap_or_default();
    let mut diff = Diff::default();
    diff.eq_if("status", status.as_ref(), || {
        value_of(|found| if found.active { "True".to_owned() } else { "False".to_owned() })
    });
    diff.eq_if("reason", reason.as_ref(), || value_of(|found| found.reason.to_owned()));
    diff.eq_if("message", message.as_ref(), || value_of(|found| found.message.clone()));
    diff.eq_if("active", active.as_ref(), || found.as_ref().is_some_and(|found| found.active));
    diff.eq_if("terminating", terminating.as_ref(), || {
        found.as_ref().is_some_and(|found| found.reason == "Terminating")
    });
    Ok(diff)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ChecksInput {
    workload: String,
    cluster_queue: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ChecksExpect {
    admission_checks: Option<Vec<String>>,
}

/// Judges a case of kind `admission-checks`: the checks that apply to a Workload.
///
/// # Errors
/// A field of the case cannot be read.
pub fn admission_checks(case: &Case) -> Result<Diff, String> {
    let input: ChecksInput = case.input()?;
    let expect: ChecksExpect = case.expect()?;
    let mut scene = Scene::new(case)?;
    let (namespace, name) = input.workload.split_once('/').unwrap_or_default();
    let got = scene.offline.control().checks_of(namespace, name, &input.cluster_queue);
    let mut diff = Diff::default();
    // An absent list of admission checks means an empty list.
    let want = sorted(&expect.admission_checks.unwrap_or_default());
    diff.eq("admissionChecks", &Some(want), &got.map(|list| sorted(&list)));
    Ok(diff)
}
