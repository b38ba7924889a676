//! Translation of a Workload into the engine's types.

use std::hash::{Hash, Hasher};

use berth_api::conditions::types;
use berth_engine::model as engine;
use rustc_hash::FxHasher;

use crate::context::Context;
use crate::decision::Draft;
use crate::training_job::elastic::admitted_before;
use crate::workload::blocked;
use crate::workload::explain::{PendingReport, explain};
use crate::workload::older_reasons;
use crate::workload::status::{find, since};
use crate::write::{Kind, key};
use berth_cache::deltas;
use berth_cache::moments::millis;
use berth_cache::{Name, WorkloadView};
use jiff::Timestamp;

impl Context<'_> {
    /// The status write with the reason why a workload waits after a scheduling cycle. `reason` may be absent, though the engine always gives a reason.
    pub fn explain(
        &self,
        uid: &str,
        reason: Option<engine::PendingReason>,
        message: &str,
        is_gated: bool,
        now: Timestamp,
    ) -> Option<Draft> {
        let workload = self.view.workloads().by_uid(uid)?;
        let named = reason.map_or("", engine::PendingReason::as_str);
        let reason = if self.settings.observe_unadmitted { named } else { older_reasons::of_cycle(reason) };
        let mut draft = explain(workload, &PendingReport { reason, message, leading: true, is_gated }, now);
        self.say_older_reasons(&mut draft);
        Some(draft)
    }

    /// A Workload in the engine's type, `None` if the Workload is unknown.
    pub fn workload_spec(&self, namespace: &str, name: &str) -> Option<engine::WorkloadSpec> {
        let name = (namespace.to_owned(), name.to_owned());
        self.view.workloads().get(&name).map(|workload| self.engine_workload(workload))
    }

    /// A Workload of the view in the engine's type.
    pub(crate) fn engine_workload(&self, workload: &WorkloadView) -> engine::WorkloadSpec {
        let conditions = &workload.status.conditions;
        let state = match &workload.status.admission {
            Some(admission) if workload.reserved() => {
                let reserved = since(conditions, types::QUOTA_RESERVED, "True").unwrap_or(workload.created);
                // A scale-up keeps the original admission time: the scale-up does not renew the job's preemption protection, and lost work counts from that
                // time.
                let at = admitted_before(workload).map_or(reserved, |before| before.min(reserved));
                // A workload whose owner's kind cannot be listed cannot be evicted: its preemptor would wait forever.
                let kept = self.unlisted_owner(workload).is_some();
                engine::WorkloadState::Reserved(deltas::reservation(
                    admission,
                    |name| workload.pods(name, self.settings.reclaimable_pods),
                    (millis(at), self.saved_at(workload).map(millis)),
                    (workload.is(types::ADMITTED), workload.is(types::EVICTED), kept),
                    self.surplus_of(workload),
                ))
            }
            _ => engine::WorkloadState::Pending {
                not_before: self.not_before(workload),
                blocked: blocked::counted(self, workload),
            },
        };
        let replaces = self.replaced(workload);
        let runs = self.is_on_trial(workload) && self.runs_without_quota(workload);
        let mut pod_sets = workload.shape.pod_sets.clone();
        let overrides = self.overrides_selectors(workload);
        let no_affinity = workload.owner_key().is_some_and(|owner_key| !owner_key.kind.takes_affinity());
        for set in &mut pod_sets {
            set.no_affinity = no_affinity;
            if overrides {
                deltas::strip_capacity(set);
            }
            set.count = workload.remaining(&set.name, self.settings.reclaimable_pods).unwrap_or(set.count);
        }
        if !workload.reserved() {
            self.cap_gpus(workload, &mut pod_sets);
        }
        let tiers = match &workload.tiers {
            Some(request) => request.tiers.clone().ok(),
            None => self.tiers_by_label(workload, &pod_sets),
        };
        let tiers = self.line_of(workload, tiers, &pod_sets);
        let by_creation = self.settings.wait_for_pods_ready.as_ref().is_some_and(|settings| settings.order_by_creation);
        engine::WorkloadSpec {
            uid: workload.uid.clone(),
            namespace: workload.namespace.clone(),
            name: workload.name.clone(),
            local_queue: workload.queue.clone(),
            priority: workload.priority,
            queued_at: millis(workload.queued_at(by_creation, !self.settings.engine.gates.priority_sorting)),
            at_front: workload.was_reclaimed() && !self.equals_go_by_age(workload),
            pod_sets,
            allowed_flavors: workload.rare.as_ref().and_then(|rare| rare.allowed_flavors.clone()),
            tiers,
            // A scale-up takes only idle quota, and so do pods that were let in: pods that were let in may be gone before their victims are.
            preempts: match replaces.is_some() || runs || self.in_flight.was_refused_quota(&workload.object_key()) {
                true => engine::Preempts::Nobody,
                false => workload.preempts,
            },
            points_per_hour: self.rules_for(workload).map_or(0, |rules| rules.points_per_hour),
            waits_since: millis(workload.waits_since()),
            replaces,
            refused: workload.shape.refused.clone(),
            checks_failed: berth_cache::admission_checks::have_failed(&workload.status.admission_checks),
            preemption_gated: workload.has_closed_preemption_gate(),
            runs,
            state,
            revision: revision(workload),
        }
    }

    /// Whether equal workloads in the ClusterQueue of this workload preempt each other by age: in such a ClusterQueue an older workload would preempt a
    /// workload that is ordered before it.
    fn equals_go_by_age(&self, workload: &WorkloadView) -> bool {
        let queue = self.queue_of(workload).and_then(|name| self.view.cluster_queues().get(name));
        queue.is_some_and(|queue| deltas::equals_go_by_age(queue))
    }

    /// Time before which a workload must not be tried: its requeue time, or the end of the back-off after a refused write.
    fn not_before(&self, workload: &WorkloadView) -> Option<engine::Millis> {
        let requeue = workload
            .status
            .requeue_state
            .as_ref()
            .and_then(|state| state.requeue_at.as_ref())
            .map(|time| millis(time.0));
        let failed = self.in_flight.backing_off(&workload.object_key(), workload.created).map(millis);
        requeue.max(failed)
    }
}

/// A change of a workload in the engine's world.
pub struct Mirrored {
    /// Uid of the workload.
    pub uid: String,
    /// The change that the engine is to apply.
    pub delta: engine::Delta,
    /// True if the workload requests no quota any more, and holds no quota.
    pub is_over: bool,
    /// True if the workload does not wait: the workload is over, or has quota.
    pub is_settled: bool,
}

impl Context<'_> {
    /// The change that passes a workload of the view to the engine; `None` while a write of Berth about the workload's quota is under way: until the watch
    /// shows the result, the engine's own accounting holds. A write to a workload without quota, such as its pending reason, delays nothing: the ClusterQueue
    /// may open before the watch shows that write, and the engine must know by then that pods of the job run, or which policy the ClusterQueue follows.
    pub fn mirrored(&self, name: &Name) -> Option<Mirrored> {
        let workload = self.view.workloads().get(name)?;
        let holds = || workload.reserved() || self.quota.world().holds_quota(&workload.uid);
        let is_planned = self.notes_of(workload).plan().admission().is_some();
        if is_planned || (self.in_flight.busy(&key(Kind::Workload, name)) && holds()) {
            return None;
        }
        let waits = workload.active && !workload.deleting;
        let is_over = workload.is_finished() || (!workload.reserved() && !waits);
        let uid = workload.uid.clone();
        let delta = match is_over {
            true => engine::Delta::RemoveWorkload(uid.clone()),
            false => engine::Delta::Workload(self.engine_workload(workload)),
        };
        Some(Mirrored { uid, delta, is_over, is_settled: is_over || workload.reserved() })
    }
}

/// A hash that changes with every fact for which the engine tries a parked workload again. The pending reason of a workload does not change the hash, because
/// the reason is written after each try.
fn revision(workload: &WorkloadView) -> u64 {
    let mut hasher = FxHasher::default();
    (workload.generation, workload.reshaped).hash(&mut hasher);
    for kind in [types::EVICTED, types::REQUEUED] {
        let condition = find(&workload.status.conditions, kind);
        let found_condition = condition.map(|found_condition| {
            (
                &found_condition.status,
                &found_condition.reason,
                &found_condition.message,
                found_condition.last_transition_time.0,
            )
        });
        found_condition.hash(&mut hasher);
    }
    hasher.finish()
}

impl Context<'_> {
    /// Replaces the reasons in a status write by Kueue's older reasons, if the configuration selects them.
    pub fn say_older_reasons(&self, draft: &mut Draft) {
        if self.settings.observe_unadmitted {
            return;
        }
        let name = (draft.key.namespace.clone(), draft.key.name.clone());
        if let (Kind::Workload, Some(workload)) = (draft.key.kind, self.view.workloads().get(&name)) {
            older_reasons::reword(draft, &workload.status);
        }
    }
}

#[cfg(test)]
mod tests;
