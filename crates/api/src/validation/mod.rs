//! Rules about stored objects: rules that a CRD's schema and CEL rules cannot express, and once more the rules that the CRD has, because an older
//! schema may have accepted objects that today's schema refuses. A rule that CEL can express is in the CRD, too
//! (`docs/departures/0027-rules-in-the-crd.md`).
//!
//! Berth also gets objects that no webhook has reviewed, so Berth checks the rules before it uses an object, and shows the errors in a condition. All
//! validation functions are pure and never panic; an empty list of errors means that the object is valid. Rules that belong to a feature gate that is
//! off by default (concurrent admission, priority boost) have validation functions of their own.

mod admission;
mod alike;
#[cfg(test)]
mod asked_tests;
mod cluster_queue;
mod concurrent_admission;
mod field_error;
mod metadata;
mod names;
mod resource_flavor;
mod workload;
mod workload_update;

pub use admission::misfit;
pub use cluster_queue::{validate_cluster_queue, validate_cohort, validate_label_selector};
pub use concurrent_admission::{validate_cluster_queue_update, validate_concurrent_admission};
pub use field_error::{FieldError, newly_broken, summary};
pub use metadata::admission_gates;
pub use names::{label_value, qualified_name, subdomain};
pub use resource_flavor::validate_resource_flavor;
pub use workload::{validate_beside_pod_sets, validate_pod_sets, validate_priority_boost, validate_workload};
pub use workload_update::{validate_admission_gates_update, validate_workload_update};
