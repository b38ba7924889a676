//! Merge keys and defaults of Kubernetes' own types: Kubernetes documents them, and the generator of the Rust types omits them.
//!
//! Without list keys in the schema, server-side apply would treat every list of a pod template as one value.

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

const CORE: &str = "io.k8s.api.core.v1.";

/// Lists of Kubernetes types whose items server-side apply merges by keys: (type, field, keys).
const KEYED_LISTS: &[(&str, &str, &[&str])] = &[
    ("Container", "env", &["name"]),
    ("Container", "ports", &["containerPort", "protocol"]),
    ("Container", "volumeDevices", &["devicePath"]),
    ("Container", "volumeMounts", &["mountPath"]),
    ("EphemeralContainer", "env", &["name"]),
    ("EphemeralContainer", "ports", &["containerPort", "protocol"]),
    ("EphemeralContainer", "volumeDevices", &["devicePath"]),
    ("EphemeralContainer", "volumeMounts", &["mountPath"]),
    ("PodSpec", "containers", &["name"]),
    ("PodSpec", "ephemeralContainers", &["name"]),
    ("PodSpec", "hostAliases", &["ip"]),
    ("PodSpec", "imagePullSecrets", &["name"]),
    ("PodSpec", "initContainers", &["name"]),
    ("PodSpec", "resourceClaims", &["name"]),
    ("PodSpec", "schedulingGates", &["name"]),
    ("PodSpec", "topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("PodSpec", "volumes", &["name"]),
    ("ResourceRequirements", "claims", &["name"]),
];

/// Lists of Kubernetes types that are sets of scalars: (type, field).
const SETS: &[(&str, &str)] = &[("ContainerRestartRuleOnExitCodes", "values")];

/// Kubernetes types whose objects server-side apply replaces as a unit.
const ATOMIC: &[&str] = &[
    "io.k8s.api.core.v1.ConfigMapEnvSource",
    "io.k8s.api.core.v1.ConfigMapKeySelector",
    "io.k8s.api.core.v1.ConfigMapProjection",
    "io.k8s.api.core.v1.ConfigMapVolumeSource",
    "io.k8s.api.core.v1.FileKeySelector",
    "io.k8s.api.core.v1.LocalObjectReference",
    "io.k8s.api.core.v1.NodeSelector",
    "io.k8s.api.core.v1.NodeSelectorTerm",
    "io.k8s.api.core.v1.ObjectFieldSelector",
    "io.k8s.api.core.v1.ResourceFieldSelector",
    "io.k8s.api.core.v1.SecretEnvSource",
    "io.k8s.api.core.v1.SecretKeySelector",
    "io.k8s.api.core.v1.SecretProjection",
    "io.k8s.api.core.v1.TypedLocalObjectReference",
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
];

/// Maps of Kubernetes types that server-side apply replaces as a unit: (type, field).
const ATOMIC_MAPS: &[(&str, &str)] = &[("PodSpec", "nodeSelector")];

/// Kubernetes types that refer to another object by a field `name` whose default is the empty string.
const REFERENCES: &[&str] = &[
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "LocalObjectReference",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
];

/// Fields of Kubernetes types with a text as default: (type, field, value).
const TEXT_DEFAULTS: &[(&str, &str, &str)] = &[
    ("AzureDiskVolumeSource", "fsType", "ext4"),
    ("ContainerPort", "protocol", "TCP"),
    ("GRPCAction", "service", ""),
    ("ISCSIVolumeSource", "iscsiInterface", "default"),
    ("RBDVolumeSource", "keyring", "/etc/ceph/keyring"),
    ("RBDVolumeSource", "pool", "rbd"),
    ("RBDVolumeSource", "user", "admin"),
    ("ScaleIOVolumeSource", "fsType", "xfs"),
    ("ScaleIOVolumeSource", "storageMode", "ThinProvisioned"),
];

/// Fields of Kubernetes types with `false` as default: (type, field).
const FALSE_DEFAULTS: &[(&str, &str)] = &[("AzureDiskVolumeSource", "readOnly"), ("FileKeySelector", "optional")];

/// Adds list types, list keys and defaults to the schema of the Kubernetes type `name`.
pub(crate) fn annotate(name: &str, schema: &mut Value) -> Result<()> {
    let object = schema.as_object_mut().context("definition is not an object")?;
    if ATOMIC.contains(&name) {
        object.insert("x-kubernetes-map-type".into(), json!("atomic"));
    }
    let short = name.strip_prefix(CORE).unwrap_or_default();
    if REFERENCES.contains(&short) {
        not_required("name", object);
    }
    let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) else {
        return Ok(());
    };
    for (field, property) in properties.iter_mut() {
        let property = property.as_object_mut().context("property is not an object")?;
        if property.get("type") == Some(&json!("array")) {
            list_type(short, field, property);
        }
        if ATOMIC_MAPS.contains(&(short, field.as_str())) {
            property.insert("x-kubernetes-map-type".into(), json!("atomic"));
        }
        if let Some(default) = default(short, field) {
            property.insert("default".into(), default);
        }
    }
    Ok(())
}

/// Removes a field that has a default from the required fields of a schema.
fn not_required(field: &str, object: &mut Map<String, Value>) {
    if let Some(required) = object.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name != field);
        if required.is_empty() {
            object.remove("required");
        }
    }
}

fn list_type(type_: &str, field: &str, property: &mut Map<String, Value>) {
    let keys = KEYED_LISTS.iter().find(|(t, f, _)| (*t, *f) == (type_, field)).map(|(_, _, keys)| keys);
    let kind = match keys {
        Some(keys) => {
            property.insert("x-kubernetes-list-map-keys".into(), json!(keys));
            "map"
        }
        None if SETS.contains(&(type_, field)) => "set",
        None => "atomic",
    };
    property.insert("x-kubernetes-list-type".into(), json!(kind));
}

fn default(type_: &str, field: &str) -> Option<Value> {
    if field == "name" && REFERENCES.contains(&type_) {
        return Some(json!(""));
    }
    if FALSE_DEFAULTS.contains(&(type_, field)) {
        return Some(json!(false));
    }
    TEXT_DEFAULTS.iter().find(|(t, f, _)| (*t, *f) == (type_, field)).map(|(_, _, value)| json!(value))
}

/// Schema of the metadata in a pod template: the fields of metadata that make sense before an object exists.
pub(crate) fn template_metadata() -> Value {
    json!({
        "type": "object",
        "properties": {
            "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
            "finalizers": {"type": "array", "items": {"type": "string"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "name": {"type": "string"},
            "namespace": {"type": "string"},
        },
    })
}
