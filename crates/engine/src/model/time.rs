//! Points in time, as data that callers pass in.

/// A point in time, in milliseconds since the Unix epoch. The engine never reads a clock; the current time is always an argument, `now`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub i64);
