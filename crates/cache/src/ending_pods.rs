//! Ending pods of the Jobs that are parts of a JobSet or TrainingJob. As long as a Job exists, the Job counts its pods, including ending pods. If the Job is
//! deleted before its pods, the JobSet controller makes the Job again at once, as Berth does for a TrainingJob: the old pods end while the new pods run, and no
//! object counts the old pods. The view counts the ending pods of a deleted Job, because no Job counts them. Control makes no decision about an ending pod,
//! because the pod was deleted already, and the watch shows its end.

use std::collections::{BTreeMap, BTreeSet};

use berth_jobs::PodsJob;

use crate::names::Name;
use crate::workload_view::WorkloadView;

/// Names of pods, by pod set.
type BySet = BTreeMap<Box<str>, BTreeSet<String>>;

/// A pod that is being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndingPod {
    /// The Job that controls the pod.
    pub job: PodsJob,
    /// The uid of the JobSet or TrainingJob of which the ending pod's Job is or was a part.
    pub owner_uid: Box<str>,
    /// The name of the pod's pod set.
    pub set: Box<str>,
    /// True if no Job counts the pod.
    pub is_left: bool,
}

/// All ending pods. Pods are found by name, and Jobs and their controlling jobs by namespace and uid, because any client may write a uid of another namespace
/// into a label.
#[derive(Debug, Default)]
pub struct EndingPods {
    all: BTreeMap<Name, EndingPod>,
    /// Names of the pods of each Job.
    pub by_job: BTreeMap<Name, BTreeSet<String>>,
    /// Pods of each JobSet or TrainingJob that no Job counts.
    pub left: BTreeMap<Name, BySet>,
}

impl EndingPods {
    /// Whether no ending pod is known, which is the usual state of a cluster.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The ending pod with a name; `None` if the pod is not an ending pod.
    pub fn get(&self, name: &Name) -> Option<&EndingPod> {
        self.all.get(name)
    }

    /// Names of all ending pods, in the order of the names.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.all.keys()
    }

    /// Stores an ending pod in place of its older state, and updates the indexes.
    pub fn put(&mut self, name: &Name, pod: EndingPod) {
        self.remove(name);
        let within = |uid: &str| (name.0.clone(), uid.to_owned());
        self.by_job.entry(within(&pod.job.uid)).or_default().insert(name.1.clone());
        if pod.is_left {
            let sets = self.left.entry(within(&pod.owner_uid)).or_default();
            sets.entry(pod.set.clone()).or_default().insert(name.1.clone());
        }
        self.all.insert(name.clone(), pod);
    }

    /// Removes an ending pod, also from the indexes. The result of `remove` is the ending pod's last state; `None` if the pod was not known as an ending pod.
    pub fn remove(&mut self, name: &Name) -> Option<EndingPod> {
        let old = self.all.remove(name)?;
        let job = (name.0.clone(), old.job.uid.to_string());
        if let Some(pods) = self.by_job.get_mut(&job) {
            pods.remove(&name.1);
            if pods.is_empty() {
                self.by_job.remove(&job);
            }
        }
        let owner_uid = (name.0.clone(), old.owner_uid.to_string());
        if let Some(sets) = self.left.get_mut(&owner_uid).filter(|_| old.is_left) {
            if let Some(pods) = sets.get_mut(&old.set) {
                pods.remove(&name.1);
            }
            sets.retain(|_, pods| !pods.is_empty());
            if sets.is_empty() {
                self.left.remove(&owner_uid);
            }
        }
        Some(old)
    }

    /// The number of pods of a JobSet or TrainingJob that no Job counts, by pod set.
    pub fn left_of(&self, namespace: &str, owner_uid: &str) -> impl Iterator<Item = (&str, i64)> {
        let sets = (!self.left.is_empty()).then(|| self.left.get(&(namespace.to_owned(), owner_uid.to_owned())));
        let number = |pods: &BTreeSet<String>| i64::try_from(pods.len()).unwrap_or(i64::MAX);
        sets.flatten().into_iter().flatten().map(move |(set, pods)| (&**set, number(pods)))
    }

    /// Whether a Workload's job has pods that no Job counts.
    pub fn has_left(&self, workload: &WorkloadView) -> bool {
        let mut owner = workload.owner.iter().filter(|_| !self.left.is_empty());
        owner.any(|owner| self.left.contains_key(&(workload.namespace.clone(), owner.uid.clone())))
    }

    /// Names of the ending pods of the Job with a uid, counted by the Job or not; empty if there are none.
    pub fn of_job(&self, namespace: &str, uid: &str) -> Vec<Name> {
        let pods = self.by_job.get(&(namespace.to_owned(), uid.to_owned()));
        pods.into_iter().flatten().map(|pod| (namespace.to_owned(), pod.clone())).collect()
    }
}
