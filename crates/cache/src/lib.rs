//! Cache: the last observed state of the cluster's objects, with indexes, without I/O, clock or async.
//!
//! Only observations ([`event::Observation`]) change the [`View`]. The view stores an object as one record, and updates the indexes of the object with each
//! change of the record. The crate `cache` decides nothing, and knows no write that is under way. The crate `cache` knows the model of the engine, because the
//! view keeps the pod sets of a Workload in the form in which the engine takes them; the crate holds no world of the engine, and asks for no plan.
//!
//! Where to start: [`View`] in `view.rs`, [`WorkloadView`] in `workload_view.rs`, [`object::Kind`] and [`object::ObjectKey`] in `object.rs` (names of what is
//! decided about), `deltas.rs` (translation of API objects for the engine), [`cluster_facts`] (facts about the cluster for reviews).

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

pub mod admission_checks;
mod children;
pub mod cluster_facts;
pub mod deltas;
pub mod ending_pods;
pub mod event;
pub mod feature_gates;
mod group_pods;
mod identities;
mod job_phase;
pub mod job_pods;
pub mod jobs;
pub mod moments;
pub mod names;
pub mod object;
pub mod pods;
mod pods_of_jobs;
mod policies;
mod policy_merge;
pub mod policy_rules;
pub mod priorities;
pub mod provisioning_index;
pub mod settings;
pub mod shape;
pub mod shed;
pub mod slices;
pub mod slim;
#[cfg(test)]
mod testing;
pub mod tier_reasons;
pub mod tier_rules;
pub mod timeline;
mod training_jobs;
pub mod training_view;
mod unlisted;
mod view;
mod waits;
mod workload_phase;
pub mod workload_view;
mod workloads;

pub use crate::job_phase::JobPhase;
pub use crate::names::{Name, name_of};
pub use crate::view::View;
pub use crate::workload_phase::WorkloadPhase;
pub use crate::workload_view::{Member, Owner, Rare, TierRequest, WorkloadView};
