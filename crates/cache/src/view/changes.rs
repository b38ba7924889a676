//! Changes of the observed Workloads, jobs, TrainingJobs and pods, and of the objects of admission checks. Each method changes an object in the view together
//! with the indexes of the object.

use std::sync::Arc;
use std::time::Duration;

use berth_api as api;
use berth_api::autoscaling::ProvisioningRequest;
use berth_jobs::JobState;
use berth_jobs::pods::SetState;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodTemplate;

use crate::ending_pods::EndingPod;
use crate::job_pods::OddPods;
use crate::names::Name;
use crate::object::ObjectKey;
use crate::pods::PodIndex;
use crate::priorities::WORKLOAD_CLASS;
use crate::provisioning_index::TemplateView;
use crate::shape::Shape;
use crate::shed;
use crate::training_view::{Counted, TrainingView};
use crate::view::View;
use crate::workload_view::{Rare, WorkloadView};

impl View {
    /// Records a reading of the wall clock and the monotonic clock; true if the relation of the clocks has changed since the last reading.
    pub fn tick(&mut self, now: Timestamp, steady: Duration) -> bool {
        self.timeline.tick(now, steady)
    }

    /// Stores a Workload in place of its older state; returns the older state.
    pub fn put_workload(&mut self, mut new: Box<WorkloadView>) -> Option<Box<WorkloadView>> {
        new.takes_class_value = self.workloads.by_uid(&new.uid).is_some_and(|known| known.takes_class_value);
        // A Workload that has taken over the new value of its priority class does not follow the class any longer, so that a later edit of the Workload's
        // priority stays.
        new.takes_class_value = self.new_value(&new).is_some();
        let job = new.job().filter(|_| new.is_finished());
        let old = self.workloads.put(new);
        if let Some(job) = job {
            self.shed_job(&job);
        }
        old
    }

    /// Forgets a Workload; returns its last state.
    pub fn remove_workload(&mut self, name: &Name) -> Option<Box<WorkloadView>> {
        self.workloads.remove(name)
    }

    /// Drops the fields of a Workload that are no longer read, if the Workload is finished.
    pub fn shed_workload(&mut self, name: &Name) {
        if let Some(workload) = self.workloads.get_mut(name) {
            workload.shed();
        }
    }

    /// Stores the pods of a Workload that run again after their quota was given back.
    pub fn put_pods_that_run_again(&mut self, name: &Name, again: Vec<api::ReclaimablePod>) {
        if let Some(workload) = self.workloads.get_mut(name) {
            let mut rare = workload.rare.take().map_or_else(Rare::default, |rare| *rare);
            rare.again = again;
            workload.rare = rare.kept();
        }
    }

    /// Gives the Workloads of one shape another shape, because the LimitRanges or RuntimeClasses on which their requests depend have changed. The result of
    /// `reshape_workloads` has the names of the Workloads that got the other shape.
    pub(crate) fn reshape_workloads(&mut self, old: &Arc<Shape>, new: &Arc<Shape>) -> Vec<Name> {
        let with_shape = self.workloads.values_mut().filter(|workload| Arc::ptr_eq(&workload.shape, old));
        let mut names: Vec<Name> = with_shape
            .map(|workload| {
                workload.shape = Arc::clone(new);
                workload.reshaped = workload.reshaped.wrapping_add(1);
                workload.key()
            })
            .collect();
        names.sort_unstable();
        names
    }

    /// Marks the unfinished Workloads of a WorkloadPriorityClass (of every class for `None`) whose priority differs from the value of the class, so that they
    /// take over the value. The result of `reprice` has the names of the Workloads that are to take over the value of their priority class.
    pub fn reprice(&mut self, class: Option<&str>) -> Vec<Name> {
        let values = &self.workload_priorities;
        let value_of = |named: &api::PriorityClassRef| {
            let asked = named.kind == WORKLOAD_CLASS && class.is_none_or(|class| named.name == class);
            values.get(&named.name).copied().filter(|_| asked)
        };
        let mut names = Vec::new();
        for workload in self.workloads.values_mut() {
            let value = workload.priority_class.as_deref().and_then(value_of);
            if value.is_some_and(|value| value != workload.own_priority) && !workload.is_finished() {
                workload.takes_class_value = true;
                names.push(workload.key());
            }
        }
        names
    }

    /// Stores a job in place of its older state.
    pub fn put_job(&mut self, key: ObjectKey, job: JobState) {
        self.jobs.insert(key, job);
    }

    /// Forgets a job; returns its last state.
    pub fn remove_job(&mut self, key: &ObjectKey) -> Option<JobState> {
        self.jobs.remove(key)
    }

    /// Drops the parts of a large job that no patch needs.
    pub fn lighten_job(&mut self, key: &ObjectKey) {
        self.jobs.lighten(key);
    }

    /// Drops the pod template of a job that has ended, and can neither start nor change again: the job's Workload has the template, or the job has no Workload.
    pub fn shed_job(&mut self, key: &ObjectKey) {
        let workloads = &self.workloads;
        self.jobs.shed_where(key, |job| shed::may_be_shed(job, workloads));
    }

    /// Stores a TrainingJob in place of its older state.
    pub fn put_training_job(&mut self, name: Name, job: TrainingView) {
        self.training.insert(name, job);
    }

    /// Forgets a TrainingJob; returns its last state.
    pub fn remove_training_job(&mut self, name: &Name) -> Option<TrainingView> {
        self.training.remove(name)
    }

    /// Records the number of nodes on which the pods of a TrainingJob run; false if the TrainingJob is not known any more.
    pub fn note_counted_nodes(&mut self, name: &Name, counted: Option<Counted>) -> bool {
        self.training.note_counted(name, counted)
    }

    /// The managed pods, as a mutable reference. Each method of `PodIndex` keeps the groups of pods up to date itself, so that the view adds nothing to a
    /// change of the managed pods.
    pub fn pods_mut(&mut self) -> &mut PodIndex {
        &mut self.pods
    }

    /// Handles the owners that the Workload of a pod group names now: its pods among them are no newcomers any more.
    pub fn note_group_owners(&mut self, group: &Name) {
        if let Some(workload) = self.workloads.get(group) {
            self.pods.note_owners(group, |pod| workload.is_owned_by(&pod.uid));
        }
    }

    /// Stores a StatefulSet whose pods are managed, in place of its older state; `None` removes the StatefulSet.
    pub fn put_stateful_set(&mut self, name: Name, set: Option<SetState>) {
        match set {
            Some(set) => self.sets.put(name, set),
            None => self.sets.remove(&name),
        }
    }

    /// The odd pods, as a mutable reference. No index of the view depends on the state of an odd pod, so that the view adds nothing to a change of the odd
    /// pods.
    pub fn odd_pods_mut(&mut self) -> &mut OddPods {
        &mut self.odd_pods
    }

    /// Stores an ending pod in place of its older state.
    pub fn put_ending_pod(&mut self, name: &Name, pod: EndingPod) {
        self.ending_pods.put(name, pod);
    }

    /// Forgets an ending pod; returns its last state.
    pub fn remove_ending_pod(&mut self, name: &Name) -> Option<EndingPod> {
        self.ending_pods.remove(name)
    }

    /// Records whether the cluster serves ProvisioningRequests; true if this was not known yet.
    pub fn note_provisioning_served(&mut self, served: bool) -> bool {
        self.provisioning.served.replace(served) != Some(served)
    }

    /// Stores a ProvisioningRequestConfig in place of its older state; `None` removes the ProvisioningRequestConfig.
    pub fn put_provisioning_config(&mut self, name: &str, object: Option<Box<api::ProvisioningRequestConfig>>) {
        match object {
            Some(object) => self.provisioning.configs.insert(name.to_owned(), object),
            None => self.provisioning.configs.remove(name),
        };
    }

    /// Stores a ProvisioningRequest in place of its older state; `None` removes the ProvisioningRequest.
    pub fn put_provisioning_request(&mut self, name: Name, object: Option<Box<ProvisioningRequest>>) {
        match object {
            Some(object) => self.provisioning.put(name, object),
            None => {
                self.provisioning.drop(&name);
            }
        }
    }

    /// Stores a PodTemplate of a ProvisioningRequest in place of its older state; `None` removes the PodTemplate.
    pub fn put_pod_template(&mut self, name: Name, object: Option<Box<PodTemplate>>) {
        match object {
            Some(object) => self.provisioning.templates.insert(name, TemplateView { metadata: object.metadata }),
            None => self.provisioning.templates.remove(&name),
        };
    }
}
