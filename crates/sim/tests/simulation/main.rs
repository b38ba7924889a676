//! The simulation on many seeds: every invariant holds at every revision, and everything comes to rest.
//!
//! A failure names its seed. `BERTH_SEED=7 cargo test --locked --workspace --test simulation -- --nocapture seeds_keep` replays it, with each line of
//! its trace. `BERTH_STORIES` sets the number of seeds, `BERTH_SHARD=2/4` takes the second of four parts of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../../../testrun/noted.rs"]
mod noted;
mod planted;
mod seeds;
