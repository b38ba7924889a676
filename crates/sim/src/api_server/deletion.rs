//! Deletion of objects in the simulated API server: finalizers keep an object, and owned objects are deleted after their owner.

use std::collections::BTreeSet;

use berth_control::write::{Kind, ObjectKey};
use serde_json::{Value, json};

use super::{ApiServer, is_deleting};

/// Finalizer of an owner that is deleted after the objects that it owns (foreground deletion).
pub const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an owner that is deleted without the objects that it owns (orphaning deletion).
pub const ORPHAN: &str = "orphan";

/// Whether objects of a kind own other objects.
pub(super) fn may_own(kind: Kind) -> bool {
    let owners = [Kind::JOB, Kind::JOB_SET, Kind::TrainingJob, Kind::Pod, Kind::StatefulSet, Kind::Workload];
    owners.contains(&kind) || kind == Kind::ProvisioningRequest
}

impl ApiServer {
    /// Deletes an object; objects that it owns are deleted after it.
    pub fn delete(&mut self, key: &ObjectKey) {
        let Some(mut object) = self.get(key).cloned() else { return };
        if object["metadata"]["deletionTimestamp"].is_null() || self.collects_at_once() {
            object["metadata"]["deletionTimestamp"] = json!(self.now().to_string());
        }
        if let Some(grace) = object["spec"]["terminationGracePeriodSeconds"].as_i64() {
            object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        }
        self.store(key, object);
    }

    /// Deletes an object after the objects that it owns. A server that collects garbage at once deletes all of them together.
    pub fn delete_owned_first(&mut self, key: &ObjectKey) {
        if self.collects_at_once() {
            return self.delete(key);
        }
        self.begin_deletion(key, FOREGROUND);
    }

    /// Marks an object as being deleted, with the finalizer that says what becomes of the objects that it owns. The garbage collector does the rest.
    pub fn begin_deletion(&mut self, key: &ObjectKey, finalizer: &str) {
        let Some(mut object) = self.get(key).cloned() else { return };
        let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        if !finalizers.iter().any(|one| one == finalizer) {
            finalizers.push(json!(finalizer));
        }
        object["metadata"]["finalizers"] = Value::Array(finalizers);
        object["metadata"]["deletionTimestamp"] = json!(self.now().to_string());
        self.store(key, object);
    }

    /// Whether an object with a uid is stored.
    #[must_use]
    pub fn has_uid(&self, uid: &Value) -> bool {
        uid.as_str().is_some_and(|uid| self.index.has(uid))
    }

    /// Objects that are being deleted.
    pub fn deleting(&self) -> impl Iterator<Item = (&ObjectKey, &serde_json::Value)> {
        self.index.deleting().filter_map(|key| Some((key, self.get(key)?)))
    }

    /// Objects with an owner reference to a uid.
    #[must_use]
    pub fn owned_by(&self, uid: &Value) -> Vec<ObjectKey> {
        uid.as_str().into_iter().flat_map(|uid| self.index.owned_by(uid)).cloned().collect()
    }

    /// Whether an owner of an object is stored.
    fn has_owner(&self, object: &Value) -> bool {
        let owners = object["metadata"]["ownerReferences"].as_array();
        owners.into_iter().flatten().any(|owner| self.has_uid(&owner["uid"]))
    }

    /// Objects that are not being deleted and whose owners are all gone.
    #[must_use]
    pub fn without_owners(&self) -> Vec<ObjectKey> {
        let is_left = |object: &Value| !is_deleting(object) && !self.has_owner(object);
        let keys: BTreeSet<&ObjectKey> = self.index.without_owner().collect();
        keys.into_iter().filter(|key| self.get(key).is_some_and(is_left)).cloned().collect()
    }

    /// Deletes the objects of a gone owner that have no other owner.
    pub(super) fn collect_of(&mut self, owner: &Value) {
        for key in self.owned_by(owner) {
            if !self.get(&key).is_some_and(|object| self.has_owner(object)) {
                self.delete(&key);
            }
        }
    }
}
