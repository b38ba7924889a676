//! Patches of a pod: its start, the reason for its deletion, and the removal of Berth's finalizer.

use super::owning_set::OwningSet;
use super::rules::PodDefaults;
use super::state::{PodState, template};
use crate::object_apply::{Identity, ObjectApply};
use crate::object_patch::ObjectPatch;
use crate::patch::merge_diff;
use crate::placement::{Placement, PlacementError};
use crate::template::TemplateParts;
use berth_api::conditions::types;
use berth_api::labels;
use serde_json::json;
use std::iter;

/// The body of a server-side apply to the status of a pod, given by namespace, name and uid, that adds the reason for its deletion.
#[must_use]
pub fn condemnation((namespace, name, uid): (&str, &str, &str), why: (&str, &str), at: &str) -> ObjectApply {
    let pod = Identity { namespace, name, uid, resource_version: "" };
    ObjectApply::of_any_version(("v1", "Pod"), &pod).status(json!({"conditions": [{
        "type": types::TERMINATION_TARGET, "status": "True", "reason": why.0, "message": why.1, "lastTransitionTime": at,
    }]}))
}

impl PodState {
    /// Patch that starts a pending pod: the pod gets its placement and loses its gate; `None` if the pod is not pending. The patch also removes the gate that
    /// Kueue adds to every pod in case the admission names a topology, because no other client would remove it. A pod of a StatefulSet gets the current
    /// settings of its `set`, which may not have been known at the pod's creation.
    ///
    /// # Errors
    /// The pod can never start as it was admitted; see [`PlacementError`].
    pub fn start_patch(
        &self,
        placements: &[Placement],
        set: Option<&OwningSet>,
    ) -> Result<Option<ObjectPatch>, PlacementError> {
        let Some(pod) = self.decode().filter(|_| self.gated || self.placing) else { return Ok(None) };
        let named = placements.iter().find(|placement| placement.pod_set == self.role());
        let placement = named.ok_or(PlacementError::PodSets { given: placements.len(), wanted: 1 })?;
        let have = TemplateParts::of(&template(&pod), 1);
        let mut want = placement.apply(&have)?;
        if let Some(set) = set.filter(|set| self.is_controlled_by(set)) {
            let [own_labels, noted] = set.labels_and_annotations();
            want.labels.extend(own_labels.into_iter().map(|(key, value)| (key.to_owned(), value)));
            want.annotations.extend(noted.into_iter().map(|(key, value)| (key.to_owned(), value)));
        }
        want.scheduling_gates.retain(|gate| ![labels::ADMISSION_GATE, labels::TOPOLOGY_GATE].contains(&gate.as_str()));
        let patch = self.patch();
        Ok(Some(match merge_diff(&have.to_value(), &want.to_value()) {
            Some(differences) => patch.differences(differences),
            None => patch,
        }))
    }

    /// An empty patch of the pod, with the pod's uid and its last observed resourceVersion as preconditions.
    pub(super) fn patch(&self) -> ObjectPatch {
        ObjectPatch::of_version(&self.uid, self.version.to_string())
    }

    fn is_controlled_by(&self, set: &OwningSet) -> bool {
        self.is_of_set() && self.owner.as_ref().is_some_and(|owner| *owner.uid == *set.uid)
    }

    /// Patch that gives a waiting pod a new resourceVersion, so that the API server refuses every start made from the current version.
    #[must_use]
    pub fn withdrawal(&self) -> ObjectPatch {
        self.patch().annotation(labels::START_WITHDRAWN, Some(&self.version.to_string()))
    }

    /// Patch that marks a pod without a review as managed. The pod gets the defaults of a review, except the gate, which only a new pod can get, and the hash
    /// of its role, which marks reviewed pods.
    #[must_use]
    pub fn mark_patch(&self, mut defaults: PodDefaults) -> ObjectPatch {
        defaults.labels.insert(labels::MANAGED, "true".to_owned());
        if !self.gated {
            defaults.annotations.remove(labels::ROLE_HASH);
        }
        let patch = self.patch().labels(defaults.labels).annotations(defaults.annotations);
        if !defaults.finalizer {
            return patch;
        }
        patch.finalizers(self.others.iter().map(|name| &**name).chain(iter::once(labels::MANAGED)))
    }

    /// Patch for a running pod without a review that was admitted: the pod gets the labels and annotations of a start. The patch changes no node selector,
    /// because the node of a running pod cannot change any more.
    #[must_use]
    pub fn admitted_patch(&self, placements: &[Placement]) -> Option<ObjectPatch> {
        let placement = placements.iter().find(|placement| placement.pod_set == self.role())?;
        let mut own_labels = placement.labels.clone();
        own_labels.insert(labels::POD_SET.to_owned(), self.role().to_owned());
        Some(self.patch().labels(own_labels).annotations(placement.annotations.clone()))
    }

    /// Patch that removes Berth's finalizer from a pod.
    #[must_use]
    pub fn release_patch(&self) -> ObjectPatch {
        self.patch().finalizers(&self.others)
    }
}
