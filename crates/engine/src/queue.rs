//! Pending workloads: their classes of equals, and the order in which workloads are tried.

pub(crate) mod afs;
pub(crate) mod key;
mod order_value;
pub(crate) mod pending;
pub(crate) mod sorted;
pub(crate) mod tie;
mod waiting;
