//! The condition of a group that waits for pods in place of those that have failed.

use berth_api::conditions::types;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;

use crate::cache::WorkloadView;
use crate::decision::Decision;
use crate::workload::separate_write;
use crate::workload::status::set_in;
use crate::write::Purpose;

/// Condition of a Workload of which some pods have failed or were evicted, and are not replaced yet.
pub(super) const WAITING: &str = types::WAITING_FOR_REPLACEMENT_PODS;

/// The write of the condition that pods are to be replaced, `None` if the condition is as it should be.
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
