//! Comparison of the statuses of Workloads after a decision.

use crate::amounts;
use crate::diff::Diff;
use crate::scene::{Scene, bare, key_of, text};
use berth_api as api;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A Workload that a case expects. A case lists only the fields of an expected Workload that differ from the case's object; all other fields must be as in the
/// object.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    status: Value,
    #[serde(default)]
    spec: Option<Value>,
    #[serde(default)]
    metadata: Option<Value>,
}

/// Compares all Workloads with the expected Workloads. A Workload of the case that the expectation does not list must be gone, unless the parameter `but` lists
/// it.
///
/// # Errors
/// A status cannot be read.
pub fn compare(diff: &mut Diff, place: &str, scene: &Scene, expected: &[Expected], but: &[&str]) -> Result<(), String> {
    let want: BTreeMap<String, &Expected> =
        expected.iter().map(|workload| (format!("{}/{}", workload.namespace, workload.name), workload)).collect();
    let listed = |(key, _): &(String, Cow<'_, Value>)| want.contains_key(key) || !but.contains(&key.as_str());
    let got: BTreeMap<String, Cow<'_, Value>> = scene.workloads().filter(listed).collect();
    diff.eq(place, &want.keys().collect::<Vec<_>>(), &got.keys().collect::<Vec<_>>());
    for (key, expected) in want {
        let Some(object) = got.get(&key) else { continue };
        let place = format!("{place}[{key}]");
        let mut wanted = fields(&expected.status, &expected.status, scene, &key)?;
        // An expected field that the API of Workloads does not have is compared as well, so the case fails.
        if let Value::Object(all) = bare(&expected.status) {
            for (field, value) in all.into_iter().filter(|(field, _)| field != "conditions") {
                wanted.entry(field).or_insert(value);
            }
        }
        let found = fields(object.get("status").unwrap_or(&Value::Null), &expected.status, scene, &key)?;
        diff.maps(&place, &wanted, &found);
        for (part, wanted) in [("spec", &expected.spec), ("metadata", &expected.metadata)] {
            let found = object.get(part).cloned().unwrap_or_default();
            if let Some(wanted) = wanted {
                diff.eq(&format!("{place}.{part}"), &bare(wanted), &only(&bare(&found), wanted));
            }
        }
    }
    Ok(())
}

/// The JSON value `found` without the keys of objects that the JSON value `wanted` does not have.
fn only(found: &Value, wanted: &Value) -> Value {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            let kept = found.iter().filter_map(|(key, value)| Some((key.clone(), only(value, wanted.get(key)?))));
            Value::Object(kept.collect::<Map<_, _>>())
        }
        _ => found.clone(),
    }
}

/// The comparable parts of a status by name: each condition, and every other field in the canonical form of the API. Fields of a condition that the status
/// `like` does not have are left out.
fn fields(status: &Value, like: &Value, scene: &Scene, about: &str) -> Result<BTreeMap<String, Value>, String> {
    let mut status = status.clone();
    let conditions = status.as_object_mut().and_then(|map| map.remove("conditions")).unwrap_or_default();
    let typed: api::WorkloadStatus =
        if status.is_null() { api::WorkloadStatus::default() } else { read(strip_times(status))? };
    let mut parts: BTreeMap<String, Value> = BTreeMap::new();
    if let Value::Object(map) = bare(&serde_json::to_value(canonical(typed)).unwrap_or_default()) {
        parts.extend(map);
    }
    for condition in conditions.as_array().into_iter().flatten() {
        let kind = text(condition, "/type");
        let pattern = like.get("conditions").and_then(Value::as_array).into_iter().flatten();
        let pattern = pattern.into_iter().find(|other| text(other, "/type") == kind);
        let mut shown = condition.clone();
        if let (Value::Object(shown), Some(Value::Object(pattern))) = (&mut shown, pattern) {
            shown.retain(|key, _| pattern.contains_key(key));
            if let Some(message) = shown.get_mut("message") {
                *message = Value::String(scene.message(about, message.as_str().unwrap_or_default()));
            }
        }
        parts.insert(format!("condition {kind}"), shown);
    }
    Ok(parts)
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| format!("status: {error}"))
}

/// Removes transition times from the states of admission checks, which are not compared.
fn strip_times(mut status: Value) -> Value {
    for check in status.get_mut("admissionChecks").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(check) = check {
            check.remove("lastTransitionTime");
        }
    }
    status
}

/// A status in canonical form: lists that are sets are sorted, and quantities have their canonical text.
fn canonical(mut status: api::WorkloadStatus) -> api::WorkloadStatus {
    status.admission_checks.sort_by(|a, b| a.name.cmp(&b.name));
    for set in status.admission.iter_mut().flat_map(|admission| &mut admission.pod_set_assignments) {
        amounts::canonical(&mut set.resource_usage);
    }
    for request in &mut status.resource_requests {
        amounts::canonical(&mut request.resources);
    }
    status
}

/// Current quota reservations by Workload.
///
/// # Errors
/// A status cannot be read.
pub fn assignments(scene: &Scene) -> Result<BTreeMap<String, api::Admission>, String> {
    let mut held = BTreeMap::new();
    for (key, object) in scene.workloads() {
        let Some(status) = object.get("status") else { continue };
        let status: api::WorkloadStatus = read(status.clone())?;
        let reserved = status.conditions.iter().any(|c| c.type_ == "QuotaReserved" && c.status == "True");
        if let (true, Some(admission)) = (reserved, canonical(status).admission) {
            debug_assert_eq!(key, key_of(&object));
            held.insert(key, admission);
        }
    }
    Ok(held)
}
