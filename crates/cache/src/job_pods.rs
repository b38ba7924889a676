//! Odd pods of jobs: pods that no Job counts, or that may request more than at their creation. Only odd pods and ending pods can use more than their Workload
//! holds quota for, so that the view remembers no other pods of jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_jobs::{JobPod, PodSetNeeds, PodsJob};
use jiff::Timestamp;

use crate::names::Name;
use crate::object::{Kind, ObjectKey, key};

/// The result of reading an odd pod from the API server.
#[derive(Debug)]
pub enum Look {
    /// The pod has ended.
    Ended,
    /// The pod runs, or may run at any moment.
    Runs {
        /// True if the odd pod's status has the condition that announces its deletion (`TerminationTarget`).
        condemned: bool,
        /// The requests of the pod.
        asks: Option<Arc<PodSetNeeds>>,
    },
}

/// A pod that was observed to be odd.
#[derive(Debug)]
pub struct OddPod {
    /// The last observed state of the pod.
    pub pod: JobPod,
    /// True if a Job counts the pod, and did so when the pod was first observed.
    pub controlled: bool,
    /// True if the watch still shows the pod; otherwise the pod has lost the label that the watch selects.
    pub watched: bool,
    /// True if the pod was observed to lose its Job, or the label by which the watch selects pods of jobs.
    pub witnessed: bool,
    /// The time at which this entry was made, or at which the pod last lost or regained its Job, or the watch last lost or regained the pod, whichever is
    /// latest.
    pub since: Timestamp,
    /// The last reading of the pod: its time, the generation that was read, and its result.
    pub look: Option<(Timestamp, i64, Look)>,
    /// The uids of all jobs that the pod has named.
    pub jobs: BTreeSet<Box<str>>,
    /// The Job that controlled the pod last.
    pub job: Option<PodsJob>,
    /// The Workload that the pod named first.
    pub workload: Option<Box<str>>,
}

impl OddPod {
    /// The entry of a pod that was observed to be odd at the time `now`. If `watched` is false, the odd pod counts as a pod that was observed to lose the label
    /// by which the watch selects pods of jobs.
    pub fn new(pod: JobPod, now: Timestamp, watched: bool) -> Self {
        let (controlled, workload) = (pod.job.is_some(), pod.workload.clone());
        let mut odd = Self {
            pod: JobPod::default(),
            controlled,
            watched,
            witnessed: !watched,
            since: now,
            look: None,
            jobs: BTreeSet::new(),
            job: None,
            workload,
        };
        odd.take(pod);
        odd
    }

    /// Records a newer state of the pod.
    pub fn take(&mut self, pod: JobPod) {
        let own = pod.job.iter().map(|job| job.uid.clone());
        self.jobs.extend(own.chain(pod.named.iter().cloned()));
        if let Some(job) = pod.job.clone().filter(|_| self.controlled) {
            self.job = Some(job);
        }
        self.pod = pod;
    }

    /// Whether no Job counts the pod, as far as this was observed.
    pub fn is_beside(&self) -> bool {
        !(self.controlled && self.watched)
    }

    /// Whether the pod was observed to have ended. A pod that was never on a node and is kept only by a finalizer has ended, too.
    pub fn has_ended(&self) -> bool {
        self.pod.gone || matches!(self.look, Some((_, _, Look::Ended)))
    }
}

/// The odd pods, by name.
#[derive(Debug, Default)]
pub struct OddPods(BTreeMap<Name, OddPod>);

impl OddPods {
    /// Whether no odd pod is known, which is the usual state of a cluster.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The odd pod with a name; `None` if the pod is not known to be odd.
    pub fn get(&self, name: &Name) -> Option<&OddPod> {
        self.0.get(name)
    }

    /// The odd pod with a name, as a mutable reference; `None` if the pod is not known to be odd.
    pub fn get_mut(&mut self, name: &Name) -> Option<&mut OddPod> {
        self.0.get_mut(name)
    }

    /// Stores an odd pod in place of its older entry.
    pub fn insert(&mut self, name: Name, odd: OddPod) {
        self.0.insert(name, odd);
    }

    /// Removes an odd pod. The result of `remove` is the odd pod's entry; `None` if the pod was not known to be odd.
    pub fn remove(&mut self, name: &Name) -> Option<OddPod> {
        self.0.remove(name)
    }

    /// Marks the odd pods that a list of the watch does not have as not watched. The result of `miss` has the names of the odd pods that were watched before
    /// and that the list does not have.
    pub fn miss(&mut self, listed: &BTreeSet<Name>, now: Timestamp) -> Vec<Name> {
        let mut missed = Vec::new();
        for (name, odd) in self.0.iter_mut().filter(|(name, odd)| odd.watched && !listed.contains(*name)) {
            (odd.watched, odd.since) = (false, now);
            missed.push(name.clone());
        }
        missed
    }

    /// The odd pods of a namespace.
    pub fn of<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a Name, &'a OddPod)> {
        let first = (namespace.to_owned(), String::new());
        self.0.range(first..).take_while(move |(name, _)| name.0 == namespace)
    }

    /// Keys of the odd pods, of one namespace or of all namespaces.
    pub fn keys(&self, namespace: Option<&str>) -> Vec<ObjectKey> {
        match namespace {
            Some(namespace) => self.of(namespace).map(|(name, _)| key(Kind::JobPod, name)).collect(),
            None => self.0.keys().map(|name| key(Kind::JobPod, name)).collect(),
        }
    }
}
