//! Invariants of the world, for tests, simulations and (cheap enough) production.

use crate::world::World;

/// Faults in the accounting of a world; empty when all is well. The usage of every queue is recomputed from its workloads, the usage and
/// quota of every cohort from its children, and pending workloads are counted. Costs all workloads and all cells.
#[must_use]
pub fn check(world: &World) -> Vec<String> {
    world.audit()
}
