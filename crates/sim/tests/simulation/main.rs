//! Runs of the simulation by their seeds. `cargo run -p berth-sim --example simulate 1..301` judges the runs of many seeds, too, and prints no budget.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../../../testrun/noted.rs"]
mod noted;
mod seeds;
