//! Tests of the engine through its public interface: golden cases, laws over random worlds, small worlds, and worlds with many equal workloads.

mod cases;
mod crowds;
#[path = "worlds/extras.rs"]
mod extras;
mod fixture;
mod laws;
mod letter;
#[path = "../../testrun/noted.rs"]
mod noted;
#[path = "oracle/mod.rs"]
mod slow;
mod small;
mod worlds;
