//! Transitions of a Workload's status, as pure functions on a copy, and the body of the write of the new status.
//!
//! Every write goes through server-side apply under Kueue's field manager `kueue-admission`. A server-side apply must have all fields that its field manager
//! owns: the body of the status write is therefore always built from the complete status.

use berth_api as api;
use berth_api::conditions::gate_positions::CLOSED;
use berth_api::conditions::reasons::{self, DEACTIVATED_DUE_TO_PREFIX};
pub use berth_api::conditions::{
    MAX_MESSAGE_BYTES as MESSAGE_LIMIT, find, find_true, is_true, since, truncate as cut, whole_seconds as seconds,
};
use berth_api::conditions::{NewCondition, check_states, own_types, set_condition, types};
use berth_api::json::to_value;
use berth_jobs::{Identity, ObjectApply};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Map, Value};

/// Field manager of the admission status, as in Kueue.
pub(crate) const ADMISSION_MANAGER: &str = api::labels::FIELD_MANAGER_ADMISSION;

/// Conditions that the admission manager owns.
pub const OWNED: [&str; 10] = [
    types::QUOTA_RESERVED,
    types::BLOCKED_ON_PREEMPTION_GATES,
    types::EVICTED,
    types::ADMITTED,
    types::PREEMPTED,
    types::REQUEUED,
    types::DEACTIVATION_TARGET,
    types::FINISHED,
    types::PODS_READY,
    own_types::CAPACITY_TIER,
];

/// A change of a status, with the time of the change and the generation of the object.
pub struct Edit<'a> {
    /// The status of the Workload that is changed.
    pub status: &'a mut api::WorkloadStatus,
    /// The generation of the Workload, for conditions.
    pub(crate) generation: i64,
    /// The time of the status change, for conditions.
    pub now: Timestamp,
}

impl Edit<'_> {
    /// Sets a condition; the transition time of the condition changes only with its status.
    pub fn set(&mut self, kind: &str, status: bool, reason: &str, message: &str) {
        set_in(&mut self.status.conditions, kind, (status, reason, message), self.generation, self.now);
    }

    fn remove(&mut self, kind: &str) {
        self.status.conditions.retain(|condition| condition.type_ != kind);
    }

    /// Sets a condition that was True to False because quota was reserved, and keeps the condition's old message.
    fn close_by_reservation(&mut self, kind: &str) {
        let Some(old) = find(&self.status.conditions, kind).filter(|condition| condition.status == "True") else {
            return;
        };
        let message = format!("Previously: {}", old.message);
        self.set(kind, false, reasons::QUOTA_RESERVED, &message);
    }

    /// Reserves quota, and admits the workload if no admission check must be waited for.
    pub(crate) fn reserve(&mut self, admission: api::Admission, checks: bool) {
        let message =
            format!("Quota reserved in ClusterQueue {}", admission.cluster_queue.as_deref().unwrap_or_default());
        self.status.admission = Some(admission);
        self.status.resource_requests.clear();
        self.status.unhealthy_nodes.clear();
        self.set(types::QUOTA_RESERVED, true, reasons::QUOTA_RESERVED, &message);
        for kind in [types::EVICTED, types::PREEMPTED, types::BLOCKED_ON_PREEMPTION_GATES] {
            self.close_by_reservation(kind);
        }
        if checks {
            self.set(
                types::ADMITTED,
                false,
                reasons::UNSATISFIED_ADMISSION_CHECKS,
                "The workload has not all checks ready",
            );
        } else {
            self.set(types::ADMITTED, true, reasons::ADMITTED, "The workload is admitted");
        }
    }

    /// Sets the condition that shows the capacity tiers of the assigned flavors; without a tier the condition is removed.
    pub(crate) fn tiers(&mut self, tiers: &[String]) {
        self.remove(own_types::CAPACITY_TIER);
        if !tiers.is_empty() {
            self.set(own_types::CAPACITY_TIER, true, reasons::QUOTA_RESERVED, &tiers.join(","));
        }
    }

    /// Takes over the counts of a job's lifetime from the workload that this workload replaces; `ran` is the time in seconds since the older workload's last
    /// admission.
    pub(crate) fn take_over(&mut self, older: &api::WorkloadStatus, ran: i64) {
        if let Some(counted) = &older.scheduling_stats {
            let stats = self.status.scheduling_stats.get_or_insert_with(Default::default);
            for entry in &counted.evictions {
                let same = |own: &&mut api::WorkloadSchedulingStatsEviction| {
                    own.reason == entry.reason && own.underlying_cause == entry.underlying_cause
                };
                match stats.evictions.iter_mut().find(same) {
                    // The reservation of the new slice may be written for a second time.
                    Some(own) => own.count = own.count.max(entry.count),
                    None => stats.evictions.push(entry.clone()),
                }
            }
        }
        if since(&older.conditions, types::ADMITTED, "True").is_none() {
            return;
        }
        let spent = i32::try_from(ran).unwrap_or(i32::MAX);
        let before = older.accumulated_past_execution_time_seconds.unwrap_or_default();
        let own = &mut self.status.accumulated_past_execution_time_seconds;
        *own = Some(before.saturating_add(spent.max(0)).max(own.unwrap_or_default()));
    }

    /// Sets the reason why the workload is pending.
    pub fn pending(&mut self, reason: &str, message: &str) {
        self.set(types::QUOTA_RESERVED, false, reason, message);
        self.not_admitted();
    }

    /// Sets the condition that the workload is not admitted, because it has no quota.
    pub(crate) fn not_admitted(&mut self) {
        self.set(types::ADMITTED, false, reasons::NO_RESERVATION, "The workload has no reservation");
    }

    /// Evicts the workload; its quota stays reserved until its job has stopped.
    pub(crate) fn evict(&mut self, reason: &str, cause: &str, message: &str) {
        let full = if cause.is_empty() || reason != reasons::DEACTIVATED {
            reason.to_owned()
        } else {
            format!("{DEACTIVATED_DUE_TO_PREFIX}{cause}")
        };
        self.set(types::EVICTED, true, &full, message);
        self.status.cluster_name = None;
        self.status.nominated_cluster_names.clear();
        self.status.unhealthy_nodes.clear();
        if is_true(&self.status.conditions, types::BLOCKED_ON_PREEMPTION_GATES) {
            self.set(types::BLOCKED_ON_PREEMPTION_GATES, false, &full, message);
        }
        for gate in &mut self.status.preemption_gates {
            gate.position = CLOSED.to_owned();
            gate.last_transition_time = Time(seconds(self.now));
        }
        self.reset_checks("eviction");
        let stats = self.status.scheduling_stats.get_or_insert_with(Default::default);
        match stats.evictions.iter_mut().find(|entry| entry.reason == reason && entry.underlying_cause == cause) {
            Some(entry) => entry.count = entry.count.saturating_add(1),
            None => stats.evictions.push(api::WorkloadSchedulingStatsEviction {
                reason: reason.to_owned(),
                underlying_cause: cause.to_owned(),
                count: 1,
            }),
        }
    }

    /// Resets all admission checks to Pending; the next try waits for the latest time that a check in state Retry requests.
    pub(crate) fn reset_checks(&mut self, after: &str) {
        if let Some(at) = berth_cache::admission_checks::retry_at(&self.status.admission_checks) {
            let state = self.status.requeue_state.get_or_insert_with(Default::default);
            state.requeue_at = Some(Time(seconds(at)));
        }
        for check in &mut self.status.admission_checks {
            if check.state != check_states::PENDING {
                check.retry_count = match check.state.as_str() {
                    check_states::RETRY => Some(check.retry_count.unwrap_or_default().saturating_add(1)),
                    // The retry count is the number of tries of one wait: the count of a check that was ready, or given up, begins at zero again. The retry
                    // count zero is written, and not left out, because another manager may own the entry, too.
                    _ => check.retry_count.map(|_| 0),
                };
                check.message = format!("Reset to Pending after {after}. Previously: {}", check.state);
                check.state = check_states::PENDING.to_owned();
                check.pod_set_updates.clear();
                check.last_transition_time = Time(seconds(self.now));
            }
        }
    }

    /// Releases quota after the job has stopped.
    pub fn release(&mut self, requeued: bool) {
        let (reason, message) = find(&self.status.conditions, types::EVICTED)
            .map(|condition| (condition.reason.clone(), condition.message.clone()))
            .unwrap_or_default();
        self.take_back(reasons::PENDING_EVALUATION, &message);
        if reason.strip_prefix(DEACTIVATED_DUE_TO_PREFIX) == Some(reasons::MAXIMUM_EXECUTION_TIME_EXCEEDED) {
            // A reactivation gives the workload the full execution time again.
            self.status.accumulated_past_execution_time_seconds = None;
        }
        // A condition `Requeued` that stayed True would keep the time of the previous eviction, and the run since then would count as waiting.
        self.remove(types::REQUEUED);
        self.set(types::REQUEUED, requeued, &reason, &message);
    }

    /// Ends the reservation with a reason; the time since the admission is added to the accumulated execution time.
    pub fn take_back(&mut self, reason: &str, message: &str) {
        if let Some(admitted) = since(&self.status.conditions, types::ADMITTED, "True") {
            let spent = self.now.as_second().saturating_sub(admitted.as_second());
            let past = self.status.accumulated_past_execution_time_seconds.unwrap_or_default();
            self.status.accumulated_past_execution_time_seconds =
                Some(past.saturating_add(i32::try_from(spent).unwrap_or(i32::MAX)));
        }
        self.status.admission = None;
        self.remove(own_types::CAPACITY_TIER);
        self.pending(reason, message);
        // The condition `PodsReady` is set to False and not removed when quota is released: Kueue may still own the key of the condition `PodsReady`, and the
        // API server refuses a write that leaves a part of a condition.
        if find(&self.status.conditions, types::PODS_READY).is_some() {
            self.set(types::PODS_READY, false, reasons::WAIT_FOR_START, "Not all pods are ready or succeeded");
        }
    }

    /// Allows another try of the workload.
    pub(crate) fn requeue(&mut self, reason: &str, message: &str) {
        self.set(types::REQUEUED, true, reason, message);
        if let Some(state) = &mut self.status.requeue_state {
            state.requeue_at = None;
        }
    }

    /// Removes the state of a deactivation: the eviction has the same reason.
    pub(crate) fn forget_deactivation(&mut self) {
        self.remove(types::DEACTIVATION_TARGET);
        self.status.requeue_state = None;
    }

    /// Finishes the workload.
    pub fn finish(&mut self, reason: &str, message: &str) {
        self.set(types::FINISHED, true, reason, message);
    }
}

/// Sets a condition in a list of conditions; true if the condition changed in more than its time.
pub(crate) fn set_in(
    conditions: &mut Vec<Condition>,
    kind: &str,
    (status, reason, message): (bool, &str, &str),
    generation: i64,
    now: Timestamp,
) -> bool {
    let status = if status { "True" } else { "False" };
    let new = NewCondition { type_: kind, status, reason, message, generation: Some(generation) };
    set_condition(conditions, new, now)
}

/// Whether `status.resourceRequests` must be written again. Two notations of one amount of a resource, such as `1500m` and `1.5`, do not count as a difference.
#[must_use]
pub fn requests_differ(current: &[api::PodSetRequest], wanted: &[api::PodSetRequest]) -> bool {
    // A status that Berth wrote has the same text, so that amounts are rarely parsed.
    let amount = |text: &Quantity| berth_quantity::parse_quantity(&text.0).ok();
    let same_amount =
        |one: &Quantity, other: &Quantity| one == other || amount(one).is_some_and(|one| Some(one) == amount(other));
    let same_set = |(one, other): (&api::PodSetRequest, &api::PodSetRequest)| {
        let same = |(one, other): ((&String, &Quantity), (&String, &Quantity))| {
            one.0 == other.0 && same_amount(one.1, other.1)
        };
        one.name == other.name
            && one.resources.len() == other.resources.len()
            && one.resources.iter().zip(&other.resources).all(same)
    };
    current.len() != wanted.len() || !current.iter().zip(wanted).all(same_set)
}

/// API version and kind of a Workload.
pub(crate) const KIND: (&str, &str) = (api::API_VERSION, "Workload");

/// The complete apply body of the admission manager.
pub(crate) fn admission_body(identity: &Identity<'_>, status: &api::WorkloadStatus) -> ObjectApply {
    let mut fields = Map::new();
    if let Value::Object(all) = to_value(status) {
        for (key, value) in all {
            match key.as_str() {
                // Another field manager writes the field `reclaimablePods`.
                "reclaimablePods" => {}
                // An apply leaves null for an object whose last field is removed, and the API server refuses null.
                _ if value.as_object().is_some_and(Map::is_empty) => {}
                "conditions" => {
                    let owned: Vec<Value> = value
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter(|item| {
                            item.get("type").and_then(Value::as_str).is_some_and(|kind| OWNED.contains(&kind))
                        })
                        .cloned()
                        .collect();
                    fields.insert(key, Value::Array(owned));
                }
                _ => {
                    fields.insert(key, value);
                }
            }
        }
    }
    ObjectApply::of_version(KIND, identity).status(fields.into())
}
