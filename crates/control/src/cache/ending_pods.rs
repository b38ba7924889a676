//! Pods that are being deleted, of Jobs that a JobSet or TrainingJob is made of. A Job counts its pods, ending ones too, as long as it is there. If it
//! is deleted before them, the controller of the JobSet makes it again at once, as Berth does for a TrainingJob: the old pods end beside the new ones,
//! and no object counts them. So they are counted here. Nothing is decided about such a pod: it was told to end, and the watch shows its end.

use std::collections::{BTreeMap, BTreeSet};

use berth_jobs::PodsJob;

use crate::cache::workload_view::WorkloadView;
use crate::names::Name;

/// Names of pods, by pod set.
type BySet = BTreeMap<Box<str>, BTreeSet<String>>;

/// A pod that is being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndingPod {
    pub(crate) job: PodsJob,
    /// Uid of the JobSet or TrainingJob.
    pub(crate) whole: Box<str>,
    /// Name of its pod set.
    pub(crate) set: Box<str>,
    /// No Job counts it.
    pub(crate) is_left: bool,
}

/// All such pods. Pods are kept by name, Jobs and their wholes by namespace and uid: any client may write a uid of another namespace into a
/// label.
#[derive(Debug, Default)]
pub(crate) struct EndingPods {
    all: BTreeMap<Name, EndingPod>,
    /// Names of the pods of a Job.
    pub(crate) by_job: BTreeMap<Name, BTreeSet<String>>,
    /// Pods of a JobSet or TrainingJob that no Job counts.
    pub(crate) left: BTreeMap<Name, BySet>,
}

impl EndingPods {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn get(&self, name: &Name) -> Option<&EndingPod> {
        self.all.get(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.all.keys()
    }

    pub(crate) fn put(&mut self, name: &Name, pod: EndingPod) {
        self.remove(name);
        let within = |uid: &str| (name.0.clone(), uid.to_owned());
        self.by_job.entry(within(&pod.job.uid)).or_default().insert(name.1.clone());
        if pod.is_left {
            let sets = self.left.entry(within(&pod.whole)).or_default();
            sets.entry(pod.set.clone()).or_default().insert(name.1.clone());
        }
        self.all.insert(name.clone(), pod);
    }

    pub(crate) fn remove(&mut self, name: &Name) -> Option<EndingPod> {
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

    pub(crate) fn of_job(&self, namespace: &str, uid: &str) -> Vec<Name> {
        let pods = self.by_job.get(&(namespace.to_owned(), uid.to_owned()));
        pods.into_iter().flatten().map(|pod| (namespace.to_owned(), pod.clone())).collect()
    }
}
