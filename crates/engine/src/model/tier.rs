//! Capacity tiers: the ways in which capacity is bought.

use std::fmt;

/// The way in which capacity is bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Guaranteed capacity that is bought beforehand.
    Reserved,
    /// Stable capacity that is bought when it is used.
    OnDemand,
    /// Cheap capacity that the provider may take away at any time.
    Spot,
}

impl Tier {
    /// The name of the tier, as in labels and annotations. Cost: constant.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
