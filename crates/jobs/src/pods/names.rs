//! Names of the integrations of pods, and the bound of a group.

/// Name of the integration in Kueue's configuration.
pub const POD_FRAMEWORK: &str = "pod";
/// Name of the integration for Deployments; also the value of the annotation on their pods.
pub const DEPLOYMENT_FRAMEWORK: &str = "deployment";
/// Name of the integration for StatefulSets; also the value of the annotation on their pods.
pub const STATEFUL_SET_FRAMEWORK: &str = "statefulset";
/// Reporter of events about pods.
pub const POD_REPORTER: &str = "pod-kueue-controller";
/// Reporter of events about StatefulSets.
pub const STATEFUL_SET_REPORTER: &str = "statefulset-kueue-controller";
/// Most roles of a group: a Workload has no more pod sets.
pub const MOST_ROLES: usize = 18;
