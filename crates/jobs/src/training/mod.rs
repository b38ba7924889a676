//! The kind TrainingJob: its requests, its children, and its state, which follows from the state of its children.
//!
//! Unlike jobs of other kinds, a TrainingJob has no pods before it is admitted: a start creates its children, and a stop deletes them. The children have their
//! placement from their creation, and a stop restores nothing. [`roles`] (the roles and their pods) and [`children`] (the objects that a start creates) are the
//! places to start reading; `rendezvous` has the environment variables of each framework.

mod children;
mod compose;
mod elastic;
mod facts;
mod owner;
mod rendezvous;
mod role;
mod role_state;
mod roles;
mod rules;
mod saved;
mod states;
mod workload;

pub use children::{Child, ChildKind, RunError, children};
pub use elastic::{Elastic, Past, Rescale, Scale};
pub use facts::{TrainingFacts, training_facts};
pub(crate) use owner::KIND;
pub use owner::{child_job_name, is_training_job, role_of_child, training_owner};
pub use role::{Accelerators, ROLES, Role, WORKER, deciding_role};
pub use role_state::RoleState;
pub use roles::{role_names, roles, training_pod_sets};
pub use rules::{invalid_training_job, invalid_training_job_change, invalid_training_job_metadata};
pub use saved::{Continuation, Saved, saved_of};
pub(crate) use states::role_of;
pub use states::{TrainingEnd, role_state, training_end, training_finish};
pub use workload::{own_annotations, slice_workload, training_workload};
