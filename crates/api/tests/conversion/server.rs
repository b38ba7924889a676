//! The steps of an API server on an object between two conversions, by the schemas in `crds/`.

use std::path::Path;

use serde_json::{Map, Value};

/// The schemas of one kind in both versions.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) older: Value,
    pub(crate) newer: Value,
}

/// The five kinds whose versions differ.
pub(crate) fn kinds() -> Vec<Kind> {
    let all = [
        ("ClusterQueue", "clusterqueues"),
        ("Cohort", "cohorts"),
        ("LocalQueue", "localqueues"),
        ("MultiKueueCluster", "multikueueclusters"),
        ("Workload", "workloads"),
    ];
    all.into_iter().map(|(name, plural)| kind(name, plural)).collect()
}

fn kind(name: &'static str, plural: &str) -> Kind {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../crds/{plural}.kueue.x-k8s.io.yaml"));
    let text = std::fs::read_to_string(&path).unwrap();
    let definition: Value = serde_saphyr::from_str(&text).unwrap();
    let schema = |version: &str| {
        let versions = definition["spec"]["versions"].as_array().unwrap();
        versions.iter().find(|entry| entry["name"] == version).unwrap()["schema"]["openAPIV3Schema"].clone()
    };
    Kind { name, older: schema("v1beta1"), newer: schema("v1beta2") }
}

/// Removes fields that the schema does not know.
pub(crate) fn prune(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            let Some(known) = schema["properties"].as_object() else {
                map.values_mut().for_each(|value| prune(&schema["additionalProperties"], value));
                return;
            };
            map.retain(|name, _| known.contains_key(name));
            each(known, map, prune);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| prune(&schema["items"], item)),
        _ => {}
    }
}

/// Adds the default values of the schema.
pub(crate) fn complete(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            let Some(known) = schema["properties"].as_object() else {
                map.values_mut().for_each(|value| complete(&schema["additionalProperties"], value));
                return;
            };
            for (name, field) in known {
                if let Some(default) = field.get("default")
                    && !map.contains_key(name)
                {
                    map.insert(name.clone(), default.clone());
                }
            }
            each(known, map, complete);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| complete(&schema["items"], item)),
        _ => {}
    }
}

fn each(known: &Map<String, Value>, map: &mut Map<String, Value>, act: fn(&Value, &mut Value)) {
    for (name, value) in map {
        if name != "metadata" {
            act(known.get(name).unwrap_or(&Value::Null), value);
        }
    }
}
