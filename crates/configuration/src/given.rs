//! Values of flags and of the environment that take precedence over the configuration file.

use crate::addresses::Addresses;
use crate::webhook::ObjectNames;
use berth_jobs::training::Accelerators;
use std::collections::BTreeMap;

/// Values of flags and of the environment that take precedence over the configuration file.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Namespace of the manager that the flag `--namespace` sets.
    pub namespace: Option<String>,
    /// Namespace of the manager if neither the flag nor the configuration file sets it: the service account's namespace, or Kueue's default namespace.
    pub home: String,
    /// `--leader-elect`.
    pub leader_elect: Option<bool>,
    /// The value of the flag `--leader-elect-resource-namespace`.
    pub lease_namespace: Option<String>,
    /// The value of the flag `--leader-elect-resource-name`.
    pub lease_name: Option<String>,
    /// Addresses that flags set.
    pub addresses: Addresses,
    /// `--feature-gates`.
    pub feature_gates: Option<BTreeMap<String, bool>>,
    /// The values of the flags `--training-card-resource` and `--training-card-label`.
    pub accelerators: Accelerators,
    /// `--reclaim-taint`.
    pub reclaim_taints: Vec<String>,
    /// `--object-names`.
    pub names: ObjectNames,
}
