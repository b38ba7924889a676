//! The parts of a pod template that the start of a job changes and a stop restores.

use crate::pod_set::BATCH_CONTROLLER_LABELS;
use berth_api::json::to_value;
use berth_api::{PodSet, labels};
use k8s_openapi::api::core::v1::{Affinity, PodSchedulingGate, PodTemplateSpec, Toleration};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The parts of a suspended job's template that the API server lets change, and the number of pods. Control keeps only the `TemplateParts` of a Workload's pod
/// sets in memory, in order to restore the job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateParts {
    /// Labels of the template, without those of the Job controller.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the template.
    pub annotations: BTreeMap<String, String>,
    /// The template's `nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// The template's `tolerations`.
    pub tolerations: Vec<Toleration>,
    /// The template's `affinity`, of which only the node affinity may change.
    pub affinity: Option<Affinity>,
    /// Names in the template's `schedulingGates`.
    pub scheduling_gates: Vec<String>,
    /// Number of pods.
    pub count: i32,
    /// Smallest number of pods that was accepted when the Workload was made.
    pub min_count: Option<i32>,
}

impl TemplateParts {
    /// JSON pointers, within a pod template, of the parts that the start of a job changes.
    pub(crate) const FIELDS: [&str; 6] = [
        "/metadata/labels",
        "/metadata/annotations",
        "/spec/nodeSelector",
        "/spec/tolerations",
        "/spec/affinity",
        "/spec/schedulingGates",
    ];

    /// The parts of a pod template that the start of a job changes, with `count` as the number of pods.
    #[must_use]
    pub fn of(template: &PodTemplateSpec, count: i32) -> Self {
        let metadata = template.metadata.as_ref();
        let spec = template.spec.as_ref();
        let mut labels = metadata.and_then(|m| m.labels.clone()).unwrap_or_default();
        labels.retain(|key, _| !BATCH_CONTROLLER_LABELS.contains(&key.as_str()));
        Self {
            labels,
            annotations: metadata.and_then(|m| m.annotations.clone()).unwrap_or_default(),
            node_selector: spec.and_then(|s| s.node_selector.clone()).unwrap_or_default(),
            tolerations: spec.and_then(|s| s.tolerations.clone()).unwrap_or_default(),
            affinity: spec.and_then(|s| s.affinity.clone()),
            scheduling_gates: spec
                .and_then(|s| s.scheduling_gates.as_ref())
                .map(|gates| gates.iter().map(|g| g.name.clone()).collect())
                .unwrap_or_default(),
            count,
            min_count: None,
        }
    }

    /// The template parts of a Workload's pod set.
    #[must_use]
    pub fn of_pod_set(set: &PodSet) -> Self {
        Self { min_count: set.min_count, ..Self::of(&set.template, set.effective_count()) }
    }

    /// Whether the template has the marks that the start of a job writes.
    #[must_use]
    pub fn is_placed(&self) -> bool {
        self.labels.contains_key(labels::POD_SET) || self.annotations.contains_key(labels::WORKLOAD)
    }

    /// The parts as JSON in the form of a pod template: labels, annotations and node selector always, and the other fields if they are not empty. The merge
    /// patch between two such values removes exactly the keys that only the first has, and does not change keys that neither has, such as the Job controller's
    /// labels.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let gates: Vec<_> = self.scheduling_gates.iter().map(|name| PodSchedulingGate { name: name.clone() }).collect();
        let mut spec = Map::new();
        spec.insert("nodeSelector".to_owned(), json!(self.node_selector));
        put(&mut spec, "tolerations", &self.tolerations, self.tolerations.is_empty());
        put(&mut spec, "affinity", &self.affinity, self.affinity.is_none());
        put(&mut spec, "schedulingGates", &gates, gates.is_empty());
        json!({"metadata": {"labels": self.labels, "annotations": self.annotations}, "spec": spec})
    }
}

/// Whether a template has the marks that the start of a job writes.
pub(crate) fn is_placed(template: &PodTemplateSpec) -> bool {
    let Some(metadata) = &template.metadata else { return false };
    let has = |map: &Option<BTreeMap<String, String>>, key| map.as_ref().is_some_and(|map| map.contains_key(key));
    has(&metadata.labels, labels::POD_SET) || has(&metadata.annotations, labels::WORKLOAD)
}

fn put<T: Serialize>(object: &mut Map<String, Value>, key: &str, value: &T, empty: bool) {
    if !empty {
        object.insert(key.to_owned(), to_value(value));
    }
}
