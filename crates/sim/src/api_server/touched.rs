//! Objects that have changed since a controller looked at them last: a controller writes nothing about an object that has not changed.

use std::collections::BTreeSet;

use berth_control::write::{Kind, ObjectKey};
use serde_json::Value;

use super::ApiServer;

/// Objects for the next look of each controller.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Jobs that have changed, or whose pods have changed.
    jobs: BTreeSet<ObjectKey>,
    /// JobSets that have changed, whose Jobs have changed, or that may need the name of a Job that has changed.
    job_sets: BTreeSet<ObjectKey>,
    /// Pods of Jobs that have changed, or whose Job is gone.
    job_pods: BTreeSet<ObjectKey>,
    /// Pods that have changed, for their kubelets.
    pods: BTreeSet<ObjectKey>,
}

impl Touched {
    /// Notes a state of an object that is stored, or is replaced.
    pub(super) fn note(&mut self, key: &ObjectKey, state: &Value) {
        match key.kind {
            Kind::Pod => {
                self.pods.insert(key.clone());
            }
            Kind::JobPod => {
                self.pods.insert(key.clone());
                self.job_pods.insert(key.clone());
                let owners = state["metadata"]["ownerReferences"].as_array().into_iter().flatten();
                let names = owners.filter(|owner| owner["kind"] == "Job").filter_map(|owner| owner["name"].as_str());
                self.jobs.extend(names.map(|name| ApiServer::key(Kind::JOB, &key.namespace, name)));
            }
            Kind::Job(_) if key.kind == Kind::JOB => {
                self.jobs.insert(key.clone());
                let owners = state["metadata"]["ownerReferences"].as_array().into_iter().flatten();
                let owners =
                    owners.filter(|owner| owner["kind"] == "JobSet").filter_map(|owner| owner["name"].as_str());
                // A Job of a JobSet is called by the JobSet, the replicated job and an index.
                let called = key.name.rsplitn(3, '-').nth(2);
                let names = owners.chain(called).map(|name| ApiServer::key(Kind::JOB_SET, &key.namespace, name));
                self.job_sets.extend(names);
            }
            Kind::Job(_) if key.kind == Kind::JOB_SET => {
                self.job_sets.insert(key.clone());
            }
            _ => {}
        }
    }

    /// Notes that the owner of some objects is gone.
    pub(super) fn note_left<'a>(&mut self, owned: impl Iterator<Item = &'a ObjectKey>) {
        self.job_pods.extend(owned.filter(|key| key.kind == Kind::JobPod).cloned());
    }
}

impl ApiServer {
    /// The stored Jobs that have changed since the last call, or whose pods have changed.
    pub fn take_touched_jobs(&mut self) -> Vec<ObjectKey> {
        let touched = std::mem::take(&mut self.touched.jobs);
        self.stored(touched)
    }

    /// The stored JobSets that have changed since the last call, or whose Jobs have changed; all JobSets of a server that collects garbage at once.
    pub fn take_touched_job_sets(&mut self) -> Vec<ObjectKey> {
        if self.collects_at_once() {
            return self.objects.keys().filter(|key| key.kind == Kind::JOB_SET).cloned().collect();
        }
        let touched = std::mem::take(&mut self.touched.job_sets);
        self.stored(touched)
    }

    /// The stored pods of Jobs that have changed since the last call, or whose Job is gone since.
    pub fn take_touched_job_pods(&mut self) -> Vec<ObjectKey> {
        let touched = std::mem::take(&mut self.touched.job_pods);
        self.stored(touched)
    }

    /// The stored pods that have changed since the last call, or that a kubelet waits for.
    pub fn take_touched_pods(&mut self) -> Vec<ObjectKey> {
        let touched = std::mem::take(&mut self.touched.pods);
        self.stored(touched)
    }

    /// Notes that the kubelet of a pod waits for a time.
    pub fn touch_pod(&mut self, pod: ObjectKey) {
        self.touched.pods.insert(pod);
    }

    fn stored(&self, touched: BTreeSet<ObjectKey>) -> Vec<ObjectKey> {
        touched.into_iter().filter(|key| self.objects.contains_key(key)).collect()
    }
}
