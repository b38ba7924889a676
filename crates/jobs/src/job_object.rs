//! A stored job for code that does not know the job's kind.

use crate::admission::{Defaults, Facts, KeptSuspend};
use crate::build::Priority;
use crate::object_patch::ObjectPatch;
use crate::placement::{Placement, PlacementError};
use crate::pod_set_error::PodSetError;
use crate::state::JobState;
use crate::template::TemplateParts;
use berth_api::validation::FieldError;
use berth_api::{PodSet, Workload};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

/// A stored job of any kind, with the functions of its [`crate::JobKind`].
pub trait JobObject: Debug + Send + Sync + Any {
    /// Metadata of the job.
    fn metadata(&self) -> &ObjectMeta;
    /// Mutable metadata of the job.
    fn metadata_mut(&mut self) -> &mut ObjectMeta;
    /// The job's queue; see [`crate::JobKind::queue_name`].
    fn queue_name(&self) -> Option<&str>;
    /// Names and replicas of the job's parts; see [`crate::JobKind::part_names`].
    fn part_names(&self) -> Vec<(String, i32)>;
    /// The state of the job; see [`JobState::read`].
    fn state(&self, older: Option<&JobState>) -> JobState;
    /// Defaults of the job; see [`crate::job_defaults`].
    fn defaults(&self, facts: Facts) -> Defaults;
    /// Faults of the job; see [`crate::validate_job`].
    fn errors(&self) -> Vec<FieldError>;
    /// Faults of the job's change from the older object `old`; see [`crate::validate_job_update`]. If `old` is of another job kind, these are all faults of the
    /// job.
    fn change_errors(&self, old: &dyn JobObject, default_queue: bool) -> Vec<FieldError>;
    /// Faults of a change from the older object `old` while the job is being deleted; see [`crate::validate_leaving_job`]; empty if `old` is of another job
    /// kind.
    fn leaving_errors(&self, old: &dyn JobObject) -> Vec<FieldError>;
    /// The value of `spec.suspend` that the job keeps from the older object `old`; see [`crate::kept_suspend`]; `None` if `old` is of another job kind.
    fn kept_suspend(&self, old: &dyn JobObject, facts: Facts) -> Option<KeptSuspend>;
    /// The job as JSON.
    ///
    /// # Errors
    /// The job cannot be written as JSON.
    fn value(&self) -> serde_json::Result<Value>;
    /// The job's pod sets; see [`crate::JobKind::pod_sets`].
    ///
    /// # Errors
    /// The error names the field or annotation that cannot be read.
    fn pod_sets(&self) -> Result<Vec<PodSet>, PodSetError>;
    /// The Workload to create for the job; see [`crate::build_workload`].
    fn workload(&self, pod_sets: Vec<PodSet>, priority: Priority, copied: &BTreeSet<String>) -> Workload;
    /// Patch that suspends the job; see [`crate::JobKind::suspend_patch`].
    fn suspend_patch(&self) -> ObjectPatch;
    /// Patch that begins a stop of the job; see [`crate::JobKind::stop_patch`].
    fn stop_patch(&self) -> ObjectPatch;
    /// Status patch before a change of the template; see [`crate::JobKind::unlock_patch`].
    fn unlock_patch(&self) -> Option<ObjectPatch>;
    /// Patch that restores the job's template; see [`crate::JobKind::restore_patch`].
    fn restore_patch(&self, original: &[TemplateParts]) -> Option<ObjectPatch>;
    /// Patch that starts the job; see [`crate::JobKind::start_patch`].
    ///
    /// # Errors
    /// The job can never start as it was admitted.
    fn start_patch(&self, placements: &[Placement]) -> Result<ObjectPatch, PlacementError>;
}

/// A shared job object, as observations have it.
pub type SharedJob = Arc<dyn JobObject>;
