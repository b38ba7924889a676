//! The view: the last observed state of the cluster's objects. Only observations change the view.
//!
//! Workloads are kept in a slim form: their pod templates are reduced to a shared [`Shape`].

pub(crate) mod admission_checks;
mod children;
pub(crate) mod ending_pods;
mod group_pods;
mod identities;
mod job_phase;
pub(crate) mod job_pods;
pub(crate) mod jobs;
pub(crate) mod pods;
mod pods_of_jobs;
mod policies;
mod policy_merge;
pub(crate) mod policy_rules;
pub(crate) mod priorities;
pub(crate) mod provisioning_book;
pub(crate) mod shape;
pub(crate) mod shed;
pub(crate) mod slices;
pub(crate) mod slim;
pub(crate) mod tier_reasons;
pub(crate) mod tier_rules;
pub(crate) mod training_jobs;
pub(crate) mod training_view;
pub(crate) mod unlisted;
mod waits;
pub(crate) mod workload_phase;
pub(crate) mod workload_view;
pub(crate) mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_api as api;
use berth_jobs::JobState;
use k8s_openapi::api::core::v1::LimitRange;

use crate::cache::ending_pods::EndingPods;
pub(crate) use crate::cache::job_phase::JobPhase;
use crate::cache::job_pods::OddPods;
use crate::cache::pods::{PodBook, SetBook};
use crate::cache::policy_rules::{Claim, Policy};
use crate::cache::provisioning_book::ProvisioningBook;
use crate::cache::training_jobs::TrainingJobs;
pub(crate) use crate::cache::workload_phase::WorkloadPhase;
pub(crate) use crate::cache::workload_view::{Member, Owner, Rare, TierWish, WorkloadView};
use crate::cache::workloads::Workloads;
use crate::deltas;
pub(crate) use crate::names::{Name, name_of};
use crate::settings::Settings;
use crate::timeline::Timeline;
use crate::write::{Kind, ObjectKey, key};

/// The last observed state of every object.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// The readings of both clocks.
    pub(crate) timeline: Timeline,
    /// Pods of jobs that no Job counts, or that may have been resized.
    pub(crate) odd_pods: OddPods,
    /// Pods that are being deleted, of the Jobs that are parts of other jobs.
    pub(crate) ending_pods: EndingPods,
    /// Resources of the API that cannot be listed, with the reason, by the kind of object that depends on the resource.
    pub(crate) unlisted: BTreeMap<(Kind, String), String>,
    pub(crate) jobs: jobs::Jobs,
    pub(crate) training: TrainingJobs,
    pub(crate) pods: PodBook,
    pub(crate) sets: SetBook,
    pub(crate) workloads: Workloads,
    pub(crate) cluster_queues: BTreeMap<String, Box<api::ClusterQueue>>,
    pub(crate) local_queues: BTreeMap<Name, Box<api::LocalQueue>>,
    pub(crate) cohorts: BTreeMap<String, Box<api::Cohort>>,
    pub(crate) flavors: BTreeMap<String, Box<api::ResourceFlavor>>,
    pub(crate) policies: BTreeMap<String, Policy>,
    /// Stores of checkpoints.
    pub(crate) stores: BTreeMap<String, Arc<api::berth::CheckpointStoreSpec>>,
    /// The rules that each ClusterQueue follows.
    pub(crate) claims: BTreeMap<String, Claim>,
    pub(crate) priorities: BTreeMap<String, (i32, bool)>,
    pub(crate) workload_priorities: BTreeMap<String, i32>,
    pub(crate) namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// The namespaces that are being deleted.
    pub(crate) ending: BTreeSet<String>,
    pub(crate) checks: BTreeMap<String, admission_checks::Check>,
    pub(crate) provisioning: ProvisioningBook,
    pub(crate) limit_ranges: BTreeMap<Name, Box<LimitRange>>,
    pub(crate) overheads: BTreeMap<String, BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
}

impl View {
    /// Stores a Workload in place of its older state; returns the older state.
    pub(crate) fn put_workload(&mut self, mut new: Box<WorkloadView>) -> Option<Box<WorkloadView>> {
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
    pub(crate) fn job_of(&self, workload: &WorkloadView) -> Option<&JobState> {
        let owner = workload.owner.as_ref()?;
        self.jobs.get(&workload.job()?).filter(|job| job.uid == owner.uid)
    }

    /// Whether jobs and pods of a namespace are managed. A namespace that was not observed yet is not managed.
    pub(crate) fn manages(&self, settings: &Settings, namespace: &str) -> bool {
        let labels = self.namespaces.get(namespace);
        labels.is_some_and(|labels| deltas::matches(&settings.managed_namespaces, labels))
    }

    /// The capacity tier of a flavor.
    pub(crate) fn capacity_tier_of(&self, flavor: &str) -> Option<api::CapacityTier> {
        let labels = self.flavors.get(flavor)?.metadata.labels.as_ref()?;
        labels.get(api::labels::CAPACITY_TIER)?.parse().ok()
    }

    /// The LocalQueues of a ClusterQueue.
    pub(crate) fn feeding<'a>(&'a self, cluster_queue: &'a str) -> impl Iterator<Item = &'a Name> {
        let names = move |queue: &api::LocalQueue| queue.spec.cluster_queue.as_deref() == Some(cluster_queue);
        self.local_queues.iter().filter(move |(_, queue)| names(queue)).map(|(name, _)| name)
    }

    /// The keys of all pods and pod groups, or of the pods and pod groups of a namespace.
    pub(crate) fn pod_keys<'a>(&'a self, namespace: Option<&'a str>) -> impl Iterator<Item = ObjectKey> + use<'a> {
        let pods = self.pods.names(namespace).map(|name| key(Kind::Pod, name));
        let groups = self.pods.group_names(namespace).chain(self.sets.group_names(namespace));
        pods.chain(groups.map(|name| key(Kind::PodGroup, name)))
    }

    /// The keys of all jobs of a namespace.
    pub(crate) fn jobs_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a ObjectKey> {
        Kind::jobs().flat_map(move |kind| {
            let first = ObjectKey { kind, namespace: namespace.to_owned(), name: String::new() };
            let rest = self.jobs.range(first..).map(|(key, _)| key);
            rest.take_while(move |key| key.kind == kind && key.namespace == namespace)
        })
    }

    /// The LimitRanges of a namespace.
    pub(crate) fn limits_of(&self, namespace: &str) -> Vec<&LimitRange> {
        let first = (namespace.to_owned(), String::new());
        self.limit_ranges
            .range(first..)
            .take_while(|((place, _), _)| place == namespace)
            .map(|(_, range)| range.as_ref())
            .collect()
    }

    /// Workloads controlled by an owner, oldest first.
    pub(crate) fn workloads_of(&self, owner_uid: &str) -> Vec<&WorkloadView> {
        let mut found: Vec<&WorkloadView> = self.workloads.owned_by(owner_uid).collect();
        found.sort_by(|a, b| (a.created, &a.uid).cmp(&(b.created, &b.uid)));
        found
    }
}
