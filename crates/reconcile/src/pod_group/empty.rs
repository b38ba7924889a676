//! Decisions about a pod group without pods, whose Workload is owned by the controllers of its pods. The controllers of the pods may create pods again, and
//! the Workload then still has its place in the queue. The quota of a pod group without pods is given back.

use berth_api::conditions::reasons;
use berth_cache::WorkloadView;
use berth_cache::moments::after_seconds;
use jiff::Timestamp;

use super::waiting::{WAITING, waits_for_pods};
use crate::decision::Decision;
use crate::workload::status::{find, find_true};
use crate::workload::stops::{release, take_back};

/// Time in seconds for which a group without pods keeps its quota, so that its controller can create the pods again without another admission.
const MADE_AGAIN_SECONDS: i64 = 10;

/// Decides about the Workload of a group without pods; `None` if the lack of pods requires no write.
pub(crate) fn without_pods(workload: &WorkloadView, now: Timestamp) -> Option<Decision> {
    if workload.unreadable || workload.rare.as_ref().is_none_or(|rare| rare.owners.is_empty()) {
        // A Workload without a controller among its owners is deleted with its last pod.
        return Some(Decision::Done);
    }
    if !workload.holds_quota() {
        // The pods of a prebuilt Workload are still to be created.
        return None;
    }
    let conditions = &workload.status.conditions;
    if workload.phase.is_evicting() {
        return Some(release(workload, now));
    }
    let Some(waits) = find_true(conditions, WAITING) else {
        let message = "No pod of the group is left";
        return waits_for_pods(workload, (true, reasons::PODS_FAILED, message), find(conditions, WAITING), now);
    };
    if !workload.active {
        return None;
    }
    let due = after_seconds(waits.last_transition_time.0, MADE_AGAIN_SECONDS);
    if due > now {
        return Some(Decision::Wait(due));
    }
    let message = "No pod of the group is left: it waits until its pods are there again";
    Some(take_back(workload, (reasons::PENDING_EVALUATION, message), now))
}

#[cfg(test)]
mod tests;
