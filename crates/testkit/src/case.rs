//! The file format of a decision case. An unknown key of a case file is an error, because the types of `case.rs` and the types of the case's kind name every
//! key.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Quantities by flavor, then by resource.
pub type Cells = BTreeMap<String, BTreeMap<String, String>>;

/// A decision case: one decision of Kueue, recorded from a test of Kueue.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Case {
    /// Name of the case in the table of Kueue's test.
    pub name: String,
    /// Package and test function of Kueue that the case is from.
    pub source: String,
    /// The kind of decision that the case tests.
    pub kind: String,
    /// Short description of the case for readers.
    #[serde(default)]
    pub subject: String,
    /// Further notes for readers of the case.
    #[serde(default)]
    pub notes: Value,
    /// The current time in the case.
    #[serde(default)]
    pub now: Option<String>,
    /// Feature gates whose value in the case is not the default.
    #[serde(default)]
    pub feature_gates: BTreeMap<String, bool>,
    /// Options of the configuration in the case.
    #[serde(default)]
    pub config: Config,
    /// Manifests of the objects in the case.
    #[serde(default)]
    pub objects: Vec<Value>,
    /// Input of the decision that objects cannot express.
    #[serde(default)]
    pub input: Value,
    /// The expected result of the decision.
    #[serde(default)]
    pub expect: Value,
    /// True if Berth's rules apply where they depart from Kueue on purpose. The runner sets `as_shipped`, which case files do not have.
    #[serde(skip)]
    pub as_shipped: bool,
}

/// The key `config` of a case: options of the configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// Settings of fair sharing; absent settings turn fair sharing off.
    pub fair_sharing: Option<FairSharing>,
    /// Settings of admission fair sharing, or only whether admission fair sharing is on.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// Timestamp (`Eviction` or `Creation`) by which evicted Workloads are ordered in their queue.
    pub pods_ready_requeuing_timestamp: Option<String>,
    /// Treatment (`BlockUndeclared` or `IgnoreUndeclared`) of requested resources for which the ClusterQueue has no quota.
    pub quota_check_strategy: Option<String>,
    /// Transformations of requested resources.
    pub resource_transformations: Vec<Transformation>,
    /// Prefixes of the names of resources that need no quota.
    pub exclude_resource_prefixes: Vec<String>,
}

/// The key `config.fairSharing` of a case.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FairSharing {
    /// Strategies of preemption with fair sharing; absent strategies mean Kueue's two default strategies.
    pub preemption_strategies: Option<Vec<String>>,
}

/// The key `config.admissionFairSharing` of a case.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum AdmissionFairSharing {
    /// True if admission fair sharing is on, without settings.
    Switch(bool),
    /// Settings of admission fair sharing.
    Settings(AdmissionFairSharingSettings),
}

/// Settings of admission fair sharing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AdmissionFairSharingSettings {
    /// Half-life of the past usage of a LocalQueue.
    pub usage_half_life_time: String,
    /// Time between two samples of the usage of a LocalQueue.
    pub usage_sampling_interval: String,
    /// Weight of each resource in the usage; an absent weight is 1.
    pub resource_weights: BTreeMap<String, f64>,
}

/// An entry of `config.resourceTransformations` of a case.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Transformation {
    /// Name of the resource that is transformed.
    pub input: String,
    /// Treatment of the transformed resource, where `Retain` keeps its request and `Replace` removes its request.
    pub strategy: Option<String>,
    /// Name of the resource whose amount multiplies the input amount.
    pub multiply_by: Option<String>,
    /// Factors by the name of the resulting resource.
    pub outputs: BTreeMap<String, String>,
}

/// Reads a case.
///
/// # Errors
/// The error describes the fault of the text in one line.
pub fn read(text: &str) -> Result<Case, String> {
    let mut value: Value = serde_saphyr::from_str(text).map_err(|error| one_line(&error.to_string()))?;
    drop_nulls(&mut value);
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// Removes keys with a null value, which count as absent keys.
fn drop_nulls(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|_, value| !value.is_null());
    }
}

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

impl Case {
    /// The key `input` of the case, decoded into the type of the case's kind.
    ///
    /// # Errors
    /// The value has an unknown key, or a value of a wrong type.
    pub fn input<T: serde::de::DeserializeOwned>(&self) -> Result<T, String> {
        let mut value = self.input.clone();
        drop_nulls(&mut value);
        typed("input", &value)
    }

    /// The key `expect` of the case without its part `internal`, decoded into the type of the case's kind.
    ///
    /// # Errors
    /// The value has an unknown key, or a value of a wrong type.
    pub fn expect<T: serde::de::DeserializeOwned>(&self) -> Result<T, String> {
        let mut value = self.expect.clone();
        if let Value::Object(map) = &mut value {
            map.remove("internal");
        }
        typed("expect", &value)
    }

    /// The case's objects of one kind.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| object.get("kind").and_then(Value::as_str) == Some(kind))
    }
}

/// Decodes an expected list or map of a case: null means an empty list or map, and an absent field means that nothing is expected.
///
/// # Errors
/// The value has a wrong type.
pub fn expected<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Some(Option::<T>::deserialize(deserializer)?.unwrap_or_default()))
}

/// Decodes a value of a case into a type that refuses unknown keys. A null in place of the value counts as an empty map.
///
/// # Errors
/// The value has an unknown key, or a value of a wrong type.
pub fn typed<T: serde::de::DeserializeOwned>(place: &str, value: &Value) -> Result<T, String> {
    let value = if value.is_null() { Value::Object(serde_json::Map::new()) } else { value.clone() };
    serde_json::from_value(value).map_err(|error| format!("{place}: {error}"))
}
