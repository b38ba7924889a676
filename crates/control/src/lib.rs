//! The crate `control` decides the next write of each object from the observed objects, without I/O, clock or async.
//!
//! Observations ([`event::Observation`]) update the view; each change that matters for admission is passed to the engine's world. [`Control::step`] then
//! decides: the engine plans admissions, and one pure function per kind decides about each changed object. A decision asks for at most one [`write::Task`]: a
//! write with its precondition, or a query. The runtime performs the tasks and reports a [`write::TaskOutcome`] for each; a write with an unknown outcome is
//! resolved by another write (`state/strays.rs`), never by assumption.
//!
//! Control never calls a server, reads a clock, or writes twice to an object whose last write the watch has not shown.
//!
//! Modules: `controller` runs the step. `state` holds the plans, the writes under way and the reports, `cache` holds the observed objects, and `notes` holds
//! control's notes about each object. `observe` handles observations. `job`, `workload`, `pod`, `pod_group`, `training_job`, `queues`, `policies` and
//! `provisioning` decide about their objects. `capacity` observes which capacity tiers have nodes. `offline` runs control on objects in memory, without a
//! cluster.
//!
//! Entry points for readers: [`Control`] in `controller.rs` (the step), `job.rs` (decisions about a Job), `workload.rs` (the life of a Workload).

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

pub mod autoscaler;
mod cache;
mod capacity;
mod context;
mod controller;
mod decision;
mod deltas;
pub mod event;
pub mod feature_gates;
mod job;
pub mod measure;
mod moments;
mod names;
mod notes;
mod observe;
pub mod offline;
mod overruns;
mod pod;
mod pod_group;
mod policies;
mod provisioning;
mod queues;
pub mod settings;
mod state;
pub mod surroundings;
#[cfg(test)]
mod testing;
mod timeline;
mod training_job;
mod workload;
pub mod write;

pub use crate::controller::{Control, Step};
pub use crate::workload::preempt::{preemption_message, preemptor_named};
pub use crate::workload::status::requests_differ;
