use super::*;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Value, json};

fn parse<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("object")
}

const ADMITTED: AdmittedAs<'_> = AdmittedAs { workload: "job-a-12345", cluster_queue: "cq", local_queue: "lq" };

fn flavors() -> BTreeMap<String, ResourceFlavor> {
    let flavor = |name: &str, value: Value| (name.to_owned(), parse::<ResourceFlavor>(value));
    BTreeMap::from([
        flavor(
            "spot",
            json!({"metadata": {"name": "spot"}, "spec": {"nodeLabels": {"cloud.google.com/gke-spot": "true"},
            "tolerations": [{"key": "cloud.google.com/gke-spot", "operator": "Exists"}]}}),
        ),
        flavor(
            "on-demand",
            json!({"metadata": {"name": "on-demand", "annotations": {labels::FORBIDDEN_NODE_LABELS:
            "cloud.google.com/gke-spot=true, cloud.google.com/reservation-name"}}, "spec": {"nodeLabels": {"tpu": "v5"}}}),
        ),
        flavor("other-tpu", json!({"metadata": {"name": "other-tpu"}, "spec": {"nodeLabels": {"tpu": "v6"}}})),
        flavor(
            "broken",
            json!({"metadata": {"name": "broken", "annotations": {labels::FORBIDDEN_NODE_LABELS: "a b"}}}),
        ),
    ])
}

fn placement(assigned: Value, checks: Value) -> Result<Placement, PlacementError> {
    let known = flavors();
    let assignment: PodSetAssignment = parse(json!({"name": "main", "flavors": assigned}));
    let checks: Vec<AdmissionCheckState> = parse(checks);
    Placement::of(&assignment, 4, ADMITTED, &checks, |name| known.get(name))
}

/// A template's parts with the placement of the assignment `assigned` merged in.
fn started(template: Value, assigned: Value) -> Result<Value, PlacementError> {
    let placement = placement(assigned, json!([]))?;
    let once = placement.apply(&TemplateParts::of(&parse::<PodTemplateSpec>(template), 4))?;
    assert_eq!(placement.apply(&once)?, once, "merging twice changes nothing");
    Ok(once.to_value())
}

fn metadata() -> Value {
    json!({"labels": {labels::POD_SET: "main", labels::CLUSTER_QUEUE_NAME: "cq", labels::LOCAL_QUEUE_NAME: "lq"},
        "annotations": {labels::WORKLOAD: "job-a-12345"}})
}

#[test]
fn assigned_flavors_add_node_selectors_tolerations_and_labels() {
    let spot = json!([{"key": "cloud.google.com/gke-spot", "operator": "Exists"}]);
    assert_eq!(
        started(json!({"spec": {"containers": []}}), json!({"cpu": "spot", "memory": "spot"})),
        Ok(json!({"metadata": metadata(), "spec": {"nodeSelector": {"cloud.google.com/gke-spot": "true"},
            "tolerations": spot}}))
    );
    let own = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [], "nodeSelector": {"zone": "z"},
        "tolerations": spot}});
    let mut with_own = metadata();
    with_own["labels"]["a"] = json!("b");
    assert_eq!(
        started(own, json!({"cpu": "spot"})),
        Ok(json!({"metadata": with_own, "spec": {"nodeSelector": {"zone": "z", "cloud.google.com/gke-spot": "true"},
            "tolerations": spot}}))
    );
}

#[test]
fn queue_name_that_is_no_label_value_is_left_out() {
    let long = "q".repeat(64);
    let admitted = AdmittedAs { local_queue: &long, ..ADMITTED };
    let assignment = PodSetAssignment::default();
    let placement = Placement::of(&assignment, 1, admitted, &[], |_| None).expect("placement");
    assert_eq!(placement.labels.keys().collect::<Vec<_>>(), [labels::CLUSTER_QUEUE_NAME, labels::POD_SET]);
}

#[test]
fn forbidden_node_labels_join_every_node_affinity_term() {
    let wanted = json!([{"key": "cloud.google.com/gke-spot", "operator": "NotIn", "values": ["true"]},
        {"key": "cloud.google.com/reservation-name", "operator": "DoesNotExist"}]);
    let affinity = |terms: Value| json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    let result = |before: Value| {
        let template = json!({"spec": {"containers": [], "affinity": before}});
        started(template, json!({"cpu": "on-demand"})).expect("placement")["spec"]["affinity"].clone()
    };
    assert_eq!(result(Value::Null), affinity(json!([{"matchExpressions": wanted}])));
    let zone = json!({"key": "zone", "operator": "In", "values": ["a"]});
    assert_eq!(
        result(affinity(json!([{"matchExpressions": [zone]}, {"matchFields": [zone]}, {}]))),
        affinity(json!([{"matchExpressions": [zone, wanted[0], wanted[1]]},
            {"matchFields": [zone], "matchExpressions": wanted}, {}]))
    );
    let pods = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "h"}]}});
    let both = result(pods.clone());
    assert_eq!(both["podAntiAffinity"], pods["podAntiAffinity"]);
    assert_eq!(both["nodeAffinity"], affinity(json!([{"matchExpressions": wanted}]))["nodeAffinity"]);
}

#[test]
fn contradictory_or_missing_flavors_are_placement_errors() {
    let bare = || json!({"spec": {"containers": []}});
    let selecting = |key: &str, value: &str| json!({"spec": {"containers": [], "nodeSelector": {key: value}}});
    let texts = [
        (
            started(selecting("tpu", "v4"), json!({"cpu": "on-demand"})),
            "invalid admission check PodSetUpdate: conflict for nodeSelector: conflict for key=tpu, value1=v4, value2=v5",
        ),
        (
            started(bare(), json!({"cpu": "on-demand", "memory": "other-tpu"})),
            "invalid admission check PodSetUpdate: conflict for nodeSelector: conflict for key=tpu, value1=v5, value2=v6",
        ),
        (
            started(bare(), json!({"cpu": "on-demand", "memory": "spot"})),
            "nodeSelector cloud.google.com/gke-spot=true is forbidden by the annotation \
             berth.dev/forbidden-node-labels of a flavor",
        ),
        (started(bare(), json!({"cpu": "gone"})), "flavor gone not found"),
        (
            started(bare(), json!({"cpu": "broken"})),
            "flavor broken: annotation berth.dev/forbidden-node-labels: \"a b\" is neither a label key nor key=value",
        ),
    ];
    for (result, text) in texts {
        assert_eq!(result.map_err(|error| error.to_string()), Err(text.to_owned()));
    }
}

#[test]
fn admission_check_updates_are_merged_and_conflict_is_an_error() {
    let check = |name: &str, updates: Value| {
        json!({"name": name, "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
            "podSetUpdates": [updates]})
    };
    let update = json!({"name": "main", "labels": {"l": "1"}, "annotations": {"a": "1"}, "nodeSelector": {"n": "1"},
        "tolerations": [{"operator": "Exists"}]});
    let other = json!({"name": "other", "labels": {"l": "2"}});
    let merged = placement(json!({}), json!([check("one", update.clone()), check("two", other)])).expect("placement");
    assert_eq!(merged.labels.get("l").map(String::as_str), Some("1"));
    assert_eq!(merged.annotations.get("a").map(String::as_str), Some("1"));
    assert_eq!(merged.node_selector, BTreeMap::from([("n".to_owned(), "1".to_owned())]));
    assert_eq!((merged.tolerations.len(), merged.count), (1, 4));
    let clash = json!({"name": "main", "annotations": {"a": "2"}});
    let error = placement(json!({}), json!([check("one", update), check("two", clash)]));
    assert!(matches!(error, Err(PlacementError::Conflict { part: "annotations", .. })));
}

#[test]
fn forbidden_node_labels_annotation_is_parsed_or_refused() {
    type Entries<'a> = &'a [(&'a str, &'a [&'a str])];
    let cases: [(&str, Option<Entries<'_>>); 6] = [
        ("", Some(&[])),
        ("a", Some(&[("a", &[])])),
        ("a=1,a=2, b", Some(&[("a", &["1", "2"]), ("b", &[])])),
        ("a=1,a", Some(&[("a", &[])])),
        ("a,a=1,", Some(&[("a", &[])])),
        ("a=b=c", None),
    ];
    for (text, expected) in cases {
        let expected = expected.map(|list| {
            list.iter()
                .map(|(key, values)| ((*key).to_owned(), values.iter().map(|v| (*v).to_owned()).collect()))
                .collect::<Vec<_>>()
        });
        assert_eq!(parse_forbidden(text).ok(), expected, "{text:?}");
    }
}

/// A job loses its reservation after a temporary placement error. The Workload of a job with a permanent placement error finishes.
#[test]
fn placement_error_is_temporary_if_an_object_may_still_change() {
    let text = str::to_owned;
    let conflict = |part| PlacementError::Conflict { part, key: text("k"), first: text("a"), second: text("b") };
    for (error, passes) in [
        (PlacementError::FlavorNotFound(text("f")), true),
        (PlacementError::Annotation { flavor: text("f"), problem: ForbiddenError(text("p")) }, true),
        (PlacementError::Forbidden { key: text("k"), value: text("v") }, true),
        (conflict("nodeSelector"), true),
        (conflict("labels"), false),
        (conflict("annotations"), false),
        (PlacementError::NoAffinity { kind: "JobSet" }, false),
        (PlacementError::PodSets { given: 1, wanted: 2 }, false),
    ] {
        assert_eq!(error.passes(), passes, "{error:?}");
    }
}
