//! The spec of a job as its user wrote it, beside its present one (L7). Fields that Berth puts in have to go again; edits of the user stay.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::read::is_berth;
use crate::kinds::{items, text};

/// Writers of an object with the times of their writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Writers {
    /// Managers of writes of users and of Kubernetes' controllers, with the times of the last ones.
    users: BTreeSet<(String, String)>,
    /// The entries of Berth.
    others: Vec<Value>,
    /// Each of these entries has a time.
    timed: bool,
}

/// First and present spec of a job, without `suspend`.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    first: Map<String, Value>,
    now: Map<String, Value>,
    writers: Writers,
    /// A user edited a template that Berth had changed: the expected result is not known from outside.
    unknown: bool,
}

/// Whether a manager had put its marks on a template when it started the job.
fn is_placed(spec: &Map<String, Value>) -> bool {
    let marks = [("labels", "kueue.x-k8s.io/podset"), ("annotations", "kueue.x-k8s.io/workload")];
    let templates = spec.get("template").into_iter();
    let of_sets = spec.get("replicatedJobs").and_then(Value::as_array).into_iter().flatten();
    let is_marked = |template: &Value| {
        let Some(metadata) = template.get("metadata") else { return false };
        marks.iter().any(|(field, key)| metadata.get(field).is_some_and(|entries| entries.get(key).is_some()))
    };
    templates.chain(of_sets.filter_map(|jobs| jobs.pointer("/template/spec/template"))).any(is_marked)
}

/// The value without empty parts: the API server writes some of them, and a patch cannot.
fn plain(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(map) => {
            let kept: Map<String, Value> =
                map.iter().filter_map(|(key, value)| Some((key.clone(), plain(value)?))).collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(list) => {
            let kept: Vec<Value> = list.iter().map(|value| plain(value).unwrap_or(Value::Null)).collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        other => Some(other.clone()),
    }
}

fn fields(object: &Value) -> Map<String, Value> {
    match object.get("spec").and_then(plain) {
        Some(Value::Object(mut spec)) => {
            spec.remove("suspend");
            spec
        }
        _ => Map::new(),
    }
}

impl Writers {
    fn of(object: &Value) -> Writers {
        let mut writers = Writers { timed: true, ..Writers::default() };
        let entries = items(object, "/metadata/managedFields");
        for entry in entries.iter().filter(|entry| entry.pointer("/fieldsV1/f:spec").is_some()) {
            if !is_berth(text(entry, "/manager")) {
                writers.users.insert((text(entry, "/manager").to_owned(), text(entry, "/time").to_owned()));
            } else {
                writers.timed &= !text(entry, "/time").is_empty();
                writers.others.push(entry.clone());
            }
        }
        writers
    }

    /// Whether a user made the change after which the writers are `new`: times are in seconds, so that a second write in the same second
    /// shows only when no other writer has an entry that changed.
    fn is_edit(&self, new: &Writers) -> bool {
        let later = new.users.iter().any(|user| !self.users.contains(user));
        let alone = new.timed && self.others == new.others && !(new.users.is_empty() && new.others.is_empty());
        later || alone
    }
}

impl Spec {
    /// The spec of a state of a job, in place of its older one.
    pub(super) fn seen(object: &Value, before: Option<&Spec>) -> Spec {
        let (now, writers) = (fields(object), Writers::of(object));
        let Some(before) = before else { return Spec { first: now.clone(), now, writers, unknown: false } };
        // It had been started before it was first seen: the user's spec shows when it is first put back.
        if is_placed(&before.first) && !is_placed(&now) {
            return Spec { first: now.clone(), now, writers, unknown: before.unknown };
        }
        let (mut first, mut unknown) = (before.first.clone(), before.unknown);
        if now != before.now && before.writers.is_edit(&writers) {
            let names: BTreeSet<&String> = now.keys().chain(before.now.keys()).collect();
            for name in names.into_iter().filter(|name| now.get(*name) != before.now.get(*name)) {
                let placed = ["template", "replicatedJobs"].contains(&name.as_str());
                unknown |= placed && before.now.get(name) != before.first.get(name);
                match now.get(name) {
                    Some(value) => drop(first.insert(name.clone(), value.clone())),
                    None => drop(first.remove(name)),
                }
            }
        }
        Spec { first, now, writers, unknown }
    }

    /// The fields in which it is not as its user wrote it, with both values; `None` when it is.
    pub(super) fn changed(&self) -> Option<String> {
        if self.unknown || self.first == self.now {
            return None;
        }
        let names: BTreeSet<&String> = self.first.keys().chain(self.now.keys()).collect();
        let differ = names.into_iter().filter(|name| self.first.get(*name) != self.now.get(*name));
        let shown = |value: Option<&Value>| value.map_or_else(|| "absent".to_owned(), Value::to_string);
        let differences = differ
            .map(|name| format!("{name} is {} and was {}", shown(self.now.get(name)), shown(self.first.get(name))));
        Some(differences.collect::<Vec<_>>().join("; "))
    }
}
