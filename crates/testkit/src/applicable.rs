//! Decision cases that do not apply to Berth, because they test a feature that Berth does not have or an inner step that only Kueue has.

use crate::case::Case;
use crate::gates::{Effect, Gates};
use crate::scene::text;
use berth_api::PodSetTopologyRequest;
use berth_api::labels::WORKLOAD_SLICE_REPLACEMENT_FOR;
use serde_json::Value;

/// Reason for cases that test topology-aware scheduling.
pub const TOPOLOGY: &str = "topology";
/// Reason for cases that test workload slices of jobs that users resize.
pub const SLICES: &str = "workload slices";
/// Reason for cases that test concurrent admission.
pub const CONCURRENT: &str = "concurrent admission";
/// Reason for cases that test dynamic resource allocation.
pub const DRA: &str = "dynamic resource allocation";
/// Reason for cases with the feature gate `SchedulerLibraryIntegration`, which replaces parts of Kueue's node filter.
pub const LIBRARY: &str = "SchedulerLibraryIntegration";
/// Reason for cases that test an inner step of Kueue that Berth does elsewhere.
pub const INNER: &str = "upstream's inner division of labour";

/// Case kinds that test placement in a topology only.
const TOPOLOGICAL_KINDS: [&str; 5] = ["tas-placement", "tas-encoding", "tas-step", "second-pass", "topology-request"];
/// Case kinds whose result depends neither on the topology domains of pods nor on the devices allocated to resource claims.
const PLACELESS_KINDS: [&str; 4] = ["admission-checks", "equivalence", "podset-counts", "queue-timestamp"];
/// Case kinds for which the engine computes results for workload slices given to it.
const SLICE_KINDS: [&str; 2] = ["flavor-assignment", "usage"];
/// Object kinds of which resource claims consist.
const CLAIM_OBJECTS: [&str; 4] = ["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"];

/// Reason why a case does not apply to Berth, `None` if the case applies.
///
/// # Errors
/// The case sets a feature gate that Kueue does not have.
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

/// The Workloads of a case, from its objects, steps and input.
fn workloads(case: &Case) -> impl Iterator<Item = &Value> {
    let steps = list(&case.input, "/steps").filter_map(|step| step.get("update"));
    case.of_kind("Workload").chain(steps).chain(case.input.get("update"))
}

/// Whether a case depends on a topology: a Workload requests or has a topology assignment, a ClusterQueue has quota in a flavor with a topology, or the input
/// or the expectation is by topology domain. A case whose input has the key `capacity` depends on a topology, because the key gives the capacity of topology
/// domains.
fn is_topological(case: &Case) -> bool {
    let steps = || list(&case.input, "/steps").filter_map(|step| step.get("action"));
    let second_pass =
        list(&case.input, "/secondPass").next().is_some() || steps().any(|action| action == "queue-second-pass");
    let inputs = ["topologyUsage", "topologyFlavors", "capacity"].iter().any(|key| has(&case.input, key));
    let expects = ["topologyUsage", "hasTopologyAssignment"].iter().any(|key| has(&case.expect, key));
    let asks = |set: &Value| {
        let request = set.get("topologyRequest").cloned().map(serde_json::from_value::<PodSetTopologyRequest>);
        // A pod set that only names a pod set group requests no topology.
        request.is_some_and(|request| request.map_or(true, |request| request.asks()))
    };
    let is_placed = |workload: &Value| {
        list(workload, "/spec/podSets").any(asks)
            || has_a_place(workload)
            || list(workload, "/status/unhealthyNodes").next().is_some()
    };
    second_pass || inputs || expects || workloads(case).any(is_placed) || has_quota_in_a_topology(case)
}

/// Whether a case of kind `entry-order` has a Workload with a quota reservation: only a Workload that waits for a topology assignment is tried again after its
/// reservation, in a second scheduling pass.
fn has_second_passes(case: &Case) -> bool {
    let is_reserved =
        |condition: &Value| text(condition, "/type") == "QuotaReserved" && text(condition, "/status") == "True";
    case.kind == "entry-order"
        && case.of_kind("Workload").any(|workload| list(workload, "/status/conditions").any(is_reserved))
}

/// Whether a Workload has a topology assignment or a delayed topology request.
fn has_a_place(workload: &Value) -> bool {
    let placed = |set: &Value| has(set, "topologyAssignment") || has(set, "delayedTopologyRequest");
    list(workload, "/status/admission/podSetAssignments").any(placed)
}

/// Whether the result of a case does not depend on topology assignments. The result of a case of kind `requests` depends on topology assignments if a Workload
/// has one and the gate `TopologyAwareScheduling` is on.
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

/// Whether the case compares pod counts, which Kueue does for workload slices only. A case with `counts` in its expectation asks for the number of pods, which
/// applies to every job.
fn compares_counts(case: &Case) -> bool {
    case.kind == "podset-counts" && case.expect.get("counts").is_none()
}

/// Whether a Workload of the case replaces another Workload as its slice. Berth makes slices for jobs of its own kinds only, so only the engine's part of cases
/// with slices applies.
fn has_slices(case: &Case) -> bool {
    let replaces = |workload: &Value| {
        workload.pointer("/metadata/annotations").is_some_and(|notes| has(notes, WORKLOAD_SLICE_REPLACEMENT_FOR))
    };
    has(&case.input, "replacedWorkloadSlice") || workloads(case).any(replaces)
}

/// Whether a case has concurrent admission, which means a Workload that another Workload owns or that has a label of concurrent admission, or a ClusterQueue
/// with a `concurrentAdmissionPolicy`.
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

/// Whether a JSON value holds only nulls, empty lists and empty objects, at any depth.
fn names_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.iter().all(names_nothing),
        Value::Object(map) => map.values().all(names_nothing),
        _ => false,
    }
}

/// Whether the result of a case depends on resource claims, or the case keeps requests from before an update, which Kueue does for claims only. The inputs
/// `dynamicResources` and `replacedExtendedResources` of a case make it depend on resource claims only if the gate `KueueDRAIntegration` is on. The resource
/// claims of a Workload's pod sets do not make a case of kind `requests` depend on resource claims.
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

/// Whether the flavor scan of a Workload is outdated because the Workload's shape changed. Berth drops the progress of a Workload's flavor scan when it
/// observes a change of the Workload's shape, and cases with `progressKept` test this.
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
