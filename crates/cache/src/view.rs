//! The view: the last observed state of the cluster's objects. Only observations change the view.
//!
//! Workloads are kept in a slim form: their pod templates are reduced to a shared [`Shape`].

mod changes;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_api as api;
use berth_jobs::JobState;
use k8s_openapi::api::core::v1::LimitRange;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::admission_checks;
use crate::deltas;
use crate::ending_pods::EndingPods;
use crate::job_pods::OddPods;
use crate::jobs;
use crate::names::Name;
use crate::object::{Kind, ObjectKey, key};
use crate::pods::{PodIndex, SetIndex};
use crate::policy_rules::{Claim, Policy};
use crate::provisioning_index::ProvisioningIndex;
use crate::settings::Settings;
use crate::timeline::Timeline;
use crate::training_jobs::TrainingJobs;
use crate::workload_view::WorkloadView;
use crate::workloads::Workloads;

/// The last observed state of every object.
#[derive(Debug, Default)]
pub struct View {
    timeline: Timeline,
    odd_pods: OddPods,
    ending_pods: EndingPods,
    unlisted: BTreeMap<(Kind, String), String>,
    jobs: jobs::Jobs,
    training: TrainingJobs,
    pods: PodIndex,
    sets: SetIndex,
    workloads: Workloads,
    cluster_queues: BTreeMap<String, Box<api::ClusterQueue>>,
    local_queues: BTreeMap<Name, Box<api::LocalQueue>>,
    cohorts: BTreeMap<String, Box<api::Cohort>>,
    flavors: BTreeMap<String, Box<api::ResourceFlavor>>,
    policies: BTreeMap<String, Policy>,
    stores: BTreeMap<String, Arc<api::berth::CheckpointStoreSpec>>,
    claims: BTreeMap<String, Claim>,
    priorities: BTreeMap<String, (i32, bool)>,
    workload_priorities: BTreeMap<String, i32>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// The namespaces that are being deleted.
    ending: BTreeSet<String>,
    checks: BTreeMap<String, admission_checks::Check>,
    provisioning: ProvisioningIndex,
    limit_ranges: BTreeMap<Name, Box<LimitRange>>,
    overheads: BTreeMap<String, BTreeMap<String, Quantity>>,
}

impl View {
    /// The relation of the wall clock and the monotonic clock, from their readings so far.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Pods of jobs that no Job counts, or that may have been resized.
    pub fn odd_pods(&self) -> &OddPods {
        &self.odd_pods
    }

    /// Pods that are being deleted, of the Jobs that are parts of other jobs.
    pub fn ending_pods(&self) -> &EndingPods {
        &self.ending_pods
    }

    /// Resources of the API that cannot be listed, with the reason, by the kind of object that depends on the resource.
    pub fn unlisted(&self) -> &BTreeMap<(Kind, String), String> {
        &self.unlisted
    }

    /// The jobs of all kinds that can be suspended, by kind, namespace and name.
    pub fn jobs(&self) -> &jobs::Jobs {
        &self.jobs
    }

    /// The TrainingJobs, by namespace and name.
    pub fn training(&self) -> &TrainingJobs {
        &self.training
    }

    /// The managed pods, by name and by group.
    pub fn pods(&self) -> &PodIndex {
        &self.pods
    }

    /// The StatefulSets whose pods are managed, by name and by the group of their pods.
    pub fn sets(&self) -> &SetIndex {
        &self.sets
    }

    /// The Workloads in slim form.
    pub fn workloads(&self) -> &Workloads {
        &self.workloads
    }

    /// The ClusterQueues, by name.
    pub fn cluster_queues(&self) -> &BTreeMap<String, Box<api::ClusterQueue>> {
        &self.cluster_queues
    }

    /// The LocalQueues, by namespace and name.
    pub fn local_queues(&self) -> &BTreeMap<Name, Box<api::LocalQueue>> {
        &self.local_queues
    }

    /// The Cohort objects, by name; a cohort that only ClusterQueues name has no entry.
    pub fn cohorts(&self) -> &BTreeMap<String, Box<api::Cohort>> {
        &self.cohorts
    }

    /// The ResourceFlavors, by name.
    pub fn flavors(&self) -> &BTreeMap<String, Box<api::ResourceFlavor>> {
        &self.flavors
    }

    /// The QueuePolicies, by name.
    pub fn policies(&self) -> &BTreeMap<String, Policy> {
        &self.policies
    }

    /// Stores of checkpoints.
    pub fn stores(&self) -> &BTreeMap<String, Arc<api::berth::CheckpointStoreSpec>> {
        &self.stores
    }

    /// The rules that each ClusterQueue follows.
    pub fn claims(&self) -> &BTreeMap<String, Claim> {
        &self.claims
    }

    /// The PriorityClasses, by name: the value of a class, and true if the class is the global default.
    pub fn priorities(&self) -> &BTreeMap<String, (i32, bool)> {
        &self.priorities
    }

    /// The values of WorkloadPriorityClasses, by name.
    pub fn workload_priorities(&self) -> &BTreeMap<String, i32> {
        &self.workload_priorities
    }

    /// The labels of each observed namespace, by the name of the namespace.
    pub fn namespaces(&self) -> &BTreeMap<String, BTreeMap<String, String>> {
        &self.namespaces
    }

    /// The AdmissionChecks, by name.
    pub fn checks(&self) -> &BTreeMap<String, admission_checks::Check> {
        &self.checks
    }

    /// The ProvisioningRequests, with their PodTemplates and configurations.
    pub fn provisioning(&self) -> &ProvisioningIndex {
        &self.provisioning
    }

    /// The LimitRanges, by namespace and name.
    pub fn limit_ranges(&self) -> &BTreeMap<Name, Box<LimitRange>> {
        &self.limit_ranges
    }

    /// The fixed overhead of a pod (`overhead.podFixed`) by the name of its RuntimeClass; empty for a class without overhead.
    pub fn overheads(&self) -> &BTreeMap<String, BTreeMap<String, Quantity>> {
        &self.overheads
    }

    /// Whether a namespace is being deleted.
    pub fn is_ending(&self, namespace: &str) -> bool {
        self.ending.contains(namespace)
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
