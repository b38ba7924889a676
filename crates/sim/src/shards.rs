//! Parts of the seeds of a law, for runs that share the seeds.

use std::ops::Range;

/// The seeds of a part of the seeds from 1 to `all`. `shard` is the value of the environment variable `BERTH_SHARD`: `2/4` names the second of four parts.
///
/// # Panics
/// The text `shard` does not have this form.
#[must_use]
pub fn part(all: u64, shard: &str) -> Range<u64> {
    let parts = shard.split_once('/').and_then(|(part, of)| Some((part.parse::<u64>().ok()?, of.parse::<u64>().ok()?)));
    let (part, of) = parts.filter(|(part, of)| (1..=*of).contains(part)).expect("BERTH_SHARD is to be like 2/4");
    1 + all * (part - 1) / of..1 + all * part / of
}
