//! Jobs that another object controls. A Job runs with a JobSet or TrainingJob if the Job is a part of the admitted JobSet or TrainingJob. An owner of a kind
//! other than JobSet and TrainingJob does not decide whether a Job runs, and the controllers of the Job's controller do not count. Kueue, by contrast, follows
//! up to ten controllers of any kind.

use berth_api::conditions::{own_reasons, reasons, types};
use berth_cache::moments::after_seconds;
use berth_cache::{JobPhase, WorkloadPhase, WorkloadView};
use berth_jobs::{JobState, Part};
use jiff::Timestamp;

use super::JobCase;
use crate::context::Context;
use crate::decision::Decision;
use crate::job::altered::{Next, end_run, excess};
use crate::workload::status::since;
use crate::workload::{has_finalizer, remove_finalizer};
use crate::write::{EventType, Kind, ObjectKey, Purpose, key};

/// Time in seconds for the controller of a JobSet that is stopped or has ended to stop the Jobs of the JobSet.
const STOP_SECONDS: i64 = 5;
/// Advice for users about Jobs that differ from their JobSet.
const ADVICE: &str = "Say in the JobSet what its Jobs are to be";

/// A job with its key.
pub(super) type Named<'a> = (&'a ObjectKey, &'a JobState);

/// The object under whose quota a job runs.
pub(super) enum RunsWith<'a> {
    /// The job runs under the quota of no owner: it is admitted by itself, or is not managed.
    Itself,
    /// A TrainingJob, whose decision starts and stops its Jobs.
    TrainingJob,
    /// The managed JobSet that controls the job.
    JobSet(Named<'a>),
    /// A JobSet that is not managed, and whose controller starts the job in any case; the job is a part of the JobSet, or names a part in a label.
    FreeJobSet(Named<'a>),
    /// Unknown, because the kind of the job's controller cannot be listed; the job is left unchanged.
    Unlisted,
}

impl<'a> JobCase<'a> {
    /// The object under whose quota the job runs. To find the object under whose quota a job runs costs one look-up of the job's controller in the view.
    pub(super) fn runs_with(&self) -> RunsWith<'a> {
        let view = &self.ctx.view;
        if unlisted_above(self.ctx, self.key, self.job).is_some() {
            return RunsWith::Unlisted;
        }
        let Some(owner) = self.job.owner.as_ref().filter(|_| self.key.kind == Kind::JOB) else {
            return RunsWith::Itself;
        };
        let Some(kind) = Kind::of_owner(&owner.kind).filter(|kind| kind.is_made_of_jobs()) else {
            return RunsWith::Itself;
        };
        if kind == Kind::TrainingJob {
            let is_part = view.training_of(self.key, self.job).is_some();
            return if is_part { RunsWith::TrainingJob } else { RunsWith::Itself };
        }
        let owner_key = key(kind, &(self.key.namespace.clone(), owner.name.to_string()));
        let Some((name, set)) = view.jobs().get_key_value(&owner_key).filter(|(_, set)| *set.uid == *owner.uid) else {
            return RunsWith::Itself;
        };
        if self.ctx.manages_job(kind, set) {
            return RunsWith::JobSet((name, set));
        }
        let starts_it = set.finished.is_none() && !set.deleting && is_started_by((name, set), (self.key, self.job));
        if starts_it { RunsWith::FreeJobSet((name, set)) } else { RunsWith::Itself }
    }

    /// Decides about a Job of a JobSet: the Job runs only while the JobSet runs, and only in its admitted form.
    pub(super) fn below(&self, (name, set): Named<'_>) -> Decision {
        if JobPhase::of(self.job) != JobPhase::Running {
            return Decision::Done;
        }
        let owned = self.ctx.view.workloads_of(&set.uid);
        let newest = owned.iter().rev().find(|workload| !workload.is_finished()).copied();
        let is_over = set.finished.is_some();
        match newest.filter(|_| !is_over) {
            Some(workload) if workload.unreadable => return Decision::Done,
            Some(workload) if workload.is(types::ADMITTED) && !set.suspended => {
                return self.as_admitted((name, set), workload);
            }
            _ => {}
        }
        let ends = is_over || set.suspended && !set.still;
        if (!set.suspended && !set.deleting && !is_over) || (ends && self.is_recent(set, newest)) {
            // The controller of a running JobSet would start a suspended Job of the JobSet again at once, and each suspension would make a write of the
            // controller fail. Before the Job of a JobSet that has to stop is suspended, Berth waits until the JobSet is suspended and its controller has
            // stopped its Jobs.
            return Decision::Wait(after_seconds(self.now, 1));
        }
        if let Some(wait) = self.stopped_just_now() {
            return wait;
        }
        let Some(job) = self.job.decode() else { return Decision::Done };
        let notice = self.notice(EventType::Normal, reasons::SUSPENDED, "Kueue managed child job suspended".to_owned());
        self.write(Purpose::SuspendJob, job.suspend_patch(), vec![notice])
    }

    /// Decides about a Job that runs under the quota of its JobSet. If the Job is no part of the admitted JobSet, the JobSet is evicted, because the
    /// controller of the JobSet would start the Job again if only the Job were stopped.
    fn as_admitted(&self, (name, set): Named<'_>, workload: &WorkloadView) -> Decision {
        if workload.phase != WorkloadPhase::Admitted {
            return Decision::Done;
        }
        let words = alteration(self.ctx, (name, set), (self.key, self.job), workload);
        words.map_or(Decision::Done, |words| self.evict_owner((name, set), workload, &words))
    }

    /// The eviction of a running JobSet whose controller starts this Job each time that the Job is stopped; `None` if no JobSet does. The Job is to stop
    /// because its own Workload has lost its quota.
    pub(super) fn evict_starter(&self, above: &RunsWith<'_>) -> Option<Decision> {
        let RunsWith::JobSet((name, set)) = *above else { return None };
        if set.suspended || set.finished.is_some() || !is_started_by((name, set), (self.key, self.job)) {
            return None;
        }
        let owned = self.ctx.view.workloads_of(&set.uid);
        let newest = owned.iter().rev().find(|workload| !workload.is_finished())?;
        let runs = newest.phase == WorkloadPhase::Admitted && !newest.unreadable;
        runs.then(|| self.evict_owner((name, set), newest, "has lost its own quota"))
    }

    fn evict_owner(&self, (name, set): Named<'_>, workload: &WorkloadView, words: &str) -> Decision {
        let case = JobCase { key: name, job: set, ..*self };
        end_run(self.ctx, workload, self.now, |next| {
            let then = match next {
                Next::After(delay) => format!("Tried again after {delay}s"),
                Next::Never(tries) => {
                    format!("Given up after {tries} tries, until spec.active of its Workload is true again")
                }
            };
            let message = format!("Job {} {words}. {ADVICE}. {then}", self.key.name);
            case.notice(EventType::Warning, own_reasons::JOB_ALTERED, message)
        })
    }

    /// Whether the JobSet has ended, or had to stop, only a short time ago.
    fn is_recent(&self, set: &JobState, workload: Option<&WorkloadView>) -> bool {
        let ended = set.finished.as_ref().and_then(|end| Timestamp::from_second(end.at?).ok());
        let evicted = || match workload {
            Some(newest) => since(&newest.status.conditions, types::EVICTED, "True").unwrap_or(newest.created),
            None => Timestamp::from_millisecond(set.created).unwrap_or_default(),
        };
        after_seconds(ended.unwrap_or_else(evicted), STOP_SECONDS) > self.now
    }

    /// Handles a part of an unmanaged JobSet: the part is not stopped and uses no quota, so an earlier Workload of the part is deleted.
    pub(super) fn left_alone(&self, (name, set): Named<'_>, owned: &[&WorkloadView]) -> Decision {
        let left = owned.iter().find(|workload| has_finalizer(workload) || !workload.is_finished());
        match left {
            Some(workload) if workload.deleting && has_finalizer(workload) => {
                return Decision::write(remove_finalizer(workload));
            }
            Some(workload) if !workload.deleting => return self.delete(workload),
            _ => {}
        }
        let is_managed = self.ctx.settings.job_kinds.contains(&name.kind);
        // The event of a JobSet whose templates name a LocalQueue concerns all Jobs of the JobSet.
        let is_known = is_managed && set.misplaced.is_some() && part_of(set, &name.name, &self.key.name).is_some();
        if self.job.queue_name.is_none() || is_known {
            return Decision::Done;
        }
        let info = set.kind.info();
        let message = if is_managed {
            format!(
                "{} {}, which starts this Job, names no queue: the Job runs without quota. Name the queue in metadata.labels \
                 of the {}",
                info.kind, name.name, info.kind
            )
        } else {
            format!(
                "{} {}, which makes this Job, is of a kind that is not managed: the Job runs without quota. Name {} in \
                 integrations.frameworks, and the queue in metadata.labels of the {}",
                info.kind, name.name, info.framework, info.kind
            )
        };
        Decision::event(self.notice(EventType::Warning, own_reasons::QUEUE_MISPLACED, message))
    }

    /// Sends an event about an unmanaged job that names a LocalQueue in a place without effect, such as the template of its Jobs.
    pub(super) fn report_misplaced(&self) -> Decision {
        let Some(misplaced) = self.job.misplaced.as_ref().filter(|_| self.job.finished.is_none()) else {
            return Decision::Done;
        };
        let kind = self.job.kind.info().kind;
        let waits = match self.job.parts.is_empty() {
            true => format!("The {kind} does not wait for quota"),
            false => format!("Neither the {kind} nor its Jobs wait for quota"),
        };
        let message =
            format!("{misplaced}, where nobody acts on it: it belongs in metadata.labels of the {kind}. {waits}");
        Decision::event(self.notice(EventType::Warning, own_reasons::QUEUE_MISPLACED, message))
    }
}

/// The kind of a Job's controller, if the kind consists of Jobs and cannot be listed.
pub(crate) fn unlisted_above(ctx: &Context<'_>, key: &ObjectKey, job: &JobState) -> Option<Kind> {
    let owner = job.owner.as_ref().filter(|_| key.kind == Kind::JOB)?;
    Kind::of_owner(&owner.kind).filter(|kind| kind.is_made_of_jobs() && ctx.is_unlisted(*kind))
}

/// The part of a JobSet to which the Job of the given name belongs; `None` if the Job belongs to no part.
pub(super) fn part_of<'a>(set: &'a JobState, own: &str, name: &str) -> Option<&'a Part> {
    set.part_called(own, name).filter(|(part, index)| *index < part.replicas).map(|(part, _)| part)
}

/// Whether the controller of a JobSet starts a Job that names the JobSet as its controller. The JobSet controller checks only a label of the Job, and Berth
/// also checks the name of the Job.
pub(crate) fn is_started_by((name, set): Named<'_>, (key, job): Named<'_>) -> bool {
    let named = || set.parts.iter().any(|part| job.named_part.as_ref() == Some(&part.name));
    part_of(set, &name.name, &key.name).is_some() || named()
}

/// The difference between a Job and the admitted JobSet that controls the Job, in words; `None` if the Job is a part of the JobSet.
pub(super) fn alteration(
    ctx: &Context<'_>,
    (name, set): Named<'_>,
    (key, job): Named<'_>,
    workload: &WorkloadView,
) -> Option<String> {
    let Some(part) = part_of(set, &name.name, &key.name) else {
        let kind = set.kind.info().kind;
        return Some(format!(
            "names {kind} {} as its controller, and is none of the Jobs that this is made of",
            name.name
        ));
    };
    let Some(size) = &job.size else { return Some("wants pods that cannot be read".to_owned()) };
    if size.pods > part.pods {
        return Some(format!("wants {} pods, where quota is held for {}", size.pods, part.pods));
    }
    excess(ctx, workload, &part.name, (job, Some(&size.asks)))
}

#[cfg(test)]
mod tests;
