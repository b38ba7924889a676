//! The capacity tiers `reserved`, `on-demand` and `spot`, as labels, annotations and fields name them.

use std::fmt;
use std::str::FromStr;

/// Keys of node labels by which pods select a kind of capacity, on the clouds and with Karpenter. Berth removes node selectors with the keys of
/// `CAPACITY_SELECTORS` from a job, and tolerations with these keys, if the job's QueuePolicy overrides selectors.
pub const CAPACITY_SELECTORS: [&str; 12] = [
    "berth.dev/capacity-tier",
    "cloud.google.com/gke-preemptible",
    "cloud.google.com/gke-provisioning",
    "cloud.google.com/gke-spot",
    "cloud.google.com/reservation-affinity",
    "cloud.google.com/reservation-name",
    "cloud.google.com/reservation-owner-project",
    "cloud.google.com/reservation-project",
    "eks.amazonaws.com/capacityType",
    "karpenter.sh/capacity-type",
    "kubernetes.azure.com/priority",
    "kubernetes.azure.com/scalesetpriority",
];

/// Pod label with the kind of capacity that AxLearn requested; Berth removes the label together with the selectors.
pub const BASTION_TIER: &str = "bastion-tier";
/// Pod label with the version of a job that AxLearn's bastion runs.
pub const BASTION_JOB_VERSION: &str = "bastion-job-version";

/// The way in which capacity is bought: a capacity tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CapacityTier {
    /// Capacity bought beforehand, and guaranteed.
    Reserved,
    /// Capacity bought when it is used, and kept until it is released.
    OnDemand,
    /// Cheap capacity that the cloud may take away at any time.
    Spot,
}

impl CapacityTier {
    /// All capacity tiers, from `Reserved` to `Spot`.
    pub const ALL: [Self; 3] = [Self::Reserved, Self::OnDemand, Self::Spot];

    /// The name of the tier in labels and fields.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
        }
    }
}

impl fmt::Display for CapacityTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Fault of a text that names capacity tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierError {
    /// The text has a word that is no capacity tier.
    Unknown(String),
    /// The word comes twice.
    Repeated(String),
    /// The text has no word.
    Missing,
}

impl fmt::Display for TierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(word) => {
                write!(f, "{word:?} is no capacity tier; allowed are reserved, on-demand and spot")
            }
            Self::Repeated(word) => write!(f, "{word:?} comes twice"),
            Self::Missing => {
                f.write_str("names no capacity tier; allowed are reserved, on-demand and spot, separated by commas")
            }
        }
    }
}

impl std::error::Error for TierError {}

impl FromStr for CapacityTier {
    type Err = TierError;

    /// Reads a tier from its name.
    ///
    /// # Errors
    /// Returns an error with the word and the allowed names if the word is no capacity tier.
    fn from_str(word: &str) -> Result<Self, TierError> {
        let found = Self::ALL.into_iter().find(|tier| tier.as_str() == word);
        found.ok_or_else(|| TierError::Unknown(word.to_owned()))
    }
}

/// The capacity tiers in the value of the annotation `berth.dev/capacity-tiers`: names separated by commas, best first.
///
/// # Errors
/// Returns an error if the value has no tier, a word that is no tier, or a tier twice; the error names the word.
pub fn parse_tiers(text: &str) -> Result<Vec<CapacityTier>, TierError> {
    let mut tiers = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let tier = word.parse()?;
        if tiers.contains(&tier) {
            return Err(TierError::Repeated(word.to_owned()));
        }
        tiers.push(tier);
    }
    if tiers.is_empty() { Err(TierError::Missing) } else { Ok(tiers) }
}

#[cfg(test)]
mod tests {
    use super::CapacityTier::{OnDemand, Reserved, Spot};
    use super::*;

    #[test]
    fn capacity_selectors_are_all_named_on_departure_page() {
        let page = include_str!("../../../docs/departures/0018-capacity-selectors-pin.md");
        for key in CAPACITY_SELECTORS {
            assert!(page.contains(&format!("`{key}`")), "{key}");
        }
    }

    #[test]
    fn capacity_tiers_text_is_parsed_or_refused_with_reason() {
        for (text, expected) in [
            ("reserved", Ok(vec![Reserved])),
            ("spot, on-demand", Ok(vec![Spot, OnDemand])),
            ("reserved,on-demand,spot,", Ok(vec![Reserved, OnDemand, Spot])),
            ("reserved,Spot", Err("\"Spot\" is no capacity tier; allowed are reserved, on-demand and spot")),
            ("spot,spot", Err("\"spot\" comes twice")),
            (" , ", Err("names no capacity tier; allowed are reserved, on-demand and spot, separated by commas")),
        ] {
            assert_eq!(parse_tiers(text).map_err(|error| error.to_string()), expected.map_err(str::to_owned), "{text}");
        }
    }
}
