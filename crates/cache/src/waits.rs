//! The time since which a Workload waits, and the Workload's place among the Workloads of its ClusterQueue according to this time.

use berth_api::conditions::{find, find_true, reasons, types};
use jiff::{SignedDuration, Timestamp};

use super::WorkloadView;
use crate::moments::after_seconds;
use crate::tier_reasons::{LEAVES_TIER, RECLAIMED};

impl WorkloadView {
    /// The time since which a Workload's job is queued: a slice by which the job grew was created later, and keeps the job's place in the queue.
    pub fn queued_first(&self) -> Timestamp {
        let past = self.rare.as_ref().and_then(|rare| rare.past);
        past.map_or(self.created, |past| past.queued.min(self.created))
    }

    /// Whether a Workload is evicted because its capacity was taken away.
    pub fn was_reclaimed(&self) -> bool {
        find_true(&self.status.conditions, types::EVICTED).is_some_and(|evicted| evicted.reason == RECLAIMED)
    }

    /// The time since which a Workload waits, where a QueuePolicy raises priorities by waiting: since the Workload's last eviction, or since its creation if it
    /// is not evicted. After an eviction for lack of capacity, the waiting counts from the Workload's creation, or from its last return after a preemption,
    /// without the time for which the Workload was admitted.
    pub fn waits_since(&self) -> Timestamp {
        let conditions = &self.status.conditions;
        let Some(evicted) = find_true(conditions, types::EVICTED) else { return self.created };
        let evicted_at = evicted.last_transition_time.0;
        if !LEAVES_TIER.contains(&evicted.reason.as_str()) {
            return evicted_at;
        }
        let preempted = find(conditions, types::PREEMPTED).map(|condition| condition.last_transition_time.0);
        let began = preempted.map_or(self.created, |at| at.max(self.created));
        let ran = i64::from(self.status.accumulated_past_execution_time_seconds.unwrap_or_default());
        after_seconds(began, ran).min(evicted_at)
    }

    /// The timestamp by which the Workloads of a ClusterQueue are ordered.
    pub fn queued_at(&self, by_creation: bool, by_reclaim: bool) -> Timestamp {
        let evicted = find_true(&self.status.conditions, types::EVICTED);
        // If workloads of a cohort are not sorted by priority, a Workload that was reclaimed while it borrowed is ordered behind its preemptor.
        let reclaimed = find(&self.status.conditions, types::PREEMPTED)
            .filter(|c| by_reclaim && c.status == "True" && c.reason == reasons::IN_COHORT_RECLAIM_WHILE_BORROWING)
            .and_then(|c| c.last_transition_time.0.checked_add(SignedDuration::from_millis(1)).ok());
        match evicted.map(|condition| (condition.reason.as_str(), condition.last_transition_time.0)) {
            Some((reasons::PODS_READY_TIMEOUT, at)) if !by_creation => at,
            Some((reasons::ADMISSION_CHECK, at)) => at,
            _ => reclaimed.unwrap_or_else(|| self.queued_first()),
        }
    }
}
