use serde_json::json;

use super::*;
use crate::conversion::kinds::KINDS;
use crate::conversion::{convert, respond};
use crate::labels::NOT_IN_V1BETA1;
use crate::lean::RAW;

fn answered(object: &str, to: Version) -> (String, bool) {
    let desired = to.api_version();
    let review = format!(r#"{{"request": {{"uid": "u", "desiredAPIVersion": "{desired}", "objects": [{object}]}}}}"#);
    let (answer, converted) = respond(review.as_bytes()).unwrap();
    (String::from_utf8(answer).unwrap(), converted)
}

/// Checks that the answer to a review with this object has the same result as the conversion of the fully decoded object.
fn as_before(object: &str) {
    for to in [Version::V1beta1, Version::V1beta2] {
        let (answer, converted) = answered(object, to);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let mut full: Fields = serde_json::from_str(object).unwrap();
        convert(&mut full, to).unwrap();
        assert!(converted, "{object}");
        assert_eq!(answer["response"]["convertedObjects"], json!([full]), "{object}");
    }
}

/// A Workload in JSON whose last fields are its kind and its version.
fn workload(version: Version, annotations: &Value, assignment: &str) -> String {
    let version = version.api_version();
    format!(
        r#"{{"status": {{"conditions": [], "admission": {{"podSetAssignments": [
            {{"topologyAssignment": {assignment}, "name": "main", "count": 2}}, {{"name": "other", "topologyAssignment": null}}, 7
        ]}}}}, "spec": {{"podSets": [{{"count": 1, "template": {{"b": 1, "a": [1]}}}}]}},
        "metadata": {{"annotations": {annotations}, "managedFields": [{{}}]}}, "kind": "Workload", "apiVersion": "{version}"}}"#
    )
}

const ASSIGNMENTS: [&str; 27] = [
    r#"{"levels": ["l"], "slices": [{"domainCount": 2, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": 1}}]}"#,
    r#"{"slices": [{"podCounts": {"individual": [1, 2]}, "valuesPerLevel": [{"individual": {"prefix": "\"p", "roots": ["\u00e4", "\\"]}}], "domainCount": 2}], "levels": [{"odd": 1.0}]}"#,
    r#"{"levels": ["l"], "slices": [{"domainCount": 1, "valuesPerLevel": [{"individual": {"roots": ["a"], "prefix": null}}], "podCounts": {"universal": 1}}]}"#,
    r#"{"levels": ["l"], "slices": [{"domainCount": 1, "valuesPerLevel": [{"individual": ["p", ["a"], "s"]}], "podCounts": {"universal": 1}}]}"#,
    r#"{"levels": ["l"], "slices": [[1, {"universal": 1}, [{"universal": "a"}]]]}"#,
    r#"{"levels": ["l"], "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "a", "individual": null}], "podCounts": {"universal": 1}}]}"#,
    r#"{"levels": ["l"], "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "a", "more": 1}], "podCounts": {"universal": 1}}]}"#,
    r#"{"levels": ["l"], "slices": [{"domainCount": 1.0, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": 1}}]}"#,
    r#"{"levels": ["l"], "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": 18446744073709551615}}]}"#,
    r#"{"levels": ["l"], "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"individual": [1, 2]}}]}"#,
    r#"{"levels": ["l"], "slices": [{"domainCount": 100001, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": 1}}]}"#,
    r#"{"levels": ["l", "m"], "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": 1}}]}"#,
    r#"{"levels": ["l"], "slices": [], "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": 1}}]}"#,
    r#"{"levels": ["l"], "slices": [], "more": {"a": 1}}"#,
    r#"{"levels": ["l"], "slices": []}"#,
    r#"{"levels": null, "slices": []}"#,
    r#"{"levels": ["l"], "domains": [{"values": ["a\n"], "count": 1}, {"count": 1, "values": ["a"], "more": 2}]}"#,
    r#"{"levels": ["l"], "domains": [{"values": ["a", "b"], "count": 1}]}"#,
    r#"{"levels": ["l"], "domains": [[1, ["a"]]]}"#,
    r#"{"levels": ["l"], "domains": []}"#,
    r#"[["l"], []]"#,
    "{}",
    "[]",
    r#""""#,
    "null",
    "0",
    "-1",
];

#[test]
fn review_answer_for_any_topology_assignment_equals_direct_conversion() {
    let key = "status.admission.podSetAssignments[main].topologyAssignment";
    let annotations = [
        json!({}),
        json!({NOT_IN_V1BETA1: json!({key: {}}).to_string()}),
        json!({NOT_IN_V1BETA1: json!({key: {"topologyAssignment": null}}).to_string()}),
        json!({NOT_IN_V1BETA1: json!({key: {"topologyAssignment": 0}}).to_string()}),
        json!({NOT_IN_V1BETA1: json!({key: {"topologyAssignment": {"levels": ["l"], "slices": []}}}).to_string()}),
    ];
    for assignment in ASSIGNMENTS {
        for annotations in &annotations {
            as_before(&workload(Version::V1beta1, annotations, assignment));
            as_before(&workload(Version::V1beta2, annotations, assignment));
        }
    }
}

#[test]
fn topology_domains_sharing_long_values_are_left_out_beyond_limit() {
    let same = "v".repeat(1024);
    let universal = |value: &str| json!({"universal": value});
    let individual = |count: usize| {
        let roots: Vec<String> = (0..count).map(|n| n.to_string()).collect();
        json!({"individual": {"prefix": same, "roots": roots}})
    };
    let shown = |count: usize, values: &Value| {
        let slice = json!({"domainCount": count, "valuesPerLevel": [values], "podCounts": {"universal": 1}});
        let assignment = json!({"levels": ["l"], "slices": [slice]}).to_string();
        let object = workload(Version::V1beta2, &json!({}), &assignment);
        as_before(&object);
        let answer: Value = serde_json::from_str(&answered(&object, Version::V1beta1).0).unwrap();
        let place = "/response/convertedObjects/0/status/admission/podSetAssignments/0/topologyAssignment/domains";
        answer.pointer(place).and_then(Value::as_array).unwrap().len()
    };
    let many = 30_000;
    for (count, expected) in [(2, 2), (many, 0)] {
        assert_eq!(shown(count, &universal(&same)), expected, "a value");
        assert_eq!(shown(count, &individual(count)), expected, "a prefix");
        assert_eq!(shown(count, &universal(&"\u{1}".repeat(200))), expected, "what is longer in JSON");
    }
    assert_eq!(shown(many, &universal("v")), many);
}

#[test]
fn review_answer_for_malformed_parent_fields_equals_direct_conversion() {
    for odd in [
        r#""spec": {"podSets": {"name": "a", "topologyRequest": {}}}"#,
        r#""spec": [{"preemptionGates": 1}], "status": 1.5"#,
        r#""spec": {"preemptionGates": [1], "a": 0}, "spec": {"b": {}, "preemptionGates": [2], "c": 0}"#,
        r#""metadata": 7, "status": "s""#,
        r#""metadata": {"annotations": [], "labels": 0}, "status": true"#,
        r#""metadata": {"annotations": null}, "spec": null, "status": {"admission": -1}"#,
        r#""spec": {"podSets": [[{"name": 0}], {"name": 0, "topologyRequest": 0}, "x", {"name": {}}]}"#,
        r#""status": {"admission": {"podSetAssignments": {"topologyAssignment": {"levels": [], "slices": []}}}}"#,
    ] {
        for kind in ["Workload", "ClusterQueue", "LocalQueue", "Cohort", "MultiKueueCluster"] {
            for version in [Version::V1beta1, Version::V1beta2] {
                as_before(&format!(r#"{{"kind": "{kind}", "apiVersion": "{}", {odd}}}"#, version.api_version()));
            }
        }
    }
}

#[test]
fn pod_template_passes_conversion_byte_for_byte() {
    let template = r#"{"z": 1.0e3, "a": 123456789012345678901234567890, "s": "\u00e4\/",  "n": null}"#;
    let object = format!(
        r#"{{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "spec": {{"podSets": [{{"template": {template}}}]}}}}"#
    );
    let (answer, converted) = answered(&object, Version::V1beta1);
    assert!(converted && answer.contains(&format!(r#""template":{template}"#)), "{answer}");
    assert!(answer.contains(r#""apiVersion":"kueue.x-k8s.io/v1beta1""#), "{answer}");
}

#[test]
fn unreadable_topology_assignment_fails_its_review() {
    let half = r#"{"levels": ["l"], "slices": [], "more": "\ud800"}"#;
    let (answer, converted) = answered(&workload(Version::V1beta2, &json!({}), half), Version::V1beta1);
    assert!(!converted && answer.contains("topologyAssignment cannot be read"), "{answer}");
}

#[test]
fn annotation_with_the_key_of_raw_values_stays_text() {
    let annotations = json!({RAW: "[1]"});
    for (from, to) in [(Version::V1beta1, Version::V1beta2), (Version::V1beta2, Version::V1beta1)] {
        let (answer, converted) = answered(&workload(from, &annotations, "null"), to);
        assert!(converted && answer.contains(&format!(r#""annotations":{annotations}"#)), "{answer}");
    }
}

#[test]
fn review_keeps_no_object_after_first_bad_one() {
    let good = r#"{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort"}"#;
    for bad in ["0", "[]", "{}", r#"{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology"}"#] {
        let objects = format!("{good}, {bad}, {good}, 0, {{}}");
        let list = format!("[{objects}]");
        let Objects(kept) = serde_json::from_str(&list).unwrap();
        assert_eq!(kept.len(), 2, "{bad}");
        let (answer, converted) = answered(&objects, Version::V1beta1);
        assert!(!converted && answer.contains("object 1 of the review"), "{answer}");
        assert!(serde_json::from_str::<Objects<'_>>(&format!("[{objects}, {{]")).is_err(), "{bad}");
    }
}

#[test]
fn conversion_unit_fields_are_all_read_unless_limited() {
    for unit in KINDS.into_iter().flat_map(|(_, units)| units) {
        let mut place = Place::ROOT;
        for step in unit.parent {
            let Some(Look::Into(next)) = place.look(step.trim_end_matches("[]")) else { panic!("{step}") };
            place = next.item();
        }
        let seen = unit.fields.iter().all(|field| matches!(place.look(field), Some(Look::FullValue)));
        assert_eq!(seen, unit.limited.is_none(), "{:?}", unit.fields);
    }
}
