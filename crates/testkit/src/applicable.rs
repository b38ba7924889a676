//! Cases that ask for what Berth does not have, or has divided otherwise.

use crate::case::Case;
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

/// Why a case is not for Berth, `None` when it is.
#[must_use]
pub fn reason_against(family: &str, case: &Case) -> Option<&'static str> {
    let input = |key: &str| case.input.get(key).is_some_and(|value| !value.is_null());
    let expects = |key: &str| case.expect.get(key).is_some_and(|value| !value.is_null());
    if case.turns_on("SchedulerLibraryIntegration") {
        return Some(LIBRARY);
    }
    let topological_kind = ["tas-placement", "tas-encoding", "tas-step", "second-pass", "topology-request"];
    if family == "tas" || topological_kind.contains(&case.kind.as_str()) {
        return Some(TOPOLOGY);
    }
    if ["scan-progress", "entry-penalty"].contains(&case.kind.as_str()) {
        return Some(INNER);
    }
    if case.kind == "podset-counts" {
        return Some(SLICES);
    }
    if case.turns_on("ConcurrentAdmission") && case.kind != "flavor-assignment" && case.kind != "equivalence" {
        return Some(CONCURRENT);
    }
    if case.turns_on("ElasticJobsViaWorkloadSlices") && !answers_slices(case) {
        return Some(SLICES);
    }
    if input("dynamicResources")
        || input("replacedExtendedResources")
        || case.input.get("binary") == Some(&Value::Bool(true))
    {
        return Some(DRA);
    }
    let steps = case.input.get("steps").and_then(Value::as_array).into_iter().flatten();
    let second_pass = steps.filter_map(|step| step.get("action")).any(|action| action == "queue-second-pass");
    let keys = ["secondPass", "topologyUsage", "topologyFlavors", "capacity"];
    if second_pass || keys.iter().any(|key| input(key)) || expects("topologyUsage") || expects("hasTopologyAssignment")
    {
        return Some(TOPOLOGY);
    }
    if case.kind == "queue-order"
        && ["equivalenceClasses", "inadmissibleClasses", "pushedClass", "conditionReason"].iter().any(|key| input(key))
        || expects("marksClass")
        || expects("progressKept")
    {
        return Some(INNER);
    }
    is_topological(case).then_some(TOPOLOGY)
}

/// What slices are given is decided as in Kueue; that jobs of other kinds become slices is not.
fn answers_slices(case: &Case) -> bool {
    ["flavor-assignment", "usage"].contains(&case.kind.as_str())
}

/// A workload asks for topology, or a ClusterQueue has quota in a flavor with one.
fn is_topological(case: &Case) -> bool {
    let list =
        |object: &'_ Value, path: &str| object.pointer(path).and_then(Value::as_array).cloned().unwrap_or_default();
    let asks = |object: &Value| list(object, "/spec/podSets").iter().any(|set| set.get("topologyRequest").is_some());
    if case.of_kind("Workload").any(asks) {
        return true;
    }
    let flavors = case.of_kind("ResourceFlavor").filter(|object| object.pointer("/spec/topologyName").is_some());
    let names: Vec<String> = flavors.map(|object| crate::scene::text(object, "/metadata/name")).collect();
    let of_group = |group: &Value| list(group, "/flavors");
    let uses = |object: &Value| {
        list(object, "/spec/resourceGroups")
            .iter()
            .flat_map(of_group)
            .any(|flavor| names.contains(&crate::scene::text(&flavor, "/name")))
    };
    case.of_kind("ClusterQueue").any(uses)
}
