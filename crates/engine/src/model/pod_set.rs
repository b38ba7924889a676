//! Pod sets of workloads, and the quota that pod sets are given.

use std::collections::BTreeMap;

use crate::model::{Amount, Requirement, Toleration};

/// A pod set of a workload, reduced to the fields on which decisions depend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodSetSpec {
    /// Name.
    pub name: String,
    /// Number of pods (already without reclaimable pods, if the workload holds quota).
    pub count: i64,
    /// Smallest number of pods of the pod set under partial admission (`minCount`).
    pub min_count: Option<i64>,
    /// Requests of one pod, in the engine's units.
    pub requests: BTreeMap<String, Amount>,
    /// Node selector of the pod template.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: the terms of the list are alternatives, and all requirements of a term must hold. An empty list means that there is no required
    /// node affinity.
    pub affinity: Vec<Vec<Requirement>>,
    /// Tolerations of the pod template.
    pub tolerations: Vec<Toleration>,
    /// Digest of further constraints on the pods' nodes; 0 if there are no further constraints. Only stock-outs depend on the field `constraints`.
    pub constraints: u64,
    /// True if Berth cannot add node affinity to the job of the pod set, so that flavors that forbid node labels do not match.
    pub no_affinity: bool,
    /// True if the pod set asks for a topology, by an annotation or by `topologyRequest`.
    pub topology_request: bool,
    /// Name of the pod set's group (`topologyRequest.podSetGroupName`): pod sets of the same group get the same flavor of each resource.
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
    /// Total usage of all pods of the pod set, by resource.
    pub usage: BTreeMap<String, Amount>,
}
