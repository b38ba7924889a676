//! Elastic TrainingJobs: when a job may grow into idle quota, and which of its workers it may do without. A scale-up is a second
//! Workload, the new slice, which takes the place of the first one once it is admitted. `decide/training/scale` decides about both slices, and
//! `restarts.rs` has the additions for restarts.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::conditions::types;
use berth_api::labels;
use berth_engine::model as engine;
use berth_jobs::JobState;
use berth_jobs::training::{Elastic, Rescale, RoleState, Scale, WORKER, role_of_child};
use jiff::{SignedDuration, Timestamp};

pub(crate) use crate::cache::slices::{REPLACED, is_replaced};
use crate::cache::training_view::TrainingView;
use crate::cache::{Name, WorkloadView};
use crate::context::Context;
use crate::controller::{Control, after_seconds, key};
use crate::deltas;
use crate::queues::checks::concerning;
use crate::training_job::restarts::{goes_for_restart, scaled};
use crate::workload::status::{find, since};
use crate::workload::stops::{missing_queue, queue_stop};
use crate::write::{Kind, ObjectKey};

/// Pause between two looks for jobs that could grow, in milliseconds.
const LOOK_MS: i64 = 5_000;
/// Seconds for which a new slice may wait for the quota that was idle when it was made.
pub(crate) const PATIENCE_SECONDS: i64 = 30;

/// State about elastic jobs.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// TrainingJobs that are elastic.
    pub(crate) jobs: BTreeSet<Name>,
    /// Time of the next look for jobs that could grow.
    pub(crate) next_look: Option<Timestamp>,
    /// Time since when quota is seen idle into which a TrainingJob (by uid) could grow.
    pub(crate) idle: BTreeMap<String, Timestamp>,
    /// Number of workers that a TrainingJob (by uid) is to have: the new slice is still to be made.
    pub(crate) wanted: BTreeMap<String, i32>,
    /// Time before which a TrainingJob (by uid) is not looked at again: its last scale-up failed.
    pub(crate) not_before: BTreeMap<String, Timestamp>,
    /// Failed scale-ups of a TrainingJob (by uid) since the last successful one.
    pub(crate) vain: BTreeMap<String, Vain>,
    /// Number of workers to which a TrainingJob (by uid) had grown whose scale-up is being taken back.
    pub(crate) taken_back: BTreeMap<String, i32>,
    /// Workers that a Workload (by uid) is to give up for a preemptor.
    pub(crate) gives_up: BTreeMap<String, GiveUp>,
    /// Number of workers with which a Workload (by uid) was seen to have no pods beyond, and the time of that.
    pub(crate) shrunk: BTreeMap<String, (i32, Timestamp)>,
    /// Last change of their number (its time, `None` for none) after which all workers of a Job (by uid) were ready at once.
    pub(crate) settled: BTreeMap<String, Option<Timestamp>>,
}

impl Growth {
    /// A Workload is gone.
    pub(crate) fn forget_workload(&mut self, uid: &str) {
        self.shrunk.remove(uid);
        self.gives_up.remove(uid);
    }

    /// A TrainingJob is gone.
    pub(crate) fn forget_training_job(&mut self, name: &Name, uid: &str) {
        self.jobs.remove(name);
        self.idle.remove(uid);
        self.wanted.remove(uid);
        self.not_before.remove(uid);
        self.vain.remove(uid);
        self.taken_back.remove(uid);
    }
}

/// Failed scale-ups in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Vain {
    times: u32,
    /// Number of workers that the last one was to bring the job to.
    workers: i32,
}

/// Longest pause in seconds after failed scale-ups, where the job's own is not longer.
const LONGEST_PAUSE_SECONDS: i64 = 3_600;

/// A request to an elastic job to give up workers.
#[derive(Clone, Debug)]
pub(crate) struct GiveUp {
    /// Number of workers that stay.
    pub(crate) keeps: i32,
    /// The eviction that the engine wants, with its preemptor.
    pub(crate) eviction: engine::Eviction,
}

/// Workers for which a Workload holds quota.
pub(crate) fn granted(workload: &WorkloadView) -> i32 {
    granted_to(workload, WORKER)
}

/// Pods of a role for which a Workload holds quota.
pub(crate) fn granted_to(workload: &WorkloadView, role: &str) -> i32 {
    let count = workload.given().filter(|set| set.effective_name() == role).find_map(|set| set.count);
    let size = workload.size(role);
    count.map_or(size, |count| count.min(size))
}

/// Whether the workload took the place of another slice while its job ran, and its job has run on since.
pub(crate) fn grew(workload: &WorkloadView) -> bool {
    workload.replaces.is_some() && find(&workload.status.conditions, types::EVICTED).is_none()
}

/// Time of the admission of a workload's run, which a scale-up has not begun anew; `None` where that is its own admission.
pub(crate) fn admitted_before(workload: &WorkloadView) -> Option<Timestamp> {
    let past = workload.rare.as_ref().and_then(|rare| rare.past);
    past.filter(|_| grew(workload)).map(|past| past.admitted)
}

/// Time since when the job of a workload runs under its quota, over all scale-ups; `None` of one that is not admitted.
pub(crate) fn runs_since(workload: &WorkloadView) -> Option<Timestamp> {
    let admitted = since(&workload.status.conditions, types::ADMITTED, "True")?;
    Some(admitted_before(workload).map_or(admitted, |before| before.min(admitted)))
}

/// A run whose number of workers may change.
#[derive(Clone, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) rules: Elastic,
    /// Fewest and most workers, as the pods got them at their start and as the spec asks for them.
    pub(crate) bounds: (i32, i32),
    /// The Job of the workers; `None` while it is made anew.
    pub(crate) job: Option<&'a JobState>,
    /// Number of workers that are to run. Where all pods restart for another number, this is the number with which they started.
    pub(crate) workers: i32,
    /// The last change of the number.
    pub(crate) last: Option<Scale>,
}

/// Workers that were added to a run, while not all of them have been ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Added {
    /// Time since when the run lacks workers after they were added, as far as that was seen.
    pub(crate) since: Timestamp,
    /// Number of workers that are to run.
    pub(crate) workers: i32,
    /// Number of ready workers.
    pub(crate) ready: i32,
    /// Fewest workers.
    pub(crate) least: i32,
}

impl Added {
    /// Number of workers that stay when those that are not ready are given up, `None` where that is no way out: too few would run.
    pub(crate) fn keeps(&self) -> Option<i32> {
        (self.ready >= self.least && self.ready < self.workers).then_some(self.ready)
    }
}

impl Run<'_> {
    /// Time from which workers may be added, or taken, again in a run that was admitted at that time.
    pub(crate) fn due(&self, admitted: Timestamp, cooldown_seconds: i64) -> Timestamp {
        let last = self.last.as_ref().map_or(admitted, |last| last.at.max(admitted));
        after_seconds(last, cooldown_seconds)
    }

    /// Whether all workers restart for another number.
    pub(crate) fn by_restart(&self) -> bool {
        self.rules.rescale == Rescale::ByRestart
    }

    /// State of the workers' role.
    pub(crate) fn role(&self) -> Option<&RoleState> {
        self.job.and_then(|job| job.role.as_deref())
    }

    /// Whether the number of workers is on its way down under a Workload.
    pub(crate) fn shrinks(&self, workload: &WorkloadView) -> bool {
        let last = self.last.as_ref().filter(|last| last.workload == workload.uid && last.workers == self.workers);
        last.is_some() && self.workers < granted(workload)
    }
}

impl Control {
    /// Takes note of a Job whose workers are all ready.
    pub(crate) fn note_settled(&mut self, object: &ObjectKey, job: &JobState) {
        let role = job.owner.as_ref().and_then(|owner| role_of_child(&owner.name, &object.name));
        let marks = [labels::ELASTIC_WORKERS, labels::TOLD_WORKERS];
        let elastic = role == Some(WORKER) && marks.into_iter().any(|mark| job.annotation(mark).is_some());
        if elastic && job.role.as_deref().is_some_and(RoleState::is_up) {
            let last = job.annotation(labels::LAST_SCALE).and_then(Scale::parse);
            self.training.growth.settled.insert(job.uid.clone(), last.map(|last| last.at));
            let has = job.role.as_deref().map_or(0, |role| role.wanted);
            if let Some(owner) = job.owner.as_ref()
                && self.training.growth.vain.get(&*owner.uid).is_some_and(|vain| vain.workers <= has)
            {
                self.training.growth.vain.remove(&*owner.uid);
                self.training.growth.not_before.remove(&*owner.uid);
            }
        }
    }

    /// Mirrors the slices that are to replace a Workload: it may hold something else now.
    pub(crate) fn mirror_slices_of(&mut self, older: &Name) {
        let Some(owner) = self.view.workloads.get(older).and_then(|workload| workload.owner.as_ref()) else { return };
        let slices = self.view.workloads.owned_by(&owner.uid).filter(|one| one.replaces.as_deref() == Some(older));
        for slice in slices.map(WorkloadView::key).collect::<Vec<_>>() {
            self.mirror(&slice);
        }
    }

    /// Looks, from time to time, for running jobs that could have more workers. In each queue one job grows at a time, because idle quota was counted
    /// for it alone. A job that waits until it has saved keeps no other from growing.
    pub(crate) fn grow(&mut self, now: Timestamp) {
        if self.training.growth.jobs.is_empty() || self.training.growth.next_look.is_some_and(|at| at > now) {
            return;
        }
        self.training.growth.next_look = now.checked_add(SignedDuration::from_millis(LOOK_MS)).ok();
        let mut candidates: Vec<_> =
            self.training.growth.jobs.iter().filter_map(|name| self.context().could_want(name, now)).collect();
        candidates.sort_unstable();
        let mut growing = BTreeSet::new();
        self.training.growth.wanted.clear();
        let seen = std::mem::take(&mut self.training.growth.idle);
        for (_, _, name, workload, workers) in candidates {
            let Some(older) = self.view.workloads.get(&workload) else { continue };
            let Some(view) = self.view.training.get(&name) else { continue };
            let (job, idle) = (view.uid.clone(), seen.get(&view.uid).copied());
            let queue = older.holds().unwrap_or_default().to_owned();
            if growing.contains(&queue) {
                // Quota that is idle for this job was so before another job of its queue had its turn.
                self.training.growth.idle.extend(idle.map(|at| (job, at)));
                continue;
            }
            let given = self.context().given_to(older);
            let count = |set: &engine::PodSetSpec| {
                let given = given.iter().find(|given| given.name == set.name).map_or(set.count, |given| given.count);
                if set.name == WORKER { i64::from(workers) } else { given }
            };
            let counts: Vec<i64> = older.shape.pod_sets.iter().map(count).collect();
            let uid = older.uid.clone();
            if !self.quota.world.could_grow(&uid, &counts, &given) {
                continue;
            }
            let idle = idle.unwrap_or(now);
            let grows =
                self.context().run_under(older).is_some_and(|run| self.context().may_restart(&run, view, older, idle));
            self.training.growth.idle.insert(job.clone(), idle);
            if grows {
                growing.insert(queue);
                self.training.growth.wanted.insert(job, workers);
                self.touch(key(Kind::TrainingJob, &name));
            }
        }
    }

    /// Notes that a slice is gone that never replaced another one: the next slice is not made at once.
    pub(crate) fn note_lost_slice(&mut self, slice: &WorkloadView, now: Timestamp) {
        let job = slice.training_job().filter(|_| slice.replaces.is_some() && !slice.is(types::FINISHED));
        if let Some(name) = job {
            self.note_vain_growth(&name, slice.size(WORKER), now);
        }
    }

    /// Notes that a TrainingJob did not come to have so many workers. Each such try in a row doubles the pause before the next one, because adding
    /// pods and taking them away again interrupts the training.
    fn note_vain_growth(&mut self, name: &Name, workers: i32, now: Timestamp) {
        let Some(view) = self.view.training.get(name) else { return };
        let Some(pause) = view.facts.elastic.map(|elastic| elastic.up_cooldown_seconds) else { return };
        let uid = view.uid.clone();
        let vain = self.training.growth.vain.entry(uid.clone()).or_default();
        *vain = Vain { times: vain.times.saturating_add(1), workers };
        let doubled = pause.max(1).saturating_mul(1 << vain.times.saturating_sub(1).min(12));
        let pause = doubled.min(LONGEST_PAUSE_SECONDS.max(pause));
        self.training.growth.not_before.insert(uid, after_seconds(now, pause));
    }

    /// Notes that the number of workers of a TrainingJob is about to change: a scale-up whose workers were never ready has failed by that.
    pub(crate) fn note_scaling(&mut self, name: &Name) {
        let view = self.view.training.get(name);
        let added = view.and_then(|view| self.context().added_to(self.view.slice_of(&view.uid)?));
        let Some(uid) = view.map(|view| view.uid.clone()) else { return };
        match added {
            Some(added) => drop(self.training.growth.taken_back.insert(uid, added.workers)),
            None => drop(self.training.growth.taken_back.remove(&uid)),
        }
    }

    /// Notes that the number was changed.
    pub(crate) fn note_scaled(&mut self, name: &Name, now: Timestamp) {
        let Some(uid) = self.view.training.get(name).map(|view| view.uid.clone()) else { return };
        if let Some(workers) = self.training.growth.taken_back.remove(&uid) {
            self.note_vain_growth(name, workers, now);
        }
    }

    /// Takes note that a Workload is to give up workers, or is to leave.
    pub(crate) fn ask_for_workers(&mut self, eviction: engine::Eviction, pods: i64) {
        let Some(workload) = self.view.workloads.by_uid(&eviction.uid) else { return };
        let pods = i32::try_from(pods).unwrap_or(i32::MAX);
        let keeps = granted(workload).saturating_sub(pods);
        let (uid, job) = (workload.uid.clone(), workload.training_job());
        self.training.growth.gives_up.insert(uid, GiveUp { keeps, eviction });
        if let Some(job) = job {
            self.touch(key(Kind::TrainingJob, &job));
        }
    }

    /// Forgets a request to give up workers once the Workload has given them up.
    pub(crate) fn note_given_up(&mut self, uid: &str) {
        let Some(asked) = self.training.growth.gives_up.get(uid) else { return };
        let over = self.view.workloads.by_uid(uid).is_none_or(|workload| {
            !workload.reserved()
                || workload.is(types::FINISHED)
                || workload.is(types::EVICTED)
                || granted(workload) <= asked.keeps
        });
        if over {
            self.training.growth.gives_up.remove(uid);
        }
    }

    /// Notes that no pods are left beyond those of the workers that stay.
    pub(crate) fn note_shrunk(&mut self, object: &ObjectKey, now: Timestamp) {
        let name = (object.namespace.clone(), object.name.clone());
        let found = self.view.workloads.get(&name).and_then(|workload| {
            // A restart goes on whatever becomes of its job's spec.
            let restarted = scaled(workload).map(|scale| scale.workers);
            let workers = restarted.or_else(|| self.context().run_under(workload).map(|run| run.workers))?;
            Some((workload.uid.clone(), (workers, now)))
        });
        self.training.growth.shrunk.extend(found);
    }
}

impl<'a> Context<'a> {
    /// The run of a TrainingJob under a Workload whose number of workers may change, `None` when it does not run, or may not.
    fn run_of(&self, name: &Name, view: &TrainingView, workload: &WorkloadView) -> Option<Run<'a>> {
        let rules = view.facts.elastic?;
        let job = self.view.child_of(name, &view.uid, WORKER).filter(|job| !job.deleting);
        let goes_on = |role: &&RoleState| role.succeeded == 0 && role.wanted > 0;
        let role = job.filter(|job| job.finished.is_none()).and_then(|job| job.role.as_deref()).filter(goes_on);
        if rules.rescale == Rescale::ByRestart {
            // A restart needs the pods for which quota is held. A Job that is to go for the restart may fail first, because its peers are gone.
            let goes = |job: &JobState| goes_for_restart(workload, job);
            let restarts = (role.is_some() || job.is_none_or(goes)) && view.asks_as(workload);
            return self.run_by_restart(name, view, workload, job).filter(|_| restarts);
        }
        let (job, role) = job.zip(role)?;
        let bounds = rules.within(job.annotation(labels::ELASTIC_WORKERS)?)?;
        let last = job.annotation(labels::LAST_SCALE).and_then(Scale::parse);
        Some(Run { rules, bounds, job: Some(job), workers: role.wanted, last })
    }

    /// Whether a Workload stands for its job: no other slice has taken its place.
    pub(crate) fn stands(&self, workload: &WorkloadView) -> bool {
        let slice = workload.owner.as_ref().and_then(|owner| self.view.slice_of(&owner.uid));
        slice.is_none_or(|slice| slice.uid == workload.uid)
    }

    /// Whether another slice of an elastic job has taken the place of this one, which is not finished yet.
    pub(crate) fn is_handed_over(&self, workload: &WorkloadView) -> bool {
        !self.training.growth.jobs.is_empty() && workload.training_job().is_some() && !self.stands(workload)
    }

    /// The run of the TrainingJob that a Workload stands for.
    pub(crate) fn run_under(&self, workload: &WorkloadView) -> Option<Run<'a>> {
        let name = workload.training_job()?;
        let view = self.view.training.get(&name).filter(|view| !view.deleting && !view.facts.suspended)?;
        let runs =
            self.stands(workload) && workload.active && workload.is(types::ADMITTED) && !workload.is(types::EVICTED);
        let mut run = self.run_of(&name, view, workload).filter(|_| runs)?;
        // The count of the Workload must not go below its minimum. With partial admission off it has no minimum, and must not change at all.
        let least = workload.shape.pod_sets.iter().find(|set| set.name == WORKER)?.min_count?;
        run.bounds.0 = run.bounds.0.max(i32::try_from(least).unwrap_or(i32::MAX));
        Some(run)
    }

    /// Workers that were added last to the run of a Workload and have not been ready yet. A worker that fails later is left to the backoff limit;
    /// another leader, which cannot distinguish the two, gives it the same time.
    pub(crate) fn added_to(&self, workload: &WorkloadView) -> Option<Added> {
        let run = self.run_under(workload).filter(|_| grew(workload))?;
        let last = run.last.as_ref().filter(|last| last.workload == workload.uid)?;
        let job = run.job?;
        let settled = if run.by_restart() {
            self.was_up(workload)
        } else {
            self.training.growth.settled.get(&job.uid) == Some(&Some(last.at))
        };
        let role = job.role.as_deref().filter(|role| !settled && !role.is_up())?;
        let lack = self.capacity.lacking.get(&job.uid);
        let since = lack.map_or(last.at, |lack| lack.since.max(last.at));
        Some(Added { since, workers: granted(workload), ready: role.ready, least: run.bounds.0 })
    }

    /// The workers that a Workload may do without.
    pub(crate) fn surplus_of(&self, workload: &WorkloadView) -> Option<engine::Surplus> {
        let run = self.run_under(workload)?;
        let pods = i64::from(granted(workload).saturating_sub(run.bounds.0));
        let step = i64::from(run.rules.down_step);
        (pods > 0).then(|| engine::Surplus { pod_set: WORKER.to_owned(), pods, step })
    }

    /// The slice that a Workload is to replace, as long as that holds quota.
    pub(crate) fn replaced_by(&self, workload: &WorkloadView) -> Option<&'a WorkloadView> {
        let older = self.view.workloads.get(workload.replaces.as_deref()?)?;
        let same = older.owner.is_some() && older.owner == workload.owner && older.uid != workload.uid;
        (same && older.holds_quota()).then_some(older)
    }

    /// The same for the engine.
    pub(crate) fn replaced(&self, workload: &WorkloadView) -> Option<engine::Replaced> {
        let older = self.replaced_by(workload)?;
        Some(engine::Replaced { uid: older.uid.clone(), pod_sets: self.given_to(older) })
    }

    pub(crate) fn given_to(&self, workload: &WorkloadView) -> Vec<engine::PodSetAssignment> {
        let Some(admission) = &workload.status.admission else { return Vec::new() };
        let pods = |name: &str| workload.pods(name, self.settings.reclaimable_pods);
        deltas::reservation(admission, pods, (engine::Millis(0), None), (false, false, false), None).pod_sets
    }

    /// A TrainingJob that would take more workers now, in the order in which they are offered.
    fn could_want(&self, name: &Name, now: Timestamp) -> Option<(i64, Timestamp, Name, Name, i32)> {
        let view = self.view.training.get(name)?;
        let workload = self.view.slice_of(&view.uid)?;
        let run = self.run_under(workload)?;
        let admitted = since(&workload.status.conditions, types::ADMITTED, "True")?;
        let have = granted(workload);
        let (_, most) = run.bounds;
        let due = run.due(admitted, run.rules.up_cooldown_seconds);
        let waits = self.training.growth.not_before.get(&view.uid).is_some_and(|at| *at > now);
        let alone =
            self.view.workloads_of(&view.uid).iter().all(|one| one.uid == workload.uid || one.is(types::FINISHED));
        let all_up = run.workers == have && run.role().is_some_and(RoleState::is_up);
        let saves = !run.by_restart() || view.facts.saves;
        let may = have < most && due <= now && !waits && alone && all_up && saves;
        let asked = self.training.growth.gives_up.contains_key(&workload.uid) || self.quota.plans.evicts(&workload.uid);
        let workers = self.workers_within_limit(workload, have.saturating_add(run.rules.up_step).min(most));
        let may = may && workers > have && !asked && self.slice_may_be_tried(view, workload, workers);
        may.then(|| (workload.priority.saturating_neg(), due, name.clone(), workload.key(), workers))
    }

    /// Whether nothing but quota keeps a slice with so many workers from taking the place of a Workload: it would be like the job that runs, and
    /// neither a queue, a check, a gate nor a limit would keep it out.
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

    /// Whether an admission check concerns the flavors that a Workload holds. Such a check would be asked about all pods again, running and new ones.
    /// Until it answers, both slices would hold their quota, and be spared by preemptions.
    fn is_checked(&self, workload: &WorkloadView) -> bool {
        let queue = workload.holds().and_then(|queue| self.view.cluster_queues.get(queue));
        queue.is_some_and(|queue| !concerning(&queue.spec, workload.status.admission.as_ref()).is_empty())
    }
}
