//! The simulation replays: a seed gives a run byte for byte. `cargo run --example simulate -- 1..301` judges the runs of many seeds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod seeds;
