//! Pods of jobs as the watch shows them: odd pods and ending pods.

use std::collections::BTreeSet;

use berth_cache::event::Change;
use berth_cache::job_pods::{Look, OddPod};
use berth_cache::names::Name;
use berth_jobs::JobPod;
use berth_jobs::pods::PodState;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::observe::pod_change::PodChange;
use crate::write::{Kind, ObjectKey, Purpose, key};

impl PodChange<'_> {
    /// Handles an observation of pods of jobs.
    pub fn observe_job_pods(&mut self, change: Change<Box<JobPod>>, now: Timestamp) {
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
        if !pod.deleting && self.view.ending_pods().is_empty() {
            self.put_job_pod(pod, now);
            return;
        }
        let name = (pod.namespace.clone(), pod.name.clone());
        let ending = self.view.ending_pod(&pod, self.leads);
        self.put_job_pod(pod, now);
        // An odd pod that no Job counts is charged as an odd pod, and not as an ending pod.
        let is_beside = self.view.odd_pods().get(&name).is_some_and(OddPod::is_beside);
        self.note_ending_pod(&name, ending.filter(|_| !is_beside));
    }

    fn put_job_pod(&mut self, mut pod: JobPod, now: Timestamp) {
        if self.leads && self.view.is_misnamed(&pod) {
            pod.job = None;
        }
        if self.view.odd_pods().is_empty() && !pod.is_odd() {
            return;
        }
        let name = (pod.namespace.clone(), pod.name.clone());
        if self.view.odd_pods().get(&name).is_some_and(|known| known.pod.uid != pod.uid) {
            self.forget_job_pod(&name);
        }
        let Some(known) = self.view.odd_pods_mut().get_mut(&name) else {
            if pod.is_odd() {
                self.view.odd_pods_mut().insert(name.clone(), OddPod::new(pod, now, true));
                self.note_odd_pod(&name);
                self.work.touch(key(Kind::JobPod, &name));
            }
            return;
        };
        // A pod that later names another Job as its controller does not become that Job's pod.
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
        self.note_odd_pod(&name);
        self.work.touch_related(self.view, &key(Kind::JobPod, &name));
    }

    /// Handles the removal of a pod from the watch: the pod is gone, or has lost the label that the watch selects.
    fn drop_job_pod(&mut self, pod: JobPod, now: Timestamp) {
        let name = (pod.namespace.clone(), pod.name.clone());
        let known = self.view.odd_pods_mut().get_mut(&name).filter(|known| known.pod.uid == pod.uid);
        match known {
            Some(_) if pod.gone => self.forget_job_pod(&name),
            Some(known) => {
                (known.watched, known.witnessed, known.since) = (false, true, now);
                known.take(pod);
                self.note_odd_pod(&name);
                self.work.touch_related(self.view, &key(Kind::JobPod, &name));
            }
            None if pod.gone || !pod.is_of_job() => {}
            None => {
                let odd = OddPod::new(pod, now, false);
                if self.view.workload_of_odd(&name.0, &odd).is_some() {
                    self.view.odd_pods_mut().insert(name.clone(), odd);
                    self.note_odd_pod(&name);
                    self.work.touch(key(Kind::JobPod, &name));
                }
            }
        }
    }

    /// Notes the odd pods that a list does not have. A missing odd pod is gone, or has lost its label while no watch was open.
    fn miss_job_pods(&mut self, listed: &BTreeSet<Name>, now: Timestamp) {
        self.miss_ending_pods(listed);
        for name in self.view.odd_pods_mut().miss(listed, now) {
            self.note_odd_pod(&name);
            self.work.touch_related(self.view, &key(Kind::JobPod, &name));
        }
    }

    /// Forgets an odd pod that is gone, or that a Job counts again.
    pub fn forget_job_pod(&mut self, name: &Name) {
        let object = key(Kind::JobPod, name);
        self.note_odd_pod(name);
        if self.view.odd_pods_mut().remove(name).is_some() {
            self.in_flight.vanished(&object);
            self.reports.forget_events(&object);
            self.work.touch_related(self.view, &object);
        }
    }

    /// Forgets the unwatched odd pods of a namespace whose Workload is gone, because no watch shows the end of a pod that has lost its label.
    pub fn forget_job_pods_of(&mut self, namespace: &str) {
        if self.view.odd_pods().is_empty() {
            return;
        }
        let lost = self.view.odd_pods().of(namespace).filter(|(_, odd)| !odd.watched);
        let lost = lost.filter(|(_, odd)| self.view.workload_of_odd(namespace, odd).is_none());
        for name in lost.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.forget_job_pod(&name);
        }
    }

    /// Handles the result of reading an odd pod.
    pub fn note_job_pod(&mut self, object: &ObjectKey, text: &str, now: Timestamp) {
        // The runtime refuses the query for a pod that does not decode.
        let Ok(pod) = serde_json::from_str::<Pod>(text) else { return };
        let name = (object.namespace.clone(), object.name.clone());
        let state = PodState::read(&pod);
        let Some(known) = self.view.odd_pods().get(&name) else { return };
        if known.pod.uid != state.uid || (!known.watched && state.ended()) {
            self.forget_job_pod(&name);
            return;
        }
        let generation = pod.metadata.generation.unwrap_or_default();
        let look = match state.ended() {
            true => Look::Ended,
            false => Look::Runs { condemned: state.condemned, asks: self.needs_of_running(pod.spec) },
        };
        if let Some(known) = self.view.odd_pods_mut().get_mut(&name) {
            known.pod.deleting |= state.deleting();
            known.look = Some((now, generation, look));
        }
        self.note_odd_pod(&name);
        self.work.touch_related(self.view, object);
    }

    /// Notes that the reason for its deletion was written into the status of an odd pod, or that the pod was deleted.
    pub fn note_sent_job_pod(&mut self, object: &ObjectKey, purpose: Purpose, now: Timestamp) {
        let name = (object.namespace.clone(), object.name.clone());
        let Some(known) = self.view.odd_pods_mut().get_mut(&name).filter(|_| object.kind == Kind::JobPod) else {
            return;
        };
        match (purpose, &mut known.look) {
            (Purpose::CondemnPod, Some((_, _, Look::Runs { condemned, .. }))) => *condemned = true,
            (Purpose::DeletePod, Some((at, ..))) => {
                known.pod.deleting = true;
                *at = now;
            }
            _ => {}
        }
    }

    /// Has the usage beyond quota computed anew for the job of an odd pod.
    fn note_odd_pod(&mut self, name: &Name) {
        if self.leads {
            self.overruns.note_odd_pod(self.view, name);
        }
    }
}
