//! Flavor assignment.

use super::{amounts, cells};
use crate::case::{Case, Cells};
use crate::diff::{Diff, sorted};
use crate::scene::{Scene, text};
use berth_engine::{
    AssignInput, AssignmentReport, AttemptReport, PodSetAssignment, PodSetReport, PreemptionPossibility,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

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
    topology_usage: Option<Value>,
}

/// The slice that is replaced; its totals are what it was given.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Older {
    /// For people: the totals say all.
    #[serde(rename = "workload")]
    _workload: Option<String>,
    #[serde(rename = "clusterQueue")]
    _cluster_queue: Option<String>,
    total_requests: Vec<Total>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Total {
    name: String,
    count: i64,
    flavors: BTreeMap<String, String>,
    requests: BTreeMap<String, String>,
}

impl Older {
    /// In the engine's words; where the totals name no flavors, those of `flavors` by pod set.
    pub(super) fn given(
        &self,
        flavors: &BTreeMap<String, BTreeMap<String, String>>,
    ) -> Result<Vec<PodSetAssignment>, String> {
        let given = |total: &Total| {
            let named = if total.flavors.is_empty() { flavors.get(&total.name) } else { Some(&total.flavors) };
            Ok(PodSetAssignment {
                name: total.name.clone(),
                count: total.count,
                flavors: named.cloned().unwrap_or_default(),
                usage: amounts(&total.requests)?,
            })
        };
        self.total_requests.iter().map(given).collect()
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
    has_topology_assignment: Option<Value>,
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
    topology_assignment: Option<Value>,
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

/// Kind `flavor-assignment`.
///
/// # Errors
/// What cannot be read.
pub fn run(case: &Case) -> Result<Diff, String> {
    let input: Input = case.input()?;
    let expect: Expect = case.expect()?;
    if input.topology_usage.is_some() {
        return Err("input: topology is not known".to_owned());
    }
    let replaced = input.replaced_workload_slice.as_ref().map(|older| older.given(&BTreeMap::new())).transpose()?;
    let mut scene = Scene::new(case)?;
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
    let told = scene.offline.control().told(namespace, name).ok_or("input.workload: no such workload")?;
    let pins = input
        .nomination_mapping
        .as_ref()
        .map(|mapping| told.pod_sets.iter().map(|set| mapping.get(&set.name).cloned().unwrap_or_default()).collect());
    let asked = AssignInput {
        oracle: if input.preemption_oracle.is_some() { Some(&mut oracle) } else { None },
        pins,
        replaced,
        ..AssignInput::default()
    };
    let report = scene.offline.control().world().assign(&uid, &input.cluster_queue, asked);
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
        has_topology_assignment,
    } = expect;
    let whole = representative_mode.is_some() && usage.is_some();
    diff.eq_if("representativeMode", representative_mode.as_ref(), || report.mode.as_str().to_owned());
    // Absent is 0 where the assignment is compared as a whole.
    if borrowing.is_some() || whole {
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
        // Where a flavor fits, only those that were tried are compared.
        let tried = |flavor: &String| {
            report.mode == berth_engine::Mode::NoFit || attempts().any(|attempt| attempt.flavor == *flavor)
        };
        let got = attempts()
            .filter(|attempt| attempt.no_fit.is_some() || want.contains_key(&attempt.flavor))
            .map(|attempt| (attempt.flavor.clone(), reason(attempt.no_fit)))
            .collect();
        let want = want.into_iter().filter(|(flavor, _)| tried(flavor)).collect();
        diff.maps("attemptNoFitReasons", &want, &got);
    }
    for (set, flavors) in last_tried_flavor_idx.into_iter().flatten() {
        let found = report.pod_sets.iter().find(|found| found.name == set);
        let tried = |resource: &str| found.and_then(|set| set.flavors.get(resource)).map(|flavor| flavor.tried);
        for (resource, want) in flavors {
            diff.eq(&format!("lastTriedFlavorIdx/{set}/{resource}"), &Some(want), &tried(&resource));
        }
    }
    if let Some(error) = error {
        diff.note(format!("want the error {error}, got none"));
    }
    if has_topology_assignment.is_some() {
        diff.note("want a topology assignment, got none");
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

fn pod_set(diff: &mut Diff, want: PodSet, got: &PodSetReport) -> Result<(), String> {
    let PodSet { name, count, requests, flavors, reasons, attempts, topology_assignment } = want;
    let at = |field: &str| format!("podSets[{name}].{field}");
    diff.eq_if(&at("count"), count.as_ref(), || got.count);
    if let Some(want) = requests {
        diff.eq(&at("requests"), &amounts(&want)?, &got.requests);
    }
    if topology_assignment.is_some() {
        diff.note(format!("{}: want one, got none", at("topologyAssignment")));
    }
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
        // Where a flavor fits, only those that were tried are compared.
        let fits = got.attempts.iter().any(|attempt| attempt.mode == berth_engine::Mode::Fit);
        let tried = |want: &&Attempt| !fits || got.attempts.iter().any(|attempt| attempt.flavor == want.flavor);
        let wanted: BTreeMap<String, Value> = want.iter().filter(tried).map(wanted_attempt).collect();
        let found: BTreeMap<String, Value> = got
            .attempts
            .iter()
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
    // What is absent was not asserted.
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
