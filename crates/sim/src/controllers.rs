//! Simulated controllers of Kubernetes and of the JobSet project, as clients of the API server.

mod garbage;
mod job_sets;
mod jobs;
mod kubelet;

pub use garbage::GarbageCollector;
pub use job_sets::{ATTEMPT, JobSetController, PART};
pub use jobs::{JobController, TRACKING, has_ended, is_over};
pub use kubelet::Kubelets;
