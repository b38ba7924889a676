//! Jobs of a TrainingJob that differ from the Jobs that Berth created. A Job that a client changes after all pods of the run were ready is created again. A Job
//! that a policy of the cluster changed on creation would be changed again: the run ends, is tried again after growing pauses, and is given up at last.

use berth_api::conditions::reasons::DEACTIVATED_DUE_TO_PREFIX;
use berth_api::conditions::{own_reasons, training_types, types};
use berth_api::labels;
use berth_cache::moments::after_seconds;
use berth_cache::{JobPhase, WorkloadView};
use berth_jobs::JobState;
use berth_jobs::training::WORKER;
use jiff::Timestamp;

use super::{TrainingCase, status};
use crate::decision::Decision;
use crate::job::altered::{Next, end_run, excess};
use crate::training_job::elastic::run_under;
use crate::training_job::restarts::{begun_at, reported_start, runs_on};
use crate::workload::object_write;
use crate::workload::status::find;
use crate::write::{EventType, ObjectKey, Purpose};

/// Age in seconds before which a changed Job is not created again.
const REMAKE_SECONDS: i64 = 10;
/// Age in seconds after which a Job that is suspended again and again is created again.
const MOST_REMAKE_SECONDS: i64 = 600;
/// Reason why a suspended Job is created again.
const SUSPENDED: &str = "somebody has suspended it, and it holds quota without pods: suspend the TrainingJob instead";
/// Reason why a Job is created again whose controller is not the TrainingJob any more.
const DISOWNED: &str = "somebody has changed its controller";
/// Advice to the user about Jobs that are changed on creation.
const ADVICE: &str =
    "Say in the TrainingJob what is added, or exempt Jobs with the label berth.dev/training-job from what changes them";
/// Events after which a TrainingJob that was given up is tried again, in words.
const UNTIL: &str =
    "until its TrainingJob asks for other pods, or was suspended and is resumed, or spec.active is true again";

/// Difference of a Job from the Job that Berth created.
struct Alteration<'a> {
    role: String,
    job: &'a JobState,
    /// Difference from the Job that Berth created, in words; empty for a suspended Job.
    words: String,
}

impl<'a> TrainingCase<'a> {
    /// The next step about Jobs that a client has changed, or created under the names of the TrainingJob's own Jobs.
    pub(super) fn undo_alterations(&self, workload: &WorkloadView) -> Option<Decision> {
        if let Some(decision) = self.take_back_jobs() {
            return Some(decision);
        }
        let mut altered: Vec<Alteration<'a>> =
            self.roles().into_iter().filter_map(|role| self.alteration(workload, role)).collect();
        // Jobs that use more than their quota are handled first.
        let stopped = altered.iter().all(|one| one.job.suspended);
        altered.retain(|one| one.job.suspended == stopped);
        let newest = altered.iter().map(|one| one.job.created).max()?;
        if !stopped && let Some(one) = altered.iter().find(|one| self.was_made_so(workload, one.job)) {
            return Some(self.ends_for(workload, one));
        }
        let due = Timestamp::from_millisecond(newest).map_or(self.now, |made| after_seconds(made, REMAKE_SECONDS));
        if due > self.now {
            return Some(Decision::Wait(due));
        }
        if stopped && self.rests_until(workload).is_some() {
            return None;
        }
        altered.iter().find_map(|one| {
            let why = if stopped { SUSPENDED.to_owned() } else { format!("it was changed, and {}", one.words) };
            let is_it = |job: &JobState| job.uid == one.job.uid;
            // Pods beyond the quota end before other pods replace them.
            if stopped { self.delete_where(&why, is_it) } else { self.drive_out_where(&why, is_it) }
        })
    }

    /// Creates a Job again whose controller was changed: the Job runs with the quota of this TrainingJob, but would end, grow and stay independently of the
    /// TrainingJob.
    fn take_back_jobs(&self) -> Option<Decision> {
        let jobs = self.ctx.view.jobs();
        let taken = |object: &ObjectKey| jobs.get(object).filter(|job| self.is_taken_from_us(job) && !job.deleting);
        let job = self.roles().iter().find_map(|role| taken(&self.child_key(role)))?;
        self.drive_out_where(DISOWNED, |other| other.uid == job.uid)
    }

    /// Time until which a suspended Job is left unchanged, while the rest of the run goes on: a suspended Job uses no quota of other workloads. The delay grows
    /// for a TrainingJob whose Jobs are suspended again and again.
    pub(super) fn rests_until(&self, workload: &WorkloadView) -> Option<Timestamp> {
        let roles = self.roles();
        let jobs = roles.iter().filter_map(|role| self.child(role));
        let is_stopped = |job: &&JobState| matches!(JobPhase::of(job), JobPhase::Stopping | JobPhase::Suspended);
        let newest = jobs.filter(is_stopped).map(|job| job.created).max()?;
        let made = Timestamp::from_millisecond(newest).ok()?;
        let goes_on = made.as_second().saturating_sub(begun_at(workload)?.as_second());
        let until = after_seconds(made, goes_on.clamp(REMAKE_SECONDS, MOST_REMAKE_SECONDS));
        (until > self.now).then_some(until)
    }

    /// Whether a Job of a TrainingJob was changed on creation, that is, the run was never up since the Job's creation. A foreign Job that was created under the
    /// name of a TrainingJob's Job while the run was not up counts as changed on creation, too. A run that was up and lacks another Job meanwhile counts as up
    /// until that Job was gone.
    fn was_made_so(&self, workload: &WorkloadView, job: &JobState) -> bool {
        let begun = reported_start(workload);
        let Some(running) = find(&self.view.status.conditions, training_types::RUNNING) else { return true };
        let (at, is_up) = (running.last_transition_time.0, running.status == "True");
        let of_this_run = runs_on(workload) || begun.is_some_and(|begun| at >= begun);
        let was_up = of_this_run && (is_up || running.reason == status::JOB_GONE);
        if !was_up {
            return true;
        }
        let made = Timestamp::from_millisecond(job.created).map_or(i64::MIN, Timestamp::as_second);
        if is_up { made > at.as_second() } else { made >= at.as_second() }
    }

    /// Ends a run of a TrainingJob because the Jobs of its next run would be changed on creation in the same way. A TrainingJob whose Jobs are changed on
    /// creation is tried again after a pause, and is given up after a number of tries.
    fn ends_for(&self, workload: &WorkloadView, altered: &Alteration<'_>) -> Decision {
        let job = self.child_key(&altered.role).name;
        let words = &altered.words;
        end_run(self.ctx, workload, self.now, |next| {
            let message = match next {
                Next::After(delay) => {
                    format!("Job {job} was changed as it was made: it {words}. {ADVICE}. Tried again after {delay}s")
                }
                Next::Never(tries) => format!(
                    "changes of Job {job} as it is made: it {words}. {ADVICE}. Given up after {tries} tries, {UNTIL}"
                ),
            };
            self.notice(EventType::Warning, own_reasons::JOB_ALTERED, message)
        })
    }

    /// A new attempt for a deactivated job whose pods now request something else.
    pub(super) fn tried_anew(&self, workload: &WorkloadView) -> Option<Decision> {
        let (pod_sets, size) = self.other_pod_sets(workload)?;
        Some(Decision::write(object_write(workload, Purpose::Requeue, |patch| {
            patch.annotations(size).active(true).pod_sets(pod_sets)
        })))
    }

    /// Difference of a role's Job: the Job is suspended, wants more or fewer pods than have quota, or its pods request more. Pods that request less are left
    /// unchanged, as in pod groups: such pods use no quota of other workloads, and a policy that changes each Job on creation may have reduced their requests.
    fn alteration(&self, workload: &WorkloadView, role: String) -> Option<Alteration<'a>> {
        let goes = |job: &JobState| job.deleting && self.ctx.notes.jobs().of(&job.uid).is_rid_of_pods();
        let job = self.child(&role).filter(|job| job.finished.is_none() && !goes(job))?;
        if job.suspended {
            return Some(Alteration { role, job, words: String::new() });
        }
        let wanted = job.role.as_deref().map_or(0, |role| role.wanted);
        let given = self.meant_for(workload, &role, job);
        let scales = role == WORKER && wanted > 0 && job.annotation(labels::ELASTIC_WORKERS).is_some();
        // Elastic workers are removed before their quota is released, and are added after quota was reserved; a run that may be scaled is brought to its number
        // of workers by another step.
        let is_step = scales && (wanted < given || run_under(self.ctx.view, workload).is_some());
        if wanted != given && !is_step {
            let words = format!("wants {wanted} pods, where quota is held for {given}");
            return Some(Alteration { role, job, words });
        }
        let asks = job.role.as_deref().map(|own| &own.asks);
        let words = excess(self.ctx, workload, &role, (job, asks))?;
        Some(Alteration { role, job, words })
    }
}

/// Whether a Workload was deactivated because its Jobs were changed on creation, and was not activated since.
pub(super) fn is_given_up(workload: &WorkloadView) -> bool {
    let requeued = find(&workload.status.conditions, types::REQUEUED).filter(|condition| condition.status == "False");
    let cause = requeued.and_then(|condition| condition.reason.strip_prefix(DEACTIVATED_DUE_TO_PREFIX));
    cause == Some(own_reasons::JOB_ALTERED)
}

#[cfg(test)]
mod tests;
