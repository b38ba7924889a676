//! Tests of the generated CRDs.

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
fn crd_files_are_up_to_date() {
    let stale: Vec<String> = stale_files(&repository_crds()).unwrap().into_iter().map(|(name, _)| name).collect();
    assert!(stale.is_empty(), "run `make crds`; stale: {stale:?}");
    let files = std::fs::read_dir(repository_crds()).unwrap().count();
    assert_eq!(files, kinds::ALL.len() + 1, "crds/ holds one file per kind, their list, and nothing else");
}

#[test]
fn crd_yaml_equals_its_definition() {
    for kind in kinds::ALL {
        let read: Value = serde_saphyr::from_str(&crd::yaml(kind).unwrap()).unwrap();
        assert_eq!(read, crd::definition(kind).unwrap(), "{}", kind.kind);
    }
}

#[test]
fn crd_schemas_are_structural() {
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
fn crd_versions_follow_kueue_in_storage_serving_and_deprecation() {
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
fn crd_defaults_and_required_fields_are_the_documented_ones() {
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

const NOT_REMOVED: &str = "field is immutable: it must not be removed";

/// CEL rules that Kueue's CRDs do not have (docs/departures/0027-rules-in-the-crd.md), by kind and field, for both API versions.
const BEYOND_KUEUE: [(&str, &str, &str); 35] = [
    ("AdmissionCheck", ".spec.controllerName", NOT_REMOVED),
    ("LocalQueue", ".spec.clusterQueue", NOT_REMOVED),
    ("LocalQueue", ".spec.clusterQueue", NOT_REMOVED),
    ("ResourceFlavor", ".spec.topologyName", NOT_REMOVED),
    ("Topology", ".spec.levels", NOT_REMOVED),
    ("ClusterQueue", ".spec.resourceGroups[].flavors[].resources[].nominalQuota", "must be greater than or equal to 0"),
    (
        "ClusterQueue",
        ".spec.resourceGroups[].flavors[].resources[].borrowingLimit",
        "must be greater than or equal to 0",
    ),
    ("ClusterQueue", ".spec.resourceGroups[].flavors[].resources[].lendingLimit", "must be greater than or equal to 0"),
    (
        "ClusterQueue",
        ".spec.resourceGroups[].flavors",
        "the name of each resource must match the name in coveredResources",
    ),
    ("Cohort", ".spec.resourceGroups[].flavors[].resources[].nominalQuota", "must be greater than or equal to 0"),
    ("Cohort", ".spec.resourceGroups[].flavors[].resources[].borrowingLimit", "must be greater than or equal to 0"),
    ("Cohort", ".spec.resourceGroups[].flavors[].resources[].lendingLimit", "must be greater than or equal to 0"),
    ("Cohort", ".spec.resourceGroups[].flavors", "the name of each resource must match the name in coveredResources"),
    ("ClusterQueue", ".spec.fairSharing.weight", "must be greater than or equal to 0"),
    ("ClusterQueue", ".spec.fairSharing.weight", "must be 0 or greater than 1n"),
    ("Cohort", ".spec.fairSharing.weight", "must be greater than or equal to 0"),
    ("Cohort", ".spec.fairSharing.weight", "must be 0 or greater than 1n"),
    ("LocalQueue", ".spec.fairSharing.weight", "must be greater than or equal to 0"),
    ("LocalQueue", ".spec.fairSharing.weight", "must be 0 or greater than 1n"),
    ("ClusterQueue", ".spec.resourceGroups", "each resource must be covered by one group only, and once"),
    ("ClusterQueue", ".spec.resourceGroups", "each flavor must be in one group only, and once"),
    ("ClusterQueue", ".spec.resourceGroups", "lendingLimit must be less than or equal to the nominalQuota"),
    ("ClusterQueue", ".spec.resourceGroups", "total number of flavors of all resourceGroups must be at most 256"),
    (
        "ClusterQueue",
        ".spec.resourceGroups",
        "total number of covered resources of all resourceGroups must be at most 256",
    ),
    ("ClusterQueue", ".spec.resourceGroups", "pairs of flavor and resource in a resourceGroup must be at most 512"),
    ("ClusterQueue", ".spec", "lendingLimit must be nil when cohort is empty"),
    (
        "ClusterQueue",
        ".spec.namespaceSelector.matchExpressions",
        "supported operators: In, NotIn, Exists, DoesNotExist",
    ),
    (
        "ClusterQueue",
        ".spec.namespaceSelector.matchExpressions",
        "values must be specified when the operator is In or NotIn",
    ),
    (
        "ClusterQueue",
        ".spec.namespaceSelector.matchExpressions",
        "values must be empty when the operator is Exists or DoesNotExist",
    ),
    ("Cohort", ".spec", "borrowingLimit must be nil when parent is empty"),
    ("Cohort", ".spec", "lendingLimit must be nil when parent is empty"),
    ("ResourceFlavor", ".spec.nodeTaints", "taints must be unique by key and effect pair"),
    ("Workload", ".spec.podSets", "at most one podSet can use minCount"),
    (
        "Workload",
        ".spec.podSets[].topologyRequest.podSetSliceSize",
        "must be set together with podSetSliceRequiredTopology",
    ),
    (
        "Workload",
        ".spec.podSets[].topologyRequest.podSetSliceSize",
        "must not be set without podSetSliceRequiredTopology",
    ),
];

/// Number of CEL rules in Kueue's CRDs at ff69552e, in v1beta1 and in v1beta2. `e2e/cases/kueue-fields` has the objects that each of Kueue's CEL rules refuses.
const KUEUES_RULES: [(&str, [usize; 2]); 11] = [
    ("AdmissionCheck", [1, 1]),
    ("ClusterQueue", [4, 4]),
    ("Cohort", [1, 1]),
    ("LocalQueue", [1, 1]),
    ("MultiKueueCluster", [0, 1]),
    ("MultiKueueConfig", [0, 1]),
    ("ProvisioningRequestConfig", [0, 0]),
    ("ResourceFlavor", [8, 8]),
    ("Topology", [3, 3]),
    ("Workload", [14, 23]),
    ("WorkloadPriorityClass", [0, 0]),
];

#[test]
fn crd_validation_rules_are_kueues_plus_the_listed_ones() {
    let kueues: Vec<_> = kinds::ALL.iter().filter(|kind| kind.is_kueues()).collect();
    assert_eq!(kueues.len(), KUEUES_RULES.len());
    for (name, counts) in KUEUES_RULES {
        let kind = kueues.iter().find(|kind| kind.kind == name).unwrap();
        let definition = crd::definition(kind).unwrap();
        for (version, count) in definition["spec"]["versions"].as_array().unwrap().iter().zip(counts) {
            let mut rules = Vec::new();
            every(&version["schema"]["openAPIV3Schema"], "", &mut |path, node| {
                for rule in node.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten() {
                    let field = rule.get("fieldPath").and_then(Value::as_str).unwrap_or_default();
                    rules.push((format!("{path}{field}"), rule["message"].as_str().unwrap().to_owned()));
                }
            });
            let version = &version["name"];
            for (_, place, message) in BEYOND_KUEUE.iter().filter(|(kind, ..)| *kind == name) {
                let at = rules.iter().position(|(at, reported)| at == place && reported == message);
                rules.swap_remove(at.unwrap_or_else(|| panic!("{name} {version} {place} has no rule: {message}")));
            }
            assert_eq!(rules.len(), count, "{name} {version}: Kueue's are {rules:?}");
        }
    }
}

/// A CEL rule on a field is not evaluated when the field is removed, so a field that is immutable by such a rule alone could be removed and return with another
/// value.
#[test]
fn immutable_field_cannot_be_removed() {
    let rules = |node: &serde_json::Map<String, Value>| -> Vec<String> {
        let all = node.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
        all.filter_map(|rule| rule["rule"].as_str()).map(str::to_owned).collect()
    };
    let mut seen = 0;
    for (name, schema) in schemas() {
        let over_all = rules(schema.as_object().unwrap());
        // Required fields and CEL rules of each object in a CRD's schema, by the object's path.
        let mut places = std::collections::BTreeMap::new();
        every(&schema, "", &mut |path, node| {
            if path.matches('.').count() > 3 {
                return;
            }
            places.insert(path.to_owned(), (node.get("required").cloned().unwrap_or_default(), rules(node)));
            if !rules(node).iter().any(|rule| rule == "self == oldSelf") {
                return;
            }
            seen += 1;
            let with_spec = format!("!has(oldSelf{path}) || has(self.spec)");
            assert!(
                over_all.iter().any(|rule| rule.contains(&with_spec)),
                "{name} {path} can be removed with its spec"
            );
            let (parent, field) = path.rsplit_once('.').unwrap();
            let (required, rules) = &places[parent];
            let required = required.as_array().is_some_and(|all| all.contains(&json!(field)));
            let stays = rules.iter().any(|rule| rule.starts_with(&format!("!has(oldSelf.{field}) || ")));
            assert!(required || stays, "{name} {path} can be removed");
        });
    }
    assert!(seen >= 6, "{seen} fields never change");
}

/// TLS of clients, servers and checkpoint stores uses the only cryptography provider that is linked into Berth; rustls panics at its first use if two providers
/// are linked.
#[test]
fn lock_file_links_ring_as_the_only_cryptography_provider() {
    let lock = std::fs::read_to_string(repository_crds().join("../Cargo.lock")).unwrap();
    let is_linked = |name: &str| lock.contains(&format!("\nname = \"{name}\"\n"));
    assert!(is_linked("rustls") && is_linked("ring"));
    for other in ["aws-lc-rs", "aws-lc-sys", "openssl", "native-tls"] {
        assert!(!is_linked(other), "{other} is in Cargo.lock: take features on ring");
    }
}
