//! Kinds of the API group `berth.dev`, for settings and jobs for which Kueue has no kind.

mod checkpoint_store;
mod duration;
mod queue_policy;
mod queue_policy_status;
mod text;
mod training_job;
mod training_status;

pub use checkpoint_store::*;
pub use duration::duration_seconds;
pub use queue_policy::*;
pub use queue_policy_status::*;
pub use training_job::*;
pub use training_status::*;

/// API group of Berth's own kinds.
pub const GROUP: &str = "berth.dev";
/// Only API version of Berth's own kinds.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of objects of Berth's own kinds.
pub const API_VERSION: &str = "berth.dev/v1alpha1";
