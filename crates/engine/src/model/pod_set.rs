//! Pod sets of workloads, and quota that they are given.

use std::collections::BTreeMap;

use crate::model::{Amount, Requirement, Toleration};

/// One pod set of a workload, reduced to the fields that decide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodSetSpec {
    /// Name.
    pub name: String,
    /// Pods (already net of reclaimable pods where the workload holds quota).
    pub count: i64,
    /// `minCount` for partial admission.
    pub min_count: Option<i64>,
    /// Requests of one pod, in the engine's units.
    pub requests: BTreeMap<String, Amount>,
    /// The template's nodeSelector.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: terms are alternatives, requirements of a term all hold. Empty: no affinity.
    pub affinity: Vec<Vec<Requirement>>,
    /// The template's tolerations.
    pub tolerations: Vec<Toleration>,
    /// Digest of further constraints on the pods' nodes; 0 when there are none. Only stock-outs look at it.
    pub constraints: u64,
    /// True if Berth cannot add node affinity to its job, so flavors that forbid node labels do not match.
    pub no_affinity: bool,
    /// Asks for topology (an annotation or `topologyRequest` is present).
    pub topology_request: bool,
    /// Pod sets of the same group get the same flavor of each resource (`topologyRequest.podSetGroupName`).
    pub group: Option<String>,
}

/// Quota that a pod set was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSetAssignment {
    /// Pod set name.
    pub name: String,
    /// Admitted pods.
    pub count: i64,
    /// Flavor per resource.
    pub flavors: BTreeMap<String, String>,
    /// Total usage per resource (all pods).
    pub usage: BTreeMap<String, Amount>,
}
