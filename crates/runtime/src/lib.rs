//! The part of Berth that talks to the API server and the network: watches, writes, the lease, and metrics. The runtime makes no decisions.
//!
//! One thread owns the [`Controller`] (control's facade). Watches pass observations to the controller, the controller returns writes, the writer performs the
//! writes, and the controller gets the outcomes. No crate below the runtime talks to the network.
//!
//! The runtime never chooses a write, repeats a write by itself, or keeps a copy of objects.
//!
//! [`run`] connects the parts, and [`core_loop`] is the control loop; both are places to start reading. [`writer`] translates answers of the API server into
//! outcomes. [`berth_lease`] is the election as a pure state machine, and [`elector`] is its input and output. [`watches`] turns kube's watch events into
//! observations.

pub mod access;
pub mod checkpoints;
pub mod clients;
pub mod clock;
pub mod controller;
pub mod core_loop;
mod differences;
mod dump;
pub mod elector;
pub mod events;
mod first_list;
mod items;
mod journal;
pub mod leadership;
mod lease_participation;
pub mod liveness;
pub mod load;
pub mod metrics;
pub mod options;
pub mod outcome;
pub mod pool;
pub mod rate;
pub mod raw;
mod rescue;
mod retry;
pub mod run;
pub mod server;
mod source;
mod stored;
pub mod throttle;
pub mod watches;
pub mod writer;

pub use controller::Controller;
pub use options::{Election, Options};
pub use run::{Beside, Error, run};
