//! Names of the integrations for pods, and the limit of roles in a pod group.

/// Name of the integration for pods in Kueue's configuration.
pub const POD_FRAMEWORK: &str = "pod";
/// Name of the integration for Deployments, and the value of the annotation on their pods.
pub const DEPLOYMENT_FRAMEWORK: &str = "deployment";
/// Name of the integration for StatefulSets, and the value of the annotation on their pods.
pub const STATEFUL_SET_FRAMEWORK: &str = "statefulset";
/// Reporter of events about pods.
pub const POD_REPORTER: &str = "pod-kueue-controller";
/// Reporter of events about StatefulSets.
pub const STATEFUL_SET_REPORTER: &str = "statefulset-kueue-controller";
/// Largest number of roles in a pod group, equal to the limit of a Workload's pod sets.
pub const MOST_ROLES: usize = 18;
