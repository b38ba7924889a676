//! Measurement: time of the conversion reviews of the largest Workloads, in each direction.

use std::time::{Duration, Instant};

use berth_api::conversion::{Version, respond};
use serde_json::{Value, json};

/// Number of pod sets of a large Workload: the most that a Workload may have.
const POD_SETS: usize = 18;
/// Number of topology domains of a Workload with a large placement.
const DOMAINS: usize = 4_000;
/// Number of reviews of each Workload.
const REVIEWS: usize = 1_000;

fn workload(sets: usize, assignments: &Value) -> Value {
    let variables: Vec<Value> =
        (0..40).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "some value of it"})).collect();
    let container =
        json!({"name": "main", "image": "e2e/none", "env": variables, "resources": {"requests": {"cpu": "1"}}});
    let sets: Vec<Value> = (0..sets)
        .map(|n| json!({"name": format!("set-{n}"), "count": 1, "template": {"spec": {"containers": [container]}}}))
        .collect();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "R", "message": "a few words", "lastTransitionTime": "2026-01-02T03:04:05Z"});
    json!({
        "apiVersion": Version::V1beta2.api_version(), "kind": "Workload",
        "metadata": {"namespace": "team", "name": "large", "managedFields": [{"manager": "berth", "fieldsV1": {"f:spec": {"f:podSets": {}}}}]},
        "spec": {"queueName": "queue", "podSets": sets},
        "status": {
            "conditions": [condition("QuotaReserved"), condition("Admitted")],
            "admission": {"clusterQueue": "queue", "podSetAssignments": assignments},
        },
    })
}

/// A Workload with the largest allowed number of pod sets.
pub(crate) fn wide() -> Value {
    let given: Vec<Value> = (0..POD_SETS)
        .map(
            |n| json!({"name": format!("set-{n}"), "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}}),
        )
        .collect();
    workload(POD_SETS, &json!(given))
}

/// A Workload whose pods have a placement in thousands of topology domains.
pub(crate) fn placed() -> Value {
    let roots = |per: usize| (0..DOMAINS).map(|n| format!("{:04}", n / per)).collect::<Vec<_>>();
    let level = |prefix: &str, per: usize| json!({"individual": {"prefix": prefix, "roots": roots(per)}});
    let slice = json!({"domainCount": DOMAINS, "podCounts": {"universal": 1},
        "valuesPerLevel": [level("block-", 400), level("rack-", 20), level("gke-cluster-pool-node-", 1)]});
    let assignment = json!({"levels": ["block", "rack", "kubernetes.io/hostname"], "slices": [slice]});
    workload(1, &json!([{"name": "set-0", "count": DOMAINS, "topologyAssignment": assignment}]))
}

/// Converts an object to the version `to`; returns the object and the time of each review.
fn reviewed(object: &Value, to: Version) -> (Value, Vec<Duration>) {
    let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "u", "desiredAPIVersion": to.api_version(), "objects": [object]}})
    .to_string();
    let mut times = Vec::new();
    let mut last = Vec::new();
    for _ in 0..REVIEWS {
        let begun = Instant::now();
        let (answer, converted) = respond(review.as_bytes()).unwrap();
        times.push(begun.elapsed());
        assert!(converted);
        last = answer;
    }
    times.sort();
    let answer: Value = serde_json::from_slice(&last).unwrap();
    println!("  {} bytes asked, {} bytes answered", review.len(), last.len());
    (answer["response"]["convertedObjects"][0].clone(), times)
}

/// Command for this measurement: run `cargo test --release -p berth-api --test api widest -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn widest_workloads_keep_pod_sets_while_conversion_is_timed() {
    for (name, stored) in [("18 pod sets", wide()), ("4,000 domains", placed())] {
        let mut object = stored.clone();
        for to in [Version::V1beta1, Version::V1beta2] {
            let (converted, times) = reviewed(&object, to);
            let at = |share: usize| times[times.len() * share / 100].as_micros();
            println!("{name} to {to:?}: median {} us, p99 {} us", at(50), at(99));
            object = converted;
        }
        let sets = "/spec/podSets";
        assert_eq!(object.pointer(sets), stored.pointer(sets));
    }
}
