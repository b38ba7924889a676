use std::fmt;

/// A quantity of one resource: milli units for `cpu`, whole units for other resources. Arithmetic saturates; the largest value means "unlimited" and stays the
/// same when amounts are added or subtracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i64);

impl Amount {
    /// The amount zero.
    pub const ZERO: Self = Self(0);
    /// No bound.
    pub const UNLIMITED: Self = Self(i64::MAX);

    /// An amount of `units` units.
    #[must_use]
    pub const fn new(units: i64) -> Self {
        Self(units)
    }

    /// An amount from a 128-bit value, clamped to the range of `i64`.
    #[must_use]
    pub fn clamped(units: i128) -> Self {
        let bound = if units < 0 { i64::MIN } else { i64::MAX };
        Self(i64::try_from(units).unwrap_or(bound))
    }

    /// The units.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Whether the amount is [`Amount::UNLIMITED`].
    #[must_use]
    pub const fn is_unlimited(self) -> bool {
        self.0 == i64::MAX
    }

    /// Saturating sum of two amounts; an unlimited amount plus any amount stays unlimited.
    #[must_use]
    pub const fn add(self, other: Self) -> Self {
        if self.is_unlimited() || other.is_unlimited() { Self::UNLIMITED } else { Self(self.0.saturating_add(other.0)) }
    }

    /// Saturating difference of two amounts; an unlimited amount minus any amount stays unlimited.
    #[must_use]
    pub const fn sub(self, other: Self) -> Self {
        if self.is_unlimited() { Self::UNLIMITED } else { Self(self.0.saturating_sub(other.0)) }
    }

    /// Saturating product of the amount and a count.
    #[must_use]
    pub const fn mul(self, count: i64) -> Self {
        Self(self.0.saturating_mul(count))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
