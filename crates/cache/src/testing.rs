//! Times and objects for tests of the cache.

use jiff::Timestamp;
use serde_json::Value;

use crate::moments::after_seconds;

/// The time of all decisions in tests.
pub(crate) fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(1_800_000_000)
}

/// The time a number of seconds after [`now`].
pub(crate) fn in_seconds(seconds: i64) -> Timestamp {
    after_seconds(now(), seconds)
}

/// The time a number of seconds after [`now`], as text in an object.
pub(crate) fn at(seconds: i64) -> String {
    in_seconds(seconds).to_string()
}

/// A JSON object as a value of its type.
pub(crate) fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
    let shown = object.to_string();
    serde_json::from_value(object).unwrap_or_else(|error| panic!("{error}: {shown}"))
}
