//! The system clock, by which `testrun` measures the wall time of a complete run.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970-01-01.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
