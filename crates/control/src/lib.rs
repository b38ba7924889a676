//! Control: from what was observed to the next write of each object, without I/O, clock or async.
//!
//! Observations ([`event::Observation`]) build the view; what matters for decisions is mirrored, delta by delta, into the
//! engine's world. [`Control::step`] then decides: the engine plans admissions, and every object that changed is judged by
//! one pure function per kind, which asks for at most one [`write::Write`] with its precondition. The runtime performs the
//! writes and reports an [`write::Outcome`] for each; an outcome that is unknown is closed by a write (`strays.rs`), never by
//! assuming.
//!
//! Control never talks to a server, reads a clock, or writes twice to an object whose last write it has not seen.
//!
//! Where to start: [`Control`] in `core.rs` (the step), `decide/job.rs` (what happens to a Job), `decide/workload.rs` (the
//! life of a Workload), `observe.rs` (the view), `flight.rs` (writes under way), `offline.rs`
//! (the same without a cluster).

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable, clippy::indexing_slicing)
)]

mod ask;
mod attempts;
pub mod autoscaler;
mod checkpoints;
mod checks;
mod children;
mod columns;
mod core;
mod decide;
mod deltas;
mod digest;
mod elastic;
pub mod event;
pub mod feature_gates;
mod figures;
mod flight;
mod job_events;
mod job_pods;
mod ladder;
pub mod measure;
mod moments;
mod observe;
pub mod offline;
mod older_reasons;
mod outcomes;
mod overruns;
mod planning;
mod plans;
mod pods;
mod policies;
mod provisioning;
mod ration;
mod relations;
mod restarts;
mod schedule;
pub mod settings;
mod shape;
mod shed;
mod slim;
mod starts;
mod status;
mod strays;
pub mod surroundings;
mod timeline;
mod training_figures;
mod training_view;
mod transitions;
mod unlisted;
mod view;
mod workloads;
pub mod write;

pub use crate::core::{Control, Step};
pub use crate::decide::preempt::{preemption_message, preemptor_named};
pub use crate::status::requests_differ;
