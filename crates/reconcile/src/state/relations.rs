//! Dependencies between decisions: the objects that are marked for a decision when another object was observed or a write of that object has ended.

use std::collections::BTreeSet;

use berth_cache::admission_checks::Check;
use berth_cache::names::Name;
use berth_cache::{View, WorkloadView};
use berth_jobs::controller;

use crate::state::work_queue::WorkQueue;
use crate::write::{Kind, ObjectKey, cluster_key, key};

impl WorkQueue {
    /// Marks for a decision all observed objects that control decides about.
    pub fn touch_all(&mut self, view: &View) {
        let jobs = view.jobs().keys().cloned();
        let workloads = view.workloads().keys().map(|name| key(Kind::Workload, &name));
        let queues = view.cluster_queues().keys().map(|name| cluster_key(Kind::ClusterQueue, name));
        let local = view.local_queues().keys().map(|name| key(Kind::LocalQueue, name));
        let flavors = view.flavors().keys().map(|name| cluster_key(Kind::ResourceFlavor, name));
        self.extend(view.cohorts().keys().map(|name| cluster_key(Kind::Cohort, name)));
        let requests = view.provisioning().requests.keys().map(|name| key(Kind::ProvisioningRequest, name));
        self.extend(requests.chain(view.checks().keys().map(|name| cluster_key(Kind::AdmissionCheck, name))));
        self.extend(view.pod_keys(None));
        self.extend(view.odd_pods().keys(None));
        self.extend(jobs.chain(workloads).chain(queues).chain(local).chain(flavors));
        for name in view.training().keys() {
            self.touch(key(Kind::TrainingJob, name));
        }
    }

    /// Marks all jobs for a decision, because any of them may wait for a priority class.
    pub(crate) fn touch_all_jobs(&mut self, view: &View) {
        self.extend(view.jobs().keys().cloned());
        self.extend(view.pod_keys(None));
        self.extend(view.training().keys().map(|name| key(Kind::TrainingJob, name)));
    }

    /// Marks the jobs of a namespace for a decision, because an object on which they depend has changed.
    pub(crate) fn touch_jobs_of(&mut self, view: &View, namespace: &str) {
        self.extend(view.jobs_in(namespace).cloned());
        self.extend(view.pod_keys(Some(namespace)));
        let training = view.training().keys().filter(|name| name.0 == namespace);
        self.extend(training.map(|name| key(Kind::TrainingJob, name)));
    }

    /// Has the engine get the pending Workloads of an owner again, because the existence of the owner decides whether the engine may try them.
    pub fn mirror_waiting_of(&mut self, view: &View, owner_uid: &str) {
        let waiting = view.workloads().owned_by(owner_uid).filter(|workload| !workload.reserved());
        waiting.for_each(|workload| self.mirror(workload.key()));
    }

    /// Has the engine get all Workloads of an owner again.
    pub fn mirror_owned_by(&mut self, view: &View, owner_uid: &str) {
        view.workloads().owned_by(owner_uid).for_each(|workload| self.mirror(workload.key()));
    }

    /// Marks for a decision the Workloads that an owner controls.
    pub fn touch_owned_by(&mut self, view: &View, uid: &str) {
        self.extend(view.workloads().owned_by(uid).map(|workload| workload.object_key()));
    }

    /// Marks for a decision the Jobs of a namespace whose controller has the given uid.
    pub fn touch_jobs_below(&mut self, view: &View, namespace: &str, uid: &str) {
        self.extend(view.jobs().controlled_by(namespace, uid).map(|(job, _)| job.clone()));
    }

    /// Marks the odd pods of a namespace for a decision, because a Job or a Workload of the namespace has changed.
    pub fn touch_job_pods(&mut self, view: &View, namespace: &str) {
        if !view.odd_pods().is_empty() {
            self.extend(view.odd_pods().keys(Some(namespace)));
        }
    }

    /// Marks all pods of a pod group for a decision.
    pub fn touch_members(&mut self, view: &View, group: &Name) {
        self.extend(view.pods().members(group).map(|(name, _)| key(Kind::Pod, &(group.0.clone(), name.to_owned()))));
    }

    /// Marks for a decision the Workloads of a LocalQueue, and the LocalQueue.
    pub(crate) fn touch_local_members(&mut self, view: &View, local: &Name) {
        self.extend(view.workloads().members(local).map(|workload| workload.object_key()));
        self.touch(key(Kind::LocalQueue, local));
    }

    /// Marks for a decision the objects that a stop policy or the deletion of a ClusterQueue concerns: the Workloads of the queue, and its LocalQueues because
    /// of their statuses.
    pub(crate) fn touch_queue_members(&mut self, view: &View, cluster_queue: &str) {
        for local in view.feeding(cluster_queue) {
            self.touch_local_members(view, local);
        }
        self.extend(view.workloads().reserving(cluster_queue).map(|workload| workload.object_key()));
    }

    /// Has the engine get the Workloads of a ClusterQueue again, because a QueuePolicy has changed; marks the Workloads and their jobs.
    pub(crate) fn follow_policy(&mut self, view: &View, cluster_queue: &str) {
        for local in view.feeding(cluster_queue) {
            self.follow_policy_in(view, local);
        }
    }

    /// Has the engine get the Workloads of one LocalQueue again, and marks the Workloads and their jobs.
    pub(crate) fn follow_policy_in(&mut self, view: &View, local: &Name) {
        for workload in view.workloads().members(local) {
            self.mirror(workload.key());
            // A QueuePolicy also decides the priority of a Workload's job.
            self.touch_related(view, &workload.object_key());
        }
    }

    /// Marks for a decision the admission checks that send requests to autoscalers, and the Workloads that wait for these checks. The argument `config` selects
    /// the checks of one ProvisioningRequestConfig.
    pub(crate) fn touch_provisioning(&mut self, view: &View, config: Option<&str>) {
        let concerned = |check: &Check| {
            let named = check.parameters.as_ref().map(|parameters| parameters.name.as_str());
            check.asks_autoscaler() && (config.is_none() || named == config)
        };
        for (name, _) in view.checks().iter().filter(|(_, check)| concerned(check)) {
            self.touch_check(view, name);
        }
    }

    /// Marks for a decision an admission check, and the Workloads that wait for the check.
    pub(crate) fn touch_check(&mut self, view: &View, check: &str) {
        self.touch(cluster_key(Kind::AdmissionCheck, check));
        let waits = |workload: &&WorkloadView| {
            workload.asked.is_some() && workload.status.admission_checks.iter().any(|state| state.name == check)
        };
        let waiting: BTreeSet<Name> = view.workloads().values().filter(waits).map(WorkloadView::key).collect();
        self.extend(waiting.iter().map(|workload| key(Kind::Workload, workload)));
    }

    /// Marks the ProvisioningRequests of a Workload for a decision.
    pub fn touch_requests_of(&mut self, view: &View, workload: &Name) {
        let Some(workload) = view.workloads().get(workload) else { return };
        let requests = view.provisioning().of_workload(&workload.uid);
        self.extend(requests.map(|name| key(Kind::ProvisioningRequest, name)));
    }

    /// Marks for a decision an object, and the objects whose decisions depend on it.
    pub fn touch_related(&mut self, view: &View, object: &ObjectKey) {
        let name = (object.namespace.clone(), object.name.clone());
        match object.kind {
            Kind::Workload => {
                self.touch_job_pods(view, &object.namespace);
                if let Some(job) = view.workloads().get(&name).and_then(WorkloadView::owner_key) {
                    self.touch(job);
                }
            }
            Kind::Pod => {
                if let Some(pod) = view.pods().get(&name) {
                    let group = pod.group.as_ref().map(|group| (object.namespace.clone(), group.name.to_string()));
                    self.touch_owned_by(view, &pod.uid);
                    self.extend(group.map(|group| key(Kind::PodGroup, &group)));
                }
            }
            Kind::ProvisioningRequest | Kind::PodTemplate => self.extend(concerned_by(view, object)),
            kind if kind.is_job() => self.touch_related_to_job(view, object),
            _ => {}
        }
        // Blocked objects are found by the key of the awaited object, because an object without an owner yet does not show which objects wait for it.
        self.unblock(object);
        self.touch(object.clone());
    }

    fn touch_related_to_job(&mut self, view: &View, object: &ObjectKey) {
        self.touch_job_pods(view, &object.namespace);
        let job = view.jobs().get(object);
        let uid = job.map(|job| job.uid.clone()).unwrap_or_default();
        self.touch_owned_by(view, &uid);
        // The JobSet or TrainingJob that owns a Job may wait until the Job is gone.
        let owner = job.and_then(|job| job.owner.as_ref());
        let Some((kind, owner)) = owner.and_then(|owner| Some((Kind::of_owner(&owner.kind)?, owner))) else { return };
        let owner_key = key(kind, &(object.namespace.clone(), owner.name.to_string()));
        // The Workload of a TrainingJob is marked, because the capacity of a TrainingJob is that of its Jobs. The Workloads of a removed JobSet or
        // TrainingJob are marked, because they wait until its Jobs are gone.
        if kind == Kind::TrainingJob || view.uid_of(&owner_key).is_none_or(|uid| *uid != *owner.uid) {
            self.touch_owned_by(view, &owner.uid);
        }
        self.touch(owner_key);
    }
}

/// Keys of the objects that a change of a ProvisioningRequest or PodTemplate concerns.
fn concerned_by(view: &View, object: &ObjectKey) -> Vec<ObjectKey> {
    let name = (object.namespace.clone(), object.name.clone());
    let index = view.provisioning();
    let in_place = |kind: Kind, name: &str| key(kind, &(object.namespace.clone(), name.to_owned()));
    if object.kind == Kind::ProvisioningRequest {
        let owner = index.requests.get(&name).and_then(|request| controller(&request.metadata));
        return owner.map(|owner| in_place(Kind::Workload, &owner.name)).into_iter().collect();
    }
    let Some(template) = index.templates.get(&name) else { return Vec::new() };
    let request = controller(&template.metadata).filter(|owner| owner.kind == Kind::ProvisioningRequest.name());
    let request = request.map(|owner| in_place(Kind::ProvisioningRequest, &owner.name));
    let workload = template.workload().map(|name| in_place(Kind::Workload, name));
    // A PodTemplate that belongs to no ProvisioningRequest yet may be one that a ProvisioningRequest of the same Workload waits to take over.
    let uid = workload.as_ref().and_then(|workload| view.uid_of(workload)).unwrap_or_default();
    let requests = index.of_workload(&uid).map(|name| key(Kind::ProvisioningRequest, name));
    request.into_iter().chain(workload).chain(requests).collect()
}
