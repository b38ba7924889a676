//! Objects of the output, and their making of documents: the fields that only a server writes are left out, and labels are added.

use crate::decide::manifests::{Manifest, text};
use serde_json::{Map, Value, json};

/// API group of Volcano's jobs.
pub(super) const BATCH: &str = "batch.volcano.sh";
/// Kinds of the output, in the order in which they are written.
const ORDER: [&str; 9] = [
    "ResourceFlavor",
    "WorkloadPriorityClass",
    "Cohort",
    "ClusterQueue",
    "QueuePolicy",
    "LocalQueue",
    "CronJob",
    "Job",
    "Pod",
];
/// Metadata that only a server writes.
const OF_SERVER: [&str; 6] = ["creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"];
/// Annotation in which kubectl keeps the applied manifest.
pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An object of the output, with the document that it was made of.
#[derive(Debug)]
pub(super) struct Made<'m> {
    pub(super) object: Value,
    pub(super) source: Option<&'m Manifest>,
}

/// Key by which the objects of the output are ordered: the rank of the object's kind, its namespace and its name.
pub(super) type OutputKey = (usize, String, String);

/// The key by which an object of the output is ordered.
pub(super) fn output_key(object: &Value) -> OutputKey {
    let kind = text(object, "/kind");
    let rank = ORDER.iter().position(|other| *other == kind).unwrap_or(ORDER.len());
    (rank, text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

/// The object as its author would write it, without its status and without the metadata that only an API server writes.
pub(super) fn authored(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in OF_SERVER {
            metadata.remove(field);
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
        if metadata.get("annotations").and_then(Value::as_object).is_some_and(Map::is_empty) {
            metadata.remove("annotations");
        }
    }
    object
}

/// The object as its author would write it, with `namespace` as its namespace.
pub(super) fn placed(object: &Value, namespace: &str) -> Value {
    let mut object = authored(object);
    put(&mut object, &["metadata"], "namespace", namespace);
    object
}

/// Writes a text into the map at the path `way` of an object; maps that the path needs and the object lacks are made. Returns false if a field on the path
/// `way` is no map, so that the text is not written.
pub(super) fn put(object: &mut Value, way: &[&str], key: &str, value: &str) -> bool {
    let mut at = object;
    for step in way {
        let Some(fields) = at.as_object_mut() else { return false };
        let inner = fields.entry(*step).or_insert_with(|| json!({}));
        if inner.is_null() {
            *inner = json!({});
        }
        at = inner;
    }
    match at.as_object_mut() {
        Some(fields) => {
            fields.insert(key.to_owned(), json!(value));
            true
        }
        None => false,
    }
}

/// API group of an object; empty for the core group.
pub(super) fn group(object: &Value) -> String {
    let version = text(object, "/apiVersion");
    version.split_once('/').map_or_else(String::new, |(group, _)| group.to_owned())
}

/// The owner of an object: its kind, the API group of the kind, and its name.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) kind: String,
    pub(super) group: String,
    pub(super) name: String,
}

impl Owner {
    /// The controller of an object.
    pub(super) fn controller(object: &Value) -> Option<Self> {
        let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
        owners.iter().find(|owner| owner.get("controller") == Some(&Value::Bool(true))).map(Self::of)
    }

    /// The controller of an object, else its first owner.
    pub(super) fn first(object: &Value) -> Option<Self> {
        let owner = || object.pointer("/metadata/ownerReferences")?.as_array()?.first().map(Self::of);
        Self::controller(object).or_else(owner)
    }

    fn of(owner: &Value) -> Self {
        Self { kind: text(owner, "/kind"), group: group(owner), name: text(owner, "/name") }
    }

    /// Whether the owner is a Job of Volcano.
    pub(super) fn is_volcano_job(&self) -> bool {
        (self.group.as_str(), self.kind.as_str()) == (BATCH, "Job")
    }
}
