//! Answers to questions about the world: figures, accounts of single workloads, and reasons in words.

pub(crate) mod account;
pub(crate) mod figures;
mod shares;
pub(crate) mod why;
