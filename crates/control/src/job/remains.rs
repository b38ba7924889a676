//! Stopped jobs that have left pods behind. No object of such a job shows this.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::conditions::types;
use berth_jobs::JobState;
use jiff::Timestamp;

use crate::cache::{View, WorkloadView};
use crate::job::starts::Starts;
use crate::moments::after_seconds;
use crate::write::{Kind, LeftPod, ObjectKey};

/// Result of the last look for pods that a deleted job has left behind.
#[derive(Debug)]
pub(crate) struct Left {
    /// Time of the look.
    pub(super) at: Timestamp,
    /// Pods about which something is to be done; never empty.
    pub(super) pods: Vec<LeftPod>,
}

/// Facts about the pods of jobs that were stopped, deleted, or started again.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    /// Uids of Workloads whose pods were seen gone.
    pods_gone: BTreeSet<String>,
    /// Pods that a deleted job has left behind, as they were seen last, by the uid of its Workload.
    pub(crate) left: BTreeMap<String, Left>,
    /// Uids of jobs that were seen at rest since their last start.
    at_rest: BTreeSet<String>,
    /// Uids of jobs that are being deleted together with their pods, whatever keeps the jobs themselves.
    rid_of_pods: BTreeSet<String>,
    /// Starts in a row of jobs that were stopped within one admission.
    pub(crate) starts: Starts,
    /// Time at which Berth stopped a job last, by the job's uid; unknown once the job has run for a while or is over.
    stopped: BTreeMap<String, Timestamp>,
}

/// Seconds from a stop of a job to the next one, if another client starts the job again in the meantime. A stop waits no longer: a job without quota
/// must not run, and its pods are only charged until it is stopped.
const STOPS_APART_SECONDS: i64 = 1;

impl Remains {
    /// Whether the pods of a Workload were seen gone.
    pub(crate) fn pods_are_gone(&self, workload: &str) -> bool {
        self.pods_gone.contains(workload)
    }

    pub(crate) fn note_pods_gone(&mut self, workload: String) {
        self.pods_gone.insert(workload);
    }

    /// Notes the pods that the job of a Workload has left behind.
    pub(crate) fn note_left(&mut self, workload: String, pods: Vec<LeftPod>, now: Timestamp) {
        if pods.is_empty() {
            self.left.remove(&workload);
            self.note_pods_gone(workload);
        } else {
            self.left.insert(workload, Left { at: now, pods });
        }
    }

    /// Notes that a decision about another object deletes pods that jobs have left behind, or the Jobs of such pods; false where no job has left any.
    pub(crate) fn note_sent_off(&mut self, view: &View, origin: &ObjectKey, object: &ObjectKey) -> bool {
        if self.left.is_empty() || origin == object || !(object.kind == Kind::JOB || object.kind == Kind::Pod) {
            return false;
        }
        let here =
            |uid: &str| view.workloads.by_uid(uid).is_some_and(|workload| workload.namespace == object.namespace);
        for (_, left) in self.left.iter_mut().filter(|(uid, _)| here(uid)) {
            left.pods.retain(|pod| match &pod.job {
                Some((job, _)) => object.kind != Kind::JOB || *job != object.name,
                None => object.kind != Kind::Pod || pod.name != object.name,
            });
        }
        true
    }

    /// A Workload is seen in that state.
    pub(crate) fn note_workload(&mut self, new: &WorkloadView) {
        if !new.reserved() {
            self.forget_workload(&new.uid);
        }
        if new.is(types::EVICTED) || new.is(types::FINISHED) {
            self.starts.forget(new.owner.as_ref().map(|owner| owner.uid.as_str()).unwrap_or_default());
        }
    }

    /// A Workload is gone, or holds no quota any more.
    pub(crate) fn forget_workload(&mut self, workload: &str) {
        self.pods_gone.remove(workload);
        self.left.remove(workload);
    }

    /// A job was seen in that state, which `appeared` if it was not known before. Gives the kind of the job that was started again within one
    /// admission, if one was.
    pub(crate) fn note_job(
        &mut self,
        view: &View,
        object: &ObjectKey,
        job: &JobState,
        appeared: bool,
        now: Timestamp,
    ) -> Option<Kind> {
        let training = appeared && self.starts.note_made(object, job, now);
        let own = self.starts.note_stop(view, object, job, now);
        if job.finished.is_some() || (!job.suspended && self.may_stop_at(&job.uid).is_some_and(|due| due <= now)) {
            self.stopped.remove(&job.uid);
        }
        if job.deleting && job.pods_go_first {
            // The garbage collector takes that mark off again when the pods have gone.
            self.note_rid_of_pods(job.uid.clone());
        }
        if !job.suspended {
            self.job_runs(&job.uid);
        } else if job.at_rest {
            self.note_at_rest(job.uid.clone());
        }
        training.then_some(Kind::TrainingJob).or_else(|| own.then_some(object.kind))
    }

    /// Berth's own stop of a job was written.
    pub(crate) fn note_stopped(&mut self, job: String, now: Timestamp) {
        self.stopped.insert(job, now);
    }

    /// Time from which Berth may stop a job again; `None` if Berth has not stopped the job a moment ago.
    pub(super) fn may_stop_at(&self, job: &str) -> Option<Timestamp> {
        self.stopped.get(job).map(|at| after_seconds(*at, STOPS_APART_SECONDS))
    }

    pub(crate) fn job_is_at_rest(&self, job: &str) -> bool {
        self.at_rest.contains(job)
    }

    pub(crate) fn note_at_rest(&mut self, job: String) {
        self.at_rest.insert(job);
    }

    /// A job runs: nothing is known of its next rest.
    pub(crate) fn job_runs(&mut self, job: &str) {
        self.at_rest.remove(job);
    }

    pub(crate) fn job_is_rid_of_pods(&self, job: &str) -> bool {
        self.rid_of_pods.contains(job)
    }

    pub(crate) fn note_rid_of_pods(&mut self, job: String) {
        self.rid_of_pods.insert(job);
    }

    /// A job is gone.
    pub(crate) fn forget_job(&mut self, view: &View, object: &ObjectKey, job: &JobState, now: Timestamp) {
        self.at_rest.remove(&job.uid);
        self.rid_of_pods.remove(&job.uid);
        self.stopped.remove(&job.uid);
        self.starts.note_lost(view, object, job, now);
    }
}
