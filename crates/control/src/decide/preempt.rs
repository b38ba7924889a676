//! Preemption of a workload, once the engine has chosen it as a victim.

use std::collections::BTreeMap;

use berth_engine::model as engine;
use jiff::Timestamp;

use super::workload::{REPORTER, notice, status_write};
use crate::core::Control;
use crate::flight::Decision;
use crate::view::WorkloadView;
use crate::write::{EventType, Purpose, SCHEDULER};

/// Message of the Preempted condition, in Kueue's words. What is empty is unknown.
#[must_use]
pub fn preemption_message(
    (preemptor_uid, job_uid): (&str, &str),
    reason: &str,
    preemptor_path: &str,
    preemptee_path: &str,
) -> String {
    let or_unknown = |text: &str| if text.is_empty() { "UNKNOWN".to_owned() } else { text.to_owned() };
    let cause = match reason {
        "InClusterQueue" => "prioritization in the ClusterQueue",
        "InCohortReclamation" => "reclamation within the cohort",
        "InCohortFairSharing" => "Fair Sharing within the cohort",
        "InCohortReclaimWhileBorrowing" => "reclamation within the cohort while borrowing",
        other => other,
    };
    format!(
        "Preempted to accommodate a workload (UID: {}, JobUID: {}) due to {}; preemptor path: {}; preemptee path: {}",
        or_unknown(preemptor_uid),
        or_unknown(job_uid),
        or_unknown(cause),
        or_unknown(preemptor_path),
        or_unknown(preemptee_path)
    )
}

pub(crate) fn preempt(
    control: &Control,
    workload: &WorkloadView,
    eviction: &engine::Eviction,
    now: Timestamp,
) -> Decision {
    let preemptor = control.view.workloads.by_uid(&eviction.preemptor);
    let job = preemptor.and_then(|preemptor| preemptor.job_uid.as_deref()).unwrap_or_default();
    let message = preemption_message(
        (&eviction.preemptor, job),
        eviction.reason,
        &eviction.preemptor_path,
        &eviction.preemptee_path,
    );
    let mut draft = status_write(workload, Purpose::Evict, now, |edit| {
        edit.evict("Preempted", "", &message);
        edit.set("Preempted", true, eviction.reason, &message);
    });
    draft.notices.push(notice(workload, EventType::Normal, "EvictedDueToPreempted", message.clone(), REPORTER));
    draft.notices.push(notice(workload, EventType::Normal, "Preempted", message, SCHEDULER));
    if let Some(preemptor) = preemptor {
        let victim = workload.job_uid.as_deref().unwrap_or("UNKNOWN");
        let message = format!("Preempted a workload (UID: {}, JobUID: {victim})", workload.uid);
        draft.notices.push(notice(preemptor, EventType::Normal, "PreemptedWorkload", message, SCHEDULER));
    }
    Decision::write(draft)
}

impl Control {
    /// Preempts, with the next step, whom the engine names as victims of a workload that would use `usage` in a
    /// ClusterQueue where the cells in `needs` lack quota. `None` when workload or queue is unknown.
    pub fn preempt_for(
        &mut self,
        uid: &str,
        cluster_queue: &str,
        needs: &[engine::FlavorResource],
        usage: &BTreeMap<engine::FlavorResource, engine::Amount>,
    ) -> Option<Vec<engine::Eviction>> {
        let evictions = self.world.evictions_for(uid, cluster_queue, needs, usage)?;
        for eviction in &evictions {
            self.evict_with_next_step(eviction.clone());
        }
        Some(evictions)
    }
}
