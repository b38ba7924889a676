//! The five kinds whose fields were different in v1beta1, as types with the fields of v1beta1.
//!
//! The types of this module are only the source of the v1beta1 schemas in `crds/`: Berth reads and writes v1beta2, and objects are converted between
//! the versions as JSON ([`crate::conversion`]). Parts of these kinds that do not differ have the types of v1beta2.

mod cluster_queue;
mod local_queue;
mod multikueue;
mod workload;
mod workload_status;

pub use cluster_queue::*;
pub use local_queue::*;
pub use multikueue::*;
pub use workload::*;
pub use workload_status::*;

/// Name of the older version, as it follows the group in `apiVersion`.
pub const VERSION: &str = "v1beta1";
/// `apiVersion` of objects of this module's kinds.
pub const API_VERSION: &str = "kueue.x-k8s.io/v1beta1";
