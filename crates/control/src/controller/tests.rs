//! Unit tests that look at the owners of the state of control.

mod ending_pods;
mod foreign_outcomes;
mod forgotten_jobs;
mod shed_jobs;
