//! The simulated API server: stored objects with their versions, and the effect of each request on the objects.
//!
//! Requests have the preconditions of Kubernetes' API: a patch that names another uid or resourceVersion than the object's is a conflict, a creation under a
//! taken name is refused, and a patch that changes nothing creates no version. Finalizers keep an object that is deleted, and the garbage collection deletes
//! objects whose owners are gone. A client observes changes through the [`Revision`]s.

mod deletion;
mod index;
mod patch;
mod touched;

use std::collections::BTreeMap;

use berth_control::write::{Kind, ObjectKey, Subresource, Write, WriteOutcome};
use berth_jobs::pods::role_hash;
use jiff::Timestamp;
use serde_json::{Value, json};

use index::Index;
use touched::Touched;

pub use deletion::{FOREGROUND, ORPHAN};
pub use patch::merge;

/// Annotation that a webhook review adds to each pod with Berth's scheduling gate.
const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";
/// Field manager of a request for which no other field manager was named.
pub const USER: &str = "e2e-user";

/// One stored state of an object; revisions are ordered by their versions.
#[derive(Clone, Debug)]
pub struct Revision {
    /// Version of the state; versions count the revisions of all objects.
    pub version: u64,
    /// Key of the object that the revision is about.
    pub key: ObjectKey,
    /// Previous state of the object, if the object existed before.
    pub before: Option<Value>,
    /// New state of the object, or the last state if the object is gone.
    pub object: Value,
    /// True if the object is gone after the revision.
    pub gone: bool,
    /// Field manager of the request that caused the revision.
    pub writer: &'static str,
}

/// The time at which objects are deleted whose owners are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GarbageCollection {
    /// Objects are deleted immediately, when their last owner is gone.
    AtOnce,
    /// Objects are deleted when the garbage collector is called.
    Later,
}

/// The simulated API server: stored objects, and the revisions that no watch has taken yet.
#[derive(Debug)]
pub struct ApiServer {
    objects: BTreeMap<ObjectKey, Value>,
    index: Index,
    touched: Touched,
    revisions: Vec<Revision>,
    now: Timestamp,
    version: u64,
    uids: u64,
    writer: &'static str,
    adds_to_jobs: Option<Value>,
    collection: GarbageCollection,
}

impl ApiServer {
    /// A server without objects, at the given time.
    #[must_use]
    pub fn new(now: Timestamp, collection: GarbageCollection) -> Self {
        Self {
            objects: BTreeMap::new(),
            index: Index::default(),
            touched: Touched::default(),
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

    /// The server's time, which becomes part of new objects.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Sets the server's time.
    pub const fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// All stored objects.
    #[must_use]
    pub const fn objects(&self) -> &BTreeMap<ObjectKey, Value> {
        &self.objects
    }

    /// A stored object.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<&Value> {
        self.objects.get(key)
    }

    /// Version of the last revision.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Sets the field manager of all later requests.
    pub const fn write_as(&mut self, writer: &'static str) {
        self.writer = writer;
    }

    /// Sets the fields that a policy of the cluster adds to the spec of each new Job.
    pub fn add_to_jobs(&mut self, fields: Option<Value>) {
        self.adds_to_jobs = fields;
    }

    /// The revisions since the last call.
    pub fn take_revisions(&mut self) -> Vec<Revision> {
        std::mem::take(&mut self.revisions)
    }

    /// Removes an object without a revision, so that no watch shows the removal.
    pub fn forget(&mut self, key: &ObjectKey) -> Option<Value> {
        self.replace(key, None)
    }

    /// Stores a state that no watch shows, as another client may have written the state a moment ago.
    pub fn store_unseen(&mut self, key: &ObjectKey, object: Value) {
        self.replace(key, Some(object));
    }

    /// Stores or removes an object, and updates the indexes. Returns the older state.
    fn replace(&mut self, key: &ObjectKey, object: Option<Value>) -> Option<Value> {
        if let Some(old) = self.objects.get(key) {
            self.index.remove(key, old);
            self.touched.note(key, old);
        }
        let Some(object) = object else {
            let old = self.objects.remove(key);
            let uid = old.as_ref().and_then(|old| old["metadata"]["uid"].as_str()).unwrap_or_default();
            self.touched.note_left(self.index.owned_by(uid));
            return old;
        };
        self.index.add(key, &object);
        self.touched.note(key, &object);
        self.objects.insert(key.clone(), object)
    }

    /// Creates or replaces an object as a user would.
    pub fn put(&mut self, kind: Kind, object: Value) {
        self.put_as(kind, object, None);
    }

    /// Creates or replaces an object as a user would; a new object gets the given uid.
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
    /// Panics if no object has the key.
    pub fn edit(&mut self, key: &ObjectKey, patch: &Value) {
        let mut object = self.objects[key].clone();
        let spec = object["spec"].clone();
        merge(&mut object, patch);
        if object["spec"] != spec {
            object["metadata"]["generation"] = json!(object["metadata"]["generation"].as_i64().unwrap_or(1) + 1);
        }
        self.store(key, object);
    }

    /// Stores a state unchanged, with a new version. An object that is being deleted is removed together with its last finalizer.
    pub fn store(&mut self, key: &ObjectKey, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let finalizers = object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        let gone = is_deleting(&object) && !finalizers;
        let uid = object["metadata"]["uid"].clone();
        let before = self.replace(key, (!gone).then(|| object.clone()));
        let (version, writer) = (self.version, self.writer);
        self.revisions.push(Revision { version, key: key.clone(), before, object, gone, writer });
        if gone && self.collects_at_once() && deletion::may_own(key.kind) {
            self.collect_of(&uid);
        }
    }

    fn collects_at_once(&self) -> bool {
        self.collection == GarbageCollection::AtOnce
    }

    /// Performs a write to a stored object; `None` for writes that have no stored object.
    pub fn perform(&mut self, key: &ObjectKey, write: &Write) -> Option<WriteOutcome> {
        let (Write::Apply { manager, .. } | Write::Merge { manager, .. }) = write else {
            return match write {
                Write::Create(body) => Some(self.create(key, body.value().expect("a JSON body"))),
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
        let mut body = body.value().expect("a JSON body");
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

/// Whether an object is being deleted.
#[must_use]
pub fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Adds the annotation of a webhook review to a pod with Berth's scheduling gate.
fn review(pod: &mut Value) {
    let gates = pod["spec"]["schedulingGates"].as_array();
    let waits = gates.is_some_and(|gates| gates.iter().any(|gate| gate["name"] == "kueue.x-k8s.io/admission"));
    if waits && pod["metadata"]["annotations"][ROLE_HASH].is_null() {
        let spec = serde_json::from_value(pod["spec"].clone()).expect("a pod has the spec of a pod");
        pod["metadata"]["annotations"][ROLE_HASH] = json!(role_hash(&spec));
    }
}
