use serde_json::{Value, json};

use super::*;
use crate::labels::NOT_IN_V1BETA1;

fn to(version: Version, object: &Value) -> Value {
    let mut out = object.as_object().unwrap().clone();
    convert(&mut out, version).unwrap();
    Value::Object(out)
}

fn object(kind: &str, version: Version, rest: &Value) -> Value {
    let mut out = json!({"apiVersion": version.api_version(), "kind": kind, "metadata": {"name": "n", "uid": "u"}});
    out.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    out
}

fn older(kind: &str, rest: Value) -> Value {
    object(kind, Version::V1beta1, &rest)
}

fn newer(kind: &str, rest: Value) -> Value {
    object(kind, Version::V1beta2, &rest)
}

fn carried(object: &Value) -> Value {
    let text = object["metadata"]["annotations"][NOT_IN_V1BETA1].as_str().unwrap_or("null");
    serde_json::from_str(text).unwrap()
}

/// Checks that each version of an object converts to the other without a loss.
fn alike(kind: &str, in_older: Value, in_newer: Value) {
    let (in_older, in_newer) = (older(kind, in_older), newer(kind, in_newer));
    assert_eq!(to(Version::V1beta2, &in_older), in_newer);
    assert_eq!(to(Version::V1beta1, &in_newer), in_older);
}

/// Checks that the object in v1beta1 converts to the object in v1beta2; the way back gives another form in v1beta1.
fn reads_as(kind: &str, in_older: Value, in_newer: Value) {
    assert_eq!(to(Version::V1beta2, &older(kind, in_older)), newer(kind, in_newer));
}

#[test]
fn renamed_fields_keep_their_values() {
    alike(
        "ClusterQueue",
        json!({"spec": {"cohort": "c", "queueingStrategy": "StrictFIFO"}}),
        json!({"spec": {"cohortName": "c", "queueingStrategy": "StrictFIFO"}}),
    );
    alike(
        "LocalQueue",
        json!({"spec": {"clusterQueue": "q"}, "status": {"flavorUsage": [{"name": "f"}]}}),
        json!({"spec": {"clusterQueue": "q"}, "status": {"flavorsUsage": [{"name": "f"}]}}),
    );
    alike(
        "Workload",
        json!({"status": {"accumulatedPastExexcutionTimeSeconds": 7}}),
        json!({"status": {"accumulatedPastExecutionTimeSeconds": 7}}),
    );
    alike(
        "Cohort",
        json!({"spec": {"parentName": "p", "fromTheFuture": [1]}}),
        json!({"spec": {"parentName": "p", "fromTheFuture": [1]}}),
    );
}

#[test]
fn priority_class_name_with_source_converts_to_reference_and_back() {
    for (source, group, kind) in [
        ("kueue.x-k8s.io/workloadpriorityclass", "kueue.x-k8s.io", "WorkloadPriorityClass"),
        ("scheduling.k8s.io/priorityclass", "scheduling.k8s.io", "PriorityClass"),
    ] {
        alike(
            "Workload",
            json!({"spec": {"priority": 3, "priorityClassName": "high", "priorityClassSource": source}}),
            json!({"spec": {"priority": 3, "priorityClassRef": {"group": group, "kind": kind, "name": "high"}}}),
        );
    }
    reads_as(
        "Workload",
        json!({"spec": {"priorityClassName": "high", "priorityClassSource": ""}}),
        json!({"spec": {}}),
    );
    reads_as("Workload", json!({"spec": {"priorityClassSource": ""}}), json!({"spec": {}}));
    let odd = newer("Workload", json!({"spec": {"priorityClassRef": {"group": "g", "kind": "k", "name": "n"}}}));
    let mut down = to(Version::V1beta1, &odd);
    assert_eq!(down["spec"], json!({}));
    down["spec"]["priorityClassSource"] = json!("");
    assert_eq!(to(Version::V1beta2, &down), odd, "a default of the server is no edit");
}

#[test]
fn cluster_queue_admission_checks_convert_to_admission_checks_strategy() {
    let strategy =
        json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": ["f"]}]}}});
    alike("ClusterQueue", strategy.clone(), strategy);
    reads_as(
        "ClusterQueue",
        json!({"spec": {"admissionChecks": ["a", "b", "a"], "admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}}}),
        json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}}}),
    );
    reads_as(
        "ClusterQueue",
        json!({"spec": {"admissionChecks": [], "admissionChecksStrategy": {}}}),
        json!({"spec": {}}),
    );
}

/// The manifests of queues from requirement E.3 (docs/requirements.md); the manifests of its ResourceFlavors need no conversion.
#[test]
fn queue_manifests_of_requirement_e3_convert_both_ways_without_loss() {
    let groups = json!([{"coveredResources": ["cpu", "memory", "nvidia.com/gpu"], "flavors": [
        {"name": "gpu-a100", "resources": [
            {"name": "cpu", "nominalQuota": 100}, {"name": "memory", "nominalQuota": "500Gi"},
            {"name": "nvidia.com/gpu", "nominalQuota": 16, "borrowingLimit": 8},
        ]},
        {"name": "gpu-v100", "resources": [
            {"name": "cpu", "nominalQuota": 100}, {"name": "memory", "nominalQuota": "500Gi"},
            {"name": "nvidia.com/gpu", "nominalQuota": 32},
        ]},
    ]}]);
    let preemption = json!({"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"});
    alike(
        "ClusterQueue",
        json!({"spec": {"namespaceSelector": {}, "cohort": "research", "resourceGroups": groups, "preemption": preemption}}),
        json!({"spec": {"namespaceSelector": {}, "cohortName": "research", "resourceGroups": groups, "preemption": preemption}}),
    );
    let door = json!({"spec": {"clusterQueue": "team"}});
    alike("LocalQueue", door.clone(), door);
}

#[test]
fn removed_v1beta1_fields_are_dropped_and_old_enum_values_renamed() {
    reads_as(
        "ClusterQueue",
        json!({
            "spec": {"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}},
            "status": {
                "pendingWorkloads": 1,
                "pendingWorkloadsStatus": {"lastChangeTime": "2024-01-01T00:00:00Z"},
                "fairSharing": {"weightedShare": 5, "admissionFairSharingStatus": {}},
            },
        }),
        json!({
            "spec": {"flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}},
            "status": {"pendingWorkloads": 1, "fairSharing": {"weightedShare": 5}},
        }),
    );
    let kept =
        json!({"spec": {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "MayStopSearch"}}});
    alike("ClusterQueue", kept.clone(), kept);
    reads_as(
        "Cohort",
        json!({"status": {"fairSharing": {"weightedShare": 5, "admissionFairSharingStatus": {}}}}),
        json!({"status": {"fairSharing": {"weightedShare": 5}}}),
    );
    reads_as("LocalQueue", json!({"status": {"flavors": [{"name": "f"}]}}), json!({"status": {}}));
    let decayed =
        json!({"status": {"fairSharing": {"weightedShare": 5, "admissionFairSharingStatus": {"lastUpdate": "t"}}}});
    alike("LocalQueue", decayed.clone(), decayed);
}

#[test]
fn multi_kueue_cluster_kube_config_or_profile_becomes_cluster_source() {
    let config = json!({"location": "secret", "locationType": "Secret"});
    alike(
        "MultiKueueCluster",
        json!({"spec": {"kubeConfig": config}}),
        json!({"spec": {"clusterSource": {"kubeConfig": config}}}),
    );
    let none = json!({"location": "", "locationType": "Secret"});
    alike(
        "MultiKueueCluster",
        json!({"spec": {"kubeConfig": none, "clusterProfileRef": {"name": "p"}}}),
        json!({"spec": {"clusterSource": {"clusterProfileRef": {"name": "p"}}}}),
    );
    reads_as("MultiKueueCluster", json!({"spec": {"kubeConfig": none}}), json!({"spec": {}}));
}

fn assigned(assignment: Value) -> Value {
    json!({"status": {"admission": {"clusterQueue": "q", "podSetAssignments": [
        {"name": "main", "count": 3, "topologyAssignment": assignment},
    ]}}})
}

#[test]
fn topology_assignment_keeps_its_domains_in_both_versions() {
    let domain = |block: &str, host: &str, count: i64| json!({"values": [block, host], "count": count});
    alike(
        "Workload",
        assigned(
            json!({"levels": ["block", "host"], "domains": [domain("b", "node-17.x", 1), domain("b", "node-4.x", 2)]}),
        ),
        assigned(json!({"levels": ["block", "host"], "slices": [{
            "domainCount": 2,
            "valuesPerLevel": [{"universal": "b"}, {"individual": {"prefix": "node-", "roots": ["17", "4"], "suffix": ".x"}}],
            "podCounts": {"individual": [1, 2]},
        }]})),
    );
    // Every valid encoding of the domains of an assignment is read.
    let several = newer(
        "Workload",
        assigned(json!({"levels": ["host"], "slices": [
            {"domainCount": 2, "valuesPerLevel": [{"individual": {"roots": ["a", "b"]}}], "podCounts": {"universal": 1}},
            {"domainCount": 1, "valuesPerLevel": [{"individual": {"roots": [""], "prefix": "c"}}], "podCounts": {"individual": [4]}},
        ]})),
    );
    let flat = to(Version::V1beta1, &several);
    let domains = &flat["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]["domains"];
    assert_eq!(
        *domains,
        json!([
            {"values": ["a"], "count": 1}, {"values": ["b"], "count": 1}, {"values": ["c"], "count": 4},
        ])
    );
    assert_eq!(flat["metadata"], several["metadata"], "another encoding of the same domains is not carried");
    assert_eq!(to(Version::V1beta1, &to(Version::V1beta2, &flat)), flat);
}

#[test]
fn domain_values_whose_prefix_and_suffix_overlap_survive_conversion() {
    let domains =
        json!([{"values": ["aa"], "count": 1}, {"values": ["aaa"], "count": 1}, {"values": ["äaä"], "count": 1}]);
    for length in [2, 3] {
        let some: Vec<Value> = domains.as_array().unwrap()[..length].to_vec();
        let flat = older("Workload", assigned(json!({"levels": ["l"], "domains": some})));
        assert_eq!(to(Version::V1beta1, &to(Version::V1beta2, &flat)), flat);
    }
}

#[test]
fn unreadable_topology_assignment_is_carried_and_shown_without_domains() {
    let huge = json!({"levels": ["l"], "slices": [
        {"domainCount": 2_000_000_000, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": 1}},
    ]});
    let uneven = json!({"levels": ["l"], "slices": [
        {"domainCount": 2, "valuesPerLevel": [{"individual": {"roots": ["a"]}}], "podCounts": {"universal": 1}},
    ]});
    for odd in [huge, uneven, json!({"levels": ["l"]})] {
        let stored = newer("Workload", assigned(odd));
        let down = to(Version::V1beta1, &stored);
        let shown = &down["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"];
        assert_eq!(*shown, json!({"levels": ["l"], "domains": []}));
        assert_eq!(to(Version::V1beta2, &down), stored);
    }
    reads_as(
        "Workload",
        assigned(json!({"levels": ["l"], "domains": [{"values": ["a", "b"], "count": 1}]})),
        assigned(json!({"levels": ["l"], "slices": []})),
    );
}

#[test]
fn topology_domains_are_limited_over_all_objects_of_a_review() {
    let workload = |count: u32| {
        let slice =
            json!({"domainCount": count, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": 1}});
        newer("Workload", assigned(json!({"levels": ["l"], "slices": [slice]})))
    };
    let stored = [60_000, 50_000, 40_000, 1].map(workload);
    let review = json!({"request": {
        "uid": "u", "desiredAPIVersion": Version::V1beta1.api_version(), "objects": stored}});
    let (answer, converted) = respond(review.to_string().as_bytes()).unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let objects = answer["response"]["convertedObjects"].as_array().unwrap();
    assert!(converted, "no content of an object is a reason to fail");
    let domains = objects.iter().map(|object| {
        let set = &object["status"]["admission"]["podSetAssignments"][0];
        set["topologyAssignment"]["domains"].as_array().unwrap().len()
    });
    assert_eq!(domains.collect::<Vec<_>>(), [60_000, 0, 40_000, 0]);
    for ((shown, stored), lossless) in objects.iter().zip(&stored).zip([true, false, true, false]) {
        assert_eq!(carried(shown).is_null(), lossless);
        // Slices that did not fit into the review come back in v1beta2, also if there would be room for them now.
        assert!(lossless || to(Version::V1beta2, shown) == *stored, "{stored}");
    }
    // A client that reads a single object in v1beta1 gets all topology domains of the object.
    assert!(stored.iter().all(|stored| carried(&to(Version::V1beta1, stored)).is_null()));
}

fn gated() -> Value {
    newer(
        "Workload",
        json!({
            "spec": {
                "preemptionGates": [{"name": "g"}],
                "podSets": [
                    {"name": "a", "topologyRequest": {"required": "rack", "podsetSliceRequiredTopologyConstraints": [{"topology": "h", "size": 2}]}},
                    {"name": "b", "topologyRequest": {"required": "rack"}},
                ],
            },
            "status": {"preemptionGates": [{"name": "g", "position": "Open", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        }),
    )
}

#[test]
fn fields_unknown_to_v1beta1_are_carried_in_an_annotation() {
    let down = to(Version::V1beta1, &gated());
    assert_eq!(down["spec"]["podSets"][0]["topologyRequest"], json!({"required": "rack"}));
    assert_eq!((&down["spec"].get("preemptionGates"), &down["status"]), (&None, &json!({})));
    let keys: Vec<String> = carried(&down).as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["spec.podSets[a].topologyRequest", "spec.preemptionGates", "status.preemptionGates"]);
    assert_eq!(to(Version::V1beta2, &down), gated());
    let queue = newer(
        "ClusterQueue",
        json!({"spec": {"concurrentAdmissionPolicy": {"migration": {"mode": "RetainFirstAdmission"}}}}),
    );
    let down = to(Version::V1beta1, &queue);
    assert_eq!(down["spec"], json!({}));
    assert_eq!(to(Version::V1beta2, &down), queue);
}

#[test]
fn edit_in_v1beta1_wins_over_carried_field() {
    let mut down = to(Version::V1beta1, &gated());
    down["spec"]["podSets"][0]["topologyRequest"]["required"] = json!("block");
    down["spec"]["podSets"].as_array_mut().unwrap().swap(0, 1);
    let up = to(Version::V1beta2, &down);
    assert_eq!(up["spec"]["podSets"][1]["topologyRequest"], json!({"required": "block"}));
    assert_eq!(up["spec"]["preemptionGates"], json!([{"name": "g"}]), "what was not edited stays");
    assert_eq!(up["metadata"], gated()["metadata"], "the annotation is not stored");

    let mut moved = to(Version::V1beta1, &gated());
    moved["spec"]["podSets"].as_array_mut().unwrap().swap(0, 1);
    assert_eq!(to(Version::V1beta2, &moved)["spec"]["podSets"][1], gated()["spec"]["podSets"][0]);
    let mut renamed = to(Version::V1beta1, &gated());
    renamed["spec"]["podSets"][0]["name"] = json!("c");
    assert_eq!(to(Version::V1beta2, &renamed)["spec"]["podSets"][0]["topologyRequest"], json!({"required": "rack"}));
    let mut bare = to(Version::V1beta1, &gated());
    bare["metadata"].as_object_mut().unwrap().remove("annotations");
    assert_eq!(to(Version::V1beta2, &bare)["spec"].get("preemptionGates"), None, "without the annotation it is lost");
}

#[test]
fn malformed_not_in_v1beta1_annotation_leaves_other_fields_unchanged() {
    let with = |text: &str| {
        let mut object = older("Workload", json!({"spec": {"podSets": []}}));
        object["metadata"]["annotations"] = json!({NOT_IN_V1BETA1: text, "a": "b"});
        to(Version::V1beta2, &object)
    };
    for text in [
        "",
        "7",
        "{",
        "[]",
        r#"{"spec.preemptionGates": 7}"#,
        r#"{"spec.preemptionGates": {"preemptionGates": "x"}}"#,
        r#"{"spec.preemptionGates": {"podSets": [{"name": "smuggled"}]}}"#,
        r#"{"metadata.annotations": {"x": "y"}}"#,
        r#"{"metadata.annotations": {"berth.dev/not-in-v1beta1": 7}}"#,
    ] {
        let up = with(text);
        assert_eq!(
            (&up["spec"], &up["metadata"]["annotations"]),
            (&json!({"podSets": []}), &json!({"a": "b"})),
            "{text}"
        );
    }
    let up = with(r#"{"spec.preemptionGates": {"preemptionGates": [{"name": "g"}], "podSets": 7}}"#);
    assert_eq!(up["spec"], json!({"podSets": [], "preemptionGates": [{"name": "g"}]}));
}

#[test]
fn user_annotations_survive_conversion_and_back_unchanged() {
    let long = "x".repeat(256 * 1024 - 60);
    for annotations in
        [json!({}), json!({"a": "b"}), json!({NOT_IN_V1BETA1: "mine"}), json!({NOT_IN_V1BETA1: "{}", "a": "b"})]
    {
        for mut stored in [gated(), newer("Cohort", json!({"spec": {}}))] {
            stored["metadata"]["annotations"] = annotations.clone();
            assert_eq!(to(Version::V1beta2, &to(Version::V1beta1, &stored)), stored);
        }
    }
    let mut full = gated();
    full["metadata"]["annotations"] = json!({"a": long});
    let down = to(Version::V1beta1, &full);
    assert_eq!(
        down["metadata"], full["metadata"],
        "what does not fit is left out, or the server refuses to read the object"
    );
}

#[test]
fn carried_fields_may_fill_annotations_but_are_lost_beyond_limit() {
    let carrying = carried(&to(Version::V1beta1, &gated())).to_string();
    let room = 256 * 1024 - NOT_IN_V1BETA1.len() - carrying.len() - "a".len();
    let filled = |length: usize| {
        let mut stored = gated();
        stored["metadata"]["annotations"] = json!({"a": "x".repeat(length)});
        stored
    };
    let full = to(Version::V1beta1, &filled(room));
    let sizes = full["metadata"]["annotations"].as_object().unwrap().iter();
    assert_eq!(sizes.map(|(key, value)| key.len() + value.as_str().unwrap().len()).sum::<usize>(), 256 * 1024);
    assert_eq!(to(Version::V1beta2, &full), filled(room), "at the limit nothing is lost");
    let beyond = to(Version::V1beta1, &filled(room + 1));
    assert_eq!(beyond["metadata"], filled(room + 1)["metadata"], "an annotation of the user's never gives way");
    // If the annotations have no room left, only the carried fields are lost, as `docs/departures/0008-conversion.md` says.
    let mut left = filled(room + 1);
    left["spec"].as_object_mut().unwrap().remove("preemptionGates");
    left["spec"]["podSets"][0]["topologyRequest"] = json!({"required": "rack"});
    left["status"] = json!({});
    assert_eq!(to(Version::V1beta2, &beyond), left);
    // The API server refuses annotations that are too large by themselves, and the conversion must not fail because of them.
    for length in [256 * 1024, 16 * 1024 * 1024] {
        assert_eq!(to(Version::V1beta1, &filled(length))["metadata"], filled(length)["metadata"]);
    }
}

#[test]
fn kueue_object_of_any_kind_is_brought_to_stored_version() {
    let stored = |mut object: Value| to_stored(object.as_object_mut().unwrap()).map(|()| object);
    let flavor = json!({"spec": {"nodeLabels": {"a": "b"}}});
    assert_eq!(stored(older("ResourceFlavor", flavor.clone())), Ok(newer("ResourceFlavor", flavor)));
    let queue = older("ClusterQueue", json!({"spec": {"cohort": "c"}}));
    assert_eq!(stored(queue), Ok(newer("ClusterQueue", json!({"spec": {"cohortName": "c"}}))));
    let unknown = stored(json!({"apiVersion": "kueue.x-k8s.io/v1alpha1", "kind": "Topology"}));
    assert!(unknown.unwrap_err().to_string().contains("v1alpha1\" cannot be converted"));
}

#[test]
fn object_of_unknown_kind_or_version_is_refused_by_conversion() {
    let problem = |object: Value| {
        let mut object = object.as_object().unwrap().clone();
        convert(&mut object, Version::V1beta1).unwrap_err().to_string()
    };
    assert!(
        problem(json!({"apiVersion": "batch/v1", "kind": "Workload"})).contains("\"batch/v1\" cannot be converted")
    );
    assert!(problem(json!({"kind": "Workload"})).contains("kueue.x-k8s.io/v1beta1 or kueue.x-k8s.io/v1beta2 can"));
    assert!(problem(newer("ResourceFlavor", json!({}))).contains("kind \"ResourceFlavor\" has no conversion"));
    for strange in [json!({}), json!({"spec": 7, "status": []}), json!({"spec": null, "status": {"admission": "x"}})] {
        for kind in ["Workload", "ClusterQueue", "LocalQueue", "Cohort", "MultiKueueCluster"] {
            let stored = newer(kind, strange.clone());
            assert_eq!(to(Version::V1beta2, &to(Version::V1beta1, &stored)), stored);
        }
    }
}

fn asked(desired: &str, objects: &Value) -> Value {
    let review = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "4711", "desiredAPIVersion": desired, "objects": objects},
    });
    let (answer, converted) = respond(review.to_string().as_bytes()).unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["response"]["result"]["status"] == "Success", converted);
    assert_eq!((&answer["apiVersion"], &answer["kind"]), (&review["apiVersion"], &review["kind"]));
    assert_eq!(answer["response"]["uid"], "4711");
    answer["response"].clone()
}

#[test]
fn conversion_review_answers_objects_in_their_order() {
    let queue = older("ClusterQueue", json!({"spec": {"cohort": "c"}}));
    let there = newer("Workload", json!({"spec": {"active": true}}));
    let answer = asked("kueue.x-k8s.io/v1beta2", &json!([queue, there]));
    assert_eq!(answer["result"], json!({"status": "Success"}));
    assert_eq!(answer["convertedObjects"], json!([newer("ClusterQueue", json!({"spec": {"cohortName": "c"}})), there]));
    assert_eq!(asked("kueue.x-k8s.io/v1beta1", &json!([]))["convertedObjects"], json!([]));
}

#[test]
fn conversion_review_with_one_bad_object_fails_and_names_it() {
    let good = newer("Workload", json!({"spec": {}}));
    let mut bad = newer("Job", json!({}));
    bad["metadata"]["namespace"] = json!("team");
    for (objects, text) in [
        (json!([good, bad]), "Job team/n: kind \"Job\" has no conversion"),
        (json!([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}]), "Pod p: apiVersion \"v1\""),
        (json!([good, 7]), "object 1 of the review (\"\"): is not an object"),
    ] {
        let answer = asked("kueue.x-k8s.io/v1beta1", &objects);
        assert_eq!((&answer["result"]["status"], &answer["convertedObjects"]), (&json!("Failure"), &json!([])));
        let message = answer["result"]["message"].as_str().unwrap();
        assert!(message.starts_with(text), "{message}");
    }
    let answer = asked("kueue.x-k8s.io/v1", &json!([good]));
    assert!(
        answer["result"]["message"].as_str().unwrap().starts_with("nothing can be converted to \"kueue.x-k8s.io/v1\"")
    );
    for body in ["", "{}", "[]", r#"{"request": {}}"#, r#"{"request": {"uid": 1}}"#] {
        assert!(respond(body.as_bytes()).is_err(), "{body}");
    }
}
