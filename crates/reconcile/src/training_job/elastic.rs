//! Elastic TrainingJobs: when a job may grow into idle quota, and how many workers the job may give up. A scale-up is a second Workload, the new slice
//! (`slices.rs`), which replaces the first Workload when the new slice is admitted. `scale.rs` decides about both slices, and `restarts.rs` has the additions
//! for jobs that restart.

use berth_api::conditions::{training_types, types};
use berth_cache::admission_checks::concerning;
use berth_cache::deltas;
use berth_cache::training_view::TrainingView;
use berth_cache::{Name, View, WorkloadView};
use berth_engine::model as engine;
use berth_jobs::training::{RoleState, WORKER};
use jiff::Timestamp;

use crate::context::Context;
use crate::training_job::growth::GrowthCandidate;
use crate::training_job::restarts::{begun_at, reported_start, runs_on};
pub(crate) use crate::training_job::run::{Added, Run, run_under};
pub(crate) use crate::training_job::slices::{admitted_before, granted, granted_to, grew, runs_since, stands};
use crate::workload::status::since;
use crate::workload::stops::{missing_queue, queue_stop};
pub(crate) use berth_cache::slices::{REPLACED, is_replaced};

/// Seconds for which a new slice may wait for the quota that was idle when the slice was created.
pub(crate) const PATIENCE_SECONDS: i64 = 30;

/// Running jobs that could have more workers, in the order in which workers are offered to the jobs.
pub fn candidates(ctx: &Context<'_>, now: Timestamp) -> Vec<GrowthCandidate> {
    let jobs = ctx.view.training().elastic();
    let mut found: Vec<_> = jobs.filter_map(|name| ctx.could_want(name, now)).collect();
    found.sort_by(|(one, a), (other, b)| (one, &a.name).cmp(&(other, &b.name)));
    found.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Slices that are to replace a Workload.
pub fn slices_after(view: &View, older: &Name) -> Vec<Name> {
    let Some(owner) = view.workloads().get(older).and_then(|workload| workload.owner.as_ref()) else {
        return Vec::new();
    };
    let slices = view.workloads().owned_by(&owner.uid).filter(|one| one.replaces.as_deref() == Some(older));
    slices.map(WorkloadView::key).collect()
}

/// The uid of a TrainingJob, and the number of workers after its last scale-up if the added workers have not all been ready since.
pub fn failed_scale_up(ctx: &Context<'_>, name: &Name) -> Option<(String, Option<i32>)> {
    let view = ctx.view.training().get(name)?;
    let added = ctx.view.slice_of(&view.uid).and_then(|workload| ctx.added_to(workload));
    Some((view.uid.clone(), added.map(|added| added.workers)))
}

impl<'a> Context<'a> {
    /// Whether a Workload stands for its job: no other slice has replaced the Workload.
    pub(crate) fn stands(&self, workload: &WorkloadView) -> bool {
        stands(self.view, workload)
    }

    /// Whether another slice of an elastic job has replaced this Workload, which is not finished yet.
    pub(crate) fn is_handed_over(&self, workload: &WorkloadView) -> bool {
        self.view.training().has_elastic() && workload.training_job().is_some() && !stands(self.view, workload)
    }

    /// Workers of the last scale-up of a Workload's run, while they have not all been ready. A worker that fails after all added workers were ready once is
    /// left to the Job's backoff limit. A new leader cannot distinguish late workers from failed workers, and gives both the same time.
    pub(crate) fn added_to(&self, workload: &WorkloadView) -> Option<Added> {
        let run = run_under(self.view, workload).filter(|_| grew(workload))?;
        let last = run.last.as_ref().filter(|last| last.workload == workload.uid)?;
        let job = run.job?;
        let settled = if run.by_restart() {
            self.was_up(workload)
        } else {
            self.notes.jobs().of(&job.uid).has_settled_since(last.at)
        };
        let role = job.role.as_deref().filter(|role| !settled && !role.is_up())?;
        let lack = self.notes.jobs().of(&job.uid).lack();
        let since = lack.map_or(last.at, |lack| lack.since.max(last.at));
        Some(Added { since, workers: granted(workload), ready: role.ready, least: run.bounds.0 })
    }

    /// The workers that a Workload may give up.
    pub(crate) fn surplus_of(&self, workload: &WorkloadView) -> Option<engine::Surplus> {
        let run = run_under(self.view, workload)?;
        let pods = i64::from(granted(workload).saturating_sub(run.bounds.0));
        let step = i64::from(run.rules.down_step);
        (pods > 0).then(|| engine::Surplus { pod_set: WORKER.to_owned(), pods, step })
    }

    /// The slice that a Workload is to replace, as long as that slice holds quota.
    pub(crate) fn replaced_by(&self, workload: &WorkloadView) -> Option<&'a WorkloadView> {
        let older = self.view.workloads().get(workload.replaces.as_deref()?)?;
        let same = older.owner.is_some() && older.owner == workload.owner && older.uid != workload.uid;
        (same && older.holds_quota()).then_some(older)
    }

    /// The replaced slice in the engine's type.
    pub(crate) fn replaced(&self, workload: &WorkloadView) -> Option<engine::Replaced> {
        let older = self.replaced_by(workload)?;
        Some(engine::Replaced { uid: older.uid.clone(), pod_sets: self.given_to(older) })
    }

    /// The pod set assignments for which a Workload holds quota, in the engine's type.
    pub(crate) fn given_to(&self, workload: &WorkloadView) -> Vec<engine::PodSetAssignment> {
        let Some(admission) = &workload.status.admission else { return Vec::new() };
        let pods = |name: &str| workload.pods(name, self.settings.reclaimable_pods);
        deltas::reservation(admission, pods, (engine::Millis(0), None), (false, false, false), None).pod_sets
    }

    /// The rank of a TrainingJob in the order in which more workers are offered, and the offer itself; `None` if the job would take no more workers now.
    fn could_want(&self, name: &Name, now: Timestamp) -> Option<((i64, Timestamp), GrowthCandidate)> {
        let view = self.view.training().get(name)?;
        let workload = self.view.slice_of(&view.uid)?;
        let run = run_under(self.view, workload)?;
        let admitted = since(&workload.status.conditions, types::ADMITTED, "True")?;
        let have = granted(workload);
        let (_, most) = run.bounds;
        let due = run.due(admitted, run.rules.up_cooldown_seconds);
        let waits = self.notes.jobs().of(&view.uid).training().waits_to_grow(now);
        let alone = self.view.workloads_of(&view.uid).iter().all(|one| one.uid == workload.uid || one.is_finished());
        let all_up = run.workers == have && run.role().is_some_and(RoleState::is_up);
        let saves = !run.by_restart() || view.facts.saves;
        let may = have < most && due <= now && !waits && alone && all_up && saves;
        let notes = self.notes_of(workload);
        let asked = notes.scale().gives_up().is_some() || notes.plan().eviction().is_some();
        let workers = self.workers_within_limit(workload, have.saturating_add(run.rules.up_step).min(most));
        let may = may && workers > have && !asked && self.slice_may_be_tried(view, workload, workers);
        may.then(|| {
            ((workload.priority.saturating_neg(), due), self.candidate(name, view, (workload, &run), (workers, now)))
        })
    }

    fn candidate(
        &self,
        name: &Name,
        view: &TrainingView,
        (older, run): (&WorkloadView, &Run<'_>),
        (workers, now): (i32, Timestamp),
    ) -> GrowthCandidate {
        let given = self.given_to(older);
        let count = |set: &engine::PodSetSpec| {
            let given = given.iter().find(|given| given.name == set.name).map_or(set.count, |given| given.count);
            if set.name == WORKER { i64::from(workers) } else { given }
        };
        let idle = self.notes.jobs().of(&view.uid).training().idle_since().unwrap_or(now);
        GrowthCandidate {
            name: name.clone(),
            job: view.uid.clone(),
            workload: older.uid.clone(),
            queue: older.holds().unwrap_or_default().to_owned(),
            workers,
            counts: older.shape.pod_sets.iter().map(count).collect(),
            idle,
            may: self.may_restart(run, view, older, idle),
            given,
        }
    }

    /// Whether nothing but quota keeps a new slice with this number of workers from replacing a Workload: the slice would be like the running job, and no
    /// queue, admission check, gate or limit would keep the slice out.
    fn slice_may_be_tried(&self, view: &TrainingView, workload: &WorkloadView, workers: i32) -> bool {
        let gates = view.admission_gates.as_deref().filter(|gates| self.settings.admission_gates && !gates.is_empty());
        let stopped = missing_queue(self, workload).is_some() || queue_stop(self, workload).is_some();
        view.asks_as(workload)
            && view.facts.queue == workload.queue
            && gates.is_none()
            && self.missing_store(view).is_none()
            && !stopped
            && !self.is_checked(workload)
            && self
                .limit_with(workload, |set| if set.name == WORKER { i64::from(workers) } else { set.count })
                .is_none()
    }

    /// Whether an admission check concerns the flavors that a Workload holds. If an elastic job grew by a new slice, the admission check would be requested
    /// again for all pods, running and new pods. Until the admission check of the new slice answers, both slices would hold their quota, and preemptions would
    /// spare both slices.
    fn is_checked(&self, workload: &WorkloadView) -> bool {
        let queue = workload.holds().and_then(|queue| self.view.cluster_queues().get(queue));
        queue.is_some_and(|queue| !concerning(&queue.spec, workload.status.admission.as_ref()).is_empty())
    }

    /// Whether the status of a Workload's TrainingJob shows that the present run has been up.
    pub(crate) fn was_up(&self, workload: &WorkloadView) -> bool {
        let job = workload.training_job().and_then(|name| self.view.training().get(&name));
        job.zip(reported_start(workload)).is_some_and(|(job, begun)| job.was_up_since(begun))
    }

    /// Whether a run may grow into quota that has been idle since a time, with regard to the run's unsaved work. A restart loses work that is not saved, so a
    /// restart waits for a checkpoint, as moving back to a better tier does.
    pub(crate) fn may_restart(
        &self,
        run: &Run<'_>,
        view: &TrainingView,
        workload: &WorkloadView,
        idle: Timestamp,
    ) -> bool {
        let up = || since(&view.status.conditions, training_types::RUNNING, "True");
        // If a scale-up has replaced the Workload of the run, the admission of the new slice says nothing about the begin of the run.
        let begun = if runs_on(workload) { up() } else { begun_at(workload).filter(|_| self.was_up(workload)) };
        // A checkpoint that is as old as the run is the checkpoint that the run began from.
        let saved = || self.saved_at(workload).zip(begun).is_some_and(|(at, begun)| at > begun && at >= idle);
        !run.by_restart() || saved()
    }
}

#[cfg(test)]
mod tests;
