//! AdmissionCheck: a further condition for admission, decided by a controller.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules::{KIND, LABEL, SUBDOMAIN, immutable};

root_object! {
    /// A check of each workload before its admission; a controller gives the result.
    AdmissionCheck, "admissionchecks", ClusterResourceScope, spec: AdmissionCheckSpec, status: AdmissionCheckStatus
}

/// Desired state of an AdmissionCheck.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionCheckSpec {
    /// Name of the controller that answers the check; immutable.
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = immutable()))]
    pub controller_name: String,
    /// Reference to an object with parameters for the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<AdmissionCheckParametersReference>,
}

/// Reference to a cluster-scoped object with parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionCheckParametersReference {
    /// API group of the object.
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN))]
    pub api_group: String,
    /// Kind of the object.
    #[schemars(length(min = 1, max = 63), regex(pattern = KIND))]
    pub kind: String,
    /// Name of the object.
    #[schemars(length(min = 1, max = 63), regex(pattern = LABEL))]
    pub name: String,
}

/// Observed state of an AdmissionCheck.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AdmissionCheckStatus {
    /// Conditions; `Active` says whether the controller answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
