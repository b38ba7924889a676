//! Admission decisions: the engine decides which pending workload gets which quota, which workloads are evicted for it, and why other workloads wait.
//!
//! A [`World`] takes in changes ([`Delta`]) and answers with plans ([`Plan`]). The same deltas and times always give the same plans. The engine never reads a
//! clock, does no I/O and does not know the Kubernetes API: the crates `cache` and `reconcile` translate between Kubernetes and the engine.
//!
//! The module `world` applies deltas and stores their content, `queue` orders pending workloads, `cycle` makes plans, `assign` finds flavors, `preempt` finds
//! victims, `quota` has the arithmetic of quota cells, cohorts and shares, `explain` answers questions about the world, and [`steps`] is the test surface:
//! everything that is public for tests alone.
//!
//! Doc comments of public functions state their cost as the number of objects that a function visits. Look-ups in maps and sorted sets count as constant, and
//! logarithms are left out. A *scan over the flavors* tries the flavors of a ClusterQueue for each pod set and resource of a workload, up to the root of the
//! cohort tree, with a search for victims for each flavor and resource that lacks quota. Partial admission repeats the scan as often as the logarithm of the
//! pods that may be left out, several resource groups repeat the scan for at most 32 combinations of flavors, and a limit of the share of a tier adds the nodes
//! of the cohort tree. A *search for victims* visits the nodes of the cohort tree and, in the worst case, all workloads that hold quota in the tree; with fair
//! sharing the search compares the shares of the nodes for each victim.
//!
//! A reader of the engine begins at its entry points, [`World::apply`] (`world.rs`) and [`World::plan`] (`cycle/plan.rs`).

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::indexing_slicing,
        clippy::print_stdout,
        clippy::print_stderr,
        clippy::disallowed_types,
        clippy::disallowed_methods,
        clippy::disallowed_macros,
        clippy::arithmetic_side_effects,
        clippy::float_arithmetic,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )
)]

mod answers;
mod assign;
mod cycle;
mod explain;
pub mod model;
mod options;
mod preempt;
mod queue;
mod quota;
pub mod steps;
mod world;

#[cfg(test)]
mod sketch;

pub use cycle::issued::Issued;
pub use explain::account::{Account, CellAccount, Holding, Right, Unblock};
pub use model::*;
pub use options::profile::{Departure, Profile};
pub use options::{FairSharing, Gates, Options, ShareStrategy};
pub use queue::afs::AdmissionFairSharing;
pub use quota::share::{Share, ShareFigures};
pub use world::check::check;
pub use world::digest::ChargedState;
pub use world::{Changed, World};
