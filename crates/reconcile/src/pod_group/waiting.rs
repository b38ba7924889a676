//! The condition of a pod group that waits for replacements of its failed pods.

use berth_api::conditions::types;
use berth_cache::WorkloadView;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;

use crate::decision::Decision;
use crate::workload::separate_write;
use crate::workload::status::set_in;
use crate::write::Purpose;

/// The condition of a Workload whose pods have partly failed or been evicted, and are not replaced yet.
pub(super) const WAITING: &str = types::WAITING_FOR_REPLACEMENT_PODS;

/// The write of the condition `WaitingForReplacementPods`; `None` if the condition is up to date.
pub(super) fn waits_for_pods(
    workload: &WorkloadView,
    (waits, reason, message): (bool, &str, &str),
    old: Option<&Condition>,
    now: Timestamp,
) -> Option<Decision> {
    let mut conditions: Vec<Condition> = old.cloned().into_iter().collect();
    if !set_in(&mut conditions, WAITING, (waits, reason, message), workload.generation, now) {
        return None;
    }
    let status = json!({"conditions": conditions});
    Some(separate_write(workload, Purpose::SetWaitingForPods, "kueue-pod-controller", status))
}

#[cfg(test)]
mod tests;
