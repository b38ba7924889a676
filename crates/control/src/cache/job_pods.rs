//! Odd pods of jobs: no Job answers for them, or they may ask for more than they were made with. Only by these more can run than holds quota, and no
//! other pods of jobs are remembered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_jobs::pods::PodState;
use berth_jobs::{JobPod, JobState, PodSetNeeds, PodsJob};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::cache::{Name, WorkloadView};
use crate::context::Context;
use crate::controller::{Control, key};
use crate::event::Change;
use crate::write::{Kind, ObjectKey, Purpose};

/// The result of a look at a pod.
#[derive(Debug)]
pub(crate) enum Look {
    /// The pod has ended.
    Ended,
    /// The pod runs, or may at any moment.
    Runs {
        /// The status of the pod says that it goes.
        condemned: bool,
        /// Requests of the pod.
        asks: Option<Arc<PodSetNeeds>>,
    },
}

/// A pod that was seen to be odd.
#[derive(Debug)]
pub(crate) struct OddPod {
    /// As it was seen last.
    pub(crate) pod: JobPod,
    /// A Job answers for the pod, and did when it was seen first.
    pub(crate) controlled: bool,
    /// The watch shows the pod still: otherwise it has lost the label by which it is found.
    pub(crate) watched: bool,
    /// The pod was seen to lose its Job, or the label.
    pub(crate) witnessed: bool,
    /// Time since when the pod is in this state.
    pub(crate) since: Timestamp,
    /// The last look at the pod: its time, the generation that it saw, and its result.
    pub(crate) look: Option<(Timestamp, i64, Look)>,
    /// The uids of all jobs that the pod has named.
    jobs: BTreeSet<Box<str>>,
    /// The Job that controlled the pod last.
    job: Option<PodsJob>,
    /// The Workload that the pod named first.
    workload: Option<Box<str>>,
}

impl OddPod {
    fn new(pod: JobPod, now: Timestamp, watched: bool) -> Self {
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

    /// Takes over a newer state of the pod.
    fn take(&mut self, pod: JobPod) {
        let own = pod.job.iter().map(|job| job.uid.clone());
        self.jobs.extend(own.chain(pod.named.iter().cloned()));
        if let Some(job) = pod.job.clone().filter(|_| self.controlled) {
            self.job = Some(job);
        }
        self.pod = pod;
    }

    /// Whether no Job answers for the pod, as far as is seen.
    pub(crate) fn is_beside(&self) -> bool {
        !(self.controlled && self.watched)
    }

    /// Whether the pod was seen to have ended. A pod that was never on a node and is kept by a finalizer alone has ended, too.
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

    /// The odd pods of a namespace.
    fn of<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a Name, &'a OddPod)> {
        let first = (namespace.to_owned(), String::new());
        self.0.range(first..).take_while(move |(name, _)| name.0 == namespace)
    }

    /// Keys of the odd pods, of a namespace or of all.
    pub(crate) fn keys(&self, namespace: Option<&str>) -> Vec<ObjectKey> {
        match namespace {
            Some(namespace) => self.of(namespace).map(|(name, _)| key(Kind::JobPod, name)).collect(),
            None => self.0.keys().map(|name| key(Kind::JobPod, name)).collect(),
        }
    }
}

impl Control {
    pub(crate) fn observe_job_pods(&mut self, change: Change<Box<JobPod>>, now: Timestamp) {
        match change {
            Change::Apply(pod) => self.see_job_pod(*pod, now),
            Change::Delete(pod) => {
                self.forget_ending_pod(&(pod.namespace.clone(), pod.name.clone()));
                self.drop_job_pod(*pod, now);
            }
            Change::Only(listed) => self.miss_job_pods(&listed.into_iter().collect(), now),
            Change::Reset(pods) => {
                let listed = pods.iter().map(|pod| (pod.namespace.clone(), pod.name.clone())).collect();
                for pod in pods {
                    self.see_job_pod(*pod, now);
                }
                self.miss_job_pods(&listed, now);
            }
        }
    }

    fn see_job_pod(&mut self, pod: JobPod, now: Timestamp) {
        if !pod.deleting && self.view.ending_pods.is_empty() {
            self.put_job_pod(pod, now);
            return;
        }
        let name = (pod.namespace.clone(), pod.name.clone());
        let ending = self.context().ending_pod(&pod);
        self.put_job_pod(pod, now);
        // A pod that is beside its Job is charged as such.
        let is_beside = self.view.odd_pods.get(&name).is_some_and(OddPod::is_beside);
        self.note_ending_pod(&name, ending.filter(|_| !is_beside));
    }

    fn put_job_pod(&mut self, mut pod: JobPod, now: Timestamp) {
        if self.context().is_misnamed(&pod) {
            pod.job = None;
        }
        if self.view.odd_pods.is_empty() && !pod.is_odd() {
            return;
        }
        let name = (pod.namespace.clone(), pod.name.clone());
        if self.view.odd_pods.get(&name).is_some_and(|known| known.pod.uid != pod.uid) {
            self.forget_job_pod(&name);
        }
        let Some(known) = self.view.odd_pods.0.get_mut(&name) else {
            if pod.is_odd() {
                self.view.odd_pods.0.insert(name.clone(), OddPod::new(pod, now, true));
                self.note_stray(&name);
                self.touch(key(Kind::JobPod, &name));
            }
            return;
        };
        // A pod that names another Job later is not made that Job's pod by it.
        let controlled = pod.job.as_ref().is_some_and(|job| known.jobs.contains(&job.uid));
        if controlled && !pod.is_odd() {
            self.forget_job_pod(&name);
            return;
        }
        if controlled != known.controlled || !known.watched {
            known.since = now;
        }
        known.witnessed |= known.controlled && !controlled;
        (known.controlled, known.watched) = (controlled, true);
        known.take(pod);
        self.note_stray(&name);
        self.touch_related(&key(Kind::JobPod, &name));
    }

    /// The pod is gone, or has lost the label by which it is found.
    fn drop_job_pod(&mut self, pod: JobPod, now: Timestamp) {
        let name = (pod.namespace.clone(), pod.name.clone());
        let known = self.view.odd_pods.0.get_mut(&name).filter(|known| known.pod.uid == pod.uid);
        match known {
            Some(_) if pod.gone => self.forget_job_pod(&name),
            Some(known) => {
                (known.watched, known.witnessed, known.since) = (false, true, now);
                known.take(pod);
                self.note_stray(&name);
                self.touch_related(&key(Kind::JobPod, &name));
            }
            None if pod.gone || !pod.is_of_job() => {}
            None => {
                let odd = OddPod::new(pod, now, false);
                if self.context().workload_of_odd(&name.0, &odd).is_some() {
                    self.view.odd_pods.0.insert(name.clone(), odd);
                    self.note_stray(&name);
                    self.touch(key(Kind::JobPod, &name));
                }
            }
        }
    }

    /// Odd pods that a list does not have are gone, or have lost the label while nobody looked.
    fn miss_job_pods(&mut self, listed: &BTreeSet<Name>, now: Timestamp) {
        self.miss_ending_pods(listed);
        let mut missed = Vec::new();
        for (name, odd) in self.view.odd_pods.0.iter_mut().filter(|(name, odd)| odd.watched && !listed.contains(*name))
        {
            (odd.watched, odd.since) = (false, now);
            missed.push(key(Kind::JobPod, name));
        }
        for object in missed {
            self.note_stray(&(object.namespace.clone(), object.name.clone()));
            self.touch_related(&object);
        }
    }

    /// A pod is gone, or a Job answers for it again.
    pub(crate) fn forget_job_pod(&mut self, name: &Name) {
        let object = key(Kind::JobPod, name);
        self.note_stray(name);
        if self.view.odd_pods.0.remove(name).is_some() {
            self.flights.vanished(&object);
            self.reports.told.remove(&object);
            self.touch_related(&object);
        }
    }

    /// A Workload is gone: nothing shows the end of its pods that have lost their label.
    pub(crate) fn forget_job_pods_of(&mut self, namespace: &str) {
        if self.view.odd_pods.is_empty() {
            return;
        }
        let lost = self.view.odd_pods.of(namespace).filter(|(_, odd)| !odd.watched);
        let lost = lost.filter(|(_, odd)| self.context().workload_of_odd(namespace, odd).is_none());
        for name in lost.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.forget_job_pod(&name);
        }
    }

    /// Takes over the result of a look at a pod.
    pub(crate) fn note_job_pod(&mut self, object: &ObjectKey, text: &str, now: Timestamp) {
        let Ok(pod) = serde_json::from_str::<Pod>(text) else { return };
        let name = (object.namespace.clone(), object.name.clone());
        let state = PodState::read(&pod);
        let Some(known) = self.view.odd_pods.get(&name) else { return };
        if known.pod.uid != state.uid || (!known.watched && state.ended()) {
            self.forget_job_pod(&name);
            return;
        }
        let generation = pod.metadata.generation.unwrap_or_default();
        let look = match state.ended() {
            true => Look::Ended,
            false => Look::Runs { condemned: state.condemned, asks: self.needs_of_running(pod.spec) },
        };
        if let Some(known) = self.view.odd_pods.0.get_mut(&name) {
            known.pod.deleting |= state.deleting();
            known.look = Some((now, generation, look));
        }
        self.note_stray(&name);
        self.touch_related(object);
    }

    /// The reason was written into the status of a pod that goes, or the pod was deleted.
    pub(crate) fn note_sent_job_pod(&mut self, object: &ObjectKey, purpose: Purpose, now: Timestamp) {
        let name = (object.namespace.clone(), object.name.clone());
        let Some(known) = self.view.odd_pods.0.get_mut(&name).filter(|_| object.kind == Kind::JobPod) else { return };
        match (purpose, &mut known.look) {
            (Purpose::CondemnPod, Some((_, _, Look::Runs { condemned, .. }))) => *condemned = true,
            (Purpose::DeletePod, Some((at, ..))) => {
                known.pod.deleting = true;
                *at = now;
            }
            _ => {}
        }
    }
}

impl<'a> Context<'a> {
    /// Whether a pod names its Job by the uid and by another name: the Job's controller does not find it by that. Costs one look at a map where the
    /// name is right.
    fn is_misnamed(&self, pod: &JobPod) -> bool {
        let Some(job) = pod.job.as_ref().filter(|_| !pod.deleting && self.leads()) else { return false };
        let jobs = &self.view.jobs;
        let is_it = |object: &ObjectKey| jobs.get(object).is_some_and(|known| *known.uid == *job.uid);
        let named = key(Kind::JOB, &(pod.namespace.clone(), job.name.to_string()));
        !is_it(&named) && self.view.jobs_in(&pod.namespace).any(|object| object.kind == Kind::JOB && is_it(object))
    }

    /// The Workload by whose quota a pod was started; where several may be meant, one that holds quota.
    pub(crate) fn workload_of_odd(&self, namespace: &str, odd: &OddPod) -> Option<&'a WorkloadView> {
        let named = [&odd.workload, &odd.pod.workload].into_iter().flatten();
        let named = named.filter_map(|name| self.view.workloads.get(&(namespace.to_owned(), name.to_string())));
        let owned = odd.jobs.iter().flat_map(|uid| self.view.workloads.owned_by(uid));
        let mut all = named.chain(owned.filter(|workload| workload.namespace == namespace)).peekable();
        let first = all.peek().copied();
        all.find(|workload| workload.holds_quota()).or(first)
    }

    /// The Job that has made a pod, as long as it is there.
    pub(crate) fn job_of_odd(&self, namespace: &str, odd: &OddPod) -> Option<(&'a ObjectKey, &'a JobState)> {
        let jobs = &self.view.jobs;
        let last = odd.job.as_ref().map(|job| key(Kind::JOB, &(namespace.to_owned(), job.name.to_string())));
        let last = last.and_then(|object| jobs.get_key_value(&object));
        let known = |(_, job): &(&ObjectKey, &JobState)| odd.jobs.contains(job.uid.as_str());
        last.filter(known).or_else(|| {
            let of_kind = self.view.jobs_in(namespace).filter(|object| object.kind == Kind::JOB);
            of_kind.filter_map(|object| jobs.get_key_value(object)).find(known)
        })
    }

    /// The odd pods that run by the quota of a workload, or beside it.
    pub(crate) fn odd_pods_of(self, workload: &'a WorkloadView) -> impl Iterator<Item = (&'a Name, &'a OddPod)> {
        let all = self.view.odd_pods.of(&workload.namespace).filter(|(_, odd)| !odd.has_ended());
        all.filter(move |(name, odd)| self.workload_of_odd(&name.0, odd).is_some_and(|found| found.uid == workload.uid))
    }
}
