//! Gates on admission: the annotation `kueue.x-k8s.io/admission-gated-by` of a job names controllers. Each controller opens its gate by removing its name from
//! the annotation (KEP 6915). Names of controllers are never added to the gates of a Workload later.
//!
//! Gates on preemption: a Workload with a gate of `spec.preemptionGates` that is closed in its status is tried like any other Workload, but preempts no other
//! Workload.

use berth_api::PreemptionGateState;
use berth_api::conditions::gate_positions::CLOSED;
use berth_api::conditions::{event_reasons, reasons, types};
use berth_cache::WorkloadView;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use crate::context::Context;
use crate::decision::Draft;
use crate::workload::status::{find, seconds};
use crate::workload::{REPORTER, notice, status_write};
use crate::write::{EventType, Notice, Purpose};

/// Reason of a gated workload, and of the event about a gated workload.
pub(crate) const GATED: &str = reasons::ADMISSION_GATED;
/// Message of a workload whose last admission gate is gone.
pub(crate) const LIFTED: &str = "AdmissionGatedBy cleared, waiting for quota reservation";

/// Message that says why a gated workload waits; `None` without a gate.
pub(crate) fn message(workload: &WorkloadView) -> Option<String> {
    (!workload.gated_by().is_empty()).then(|| format!("Admission is gated by: {}", workload.gated_by()))
}

/// The event about a workload that begins to wait for its admission gates.
pub(crate) fn closed(workload: &WorkloadView) -> Notice {
    let text = format!("Workload admission is gated by: {}", workload.gated_by());
    notice(workload, EventType::Normal, GATED, text, REPORTER)
}

/// The event about a workload whose status still says that the workload is gated, but whose gates are gone.
pub(crate) fn lifted(workload: &WorkloadView) -> Option<Notice> {
    let condition = find(&workload.status.conditions, types::QUOTA_RESERVED)?;
    // A workload that may not preempt because of a closed preemption gate has the same reason.
    let lifted = condition.status == "False"
        && condition.reason == GATED
        && workload.gated_by().is_empty()
        && !workload.is(types::BLOCKED_ON_PREEMPTION_GATES);
    let text = "Admission gate cleared, workload is now admissible".to_owned();
    lifted.then(|| notice(workload, EventType::Normal, event_reasons::ADMISSION_GATE_CLEARED, text, REPORTER))
}

/// Lists each preemption gate of the spec in the status, closed at first, and removes all other gates from the status.
pub(crate) fn sync(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Option<Draft> {
    if !ctx.settings.preemption_gates {
        return None;
    }
    let (gates, states) = (workload.preemption_gates(), &workload.status.preemption_gates);
    let is_listed = |name: &String| states.iter().any(|state| state.name == *name);
    if gates.iter().all(is_listed) && states.iter().all(|state| gates.contains(&state.name)) {
        return None;
    }
    Some(status_write(workload, Purpose::SyncPreemptionGates, now, |edit| {
        let states = &mut edit.status.preemption_gates;
        states.retain(|state| gates.contains(&state.name));
        let unlisted = gates.iter().filter(|name| !is_listed(name));
        states.extend(unlisted.map(|name| PreemptionGateState {
            name: name.clone(),
            position: CLOSED.to_owned(),
            last_transition_time: Time(seconds(now)),
        }));
    }))
}

/// The new annotation of a Workload whose job names fewer gates: null if the job names no gate.
pub(crate) fn fewer(workload: &WorkloadView, named: Option<&str>) -> Option<Value> {
    let names = |text: &str| -> Vec<String> { text.split(',').map(|name| name.trim().to_owned()).collect() };
    let named = named.filter(|text| !text.is_empty());
    let known = names(workload.gated_by());
    let left = named.map(names).unwrap_or_default();
    let shrunk =
        !workload.gated_by().is_empty() && left.len() < known.len() && left.iter().all(|name| known.contains(name));
    shrunk.then(|| named.map_or(Value::Null, Into::into))
}

#[cfg(test)]
mod tests;
