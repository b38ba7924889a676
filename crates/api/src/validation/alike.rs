//! Equality of two objects apart from notation. A Go program that changes one field writes all other fields back in its own notation: it writes
//! quantities in one form, omits empty values, and writes an empty struct where there was no value.

use berth_quantity::{Nano, parse_quantity};
use serde::Serialize;
use serde_json::Value;

/// Names of fields that are maps of quantities.
const QUANTITIES: [&str; 4] = ["requests", "limits", "overhead", "resourceUsage"];
/// Names of fields that are a quantity.
const AMOUNTS: [&str; 2] = ["divisor", "sizeLimit"];
/// Names of maps whose keys users choose: an empty text in these maps has a meaning.
const OF_USERS: [&str; 8] = [
    "annotations",
    "flavors",
    "labels",
    "matchLabels",
    "nodeSelector",
    "options",
    "userAnnotations",
    "volumeAttributes",
];
/// Names of structs that Go writes even if they are empty.
const STRUCTS: [&str; 3] = ["metadata", "resources", "spec"];
/// Names of flags that Go omits when they are false; false has a meaning in all other flags.
const FLAGS: [&str; 10] = [
    "chapAuthDiscovery",
    "chapAuthSession",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "readOnly",
    "sslEnabled",
    "stdin",
    "stdinOnce",
    "tty",
];
/// Names of numbers that Go omits when they are zero.
const NUMBERS: [&str; 7] = [
    "failureThreshold",
    "hostPort",
    "initialDelaySeconds",
    "partition",
    "periodSeconds",
    "successThreshold",
    "timeoutSeconds",
];
/// Names of texts that have a meaning when they are empty: no class instead of the default class, or a request for a topology instead of none.
const TEXTS: [&str; 7] = [
    "podIndexLabel",
    "podSetGroupName",
    "podSetSliceRequiredTopology",
    "preferred",
    "required",
    "storageClassName",
    "subGroupIndexLabel",
];

/// Whether `a` and `b` are equal apart from notation, as Kueue compares immutable fields.
pub(super) fn alike<T: Serialize + PartialEq>(a: &T, b: &T) -> bool {
    a == b || plain(a).is_some_and(|a| plain(b) == Some(a))
}

/// The value as JSON in a uniform notation, in which two values are equal if they differ only in notation. The result is `None` for a value that cannot be
/// serialised and so is equal only to itself.
fn plain(value: &impl Serialize) -> Option<Value> {
    let mut value = serde_json::to_value(value).ok()?;
    normalise(&mut value);
    Some(value)
}

/// Writes quantities in one form, and removes values that Go omits.
fn normalise(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(normalise),
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                let key = key.as_str();
                match field {
                    Value::Object(amounts) if QUANTITIES.contains(&key) => amounts.values_mut().for_each(canonical),
                    Value::Object(_) if OF_USERS.contains(&key) => {}
                    Value::String(_) if AMOUNTS.contains(&key) => canonical(field),
                    _ => normalise(field),
                }
            }
            fields.retain(|key, field| !is_left_out(key, field));
        }
        _ => {}
    }
}

fn canonical(quantity: &mut Value) {
    if let Some(Ok(Nano(nano))) = quantity.as_str().map(parse_quantity) {
        *quantity = Value::String(nano.to_string());
    }
}

fn is_left_out(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => {
            let lists: [&[&str]; 3] = [&STRUCTS, &QUANTITIES, &OF_USERS];
            fields.is_empty() && lists.iter().any(|list| list.contains(&key))
        }
        Value::String(text) => text.is_empty() && !TEXTS.contains(&key) || key == "divisor" && text == "0",
        Value::Bool(set) => !set && FLAGS.contains(&key),
        Value::Number(number) => number.as_i64() == Some(0) && NUMBERS.contains(&key),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_differing_only_in_go_notation_are_alike() {
        for (ours, theirs) in [
            (json!({"name": "c"}), json!({"name": "c", "resources": {}, "workingDir": "", "args": []})),
            (json!({"spec": {}}), json!({"metadata": {"creationTimestamp": null}, "spec": {"hostNetwork": false}})),
            (
                json!({"requests": {"cpu": "1000m", "memory": "1024Mi"}}),
                json!({"requests": {"cpu": "1", "memory": "1Gi"}}),
            ),
            (json!({"resources": {"limits": {}}}), json!({})),
            (json!({"resource": "limits.cpu"}), json!({"resource": "limits.cpu", "divisor": "0"})),
            (json!({"emptyDir": {"sizeLimit": "1024Mi"}}), json!({"emptyDir": {"sizeLimit": "1Gi"}})),
            (json!({"livenessProbe": {"initialDelaySeconds": 0}}), json!({"livenessProbe": {}})),
            (json!({"gcePersistentDisk": {"partition": 0, "readOnly": false}}), json!({"gcePersistentDisk": {}})),
            (json!({"iscsi": {"chapAuthDiscovery": false, "chapAuthSession": false}}), json!({"iscsi": {}})),
            (json!({"scaleIO": {"sslEnabled": false}}), json!({"scaleIO": {}})),
            (json!({"podCertificate": {"userAnnotations": {}}}), json!({"podCertificate": {}})),
        ] {
            assert!(alike(&ours, &theirs) && alike(&theirs, &ours), "{ours} {theirs}");
        }
        for (one, other) in [
            (json!({"requests": {"cpu": "1"}}), json!({"requests": {"cpu": "1001m"}})),
            (json!({"requests": {"cpu": "0"}}), json!({})),
            (json!({"labels": {"a": ""}}), json!({"labels": {}})),
            (json!({"labels": {"cpu": "1000m"}}), json!({"labels": {"cpu": "1"}})),
            (json!({"userAnnotations": {"a": ""}}), json!({"userAnnotations": {}})),
            (json!({"topologyRequest": {"required": ""}}), json!({"topologyRequest": {}})),
            (json!({"topologyRequest": {"podSetGroupName": ""}}), json!({"topologyRequest": {}})),
            (json!({"args": [""]}), json!({"args": []})),
            (json!({"automountServiceAccountToken": false}), json!({})),
            (json!({"terminationGracePeriodSeconds": 0}), json!({})),
            (json!({"storageClassName": ""}), json!({})),
            (json!({"emptyDir": {}}), json!({})),
            (json!({"labelSelector": {}}), json!({})),
        ] {
            assert!(!alike(&one, &other) && !alike(&other, &one), "{one} {other}");
        }
    }

    #[test]
    fn unserializable_value_is_alike_only_to_an_equal_one() {
        #[derive(PartialEq)]
        struct Mute(u8);
        impl Serialize for Mute {
            fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(serde::ser::Error::custom("mute"))
            }
        }
        assert!(alike(&Mute(1), &Mute(1)) && !alike(&Mute(1), &Mute(2)));
    }
}
