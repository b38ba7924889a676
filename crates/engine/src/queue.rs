//! Pending workloads: their classes, and the order in which they are tried.

pub(crate) mod afs;
pub(crate) mod pending;
pub(crate) mod sorted;
pub(crate) mod standing;
pub(crate) mod tie;
pub(crate) mod waiting;
