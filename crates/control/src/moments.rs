//! Times that follow others, and how long that takes.

use berth_engine::model::Millis;
use jiff::{SignedDuration, Timestamp};

/// The time `ms` milliseconds later; the time itself where the calendar ends.
pub(crate) fn after(time: Timestamp, ms: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_millis(ms)).unwrap_or(time)
}

/// The time `seconds` seconds later; the time itself where the calendar ends.
pub(crate) fn after_seconds(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(time)
}

/// Full seconds from one time to another, 0 when that is earlier.
pub(crate) fn seconds_between(from: Timestamp, to: Timestamp) -> i64 {
    to.as_second().saturating_sub(from.as_second()).max(0)
}

/// Milliseconds from one time to another, 0 when that is earlier.
pub(crate) fn millis_between(from: Timestamp, to: Timestamp) -> i64 {
    i64::try_from(to.duration_since(from).as_millis()).unwrap_or(i64::MAX).max(0)
}

/// The time as the engine takes it.
pub(crate) fn millis(time: Timestamp) -> Millis {
    Millis(time.as_millisecond())
}
