//! Cases of kind `requeue`: a head is requeued after its cycle.

use super::queue;
use super::statuses::{self, Expected};
use crate::case::Case;
use crate::diff::{Diff, sorted};
use crate::scene::Scene;
use berth_engine::Issued;
use berth_engine::steps::Outcome;
use serde::Deserialize;

/// Results of heads for which control writes a pending reason into the status; other results write nothing.
const STATUSES: [&str; 4] = ["", "notNominated", "skipped", "preemptionGated"];

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Input {
    workload: String,
    outcome: Option<OutcomeInput>,
    errors: Option<usize>,
    message: Option<String>,
    preempted: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct OutcomeInput {
    status: String,
    inadmissible_message: String,
    quota_reserved_reason: String,
    requeue_reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Expect {
    left: Option<queue::ByQueue>,
    inadmissible_left: Option<queue::ByQueue>,
    workloads: Option<Vec<Expected>>,
    message: Option<String>,
    requeue_reason: Option<String>,
    scan_progress_cleared: Option<bool>,
}

/// Judges a case of kind `requeue`.
///
/// # Errors
/// A field of the case cannot be read.
pub fn run(case: &Case) -> Result<Diff, String> {
    let input: Input = case.input()?;
    let expect: Expect = case.expect()?;
    let mut diff = Diff::default();
    match &input.outcome {
        None => {
            let issued =
                Issued { preempted: input.preempted.unwrap_or_default(), failed: input.errors.unwrap_or_default() };
            diff.eq_if("message", expect.message.as_ref(), || {
                issued.message(input.message.clone().unwrap_or_default())
            });
            diff.eq_if("requeueReason", expect.requeue_reason.as_ref(), || issued.outcome().as_str().to_owned());
            diff.eq_if("scanProgressCleared", expect.scan_progress_cleared.as_ref(), || issued.scans_anew());
        }
        Some(outcome) => back(case, &input.workload, outcome, &expect, &mut diff)?,
    }
    Ok(diff)
}

fn back(case: &Case, key: &str, given: &OutcomeInput, expect: &Expect, diff: &mut Diff) -> Result<(), String> {
    let mut scene = Scene::new(case)?;
    let uid = scene.uid(key);
    let is_nominated = !["", "notNominated"].contains(&given.status.as_str());
    let outcome = match given.requeue_reason.as_str() {
        // If the case has no requeue reason, a head that was nominated and not admitted is requeued as failed after its nomination.
        "" if is_nominated => Outcome::FailedAfterNomination,
        word => queue::outcome(word).map_err(|error| format!("input.outcome.requeueReason: {error}"))?,
    };
    let world = scene.offline.control().world();
    if !(world.steps().pop_workload(&uid) && world.steps().put_back_as(&uid, outcome, &[])) {
        return Err("input: the workload is in no queue".to_owned());
    }
    if STATUSES.contains(&given.status.as_str()) {
        let named = Some(given.quota_reserved_reason.as_str()).filter(|name| !name.is_empty());
        match named.map(queue::pending_reason).transpose() {
            Ok(reason) => {
                let is_gated = given.status == "preemptionGated";
                scene.offline.report_pending(&uid, reason, &given.inadmissible_message, is_gated);
            }
            Err(error) => diff.note(error),
        }
    }
    let (left, parked) = queue::pending(&mut scene);
    for (place, want, got) in [("left", &expect.left, left), ("inadmissibleLeft", &expect.inadmissible_left, parked)] {
        if let Some(want) = want {
            let want = want.iter().filter(|(_, list)| !list.is_empty()).map(|(k, list)| (k.clone(), sorted(list)));
            diff.maps(place, &want.collect(), &got);
        }
    }
    if let Some(want) = &expect.workloads {
        statuses::compare(diff, "workloads", &scene, want, &[])?;
    }
    Ok(())
}
