//! Everything around control that talks to the API server or the network: watches, writes, the lease, and metrics. It decides nothing.
//!
//! One thread owns the [`Brain`] (control's facade). Watches feed it observations, it returns writes, the writer
//! performs them, and outcomes come back to it. Everything that reaches the network is here and in no crate below.
//!
//! The runtime never chooses what to write, retries a write by itself, or keeps a copy of objects.
//!
//! Where to start reading: [`run`] wires the parts; [`core_loop`] is the heart; [`writer`] says what each answer of the
//! API server means; [`berth_lease`] is the election as a pure state machine and [`elector`] its input and output;
//! [`watches`] turns kube's watch events into observations.

pub mod access;
pub mod brain;
mod candidacy;
pub mod checkpoints;
pub mod clients;
pub mod clock;
pub mod core_loop;
mod differences;
mod dump;
pub mod elector;
pub mod events;
mod first_list;
mod items;
mod journal;
pub mod leadership;
pub mod load;
pub mod metrics;
pub mod options;
pub mod outcome;
pub mod pace;
pub mod pool;
pub mod pulse;
pub mod rate;
pub mod raw;
mod rescue;
mod retry;
pub mod run;
pub mod server;
mod source;
mod stored;
pub mod watches;
pub mod writer;

pub use brain::Brain;
pub use options::{Election, Options};
pub use run::{Beside, Error, run};
