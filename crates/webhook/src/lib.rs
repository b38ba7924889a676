//! The admission server: it answers the API server's reviews over HTTPS, on every replica, and keeps its own certificates.
//!
//! A review never calls the API server, but for one question about the author of a TrainingJob ([`author`]): facts beside the object come
//! from [`Surroundings`]. It never decides an admission, and never waits for the control loop: it has a thread of its own. The rules
//! themselves are in `berth_api::validation` and `berth_jobs`; here they are applied.
//!
//! Where to start reading: [`routes`] maps each path to its review, [`review`] turns bytes into a review and an answer into bytes,
//! [`server`] has the limits, and [`certs`] the life of the certificates, decided in `certs/rotate.rs`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable, clippy::indexing_slicing)
)]

pub mod author;
pub mod certs;
mod jobs;
mod kinds;
mod patch;
mod pods;
pub mod review;
pub mod routes;
pub mod server;

use berth_jobs::pods::OwningSet;
use berth_jobs::training::Cards;
use berth_jobs::{Facts, JobType};
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;
use std::collections::BTreeMap;

/// Facts about the cluster that a review needs; answered from memory, at once.
pub trait Surroundings: Send + Sync + 'static {
    /// Whether jobs of that kind are managed.
    fn has_kind(&self, kind: JobType) -> bool;
    /// Facts that apply to a job of that namespace.
    fn facts(&self, namespace: &str) -> Facts;
    /// Whether a Job of that name is part of its owner, a JobSet or a TrainingJob, which then starts and stops it.
    fn governs(&self, namespace: &str, job: &str, owner: &OwnerReference) -> bool;
    /// The StatefulSet of that namespace and name, as far as its pods need it; `None` when no watch has shown it, or when it names no
    /// queue.
    fn stateful_set(&self, namespace: &str, name: &str) -> Option<OwningSet>;
    /// By the plural of a kind, the label selector of the namespaces in which its objects are reviewed although they name no queue; `None`
    /// while it is not known.
    fn opted_in(&self) -> Option<BTreeMap<&'static str, Value>>;
    /// The resource and node label by which TrainingJobs ask for accelerators.
    fn cards(&self) -> Cards;
}

/// Receiver of the measurements of the webhook server.
pub trait Meter: Send + Sync + 'static {
    /// A review was answered: its path's name, `allowed`, `denied`, `converted` or `error`, and the seconds from its bytes to its
    /// answer.
    fn answered(&self, endpoint: &'static str, outcome: &'static str, seconds: f64);
    /// A connection or request was refused, and why.
    fn refused(&self, why: &'static str);
    /// Seconds since 1970 at which the served certificate ends.
    fn expires(&self, at: i64);
}
