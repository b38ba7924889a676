//! Laws of conversion over generated objects: the content of v1beta2 survives v1beta1, the content of v1beta1 survives v1beta2, each version gets only fields
//! that it knows, and no object makes the conversion fail. `generate.rs` makes objects from the schemas in `crds/`, `server.rs` changes them as an API server
//! does, `reviews.rs` sends them in conversion reviews, and `widest.rs` measures times. The environment variable `BERTH_CASES` sets the number of objects that
//! the tests of conversion generate.

mod generate;
mod reviews;
mod server;
mod widest;

use std::time::{Duration, Instant};

use berth_api::conversion::{Version, convert, respond};
use berth_api::labels::NOT_IN_V1BETA1;
use generate::{Dice, broken, metadata};
use serde_json::{Value, json};
use server::{Kind, complete, kinds, prune};

/// The allocator of the program `berth`, because most of the time of a conversion goes into small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn cases() -> u64 {
    std::env::var("BERTH_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000)
}

/// Calls `law` with `cases` seeds, for all kinds in turn, and names the seed of a case that fails.
fn for_all(cases: u64, law: impl Fn(&Kind, &mut Dice) + std::panic::RefUnwindSafe) {
    crate::noted::note("api", cases);
    let kinds = kinds();
    for seed in 1..=cases {
        let kind = &kinds[(seed % kinds.len() as u64) as usize];
        let kind_ref = std::panic::AssertUnwindSafe(kind);
        let outcome = std::panic::catch_unwind(|| law(*kind_ref, &mut Dice::new(seed)));
        assert!(outcome.is_ok(), "seed {seed}, kind {}", kind.name);
    }
}

fn to(version: Version, object: &Value) -> Value {
    let mut out = object.as_object().unwrap().clone();
    convert(&mut out, version).unwrap();
    Value::Object(out)
}

fn made(kind: &Kind, version: Version, dice: &mut Dice) -> Value {
    let schema = if version == Version::V1beta1 { &kind.older } else { &kind.newer };
    let mut object = generate::value(schema, "", dice);
    complete(schema, &mut object);
    object["apiVersion"] = json!(version.api_version());
    object["kind"] = json!(kind.name);
    object["metadata"] = metadata(NOT_IN_V1BETA1, dice);
    object
}

/// The object with its valid placements as sorted lists of domains; this test decodes the placements with code of its own.
fn with_domains(mut object: Value) -> Value {
    let Some(Value::Array(sets)) = object.pointer_mut("/status/admission/podSetAssignments") else { return object };
    for set in sets {
        if let Some(assignment) = set.get_mut("topologyAssignment")
            && let Some(mut domains) = domains(assignment)
        {
            domains.sort();
            assignment["slices"] = json!(domains);
        }
    }
    object
}

fn domains(assignment: &Value) -> Option<Vec<(Vec<String>, i64)>> {
    let mut out = Vec::new();
    for slice in assignment["slices"].as_array()? {
        let length = slice["domainCount"].as_u64()?;
        let levels = slice["valuesPerLevel"].as_array()?;
        if levels.len() != assignment["levels"].as_array()?.len() {
            return None;
        }
        for index in 0..usize::try_from(length).ok()? {
            let one_of = |choice: &Value, list: &Value| -> Option<Value> {
                match (choice, list) {
                    (Value::Null, Value::Array(list)) if list.len() as u64 == length => list.get(index).cloned(),
                    (Value::Null, _) => None,
                    (choice, Value::Null) => Some(choice.clone()),
                    _ => None,
                }
            };
            let mut values = Vec::new();
            for level in levels {
                let own = &level["individual"];
                let root = one_of(&level["universal"], &own["roots"])?;
                if level["universal"].is_string() && !own.is_null() {
                    return None;
                }
                let part = |name: &str| own[name].as_str().unwrap_or_default().to_owned();
                values.push(part("prefix") + root.as_str()? + &part("suffix"));
            }
            let counts = &slice["podCounts"];
            out.push((values, one_of(&counts["universal"], &counts["individual"])?.as_i64()?));
        }
    }
    Some(out)
}

#[test]
fn v1beta2_object_survives_conversion_to_v1beta1_and_back() {
    for_all(cases(), |kind, dice| {
        let stored = made(kind, Version::V1beta2, dice);
        let mut older = to(Version::V1beta1, &stored);
        let mut known = older.clone();
        prune(&kind.older, &mut known);
        assert_eq!(known, older, "a field that v1beta1 does not know");
        for field in ["name", "uid", "resourceVersion", "labels", "managedFields"] {
            assert_eq!(older["metadata"][field], stored["metadata"][field], "{field} may not be touched");
        }
        complete(&kind.older, &mut older);
        assert_eq!(with_domains(to(Version::V1beta2, &older)), with_domains(stored));
    });
}

#[test]
fn fields_unknown_to_both_versions_survive_conversion() {
    for_all(cases() / 10, |kind, dice| {
        let mut stored = made(kind, Version::V1beta2, dice);
        for place in [
            "",
            "/spec",
            "/status",
            "/spec/podSets/0",
            "/spec/flavorFungibility",
            "/status/admission/podSetAssignments/0",
        ] {
            if let Some(Value::Object(parent)) = stored.pointer_mut(place) {
                parent.insert("fromTheFuture".to_owned(), json!({"a": [1]}));
            }
        }
        let older = to(Version::V1beta1, &stored);
        assert_eq!(older["fromTheFuture"], json!({"a": [1]}));
        assert_eq!(with_domains(to(Version::V1beta2, &older)), with_domains(stored));
    });
}

/// Removes fields that only v1beta1 has, and values that have two forms in v1beta1.
fn sayable(kind: &Kind, object: &mut Value) {
    let mut drop = |place: &str, fields: &[&str]| {
        if let Some(Value::Object(parent)) = object.pointer_mut(place) {
            fields.iter().for_each(|field| drop_field(parent, field));
        }
    };
    drop("/metadata/annotations", &[NOT_IN_V1BETA1]);
    match kind.name {
        "ClusterQueue" => {
            drop("/spec", &["admissionChecks"]);
            drop("/status", &["pendingWorkloadsStatus"]);
            drop("/status/fairSharing", &["admissionFairSharingStatus"]);
        }
        "Cohort" => drop("/status/fairSharing", &["admissionFairSharingStatus"]),
        "LocalQueue" => drop("/status", &["flavors"]),
        _ => {}
    }
    let Some(Value::Object(spec)) = object.get_mut("spec") else { return };
    let empty = |value: Option<&Value>| value.and_then(Value::as_str).is_none_or(str::is_empty);
    if empty(spec.get("priorityClassName")) || empty(spec.get("priorityClassSource")) {
        drop_field(spec, "priorityClassName");
        if spec.contains_key("priorityClassSource") {
            spec.insert("priorityClassSource".to_owned(), json!(""));
        }
    }
    if spec
        .get("admissionChecksStrategy")
        .is_some_and(|strategy| strategy["admissionChecks"].as_array().is_none_or(Vec::is_empty))
    {
        drop_field(spec, "admissionChecksStrategy");
    }
    if let Some(Value::Object(fungibility)) = spec.get_mut("flavorFungibility") {
        fungibility
            .values_mut()
            .filter(|word| **word == "Borrow" || **word == "Preempt")
            .for_each(|word| *word = json!("MayStopSearch"));
    }
    if let Some(config) = spec.get_mut("kubeConfig")
        && config["location"] == ""
    {
        config["locationType"] = json!("Secret");
    }
}

fn drop_field(parent: &mut serde_json::Map<String, Value>, field: &str) {
    parent.remove(field);
}

#[test]
fn v1beta1_object_survives_conversion_to_v1beta2_and_back() {
    for_all(cases(), |kind, dice| {
        let raw = made(kind, Version::V1beta1, dice);
        let newer = to(Version::V1beta2, &raw);
        let mut known = newer.clone();
        prune(&kind.newer, &mut known);
        assert_eq!(known, newer, "a field that v1beta2 does not know");
        assert_eq!(newer["metadata"].pointer("/annotations").and_then(|all| all.get(NOT_IN_V1BETA1)), None);
        let again = to(Version::V1beta2, &to(Version::V1beta1, &newer));
        assert_eq!(again, newer, "once stored it stays");

        let mut written = raw;
        sayable(kind, &mut written);
        let mut read = to(Version::V1beta1, &to(Version::V1beta2, &written));
        complete(&kind.older, &mut read);
        assert_eq!(read, written);
    });
}

#[test]
fn conversion_of_malformed_object_never_fails() {
    for_all(cases(), |kind, dice| {
        let version = if dice.one_in(2) { Version::V1beta1 } else { Version::V1beta2 };
        let mut object = made(kind, version, dice);
        let mut parts = json!({"metadata": object["metadata"], "spec": object["spec"], "status": object["status"]});
        for _ in 0..=dice.below(3) {
            broken(&mut parts, dice);
        }
        let Value::Object(parts) = parts else { return };
        object.as_object_mut().unwrap().extend(parts);
        let older = to(Version::V1beta1, &to(Version::V1beta2, &object));
        let newer = to(Version::V1beta2, &to(Version::V1beta1, &object));
        assert_eq!((&older["kind"], &newer["kind"]), (&json!(kind.name), &json!(kind.name)));
    });
}

/// A Workload of four pod sets on `nodes` nodes, with pod templates of a realistic size.
fn workload(nodes: usize) -> Value {
    let variables: Vec<Value> =
        (0..60).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "some value of it"})).collect();
    let template = json!({"spec": {"containers": [{"name": "c", "image": "registry/image:tag", "env": variables}]}});
    let sets: Vec<Value> =
        (0..4).map(|n| json!({"name": format!("set-{n}"), "count": 1, "template": template})).collect();
    let roots: Vec<String> = (0..nodes).map(|n| format!("{n:05}")).collect();
    let placement = json!({"levels": ["kubernetes.io/hostname"], "slices": [{
        "domainCount": nodes, "podCounts": {"universal": 1},
        "valuesPerLevel": [{"individual": {"prefix": "gke-cluster-pool-node-", "roots": roots}}],
    }]});
    let assigned: Vec<Value> = (0..4).map(|n| json!({"name": format!("set-{n}"), "topologyAssignment": if n == 0 { placement.clone() } else { Value::Null }})).collect();
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "n", "namespace": "team"},
        "spec": {"queueName": "q", "podSets": sets, "preemptionGates": [{"name": "g"}]},
        "status": {"admission": {"clusterQueue": "q", "podSetAssignments": assigned}},
    })
}

/// Longest time of one conversion, including reading the request and writing the answer, on a machine that keeps the promised limit; a slower machine
/// has more time. Only the fastest conversion must keep the limit, because on a busy machine other programs interrupt most conversions. A measurement of
/// the thread's CPU time would not help, because the kernel counts CPU time in steps that are longer than a conversion.
const MOST: Duration = Duration::from_millis(1);

/// Longest time of one conversion, as a multiple of the time in which the same machine reads the same review as JSON and writes it again.
const MOST_OF_JSON: u32 = 2;

/// Number of conversions in one measurement.
const TIMES: usize = 400;

/// The time of the fastest conversion: other processes of the machine slow some of the conversions, and seldom all of them.
fn fastest(times: &[Duration]) -> Duration {
    times.iter().copied().min().expect("conversions were made")
}

#[test]
fn conversion_of_one_workload_stays_within_time_limit() {
    for nodes in [8, 1000] {
        let mut object = workload(nodes);
        let mut version = Version::V1beta1;
        let (mut alone, mut full_review, mut json, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for _ in 0..TIMES {
            let review =
                json!({"request": {"uid": "u", "desiredAPIVersion": version.api_version(), "objects": [object]}})
                    .to_string();
            bytes = bytes.max(review.len());
            if full_review.len() % 4 == 0 {
                let start = Instant::now();
                let read: Value = serde_json::from_slice(review.as_bytes()).unwrap();
                assert_eq!(read.to_string().len(), review.len());
                json.push(start.elapsed());
            }
            let start = Instant::now();
            let (answer, converted) = respond(review.as_bytes()).unwrap();
            full_review.push(start.elapsed());
            assert!(converted && answer.len() > 1000);
            let fields = object.as_object_mut().unwrap();
            let start = Instant::now();
            convert(fields, version).unwrap();
            alone.push(start.elapsed());
            version = if version == Version::V1beta1 { Version::V1beta2 } else { Version::V1beta1 };
        }
        let (alone, full_review, json) = (fastest(&alone), fastest(&full_review), fastest(&json));
        let most = MOST.max(json * MOST_OF_JSON);
        println!(
            "conversion of a Workload on {nodes} nodes, up to {bytes} bytes: {} us, with reading and writing the review {} us; JSON alone {} us",
            alone.as_micros(),
            full_review.as_micros(),
            json.as_micros()
        );
        assert!(alone <= most, "a Workload on {nodes} nodes takes {alone:?}, and may take {most:?}");
        assert!(
            full_review <= most,
            "the review of a Workload on {nodes} nodes takes {full_review:?}, and may take {most:?}"
        );
    }
}
