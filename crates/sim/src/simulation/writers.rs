//! Field managers of fields, as the judge expects them in `metadata.managedFields`. Control does not read that field, so stored objects do not have it.

use std::collections::{BTreeMap, BTreeSet};

use berth_control::write::ObjectKey;
use serde_json::{Map, Value, json};

use crate::api_server::Revision;

/// The last field manager of each field of each object, with the version of the manager's last write.
#[derive(Debug, Default)]
pub(super) struct Writers {
    objects: BTreeMap<ObjectKey, BTreeMap<&'static str, WrittenFields>>,
}

/// Fields that one field manager has written last.
#[derive(Debug, Default)]
struct WrittenFields {
    /// Version of the manager's last write that changed a field.
    version: u64,
    spec: BTreeSet<String>,
    status: BTreeSet<String>,
    conditions: BTreeSet<String>,
}

impl Writers {
    /// The object of a revision with the managers of its fields in `metadata.managedFields`.
    pub(super) fn attribute(&mut self, revision: &Revision) -> Value {
        let mut object = revision.object.clone();
        if revision.gone {
            self.objects.remove(&revision.key);
            return object;
        }
        let entries = self.objects.entry(revision.key.clone()).or_default();
        let before = revision.before.as_ref().unwrap_or(&Value::Null);
        let changes = ChangedFields {
            spec: changed(&before["spec"], &object["spec"]),
            status: changed(&before["status"], &object["status"]),
            conditions: changed_conditions(before, &object),
        };
        if !(changes.spec.is_empty() && changes.status.is_empty()) {
            for entry in entries.values_mut() {
                entry.spec.retain(|field| !changes.spec.contains(field));
                entry.status.retain(|field| !changes.status.contains(field));
                entry.conditions.retain(|kind| !changes.conditions.contains(kind));
            }
            let entry = entries.entry(revision.writer).or_default();
            entry.version = revision.version;
            entry.spec.extend(changes.spec);
            entry.status.extend(changes.status);
            entry.conditions.extend(changes.conditions);
        }
        object["metadata"]["managedFields"] = entries.iter().map(|(writer, entry)| entry.shown(writer)).collect();
        object
    }
}

struct ChangedFields {
    spec: BTreeSet<String>,
    status: BTreeSet<String>,
    conditions: BTreeSet<String>,
}

impl WrittenFields {
    fn shown(&self, writer: &str) -> Value {
        let mut fields = Map::new();
        if !self.spec.is_empty() {
            fields.insert("f:spec".into(), named(&self.spec, "f:"));
        }
        if !self.status.is_empty() {
            let mut status = named(&self.status, "f:");
            let kinds = self.conditions.iter().map(|kind| (format!("k:{{\"type\":\"{kind}\"}}"), json!({})));
            status["f:conditions"] = Value::Object(kinds.collect());
            fields.insert("f:status".into(), status);
        }
        json!({"manager": writer, "time": self.version.to_string(), "fieldsV1": fields})
    }
}

fn named(fields: &BTreeSet<String>, prefix: &str) -> Value {
    Value::Object(fields.iter().map(|field| (format!("{prefix}{field}"), json!({}))).collect())
}

/// Names of the fields of an object that differ between two states.
fn changed(before: &Value, after: &Value) -> BTreeSet<String> {
    let names =
        |value: &Value| value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
    names(before).into_iter().chain(names(after)).filter(|name| before.get(name) != after.get(name)).collect()
}

fn changed_conditions(before: &Value, after: &Value) -> BTreeSet<String> {
    let list = |object: &Value| object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let (old, new) = (list(before), list(after));
    let differs = |condition: &&Value| !old.contains(condition);
    new.iter().filter(differs).filter_map(|one| one["type"].as_str().map(str::to_owned)).collect()
}
