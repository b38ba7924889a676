//! Decision cases about flavor assignment.

use crate::amounts::{amounts, cells};
use crate::case::{Case, Cells};
use crate::diff::{Diff, sorted};
use crate::gates::Gates;
use crate::scene::{Scene, text};
use berth_engine::steps::{AssignInput, AssignmentReport, AttemptReport, PodSetReport, PreemptionPossibility};
use berth_engine::{PodSetAssignment, WorkloadState};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Feature gates with which Kueue recomputes the assignment of a head within its cycle. The gate `TASRecomputeAssignmentWithinSchedulingCycle` has no effect
/// without topology-aware scheduling.
const RECOMPUTES: [&str; 2] =
    ["RecomputeAssignmentUponPreemptionTargetsOverlap", "TASRecomputeAssignmentWithinSchedulingCycle"];

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Input {
    workload: String,
    cluster_queue: String,
    usage: BTreeMap<String, Cells>,
    preemption_oracle: Option<Oracle>,
    nomination_mapping: Option<BTreeMap<String, BTreeMap<String, String>>>,
    deleted_flavors: Vec<String>,
    replaced_workload_slice: Option<Older>,
}

/// The old workload slice, which the Workload of the case replaces.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Older {
    workload: Option<String>,
    /// ClusterQueue of the old slice, for readers of the case; the runner does not use this field, because the old slice is always in the ClusterQueue of the
    /// new slice.
    #[serde(rename = "clusterQueue")]
    _cluster_queue: Option<String>,
    total_requests: Option<Vec<Total>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Total {
    name: String,
    count: i64,
    flavors: Option<BTreeMap<String, String>>,
    requests: BTreeMap<String, String>,
}

impl Total {
    /// The total requests of a pod set in a case, as the engine's assignment of the pod set. If the case's entry has no flavors, the assignment has the flavors
    /// that `flavors` has for the pod set.
    pub(super) fn given(
        &self,
        flavors: &BTreeMap<String, BTreeMap<String, String>>,
    ) -> Result<PodSetAssignment, String> {
        let named = self.flavors.as_ref().filter(|flavors| !flavors.is_empty());
        Ok(PodSetAssignment {
            name: self.name.clone(),
            count: self.count,
            flavors: named.or_else(|| flavors.get(&self.name)).cloned().unwrap_or_default(),
            usage: amounts(&self.requests)?,
        })
    }
}

impl Older {
    /// The assignment of the old workload slice; `None` if workload slices are off. The assignment of the old slice is made of the case's `totalRequests`, or
    /// else of the old slice's Workload as control decodes it. Pod sets of the old slice without flavors get the flavors that `flavors` has for them.
    pub(super) fn given(
        &self,
        case: &Case,
        scene: &mut Scene,
        flavors: &BTreeMap<String, BTreeMap<String, String>>,
    ) -> Result<Option<Vec<PodSetAssignment>>, String> {
        if !Gates::of(&case.feature_gates)?.on("ElasticJobsViaWorkloadSlices") {
            return Ok(None);
        }
        if let Some(totals) = &self.total_requests {
            return totals.iter().map(|total| total.given(flavors)).collect::<Result<_, _>>().map(Some);
        }
        let key = self.workload.as_deref().ok_or("input.replacedWorkloadSlice: workload or totalRequests is needed")?;
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let spec = scene.offline.control().workload_spec(namespace, name);
        let spec = spec.ok_or_else(|| format!("input.replacedWorkloadSlice: no workload {key}"))?;
        if let WorkloadState::Reserved(held) = spec.state {
            return Ok(Some(held.pod_sets));
        }
        // An old workload slice without a quota reservation counts with its requests in place of an assignment.
        let asked = spec.pod_sets.into_iter().map(|set| PodSetAssignment {
            flavors: flavors.get(&set.name).cloned().unwrap_or_default(),
            usage: set.requests.into_iter().map(|(resource, one)| (resource, one.mul(set.count))).collect(),
            count: set.count,
            name: set.name,
        });
        Ok(Some(asked.collect()))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Oracle {
    default: Answer,
    flavors: BTreeMap<String, BTreeMap<String, Answer>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Answer {
    borrowing: u32,
    possibility: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Expect {
    representative_mode: Option<String>,
    borrowing: Option<u32>,
    pod_sets: Option<Vec<PodSet>>,
    usage: Option<Cells>,
    no_fit_reason: Option<String>,
    attempt_no_fit_reasons: Option<BTreeMap<String, String>>,
    error: Option<Value>,
    last_tried_flavor_idx: Option<BTreeMap<String, BTreeMap<String, i32>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct PodSet {
    name: String,
    count: Option<i64>,
    requests: Option<BTreeMap<String, String>>,
    flavors: Option<BTreeMap<String, Flavor>>,
    reasons: Option<Vec<String>>,
    attempts: Option<Vec<Attempt>>,
    error: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Flavor {
    name: Option<String>,
    mode: Option<String>,
    last_tried_flavor_idx: Option<i32>,
    tried_flavor_idx: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Attempt {
    flavor: String,
    borrow: u32,
    mode: String,
    no_fit_reason: Option<String>,
    preemption_possibility: Option<String>,
    reasons: Option<Vec<String>>,
}

/// Judges a case of kind `flavor-assignment`.
///
/// # Errors
/// A field of the case cannot be read.
pub fn run(case: &Case) -> Result<Diff, String> {
    let input: Input = case.input()?;
    let expect: Expect = case.expect()?;
    let mut scene = Scene::new(case)?;
    let replaced = match &input.replaced_workload_slice {
        Some(older) => older.given(case, &mut scene, &BTreeMap::new())?,
        None => None,
    };
    scene.lay_usage(&input.usage)?;
    for flavor in &input.deleted_flavors {
        scene.offline.remove(berth_control::write::Kind::ResourceFlavor, "", flavor);
    }
    let uid = scene.uid(&input.workload);
    let mut unknown = None;
    let mut oracle = |flavor: &str, resource: &str| {
        let oracle = input.preemption_oracle.as_ref();
        let answer = oracle.and_then(|oracle| oracle.flavors.get(flavor)?.get(resource).or(Some(&oracle.default)));
        let answer = answer.or(oracle.map(|oracle| &oracle.default)).cloned().unwrap_or_default();
        let possibility = match answer.possibility.as_str() {
            "NoCandidates" => PreemptionPossibility::NoCandidates,
            "Preempt" => PreemptionPossibility::Preempt,
            "Reclaim" => PreemptionPossibility::Reclaim,
            other => {
                unknown = Some(format!("input.preemptionOracle: unknown possibility {other:?}"));
                PreemptionPossibility::NoCandidates
            }
        };
        (possibility, answer.borrowing)
    };
    let (namespace, name) = input.workload.split_once('/').unwrap_or_default();
    let spec = scene.offline.control().workload_spec(namespace, name).ok_or("input.workload: no such workload")?;
    let gates = Gates::of(&case.feature_gates)?;
    // The flavor assignment of a head is restricted to its nominated flavors only if a feature gate allows a second assignment within the cycle.
    let repeats = RECOMPUTES.iter().any(|gate| gates.on(gate));
    let mapping = input.nomination_mapping.as_ref().filter(|mapping| repeats && !mapping.is_empty());
    let pins = mapping
        .map(|mapping| spec.pod_sets.iter().map(|set| mapping.get(&set.name).cloned().unwrap_or_default()).collect());
    let asked = AssignInput {
        oracle: if input.preemption_oracle.is_some() { Some(&mut oracle) } else { None },
        pins,
        replaced,
        ..AssignInput::default()
    };
    let report = scene.offline.control().world().steps().assign(&uid, &input.cluster_queue, asked);
    if let Some(text) = unknown {
        return Err(text);
    }
    let report = report.ok_or("input: no such workload or ClusterQueue")?;
    let mut diff = Diff::default();
    compare(&mut diff, expect, &report)?;
    Ok(diff)
}

fn compare(diff: &mut Diff, expect: Expect, report: &AssignmentReport) -> Result<(), String> {
    let Expect {
        representative_mode,
        borrowing,
        pod_sets,
        usage,
        no_fit_reason,
        attempt_no_fit_reasons,
        error,
        last_tried_flavor_idx,
    } = expect;
    diff.eq_if("representativeMode", representative_mode.as_ref(), || report.mode.as_str().to_owned());
    // A case without the expectation `borrowing` expects the borrowing level 0. Kueue's test compares the borrowing level of complete assignments only, and a
    // case about a complete assignment has the expectation `usage`.
    if borrowing.is_some() || usage.is_some() {
        diff.eq("borrowing", &borrowing.unwrap_or_default(), &report.borrowing);
    }
    let reason =
        |reason: Option<berth_engine::PendingReason>| reason.map(|r| r.as_str().to_owned()).unwrap_or_default();
    diff.eq_if("noFitReason", no_fit_reason.as_ref(), || reason(report.no_fit));
    if let Some(want) = usage {
        diff.eq("usage", &cells(&want)?, &report.usage);
    }
    if let Some(want) = attempt_no_fit_reasons {
        let attempts = || report.pod_sets.iter().flat_map(|set| &set.attempts);
        let got: BTreeMap<String, String> =
            attempts().map(|attempt| (attempt.flavor.clone(), reason(attempt.no_fit))).collect();
        for (flavor, want) in want {
            // Expected no-fit reasons of flavors that the engine did not try are not compared.
            if got.contains_key(&flavor) {
                diff.eq(&format!("attemptNoFitReasons/{flavor}"), &Some(&want), &got.get(&flavor));
            }
        }
    }
    for (set, flavors) in last_tried_flavor_idx.into_iter().flatten() {
        let found = report.pod_sets.iter().find(|found| found.name == set);
        let tried = |resource: &str| found.and_then(|set| set.flavors.get(resource)).map(|flavor| flavor.tried);
        for (resource, want) in flavors {
            diff.eq(&format!("lastTriedFlavorIdx/{set}/{resource}"), &Some(want), &tried(&resource));
        }
    }
    if let Some(error) = error {
        let found = report.pod_sets.iter().find_map(|set| set.error.as_deref());
        diff.eq("error", &class(error.as_str()), &class(found));
    }
    if let Some(want) = pod_sets {
        let names = |set: &PodSetReport| set.name.clone();
        let wanted: Vec<String> = want.iter().map(|set| set.name.clone()).collect();
        diff.eq("podSets", &wanted, &report.pod_sets.iter().map(names).collect());
        for (want, got) in want.into_iter().zip(&report.pod_sets) {
            pod_set(diff, want, got)?;
        }
    }
    Ok(())
}

/// The subject of an assignment error; the error's text is not compared. Kueue's errors of a flavor assignment are about topologies or about the node affinity
/// of pods.
fn class(error: Option<&str>) -> Option<&'static str> {
    let error = error.filter(|text| !text.is_empty())?;
    let is_topological = ["TAS", "opology"].iter().any(|word| error.contains(word));
    Some(if is_topological { "topology" } else { "node affinity" })
}

fn pod_set(diff: &mut Diff, want: PodSet, got: &PodSetReport) -> Result<(), String> {
    let PodSet { name, count, requests, flavors, reasons, attempts, error } = want;
    let at = |field: &str| format!("podSets[{name}].{field}");
    diff.eq_if(&at("count"), count.as_ref(), || got.count);
    if let Some(want) = requests {
        diff.eq(&at("requests"), &amounts(&want)?, &got.requests);
    }
    diff.eq(&at("error"), &class(error.as_deref()), &class(got.error.as_deref()));
    if let Some(want) = flavors {
        let keys = |keys: Vec<&String>| keys.into_iter().cloned().collect::<Vec<_>>();
        diff.eq(&at("flavors"), &keys(want.keys().collect()), &keys(got.flavors.keys().collect()));
        for (resource, want) in want {
            let Some(got) = got.flavors.get(&resource) else { continue };
            let at = |field: &str| at(&format!("flavors[{resource}].{field}"));
            let Flavor { name, mode, last_tried_flavor_idx, tried_flavor_idx } = want;
            diff.eq_if(&at("name"), name.as_ref(), || got.flavor.clone());
            diff.eq_if(&at("mode"), mode.as_ref(), || got.mode.as_str().to_owned());
            diff.eq_if(&at("lastTriedFlavorIdx"), last_tried_flavor_idx.as_ref(), || got.tried);
            diff.eq_if(&at("triedFlavorIdx"), tried_flavor_idx.as_ref(), || got.tried);
        }
    }
    diff.eq_if(&at("reasons"), reasons.map(|list| sorted(&list)).as_ref(), || sorted(&got.reasons));
    if let Some(want) = attempts {
        // If a flavor fits, attempts of flavors that the engine did not try are not compared.
        let fits = got.attempts.iter().any(|attempt| attempt.mode == berth_engine::steps::Mode::Fit);
        let found_for = |want: &Attempt| got.attempts.iter().find(|attempt| attempt.flavor == want.flavor);
        // An attempt that fits is also accepted, as in Kueue's test, if the case expects that the flavor does not provide a resource of a group of pod sets.
        let is_fit = |want: &Attempt| found_for(want).is_some_and(|got| got.mode == berth_engine::steps::Mode::Fit);
        let lacks = |reason: &String| reason.contains(" does not provide resource ");
        let may_fit =
            |want: &Attempt| want.reasons.as_ref().is_some_and(|all| !all.is_empty() && all.iter().all(lacks));
        let open = |want: &Attempt| want.mode == "NoFit" && may_fit(want) && is_fit(want);
        let tried = |want: &&Attempt| (!fits || found_for(want).is_some()) && !open(want);
        let wanted: BTreeMap<String, Value> = want.iter().filter(tried).map(wanted_attempt).collect();
        let found: BTreeMap<String, Value> = got
            .attempts
            .iter()
            .filter(|attempt| !want.iter().any(|want| want.flavor == attempt.flavor && open(want)))
            .map(|attempt| found_attempt(attempt, want.iter().find(|want| want.flavor == attempt.flavor)))
            .collect();
        diff.maps(&at("attempts"), &wanted, &found);
    }
    Ok(())
}

fn wanted_attempt(attempt: &Attempt) -> (String, Value) {
    let reasons = sorted(attempt.reasons.as_deref().unwrap_or_default());
    let value = json!({
        "borrow": attempt.borrow, "mode": attempt.mode, "reasons": reasons, "noFitReason": attempt.no_fit_reason,
        "preemptionPossibility": attempt.preemption_possibility,
    });
    (attempt.flavor.clone(), value)
}

fn found_attempt(attempt: &AttemptReport, want: Option<&Attempt>) -> (String, Value) {
    // A field of an expected flavor attempt that is absent from the case is not compared.
    let asked = |field: fn(&Attempt) -> bool| want.is_none_or(field);
    let no_fit = attempt.no_fit.filter(|_| asked(|want| want.no_fit_reason.is_some()));
    let possibility = attempt.possibility.filter(|_| asked(|want| want.preemption_possibility.is_some()));
    let value = json!({
        "borrow": attempt.borrow, "mode": attempt.mode.as_str(), "reasons": sorted(&attempt.reasons),
        "noFitReason": no_fit.map(berth_engine::PendingReason::as_str),
        "preemptionPossibility": possibility.map(PreemptionPossibility::as_str),
    });
    debug_assert!(text(&value, "/mode") == attempt.mode.as_str());
    (attempt.flavor.clone(), value)
}
