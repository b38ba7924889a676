//! A cluster that fits in a test: an API server in memory with its controllers, and control as its client.
//!
//! The crate serves tests, and never ships. Start reading at [`api_server::ApiServer`]. [`cluster::Cluster`] runs one leader in lockstep, for stories of
//! jobs. [`simulation::run`] runs two replicas with a network of their own, by a seed.

#![allow(clippy::missing_panics_doc, reason = "a panic is the failure of a test")]

pub mod api_server;
pub mod cluster;
pub mod controllers;
pub mod dice;
pub mod manifests;
pub mod simulation;
pub mod tenant;
pub mod watch;
