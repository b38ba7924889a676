//! Indexes of the stored objects: their uids, and the objects of each owner.

use std::collections::{BTreeMap, BTreeSet};

use berth_control::write::ObjectKey;
use serde_json::Value;

use super::is_deleting;

/// The indexes, which follow each change of an object.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Number of stored objects by uid.
    uids: BTreeMap<String, usize>,
    /// Objects with an owner reference to a uid, by the uid.
    owned: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// Objects that are being deleted.
    deleting: BTreeSet<ObjectKey>,
}

fn uid(object: &Value) -> Option<&str> {
    object["metadata"]["uid"].as_str()
}

fn owners(object: &Value) -> impl Iterator<Item = &str> {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().filter_map(|owner| owner["uid"].as_str())
}

impl Index {
    /// Takes a stored object into the indexes.
    pub(super) fn add(&mut self, key: &ObjectKey, object: &Value) {
        if let Some(uid) = uid(object) {
            *self.uids.entry(uid.to_owned()).or_default() += 1;
        }
        if is_deleting(object) {
            self.deleting.insert(key.clone());
        }
        for owner in owners(object) {
            self.owned.entry(owner.to_owned()).or_default().insert(key.clone());
        }
    }

    /// Takes the older state of an object out of the indexes.
    pub(super) fn remove(&mut self, key: &ObjectKey, object: &Value) {
        if let Some(uid) = uid(object)
            && let Some(number) = self.uids.get_mut(uid)
        {
            *number -= 1;
            if *number == 0 {
                self.uids.remove(uid);
            }
        }
        self.deleting.remove(key);
        for owner in owners(object) {
            if let Some(keys) = self.owned.get_mut(owner) {
                keys.remove(key);
                if keys.is_empty() {
                    self.owned.remove(owner);
                }
            }
        }
    }

    /// Objects that are being deleted, in the order of their keys.
    pub(super) fn deleting(&self) -> impl Iterator<Item = &ObjectKey> {
        self.deleting.iter()
    }

    /// Whether an object with a uid is stored.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.uids.contains_key(uid)
    }

    /// Objects with an owner reference to a uid, in the order of their keys.
    pub(super) fn owned_by(&self, uid: &str) -> impl Iterator<Item = &ObjectKey> {
        self.owned.get(uid).into_iter().flatten()
    }

    /// Objects with an owner reference to a uid that no stored object has.
    pub(super) fn without_owner(&self) -> impl Iterator<Item = &ObjectKey> {
        self.owned.iter().filter(|(uid, _)| !self.has(uid)).flat_map(|(_, keys)| keys)
    }
}
