//! Pending workloads: their classes, and the order in which they are tried.

pub(crate) mod afs;
pub(crate) mod key;
pub(crate) mod pending;
pub(crate) mod sorted;
mod standing;
pub(crate) mod tie;
mod waiting;
