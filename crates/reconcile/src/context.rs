//! The state that decisions read.

mod managed;
mod specs;
mod unlisted;

use berth_cache::job_pods::OddPod;
use berth_cache::settings::Settings;
use berth_cache::{Name, View, WorkloadView};
use berth_jobs::JobState;

use crate::capacity::CapacityFallback;
use crate::notes::Notes;
use crate::notes::workload::WorkloadNotes;
use crate::state::in_flight::InFlightWrites;
use crate::state::{Quota, Reports, Session};
use crate::training_job::trainings::Trainings;
use crate::write::ObjectKey;

/// State of the controller for reading. Decisions get the context instead of the controller itself, so that a decision changes no state.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The settings of control.
    pub settings: &'a Settings,
    /// The role in which this process decides: leader or not, online or offline.
    pub session: &'a Session,
    /// The last observed state of every object.
    pub view: &'a View,
    /// Quota, usage and pending Workloads, with the engine's state.
    pub quota: &'a Quota,
    /// The writes under way, and the writes whose result is unknown.
    pub in_flight: &'a InFlightWrites,
    /// The notes of control about single objects.
    pub notes: &'a Notes,
    /// The state of events and statuses that report to users.
    pub reports: &'a Reports,
    /// The growth of elastic TrainingJobs, and the Jobs that have run each TrainingJob.
    pub training: &'a Trainings,
    /// The state of the capacity fallback that is not in objects.
    pub capacity: &'a CapacityFallback,
}

/// Facts for decisions that come from the view only.
impl<'a> Context<'a> {
    /// Notes of control about a Workload.
    pub(crate) fn notes_of(&self, workload: &WorkloadView) -> &'a WorkloadNotes {
        self.notes.workloads().of(&workload.uid)
    }

    /// The uid of an object of the view; `None` if the object was not observed.
    pub fn uid_of(&self, object: &ObjectKey) -> Option<String> {
        self.view.uid_of(object)
    }

    /// Whether jobs and pods of a namespace are managed. A namespace that was not observed yet is not managed.
    pub(crate) fn manages(&self, namespace: &str) -> bool {
        self.view.manages(self.settings, namespace)
    }

    /// Whether a namespace is being deleted. No object can be created in a namespace that is being deleted, so control starts no job there, waits for no job,
    /// and stops running jobs.
    pub(crate) fn is_ending(&self, namespace: &str) -> bool {
        self.view.is_ending(namespace)
    }

    /// The Workload by whose quota an odd pod was started; of several possible Workloads, one that holds quota.
    pub(crate) fn workload_of_odd(&self, namespace: &str, odd: &OddPod) -> Option<&'a WorkloadView> {
        self.view.workload_of_odd(namespace, odd)
    }

    /// The Job that created an odd pod, if the Job still exists.
    pub(crate) fn job_of_odd(&self, namespace: &str, odd: &OddPod) -> Option<(&'a ObjectKey, &'a JobState)> {
        self.view.job_of_odd(namespace, odd)
    }

    /// The odd pods that were started by the quota of a Workload, whether the quota still covers them or not.
    pub(crate) fn odd_pods_of(self, workload: &'a WorkloadView) -> impl Iterator<Item = (&'a Name, &'a OddPod)> {
        self.view.odd_pods_of(workload)
    }

    /// Whether this process leads, so that control may decide about writes.
    pub fn leads(&self) -> bool {
        self.session.leads()
    }
}
