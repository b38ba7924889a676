//! The controller: from observations and outcomes to the next tasks, without I/O, clock or async.
//!
//! Observations ([`event::Observation`]) build the view of `berth-cache`; what matters for decisions is mirrored, delta by delta, into the
//! engine's world. [`Control::step`] then decides: the engine plans admissions, and every object that changed is judged by
//! one pure function of `berth-reconcile` per kind, which asks for at most one [`write::Task`]. The runtime performs the tasks and reports a
//! [`write::TaskOutcome`] for each; an outcome that is unknown is closed by a write (`state/unresolved.rs` of `berth-reconcile`), never by assuming.
//!
//! Control never talks to a server and never reads a clock, and does not write again to an object while no watch has shown the result of the last write.
//!
//! Rooms: `controller` owns the state and runs the step; `offline` runs the same without a cluster. Where to start: [`Control`] in `controller.rs`.

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
        clippy::disallowed_macros
    )
)]
#![allow(
    clippy::struct_excessive_bools,
    clippy::fn_params_excessive_bools,
    reason = "facts about jobs and Workloads that no typed phase holds yet"
)]

mod controller;
pub mod offline;

pub use berth_cache::{cluster_facts, event, feature_gates, settings};
pub use berth_reconcile::workload::preempt::{preemption_message, preemptor_named};
pub use berth_reconcile::workload::status::requests_differ;
pub use berth_reconcile::{autoscaler, measure, write};

pub use crate::controller::{Control, Step};
