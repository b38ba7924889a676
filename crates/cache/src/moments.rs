//! Arithmetic of times and durations.

use berth_engine::model::Millis;
use jiff::{SignedDuration, Timestamp};

/// The time `ms` milliseconds after `time`; `time` itself if the sum is beyond the calendar.
pub fn after(time: Timestamp, ms: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_millis(ms)).unwrap_or(time)
}

/// The time `seconds` seconds after `time`; `time` itself if the sum is beyond the calendar.
pub fn after_seconds(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(time)
}

/// Full seconds from one time to another, 0 if the second time is earlier.
pub fn seconds_between(from: Timestamp, to: Timestamp) -> i64 {
    to.as_second().saturating_sub(from.as_second()).max(0)
}

/// Milliseconds from one time to another, 0 if the second time is earlier.
pub fn millis_between(from: Timestamp, to: Timestamp) -> i64 {
    i64::try_from(to.duration_since(from).as_millis()).unwrap_or(i64::MAX).max(0)
}

/// A time in the engine's unit, milliseconds.
pub fn millis(time: Timestamp) -> Millis {
    Millis(time.as_millisecond())
}
