//! Conditions of a TrainingJob, and reasons of its conditions, which several decisions name.

use berth_api::conditions::{own_reasons, training_types};

/// Reason of `Suspended` where the user asks for it.
pub(crate) const REQUESTED: &str = own_reasons::REQUESTED;
/// Reason of the end of a TrainingJob that has waited too long.
pub(crate) const MAX_WAIT_TIME_EXCEEDED: &str = own_reasons::MAX_WAIT_TIME_EXCEEDED;
/// Reason of an eviction, and condition, of a gang whose pods were not ready in time.
pub(crate) const SCHEDULING_TIMEOUT: &str = training_types::SCHEDULING_TIMEOUT;
/// Condition, and event, of a job that was asked to save its work before it is stopped.
pub(crate) const CHECKPOINT_REQUESTED: &str = training_types::CHECKPOINT_REQUESTED;
/// Reason of `Stalled`, and event, of a job whose store does not exist.
pub(crate) const STORE_NOT_FOUND: &str = own_reasons::CHECKPOINT_STORE_NOT_FOUND;
/// Reason of `Running` from when a Job of a run that was up is gone until all its pods are ready again.
pub(crate) const JOB_GONE: &str = own_reasons::JOB_GONE;
/// Condition that says how the number of workers may change.
pub(crate) const ELASTIC: &str = training_types::ELASTIC;

/// A condition to set: status, reason, message.
pub(crate) type Words = (bool, String, String);
