//! Guards over the generated definitions.

use serde_json::{Value, json};

use super::*;

fn every(value: &Value, path: &str, visit: &mut dyn FnMut(&str, &serde_json::Map<String, Value>)) {
    let Some(node) = value.as_object() else { return };
    visit(path, node);
    for (name, child) in node.get("properties").and_then(Value::as_object).into_iter().flatten() {
        every(child, &format!("{path}.{name}"), visit);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(child) = node.get(key) {
            every(child, &format!("{path}[]"), visit);
        }
    }
}

fn schemas() -> Vec<(String, Value)> {
    let mut out = Vec::new();
    for kind in kinds::ALL {
        let definition = crd::definition(kind).unwrap();
        for version in definition["spec"]["versions"].as_array().unwrap() {
            let name = format!("{}/{}", kind.kind, version["name"].as_str().unwrap());
            out.push((name, version["schema"]["openAPIV3Schema"].clone()));
        }
    }
    out
}

fn storage_schema(kind: &str) -> Value {
    schemas().into_iter().find(|(name, _)| name == &format!("{kind}/v1beta2")).unwrap().1
}

#[test]
fn the_files_are_up_to_date() {
    let stale: Vec<String> = stale_files(&repository_crds()).unwrap().into_iter().map(|(name, _)| name).collect();
    assert!(stale.is_empty(), "run `make crds`; stale: {stale:?}");
    let files = std::fs::read_dir(repository_crds()).unwrap().count();
    assert_eq!(files, kinds::ALL.len() + 1, "crds/ holds one file per kind, their list, and nothing else");
}

#[test]
fn the_yaml_means_what_the_definition_says() {
    for kind in kinds::ALL {
        let read: Value = serde_saphyr::from_str(&crd::yaml(kind).unwrap()).unwrap();
        assert_eq!(read, crd::definition(kind).unwrap(), "{}", kind.kind);
    }
}

#[test]
fn schemas_are_structural() {
    let known = [
        "type",
        "format",
        "properties",
        "items",
        "additionalProperties",
        "required",
        "default",
        "enum",
        "pattern",
        "anyOf",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "maxProperties",
        "description",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-map-type",
        "x-kubernetes-validations",
    ];
    let mut seen = 0;
    for (name, schema) in schemas() {
        every(&schema, &name, &mut |path, node| {
            seen += 1;
            for key in node.keys() {
                assert!(known.contains(&key.as_str()), "{path} has {key}");
            }
            let quantity = node.contains_key("x-kubernetes-int-or-string");
            assert_eq!(node.contains_key("anyOf"), quantity, "{path}");
            assert_eq!(node.get("type").is_some_and(Value::is_string), !quantity, "{path}: {node:?}");
            for required in node.get("required").and_then(Value::as_array).into_iter().flatten() {
                assert!(node["properties"].get(required.as_str().unwrap()).is_some(), "{path} requires {required}");
            }
            for key in node.get("x-kubernetes-list-map-keys").and_then(Value::as_array).into_iter().flatten() {
                let item = &node["items"];
                let key = key.as_str().unwrap();
                let required = item["required"].as_array().is_some_and(|names| names.contains(&json!(key)));
                assert!(required || item["properties"][key].get("default").is_some(), "{path}: key {key}");
            }
        });
    }
    assert!(seen > 2000, "only {seen} nodes visited");
}

#[test]
fn versions_follow_the_conversion_rules() {
    let mut unserved = Vec::new();
    for kind in kinds::ALL.iter().filter(|kind| kind.is_kueues()) {
        let definition = crd::definition(kind).unwrap();
        let versions = definition["spec"]["versions"].as_array().unwrap().clone();
        let summary: Vec<_> = versions.iter().map(|v| (v["name"].clone(), v["storage"].clone())).collect();
        assert_eq!(summary, [(json!("v1beta1"), json!(false)), (json!("v1beta2"), json!(true))]);
        assert_eq!(versions[1]["served"], json!(true));
        assert_eq!(versions[0].get("deprecationWarning").is_some(), kind.kind != "MultiKueueConfig");
        if versions[0]["served"] == json!(false) {
            unserved.push(kind.kind);
        }
    }
    assert_eq!(unserved, ["ClusterQueue", "Cohort", "LocalQueue", "MultiKueueCluster", "Workload"]);
}

#[test]
fn defaults_and_requirements_are_the_documented_ones() {
    let queue = storage_schema("ClusterQueue");
    let spec = &queue["properties"]["spec"];
    assert_eq!(queue.get("required"), None);
    assert_eq!(spec["properties"]["preemption"]["default"], json!({}));
    assert_eq!(spec["properties"]["queueingStrategy"]["default"], json!("BestEffortFIFO"));
    let mut defaults = Vec::new();
    every(&queue, "", &mut |path, node| {
        if node.contains_key("default") {
            defaults.push(path.to_owned());
        }
    });
    assert_eq!(defaults.len(), 11, "{defaults:?}");
    let class = storage_schema("WorkloadPriorityClass");
    assert_eq!(class["required"], json!(["value"]));
    let workload = storage_schema("Workload");
    let template = &workload["properties"]["spec"]["properties"]["podSets"]["items"]["properties"]["template"];
    let ports = &template["properties"]["spec"]["properties"]["containers"]["items"]["properties"]["ports"];
    assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["containerPort", "protocol"]));
    assert_eq!(ports["items"]["properties"]["protocol"]["default"], json!("TCP"));
    assert_eq!(workload["x-kubernetes-validations"].as_array().map(Vec::len), Some(7));
}
