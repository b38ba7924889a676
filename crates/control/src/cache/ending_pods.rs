//! Pods that are being deleted, of Jobs that a JobSet or TrainingJob is made of. A Job counts its pods, ending ones too, as long as it is there. If it
//! is deleted before them, the controller of the JobSet makes it again at once, as Berth does for a TrainingJob: the old pods end beside the new ones,
//! and no object counts them. So they are counted here. Nothing is decided about such a pod: it was told to end, and the watch shows its end.

use std::collections::{BTreeMap, BTreeSet};

use berth_jobs::{JobPod, JobState, PodsJob};

use crate::cache::{Name, WorkloadView};
use crate::context::Context;
use crate::controller::{Control, key};
use crate::write::Kind;

/// Names of pods, by pod set.
type BySet = BTreeMap<Box<str>, BTreeSet<String>>;

/// A pod that is being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndingPod {
    job: PodsJob,
    /// Uid of the JobSet or TrainingJob.
    whole: Box<str>,
    /// Name of its pod set.
    set: Box<str>,
    /// No Job counts it.
    is_left: bool,
}

/// All such pods. Pods are kept by name, Jobs and their wholes by namespace and uid: anybody may write a uid of another namespace into a label.
#[derive(Debug, Default)]
pub(crate) struct EndingPods {
    all: BTreeMap<Name, EndingPod>,
    /// Names of the pods of a Job.
    by_job: BTreeMap<Name, BTreeSet<String>>,
    /// Pods of a JobSet or TrainingJob that no Job counts.
    left: BTreeMap<Name, BySet>,
}

impl EndingPods {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn put(&mut self, name: &Name, pod: EndingPod) {
        self.remove(name);
        let within = |uid: &str| (name.0.clone(), uid.to_owned());
        self.by_job.entry(within(&pod.job.uid)).or_default().insert(name.1.clone());
        if pod.is_left {
            let sets = self.left.entry(within(&pod.whole)).or_default();
            sets.entry(pod.set.clone()).or_default().insert(name.1.clone());
        }
        self.all.insert(name.clone(), pod);
    }

    fn remove(&mut self, name: &Name) -> Option<EndingPod> {
        let old = self.all.remove(name)?;
        let job = (name.0.clone(), old.job.uid.to_string());
        if let Some(pods) = self.by_job.get_mut(&job) {
            pods.remove(&name.1);
            if pods.is_empty() {
                self.by_job.remove(&job);
            }
        }
        let whole = (name.0.clone(), old.whole.to_string());
        if let Some(sets) = self.left.get_mut(&whole).filter(|_| old.is_left) {
            if let Some(pods) = sets.get_mut(&old.set) {
                pods.remove(&name.1);
            }
            sets.retain(|_, pods| !pods.is_empty());
            if sets.is_empty() {
                self.left.remove(&whole);
            }
        }
        Some(old)
    }

    /// Number of pods of a JobSet or TrainingJob that no Job counts, by pod set.
    pub(crate) fn left_of(&self, namespace: &str, whole: &str) -> impl Iterator<Item = (&str, i64)> {
        let sets = (!self.left.is_empty()).then(|| self.left.get(&(namespace.to_owned(), whole.to_owned())));
        let number = |pods: &BTreeSet<String>| i64::try_from(pods.len()).unwrap_or(i64::MAX);
        sets.flatten().into_iter().flatten().map(move |(set, pods)| (&**set, number(pods)))
    }

    /// Whether there are such pods of a workload's job.
    pub(crate) fn has_left(&self, workload: &WorkloadView) -> bool {
        let mut owner = workload.owner.iter().filter(|_| !self.left.is_empty());
        owner.any(|owner| self.left.contains_key(&(workload.namespace.clone(), owner.uid.clone())))
    }

    fn of_job(&self, namespace: &str, uid: &str) -> Vec<Name> {
        let pods = self.by_job.get(&(namespace.to_owned(), uid.to_owned()));
        pods.into_iter().flatten().map(|pod| (namespace.to_owned(), pod.clone())).collect()
    }
}

impl Control {
    /// Takes note of a pod that was seen, as [`Context::ending_pod`] says it is to be remembered.
    pub(crate) fn note_ending_pod(&mut self, name: &Name, ending: Option<EndingPod>) {
        let Some(ending) = ending else {
            self.forget_ending_pod(name);
            return;
        };
        let known = self.view.ending_pods.all.get(name);
        if known == Some(&ending) {
            return;
        }
        let changed = ending.is_left || known.is_some_and(|known| known.is_left);
        let wholes = [known.map(|known| known.whole.clone()), Some(ending.whole.clone())];
        self.view.ending_pods.put(name, ending);
        for whole in wholes.into_iter().flatten().filter(|_| changed) {
            self.note_left_pods(&whole);
        }
    }

    /// A pod has ended, or is none of these any more.
    pub(crate) fn forget_ending_pod(&mut self, name: &Name) {
        if self.view.ending_pods.is_empty() {
            return;
        }
        if let Some(old) = self.view.ending_pods.remove(name).filter(|old| old.is_left) {
            self.note_left_pods(&old.whole);
        }
    }

    /// Pods that a list does not have are gone.
    pub(crate) fn miss_ending_pods(&mut self, listed: &BTreeSet<Name>) {
        let missed = self.view.ending_pods.all.keys().filter(|name| !listed.contains(*name));
        for name in missed.cloned().collect::<Vec<_>>() {
            self.forget_ending_pod(&name);
        }
    }

    /// A Job has come, has gone, or has another controller: it counts its pods now, or does so no more.
    pub(crate) fn count_ending_pods_of(&mut self, namespace: &str, job: &str) {
        // A process that comes to lead looks at all of them.
        if self.view.ending_pods.is_empty() || !self.leads() {
            return;
        }
        let pods = self.view.ending_pods.of_job(namespace, job);
        self.count_ending_pods(pods);
    }

    /// A process that comes to lead has seen all Jobs.
    pub(crate) fn count_all_ending_pods(&mut self) {
        let pods = self.view.ending_pods.all.keys().cloned().collect();
        self.count_ending_pods(pods);
    }

    fn count_ending_pods(&mut self, pods: Vec<Name>) {
        let mut wholes = BTreeSet::new();
        for name in pods {
            let Some(pod) = self.view.ending_pods.all.get(&name) else { continue };
            let is_left = !self.context().is_counted(&name.0, &pod.job, &pod.whole);
            if pod.is_left != is_left {
                wholes.insert(pod.whole.clone());
                let pod = EndingPod { is_left, ..pod.clone() };
                self.view.ending_pods.put(&name, pod);
            }
        }
        for whole in wholes {
            self.note_left_pods(&whole);
        }
    }
}

impl<'a> Context<'a> {
    /// The pod as it is remembered; `None` where it does not end, or its Job is no part of another job. Costs a look at a map for a pod that is being
    /// deleted, and nothing for any other.
    pub(crate) fn ending_pod(&self, pod: &JobPod) -> Option<EndingPod> {
        let job = pod.job.as_ref().filter(|_| pod.deleting && !pod.gone)?;
        let is_whole = |kind: &str| Kind::of_whole(kind).is_some_and(Kind::is_made_of_jobs);
        let owner = self.job_of_pod(&pod.namespace, job).and_then(|job| job.owner.as_ref());
        let owner = owner.filter(|owner| is_whole(&owner.kind)).map(|owner| &owner.uid);
        let whole = owner.or_else(|| pod.named.iter().find(|uid| **uid != job.uid))?.clone();
        let is_left = self.leads() && !self.is_counted(&pod.namespace, job, &whole);
        Some(EndingPod { job: job.clone(), whole, set: pod.set.clone(), is_left })
    }

    fn job_of_pod(&self, namespace: &str, job: &PodsJob) -> Option<&'a JobState> {
        let object = key(Kind::JOB, &(namespace.to_owned(), job.name.to_string()));
        self.view.jobs.get(&object).filter(|known| *known.uid == *job.uid)
    }

    /// Whether the Job of a pod counts it still. A Job that was taken from its TrainingJob counts for nobody.
    fn is_counted(&self, namespace: &str, job: &PodsJob, whole: &str) -> bool {
        if self.is_unlisted(Kind::JOB) {
            return true;
        }
        let counts = |job: &JobState| {
            job.training.as_deref() != Some(whole) || job.owner.as_ref().is_some_and(|owner| *owner.uid == *whole)
        };
        self.job_of_pod(namespace, job).is_some_and(counts)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use berth_jobs::SharedJob;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::event::{Change, JobType, Observation};
    use crate::settings::Settings;
    use crate::write::Term;

    const OWNER: &str = "s-1";

    fn see_job(control: &mut Control, uid: &str, gone: bool) {
        let owner = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": OWNER, "controller": true});
        let job = json!({"metadata": {"name": "s-w-0", "namespace": "team", "uid": uid, "resourceVersion": "7", "ownerReferences": [owner]},
            "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}});
        let job = SharedJob::from(JobType::JOB.decode(&job.to_string()).unwrap());
        let change = if gone { Change::Delete(job) } else { Change::Apply(job) };
        control.observe(Observation::Job(JobType::JOB, change), Timestamp::UNIX_EPOCH);
    }

    /// Pod `p` of Job `j-1`, which has that many seconds to end.
    fn pod_in(namespace: &str, grace: i64) -> Box<JobPod> {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "s-w-0", "uid": "j-1", "controller": true});
        let labels = json!({"kueue.x-k8s.io/podset": "w", "jobset.sigs.k8s.io/jobset-uid": OWNER,
            "batch.kubernetes.io/controller-uid": "j-1"});
        let metadata = json!({"namespace": namespace, "name": "p", "uid": "p-1", "labels": labels, "ownerReferences": [owner],
            "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace});
        JobPod::read(&json!({"metadata": metadata}).to_string()).unwrap()
    }

    fn pod(grace: i64) -> Box<JobPod> {
        pod_in("team", grace)
    }

    fn see(control: &mut Control, change: Change<Box<JobPod>>) {
        control.observe(Observation::JobPod(change), Timestamp::UNIX_EPOCH);
    }

    fn left(control: &Control) -> Vec<(&str, i64)> {
        control.view.ending_pods.left_of("team", OWNER).collect()
    }

    fn leader() -> Control {
        let mut control = Control::new(Settings::default());
        control.lead(Some(Term(1)));
        control
    }

    /// Two watches show a Job and its pods: a pod may be seen before its Job has come, and after the Job has gone.
    #[test]
    fn ending_pod_is_left_while_its_job_is_unseen() {
        let mut control = leader();
        see(&mut control, Change::Apply(pod(30)));
        assert_eq!(left(&control), [("w", 1)]);
        see_job(&mut control, "j-1", false);
        assert!(left(&control).is_empty(), "{:?}", control.view.ending_pods);
        // Another Job has its name.
        see_job(&mut control, "j-2", false);
        assert_eq!(left(&control), [("w", 1)]);
        see_job(&mut control, "j-2", true);
        assert_eq!(left(&control), [("w", 1)]);
        // Only a finalizer keeps it.
        see(&mut control, Change::Apply(pod(0)));
        assert!(left(&control).is_empty() && control.view.ending_pods.is_empty(), "{:?}", control.view.ending_pods);
    }

    #[test]
    fn ending_pod_that_is_gone_leaves_nothing_behind() {
        let ends: [fn() -> Change<Box<JobPod>>; 3] =
            [|| Change::Delete(pod(0)), || Change::Only(Vec::new()), || Change::Reset(Vec::new())];
        for end in ends {
            let mut control = leader();
            see(&mut control, Change::Apply(pod(30)));
            assert_eq!(left(&control), [("w", 1)]);
            see(&mut control, end());
            let pods = &control.view.ending_pods;
            assert!(pods.is_empty() && pods.by_job.is_empty() && pods.left.is_empty(), "{pods:?}");
        }
    }

    /// A process that does not lead may have seen no list of Jobs yet.
    #[test]
    fn ending_pod_is_left_only_once_a_process_leads() {
        let mut control = Control::new(Settings::default());
        see(&mut control, Change::Apply(pod(30)));
        assert!(left(&control).is_empty(), "{:?}", control.view.ending_pods);
        control.lead(Some(Term(1)));
        assert_eq!(left(&control), [("w", 1)]);
    }

    #[test]
    fn ending_pod_of_another_namespace_is_not_counted() {
        let mut control = leader();
        see(&mut control, Change::Apply(pod_in("other", 30)));
        assert!(left(&control).is_empty() && !control.view.ending_pods.is_empty());
    }
}
