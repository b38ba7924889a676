//! Tests of the job kinds: case files, pod groups, and the objects that TrainingJobs create.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod kinds;
mod pod_groups;
mod training_jobs;
