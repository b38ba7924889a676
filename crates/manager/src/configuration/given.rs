//! Values that go before those of the configuration file.

use super::{Addresses, ObjectNames};
use berth_jobs::training::Cards;
use std::collections::BTreeMap;

/// Values of flags and of the environment, which go before those of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    /// Namespace from the flag.
    pub(crate) namespace: Option<String>,
    /// Namespace of the service account, or Kueue's default.
    pub(crate) home: String,
    /// `--leader-elect`.
    pub(crate) leader_elect: Option<bool>,
    /// `--leader-elect-resource-namespace`.
    pub(crate) lease_namespace: Option<String>,
    /// `--leader-elect-resource-name`.
    pub(crate) lease_name: Option<String>,
    /// Addresses from flags.
    pub(crate) addresses: Addresses,
    /// `--feature-gates`.
    pub(crate) feature_gates: Option<BTreeMap<String, bool>>,
    /// `--training-card-resource` and `--training-card-label`.
    pub(crate) cards: Cards,
    /// `--reclaim-taint`.
    pub(crate) reclaim_taints: Vec<String>,
    /// `--object-names`.
    pub(crate) names: ObjectNames,
}
