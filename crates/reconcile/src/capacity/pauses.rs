//! Pauses between two looks at the pods of a started workload.

use berth_cache::moments::after;
use jiff::Timestamp;

/// Shortest and longest pause between two looks at pods, in milliseconds.
pub(super) const PAUSE_MS: (i64, i64) = (5_000, 30_000);

/// The time of the next look at pods that do not lack capacity: after the patience of the tier, within bounds.
pub(super) fn next_look(last: Timestamp, patience_ms: i64) -> Timestamp {
    after(last, patience_ms.clamp(PAUSE_MS.0, PAUSE_MS.1))
}

/// The time of the next question to autoscalers: after an eighth of the patience, within the bounds of [`PAUSE_MS`].
pub(super) fn next_question(last: Timestamp, patience_ms: i64) -> Timestamp {
    next_look(last, patience_ms / 8)
}
