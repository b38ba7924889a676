//! Condition types and reasons of a TrainingJob's status that several decisions name.

use berth_api::conditions::{own_reasons, training_types};

/// Reason of the condition `Suspended` if the user requests the suspension.
pub(crate) const REQUESTED: &str = own_reasons::REQUESTED;
/// Reason of the end of a TrainingJob that has waited longer than its longest wait.
pub(crate) const MAX_WAIT_TIME_EXCEEDED: &str = own_reasons::MAX_WAIT_TIME_EXCEEDED;
/// Condition type, and reason of an eviction, for a gang whose pods were not ready in time.
pub(crate) const SCHEDULING_TIMEOUT: &str = training_types::SCHEDULING_TIMEOUT;
/// Condition type, and event reason, for a job that was asked to save its work before it is stopped.
pub(crate) const CHECKPOINT_REQUESTED: &str = training_types::CHECKPOINT_REQUESTED;
/// Reason of the condition `Stalled`, and event reason, for a job whose CheckpointStore does not exist.
pub(crate) const STORE_NOT_FOUND: &str = own_reasons::CHECKPOINT_STORE_NOT_FOUND;
/// Reason of the condition `Running` from the time when a Job of a run that was up is gone until all pods of the run are ready again.
pub(crate) const JOB_GONE: &str = own_reasons::JOB_GONE;
/// Condition type that says how the number of workers may change.
pub(crate) const ELASTIC: &str = training_types::ELASTIC;

/// The content of a condition: status, reason and message.
pub(crate) type Words = (bool, String, String);
