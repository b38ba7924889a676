//! Progress of the scan over flavors: cases of kind `scan-progress`, and cases about the progress that is left after an update of the Workload.

use crate::case::Case;
use crate::diff::Diff;
use crate::gates::Gates;
use crate::scene::{Scene, key_of};
use berth_engine::steps::{Outcome, ScanTime, scan_goes_on, scan_is_outdated};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ScanInput {
    last: Scan,
    current: Scan,
    last_tried_flavor_idx: Vec<BTreeMap<String, i32>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Scan {
    cluster_queue_generation: u64,
    scheduling_cycle: u64,
    /// Hash of the Workload's shape. Cases in which the two scans have unequal hashes do not apply to Berth.
    #[serde(rename = "schedulingHash")]
    _scheduling_hash: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ScanExpect {
    outdated: Option<bool>,
    pending_flavors: Option<bool>,
}

/// Judges a case of kind `scan-progress`.
///
/// # Errors
/// A field of the case cannot be read.
pub fn scan(case: &Case) -> Result<Diff, String> {
    let input: ScanInput = case.input()?;
    let ScanExpect { outdated, pending_flavors } = case.expect()?;
    let preserves = Gates::of(&case.feature_gates)?.on("FlavorFungibilityPreserveScanProgress");
    let time = |scan: &Scan| ScanTime { generation: scan.cluster_queue_generation, cycle: scan.scheduling_cycle };
    let mut diff = Diff::default();
    diff.eq_if("outdated", outdated.as_ref(), || scan_is_outdated(time(&input.last), time(&input.current), preserves));
    diff.eq_if("pendingFlavors", pending_flavors.as_ref(), || scan_goes_on(&input.last_tried_flavor_idx));
    Ok(diff)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct UpdateInput {
    workload: String,
    inadmissible: bool,
    inflight: bool,
    last_tried_flavor_idx: Vec<BTreeMap<String, i32>>,
    shape_changed: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct UpdateExpect {
    progress_kept: bool,
}

/// Judges a case of kind `queue-order` with `progressKept`: a Workload is updated while it is pending, or while its cycle runs.
///
/// # Errors
/// A field of the case cannot be read.
pub fn kept(case: &Case) -> Result<Diff, String> {
    let input: UpdateInput = case.input()?;
    let expect: UpdateExpect = case.expect()?;
    let mut scene = Scene::new(case)?;
    let uid = scene.uid(&input.workload);
    let found = case.of_kind("Workload").find(|object| key_of(object) == input.workload);
    let mut updated = found.cloned().ok_or("input.workload: no such workload")?;
    let outcome = if input.inadmissible { Outcome::NoFit } else { Outcome::FailedAfterNomination };
    let world = scene.offline.control().world();
    let is_back =
        world.steps().pop_workload(&uid) && world.steps().put_back_as(&uid, outcome, &input.last_tried_flavor_idx);
    if !is_back || (input.inflight && !world.steps().pop_workload(&uid)) {
        return Err("input: the workload is in no queue".to_owned());
    }
    // A Workload without an attempt has no scan progress.
    if world.steps().has_progress(&uid) == input.last_tried_flavor_idx.is_empty() {
        return Err("input: the scan of the workload is not as far as told".to_owned());
    }
    if let Some(Value::Object(metadata)) = updated.get_mut("metadata") {
        let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or_default();
        metadata.insert("generation".to_owned(), json!(generation.saturating_add(1)));
    }
    if let (true, Some(Value::Object(container))) =
        (input.shape_changed, updated.pointer_mut("/spec/podSets/0/template/spec/containers/0"))
    {
        container.insert("resources".to_owned(), json!({"requests": {"cpu": "7"}}));
    }
    scene.put(&updated)?;
    let mut diff = Diff::default();
    diff.eq("progressKept", &expect.progress_kept, &scene.offline.control().world().steps().has_progress(&uid));
    Ok(diff)
}
