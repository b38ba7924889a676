//! MultiKueueCluster in v1beta1.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::multikueue::ClusterProfileReference;

/// Desired state of a MultiKueueCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct MultiKueueClusterSpec {
    /// Location of a kubeconfig; an empty location means that there is no kubeconfig.
    pub kube_config: KubeConfig,
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
    pub location: String,
    /// Type of the location: `Secret` or `Path`.
    #[schemars(extend("default" = "Secret", "enum" = ["Secret", "Path"]))]
    pub location_type: String,
}

/// Observed state of a MultiKueueCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct MultiKueueClusterStatus {
    /// Conditions; `Active` says whether the cluster answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
