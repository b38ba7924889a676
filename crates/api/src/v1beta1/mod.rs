//! The five kinds whose fields were different in v1beta1, as they were there.
//!
//! They are the source of the v1beta1 schemas in `crds/` and nothing else: Berth reads and writes v1beta2, and objects pass
//! between the two as JSON ([`crate::conversion`]). Types that are alike in both versions are those of v1beta2.

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

/// The older version, as it stands in `apiVersion` behind the group.
pub const VERSION: &str = "v1beta1";
/// `apiVersion` of every object in this module.
pub const API_VERSION: &str = "kueue.x-k8s.io/v1beta1";
