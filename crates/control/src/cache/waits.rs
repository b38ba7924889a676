//! Time since when a workload waits, and its place in its queue by that.

use berth_api::conditions::{find, find_true, reasons, types};
use jiff::{SignedDuration, Timestamp};

use super::WorkloadView;
use crate::cache::tier_reasons::{LEAVES_TIER, RECLAIMED};
use crate::moments::after_seconds;

impl WorkloadView {
    /// Time since when its job is queued: a slice by which the job grew was made later, and takes its place in the queue over.
    pub(crate) fn queued_first(&self) -> Timestamp {
        let past = self.rare.as_ref().and_then(|rare| rare.past);
        past.map_or(self.created, |past| past.queued.min(self.created))
    }

    /// Whether it is evicted because its capacity was taken from it.
    pub(crate) fn was_reclaimed(&self) -> bool {
        find_true(&self.status.conditions, types::EVICTED).is_some_and(|evicted| evicted.reason == RECLAIMED)
    }

    /// Time since when it waits, where waiting counts: since its last eviction. If that was its capacity's fault, it counts as if it had waited on
    /// since its creation, or since it last came back from a preemption, but for the time for which it was admitted.
    pub(crate) fn waits_since(&self) -> Timestamp {
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

    /// Queue-order timestamp.
    pub(crate) fn queued_at(&self, by_creation: bool, by_reclaim: bool) -> Timestamp {
        let evicted = find_true(&self.status.conditions, types::EVICTED);
        // Without priority among queues, a workload that was reclaimed while borrowing goes behind its preemptor.
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
