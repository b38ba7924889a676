//! Objects of one job kind, for code that does not know the kind.

use crate::admission::{
    Defaults, Facts, KeptSuspend, job_defaults, kept_suspend, validate_job, validate_job_update, validate_leaving_job,
};
use crate::build::{Priority, build_workload};
use crate::job_object::JobObject;
use crate::job_type::{JobInfo, ListedKind};
use crate::object_patch::ObjectPatch;
use crate::placement::{Placement, PlacementError};
use crate::pod_set_error::PodSetError;
use crate::state::JobState;
use crate::template::TemplateParts;
use berth_api::validation::FieldError;
use berth_api::{PodSet, Workload, lean};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;
use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::Debug;

/// The properties of the kind `K`.
pub(crate) const fn info_of<K: ListedKind>() -> JobInfo {
    JobInfo {
        framework: K::FRAMEWORK,
        group: K::GROUP,
        version: K::VERSION,
        api_version: K::API_VERSION,
        plural: K::PLURAL,
        kind: K::KIND,
        reporter: K::REPORTER,
        uid_label: K::UID_LABEL,
        queue_in_annotation: K::QUEUE_IN_ANNOTATION,
        writes_status: K::WRITES_STATUS,
        built_in: K::BUILT_IN,
        made_of_jobs: K::MADE_OF_JOBS,
        jobs_in: K::JOBS_IN,
        part_label: K::PART_LABEL,
        takes_affinity: K::TAKES_AFFINITY,
        lean_patches: K::LEAN_PATCHES,
        part_called: K::part_called,
        decode: |text| Ok(Box::new(Object::<K>(*lean::decode(text)?))),
        read: |value| Ok(Box::new(Object::<K>(K::Object::deserialize(value)?))),
    }
}

#[derive(Debug)]
struct Object<K: ListedKind>(K::Object);

impl<K: ListedKind> JobObject for Object<K> {
    fn metadata(&self) -> &ObjectMeta {
        K::metadata(&self.0)
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        K::metadata_mut(&mut self.0)
    }

    fn queue_name(&self) -> Option<&str> {
        K::queue_name(&self.0)
    }

    fn part_names(&self) -> Vec<(String, i32)> {
        K::part_names(&self.0)
    }

    fn state(&self, older: Option<&JobState>) -> JobState {
        JobState::read::<K>(&self.0, older)
    }

    fn defaults(&self, facts: Facts) -> Defaults {
        job_defaults::<K>(&self.0, facts)
    }

    fn errors(&self) -> Vec<FieldError> {
        validate_job::<K>(&self.0)
    }

    fn change_errors(&self, old: &dyn JobObject, default_queue: bool) -> Vec<FieldError> {
        match (old as &dyn Any).downcast_ref::<Self>() {
            Some(old) => validate_job_update::<K>(&old.0, &self.0, default_queue),
            None => self.errors(),
        }
    }

    fn leaving_errors(&self, old: &dyn JobObject) -> Vec<FieldError> {
        let old = (old as &dyn Any).downcast_ref::<Self>();
        old.map(|old| validate_leaving_job::<K>(&old.0, &self.0)).unwrap_or_default()
    }

    fn kept_suspend(&self, old: &dyn JobObject, facts: Facts) -> Option<KeptSuspend> {
        let old = (old as &dyn Any).downcast_ref::<Self>()?;
        kept_suspend::<K>(&old.0, &self.0, facts)
    }

    fn value(&self) -> serde_json::Result<Value> {
        serde_json::to_value(&self.0)
    }

    fn pod_sets(&self) -> Result<Vec<PodSet>, PodSetError> {
        K::pod_sets(&self.0)
    }

    fn workload(&self, pod_sets: Vec<PodSet>, priority: Priority, copied: &BTreeSet<String>) -> Workload {
        build_workload::<K>(&self.0, pod_sets, priority, copied)
    }

    fn suspend_patch(&self) -> ObjectPatch {
        K::suspend_patch(&self.0)
    }

    fn stop_patch(&self) -> ObjectPatch {
        K::stop_patch(&self.0)
    }

    fn unlock_patch(&self) -> Option<ObjectPatch> {
        K::unlock_patch(&self.0)
    }

    fn restore_patch(&self, original: &[TemplateParts]) -> Option<ObjectPatch> {
        K::restore_patch(&self.0, original)
    }

    fn start_patch(&self, placements: &[Placement]) -> Result<ObjectPatch, PlacementError> {
        K::start_patch(&self.0, placements)
    }
}
