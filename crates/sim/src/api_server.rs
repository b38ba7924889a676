//! The API server: stored objects with their versions, and the meaning of each request to them.
//!
//! Requests have the preconditions of Kubernetes' API: a patch that names a uid or a resourceVersion which is not the object's is a conflict, a
//! creation under a taken name is refused, and a patch that changes nothing makes no version. Finalizers keep an object that is deleted, and objects
//! without an owner go. A client learns of changes by the [`Revision`]s.

mod deletion;
mod patch;

use std::collections::BTreeMap;

use berth_control::write::{Kind, ObjectKey, Subresource, Write, WriteOutcome};
use berth_jobs::pods::role_hash;
use jiff::Timestamp;
use serde_json::{Value, json};

pub use patch::merge;

/// Annotation that a review gives each pod that it makes wait.
const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";
/// Writer of objects that no other writer was named for.
pub const USER: &str = "e2e-user";

/// One stored state of an object, in the order of versions.
#[derive(Clone, Debug)]
pub struct Revision {
    /// Version of the state; counts the revisions of all objects.
    pub version: u64,
    /// Key of the object.
    pub key: ObjectKey,
    /// State before, if the object was there.
    pub before: Option<Value>,
    /// New state, or the last one if the object is gone.
    pub object: Value,
    /// True if the object is gone.
    pub gone: bool,
    /// Field manager of the request.
    pub writer: &'static str,
}

/// The point in time at which objects go whose owners are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GarbageCollection {
    /// In the moment in which the last owner goes.
    AtOnce,
    /// When the collector is called.
    Later,
}

/// Stored objects, and the revisions that no watch has taken yet.
#[derive(Debug)]
pub struct ApiServer {
    objects: BTreeMap<ObjectKey, Value>,
    revisions: Vec<Revision>,
    now: Timestamp,
    version: u64,
    uids: u64,
    writer: &'static str,
    adds_to_jobs: Option<Value>,
    collection: GarbageCollection,
}

impl ApiServer {
    /// A server without objects, at that time.
    #[must_use]
    pub fn new(now: Timestamp, collection: GarbageCollection) -> Self {
        Self {
            objects: BTreeMap::new(),
            revisions: Vec::new(),
            now,
            version: 100,
            uids: 0,
            writer: USER,
            adds_to_jobs: None,
            collection,
        }
    }

    /// The key of an object; cluster-scoped objects have an empty namespace.
    #[must_use]
    pub fn key(kind: Kind, namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { kind, namespace: namespace.into(), name: name.into() }
    }

    /// Time by which the server stamps objects.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Sets the time.
    pub const fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// All objects.
    #[must_use]
    pub const fn objects(&self) -> &BTreeMap<ObjectKey, Value> {
        &self.objects
    }

    /// An object.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<&Value> {
        self.objects.get(key)
    }

    /// Version of the last revision.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// From now on requests are those of this field manager.
    pub const fn write_as(&mut self, writer: &'static str) {
        self.writer = writer;
    }

    /// Fields that a policy of the cluster adds to the spec of each Job as it is made.
    pub fn add_to_jobs(&mut self, fields: Option<Value>) {
        self.adds_to_jobs = fields;
    }

    /// The revisions since the last call.
    pub fn take_revisions(&mut self) -> Vec<Revision> {
        std::mem::take(&mut self.revisions)
    }

    /// Removes an object without a revision, so that no watch shows the removal.
    pub fn forget(&mut self, key: &ObjectKey) -> Option<Value> {
        self.objects.remove(key)
    }

    /// Stores a state that no watch shows, as another client may have written it a moment ago.
    pub fn store_unseen(&mut self, key: &ObjectKey, object: Value) {
        self.objects.insert(key.clone(), object);
    }

    /// Creates or replaces an object as a user would.
    pub fn put(&mut self, kind: Kind, object: Value) {
        self.put_as(kind, object, None);
    }

    /// Puts an object; a new object gets that uid.
    pub fn put_as(&mut self, kind: Kind, mut object: Value, given: Option<&str>) {
        let metadata = object["metadata"].as_object_mut().expect("an object has metadata");
        let namespace = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = metadata["name"].as_str().expect("an object has a name").to_owned();
        let key = Self::key(kind, &namespace, &name);
        let uid = match self.objects.get(&key) {
            Some(old) => old["metadata"]["uid"].clone(),
            None if given.is_some() => json!(given),
            None => {
                self.uids += 1;
                json!(format!("uid-{}", self.uids))
            }
        };
        metadata.insert("uid".into(), uid);
        metadata.insert("generation".into(), json!(1));
        metadata.insert("creationTimestamp".into(), json!(self.now.to_string()));
        if kind == Kind::Pod {
            review(&mut object);
        }
        self.store(&key, object);
    }

    /// Changes an object by a merge patch without preconditions.
    ///
    /// # Panics
    ///
    /// Panics if there is no such object.
    pub fn edit(&mut self, key: &ObjectKey, patch: &Value) {
        let mut object = self.objects[key].clone();
        let spec = object["spec"].clone();
        merge(&mut object, patch);
        if object["spec"] != spec {
            object["metadata"]["generation"] = json!(object["metadata"]["generation"].as_i64().unwrap_or(1) + 1);
        }
        self.store(key, object);
    }

    /// Stores a state as it is, with a new version. An object that is being deleted goes with its last finalizer.
    pub fn store(&mut self, key: &ObjectKey, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let finalizers = object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        let gone = object["metadata"]["deletionTimestamp"].is_string() && !finalizers;
        let uid = object["metadata"]["uid"].clone();
        let before = if gone { self.objects.remove(key) } else { self.objects.insert(key.clone(), object.clone()) };
        let (version, writer) = (self.version, self.writer);
        self.revisions.push(Revision { version, key: key.clone(), before, object, gone, writer });
        if gone && self.collects_at_once() && deletion::may_own(key.kind) {
            self.collect_of(&uid);
        }
    }

    fn collects_at_once(&self) -> bool {
        self.collection == GarbageCollection::AtOnce
    }

    /// Performs a write to a stored object; `None` for writes to other things than objects.
    pub fn perform(&mut self, key: &ObjectKey, write: &Write) -> Option<WriteOutcome> {
        let (Write::Apply { manager, .. } | Write::Merge { manager, .. }) = write else {
            return match write {
                Write::Create(body) => Some(self.create(key, body.value())),
                Write::Delete { uid, .. } => Some(self.delete_uid(key, uid)),
                _ => None,
            };
        };
        let writer = std::mem::replace(&mut self.writer, manager);
        let outcome = self.patch(key, write);
        self.writer = writer;
        outcome
    }

    fn create(&mut self, key: &ObjectKey, mut object: Value) -> WriteOutcome {
        if self.objects.contains_key(key) {
            return WriteOutcome::AlreadyExists;
        }
        if let Some(more) = self.adds_to_jobs.as_ref().filter(|_| key.kind == Kind::JOB) {
            merge(&mut object["spec"], more);
        }
        self.put(key.kind, object);
        self.applied()
    }

    fn applied(&self) -> WriteOutcome {
        WriteOutcome::Applied { resource_version: self.version.to_string() }
    }

    fn delete_uid(&mut self, key: &ObjectKey, uid: &str) -> WriteOutcome {
        match self.objects.get(key) {
            Some(object) if object["metadata"]["uid"] == json!(uid) => {
                self.delete(key);
                let left = self.objects.contains_key(key);
                WriteOutcome::Applied { resource_version: if left { self.version.to_string() } else { String::new() } }
            }
            _ => WriteOutcome::Gone,
        }
    }

    fn patch(&mut self, key: &ObjectKey, write: &Write) -> Option<WriteOutcome> {
        let (Write::Apply { body, .. } | Write::Merge { body, .. }) = write else { return None };
        let mut body = body.value();
        if matches!(key.kind, Kind::Service | Kind::ConfigMap) {
            self.put(key.kind, body);
            return Some(self.applied());
        }
        let Some(old) = self.objects.get(key).cloned() else { return Some(WriteOutcome::Gone) };
        for field in ["uid", "resourceVersion"] {
            let wanted = &body["metadata"][field];
            if wanted.is_string() && wanted != &old["metadata"][field] {
                return Some(WriteOutcome::Conflict);
            }
        }
        let mut new = old.clone();
        match write {
            Write::Apply { subresource: Subresource::None, .. } => patch::apply_counts(&mut new, &body),
            Write::Apply { manager, .. } => patch::apply_status(&mut new, &body, manager),
            Write::Merge { subresource: Subresource::Status, .. } => merge(&mut new["status"], &body["status"]),
            _ => {
                if let Some(metadata) = body["metadata"].as_object_mut() {
                    metadata.remove("resourceVersion");
                }
                body.as_object_mut().expect("a patch is an object").remove("status");
                merge(&mut new, &body);
                if new["spec"] != old["spec"] {
                    let generation = old["metadata"]["generation"].as_i64().unwrap_or(1);
                    new["metadata"]["generation"] = json!(generation + 1);
                }
            }
        }
        if new == old {
            let version = old["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            return Some(WriteOutcome::Applied { resource_version: version.to_owned() });
        }
        self.store(key, new);
        Some(self.applied())
    }
}

/// Gives a pod with a gate the annotation that the review gives it.
fn review(pod: &mut Value) {
    let gates = pod["spec"]["schedulingGates"].as_array();
    let waits = gates.is_some_and(|gates| gates.iter().any(|gate| gate["name"] == "kueue.x-k8s.io/admission"));
    if waits && pod["metadata"]["annotations"][ROLE_HASH].is_null() {
        let spec = serde_json::from_value(pod["spec"].clone()).expect("a pod has the spec of a pod");
        pod["metadata"]["annotations"][ROLE_HASH] = json!(role_hash(&spec));
    }
}
