//! The arithmetic of quota: cells, the cohort tree, and shares.

pub(crate) mod balance;
pub(crate) mod share;
pub(crate) mod tree;
