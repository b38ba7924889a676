//! ProvisioningRequest (autoscaling.x-k8s.io/v1): capacity that an autoscaler is asked for before any pod exists.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

/// API group.
pub const GROUP: &str = "autoscaling.x-k8s.io";
/// Version of the API group that Berth reads and writes.
pub const VERSION: &str = "v1";
/// `apiVersion` of a ProvisioningRequest.
pub const API_VERSION: &str = "autoscaling.x-k8s.io/v1";

root_object! {
    @in (crate::autoscaling)
    /// A request to an autoscaler for the nodes of some pods, all at once.
    ProvisioningRequest, "provisioningrequests", NamespaceResourceScope,
    spec: ProvisioningRequestSpec, status: ProvisioningRequestStatus
}

/// Spec of a ProvisioningRequest; immutable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestSpec {
    /// Name of the class, which selects the autoscaler's way of provisioning.
    pub provisioning_class_name: String,
    /// Parameters of the class.
    pub parameters: BTreeMap<String, String>,
    /// The pods.
    pub pod_sets: Vec<ProvisioningRequestPodSet>,
}

/// Equal pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestPodSet {
    /// PodTemplate of the same namespace.
    pub pod_template_ref: PodTemplateReference,
    /// Number of pods.
    pub count: i32,
}

/// Reference to a PodTemplate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodTemplateReference {
    /// Name.
    pub name: String,
}

/// Status of a ProvisioningRequest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestStatus {
    /// Conditions of the types `Accepted`, `Provisioned`, `Failed`, `BookingExpired` and `CapacityRevoked`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Details about the capacity, from the controller of the provisioning class.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub provisioning_class_details: BTreeMap<String, String>,
}
