//! The state that decisions read.

mod managed;
mod unlisted;

use berth_jobs::JobState;

use crate::cache::job_pods::OddPod;
use crate::cache::{Name, View, WorkloadView};
use crate::capacity::Ladder;
use crate::notes::Notes;
use crate::notes::workload::WorkloadNotes;
use crate::settings::Settings;
use crate::state::flight::Flights;
use crate::state::{Quota, Reports, Session};
use crate::training_job::trainings::Trainings;
use crate::write::ObjectKey;

/// State of [`crate::Control`], to be read. Decisions get it in place of `Control` itself, so that a decision changes nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) session: &'a Session,
    pub(crate) view: &'a View,
    pub(crate) quota: &'a Quota,
    pub(crate) flights: &'a Flights,
    pub(crate) notes: &'a Notes,
    pub(crate) reports: &'a Reports,
    pub(crate) training: &'a Trainings,
    pub(crate) capacity: &'a Ladder,
}

/// Questions that the view alone answers.
impl<'a> Context<'a> {
    /// Notes of control about a Workload.
    pub(crate) fn notes_of(&self, workload: &WorkloadView) -> &'a WorkloadNotes {
        self.notes.workloads.of(&workload.uid)
    }

    pub(crate) fn uid_of(&self, object: &ObjectKey) -> Option<String> {
        self.view.uid_of(object)
    }

    /// Whether jobs and pods of a namespace are managed. A namespace that was not seen yet is not.
    pub(crate) fn manages(&self, namespace: &str) -> bool {
        self.view.manages(self.settings, namespace)
    }

    /// Whether a namespace is being deleted. No object can be created there, so that control starts no job, waits for none, and stops running ones.
    pub(crate) fn is_ending(&self, namespace: &str) -> bool {
        self.view.ending.contains(namespace)
    }

    /// The Workload by whose quota an odd pod was started; where several may be meant, one that holds quota.
    pub(crate) fn workload_of_odd(&self, namespace: &str, odd: &OddPod) -> Option<&'a WorkloadView> {
        self.view.workload_of_odd(namespace, odd)
    }

    /// The Job that has made an odd pod, as long as it is there.
    pub(crate) fn job_of_odd(&self, namespace: &str, odd: &OddPod) -> Option<(&'a ObjectKey, &'a JobState)> {
        self.view.job_of_odd(namespace, odd)
    }

    /// The odd pods that run by the quota of a workload, or beside it.
    pub(crate) fn odd_pods_of(self, workload: &'a WorkloadView) -> impl Iterator<Item = (&'a Name, &'a OddPod)> {
        self.view.odd_pods_of(workload)
    }

    /// Whether a write may be decided now.
    pub(crate) fn leads(&self) -> bool {
        self.session.leads()
    }
}
