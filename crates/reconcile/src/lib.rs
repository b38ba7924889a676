//! Reconcile: from what was observed to the next write of one object, without I/O, clock or async.
//!
//! A decision is a function of a [`context::Context`] and an object: it reads the cache, the quota, the writes under way and the settings, changes none
//! of them, and asks for at most one [`write::Task`]: a write with its precondition, or a query. [`decide::decide`] chooses the function by the kind of
//! the object. The crate `reconcile` cannot name the controller, because the controller calls this crate.
//!
//! Rooms: `state` holds the plans, the writes under way, the work queue and the reports, `notes` holds what is noted about each object, `observe` takes
//! observations in. `job`, `workload`, `pod`, `pod_group`, `training_job`, `queues`, `policies` and `provisioning` decide about their objects;
//! `capacity` follows whether capacity turns up, tier by tier; `overruns` finds usage beyond quota.
//!
//! Where to start: `job.rs` (what happens to a Job), `workload.rs` (the life of a Workload).

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
pub mod capacity;
pub mod context;
pub mod decide;
pub mod decision;
pub mod job;
pub mod measure;
pub mod notes;
pub mod observe;
pub mod overruns;
pub mod pod;
mod pod_group;
mod policies;
pub mod provisioning;
mod queues;
pub mod state;
#[cfg(test)]
mod testing;
pub mod training_job;
pub mod workload;
pub mod write;
