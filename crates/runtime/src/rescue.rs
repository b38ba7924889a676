//! The readable part of a Workload that does not decode, with which its quota stays charged and its pending state stays known.
//!
//! Control receives this part of the Workload with a mark. Control charges the quota that a marked Workload holds, neither admits nor writes it, and goes on so
//! until the Workload decodes again or is deleted.

use berth_api as api;
use berth_api::labels::UNREADABLE;
use berth_api::lean;
use kube::core::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The readable part of a Workload; `None` if the Workload's name or quota reservation cannot be read, so that control keeps the Workload's last known state.
pub(crate) fn workload(text: &str) -> Option<Box<api::Workload>> {
    let object = lean::decode::<Value>(text).ok()?;
    let mut metadata: ObjectMeta = part(&object, "/metadata")?;
    metadata.name.as_ref().filter(|name| !name.is_empty())?;
    metadata.annotations.get_or_insert_default().insert(UNREADABLE.to_owned(), String::new());
    let status = match object.get("status") {
        None | Some(Value::Null) => api::WorkloadStatus::default(),
        Some(status) => serde_json::from_value(status.clone()).ok().or_else(|| held(&object))?,
    };
    let spec = api::WorkloadSpec {
        queue_name: part(&object, "/spec/queueName"),
        active: part(&object, "/spec/active"),
        priority: part(&object, "/spec/priority"),
        ..api::WorkloadSpec::default()
    };
    Some(Box::new(api::Workload { metadata, spec, status: Some(status) }))
}

/// Reservation and conditions of a Workload status that does not decode completely.
fn held(object: &Value) -> Option<api::WorkloadStatus> {
    Some(api::WorkloadStatus {
        conditions: part(object, "/status/conditions")?,
        admission: match object.pointer("/status/admission") {
            None | Some(Value::Null) => None,
            Some(admission) => Some(serde_json::from_value(admission.clone()).ok()?),
        },
        ..api::WorkloadStatus::default()
    })
}

fn part<T: DeserializeOwned>(object: &Value, pointer: &str) -> Option<T> {
    object.pointer(pointer).and_then(|value| serde_json::from_value(value.clone()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rescued(object: &Value) -> Option<Box<api::Workload>> {
        assert!(berth_api::lean::decode::<api::Workload>(&object.to_string()).is_err(), "it decodes: {object}");
        workload(&object.to_string())
    }

    fn holding(more: Value) -> Value {
        let mut status = json!({
            "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
                "lastTransitionTime": "2026-11-21T12:00:00Z"}],
            "admission": {"clusterQueue": "cq", "podSetAssignments": [
                {"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "2"}, "count": 1}]},
        });
        for (key, value) in more.as_object().unwrap() {
            status[key] = value.clone();
        }
        json!({"metadata": {"name": "w", "namespace": "n", "uid": "u", "resourceVersion": "7"},
            "spec": {"queueName": "lq", "podSets": "x"}, "status": status})
    }

    #[test]
    fn undecodable_workload_keeps_its_admission_and_queue_name() {
        let found = rescued(&holding(json!({}))).unwrap();
        assert_eq!((found.metadata.uid.as_deref(), found.spec.queue_name.as_deref()), (Some("u"), Some("lq")));
        let status = found.status.unwrap();
        assert_eq!(status.admission.unwrap().cluster_queue.as_deref(), Some("cq"));
        assert!(found.metadata.annotations.unwrap().contains_key(UNREADABLE));
    }

    #[test]
    fn workload_with_bad_status_field_keeps_its_reservation() {
        let found = rescued(&holding(json!({"requeueState": "soon"}))).unwrap();
        assert!(found.status.unwrap().admission.is_some());
    }

    #[test]
    fn workload_without_readable_reservation_is_not_rescued() {
        assert!(rescued(&holding(json!({"admission": {"podSetAssignments": "x"}}))).is_none());
        assert!(rescued(&holding(json!({"conditions": 5}))).is_none());
        assert!(workload("[]").is_none() && workload(r#"{"metadata": {}}"#).is_none());
    }
}
