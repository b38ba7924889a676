//! A cluster that fits in a test: an API server in memory with its controllers, and control as its client.
//!
//! The crate serves tests, and never ships. Start reading at [`cluster::Cluster`].

#![allow(missing_docs, reason = "moved from the tests of control; the pages follow")]

pub mod cluster;
