//! Checks of the invariants of the world, for tests, simulations and (they are cheap enough) production.

use crate::world::World;

/// Faults in the accounting of a world; empty if there are no faults. The check recomputes the usage of every queue from its workloads and the usage and quota
/// of every cohort from its children, and counts pending workloads. Cost of `check`: the number of all workloads and all cells, and for each ClusterQueue the
/// number of all workloads and jobs with usage beyond quota.
#[must_use]
pub fn check(world: &World) -> Vec<String> {
    world.audit()
}
