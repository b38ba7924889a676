//! Tests of pod groups and topology assignments that the case files of `pod` and `pod-group` cannot express.

mod group;
mod state;
mod topology;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

/// A managed pod that waits, with `more` merged into it.
fn pod(more: Value) -> Pod {
    let mut object = json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7",
            "labels": {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/managed": "true"},
            "finalizers": ["kueue.x-k8s.io/managed", "other/finalizer"]},
        "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}, {"name": "other/gate"}],
            "nodeSelector": {"disk": "ssd"},
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
    });
    merge(&mut object, &more);
    serde_json::from_value(object).unwrap()
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                if value.is_null() {
                    into.remove(key);
                } else {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// A pod of a pod group of this size.
fn member(total: &str, more: Value) -> Pod {
    let mut all = json!({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "g"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": total}}});
    merge(&mut all, &more);
    pod(all)
}
