//! The form of a case: every key is named here or in the kind's own types; any other key is an error.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Flavor to resource to quantity.
pub type Cells = BTreeMap<String, BTreeMap<String, String>>;

/// One decision of upstream.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Case {
    /// Name in the upstream table.
    pub name: String,
    /// Upstream package and test function.
    pub source: String,
    /// The kind of decision.
    pub kind: String,
    /// A phrase for people.
    #[serde(default)]
    pub subject: String,
    /// More for people.
    #[serde(default)]
    pub notes: Value,
    /// The clock.
    #[serde(default)]
    pub now: Option<String>,
    /// Gates away from their defaults.
    #[serde(default)]
    pub feature_gates: BTreeMap<String, bool>,
    /// Options of the configuration.
    #[serde(default)]
    pub config: Config,
    /// Manifests.
    #[serde(default)]
    pub objects: Vec<Value>,
    /// Input that objects cannot express.
    #[serde(default)]
    pub input: Value,
    /// The expected result.
    #[serde(default)]
    pub expect: Value,
    /// True: decided by Berth's rules, also if they depart from Kueue on purpose. The runner sets it, not the file.
    #[serde(skip)]
    pub as_shipped: bool,
}

/// `config`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// Fair sharing is on.
    pub fair_sharing: Option<FairSharing>,
    /// Admission fair sharing: its settings, or only whether it is on.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// `Eviction` or `Creation`.
    pub pods_ready_requeuing_timestamp: Option<String>,
    /// `BlockUndeclared` or `IgnoreUndeclared`.
    pub quota_check_strategy: Option<String>,
    /// Transformations.
    pub resource_transformations: Vec<Transformation>,
    /// Prefixes of resources that do not count.
    pub exclude_resource_prefixes: Vec<String>,
}

/// `config.fairSharing`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FairSharing {
    /// Strategies; none is the default of both.
    pub preemption_strategies: Option<Vec<String>>,
}

/// `config.admissionFairSharing`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum AdmissionFairSharing {
    /// Only on or off.
    Switch(bool),
    /// Settings of admission fair sharing.
    Settings(AdmissionFairSharingSettings),
}

/// Settings of admission fair sharing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AdmissionFairSharingSettings {
    /// Half-life of past use.
    pub usage_half_life_time: String,
    /// Pause between two samples.
    pub usage_sampling_interval: String,
    /// Weight per resource; absent is 1.
    pub resource_weights: BTreeMap<String, f64>,
}

/// An entry of `config.resourceTransformations`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Transformation {
    /// Resource that is transformed.
    pub input: String,
    /// `Retain` or `Replace`.
    pub strategy: Option<String>,
    /// Resource whose amount multiplies the input.
    pub multiply_by: Option<String>,
    /// Factors.
    pub outputs: BTreeMap<String, String>,
}

/// Reads a case.
///
/// # Errors
/// The fault in the text, in one line.
pub fn read(text: &str) -> Result<Case, String> {
    let mut value: Value = serde_saphyr::from_str(text).map_err(|error| one_line(&error.to_string()))?;
    drop_nulls(&mut value);
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// A key without a value is the same as no key.
fn drop_nulls(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|_, value| !value.is_null());
    }
}

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

impl Case {
    /// `input` in the form of the kind.
    ///
    /// # Errors
    /// If the value has an unknown key, or a value of a wrong type.
    pub fn input<T: serde::de::DeserializeOwned>(&self) -> Result<T, String> {
        let mut value = self.input.clone();
        drop_nulls(&mut value);
        typed("input", &value)
    }

    /// `expect` in the form of the kind; the part under `internal` is left out.
    ///
    /// # Errors
    /// If the value has an unknown key, or a value of a wrong type.
    pub fn expect<T: serde::de::DeserializeOwned>(&self) -> Result<T, String> {
        let mut value = self.expect.clone();
        if let Value::Object(map) = &mut value {
            map.remove("internal");
        }
        typed("expect", &value)
    }

    /// Objects of a kind.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| object.get("kind").and_then(Value::as_str) == Some(kind))
    }
}

/// A list or map that a case expects: null is an empty one, while a field that is not there expects nothing.
///
/// # Errors
/// A value of another form.
pub fn expected<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Some(Option::<T>::deserialize(deserializer)?.unwrap_or_default()))
}

/// Decodes a value of a case into a type that refuses unknown keys. Null counts as an empty map.
///
/// # Errors
/// If the value has an unknown key, or a value of a wrong type.
pub fn typed<T: serde::de::DeserializeOwned>(place: &str, value: &Value) -> Result<T, String> {
    let value = if value.is_null() { Value::Object(serde_json::Map::new()) } else { value.clone() };
    serde_json::from_value(value).map_err(|error| format!("{place}: {error}"))
}
