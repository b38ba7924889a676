//! The view: the last observed state of the cluster's objects. Only observations change the view.
//!
//! Workloads are kept in a slim form: their pod templates are reduced to a shared [`Shape`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_api as api;
use berth_jobs::JobState;
use k8s_openapi::api::core::v1::LimitRange;

use crate::admission_checks;
use crate::deltas;
use crate::ending_pods::EndingPods;
use crate::job_pods::OddPods;
use crate::jobs;
use crate::names::Name;
use crate::object::{Kind, ObjectKey, key};
use crate::pods::{PodBook, SetBook};
use crate::policy_rules::{Claim, Policy};
use crate::provisioning_book::ProvisioningBook;
use crate::settings::Settings;
use crate::timeline::Timeline;
use crate::training_jobs::TrainingJobs;
use crate::workload_view::WorkloadView;
use crate::workloads::Workloads;

/// The last observed state of every object.
#[derive(Debug, Default)]
pub struct View {
    /// The readings of both clocks.
    pub timeline: Timeline,
    /// Pods of jobs that no Job counts, or that may have been resized.
    pub odd_pods: OddPods,
    /// Pods that are being deleted, of the Jobs that are parts of other jobs.
    pub ending_pods: EndingPods,
    /// Resources of the API that cannot be listed, with the reason, by the kind of object that depends on the resource.
    pub unlisted: BTreeMap<(Kind, String), String>,
    /// The jobs of all kinds that can be suspended, by kind, namespace and name.
    pub jobs: jobs::Jobs,
    /// The TrainingJobs, by namespace and name.
    pub training: TrainingJobs,
    /// The managed pods, by name and by group.
    pub pods: PodBook,
    /// The StatefulSets whose pods are managed, by name and by the group of their pods.
    pub sets: SetBook,
    /// The Workloads in slim form.
    pub workloads: Workloads,
    /// The ClusterQueues, by name.
    pub cluster_queues: BTreeMap<String, Box<api::ClusterQueue>>,
    /// The LocalQueues, by namespace and name.
    pub local_queues: BTreeMap<Name, Box<api::LocalQueue>>,
    /// The Cohort objects, by name; a cohort that only queues name has no entry.
    pub cohorts: BTreeMap<String, Box<api::Cohort>>,
    /// The ResourceFlavors, by name.
    pub flavors: BTreeMap<String, Box<api::ResourceFlavor>>,
    /// The QueuePolicies, by name.
    pub policies: BTreeMap<String, Policy>,
    /// Stores of checkpoints.
    pub stores: BTreeMap<String, Arc<api::berth::CheckpointStoreSpec>>,
    /// The rules that each ClusterQueue follows.
    pub claims: BTreeMap<String, Claim>,
    /// The PriorityClasses, by name: the value of a class, and true if the class is the global default.
    pub priorities: BTreeMap<String, (i32, bool)>,
    /// The values of WorkloadPriorityClasses, by name.
    pub workload_priorities: BTreeMap<String, i32>,
    /// The labels of each observed namespace, by the name of the namespace.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// The namespaces that are being deleted.
    pub ending: BTreeSet<String>,
    /// The AdmissionChecks, by name.
    pub checks: BTreeMap<String, admission_checks::Check>,
    /// The ProvisioningRequests, with their PodTemplates and configurations.
    pub provisioning: ProvisioningBook,
    /// The LimitRanges, by namespace and name.
    pub limit_ranges: BTreeMap<Name, Box<LimitRange>>,
    /// The fixed overhead of a pod (`overhead.podFixed`) by the name of its RuntimeClass; empty for a class without overhead.
    pub overheads: BTreeMap<String, BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
}

impl View {
    /// Stores a Workload in place of its older state; returns the older state.
    pub fn put_workload(&mut self, mut new: Box<WorkloadView>) -> Option<Box<WorkloadView>> {
        new.takes_class_value = self.workloads.by_uid(&new.uid).is_some_and(|known| known.takes_class_value);
        // A Workload that has taken over the value no longer follows its class: a later edit of its priority stays.
        new.takes_class_value = self.new_value(&new).is_some();
        let job = new.job().filter(|_| new.is_finished());
        let old = self.workloads.put(new);
        if let Some(job) = job {
            self.shed_job(&job);
        }
        old
    }

    /// The job that controls a Workload, if Berth manages the job and the job still exists.
    pub fn job_of(&self, workload: &WorkloadView) -> Option<&JobState> {
        let owner = workload.owner.as_ref()?;
        self.jobs.get(&workload.job()?).filter(|job| job.uid == owner.uid)
    }

    /// Whether jobs and pods of a namespace are managed. A namespace that was not observed yet is not managed.
    pub fn manages(&self, settings: &Settings, namespace: &str) -> bool {
        let labels = self.namespaces.get(namespace);
        labels.is_some_and(|labels| deltas::matches(&settings.managed_namespaces, labels))
    }

    /// The capacity tier of a flavor.
    pub fn capacity_tier_of(&self, flavor: &str) -> Option<api::CapacityTier> {
        let labels = self.flavors.get(flavor)?.metadata.labels.as_ref()?;
        labels.get(api::labels::CAPACITY_TIER)?.parse().ok()
    }

    /// The LocalQueues of a ClusterQueue.
    pub fn feeding<'a>(&'a self, cluster_queue: &'a str) -> impl Iterator<Item = &'a Name> {
        let names = move |queue: &api::LocalQueue| queue.spec.cluster_queue.as_deref() == Some(cluster_queue);
        self.local_queues.iter().filter(move |(_, queue)| names(queue)).map(|(name, _)| name)
    }

    /// The keys of all pods and pod groups, or of the pods and pod groups of a namespace.
    pub fn pod_keys<'a>(&'a self, namespace: Option<&'a str>) -> impl Iterator<Item = ObjectKey> + use<'a> {
        let pods = self.pods.names(namespace).map(|name| key(Kind::Pod, name));
        let groups = self.pods.group_names(namespace).chain(self.sets.group_names(namespace));
        pods.chain(groups.map(|name| key(Kind::PodGroup, name)))
    }

    /// The keys of all jobs of a namespace.
    pub fn jobs_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a ObjectKey> {
        Kind::jobs().flat_map(move |kind| {
            let first = ObjectKey { kind, namespace: namespace.to_owned(), name: String::new() };
            let rest = self.jobs.range(first..).map(|(key, _)| key);
            rest.take_while(move |key| key.kind == kind && key.namespace == namespace)
        })
    }

    /// The LimitRanges of a namespace.
    pub fn limits_of(&self, namespace: &str) -> Vec<&LimitRange> {
        let first = (namespace.to_owned(), String::new());
        self.limit_ranges
            .range(first..)
            .take_while(|((place, _), _)| place == namespace)
            .map(|(_, range)| range.as_ref())
            .collect()
    }

    /// Workloads controlled by an owner, oldest first.
    pub fn workloads_of(&self, owner_uid: &str) -> Vec<&WorkloadView> {
        let mut found: Vec<&WorkloadView> = self.workloads.owned_by(owner_uid).collect();
        found.sort_by(|a, b| (a.created, &a.uid).cmp(&(b.created, &b.uid)));
        found
    }
}
