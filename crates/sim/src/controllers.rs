//! Controllers of Kubernetes and of others, as clients of the API server.

mod job_sets;

pub use job_sets::{ATTEMPT, JobSetController, PART};
