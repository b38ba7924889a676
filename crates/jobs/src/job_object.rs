//! A stored job for code that does not know its kind.

use crate::admission::{Defaults, Facts, KeptSuspend};
use crate::build::Priority;
use crate::placement::{Placement, PlacementError};
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
    /// Metadata.
    fn metadata(&self) -> &ObjectMeta;
    /// Mutable metadata of the job.
    fn metadata_mut(&mut self) -> &mut ObjectMeta;
    /// [`crate::JobKind::queue_name`].
    fn queue_name(&self) -> Option<&str>;
    /// [`crate::JobKind::part_names`].
    fn part_names(&self) -> Vec<(String, i32)>;
    /// [`JobState::read`].
    fn state(&self, older: Option<&JobState>) -> JobState;
    /// [`crate::job_defaults`].
    fn defaults(&self, facts: Facts) -> Defaults;
    /// [`crate::validate_job`].
    fn errors(&self) -> Vec<FieldError>;
    /// [`crate::validate_job_update`], after an older state of the job; an older state of another kind counts as none.
    fn change_errors(&self, old: &dyn JobObject, default_queue: bool) -> Vec<FieldError>;
    /// [`crate::validate_leaving_job`], after an older state of the job; an older state of another kind counts as none.
    fn leaving_errors(&self, old: &dyn JobObject) -> Vec<FieldError>;
    /// [`crate::kept_suspend`], after an older state of the job; an older state of another kind counts as none.
    fn kept_suspend(&self, old: &dyn JobObject, facts: Facts) -> Option<KeptSuspend>;
    /// The object itself.
    ///
    /// # Errors
    /// If the object cannot be written as JSON.
    fn value(&self) -> serde_json::Result<Value>;
    /// [`crate::JobKind::pod_sets`].
    ///
    /// # Errors
    /// See there.
    fn pod_sets(&self) -> Result<Vec<PodSet>, String>;
    /// [`crate::build_workload`].
    fn workload(&self, pod_sets: Vec<PodSet>, priority: Priority, copied: &BTreeSet<String>) -> Workload;
    /// [`crate::JobKind::suspend_patch`].
    fn suspend_patch(&self) -> Value;
    /// [`crate::JobKind::stop_patch`].
    fn stop_patch(&self) -> Value;
    /// [`crate::JobKind::unlock_patch`].
    fn unlock_patch(&self) -> Option<Value>;
    /// [`crate::JobKind::restore_patch`].
    fn restore_patch(&self, original: &[TemplateParts]) -> Option<Value>;
    /// [`crate::JobKind::start_patch`].
    ///
    /// # Errors
    /// See there.
    fn start_patch(&self, placements: &[Placement]) -> Result<Value, PlacementError>;
}

/// A shared object, as observations carry it.
pub type SharedJob = Arc<dyn JobObject>;
