//! Rules about stored objects: rules that the schema and its CEL rules cannot have, and again the ones that they have, because an older schema
//! accepted objects that today's refuses. A rule that CEL can have is in the CRD first (`docs/departures/0027-rules-in-the-crd.md`).
//!
//! The operator has to live with objects that no webhook saw, so it calls these rules before it uses an object, and shows the errors in a
//! condition. All functions are pure and total; an empty list means legal. Rules behind feature gates that are off by default are functions
//! of their own (concurrent admission, priority boost).

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
