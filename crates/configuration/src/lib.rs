//! Kueue's configuration file as Berth's settings, with the flags that go before it: the manager and `berth decide` share them.
//!
//! The library reads a text, and looks for files of certificates. It knows no cluster, no runtime and no webhook: they convert what they
//! need otherwise.
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

pub use accelerator_flags::CardFlags;
pub use addresses::Addresses;
pub use duration::GoDuration;
pub use election::Election;
pub use file::{Loaded, load};
pub use given::Given;
pub use webhook::{ObjectNames, Webhook};
