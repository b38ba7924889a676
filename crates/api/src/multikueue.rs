//! MultiKueueConfig and MultiKueueCluster: worker clusters that may run workloads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules::{one_of, unique};

root_object! {
    /// The worker clusters of an admission check.
    MultiKueueConfig, "multikueueconfigs", ClusterResourceScope, spec: MultiKueueConfigSpec
}

root_object! {
    /// Connection to one worker cluster.
    MultiKueueCluster, "multikueueclusters", ClusterResourceScope, spec: MultiKueueClusterSpec, status: MultiKueueClusterStatus
}

/// Desired state of a MultiKueueConfig.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct MultiKueueConfigSpec {
    /// Names of MultiKueueClusters, in order of preference.
    #[schemars(
        length(min = 1, max = 20),
        inner(length(max = 256)),
        extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = unique())
    )]
    pub clusters: Vec<String>,
    /// Way in which the quota on this cluster is set: either `Manual` or `Automated`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Manual", "Automated"]))]
    pub quota_management: Option<String>,
}

/// Desired state of a MultiKueueCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct MultiKueueClusterSpec {
    /// Source of the credentials for the worker cluster.
    pub cluster_source: ClusterSource,
}

/// Source of the credentials for a cluster: exactly one of the fields is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = one_of("kubeConfig", "clusterProfileRef")))]
pub struct ClusterSource {
    /// Location of a kubeconfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfig>,
    /// Reference to a ClusterProfile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_profile_ref: Option<ClusterProfileReference>,
}

/// Location of a kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct KubeConfig {
    /// Name of the Secret, or path of the file, with the kubeconfig.
    #[schemars(length(min = 1, max = 256))]
    pub location: String,
    /// Type of the location: `Secret` or `Path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Secret", "enum" = ["Secret", "Path"]))]
    pub location_type: Option<String>,
}

/// Reference to a ClusterProfile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ClusterProfileReference {
    /// Name of the ClusterProfile in the manager's namespace.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
}

/// Observed state of a MultiKueueCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct MultiKueueClusterStatus {
    /// Conditions; `Active` says whether the cluster is reachable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
