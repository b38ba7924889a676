//! The webhook server: it answers the API server's reviews over HTTPS, on every replica, and keeps its own certificates.
//!
//! A review never sends a request to the API server, except for one question about the author of a TrainingJob ([`author`]); facts about other
//! objects come from [`ClusterFacts`]. A review never decides about an admission, and never waits for the control loop, because the server has a
//! thread of its own. The rules of reviews are in `berth_api::validation` and `berth_jobs`; the crate `berth-webhook` applies them.
//!
//! Where to start reading: [`routes`] maps each path to its review, [`review`] decodes reviews and encodes answers, [`server`] has the limits, and
//! [`certs`] manages the certificates by the decisions of `certs/rotate.rs`.

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
use berth_jobs::training::Accelerators;
use berth_jobs::{Facts, JobType};
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::Value;
use std::collections::BTreeMap;

/// Facts about the cluster that a review needs; all methods answer at once from memory.
pub trait ClusterFacts: Send + Sync + 'static {
    /// Whether Berth manages jobs of the kind.
    fn has_kind(&self, kind: JobType) -> bool;
    /// The facts that apply to jobs of the namespace.
    fn facts(&self, namespace: &str) -> Facts;
    /// Whether its owner, a JobSet or TrainingJob, starts and stops the Job with the metadata `job`: mostly since the Job is a part of the owner.
    fn governs(&self, namespace: &str, job: &ObjectMeta, owner: &OwnerReference) -> bool;
    /// The StatefulSet with the namespace and name, as far as reviews of its pods need it; `None` if no watch has shown the StatefulSet, or if it
    /// names no queue.
    fn stateful_set(&self, namespace: &str, name: &str) -> Option<OwningSet>;
    /// Label selectors of the namespaces in which objects are reviewed although they name no queue, by the plural of the objects' kind; `None` while
    /// the selectors are not known.
    fn opted_in(&self) -> Option<BTreeMap<&'static str, Value>>;
    /// The resource and the node label by which TrainingJobs request accelerators.
    fn accelerators(&self) -> Accelerators;
}

/// Receiver of the measurements of the webhook server.
pub trait Meter: Send + Sync + 'static {
    /// Called after a review was answered, with the short name of its route as `endpoint`, with the `outcome` (`allowed`, `denied`, `converted` or `error`),
    /// and with the seconds from the received body to the answer.
    fn answered(&self, endpoint: &'static str, outcome: &'static str, seconds: f64);
    /// Called after a connection or request was refused, with the reason.
    fn refused(&self, why: &'static str);
    /// Receives the time at which the served certificate expires, in seconds since 1970.
    fn expires(&self, at: i64);
}
