//! JSON of values that always have a JSON form, so that no caller has to choose a value for a failure.
//!
//! serde_json fails to serialise a value in two cases only: a map has keys that are no texts, or an implementation of `Serialize` returns an error. Neither of
//! the two failures of serde_json exists for the types of Kubernetes and of Berth: their maps have texts as keys, and their implementations are derived, or
//! write a text or a number. A failure of serde_json is therefore a fault of a new type, and builds with debug assertions, which all tests are, stop at it.

use serde::Serialize;
use serde_json::Value;

/// A value as JSON; `null` for a value without a JSON form, but every value of Kubernetes' and Berth's types has one.
#[must_use]
pub fn to_value<T: Serialize + ?Sized>(value: &T) -> Value {
    let made = serde_json::to_value(value);
    debug_assert!(made.is_ok(), "{made:?}");
    made.unwrap_or_default()
}

/// A value as the text of its JSON; empty for a value without a JSON form, but every value of Kubernetes' and Berth's types has one.
#[must_use]
pub fn to_text<T: Serialize + ?Sized>(value: &T) -> String {
    let made = serde_json::to_string(value);
    debug_assert!(made.is_ok(), "{made:?}");
    made.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Workload;

    #[test]
    fn workload_becomes_the_json_that_it_was_read_from() {
        for object in [
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w"},
                "spec": {"active": true, "queueName": "lq", "priority": 9}}),
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"labels": {"a": "\"b\""}},
                "spec": {}}),
        ] {
            let workload: Workload = serde_json::from_value(object.clone()).unwrap();
            let made = to_value(&workload);
            assert_eq!(made["spec"]["queueName"], object["spec"]["queueName"], "{made}");
            assert_eq!(made["metadata"], object["metadata"], "{made}");
            assert_eq!(serde_json::from_str::<Value>(&to_text(&workload)).unwrap(), made);
        }
    }
}
