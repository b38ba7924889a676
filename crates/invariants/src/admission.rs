//! Rules at the step by which a Workload gets quota, is admitted or finishes.
//!
//! - Q7: a reservation has an assignment for each pod set, for all of its pods, or for at least its minimum count. Ended pods need no quota.
//! - L2: an admitted Workload has quota, and no check in its status was open when it was admitted.
//! - L6: no later state of a finished Workload is without its end.
//!
//! Q7 and the checks of L2 are judged where the manager of admissions wrote the state, which it does at the version that it has read: a user may forge
//! any status.

use serde_json::Value;

use super::read::is_user;
use super::workload::Workload;
use super::{Judge, Rule};
use crate::kinds::{items, text};

/// Field manager under which Berth, like Kueue, writes reservations and admissions.
const MANAGER: &str = "kueue-admission";
const ADMISSION: &str = "f:admission";
const ADMITTED: &str = "f:conditions/k:{\"type\":\"Admitted\"}";

/// Whether the manager of admissions wrote a field of a status, and no user did.
fn is_managed(object: &Value, field: &str) -> bool {
    let pointer = format!("/fieldsV1/f:status/{field}");
    let writers: Vec<&str> = items(object, "/metadata/managedFields")
        .iter()
        .filter(|entry| entry.pointer(&pointer).is_some())
        .map(|entry| text(entry, "/manager"))
        .collect();
    writers.contains(&MANAGER) && !writers.iter().any(|writer| is_user(writer))
}

fn count(object: &Value, field: &str) -> Option<u64> {
    object.get(field).and_then(Value::as_u64)
}

/// Difference between the pod sets of a Workload and the assignments of its admission; `None` if it holds quota for all of its pods, or for as few as
/// its pod sets allow.
fn misfit(object: &Value) -> Option<String> {
    let sets = items(object, "/spec/podSets");
    let given = items(object, "/status/admission/podSetAssignments");
    if given.len() != sets.len() {
        return Some(format!("it has {} pod sets, and assignments for {}", sets.len(), given.len()));
    }
    sets.iter().find_map(|set| {
        let name = text(set, "/name");
        let named = |list: &'static str| items(object, list).iter().find(|entry| text(entry, "/name") == name);
        let Some(assignment) = named("/status/admission/podSetAssignments") else {
            return Some(format!("it has no assignment for pod set {name}"));
        };
        // Without a count the assignment is for all pods.
        let pods = count(assignment, "count")?;
        let asked = count(set, "count").unwrap_or(1);
        let ended = named("/status/reclaimablePods").and_then(|entry| count(entry, "count")).unwrap_or(0);
        let left = asked.saturating_sub(ended);
        let least = count(set, "minCount").map_or(left, |least| least.min(left));
        let fits = (least..=asked).contains(&pods);
        (!fits).then(|| format!("pod set {name} asks for {least} to {asked} pods, and its assignment is for {pods}"))
    })
}

/// A check in the status of a Workload that is not ready.
fn open_check(object: &Value) -> Option<String> {
    let open = items(object, "/status/admissionChecks").iter().find(|check| text(check, "/state") != "Ready");
    open.map(|check| format!("{} was {}", text(check, "/name"), text(check, "/state")))
}

impl Judge {
    pub(super) fn check_admission(&mut self, object: &Value, before: &Workload, after: &Workload) {
        let key = &after.key;
        if after.admitted && !after.reserved && !after.finished {
            self.fail(Rule::Admission, format!("workload {key} is Admitted without QuotaReserved"));
        }
        if before.finished && !after.finished {
            self.fail(Rule::Finish, format!("workload {key} was finished, and is not any more"));
        }
        if after.finished {
            return;
        }
        if after.reserved
            && !before.reserved
            && is_managed(object, ADMISSION)
            && let Some(fault) = misfit(object)
        {
            self.fail(Rule::AllPods, format!("workload {key} got quota that is not for its pods: {fault}"));
        }
        if after.admitted
            && !before.admitted
            && is_managed(object, ADMITTED)
            && let Some(check) = open_check(object)
        {
            self.fail(Rule::Admission, format!("workload {key} was admitted while its check {check}"));
        }
    }
}
