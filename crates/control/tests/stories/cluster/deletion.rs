//! How objects go: finalizers keep them, and what they own goes with them.

use berth_control::write::{Kind, ObjectKey};
use serde_json::{Value, json};

use super::Cluster;

impl Cluster {
    pub(super) fn collect_garbage(&mut self, owner: &Value) {
        let owned: Vec<ObjectKey> = self
            .objects
            .iter()
            .filter(|(_, object)| {
                let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
                let there = |uid: &Value| self.objects.values().any(|object| &object["metadata"]["uid"] == uid);
                owners.iter().any(|one| &one["uid"] == owner) && !owners.iter().any(|one| there(&one["uid"]))
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in owned {
            self.delete(&key);
        }
    }

    pub fn delete(&mut self, key: &ObjectKey) {
        self.delete_as(key, false);
    }

    pub(super) fn delete_as(&mut self, key: &ObjectKey, owned_first: bool) {
        let Some(mut object) = self.objects.get(key).cloned() else { return };
        let kept = object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        object["metadata"]["deletionTimestamp"] = json!(self.now.to_string());
        if owned_first && kept {
            object["metadata"]["finalizers"].as_array_mut().unwrap().push(json!("foregroundDeletion"));
            self.store(key, object.clone());
            let left =
                object["metadata"]["uid"].as_str().is_some_and(|uid| self.pods_left.iter().any(|left| left == uid));
            if key.kind == Kind::JOB && !left && object["status"]["active"].is_number() {
                object["status"]["active"] = json!(0);
                object["status"]["ready"] = json!(0);
            }
            // The garbage collector takes it away again when the pods have gone: what others set is left.
            object["metadata"]["finalizers"].as_array_mut().unwrap().pop();
        }
        self.store(key, object);
    }
}
