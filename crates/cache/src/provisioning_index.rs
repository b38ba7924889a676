//! The observed ProvisioningRequests, with their PodTemplates and configurations.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use berth_api as api;
use berth_api::autoscaling::ProvisioningRequest;
use berth_api::conditions::{is_true, types};
use berth_api::json::to_text;
use berth_api::labels;
use berth_jobs::controller;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::admission_checks::Check;
use crate::names::Name;
use crate::object::Kind;

/// The complete pod sets of a Workload, which are kept while the Workload has quota and waits for its checks.
#[derive(Clone, Debug)]
pub struct AskedCapacity {
    /// The pod sets of the Workload, as JSON.
    pub pod_sets: Box<str>,
    /// The parameters that the Workload's annotations set.
    pub parameters: BTreeMap<String, String>,
}

impl AskedCapacity {
    /// The capacity that Berth may have to request for a Workload; `None` if there is none.
    pub fn of(
        annotations: &BTreeMap<String, String>,
        pod_sets: &[api::PodSet],
        status: Option<&api::WorkloadStatus>,
    ) -> Option<Box<Self>> {
        let status = status.filter(|status| status.admission.is_some() && !status.admission_checks.is_empty())?;
        let over = [types::ADMITTED, types::FINISHED].iter().any(|kind| is_true(&status.conditions, kind));
        let pod_sets = (!over).then(|| to_text(pod_sets).into())?;
        Some(Box::new(Self { pod_sets, parameters: berth_jobs::provisioning_parameters(annotations) }))
    }
}

/// A PodTemplate of a ProvisioningRequest.
#[derive(Clone, Debug)]
pub struct TemplateView {
    /// The metadata of the PodTemplate: its owners, the annotation with its Workload, and the version for patches.
    pub metadata: ObjectMeta,
}

impl TemplateView {
    /// The uid of the Workload or the ProvisioningRequest that controls the PodTemplate.
    pub fn owner(&self) -> &str {
        controller(&self.metadata).map(|owner| owner.uid.as_str()).unwrap_or_default()
    }

    /// The name of the Workload for which the PodTemplate was made.
    pub fn workload(&self) -> Option<&str> {
        let named = self.metadata.annotations.as_ref().and_then(|all| all.get(labels::WORKLOAD));
        let owner = controller(&self.metadata).filter(|owner| owner.kind == Kind::Workload.name());
        named.map(String::as_str).or_else(|| owner.map(|owner| owner.name.as_str()))
    }
}

/// The kind of the configurations.
const CONFIG: &str = "ProvisioningRequestConfig";

/// Reason why an admission check has no configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// The AdmissionCheck has no parameters.
    NoParameters,
    /// The parameters of the AdmissionCheck name an object of another kind, which is given with its group.
    OtherKind(String),
    /// No ProvisioningRequestConfig of the name in the AdmissionCheck's parameters exists.
    Missing(String),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoParameters => write!(f, "spec.parameters is missing: name a {CONFIG} of {}", api::GROUP),
            Self::OtherKind(given) => {
                write!(f, "spec.parameters names a {given}, and only a {CONFIG}.{} is allowed", api::GROUP)
            }
            Self::Missing(name) => write!(f, "{CONFIG} {name:?} does not exist"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// All ProvisioningRequests, with their templates and configurations.
#[derive(Debug, Default)]
pub struct ProvisioningIndex {
    /// True if the cluster serves ProvisioningRequests; `None` if that is not known yet.
    pub served: Option<bool>,
    /// The ProvisioningRequestConfigs, by name.
    pub configs: BTreeMap<String, Box<api::ProvisioningRequestConfig>>,
    /// The ProvisioningRequests, by namespace and name. The methods `put` and `drop` change the map `requests` together with its index by Workload.
    pub requests: BTreeMap<Name, Box<ProvisioningRequest>>,
    /// The PodTemplates of ProvisioningRequests, by namespace and name.
    pub templates: BTreeMap<Name, TemplateView>,
    /// Names of ProvisioningRequests by the uid of their Workload.
    owned: BTreeMap<String, BTreeSet<Name>>,
}

impl ProvisioningIndex {
    /// The ProvisioningRequests that were made for a Workload.
    pub fn of_workload(&self, uid: &str) -> impl Iterator<Item = &Name> {
        self.owned.get(uid).into_iter().flatten()
    }

    /// Stores a ProvisioningRequest in place of its older state, and updates the index by Workload.
    pub fn put(&mut self, name: Name, object: Box<ProvisioningRequest>) {
        self.drop(&name);
        if let Some(owner) = controller(&object.metadata) {
            self.owned.entry(owner.uid.clone()).or_default().insert(name.clone());
        }
        self.requests.insert(name, object);
    }

    /// Removes a ProvisioningRequest, also from the index by Workload. The result of `drop` is the ProvisioningRequest's last state; `None` if the request was
    /// not known.
    pub fn drop(&mut self, name: &Name) -> Option<Box<ProvisioningRequest>> {
        let old = self.requests.remove(name)?;
        if let Some(owner) = controller(&old.metadata)
            && let Some(names) = self.owned.get_mut(&owner.uid)
        {
            names.remove(name);
            if names.is_empty() {
                self.owned.remove(&owner.uid);
            }
        }
        Some(old)
    }

    /// The configuration of an admission check, or the reason why there is none.
    ///
    /// # Errors
    /// The check names no configuration that exists.
    pub fn config(&self, check: &Check) -> Result<&api::ProvisioningRequestConfigSpec, ConfigError> {
        let Some(parameters) = &check.parameters else {
            return Err(ConfigError::NoParameters);
        };
        if parameters.api_group != api::GROUP || parameters.kind != CONFIG {
            return Err(ConfigError::OtherKind(format!("{}.{}", parameters.kind, parameters.api_group)));
        }
        let found = self.configs.get(&parameters.name);
        found.map(|config| &config.spec).ok_or_else(|| ConfigError::Missing(parameters.name.clone()))
    }
}
