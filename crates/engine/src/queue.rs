//! Pending workloads: their classes of equals, and the order in which workloads are tried.

pub(crate) mod afs;
pub(crate) mod key;
pub(crate) mod pending;
pub(crate) mod sorted;
mod standing;
pub(crate) mod tie;
mod waiting;
