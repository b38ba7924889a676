//! Odd pods of jobs: pods that no Job counts, or that may request more than at their creation. Only odd pods can use more than their Workload holds quota for,
//! so that the view remembers no other pods of jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_jobs::{JobPod, PodSetNeeds, PodsJob};
use jiff::Timestamp;

use crate::names::Name;
use crate::write::{Kind, ObjectKey, key};

/// The result of reading a pod.
#[derive(Debug)]
pub(crate) enum Look {
    /// The pod has ended.
    Ended,
    /// The pod runs, or may run at any moment.
    Runs {
        /// True if the status of the pod has the reason for its deletion.
        condemned: bool,
        /// The requests of the pod.
        asks: Option<Arc<PodSetNeeds>>,
    },
}

/// A pod that was observed to be odd.
#[derive(Debug)]
pub(crate) struct OddPod {
    /// The last observed state of the pod.
    pub(crate) pod: JobPod,
    /// True if a Job counts the pod, and did so when the pod was first observed.
    pub(crate) controlled: bool,
    /// True if the watch still shows the pod; otherwise the pod has lost the label that the watch selects.
    pub(crate) watched: bool,
    /// True if the pod was observed to lose its Job, or the label.
    pub(crate) witnessed: bool,
    /// The time since which the pod is in this state.
    pub(crate) since: Timestamp,
    /// The last reading of the pod: its time, the generation that was read, and its result.
    pub(crate) look: Option<(Timestamp, i64, Look)>,
    /// The uids of all jobs that the pod has named.
    pub(crate) jobs: BTreeSet<Box<str>>,
    /// The Job that controlled the pod last.
    pub(crate) job: Option<PodsJob>,
    /// The Workload that the pod named first.
    pub(crate) workload: Option<Box<str>>,
}

impl OddPod {
    pub(crate) fn new(pod: JobPod, now: Timestamp, watched: bool) -> Self {
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
    pub(crate) fn take(&mut self, pod: JobPod) {
        let own = pod.job.iter().map(|job| job.uid.clone());
        self.jobs.extend(own.chain(pod.named.iter().cloned()));
        if let Some(job) = pod.job.clone().filter(|_| self.controlled) {
            self.job = Some(job);
        }
        self.pod = pod;
    }

    /// Whether no Job counts the pod, as far as this was observed.
    pub(crate) fn is_beside(&self) -> bool {
        !(self.controlled && self.watched)
    }

    /// Whether the pod was observed to have ended. A pod that was never on a node and is kept only by a finalizer has ended, too.
    pub(crate) fn has_ended(&self) -> bool {
        self.pod.gone || matches!(self.look, Some((_, _, Look::Ended)))
    }
}

/// The odd pods, by name.
#[derive(Debug, Default)]
pub(crate) struct OddPods(BTreeMap<Name, OddPod>);

impl OddPods {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, name: &Name) -> Option<&OddPod> {
        self.0.get(name)
    }

    pub(crate) fn get_mut(&mut self, name: &Name) -> Option<&mut OddPod> {
        self.0.get_mut(name)
    }

    pub(crate) fn insert(&mut self, name: Name, odd: OddPod) {
        self.0.insert(name, odd);
    }

    pub(crate) fn remove(&mut self, name: &Name) -> Option<OddPod> {
        self.0.remove(name)
    }

    /// Marks the odd pods that a list of the watch does not have as not watched. Returns the names of the pods that were watched before.
    pub(crate) fn miss(&mut self, listed: &BTreeSet<Name>, now: Timestamp) -> Vec<Name> {
        let mut missed = Vec::new();
        for (name, odd) in self.0.iter_mut().filter(|(name, odd)| odd.watched && !listed.contains(*name)) {
            (odd.watched, odd.since) = (false, now);
            missed.push(name.clone());
        }
        missed
    }

    /// The odd pods of a namespace.
    pub(crate) fn of<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a Name, &'a OddPod)> {
        let first = (namespace.to_owned(), String::new());
        self.0.range(first..).take_while(move |(name, _)| name.0 == namespace)
    }

    /// Keys of the odd pods, of one namespace or of all namespaces.
    pub(crate) fn keys(&self, namespace: Option<&str>) -> Vec<ObjectKey> {
        match namespace {
            Some(namespace) => self.of(namespace).map(|(name, _)| key(Kind::JobPod, name)).collect(),
            None => self.0.keys().map(|name| key(Kind::JobPod, name)).collect(),
        }
    }
}
