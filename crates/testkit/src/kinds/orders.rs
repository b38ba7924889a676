//! Cases about orders and preferences: preemption candidates and targets, heads of a cycle, flavors, and reduced pod counts.

use crate::amounts::cells;
use crate::case::{Case, Cells};
use crate::diff::Diff;
use crate::scene::{self, Scene, key_of, text};
use berth_engine::steps::{
    FairShareValues, Granular, Mode, Nominee, compare_fair_share, flavor_preferred, policy_allows, reduce_counts,
};
use berth_engine::{FlavorResource, PreemptionPolicy, Share, WorkloadSpec};
use serde::Deserialize;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CandidatesInput {
    preemptor_cluster_queue: String,
    candidates: Vec<Candidate>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Candidate {
    workload: String,
    local_queue_usage: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    order: Vec<String>,
}

/// Judges a case of kind `candidate-order`.
///
/// # Errors
/// A field of the case cannot be read.
pub fn candidates(case: &Case) -> Result<Diff, String> {
    let input: CandidatesInput = case.input()?;
    let expect: Order = case.expect()?;
    let mut case = case.clone();
    let with_usage = input.candidates.iter().filter(|candidate| candidate.local_queue_usage.is_some());
    let own = &input.preemptor_cluster_queue;
    let is_named = case.of_kind("ClusterQueue").any(|queue| text(queue, "/metadata/name") == *own);
    // The preemptor's ClusterQueue is added to the case if the case has no object for it, as in cases in which it has no candidate.
    let unnamed = json!({"kind": "ClusterQueue", "metadata": {"name": own}, "spec": {"namespaceSelector": {}}});
    let mut added: Vec<Value> = if is_named { Vec::new() } else { vec![unnamed] };
    let now = case.now.clone().unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned());
    let is_candidate = |object: &&mut Value| {
        text(object, "/kind") == "Workload" && input.candidates.iter().any(|one| one.workload == key_of(object))
    };
    for workload in case.objects.iter_mut().filter(is_candidate) {
        reserve_now(workload, &now);
    }
    for candidate in with_usage {
        let workload = scene::workload(&case, &candidate.workload)?;
        let admission = workload.status.and_then(|status| status.admission).unwrap_or_default();
        let queue = admission.cluster_queue.unwrap_or_default();
        let usage = candidate.local_queue_usage.unwrap_or_default();
        added.push(json!({"kind": "ClusterQueue", "metadata": {"name": queue}, "spec": {"namespaceSelector": {},
            "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}}));
        // A usage of cpu alone, with weight 1 of the resource and of the LocalQueue, gives exactly the usage that the case names.
        added.push(json!({"kind": "LocalQueue",
            "metadata": {"namespace": workload.metadata.namespace, "name": workload.spec.queue_name},
            "spec": {"clusterQueue": queue},
            "status": {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": {
                "consumedResources": {"cpu": format!("{}m", (usage * 1000.0).round())},
                "lastUpdate": case.now}}}}));
    }
    case.objects.extend(added);
    let mut scene = Scene::new(&case)?;
    let known = |candidate: &Candidate| (scene.uid(&candidate.workload), candidate.local_queue_usage);
    let known: Vec<(String, Option<f64>)> = input.candidates.iter().map(known).collect();
    let uids: Vec<&str> = known.iter().map(|(uid, _)| uid.as_str()).collect();
    let without: Vec<&str> = known.iter().filter(|(_, used)| used.is_none()).map(|(uid, _)| uid.as_str()).collect();
    let got = scene.offline.control().world().steps().candidate_order(&input.preemptor_cluster_queue, &uids, &without);
    let mut diff = Diff::default();
    diff.eq("order", &expect.order, &scene.names(&got));
    Ok(diff)
}

/// Gives a preemption candidate without a reservation time a reservation now.
fn reserve_now(workload: &mut Value, now: &str) {
    let is_it = |condition: &Value| text(condition, "/type") == "QuotaReserved";
    let Some(Value::Object(status)) = workload.get_mut("status") else { return };
    let Value::Array(conditions) = status.entry("conditions").or_insert_with(|| json!([])) else { return };
    if conditions.iter().any(|condition| is_it(condition) && text(condition, "/status") == "True") {
        return;
    }
    conditions.retain(|condition| !is_it(condition));
    conditions.push(json!({"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
        "lastTransitionTime": now}));
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct TargetsInput {
    preemptor_cluster_queue: String,
    candidate_cluster_queues: Vec<String>,
    actions: Vec<String>,
}

/// Judges a case of kind `target-order`.
///
/// # Errors
/// A field of the case cannot be read.
pub fn targets(case: &Case) -> Result<Diff, String> {
    let input: TargetsInput = case.input()?;
    let expect: Order = case.expect()?;
    let mut scene = Scene::new(case)?;
    let held = super::statuses::assignments(&scene)?;
    let offered = |queue: &Option<String>| queue.as_ref().is_some_and(|q| input.candidate_cluster_queues.contains(q));
    let uids: Vec<String> =
        held.iter().filter(|(_, admission)| offered(&admission.cluster_queue)).map(|(key, _)| scene.uid(key)).collect();
    let uids: Vec<&str> = uids.iter().map(String::as_str).collect();
    let drops = input.actions.iter().map(|action| match action.as_str() {
        "drop" => Ok(true),
        "pop" => Ok(false),
        other => Err(format!("input.actions: unknown {other:?}")),
    });
    let drops: Vec<bool> = drops.collect::<Result<_, _>>()?;
    let got = scene.offline.control().world().steps().target_order(&input.preemptor_cluster_queue, &uids, &drops);
    let mut diff = Diff::default();
    diff.eq("order", &expect.order, &got);
    Ok(diff)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyInput {
    preemptor: String,
    candidate: String,
    policy: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyExpect {
    satisfied: bool,
}

/// Judges a case of kind `preemption-policy`.
///
/// # Errors
/// A field of the case cannot be read.
pub fn policy(case: &Case) -> Result<Diff, String> {
    let input: PolicyInput = case.input()?;
    let expect: PolicyExpect = case.expect()?;
    let policy: PreemptionPolicy = input.policy.parse().map_err(|error| format!("input.policy: {error}"))?;
    let mut scene = Scene::new(case)?;
    let preemptor = spec_of(&mut scene, &input.preemptor)?;
    let candidate = spec_of(&mut scene, &input.candidate)?;
    let key = |spec: &WorkloadSpec| (spec.priority, spec.queued_at);
    let mut diff = Diff::default();
    diff.eq("satisfied", &expect.satisfied, &policy_allows(policy, key(&preemptor), key(&candidate)));
    Ok(diff)
}

/// The engine's spec of a Workload, as control makes it.
fn spec_of(scene: &mut Scene, key: &str) -> Result<WorkloadSpec, String> {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    scene.offline.control().workload_spec(namespace, name).ok_or_else(|| format!("objects: no workload {key}"))
}

/// A Workload as a head of a cycle, without results of the cycle.
fn nominee(scene: &mut Scene, key: &str) -> Result<Nominee, String> {
    let spec = spec_of(scene, key)?;
    let uid = scene.shown_uid(&spec.uid);
    Ok(Nominee { tie: uid.as_str().into(), priority: spec.priority, queued_at: spec.queued_at, ..Nominee::default() })
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct EntriesInput {
    entries: Vec<Entry>,
    a: Option<Entry>,
    b: Option<Entry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Entry {
    workload: String,
    borrowing: u32,
    preemptor: bool,
    requested: Cells,
    share: Option<ShareInput>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ShareInput {
    borrowing: bool,
    borrowed_flavor_resources: Vec<String>,
    fair_weight: f64,
    unweighted_ratio: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EntriesExpect {
    order: Option<Vec<String>>,
    less: Option<bool>,
}

/// Judges a case of kind `entry-order`.
///
/// # Errors
/// A field of the case cannot be read.
pub fn entries(case: &Case) -> Result<Diff, String> {
    let input: EntriesInput = case.input()?;
    let EntriesExpect { order, less } = case.expect()?;
    let mut scene = Scene::new(case)?;
    let gates = crate::scene::settings(case)?.engine.gates;
    let mut diff = Diff::default();
    if let Some(want) = order {
        let mut nominees = Vec::new();
        for entry in &input.entries {
            let nominee = nominee(&mut scene, &entry.workload)?;
            let nominee = Nominee { borrowing: entry.borrowing, preemptor: entry.preemptor, ..nominee };
            nominees.push((entry.workload.clone(), nominee));
        }
        nominees.sort_by(|a, b| a.1.compare(&b.1, &gates));
        let got = nominees.into_iter().map(|(key, _)| key).collect();
        diff.eq("order", &want, &got);
    }
    if let Some(want) = less {
        let mut side = |entry: Option<Entry>| -> Result<(Nominee, FairShareValues), String> {
            let entry = entry.ok_or("input: a and b are needed")?;
            let nominee = nominee(&mut scene, &entry.workload)?;
            Ok((
                Nominee { preemptor: entry.preemptor, borrowing: entry.borrowing, ..nominee },
                fair_share_values(&entry)?,
            ))
        };
        let (a, b) = (side(input.a)?, side(input.b)?);
        let got = compare_fair_share((&a.0, a.1), (&b.0, b.1), &gates) == Ordering::Less;
        diff.eq("less", &want, &got);
    }
    Ok(diff)
}

fn fair_share_values(entry: &Entry) -> Result<FairShareValues, String> {
    let Some(given) = &entry.share else { return Ok(FairShareValues::default()) };
    let cell = |text: &String| {
        // In a key of `borrowedFlavorResources`, the first slash separates flavor and resource, because only the resource's name may contain a slash.
        let (flavor, resource) = text.split_once('/').ok_or_else(|| format!("borrowedFlavorResources: {text:?}"))?;
        Ok(FlavorResource { flavor: flavor.to_owned(), resource: resource.to_owned() })
    };
    let borrowed: Vec<FlavorResource> =
        given.borrowed_flavor_resources.iter().map(cell).collect::<Result<_, String>>()?;
    let share = Share { ratio: given.unweighted_ratio, weight: given.fair_weight, borrowing: given.borrowing };
    Ok(FairShareValues::new(share, &borrowed, &cells(&entry.requested)?))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PreferenceInput {
    a: Had,
    b: Had,
    flavor_fungibility: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Had {
    mode: String,
    #[serde(default)]
    borrowing: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Preferred {
    preferred: bool,
}

/// Judges a case of kind `flavor-preference`.
///
/// # Errors
/// A field of the case cannot be read.
pub fn preference(case: &Case) -> Result<Diff, String> {
    let input: PreferenceInput = case.input()?;
    let expect: Preferred = case.expect()?;
    let mut case = case.clone();
    case.objects = vec![json!({"kind": "ClusterQueue", "metadata": {"name": "cq"},
        "spec": {"flavorFungibility": input.flavor_fungibility}})];
    let mut scene = Scene::new(&case)?;
    let queue = scene.offline.control().cluster_queue_spec("cq").ok_or("no ClusterQueue")?;
    let had = |had: &Had| {
        let mode = match had.mode.as_str() {
            "NoFit" => Granular::NoFit,
            "NoPreemptionCandidates" => Granular::NoCandidates,
            "Preempt" => Granular::Preempt,
            "Reclaim" => Granular::Reclaim,
            "Fit" => Granular::Fit,
            other => return Err(format!("input: unknown mode {other:?}")),
        };
        Ok((mode, had.borrowing))
    };
    let got = flavor_preferred(had(&input.a)?, had(&input.b)?, &queue.fungibility);
    let mut diff = Diff::default();
    diff.eq("preferred", &expect.preferred, &got);
    Ok(diff)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PartialInput {
    workload: String,
    count_limit: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct PartialExpect {
    found: Option<bool>,
    total_count: Option<i64>,
}

/// Judges a case of kind `partial-admission`.
///
/// # Errors
/// A field of the case cannot be read.
pub fn partial(case: &Case) -> Result<Diff, String> {
    let input: PartialInput = case.input()?;
    let PartialExpect { found, total_count } = case.expect()?;
    let mut scene = Scene::new(case)?;
    let (namespace, name) = input.workload.split_once('/').unwrap_or_default();
    let spec = scene.offline.control().workload_spec(namespace, name).ok_or("input.workload: no such workload")?;
    let sets: Vec<(i64, Option<i64>)> = spec.pod_sets.iter().map(|set| (set.count, set.min_count)).collect();
    let got = reduce_counts(&sets, |counts| counts.iter().sum::<i64>() <= input.count_limit);
    let mut diff = Diff::default();
    diff.eq_if("found", found.as_ref(), || got.is_some());
    diff.eq_if("totalCount", total_count.as_ref(), || got.iter().flatten().sum());
    Ok(diff)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReserveInput {
    cluster_queue: String,
    #[serde(default)]
    usage: BTreeMap<String, Cells>,
    assignment: Reserving,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Reserving {
    mode: String,
    borrowing: u32,
    usage: Cells,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReserveExpect {
    reserved: Cells,
}

/// Judges a case of kind `reserve`.
///
/// # Errors
/// A field of the case cannot be read.
pub fn reserve(case: &Case) -> Result<Diff, String> {
    let input: ReserveInput = case.input()?;
    let expect: ReserveExpect = case.expect()?;
    let mut scene = Scene::new(case)?;
    scene.lay_usage(&input.usage)?;
    let mode = match input.assignment.mode.as_str() {
        "NoFit" => Mode::NoFit,
        "Preempt" => Mode::Preempt,
        "DeferredFit" => Mode::DeferredFit,
        "Fit" => Mode::Fit,
        other => return Err(format!("input.assignment.mode: unknown {other:?}")),
    };
    let (borrowing, usage) = (input.assignment.borrowing, cells(&input.assignment.usage)?);
    let got = scene.offline.control().world().steps().kept_free(&input.cluster_queue, mode, borrowing, &usage);
    let mut diff = Diff::default();
    diff.eq("reserved", &cells(&expect.reserved)?, &got);
    Ok(diff)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PairInput {
    a: String,
    b: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Same {
    same: bool,
}

/// Judges a case of kind `equivalence`: whether two Workloads are in one equivalence class.
///
/// # Errors
/// A field of the case cannot be read.
pub fn equivalence(case: &Case) -> Result<Diff, String> {
    let input: PairInput = case.input()?;
    let expect: Same = case.expect()?;
    let mut scene = Scene::new(case)?;
    let (a, b) = (scene.uid(&input.a), scene.uid(&input.b));
    let got = scene.offline.control().world().steps().same_class(&a, &b);
    let mut diff = Diff::default();
    diff.eq("same", &Some(expect.same), &got);
    Ok(diff)
}
