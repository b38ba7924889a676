//! Dependencies of decisions: the objects that are marked when an object was seen or a write of it has come back.

use berth_api::conditions::own_reasons;

use crate::cache::{Name, WorkloadView};
use crate::context::Context;
use crate::controller::{Control, Step, cluster_key, key};
use crate::deltas;
use crate::write::{EventType, Kind, Notice, ObjectKey, WORKLOADS};

impl Control {
    /// Sends an event that the API server refuses a write, at the object that the write is for.
    pub(crate) fn refused(&mut self, object: &ObjectKey, creation: bool, text: &str) {
        self.tell_of_write(object, creation, "refused a change by Berth", text);
    }

    pub(crate) fn tell_of_write(&mut self, object: &ObjectKey, creation: bool, what: &str, text: &str) {
        let mut object = object.clone();
        if object.kind == Kind::PodGroup {
            // The event is sent at the first pod of the group.
            let group = (object.namespace, object.name);
            let Some((pod, _)) = self.view.pods.members(&group).next() else { return };
            object = key(Kind::Pod, &(group.0.clone(), pod.to_owned()));
        }
        let Some(uid) = self.context().uid_of(&object) else { return };
        self.reports.notices.push(Notice {
            key: object,
            uid,
            event_type: EventType::Warning,
            reason: if creation { own_reasons::FAILED_CREATE } else { own_reasons::WRITE_REFUSED }.into(),
            message: format!("the API server {what}: {text}"),
            reporter: WORKLOADS,
        });
    }

    /// Sends an event at the job of a Workload about the API server's answer to a write to the Workload: users look at their job first.
    pub(crate) fn tell_job_of(&mut self, object: &ObjectKey, what: &str, text: &str) {
        let name = (object.namespace.clone(), object.name.clone());
        let workload = self.view.workloads.get(&name).filter(|_| object.kind == Kind::Workload);
        if let Some(job) = workload.and_then(WorkloadView::whole) {
            self.tell_of_write(&job, false, what, &format!("Workload {}/{}: {text}", name.0, name.1));
        }
    }

    /// Sends an event about an object, if it is not the last one that was sent for that reason. There may be more to report or to do: the object is
    /// looked at again.
    pub(crate) fn tell_once(&mut self, object: ObjectKey, notice: Notice, step: &mut Step) {
        let told = self.reports.told.entry(object.clone()).or_default();
        if told.get(&notice.reason) != Some(&notice.message) {
            told.insert(notice.reason.clone(), notice.message.clone());
            step.notices.push(notice);
            self.work.add(object);
        }
    }

    /// Marks everything that is decided about.
    pub(crate) fn everything_dirty(&mut self) {
        let jobs = self.view.jobs.keys().cloned();
        let workloads = self.view.workloads.keys().map(|name| key(Kind::Workload, &name));
        let queues = self.view.cluster_queues.keys().map(|name| cluster_key(Kind::ClusterQueue, name));
        let local = self.view.local_queues.keys().map(|name| key(Kind::LocalQueue, name));
        let flavors = self.view.flavors.keys().map(|name| cluster_key(Kind::ResourceFlavor, name));
        self.work.extend(self.view.cohorts.keys().map(|name| cluster_key(Kind::Cohort, name)));
        let training: Vec<ObjectKey> = self.view.training.keys().map(|name| key(Kind::TrainingJob, name)).collect();
        let requests = self.view.provisioning.requests.keys().map(|name| key(Kind::ProvisioningRequest, name));
        self.work.extend(requests.chain(self.view.checks.keys().map(|name| cluster_key(Kind::AdmissionCheck, name))));
        self.work.extend(self.capacity.reclaims.nodes().map(|name| cluster_key(Kind::Node, name)));
        self.work.extend(self.view.pod_keys(None));
        self.work.extend(self.view.odd_pods.keys(None));
        self.work.extend(jobs.chain(workloads).chain(queues).chain(local).chain(flavors));
        for object in training {
            self.touch(object);
        }
    }

    /// Marks all jobs: any of them may wait for a priority class.
    pub(crate) fn touch_all_jobs(&mut self) {
        self.work.extend(self.view.jobs.keys().cloned());
        self.work.extend(self.view.pod_keys(None));
        let training = self.view.training.keys().map(|name| key(Kind::TrainingJob, name));
        self.work.extend(training.collect::<Vec<_>>());
    }

    /// Marks the jobs of a namespace: something that they depend on has changed.
    pub(crate) fn touch_jobs_of(&mut self, namespace: &str) {
        self.work.extend(self.view.jobs_in(namespace).cloned());
        self.work.extend(self.view.pod_keys(Some(namespace)));
        let training = self.view.training.keys().filter(|name| name.0 == namespace);
        self.work.extend(training.map(|name| key(Kind::TrainingJob, name)).collect::<Vec<_>>());
    }

    /// The owner of workloads has come, is going or has gone: those that wait may be tried, or not, by that.
    pub(crate) fn mirror_waiting_of(&mut self, owner_uid: &str) {
        let waiting = self.view.workloads.owned_by(owner_uid).filter(|workload| !workload.reserved());
        let waiting: Vec<Name> = waiting.map(WorkloadView::key).collect();
        for name in waiting {
            self.mirror(&name);
        }
    }

    /// Marks the Workloads that an owner controls.
    pub(crate) fn touch_owned_by(&mut self, uid: &str) {
        let owned = self.view.workloads.owned_by(uid).map(WorkloadView::key);
        self.work.extend(owned.map(|workload| key(Kind::Workload, &workload)));
    }

    /// Marks the Jobs of a namespace that name this uid as their controller's.
    pub(crate) fn touch_jobs_below(&mut self, namespace: &str, uid: &str) {
        self.work.extend(self.view.jobs.controlled_by(namespace, uid).map(|(job, _)| job.clone()));
    }

    /// Marks an object and those whose decisions depend on it.
    pub(crate) fn touch_related(&mut self, object: &ObjectKey) {
        let name = (object.namespace.clone(), object.name.clone());
        match object.kind {
            Kind::Workload => {
                self.touch_job_pods(&object.namespace);
                if let Some(job) = self.view.workloads.get(&name).and_then(WorkloadView::whole) {
                    self.touch(job);
                }
            }
            Kind::Pod => {
                if let Some(pod) = self.view.pods.get(&name) {
                    let group = pod.group.as_ref().map(|group| (object.namespace.clone(), group.name.to_string()));
                    let uid = pod.uid.to_string();
                    self.touch_owned_by(&uid);
                    self.work.extend(group.map(|group| key(Kind::PodGroup, &group)));
                }
            }
            Kind::ProvisioningRequest | Kind::PodTemplate => self.work.extend(self.context().concerned_by(object)),
            kind if kind.is_job() => {
                self.touch_job_pods(&object.namespace);
                let job = self.view.jobs.get(object);
                let uid = job.map(|job| job.uid.clone()).unwrap_or_default();
                let owned: Vec<Name> = self.view.workloads.owned_by(&uid).map(WorkloadView::key).collect();
                // The job of which it is a part may wait for it to go.
                let whole = job.and_then(|job| job.owner.as_ref());
                let whole = whole.and_then(|owner| {
                    Some((Kind::of_whole(&owner.kind)?, owner.name.to_string(), owner.uid.to_string()))
                });
                for workload in owned {
                    self.touch(key(Kind::Workload, &workload));
                }
                if let Some((kind, name, uid)) = whole {
                    let whole = key(kind, &(object.namespace.clone(), name));
                    // The capacity of a TrainingJob is that of its Jobs. The Workloads of a job that is gone wait for the Jobs.
                    if kind == Kind::TrainingJob || self.context().uid_of(&whole).as_ref() != Some(&uid) {
                        self.touch_owned_by(&uid);
                    }
                    self.touch(whole);
                }
            }
            _ => {}
        }
        // An object that does not name its owner yet cannot show which objects wait for it.
        let blocked = self.flights.unblock(object);
        self.work.extend(blocked);
        self.touch(object.clone());
    }
}

impl Context<'_> {
    /// Whether jobs and pods of a namespace are managed. A namespace that was not seen yet is not.
    pub(crate) fn manages(&self, namespace: &str) -> bool {
        let labels = self.view.namespaces.get(namespace);
        labels.is_some_and(|labels| deltas::matches(&self.settings.managed_namespaces, labels))
    }

    pub(crate) fn uid_of(&self, object: &ObjectKey) -> Option<String> {
        self.view.uid_of(object)
    }

    /// The version at which the view has an object, 0 when it has not.
    pub(crate) fn seen_version(&self, object: &ObjectKey) -> u64 {
        self.view.seen_version(object)
    }
}
