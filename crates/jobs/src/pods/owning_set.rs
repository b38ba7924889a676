//! The StatefulSet through which a pod is managed.

use super::names::STATEFUL_SET_FRAMEWORK;
use crate::metadata::{annotation, controller, queue_name, workload_priority_class};
use crate::names::workload_name;
use berth_api::labels;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeMap;

/// Settings of a StatefulSet that apply to each of its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwningSet {
    /// The StatefulSet's `metadata.uid`.
    pub uid: String,
    /// LocalQueue of the StatefulSet.
    pub queue_name: Option<String>,
    /// WorkloadPriorityClass of the StatefulSet.
    pub priority_class: Option<String>,
    /// Wanted number of the StatefulSet's replicas.
    pub replicas: i32,
}

impl OwningSet {
    /// The settings of a StatefulSet.
    #[must_use]
    pub fn of(set: &StatefulSet) -> Self {
        Self {
            uid: set.metadata.uid.clone().unwrap_or_default(),
            queue_name: queue_name(&set.metadata).map(str::to_owned),
            priority_class: workload_priority_class(&set.metadata).map(str::to_owned),
            replicas: replicas(set),
        }
    }

    /// Labels and annotations, other than the name of the pod group, that each pod gets from its StatefulSet.
    pub(super) fn labels_and_annotations(&self) -> [BTreeMap<&'static str, String>; 2] {
        let queue = self.queue_name.clone().map(|queue| (labels::QUEUE_NAME, queue));
        let class = self.priority_class.clone().map(|class| (labels::PRIORITY_CLASS, class));
        // Berth does not read the annotation with the pod group's total count from pods of a StatefulSet, but Kueue needs the annotation if Kueue takes over
        // again.
        let total = Some(self.replicas).filter(|replicas| *replicas > 0);
        let total = total.map(|total| (labels::POD_GROUP_TOTAL_COUNT, total.to_string()));
        [queue.into_iter().chain(class).collect(), total.into_iter().collect()]
    }
}

/// Name of the pod group of a StatefulSet's pods, and of the group's Workload.
#[must_use]
pub fn group_of_stateful_set(name: &str, uid: &str) -> String {
    workload_name("StatefulSet", "apps", name, uid)
}

/// The owner reference of a pod to the StatefulSet through which the pod is managed.
#[must_use]
pub fn controlling_set(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let waits = annotation(metadata, labels::POD_SUSPENDING_PARENT) == Some(STATEFUL_SET_FRAMEWORK);
    controller(metadata).filter(|owner| waits && is_set(owner))
}

fn is_set(owner: &OwnerReference) -> bool {
    owner.kind == "StatefulSet" && owner.api_version.starts_with("apps/")
}

/// Wanted number of a StatefulSet's replicas.
pub(super) fn replicas(set: &StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}
