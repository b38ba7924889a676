//! A simulated cluster for tests: an API server in memory with its controllers, and control as a client of the API server.
//!
//! The crate serves tests only, and is part of no release. Readers should start at [`api_server::ApiServer`]. [`cluster::Cluster`] runs one leader in lockstep,
//! for stories about jobs. [`simulation::run`] runs two replicas with a simulated network, by a seed.

#![allow(clippy::missing_panics_doc, reason = "a panic is the failure of a test")]

pub mod api_server;
pub mod cluster;
pub mod controllers;
pub mod dice;
pub mod manifests;
pub mod review;
pub mod shards;
pub mod simulation;
pub mod tenant;
pub mod watch;
