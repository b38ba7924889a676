//! The table as a file: `config.berth.dev/v1alpha1`, kind `CapacityTable`. An unknown key is an error with its line.

use berth_configuration::document::{self, Header, Marked};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use serde_saphyr::{Location, Spanned};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// The version that is read.
const API_VERSION: &str = "config.berth.dev/v1alpha1";
/// The kind that is read.
const KIND: &str = "CapacityTable";

/// Families of machines, the tiers in which each is offered, and the quotas of ClusterQueues.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Table {
    #[serde(rename = "apiVersion")]
    pub(crate) _api_version: Option<String>,
    #[serde(rename = "kind")]
    pub(crate) _kind: Option<String>,
    /// Cloud or owner of the nodes: fields that tiers leave out come from the preset of that cloud.
    pub(crate) cloud: Marked<String>,
    /// Node label that holds the tier where the cloud has none: `aks` (default `capacity`) and `bare-metal` (required).
    pub(crate) capacity_label: Marked<String>,
    /// The tiers, best first; all that the cloud's preset has when absent.
    pub(crate) tiers: Vec<TierRow>,
    /// The families, in the order in which they are tried within a tier.
    pub(crate) families: Vec<Family>,
    /// The ClusterQueues.
    pub(crate) cluster_queues: Vec<Queue>,
}

/// A tier. A field that is given replaces that of the cloud's preset; one that is absent keeps it. `{reservation}` in a value is
/// the name of the family's reservation.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TierRow {
    /// `reserved`, `on-demand` or `spot`.
    pub(crate) name: Spanned<String>,
    /// Labels of its nodes.
    pub(crate) node_labels: Option<BTreeMap<String, String>>,
    /// Taints of its nodes.
    pub(crate) node_taints: Option<Vec<Taint>>,
    /// Tolerations that its pods get.
    pub(crate) tolerations: Option<Vec<Toleration>>,
    /// Labels of nodes that its pods must avoid: `key` or `key=value`.
    pub(crate) forbidden_node_labels: Option<Vec<String>>,
}

/// A family of machines.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Family {
    /// Beginning of the names of its flavors.
    pub(crate) name: Spanned<String>,
    /// Labels that its nodes have in every tier.
    #[serde(default)]
    pub(crate) node_labels: BTreeMap<String, String>,
    /// Taints that its nodes have in every tier.
    #[serde(default)]
    pub(crate) node_taints: Vec<Taint>,
    /// Tolerations that its pods get in every tier.
    #[serde(default)]
    pub(crate) tolerations: Vec<Toleration>,
    /// Topology of its nodes.
    pub(crate) topology_name: Option<String>,
    /// Resources of which there is quota.
    pub(crate) resources: Vec<String>,
    /// Name of its reservation.
    pub(crate) reservation: Option<String>,
    /// `false` leaves forbidden labels out, since they take a required node affinity, which a JobSet cannot be given.
    pub(crate) node_affinity: Option<bool>,
    /// Exceptions in single tiers.
    #[serde(default)]
    pub(crate) tiers: BTreeMap<String, Spanned<Cell>>,
}

/// Exceptions of a family in one tier.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Cell {
    /// `false`: the family is not offered in this tier.
    pub(crate) offered: Option<bool>,
    /// Name of the flavor; `FAMILY-TIER` when absent.
    pub(crate) name: Option<String>,
    /// Name of the reservation.
    pub(crate) reservation: Option<String>,
    /// Labels that win over those of family and tier.
    pub(crate) node_labels: BTreeMap<String, String>,
    /// Further taints.
    pub(crate) node_taints: Vec<Taint>,
    /// Further tolerations.
    pub(crate) tolerations: Vec<Toleration>,
    /// In place of the tier's.
    pub(crate) forbidden_node_labels: Option<Vec<String>>,
}

/// Quotas of one queue by family and tier.
pub(crate) type Quotas = BTreeMap<String, BTreeMap<String, Spanned<Quota>>>;
/// Quota of a family in a tier: of its only resource, or by resource.
pub(crate) type Quota = AmountOr<BTreeMap<String, AmountOr<Limits>>>;

/// A ClusterQueue of the table.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Queue {
    /// Its name.
    pub(crate) name: Spanned<String>,
    /// Labels of the ClusterQueue.
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    /// Everything of its spec but the resource groups, as Kueue has it.
    #[serde(default)]
    pub(crate) spec: Map<String, Value>,
    /// Quotas of the ClusterQueue. The queue lacks a family and tier without an entry.
    #[serde(default)]
    pub(crate) quotas: Quotas,
}

/// Quota of a resource with its limits.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Limits {
    /// The queue's nominal quota, as a quantity.
    pub(crate) nominal_quota: String,
    /// Most that it may borrow.
    pub(crate) borrowing_limit: Option<String>,
    /// Most that it lends.
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
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub(crate) effect: String,
}

/// A toleration of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Toleration {
    /// Key of the taint; absent tolerates all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// `Equal` or `Exists`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operator: Option<String>,
    /// Value of the taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
    /// Effect of the taint; absent tolerates all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) effect: Option<String>,
    /// How long a taint that evicts is tolerated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) toleration_seconds: Option<i64>,
}

/// An amount as a quantity, or a map in the same place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AmountOr<M> {
    /// The amount.
    Amount(String),
    /// The map.
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

/// Reads a table.
///
/// # Errors
/// One sentence with the line or the field, the value and what is allowed.
pub(crate) fn read(text: &str) -> Result<Table, String> {
    let header: Header = document::parse(text)?;
    let (version, kind) = (header.api_version.unwrap_or_default(), header.kind.unwrap_or_default());
    if version != API_VERSION || kind != KIND {
        return Err(format!("apiVersion {version:?} with kind {kind:?}; allowed is {API_VERSION} with kind {KIND}"));
    }
    document::parse(text)
}

/// An error with its line and field.
pub(crate) fn fault(place: &Location, path: &str, what: impl fmt::Display) -> String {
    match place.line() {
        // The value was made, and not read from a file.
        0 => format!("{path}: {what}"),
        line => format!("line {line}: {path}: {what}"),
    }
}

/// A value that no file has.
pub(crate) fn made<T>(value: T) -> Spanned<T> {
    Spanned::new(value, Location::UNKNOWN, Location::UNKNOWN)
}
