//! Invariants of the world, for tests, simulations and (cheap enough) production.

use crate::world::World;

/// Faults in the books of a world; empty when all is well. Usage of every queue is recomputed from its workloads, usage and
/// quota of every cohort from its children, and who is pending is counted. Costs all workloads and all cells.
#[must_use]
pub fn check(world: &World) -> Vec<String> {
    world.audit()
}
