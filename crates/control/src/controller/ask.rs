//! Questions and commands to `Control` beside observations and outcomes, and the translation of a Workload for the engine.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use berth_api::conditions::types;
use berth_engine::World;
use berth_engine::model as engine;
use jiff::Timestamp;
use rustc_hash::FxHasher;

use crate::cache::WorkloadView;
use crate::context::Context;
use crate::controller::flight::Draft;
use crate::controller::{Control, key, millis};
use crate::deltas;
use crate::training_job::elastic::admitted_before;
use crate::workload::explain::{Told, explain};
use crate::workload::older_reasons;
use crate::write::Kind;

impl Control {
    /// The engine's world, for questions that change nothing in the view.
    pub fn world(&mut self) -> &mut World {
        &mut self.quota.world
    }

    /// Time of the next retry of a failed write, if one waits.
    #[must_use]
    pub fn retry_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.flights.next_retry(now)
    }

    /// Whether a write may be decided now.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.context().leads()
    }

    /// Plans again with the next step, whether something was observed or not.
    pub fn look_again(&mut self) {
        self.quota.plan_again();
    }

    /// A ClusterQueue as the engine gets it, `None` when there is none of that name.
    #[must_use]
    pub fn told_cluster_queue(&self, name: &str) -> Option<engine::ClusterQueueSpec> {
        let object = self.view.cluster_queues.get(name)?;
        Some(self.context().queue_spec(object))
    }

    /// A LocalQueue as the engine gets it; without an object it has that name and nothing else.
    #[must_use]
    pub fn told_local_queue(&self, namespace: &str, name: &str) -> engine::LocalQueueSpec {
        let key = (namespace.to_owned(), name.to_owned());
        let named = || {
            let mut object = berth_api::LocalQueue::default();
            object.metadata.namespace = Some(key.0.clone());
            object.metadata.name = Some(key.1.clone());
            object
        };
        let known = self.view.local_queues.get(&key);
        known.map_or_else(|| deltas::local_queue(&named()), |object| deltas::local_queue(object))
    }

    /// A Cohort as the engine gets it; without an object it has that name and nothing else.
    #[must_use]
    pub fn told_cohort(&self, name: &str) -> engine::CohortSpec {
        let named = || {
            let mut object = berth_api::Cohort::default();
            object.metadata.name = Some(name.to_owned());
            object
        };
        self.view.cohorts.get(name).map_or_else(|| deltas::cohort(&named()), |object| deltas::cohort(object))
    }

    /// Cohorts that exist: by an object of their own, or because one of these ClusterQueues or a Cohort names them. Cohorts below a cycle are left
    /// out.
    #[must_use]
    pub fn cohorts_above(&self, cluster_queues: &[String]) -> BTreeSet<String> {
        let named =
            cluster_queues.iter().filter_map(|name| self.view.cluster_queues.get(name)?.spec.cohort_name.clone());
        let parents = self.view.cohorts.values().filter_map(|cohort| cohort.spec.parent_name.clone());
        let all = named.chain(parents).chain(self.view.cohorts.keys().cloned());
        all.filter(|name| !name.is_empty() && !self.quota.world.cohort_cycle(name)).collect()
    }

    /// A Workload as the engine gets it, `None` when it is unknown.
    #[must_use]
    pub fn told(&self, namespace: &str, name: &str) -> Option<engine::WorkloadSpec> {
        self.context().told(namespace, name)
    }

    /// Names of the admission checks that concern a Workload in a ClusterQueue, `None` when either is unknown.
    #[must_use]
    pub fn checks_of(&self, namespace: &str, name: &str, cluster_queue: &str) -> Option<Vec<String>> {
        let workload = self.view.workloads.get(&(namespace.to_owned(), name.to_owned()))?;
        let queue = self.view.cluster_queues.get(cluster_queue)?;
        Some(crate::queues::checks::concerning(&queue.spec, workload.status.admission.as_ref()))
    }
}

impl Context<'_> {
    /// The status write with the reason why a workload waits after a cycle. `reason` may be absent, though the engine always gives one.
    pub(crate) fn telling(
        &self,
        uid: &str,
        reason: Option<engine::PendingReason>,
        message: &str,
        is_gated: bool,
        now: Timestamp,
    ) -> Option<Draft> {
        let workload = self.view.workloads.by_uid(uid)?;
        let named = reason.map_or("", engine::PendingReason::as_str);
        let reason = if self.settings.observe_unadmitted { named } else { older_reasons::of_cycle(reason) };
        let mut draft = explain(workload, &Told { reason, message, leading: true, is_gated }, now);
        self.say_older_reasons(&mut draft);
        Some(draft)
    }

    /// A Workload as the engine gets it, `None` when it is unknown.
    pub(crate) fn told(&self, namespace: &str, name: &str) -> Option<engine::WorkloadSpec> {
        let name = (namespace.to_owned(), name.to_owned());
        self.view.workloads.get(&name).map(|workload| self.engine_workload(workload))
    }

    pub(crate) fn engine_workload(&self, workload: &WorkloadView) -> engine::WorkloadSpec {
        let conditions = &workload.status.conditions;
        let state = match &workload.status.admission {
            Some(admission) if workload.reserved() => {
                let reserved = crate::workload::status::since(conditions, types::QUOTA_RESERVED, "True")
                    .unwrap_or(workload.created);
                // A scale-up keeps the original admission time: it does not renew its preemption protection, and its loss counts from that time.
                let at = admitted_before(workload).map_or(reserved, |before| before.min(reserved));
                // A workload whose owner's kind cannot be listed cannot be evicted: its preemptor would wait for ever.
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
                blocked: crate::workload::blocked::counted(self, workload),
            },
        };
        let replaces = self.replaced(workload);
        let runs = self.is_on_trial(workload) && self.runs_without_quota(workload);
        let mut pod_sets = workload.shape.pod_sets.clone();
        let overrides = self.overrides_selectors(workload);
        let no_affinity = workload.whole().is_some_and(|whole| !whole.kind.takes_affinity());
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
            Some(wish) => wish.tiers.clone().ok(),
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
            // Growth takes what is idle, and so do pods that were let in: they may be gone before their victims are.
            preempts: match replaces.is_some()
                || runs
                || self.flights.was_refused_quota(&key(Kind::Workload, &workload.key()))
            {
                true => engine::Preempts::Nobody,
                false => workload.preempts,
            },
            points_per_hour: self.rules_for(workload).map_or(0, |rules| rules.points_per_hour),
            waits_since: millis(workload.waits_since()),
            replaces,
            refused: workload.shape.refused.clone(),
            checks_failed: crate::queues::checks::have_failed(&workload.status.admission_checks),
            preemption_gated: workload.has_closed_preemption_gate(),
            runs,
            state,
            revision: revision(workload),
        }
    }

    /// Whether equal workloads in the queue of this one preempt each other by age: one put before an older one would be preempted by it.
    fn equals_go_by_age(&self, workload: &WorkloadView) -> bool {
        let queue = self.queue_of(workload).and_then(|name| self.view.cluster_queues.get(name));
        queue.is_some_and(|queue| deltas::equals_go_by_age(queue))
    }

    /// Time before which a workload must not be tried: its requeue time, or the back-off of a refused write.
    fn not_before(&self, workload: &WorkloadView) -> Option<engine::Millis> {
        let requeue = workload
            .status
            .requeue_state
            .as_ref()
            .and_then(|state| state.requeue_at.as_ref())
            .map(|time| millis(time.0));
        let failed = self.flights.backing_off(&key(Kind::Workload, &workload.key()), workload.created).map(millis);
        requeue.max(failed)
    }
}

/// Changes with everything for which the engine tries a parked workload again. The reason why it waits is left out, because it is
/// written after each try.
fn revision(workload: &WorkloadView) -> u64 {
    let mut hasher = FxHasher::default();
    (workload.generation, workload.reshaped).hash(&mut hasher);
    for kind in [types::EVICTED, types::REQUEUED] {
        let condition = crate::workload::status::find(&workload.status.conditions, kind);
        let said = condition.map(|said| (&said.status, &said.reason, &said.message, said.last_transition_time.0));
        said.hash(&mut hasher);
    }
    hasher.finish()
}
