//! Pods of jobs, with their Jobs and Workloads.

use berth_jobs::{JobPod, JobState, PodsJob};

use crate::ending_pods::EndingPod;
use crate::job_pods::OddPod;
use crate::names::Name;
use crate::object::{Kind, ObjectKey, key};
use crate::{View, WorkloadView};

impl View {
    /// Whether a pod has the label with the uid of its Job, but a label with another Job name: the Job's controller does not find such a pod by its labels. The
    /// cost of `is_misnamed` is one look-up if the pod's label has the right name of the Job.
    pub fn is_misnamed(&self, pod: &JobPod) -> bool {
        let Some(job) = pod.job.as_ref().filter(|_| !pod.deleting) else { return false };
        let jobs = self.jobs();
        let is_it = |object: &ObjectKey| jobs.get(object).is_some_and(|known| *known.uid == *job.uid);
        let named = key(Kind::JOB, &(pod.namespace.clone(), job.name.to_string()));
        !is_it(&named) && self.jobs_in(&pod.namespace).any(|object| object.kind == Kind::JOB && is_it(object))
    }

    /// The Workload by whose quota a pod was started; of several possible Workloads, one that holds quota.
    pub fn workload_of_odd(&self, namespace: &str, odd: &OddPod) -> Option<&WorkloadView> {
        let named = [&odd.workload, &odd.pod.workload].into_iter().flatten();
        let named = named.filter_map(|name| self.workloads().get(&(namespace.to_owned(), name.to_string())));
        let owned = odd.jobs.iter().flat_map(|uid| self.workloads().owned_by(uid));
        let mut all = named.chain(owned.filter(|workload| workload.namespace == namespace)).peekable();
        let first = all.peek().copied();
        all.find(|workload| workload.holds_quota()).or(first)
    }

    /// The Job that has made a pod, if the Job still exists.
    pub fn job_of_odd(&self, namespace: &str, odd: &OddPod) -> Option<(&ObjectKey, &JobState)> {
        let jobs = self.jobs();
        let last = odd.job.as_ref().map(|job| key(Kind::JOB, &(namespace.to_owned(), job.name.to_string())));
        let last = last.and_then(|object| jobs.get_key_value(&object));
        let known = |(_, job): &(&ObjectKey, &JobState)| odd.jobs.contains(job.uid.as_str());
        last.filter(known).or_else(|| {
            let of_kind = self.jobs_in(namespace).filter(|object| object.kind == Kind::JOB);
            of_kind.filter_map(|object| jobs.get_key_value(object)).find(known)
        })
    }

    /// The odd pods that were started by the quota of a Workload, whether the quota still covers them or not.
    pub fn odd_pods_of<'a>(&'a self, workload: &'a WorkloadView) -> impl Iterator<Item = (&'a Name, &'a OddPod)> {
        let all = self.odd_pods().of(&workload.namespace).filter(|(_, odd)| !odd.has_ended());
        all.filter(move |(name, odd)| self.workload_of_odd(&name.0, odd).is_some_and(|found| found.uid == workload.uid))
    }

    /// The entry for an ending pod; `None` if the pod is not being deleted, or its Job is no part of another job. The cost of `ending_pod` is a few look-ups
    /// for a pod that is being deleted, and none for any other pod.
    pub fn ending_pod(&self, pod: &JobPod, leads: bool) -> Option<EndingPod> {
        let job = pod.job.as_ref().filter(|_| pod.deleting && !pod.gone)?;
        let is_made_of_jobs = |kind: &str| Kind::of_owner(kind).is_some_and(Kind::is_made_of_jobs);
        let owner = self.job_of_pod(&pod.namespace, job).and_then(|job| job.owner.as_ref());
        let owner = owner.filter(|owner| is_made_of_jobs(&owner.kind)).map(|owner| &owner.uid);
        let owner_uid = owner.or_else(|| pod.named.iter().find(|uid| **uid != job.uid))?.clone();
        let is_left = leads && !self.is_counted(&pod.namespace, job, &owner_uid);
        Some(EndingPod { job: job.clone(), owner_uid, set: pod.set.clone(), is_left })
    }

    fn job_of_pod(&self, namespace: &str, job: &PodsJob) -> Option<&JobState> {
        let object = key(Kind::JOB, &(namespace.to_owned(), job.name.to_string()));
        self.jobs().get(&object).filter(|known| *known.uid == *job.uid)
    }

    /// Whether the Job of a pod still counts the pod. The pods of a Job that was taken from its TrainingJob are counted for no Workload by that Job.
    pub fn is_counted(&self, namespace: &str, job: &PodsJob, owner_uid: &str) -> bool {
        if self.is_unlisted(Kind::JOB) {
            return true;
        }
        let counts = |job: &JobState| {
            job.training.as_deref() != Some(owner_uid)
                || job.owner.as_ref().is_some_and(|owner| *owner.uid == *owner_uid)
        };
        self.job_of_pod(namespace, job).is_some_and(counts)
    }
}
