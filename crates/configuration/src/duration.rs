//! Durations in Go's syntax (`1h30m`, `1.5s`, `300ms`), as Kubernetes configuration files write them.

use serde::de::{Deserialize, Deserializer, Error};
use std::time::Duration;

/// A duration in nanoseconds, which may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(i64);

impl GoDuration {
    /// A duration of whole minutes.
    pub(crate) const fn minutes(minutes: i64) -> Self {
        Self::seconds(minutes * 60)
    }

    /// A duration of whole seconds.
    pub(crate) const fn seconds(seconds: i64) -> Self {
        Self(seconds * 1_000_000_000)
    }

    /// The duration in whole milliseconds, rounded towards zero.
    pub(crate) const fn millis(self) -> i64 {
        self.0 / 1_000_000
    }

    /// The duration of a field of the configuration file, or `None` if the field is absent or zero. As in Kueue, a duration of zero counts as absent, because
    /// Go programs write zero for fields that the user has not set.
    pub(crate) fn non_zero(given: Option<Self>) -> Option<Self> {
        given.filter(|given| given.0 != 0)
    }

    /// Returns true if the duration is below zero.
    pub(crate) const fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// The duration as a `Duration`; zero if the duration is negative.
    pub fn length(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }

    /// Reads a duration in Go's syntax without rounding.
    ///
    /// # Errors
    /// Fails if Go would refuse the text, or if the duration is beyond Go's range of about 292 years.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a duration such as 30s, 5m or 1h30m");
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Ok(Self(0));
        }
        let mut total: i128 = 0;
        if rest.is_empty() {
            return Err(bad());
        }
        while !rest.is_empty() {
            let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
            let (number, tail) = rest.split_at(number_end);
            let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
            let (unit, after) = tail.split_at(unit_end);
            let unit: i128 = match unit {
                "ns" => 1,
                "us" | "µs" | "μs" => 1_000,
                "ms" => 1_000_000,
                "s" => 1_000_000_000,
                "m" => 60_000_000_000,
                "h" => 3_600_000_000_000,
                _ => return Err(bad()),
            };
            let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
            if (integer.is_empty() && fraction.is_empty()) || fraction.contains('.') {
                return Err(bad());
            }
            let mut value: i128 = if integer.is_empty() { 0 } else { integer.parse().map_err(|_| bad())? };
            value = value.checked_mul(unit).ok_or_else(bad)?;
            let mut place = unit;
            for digit in fraction.bytes() {
                place /= 10;
                value += place * i128::from(digit - b'0');
            }
            total = total.checked_add(value).ok_or_else(bad)?;
            rest = after;
        }
        let total = if negative { -total } else { total };
        i64::try_from(total).map(Self).map_err(|_| format!("duration `{text}` is out of range"))
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_duration_is_parsed_as_go_does() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("5s", 5_000_000_000),
            ("-5s", -5_000_000_000),
            ("+1ns", 1),
            ("1h30m", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("300ms", 300_000_000),
            ("2us", 2_000),
            ("2µs", 2_000),
            ("2μs", 2_000),
            ("1m1s1ms", 61_001_000_000),
            ("168h", 604_800_000_000_000),
        ] {
            assert_eq!(GoDuration::parse(text), Ok(GoDuration(nanos)), "{text}");
        }
        for text in ["", "5", "s", "-", "1x", "1d", ".s", "1..5s", "1.2.3s", "1 s", " 1s", "3000000h", "1s5"] {
            assert!(GoDuration::parse(text).is_err(), "{text}");
        }
    }
}
