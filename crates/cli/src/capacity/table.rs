//! The file format of a capacity table, whose `apiVersion` is `config.berth.dev/v1alpha1` and whose kind is `CapacityTable`. An unknown key of a capacity table
//! is an error that names the key's line.

use berth_configuration::document::{self, Header, Marked};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use serde_saphyr::{Location, Spanned};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// The only `apiVersion` of a capacity table.
const API_VERSION: &str = "config.berth.dev/v1alpha1";
/// The only `kind` of a capacity table.
const KIND: &str = "CapacityTable";

/// A capacity table: families of machines, the tiers in which each family is offered, and the quotas of ClusterQueues.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Table {
    #[serde(rename = "apiVersion")]
    pub(crate) _api_version: Option<String>,
    #[serde(rename = "kind")]
    pub(crate) _kind: Option<String>,
    /// Cloud or owner of the nodes; the preset of this cloud supplies fields that the table's tiers leave out.
    pub(crate) cloud: Marked<String>,
    /// Node label that holds the capacity tier on the clouds without a label of their own, which are `aks` (default `capacity`) and `bare-metal` (required).
    pub(crate) capacity_label: Marked<String>,
    /// The tiers, best first; by default all tiers of the cloud's preset.
    pub(crate) tiers: Vec<TierRow>,
    /// The machine families, in the order in which their flavors are tried within a tier.
    pub(crate) families: Vec<Family>,
    /// The ClusterQueues to write.
    pub(crate) cluster_queues: Vec<Queue>,
}

/// A tier of the table. A field that a tier's row has replaces the field of the cloud's preset for this tier, and an absent field keeps the preset. In the
/// labels, taints and tolerations of a tier's row, `{reservation}` stands for the name of the family's reservation.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TierRow {
    /// Name of the capacity tier (`reserved`, `on-demand` or `spot`).
    pub(crate) name: Spanned<String>,
    /// Labels of the tier's nodes.
    pub(crate) node_labels: Option<BTreeMap<String, String>>,
    /// Taints of the tier's nodes.
    pub(crate) node_taints: Option<Vec<Taint>>,
    /// Tolerations that the tier's pods get.
    pub(crate) tolerations: Option<Vec<Toleration>>,
    /// Labels, as `key` or `key=value`, of nodes that the tier's pods must avoid.
    pub(crate) forbidden_node_labels: Option<Vec<String>>,
}

/// A family of machines, such as one GPU model.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Family {
    /// Name of the family, with which the names of its flavors begin.
    pub(crate) name: Spanned<String>,
    /// Labels that the family's nodes have in every tier.
    #[serde(default)]
    pub(crate) node_labels: BTreeMap<String, String>,
    /// Taints that the family's nodes have in every tier.
    #[serde(default)]
    pub(crate) node_taints: Vec<Taint>,
    /// Tolerations that the family's pods get in every tier.
    #[serde(default)]
    pub(crate) tolerations: Vec<Toleration>,
    /// Name of the Topology of the family's nodes.
    pub(crate) topology_name: Option<String>,
    /// Resources for which the family has quota.
    pub(crate) resources: Vec<String>,
    /// Name of the family's reservation.
    pub(crate) reservation: Option<String>,
    /// `false` leaves forbidden labels out of the family's flavors: forbidden labels need a required node affinity, which a JobSet cannot be given.
    pub(crate) node_affinity: Option<bool>,
    /// Exceptions of the family by tier.
    #[serde(default)]
    pub(crate) tiers: BTreeMap<String, Spanned<Cell>>,
}

/// Exceptions of a machine family in one tier.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Cell {
    /// `false` means that the family is not offered in this tier.
    pub(crate) offered: Option<bool>,
    /// Name of the flavor; the default is `FAMILY-TIER`.
    pub(crate) name: Option<String>,
    /// Name of the family's reservation in this tier.
    pub(crate) reservation: Option<String>,
    /// Node labels that replace labels of the family and the tier.
    pub(crate) node_labels: BTreeMap<String, String>,
    /// Node taints beside the taints of the family and the tier.
    pub(crate) node_taints: Vec<Taint>,
    /// Tolerations beside the tolerations of the family and the tier.
    pub(crate) tolerations: Vec<Toleration>,
    /// Forbidden node labels in place of the forbidden labels of the tier.
    pub(crate) forbidden_node_labels: Option<Vec<String>>,
}

/// Quotas of one ClusterQueue by family and tier.
pub(crate) type Quotas = BTreeMap<String, BTreeMap<String, Spanned<Quota>>>;
/// Quota of a family in a tier: the amount of the family's only resource, or amounts by resource.
pub(crate) type Quota = AmountOr<BTreeMap<String, AmountOr<Limits>>>;

/// A ClusterQueue of the capacity table.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Queue {
    /// Name of the ClusterQueue.
    pub(crate) name: Spanned<String>,
    /// Labels of the ClusterQueue.
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    /// The spec of the ClusterQueue without its resource groups, in Kueue's format.
    #[serde(default)]
    pub(crate) spec: Map<String, Value>,
    /// Quotas of the ClusterQueue. The ClusterQueue gets the flavor of a machine family and tier only if `quotas` has an entry for both.
    #[serde(default)]
    pub(crate) quotas: Quotas,
}

/// Quota of a resource with its borrowing and lending limits.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Limits {
    /// The ClusterQueue's nominal quota, as a quantity.
    pub(crate) nominal_quota: String,
    /// Largest amount that the ClusterQueue may borrow.
    pub(crate) borrowing_limit: Option<String>,
    /// Largest amount that the ClusterQueue lends.
    pub(crate) lending_limit: Option<String>,
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Taint {
    /// Key of the taint.
    pub(crate) key: String,
    /// Value of the taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
    /// Effect of the taint (`NoSchedule`, `PreferNoSchedule` or `NoExecute`).
    pub(crate) effect: String,
}

/// A toleration of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Toleration {
    /// Key of the tolerated taint; an absent key tolerates all taints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// Operator (`Equal` or `Exists`) of the toleration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operator: Option<String>,
    /// Value of the tolerated taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
    /// Effect of the tolerated taint; an absent effect tolerates all effects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) effect: Option<String>,
    /// Seconds for which a pod tolerates a taint that evicts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) toleration_seconds: Option<i64>,
}

/// An amount as a quantity, or a map in place of the amount.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AmountOr<M> {
    /// The amount of a quota, written as a quantity.
    Amount(String),
    /// A map in place of one amount, such as a map with amounts by resource.
    Map(M),
}

impl<'de, M: Deserialize<'de>> Deserialize<'de> for AmountOr<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<M>(PhantomData<M>);
        impl<'de, M: Deserialize<'de>> Visitor<'de> for Either<M> {
            type Value = AmountOr<M>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an amount such as 64 or 1Ti, or a map of amounts")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(AmountOr::Amount(text.to_owned()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
                Ok(AmountOr::Amount(number.to_string()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                Ok(AmountOr::Amount(number.to_string()))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
                Ok(AmountOr::Amount(number.to_string()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                M::deserialize(MapAccessDeserializer::new(map)).map(AmountOr::Map)
            }
        }
        deserializer.deserialize_any(Either(PhantomData))
    }
}

/// Reads a capacity table.
///
/// # Errors
/// The error is one sentence with the line or the field, the value and what is allowed.
pub(crate) fn read(text: &str) -> Result<Table, String> {
    let header: Header = document::parse(text)?;
    let (version, kind) = (header.api_version.unwrap_or_default(), header.kind.unwrap_or_default());
    if version != API_VERSION || kind != KIND {
        return Err(format!("apiVersion {version:?} with kind {kind:?}; allowed is {API_VERSION} with kind {KIND}"));
    }
    document::parse(text)
}

/// An error about a field of the capacity table, with the field's line.
pub(crate) fn fault(place: &Location, path: &str, what: impl fmt::Display) -> String {
    match place.line() {
        // A value that Berth made, instead of reading it from a capacity table, has no line.
        0 => format!("{path}: {what}"),
        line => format!("line {line}: {path}: {what}"),
    }
}

/// A value that the program made, without a line in a file.
pub(crate) fn made<T>(value: T) -> Spanned<T> {
    Spanned::new(value, Location::UNKNOWN, Location::UNKNOWN)
}
