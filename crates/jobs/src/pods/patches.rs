//! Patches of a pod: its start, the reason for its deletion, and the removal of Berth's finalizer.

use super::owning_set::OwningSet;
use super::rules::PodDefaults;
use super::state::{PodState, template};
use crate::patch::merge_diff;
use crate::placement::{Placement, PlacementError};
use crate::template::TemplateParts;
use berth_api::conditions::types;
use berth_api::labels;
use serde_json::{Value, json};
use std::iter;

/// The body of a server-side apply to the status of a pod, given by namespace, name and uid, that adds the reason for its deletion.
#[must_use]
pub fn condemnation((namespace, name, uid): (&str, &str, &str), why: (&str, &str), at: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "uid": uid},
        "status": {"conditions": [{
            "type": types::TERMINATION_TARGET, "status": "True", "reason": why.0, "message": why.1, "lastTransitionTime": at,
        }]},
    })
}

impl PodState {
    /// Patch that starts a pending pod: the pod gets its placement and loses its gate. `None` if the pod is not pending. The patch also removes the gate that
    /// Kueue adds to every pod in case the admission names a topology, because no other client would remove it. A pod of a StatefulSet gets the current
    /// settings of its `set`, which may not have been known at the pod's creation.
    ///
    /// # Errors
    /// The pod can never start as it was admitted; see [`PlacementError`].
    pub fn start_patch(
        &self,
        placements: &[Placement],
        set: Option<&OwningSet>,
    ) -> Result<Option<Value>, PlacementError> {
        let Some(pod) = self.whole().filter(|_| self.gated || self.placing) else { return Ok(None) };
        let named = placements.iter().find(|placement| placement.pod_set == self.role());
        let placement = named.ok_or(PlacementError::PodSets { given: placements.len(), wanted: 1 })?;
        let have = TemplateParts::of(&template(&pod), 1);
        let mut want = placement.apply(&have)?;
        if let Some(set) = set.filter(|set| self.is_controlled_by(set)) {
            let [told, noted] = set.tells();
            want.labels.extend(told.into_iter().map(|(key, value)| (key.to_owned(), value)));
            want.annotations.extend(noted.into_iter().map(|(key, value)| (key.to_owned(), value)));
        }
        want.scheduling_gates.retain(|gate| ![labels::ADMISSION_GATE, labels::TOPOLOGY_GATE].contains(&gate.as_str()));
        let mut patch = merge_diff(&have.to_value(), &want.to_value()).unwrap_or_else(|| json!({}));
        if let Some(fields) = patch.as_object_mut() {
            let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert("uid".to_owned(), json!(self.uid));
                metadata.insert("resourceVersion".to_owned(), json!(self.version.to_string()));
            }
        }
        Ok(Some(patch))
    }

    fn is_controlled_by(&self, set: &OwningSet) -> bool {
        self.is_of_set() && self.owner.as_ref().is_some_and(|owner| *owner.uid == *set.uid)
    }

    /// Patch that gives a waiting pod a new resourceVersion, so that the API server refuses every start made from the current version.
    #[must_use]
    pub fn withdrawal(&self) -> Value {
        let version = self.version.to_string();
        json!({"metadata": {
            "uid": self.uid, "resourceVersion": version, "annotations": {labels::START_WITHDRAWN: version},
        }})
    }

    /// Patch that marks a pod without a review as managed. The pod gets the defaults of a review, except the gate, which only a new pod can get, and the hash
    /// of its role, which marks reviewed pods.
    #[must_use]
    pub fn mark_patch(&self, mut defaults: PodDefaults) -> Value {
        defaults.labels.insert(labels::MANAGED, "true".to_owned());
        if !self.gated {
            defaults.annotations.remove(labels::ROLE_HASH);
        }
        let mut metadata = json!({
            "uid": self.uid, "resourceVersion": self.version.to_string(),
            "labels": defaults.labels, "annotations": defaults.annotations,
        });
        if defaults.finalizer {
            let own = iter::once(labels::MANAGED);
            let all: Vec<&str> = self.others.iter().map(|name| &**name).chain(own).collect();
            if let Some(fields) = metadata.as_object_mut() {
                fields.insert("finalizers".to_owned(), json!(all));
            }
        }
        json!({ "metadata": metadata })
    }

    /// Patch for a running pod without a review that was admitted: the pod gets the labels and annotations of a start. The node of a running pod cannot change
    /// any more.
    #[must_use]
    pub fn admitted_patch(&self, placements: &[Placement]) -> Option<Value> {
        let placement = placements.iter().find(|placement| placement.pod_set == self.role())?;
        let mut told = placement.labels.clone();
        told.insert(labels::POD_SET.to_owned(), self.role().to_owned());
        Some(json!({"metadata": {
            "uid": self.uid, "resourceVersion": self.version.to_string(),
            "labels": told, "annotations": placement.annotations,
        }}))
    }

    /// Patch that removes Berth's finalizer from a pod.
    #[must_use]
    pub fn release_patch(&self) -> Value {
        json!({"metadata": {
            "uid": self.uid, "resourceVersion": self.version.to_string(), "finalizers": self.others,
        }})
    }
}
