use super::*;
use berth_api::{ClusterQueue, ResourceFlavor};
use std::path::{Path, PathBuf};

/// A capacity table with two tiers, a ClusterQueue, and two families; one tier does not offer one of the families.
const TABLE: &str = "apiVersion: config.berth.dev/v1alpha1
kind: CapacityTable
cloud: gke
tiers:
- name: reserved
- name: spot
families:
- name: h100
  nodeLabels: {accelerator: h100}
  resources: [nvidia.com/gpu]
  reservation: r
  tiers: {spot: {name: cheap}}
- name: cpu
  resources: [cpu, memory]
  tiers: {reserved: {offered: false}}
clusterQueues:
- name: q
  spec: {namespaceSelector: {}}
  quotas:
    h100: {reserved: 8, spot: 16}
    cpu:
      spot: {cpu: 100, memory: 1Ti}
";

fn examples(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(path)
}

fn replaced(from: &str, to: &str) -> String {
    assert_eq!(TABLE.matches(from).count(), 1, "{from}");
    TABLE.replace(from, to)
}

fn at<'v>(object: &'v Value, path: &str) -> &'v str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn names(objects: &[Value], kind: &str) -> Vec<String> {
    let of_kind = objects.iter().filter(|object| at(object, "/kind") == kind);
    of_kind.map(|object| at(object, "/metadata/name").to_owned()).collect()
}

fn found<'v>(objects: &'v [Value], name: &str) -> &'v Value {
    objects.iter().find(|object| at(object, "/metadata/name") == name).unwrap()
}

/// Names of the flavors in the first resource group of a ClusterQueue, in order.
fn order(queue: &Value) -> Vec<&str> {
    let flavors = queue.pointer("/spec/resourceGroups/0/flavors").and_then(Value::as_array).unwrap();
    flavors.iter().map(|flavor| at(flavor, "/name")).collect()
}

/// The queues.yaml of examples/capacity-table equals the output for its table. The environment variable `UPDATE=1` makes the test rewrite queues.yaml.
#[test]
fn capacity_table_example_equals_the_output_for_its_table() {
    let folder = examples("capacity-table");
    let table = std::fs::read_to_string(folder.join("table/capacity.yaml")).unwrap();
    let made = manifests("capacity.yaml", &table).unwrap();
    assert_eq!(made, manifests("capacity.yaml", &table).unwrap(), "the same twice");
    let path = folder.join("queues.yaml");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    assert_eq!(made, std::fs::read_to_string(&path).unwrap());
}

/// A one-family table for each cloud gives the flavors and the ClusterQueue that examples/capacity-tiers spells out.
#[test]
fn cloud_presets_generate_the_flavors_and_queues_of_the_examples() {
    let gpu = "tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}], resources: [nvidia.com/gpu]";
    let tpu = "tolerations: [{key: google.com/tpu, operator: Exists, effect: NoSchedule}], resources: [google.com/tpu], \
               nodeLabels: {cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice}, nodeAffinity: false";
    let sku = gpu.replace("}], ", "}, {key: sku, operator: Equal, value: gpu, effect: NoSchedule}], ");
    let h100 = "nodeLabels: {cloud.google.com/gke-accelerator: nvidia-h100-80gb}, reservation: h100";
    let p5 = "nodeLabels: {node.kubernetes.io/instance-type: p5.48xlarge}";
    let called = "tiers: {reserved: {name: metal-owned}, on-demand: {name: metal-lent}, spot: {name: metal-recalled}}";
    for (file, cloud, name, family, quotas) in [
        ("gke-gpu", "gke", "gke-gpu", format!("{gpu}, {h100}"), [64, 32, 64]),
        ("gke-tpu", "gke", "gke-tpu", format!("{tpu}, reservation: quickstart"), [8, 8, 16]),
        ("axlearn", "gke", "axlearn", format!("{tpu}, reservation: my-reservation"), [256, 64, 512]),
        ("eks-karpenter", "karpenter", "eks-gpu", format!("{gpu}, {p5}"), [64, 32, 64]),
        ("aks", "aks", "aks-gpu", sku, [64, 32, 64]),
        (
            "bare-metal",
            "bare-metal\ncapacityLabel: example.com/capacity",
            "metal",
            format!("resources: [nvidia.com/gpu], {called}"),
            [64, 32, 64],
        ),
    ] {
        let [reserved, on_demand, spot] = quotas;
        let made = objects(&format!(
            "apiVersion: config.berth.dev/v1alpha1\nkind: CapacityTable\ncloud: {cloud}\nfamilies:\n\
             - {{name: {name}, {family}}}\nclusterQueues:\n- name: {name}\n  spec: {{namespaceSelector: {{}}}}\n  \
             quotas: {{{name}: {{reserved: {reserved}, on-demand: {on_demand}, spot: {spot}}}}}\n"
        ));
        let made = made.unwrap_or_else(|fault| panic!("{file}: {fault}"));
        let text = std::fs::read_to_string(examples("capacity-tiers").join(format!("{file}.yaml"))).unwrap();
        let mut written: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        // The resource flavor for cpu and memory of the machines has no tiers, so the table does not generate this flavor.
        let host = format!("{name}-host");
        written.retain(|object| at(object, "/kind") != "WorkloadPriorityClass" && at(object, "/metadata/name") != host);
        assert_eq!(written.len(), made.len() + 1, "{file}: and its policy");
        for (made, written) in made.iter().zip(&written) {
            // Objects are compared after decoding, since 64 and "64" are equal quantities.
            match at(written, "/kind") {
                "ResourceFlavor" => {
                    let read = |value: &Value| serde_json::from_value::<ResourceFlavor>(value.clone()).unwrap();
                    assert_eq!(read(made), read(written), "{file}");
                }
                _ => {
                    let read = |value: &Value| serde_json::from_value::<ClusterQueue>(value.clone()).unwrap();
                    let mut queue = read(written);
                    let rest = queue.spec.resource_groups.pop().unwrap();
                    assert_eq!(rest.covered_resources, ["cpu", "memory", "ephemeral-storage"], "{file}");
                    assert_eq!(rest.flavors.iter().map(|given| &given.name).collect::<Vec<_>>(), [&host], "{file}");
                    assert_eq!(read(made), queue, "{file}");
                }
            }
        }
    }
}

#[test]
fn capacity_table_of_ten_families_orders_flavors_by_tier_first() {
    let families: String = (0..10).map(|n| format!("- {{name: f{n}, resources: [gpu], reservation: r}}\n")).collect();
    let quotas: String = (0..10).map(|n| format!("    f{n}: {{reserved: {n}, on-demand: 1, spot: 2}}\n")).collect();
    let made = objects(&format!(
        "apiVersion: config.berth.dev/v1alpha1\nkind: CapacityTable\ncloud: gke\nfamilies:\n{families}clusterQueues:\n\
         - name: q\n  spec: {{namespaceSelector: {{}}}}\n  quotas:\n{quotas}"
    ))
    .unwrap();
    assert_eq!(names(&made, "ResourceFlavor").len(), 30);
    let order = order(found(&made, "q"));
    assert_eq!(order[..3], ["f0-reserved", "f1-reserved", "f2-reserved"], "the best tier of all families comes first");
    assert_eq!((order.len(), order[29]), (30, "f9-spot"));
}

#[test]
fn capacity_cell_may_override_fields_or_be_absent() {
    let made = objects(TABLE).unwrap();
    assert_eq!(names(&made, "ResourceFlavor"), ["h100-reserved", "cheap", "cpu-spot"]);
    let groups = found(&made, "q").pointer("/spec/resourceGroups").and_then(Value::as_array).unwrap();
    assert_eq!(groups[0]["flavors"][1]["resources"][0]["nominalQuota"], "16");
    assert_eq!(groups[1]["coveredResources"], serde_json::json!(["cpu", "memory"]));
    let cell = "{name: cheap, nodeLabels: {accelerator: h100-small}, nodeTaints: [{key: a, effect: NoExecute}], \
                tolerations: [{operator: Exists}], forbiddenNodeLabels: [a=b, c]}";
    let made = objects(&replaced("{name: cheap}", cell)).unwrap();
    let cheap = found(&made, "cheap");
    assert_eq!(at(cheap, "/metadata/annotations/berth.dev~1forbidden-node-labels"), "a=b,c");
    assert_eq!(at(cheap, "/spec/nodeLabels/accelerator"), "h100-small");
    assert_eq!(cheap.pointer("/spec/nodeTaints").and_then(Value::as_array).map(Vec::len), Some(2));
    assert_eq!(at(cheap, "/spec/tolerations/1/operator"), "Exists");
    assert_eq!(at(found(&made, "h100-reserved"), "/spec/nodeLabels/cloud.google.com~1reservation-name"), "r");
}

#[test]
fn tier_row_replaces_cloud_preset_field_by_field() {
    let row = "- name: spot\n  nodeLabels: {pool: cheap, of: '{reservation}'}\n  forbiddenNodeLabels: []";
    let reserved = "  resources: [cpu, memory]\n  reservation: s";
    let made = objects(&replaced("- name: spot", row).replace("  resources: [cpu, memory]", reserved)).unwrap();
    let cheap = found(&made, "cheap");
    let labels = serde_json::json!({"accelerator": "h100", "of": "r", "pool": "cheap"});
    assert_eq!(cheap.pointer("/spec/nodeLabels"), Some(&labels));
    assert_eq!(cheap.pointer("/metadata/annotations"), None);
    assert_eq!(at(cheap, "/spec/nodeTaints/0/key"), "cloud.google.com/gke-spot", "what is not said stays");
    let own = replaced("cloud: gke\n", "").replace("- name: reserved", "- {name: reserved, nodeLabels: {pool: ours}}");
    let made = objects(&own).unwrap();
    assert_eq!(at(found(&made, "h100-reserved"), "/spec/nodeLabels/pool"), "ours");
    let eks = "apiVersion: config.berth.dev/v1alpha1\nkind: CapacityTable\ncloud: eks\nfamilies: [{name: a, resources: [gpu]}]\n";
    let made = objects(eks).unwrap();
    assert_eq!(names(&made, "ResourceFlavor"), ["a-on-demand", "a-spot"]);
    assert_eq!(at(&made[0], "/spec/nodeLabels/eks.amazonaws.com~1capacityType"), "ON_DEMAND");
}

/// Each error message names the line or the field, the value, and what is allowed.
#[test]
fn capacity_table_fault_names_line_field_value_and_allowed() {
    let nine: String = (0..9).map(|n| format!("a{n}: b, ")).collect();
    let nine = format!("{{{nine}}}");
    let cases: Vec<(&str, &str, Vec<&str>)> = vec![
        ("kind: CapacityTable", "kind: Table", vec!["\"Table\"", "config.berth.dev/v1alpha1 with kind CapacityTable"]),
        ("v1alpha1", "v2", vec!["\"config.berth.dev/v2\"", "allowed is config.berth.dev/v1alpha1"]),
        (
            "cloud: gke",
            "cloud: gce",
            vec!["line 3: cloud: \"gce\"", "allowed are gke, eks, karpenter, aks, bare-metal"],
        ),
        (
            "cloud: gke",
            "cloud: gke\ncapacityLabel: a",
            vec!["line 4: capacityLabel: gke", "for aks and bare-metal only"],
        ),
        ("cloud: gke", "cloud: bare-metal", vec!["capacityLabel: is missing", "owned, lent and recallable"]),
        ("cloud: gke", "capacityLabel: a", vec!["line 3: capacityLabel", "cloud aks or bare-metal only"]),
        ("cloud: gke", "clouds: gke", vec!["line 3", "unknown field `clouds`"]),
        (
            "- name: spot",
            "- name: Spot",
            vec!["line 6: tiers[1].name: \"Spot\"", "allowed are reserved, on-demand and spot"],
        ),
        ("- name: spot", "- name: reserved", vec!["line 6: tiers[1].name: reserved comes twice"]),
        (
            "cloud: gke",
            "cloud: eks",
            vec!["line 5: tiers[0].name: eks has no label of its own for reserved", "nodeLabels"],
        ),
        ("- name: cpu\n", "- name: h100\n", vec!["line 13: families[1] \"h100\"", "another family's"]),
        ("[nvidia.com/gpu]", "[]", vec!["line 8: families[0] \"h100\": resources: there is none"]),
        ("[nvidia.com/gpu]", "[a b]", vec!["resources: \"a b\"", "alphanumeric"]),
        ("[cpu, memory]", "[cpu, cpu]", vec!["line 13: families[1] \"cpu\": resources: \"cpu\" comes twice"]),
        (
            "  reservation: r\n",
            "",
            vec!["families[0] \"h100\": tier reserved: reservation is missing", "offered to false"],
        ),
        (
            "{spot: {name: cheap}}",
            "{on-demand: {}}",
            vec!["\"on-demand\" is no tier of this table", "are reserved, spot"],
        ),
        ("{name: cheap}", "{name: Cheap}", vec!["line 12: families[0] \"h100\": tier spot", "\"Cheap\"", "lower case"]),
        (
            "{name: cheap}",
            "{name: h100-reserved}",
            vec!["called \"h100-reserved\", as that of families[0] \"h100\": tier res"],
        ),
        ("{name: cheap}", "{price: 3}", vec!["line 12", "unknown field `price`"]),
        ("{name: cheap}", "{tolerations: [{key: a, operator: Exists, value: b}]}", vec!["tolerations: value is \"b\""]),
        ("{name: cheap}", "{tolerations: [{value: b}]}", vec!["operator must be Exists where key is absent"]),
        ("{name: cheap}", "{tolerations: [{key: a, effect: Never}]}", vec!["\"Never\"", "\"NoSchedule\""]),
        ("{name: cheap}", "{tolerations: [{key: a, tolerationSeconds: 5}]}", vec!["effect must be NoExecute"]),
        (
            "{name: cheap}",
            "{nodeTaints: [{key: a, effect: Never}]}",
            vec!["spec.nodeTaints", "\"Never\"", "\"NoExecute\""],
        ),
        (
            "{name: cheap}",
            "{forbiddenNodeLabels: [accelerator=h100]}",
            vec!["\"accelerator=h100\" is selected by nodeLabels"],
        ),
        ("{name: cheap}", "{forbiddenNodeLabels: [a b]}", vec!["\"a b\"", "allowed are key and key=value"]),
        (
            "{accelerator: h100}",
            "{cloud.google.com/reservation-name: x}",
            vec!["is \"x\" for the family and \"r\" for the tier", "tiers.reserved.nodeLabels"],
        ),
        ("{accelerator: h100}", nine.as_str(), vec!["tier reserved: nodeLabels: 10", "at most 8"]),
        ("{accelerator: h100}", "{accelerator: a b}", vec!["spec.nodeLabels[accelerator]", "\"a b\"", "alphanumeric"]),
        ("- name: q\n", "- name: Q\n", vec!["line 17: clusterQueues[0] \"Q\": the name", "lower case"]),
        ("- name: q\n", "- labels: {}\n", vec!["missing field `name`"]),
        (
            "{namespaceSelector: {}}",
            "{}",
            vec!["line 17: clusterQueues[0] \"q\": spec.namespaceSelector is missing", "{} is all"],
        ),
        ("Selector: {}}", "Selector: {}, cohort: a}", vec!["spec.cohort: a ClusterQueue has no such field"]),
        ("Selector: {}}", "Selector: {}, queueingStrategy: LIFO}", vec!["\"LIFO\"", "\"StrictFIFO\""]),
        ("Selector: {}}", "Selector: {}, stopPolicy: 5}", vec!["spec.stopPolicy: invalid type: integer `5`"]),
        ("Selector: {}}", "Selector: {}, resourceGroups: []}", vec!["spec.resourceGroups", "made of quotas"]),
        (
            "reserved: 8",
            "reserved: -8",
            vec!["line 20: clusterQueues[0] \"q\": quotas.h100.reserved", "\"-8\" must not be neg"],
        ),
        ("reserved: 8", "reserved: many", vec!["line 20", "\"many\" is not a quantity"]),
        ("reserved: 8", "reserved: true", vec!["an amount such as 64 or 1Ti"]),
        (
            "reserved: 8",
            "on-demand: 8",
            vec!["line 20", "\"on-demand\" is no tier of this table", "are reserved, spot"],
        ),
        ("    h100: {", "    h200: {", vec!["\"h200\" is no family of this table; allowed are h100, cpu"]),
        ("spot: {cpu: 100, memory: 1Ti}", "spot: 5", vec!["line 22", "quotas.cpu.spot: 5 of what?", "cpu, memory"]),
        (", memory: 1Ti}", "}", vec!["line 22", "memory is missing"]),
        (
            ", memory: 1Ti}",
            ", memory: 1, gpu: 1}",
            vec!["\"gpu\" is no resource of the family; allowed are cpu, memory"],
        ),
        (
            "      spot: {",
            "      reserved: {",
            vec!["line 22", "quotas.cpu.reserved: the family is not offered in this tier"],
        ),
        ("cpu: 100", "cpu: {nominalQuota: 1, lendingLimit: 1}", vec!["lendingLimit", "\"1\"", "when cohort is empty"]),
        ("cpu: 100", "cpu: {nominal: 1}", vec!["unknown field `nominal`"]),
        (
            "[cpu, memory]",
            "[cpu, nvidia.com/gpu]",
            vec!["\"h100\" (nvidia.com/gpu) and \"cpu\"", "share nvidia.com/gpu"],
        ),
    ];
    for (from, to, parts) in cases {
        let fault = objects(&replaced(from, to)).unwrap_err();
        for part in parts {
            assert!(fault.contains(part), "{to}: {part:?} is not in\n{fault}");
        }
        assert!(!fault.contains('\n'), "{fault}");
    }
    let twice = format!("{TABLE}- name: q\n  spec: {{namespaceSelector: {{}}}}\n  quotas: {{h100: {{spot: 1}}}}\n");
    assert_eq!(objects(&twice).unwrap_err(), "line 23: clusterQueues[1] \"q\": the name is another queue's, too");
    let idle = format!("{TABLE}- name: idle\n  spec: {{namespaceSelector: {{}}}}\n");
    assert!(objects(&idle).unwrap_err().starts_with("line 23: clusterQueues[1] \"idle\": quotas: there is none"));
    let head = "apiVersion: config.berth.dev/v1alpha1\nkind: CapacityTable\n";
    assert!(objects(head).unwrap_err().starts_with("families: there is none"));
    let bare = format!("{head}families: [{{name: a, resources: [b]}}]\n");
    assert!(objects(&bare).unwrap_err().starts_with("tiers: there is none"));
    assert!(objects("").is_err() && objects("[]").is_err() && objects("a: [").is_err());
}

/// Kueue's limits on resource groups are reported before the API server would refuse the ClusterQueue.
#[test]
fn capacity_table_beyond_resource_group_limits_is_refused() {
    let families: String = (0..22).map(|n| format!("- {{name: f{n}, resources: [gpu], reservation: r}}\n")).collect();
    let quotas: String = (0..22).map(|n| format!("    f{n}: {{reserved: 1, on-demand: 1, spot: 1}}\n")).collect();
    let fault = objects(&format!(
        "apiVersion: config.berth.dev/v1alpha1\nkind: CapacityTable\ncloud: gke\nfamilies:\n{families}clusterQueues:\n\
         - name: q\n  spec: {{namespaceSelector: {{}}}}\n  quotas:\n{quotas}"
    ));
    let expected = "line 28: clusterQueues[0] \"q\": 66 flavors for gpu; a resource group has at most 64";
    assert_eq!(fault.unwrap_err(), expected);
    let families: String = (0..17).map(|n| format!("- {{name: f{n}, resources: [r{n}], reservation: r}}\n")).collect();
    let quotas: String = (0..17).map(|n| format!("    f{n}: {{spot: 1}}\n")).collect();
    let fault = objects(&format!(
        "apiVersion: config.berth.dev/v1alpha1\nkind: CapacityTable\ncloud: gke\nfamilies:\n{families}clusterQueues:\n\
         - name: q\n  spec: {{namespaceSelector: {{}}}}\n  quotas:\n{quotas}"
    ));
    assert!(fault.unwrap_err().ends_with("17 resource groups; at most 16 are allowed"));
}
