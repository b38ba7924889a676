//! The request to the engine for a plan, and the effect of the plan on the state of control.

use berth_api::conditions::types;
use berth_cache::moments::{after, millis};
use berth_cache::settings::Settings;
use berth_cache::{View, WorkloadPhase};
use berth_engine::model as engine;
use berth_reconcile::measure::Measure;
use berth_reconcile::notes::Notes;
use berth_reconcile::state::in_flight::InFlightWrites;
use berth_reconcile::state::plans;
use berth_reconcile::state::work_queue::WorkQueue;
use berth_reconcile::state::{Quota, Reports};
use berth_reconcile::training_job::growth;
use berth_reconcile::write::{Kind, key};
use jiff::{SignedDuration, Timestamp};

/// Divisor of the limit of unacknowledged admissions: after a plan that reached the limit, the next plan waits until a quarter of the limit is free.
const ROOM: usize = 4;
/// Time in milliseconds after which a plan waits no longer for free room under the limit of unacknowledged admissions.
const ROOM_MS: i64 = 1_000;

/// Time in milliseconds for which a plan waits for Workloads that are being created. The API server creates Workloads in any order, and jobs that arrive
/// together are to be admitted in their own order.
const CREATION_MS: i64 = 250;

/// Plans the eviction of a victim that the engine has chosen, and marks the victim for a decision with the next step.
pub(crate) fn evict_with_next_step(view: &View, notes: &mut Notes, work: &mut WorkQueue, eviction: engine::Eviction) {
    if let Some(name) = view.workloads().name_of(&eviction.uid) {
        work.add(key(Kind::Workload, &name));
        plans::plan_eviction(notes.workloads_mut(), eviction);
    }
}

/// Spares the victims of a Workload that does not request quota any more, if their eviction is not written yet.
pub(crate) fn spare_victims_of(quota: &mut Quota, notes: &mut Notes, preemptor: &str) {
    let mut spared = plans::spare_victims(notes.workloads_mut(), preemptor);
    spared.extend(growth::spare_workers(notes.workloads_mut(), preemptor));
    for uid in spared {
        quota.spare(uid);
    }
}

/// Sweeps over the parked Workloads, and returns the number of Workloads that fit and that no event had woken. The sweep also forgets back-offs that ended
/// long ago and waiting objects that are gone.
pub(crate) fn sweep(
    view: &View,
    quota: &mut Quota,
    in_flight: &mut InFlightWrites,
    work: &mut WorkQueue,
    now: Timestamp,
) -> usize {
    let Some(again) = work.begin_sweep(now) else { return 0 };
    in_flight.forget_old(now);
    work.forget_gone(|object| view.uid_of(object).is_some() || !object.kind.has_uid());
    let found = if again { quota.world_mut().sweep(millis(now)) } else { 0 };
    if found > 0 {
        quota.plan_again();
    }
    found
}

/// The owners of the state that making a plan changes.
pub(crate) struct Planning<'a> {
    /// The settings of control.
    pub(crate) settings: &'a Settings,
    /// True if there is no API server, so that reasons are written at once.
    pub(crate) is_offline: bool,
    /// The observed objects.
    pub(crate) view: &'a View,
    /// Writes under way.
    pub(crate) in_flight: &'a mut InFlightWrites,
    /// The engine's world and plans.
    pub(crate) quota: &'a mut Quota,
    /// Notes of control about objects.
    pub(crate) notes: &'a mut Notes,
    /// The objects to decide about.
    pub(crate) work: &'a mut WorkQueue,
    /// Reports to users and operators.
    pub(crate) reports: &'a mut Reports,
}

impl Planning<'_> {
    /// Reports to the Workload at the head of each ClusterQueue that the Workload waits until all admitted Workloads are ready.
    fn explain_block(&mut self, now: Timestamp) {
        let mut heads = Vec::new();
        for queue in self.view.cluster_queues().keys() {
            let (active, _) = self.quota.world().pending(queue);
            let Some(uid) = active.into_iter().next() else { continue };
            heads.push(engine::Verdict {
                uid: uid.into(),
                reason: engine::PendingReason::WaitingForPodsReady,
                message: "waiting for all admitted workloads to be in PodsReady condition".into(),
                leading: true,
            });
        }
        for verdict in heads {
            self.report(verdict, now);
        }
    }

    /// Takes the reason why a Workload waits; control writes the reason into the Workload's status when the write is due.
    fn report(&mut self, verdict: engine::Verdict, now: Timestamp) {
        if let Some(workload) = self.view.workloads().by_uid(&verdict.uid) {
            self.reports.reason_limiter().take(self.notes.workloads_mut(), verdict, workload, now, self.is_offline);
        }
    }

    /// Whether the next plan waits until more unacknowledged admissions are allowed. A plan tries the heads of all queues, even if few of them may be
    /// admitted, so one plan for many admissions costs less.
    fn waits_for_room(&mut self, free: usize, now: Timestamp) -> bool {
        let due =
            self.quota.plans().filled_at().and_then(|at| at.checked_add(SignedDuration::from_millis(ROOM_MS)).ok());
        let Some(due) = due.filter(|due| *due > now && free < self.settings.max_unacknowledged / ROOM) else {
            return false;
        };
        self.work.wake_at(due);
        true
    }

    /// Whether the next plan waits for Workloads that are being created.
    fn waits_for_creations(&mut self, now: Timestamp) -> bool {
        if self.is_offline || !self.in_flight.creates_workloads() {
            return false;
        }
        let due = after(self.quota.plans_mut().delay(now), CREATION_MS);
        if due > now {
            self.work.wake_at(due);
        } else {
            self.in_flight.forget_first_creations();
        }
        due > now
    }

    /// Asks the engine for a plan if a plan is wanted, and notes the admissions, evictions and reasons of the plan. The function returns true if the plan may
    /// have changed the figures in the statuses of queues.
    pub(crate) fn plan(&mut self, now: Timestamp, cycles: u64) -> bool {
        let free = self.settings.max_unacknowledged.saturating_sub(plans::under_way(self.notes.workloads()));
        if !self.quota.wants_plan() || free == 0 || self.waits_for_room(free, now) || self.waits_for_creations(now) {
            return false;
        }
        self.quota.plans_mut().end_delay();
        let one_by_one = self.settings.wait_for_pods_ready.as_ref().is_some_and(|settings| settings.block_admission);
        if one_by_one && self.unready() {
            // While an admitted Workload is not ready, no time for a new plan is set: the observation that this Workload is ready or has ended asks for a new
            // plan.
            self.quota.planned(false);
            self.explain_block(now);
            return false;
        }
        let max_admissions = if one_by_one { 1 } else { free };
        let plan = self.quota.world_mut().plan_cycles(millis(now), engine::Limits { max_admissions }, cycles);
        self.quota.planned(plan.more || cycles == 0);
        self.quota.plans_mut().note_filled((plan.more && plan.admissions.len() >= free).then_some(now));
        if plan.cycles > 0 {
            self.reports.note_skipped_preemptions(plan.skipped_preemptions);
        }
        for ((queue, result), by) in plan.recomputed_targets {
            let labels = vec![("cluster_queue", queue), ("result", result.to_owned())];
            let name = "kueue_preemption_target_recomputations";
            self.reports.add_measure(Measure::Count { name, labels, by: u64::from(by) });
        }
        let success = !plan.admissions.is_empty();
        if plan.cycles > 0 {
            self.reports.add_measure(Measure::Count {
                name: "kueue_admission_attempts",
                labels: vec![("result", if success { "success" } else { "inadmissible" }.to_owned())],
                by: plan.cycles,
            });
        }
        for admission in plan.admissions {
            self.reports.reason_limiter_mut().admitted(self.notes.workloads_mut(), &admission.uid, now);
            if let Some(name) = self.view.workloads().name_of(&admission.uid) {
                self.work.add(key(Kind::Workload, &name));
                plans::plan_admission(self.notes.workloads_mut(), admission);
            }
        }
        for eviction in plan.evictions {
            if let Some(pods) = eviction.gives_up {
                let asked = growth::ask_for_workers(self.notes.workloads_mut(), self.view, eviction, pods);
                if let Some(job) = asked {
                    self.work.touch(key(Kind::TrainingJob, &job));
                }
                continue;
            }
            let queue = eviction.preemptor_path.rsplit('/').next().unwrap_or_default();
            self.reports.add_measure(Measure::Count {
                name: "kueue_preempted_workloads",
                labels: vec![("preempting_cluster_queue", queue.to_owned()), ("reason", eviction.reason.to_owned())],
                by: 1,
            });
            evict_with_next_step(self.view, self.notes, self.work, eviction);
        }
        for verdict in plan.verdicts {
            let verdict = plans::with_failures(self.notes.workloads(), verdict);
            self.report(verdict, now);
        }
        if let Some(at) = plan.wake_at.and_then(|at| Timestamp::from_millisecond(at.0).ok()) {
            self.work.wake_at(at);
            if at <= now {
                self.quota.plan_again();
            }
        }
        true
    }

    /// Whether any admitted Workload has pods that are not ready, and so blocks admissions (`waitForPodsReady.blockAdmission`).
    fn unready(&self) -> bool {
        let mut admitted = self.view.workloads().all_reserving();
        plans::under_way(self.notes.workloads()) > 0
            || admitted.any(|workload| workload.phase == WorkloadPhase::Admitted && !workload.is(types::PODS_READY))
    }
}
