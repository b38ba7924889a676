//! The kinds of `kueue.x-k8s.io/v1beta2` and `berth.dev` as Rust types, with the labels, annotations and condition reasons that belong to them.
//!
//! The crate decodes every object that the API server stores, and writes it back without a change of meaning. The crate is the only source of `crds/`
//! (`make crds`). The crate does not talk to an API server, read a clock, or decide about admissions.
//!
//! Decoding is lenient on purpose: enums are plain strings and every field has a default, because one object that was stored under older rules must
//! not make a whole list undecodable. The schemas of the CRDs and the module [`validation`] are strict.
//!
//! Start reading at [`Workload`] and [`ClusterQueue`], then [`labels`] and [`conditions`].

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

#[macro_use]
mod object;
mod admission_check;
mod beyond_kueue;
mod capacity;
mod cluster_queue;
mod cohort;
mod local_queue;
mod multikueue;
mod priority_class;
mod provisioning_request_config;
mod quota;
mod resource_flavor;
mod rules;
mod topology;
mod topology_assignment;
mod workload;
mod workload_status;

pub mod autoscaling;
pub mod berth;
pub mod conditions;
pub mod conversion;
pub mod jobset;
pub mod json;
pub mod labels;
pub mod lean;
pub mod node;
pub mod v1beta1;
pub mod validation;

pub use admission_check::*;
pub use beyond_kueue::stays;
pub use capacity::{BASTION_JOB_VERSION, BASTION_TIER, CAPACITY_SELECTORS, CapacityTier, TierError, parse_tiers};
pub use cluster_queue::*;
pub use cohort::*;
pub use local_queue::*;
pub use multikueue::*;
pub use priority_class::*;
pub use provisioning_request_config::*;
pub use quota::*;
pub use resource_flavor::*;
pub use topology::*;
pub use topology_assignment::*;
pub use workload::*;
pub use workload_status::*;

/// API group of Kueue's kinds; the module [`berth`] has the group of Berth's own kinds.
pub const GROUP: &str = "kueue.x-k8s.io";
/// Version in which Kueue's kinds are stored, and the only version that Berth reads and writes.
pub const VERSION: &str = "v1beta2";
/// `apiVersion` of every object of the group `kueue.x-k8s.io`.
pub const API_VERSION: &str = "kueue.x-k8s.io/v1beta2";
