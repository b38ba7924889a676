//! Tests of what kinds of jobs mean: case files, groups of pods, and what TrainingJobs render.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod kinds;
mod pod_groups;
mod training_jobs;
