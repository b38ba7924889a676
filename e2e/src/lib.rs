//! The harness of the end-to-end tests: a real control plane on loopback, and Berth on it as it ships.
//!
//! End-to-end tests, the demo and the benchmarks use this crate. The module [`control_plane`] starts etcd, kube-apiserver, kube-controller-manager,
//! kube-scheduler and kwok in a temporary folder; [`nodes`] describes the machines; [`manager`] runs the shipped binary with exactly the chart's
//! rights; [`observer`] watches all objects and judges their changes by [`berth_invariants`]; [`proxy`] stands between Berth and the API server and injects
//! faults at chosen requests; [`wait`] waits for a state, on the clock of [`test_clock`], and reports the last observed state if the wanted state does not
//! come.
//!
//! The crate never reads the environment variable KUBECONFIG, never talks to a cluster that it did not start (except that the demo does so when it is
//! asked to), never uses Berth's own arithmetic to judge Berth's decisions, never sleeps in the hope that a state comes, and never leaves a process
//! behind.
//!
//! A case file of the engine is usually a better place for a new test than this crate. A reader of this crate should start at `tests/smoke.rs`.

pub mod admission_policy;
pub mod adoption;
pub mod autoscaler;
pub mod azure;
pub mod bad_fields;
pub mod batch_roles;
pub mod bench;
pub mod binaries;
pub mod bucket;
pub mod certificates;
pub mod container;
pub mod control_plane;
pub mod examples;
pub mod folder;
pub mod foreign_cluster;
pub mod frameworks;
pub mod gcs;
pub mod helm;
pub mod http;
pub mod jobset;
pub mod kinds;
pub mod kueue;
pub mod kueue_fields;
pub mod manager;
pub mod manifest;
pub mod memory_bound;
pub mod name_server;
pub mod nodes;
pub mod observer;
mod older;
pub mod own_folder;
pub mod pages;
mod plane_args;
pub mod process;
pub mod prometheus;
pub mod proxy;
pub mod quickstart;
pub mod recompute;
pub mod registry;
pub mod s3;
pub mod scenario;
pub mod shipped;
pub mod story;
pub mod test_clock;
#[cfg(test)]
mod time_outs;
pub mod tour;
pub mod trainer;
pub mod wait;
pub mod webhooks;
pub mod world;

pub use berth_invariants::quota_tree;
