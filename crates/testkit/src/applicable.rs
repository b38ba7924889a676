//! Cases that ask for a feature that Berth does not have, or for a part of upstream that Berth divides otherwise.

use crate::case::Case;
use crate::gates::{Effect, Gates};
use crate::scene::text;
use berth_api::PodSetTopologyRequest;
use berth_api::labels::WORKLOAD_SLICE_REPLACEMENT_FOR;
use serde_json::Value;

/// Needs topology-aware scheduling.
pub const TOPOLOGY: &str = "topology";
/// Needs workload slices of jobs whose users resize them.
pub const SLICES: &str = "workload slices";
/// Needs concurrent admission.
pub const CONCURRENT: &str = "concurrent admission";
/// Needs dynamic resource allocation.
pub const DRA: &str = "dynamic resource allocation";
/// Replaces parts of the node filter.
pub const LIBRARY: &str = "SchedulerLibraryIntegration";
/// Follows upstream's inner division of labour.
pub const INNER: &str = "upstream's inner division of labour";

/// Kinds that are about placement in a topology alone.
const TOPOLOGICAL_KINDS: [&str; 5] = ["tas-placement", "tas-encoding", "tas-step", "second-pass", "topology-request"];
/// Kinds whose answer does not depend on the places of pods, nor on the devices given for their claims.
const PLACELESS_KINDS: [&str; 4] = ["admission-checks", "equivalence", "podset-counts", "queue-timestamp"];
/// Kinds in which the engine answers for slices that it is given.
const SLICE_KINDS: [&str; 2] = ["flavor-assignment", "usage"];
/// Kinds of objects that resource claims are made of.
const CLAIM_OBJECTS: [&str; 4] = ["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"];

/// Reason why a case does not apply to Berth, `None` when it applies.
///
/// # Errors
/// A gate that Kueue does not know.
pub fn reason_against(case: &Case) -> Result<Option<&'static str>, String> {
    let gates = Gates::of(&case.feature_gates)?;
    let kind = case.kind.as_str();
    Ok(if gates.departs(Effect::Library) {
        Some(LIBRARY)
    } else if TOPOLOGICAL_KINDS.contains(&kind)
        || has_second_passes(case)
        || (is_topological(case) && !passes_places_over(case, &gates))
    {
        Some(TOPOLOGY)
    } else if compares_counts(case) || (has_slices(case) && !SLICE_KINDS.contains(&kind)) {
        Some(SLICES)
    } else if gates.on("ConcurrentAdmission")
        && has_variants(case)
        && !["equivalence", "flavor-assignment"].contains(&kind)
    {
        Some(CONCURRENT)
    } else if has_claims(case, &gates) {
        Some(DRA)
    } else {
        (kind == "scan-progress" && compares_shapes(case)).then_some(INNER)
    })
}

fn has(value: &Value, key: &str) -> bool {
    value.get(key).is_some_and(|value| !value.is_null())
}

fn list<'v>(object: &'v Value, path: &str) -> impl Iterator<Item = &'v Value> {
    object.pointer(path).and_then(Value::as_array).into_iter().flatten()
}

/// The Workloads of a case: its objects, and those of its steps and its input.
fn workloads(case: &Case) -> impl Iterator<Item = &Value> {
    let steps = list(&case.input, "/steps").filter_map(|step| step.get("update"));
    case.of_kind("Workload").chain(steps).chain(case.input.get("update"))
}

/// Whether a case needs a topology: a Workload asks for one or has a place in it, a ClusterQueue has quota in a flavor with one, or the
/// input or the expectation is by topology domain. The number of times that requests fit into a capacity matters to placement alone.
fn is_topological(case: &Case) -> bool {
    let steps = || list(&case.input, "/steps").filter_map(|step| step.get("action"));
    let second_pass =
        list(&case.input, "/secondPass").next().is_some() || steps().any(|action| action == "queue-second-pass");
    let inputs = ["topologyUsage", "topologyFlavors", "capacity"].iter().any(|key| has(&case.input, key));
    let expects = ["topologyUsage", "hasTopologyAssignment"].iter().any(|key| has(&case.expect, key));
    let asks = |set: &Value| {
        let request = set.get("topologyRequest").cloned().map(serde_json::from_value::<PodSetTopologyRequest>);
        // A pod set that only names a group asks for no place.
        request.is_some_and(|request| request.map_or(true, |request| request.asks()))
    };
    let is_placed = |workload: &Value| {
        list(workload, "/spec/podSets").any(asks)
            || has_a_place(workload)
            || list(workload, "/status/unhealthyNodes").next().is_some()
    };
    second_pass || inputs || expects || workloads(case).any(is_placed) || has_quota_in_a_topology(case)
}

/// Whether one of the ordered heads has quota already: only a workload that waits for a place in a topology has a second pass.
fn has_second_passes(case: &Case) -> bool {
    let is_reserved =
        |condition: &Value| text(condition, "/type") == "QuotaReserved" && text(condition, "/status") == "True";
    case.kind == "entry-order"
        && case.of_kind("Workload").any(|workload| list(workload, "/status/conditions").any(is_reserved))
}

/// Whether a workload has a place, or is to get one.
fn has_a_place(workload: &Value) -> bool {
    let placed = |set: &Value| has(set, "topologyAssignment") || has(set, "delayedTopologyRequest");
    list(workload, "/status/admission/podSetAssignments").any(placed)
}

/// Whether the answer does not depend on places: requests depend on them once a workload has one, unless the gate is off.
fn passes_places_over(case: &Case, gates: &Gates) -> bool {
    let counts_places = || gates.on("TopologyAwareScheduling") && workloads(case).any(has_a_place);
    PLACELESS_KINDS.contains(&case.kind.as_str()) || (case.kind == "requests" && !counts_places())
}

fn has_quota_in_a_topology(case: &Case) -> bool {
    let flavors = case.of_kind("ResourceFlavor").filter(|object| object.pointer("/spec/topologyName").is_some());
    let names: Vec<String> = flavors.map(|object| text(object, "/metadata/name")).collect();
    let of_group = |group| list(group, "/flavors").any(|flavor| names.contains(&text(flavor, "/name")));
    case.of_kind("ClusterQueue").any(|object| list(object, "/spec/resourceGroups").any(of_group))
}

/// Whether counts of pods are compared with others, or replaced by them, which upstream does for slices alone. The number of pods is a
/// question that applies to every job.
fn compares_counts(case: &Case) -> bool {
    case.kind == "podset-counts" && case.expect.get("counts").is_none()
}

/// Whether a Workload is to take the place of another. Berth answers the engine's part of it; the making of slices for jobs of other kinds
/// than Berth's own is not part of it.
fn has_slices(case: &Case) -> bool {
    let replaces = |workload: &Value| {
        workload.pointer("/metadata/annotations").is_some_and(|notes| has(notes, WORKLOAD_SLICE_REPLACEMENT_FOR))
    };
    has(&case.input, "replacedWorkloadSlice") || workloads(case).any(replaces)
}

/// Whether Workloads stand for another one, each with a flavor of its own, or a ClusterQueue asks for that.
fn has_variants(case: &Case) -> bool {
    let by_workload = |owner: &Value| owner.get("kind").is_some_and(|kind| kind == "Workload");
    let variant = |workload: &Value| list(workload, "/metadata/ownerReferences").any(by_workload);
    let parent = |workload: &Value| {
        let labels = workload.pointer("/metadata/labels").and_then(Value::as_object);
        labels.is_some_and(|labels| labels.keys().any(|key| key.contains("concurrent-admission")))
    };
    let policy = |queue: &Value| queue.pointer("/spec/concurrentAdmissionPolicy").is_some();
    workloads(case).any(|workload| variant(workload) || parent(workload)) || case.of_kind("ClusterQueue").any(policy)
}

/// Whether a value has nothing but nulls, empty lists and empty objects, at any depth.
fn names_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.iter().all(names_nothing),
        Value::Object(map) => map.values().all(names_nothing),
        _ => false,
    }
}

/// Whether the answer depends on resource claims of pods, or on the devices given for them, unless the gate ignores claims; or whether the
/// requests from before an update are kept, which upstream does for claims alone. Requests count the devices that are given, but not by
/// pod.
fn has_claims(case: &Case, gates: &Gates) -> bool {
    let claims = |set: &Value| list(set, "/template/spec/resourceClaims").next().is_some();
    let given = |key: &&str| case.input.get(key).is_some_and(|value| !names_nothing(value));
    let is_given = ["dynamicResources", "replacedExtendedResources"].iter().any(given);
    let kind = case.kind.as_str();
    let decides = !PLACELESS_KINDS.contains(&kind) && kind != "requests";
    (is_given && gates.on("KueueDRAIntegration"))
        || case.input.get("preserveTotalRequests") == Some(&Value::Bool(true))
        || case.input.get("binary") == Some(&Value::Bool(true))
        || case.objects.iter().any(|object| CLAIM_OBJECTS.contains(&text(object, "/kind").as_str()))
        || (decides && workloads(case).any(|workload| list(workload, "/spec/podSets").any(claims)))
}

/// Whether the scan of a workload is out of date since its shape changed. Berth forgets the scan when it sees the change, and not at the
/// next scan; the cases with `progressKept` test that.
fn compares_shapes(case: &Case) -> bool {
    let shape = |scan: &str| text(&case.input, &format!("/{scan}/schedulingHash"));
    shape("last") != shape("current")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason_of(fields: &str) -> Option<&'static str> {
        let text = format!("{{name: one, source: s, {fields}}}");
        reason_against(&crate::case::read(&text).unwrap()).unwrap()
    }

    fn reason(gates: &str, input: &str) -> Option<&'static str> {
        reason_of(&format!("kind: requests, featureGates: {gates}, input: {input}"))
    }

    #[test]
    fn topology_makes_case_inapplicable_only_where_it_decides() {
        let asking = "objects: [{kind: Workload, spec: {podSets: [{topologyRequest: {required: rack}}]}}]";
        let placed = "objects: [{kind: Workload, status: {admission: {podSetAssignments: [{topologyAssignment: {levels: [rack]}}]}}}]";
        for kind in ["admission-checks", "equivalence", "queue-timestamp"] {
            assert_eq!(reason_of(&format!("kind: {kind}, {asking}")), None, "{kind}");
            assert_eq!(reason_of(&format!("kind: {kind}, {placed}")), None, "{kind}");
        }
        assert_eq!(reason_of(&format!("kind: requests, {asking}")), None);
        assert_eq!(reason_of(&format!("kind: requests, {placed}")), Some(TOPOLOGY));
        assert_eq!(
            reason_of(&format!("kind: requests, featureGates: {{TopologyAwareScheduling: false}}, {placed}")),
            None
        );
        assert_eq!(reason_of(&format!("kind: cycle, {asking}")), Some(TOPOLOGY));
    }

    #[test]
    fn case_with_device_claims_is_inapplicable_unless_gate_is_off() {
        for input in ["{dynamicResources: {main: {gpu: '1'}}}", "{replacedExtendedResources: {main: [gpu]}}"] {
            assert_eq!(reason("{}", input), Some(DRA), "{input}");
            assert_eq!(reason("{KueueDRAIntegration: false}", input), None, "{input}");
        }
        assert_eq!(reason("{}", "{dynamicResources: {main: {}}, replacedExtendedResources: {main: []}}"), None);
    }

    #[test]
    fn pod_resource_claims_make_case_inapplicable_only_where_they_decide() {
        let sets = "{template: {spec: {resourceClaims: [{name: gpu, resourceClaimName: one}]}}}";
        let claiming = format!("objects: [{{kind: Workload, spec: {{podSets: [{sets}]}}}}]");
        for kind in ["admission-checks", "equivalence", "queue-timestamp", "requests"] {
            assert_eq!(reason_of(&format!("kind: {kind}, {claiming}")), None, "{kind}");
        }
        assert_eq!(reason_of(&format!("kind: cycle, {claiming}")), Some(DRA));
    }

    #[test]
    fn case_that_preserves_total_requests_is_inapplicable() {
        assert_eq!(reason("{}", "{preserveTotalRequests: true}"), Some(DRA));
        assert_eq!(reason("{}", "{preserveTotalRequests: false}"), None);
    }
}
