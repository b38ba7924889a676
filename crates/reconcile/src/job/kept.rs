//! A Workload that holds quota for a job that does not request quota through it any more: the job names no LocalQueue now, its kind or its namespace is not
//! managed, it is a part of another job, or it names another Workload. Control still decides about such a kept Workload, which holds quota. A kept Workload
//! ends with its job, an evicted job stops, and unused quota is given back. A job with a kept Workload is neither started nor admitted again.

use berth_api::conditions::types;
use berth_cache::WorkloadView;
use berth_jobs::JobState;
use jiff::Timestamp;

use super::JobCase;
use super::owners::RunsWith;
use crate::context::Context;
use crate::decision::Decision;
use crate::workload::names::has_its_name;
use crate::workload::orphan::lost_by;
use crate::workload::pods_ready;
use crate::workload::stops::let_go;
use crate::workload::{has_finalizer, remove_finalizer};
use crate::write::{EventType, ObjectKey};

/// The reason why no job requests quota in a namespace that is not managed, in words for the user.
pub(crate) const UNMANAGED_NAMESPACE: &str = "its namespace is not managed (managedJobsNamespaceSelector)";

/// The Workload through which a job requests quota.
pub(super) enum Asks<'a> {
    /// The job requests quota through a Workload of its own: the prebuilt Workload that the job names, or else the Workload that Berth creates.
    Own,
    /// The job requests quota through the Workload of its controlling job.
    Above(RunsWith<'a>),
    /// The job requests no quota, because it names no LocalQueue.
    NoQueue,
    /// The job requests no quota, because it is not managed; the text tells the user why.
    Unmanaged(&'static str),
}

impl<'a> JobCase<'a> {
    /// The Workload through which the job requests quota.
    pub(super) fn asks(&self) -> Asks<'a> {
        if !self.ctx.settings.job_kinds.contains(&self.key.kind) {
            return Asks::Unmanaged("its job is of a kind that is not managed (integrations.frameworks)");
        }
        if !self.ctx.manages(&self.key.namespace) {
            return Asks::Unmanaged(UNMANAGED_NAMESPACE);
        }
        match self.runs_with() {
            RunsWith::Itself if self.ctx.manages_job(self.key.kind, self.job) => Asks::Own,
            RunsWith::Itself => Asks::NoQueue,
            above => Asks::Above(above),
        }
    }

    /// The reason why the job does not request quota through the given Workload of its own, in words for the user; `None` if the job does.
    fn unasked(&self, workload: &WorkloadView, asks: &Asks<'_>) -> Option<String> {
        match (asks, &self.job.prebuilt_workload) {
            (Asks::Unmanaged(why), _) => Some((*why).to_owned()),
            // Objects of the controlling kind cannot be listed, so it is unknown whether the job requests quota.
            (Asks::Above(RunsWith::Unlisted), _) => None,
            (Asks::NoQueue, _) => Some("its job names no queue".to_owned()),
            (Asks::Above(_), _) => {
                let owner = self.job.owner.as_ref()?;
                Some(format!("its job is a part of {} {:?}, and runs with that", owner.kind, owner.name))
            }
            (Asks::Own, Some(named)) => {
                (**named != *workload.name).then(|| format!("its job names Workload {named:?} in its place"))
            }
            (Asks::Own, None) => None,
        }
    }

    /// The Workload that still needs decisions although the job does not request quota through it; `None` if there is none.
    pub(super) fn kept<'w>(&self, owned: &[&'w WorkloadView], asks: &Asks<'_>) -> Option<&'w WorkloadView> {
        let ended = self.job.finished.is_some();
        let stays = |workload: &WorkloadView| {
            let leaves = workload.deleting && has_finalizer(workload);
            match workload.is_finished() {
                true => leaves || (ended && has_finalizer(workload)),
                false => leaves || ended || workload.reserved(),
            }
        };
        let other = |workload: &WorkloadView| match (asks, &self.job.prebuilt_workload) {
            (Asks::Own, Some(named)) => **named != *workload.name,
            (Asks::Own, None) => false,
            _ => true,
        };
        owned.iter().copied().find(|workload| other(workload) && stays(workload))
    }

    /// Decides about a Workload through which its job does not request quota any more.
    pub(super) fn decide_kept(&self, workload: &WorkloadView, asks: &Asks<'_>) -> Decision {
        if self.job.deleting {
            return self.going(&[workload]);
        }
        if workload.is_finished() {
            return Decision::write(remove_finalizer(workload));
        }
        if let Some(end) = &self.job.finished {
            return if self.has_moving_parts() {
                Decision::Done
            } else {
                self.finish(workload, end.success, &end.message)
            };
        }
        let is_to_stop = workload.deleting || workload.is(types::EVICTED) || !workload.is(types::ADMITTED);
        if let Asks::Above(above) = asks
            && is_to_stop
            && workload.reserved()
            && !self.job.suspended
            && let Some(decision) = self.evict_starter(above)
        {
            return decision;
        }
        if workload.deleting {
            // No pod of the job has run on a Workload without quota, and the job itself is not managed.
            return if workload.reserved() { self.leaving(workload) } else { let_go(workload, self.now) };
        }
        if workload.is(types::EVICTED) {
            return self.stop(workload);
        }
        let why = self.unasked(workload, asks).unwrap_or_default();
        if !self.job.suspended {
            let admitted = workload.is(types::ADMITTED) && !matches!(asks, Asks::Own);
            return if admitted { self.runs_on(workload) } else { self.suspend(&why) };
        }
        self.without_quota(workload, &why)
    }

    /// Lets a running job run on; its Workload still shows the progress of the job.
    fn runs_on(&self, workload: &WorkloadView) -> Decision {
        Decision::first_or_earliest(self.reclaimable(workload), || {
            pods_ready::follow_job(self.ctx, workload, self.job, self.now)
        })
    }

    /// The decision about a Workload that has the name of the job's own Workload and that the job does not control; `None` if there is none.
    pub(super) fn namesake(&self) -> Option<Decision> {
        let info = self.job.kind.info();
        let name = berth_jobs::workload_name(info.kind, info.group, &self.key.name, &self.job.uid);
        let found = self.ctx.view.workloads().get(&(self.key.namespace.clone(), name))?;
        if self.ctx.in_flight.changing(&found.object_key()) || found.unreadable {
            return Some(Decision::Done);
        }
        if lost_by(self.ctx, &found.key(), &self.job.uid).is_some() {
            // The Workload has lost its owner reference to the job, because another client removed the reference. A finished Workload that has lost its owner
            // reference to the job is deleted, so that its name becomes free.
            return Some(match (found.is_finished(), found.deleting) {
                (true, false) => self.delete(found),
                _ => Decision::Done,
            });
        }
        if !self.job.suspended {
            return None;
        }
        let warn = |reason: &str, text: String| self.notice(EventType::Warning, reason, text);
        Some(has_its_name(self.ctx, self.key, found, warn))
    }
}

/// A Workload of a job that names another Workload now, if the Workload is neither finished nor being deleted.
pub(super) fn displaced<'w>(owned: &[&'w WorkloadView], named: &WorkloadView) -> Option<&'w WorkloadView> {
    let mut idle = owned.iter().filter(|workload| !workload.deleting && !workload.is_finished());
    idle.find(|workload| workload.uid != named.uid).copied()
}

/// The reason why a job does not request quota through the given Workload, in words for the user; `None` if the job does.
pub(crate) fn unasked(ctx: &Context<'_>, key: &ObjectKey, job: &JobState, workload: &WorkloadView) -> Option<String> {
    let case = JobCase { ctx, key, job, now: Timestamp::UNIX_EPOCH };
    case.unasked(workload, &case.asks())
}

#[cfg(test)]
mod tests;
