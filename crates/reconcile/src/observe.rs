//! Observations are split into single observed objects. The files of the folder `observe` have the effects of one observed object of each kind.

mod ending_pods;
mod job_pods;
pub mod jobs;
mod namespaces;
pub mod pod_change;
pub mod pods;
mod policies;
mod queues;
pub mod quota_rules;
pub mod training_jobs;
pub mod workloads;

use std::collections::BTreeSet;

use berth_api as api;
use berth_cache::event::Change;
use berth_cache::names::{Name, name_of};
use berth_jobs::SharedJob;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The objects of a change, with their names, in the order in which control takes the objects. Removed objects (`None`) come before the other objects of the
/// change. The argument `known` has the names in the view, and a known object that a list does not have was removed.
pub fn objects<T: HasMeta>(change: Change<T>, known: impl Iterator<Item = Name>) -> Vec<(Name, Option<T>)> {
    let missed = |listed: &BTreeSet<Name>| {
        let mut missed: Vec<Name> = known.filter(|name| !listed.contains(name)).collect();
        missed.sort_unstable();
        missed.into_iter().map(|name| (name, None))
    };
    let named = |object: T| (name_of(object.meta()), Some(object));
    match change {
        Change::Apply(object) => vec![named(object)],
        Change::Delete(object) => vec![(name_of(object.meta()), None)],
        Change::Only(listed) => missed(&listed.into_iter().collect()).collect(),
        Change::Reset(objects) => {
            let listed = objects.iter().map(|object| name_of(object.meta())).collect();
            missed(&listed).chain(objects.into_iter().map(named)).collect()
        }
    }
}

/// The names of cluster-wide objects, with an empty namespace.
pub fn cluster_wide<'a>(names: impl Iterator<Item = &'a String>) -> impl Iterator<Item = Name> {
    names.map(|name| (String::new(), name.clone()))
}

/// An object with metadata.
pub trait HasMeta {
    /// The metadata of the object.
    fn meta(&self) -> &ObjectMeta;
}

impl HasMeta for SharedJob {
    fn meta(&self) -> &ObjectMeta {
        self.metadata()
    }
}

macro_rules! has_meta {
    ($($kind:ty),* $(,)?) => {
        $(impl HasMeta for Box<$kind> {
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
        })*
    };
}

has_meta!(
    k8s_openapi::api::apps::v1::StatefulSet,
    api::berth::CheckpointStore,
    api::node::Node,
    k8s_openapi::api::core::v1::Pod,
    k8s_openapi::api::core::v1::PodTemplate,
    api::berth::TrainingJob,
    api::Workload,
    api::ClusterQueue,
    api::LocalQueue,
    api::AdmissionCheck,
    api::ProvisioningRequestConfig,
    api::autoscaling::ProvisioningRequest,
    api::Cohort,
    api::ResourceFlavor,
    api::WorkloadPriorityClass,
    api::berth::QueuePolicy,
    k8s_openapi::api::scheduling::v1::PriorityClass,
    k8s_openapi::api::core::v1::Namespace,
    k8s_openapi::api::core::v1::LimitRange,
    k8s_openapi::api::node::v1::RuntimeClass,
);

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str) -> Box<api::ClusterQueue> {
        let mut queue = api::ClusterQueue::default();
        queue.metadata.name = Some(name.to_owned());
        Box::new(queue)
    }

    /// The names of the taken objects in their order; each with true if the object exists.
    fn taken(change: Change<Box<api::ClusterQueue>>) -> Vec<(String, bool)> {
        let known = ["c", "a", "b"].map(str::to_owned);
        let objects = objects(change, cluster_wide(known.iter()));
        objects.into_iter().map(|(name, object)| (name.1, object.is_some())).collect()
    }

    #[test]
    fn object_list_drops_missing_objects_before_adding_new_ones() {
        let row = |name: &str, is_there| (name.to_owned(), is_there);
        let listed = Change::Reset(vec![queue("d"), queue("b")]);
        assert_eq!(taken(listed), [row("a", false), row("c", false), row("d", true), row("b", true)]);
        let ended = Change::Only(vec![(String::new(), "b".to_owned())]);
        assert_eq!(taken(ended), [row("a", false), row("c", false)]);
        assert_eq!(taken(Change::Apply(queue("d"))), [row("d", true)]);
        assert_eq!(taken(Change::Delete(queue("a"))), [row("a", false)]);
    }
}
