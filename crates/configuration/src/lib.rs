//! Kueue's configuration file as Berth's settings, with the flags that take precedence over the file; the manager and `berth decide` share this
//! crate.
//!
//! The crate reads the text of the file, and checks whether certificate files exist. The crate does not depend on a cluster, the runtime or the
//! webhook server: the manager converts the settings for the runtime and the webhook server.
//!
//! Where to start reading: [`load`], then `schema.rs` for the form of the file.

mod accelerator_flags;
mod addresses;
pub mod document;
mod duration;
mod election;
mod fault;
mod file;
pub mod gates;
mod given;
pub mod lines;
mod namespaces;
mod schema;
mod transformations;
mod webhook;

pub use accelerator_flags::AcceleratorFlags;
pub use addresses::Addresses;
pub use duration::GoDuration;
pub use election::Election;
pub use file::{Loaded, load};
pub use given::Given;
pub use webhook::{ObjectNames, Webhook};
