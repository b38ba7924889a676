//! The simulated garbage collector: objects are deleted after their last owner, or before it if the deletion requests that.

use berth_control::write::ObjectKey;
use serde_json::{Value, json};

use crate::api_server::{ApiServer, FOREGROUND, ORPHAN, is_deleting};

/// The garbage collector, with the API server that it writes to.
#[derive(Debug)]
pub struct GarbageCollector<'a>(pub &'a mut ApiServer);

impl GarbageCollector<'_> {
    /// Runs the garbage collector once for each owned object and for each owner that is being deleted; true if the collector wrote.
    pub fn look(&mut self) -> bool {
        self.finish(ORPHAN) | self.finish(FOREGROUND) | self.collect()
    }

    /// Deletes objects whose owners are all gone.
    fn collect(&mut self) -> bool {
        let left = self.0.without_owners();
        left.iter().for_each(|key| self.0.delete(key));
        !left.is_empty()
    }

    /// Deletes or releases the objects of owners whose deletion has the finalizer `way`, and then removes that finalizer from the owners.
    fn finish(&mut self, way: &str) -> bool {
        let has_finalizer = |object: &Value| {
            let list = object["metadata"]["finalizers"].as_array();
            list.is_some_and(|list| list.iter().any(|one| one == way))
        };
        let owners = self.0.deleting().filter(|(_, object)| has_finalizer(object));
        let owners: Vec<ObjectKey> = owners.map(|(key, _)| key.clone()).collect();
        let mut moved = false;
        for key in owners {
            let uid = self.0.objects()[&key]["metadata"]["uid"].clone();
            let owned = self.0.owned_by(&uid);
            for other in &owned {
                if way == ORPHAN {
                    self.let_go(other, &uid);
                } else if !is_deleting(&self.0.objects()[other]) {
                    self.0.delete(other);
                } else {
                    continue;
                }
                moved = true;
            }
            if !owned.iter().any(|other| self.blocks(other, &uid, way)) {
                let mut owner = self.0.objects()[&key].clone();
                if let Some(list) = owner["metadata"]["finalizers"].as_array_mut() {
                    list.retain(|one| one != way);
                }
                self.0.store(&key, owner);
                moved = true;
            }
        }
        moved
    }

    /// Whether an owned object keeps an owner that is deleted with the finalizer `way`. In the foreground, an owner waits only for objects whose owner
    /// reference has `blockOwnerDeletion`, so that an object that names itself as its owner does not wait for itself.
    fn blocks(&self, owned: &ObjectKey, uid: &Value, way: &str) -> bool {
        let owners = self.0.get(owned).and_then(|object| object["metadata"]["ownerReferences"].as_array());
        let mut owners = owners.into_iter().flatten().filter(|owner| owner["uid"] == *uid);
        owners.any(|owner| way == ORPHAN || owner["blockOwnerDeletion"] == json!(true))
    }

    fn let_go(&mut self, key: &ObjectKey, uid: &Value) {
        let mut object = self.0.objects()[key].clone();
        if let Some(list) = object["metadata"]["ownerReferences"].as_array_mut() {
            list.retain(|owner| owner["uid"] != *uid);
            if list.is_empty()
                && let Some(metadata) = object["metadata"].as_object_mut()
            {
                // The API server drops an empty list.
                metadata.remove("ownerReferences");
            }
        }
        self.0.store(key, object);
    }
}
