//! TrainingJob: its requests, the objects that run it, and its state as it follows from theirs.
//!
//! Unlike other kinds, a TrainingJob has no pods before it is admitted: a start creates its children, and a stop deletes them. The children
//! have their placement from the beginning, and a stop restores nothing. Start reading at [`roles`] (the roles and their pods), then
//! [`children`] (the objects that a start creates); `rendezvous` has the variables of each framework.

mod children;
mod compose;
mod elastic;
mod facts;
mod rendezvous;
mod roles;
mod rules;
mod saved;
mod states;
mod workload;

pub(crate) use children::KIND;
pub use children::{
    Child, ChildKind, RunError, child_job_name, children, is_training_job, role_of_child, training_owner,
};
pub use elastic::{Elastic, Past, Rescale, Scale};
pub use facts::{TrainingFacts, training_facts};
pub use roles::{Cards, ROLES, Role, WORKER, deciding_role, role_names, roles, training_pod_sets};
pub use rules::{invalid_training_job, invalid_training_job_change, invalid_training_job_metadata};
pub use saved::{Continuation, Saved, saved_of};
pub(crate) use states::role_of;
pub use states::{RoleState, TrainingEnd, role_state, training_end, training_finish};
pub use workload::{own_annotations, slice_workload, training_workload};
