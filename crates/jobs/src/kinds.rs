//! The kinds of job that can be suspended, and their objects for code that knows none of these kinds.

use crate::admission::{
    Defaults, Facts, KeptSuspend, job_defaults, kept_suspend, validate_job, validate_job_update, validate_leaving_job,
};
use crate::batch_job::BatchJob;
use crate::build::{Priority, build_workload};
use crate::job_set::JobSet;
use crate::kind::{JobKind, Part, group_of};
use crate::placement::{Placement, PlacementError};
use crate::state::JobState;
use crate::template::TemplateParts;
use berth_api::validation::FieldError;
use berth_api::{PodSet, Workload, lean};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Deserialize;
use serde_json::Value;
use std::any::Any;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Every kind of job that can be suspended. A new one is its file, its `mod` in `lib.rs`, its name here, and its cases.
pub const KINDS: [JobType; 2] = [JobType::of::<BatchJob>(), JobType::of::<JobSet>()];

/// [`JobKind::part_called`].
type PartCalled = for<'a> fn(&str, &str, &'a [Part]) -> Option<(&'a Part, i32)>;

/// Names of a kind, the label by which its pods name their job, and the functions that read its objects.
#[derive(Debug)]
pub struct JobInfo {
    /// Name of the integration in Kueue's configuration.
    pub framework: &'static str,
    /// API group.
    pub group: &'static str,
    /// The version that is read and written.
    pub version: &'static str,
    /// `apiVersion` of owner references.
    pub api_version: &'static str,
    /// Plural, as in the URL.
    pub plural: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Reporter of events about its jobs.
    pub reporter: &'static str,
    /// Label by which pods name the uid of their job.
    pub uid_label: &'static str,
    /// See [`JobKind::QUEUE_IN_ANNOTATION`].
    pub queue_in_annotation: bool,
    /// See [`JobKind::WRITES_STATUS`].
    pub writes_status: bool,
    /// See [`JobKind::BUILT_IN`].
    pub built_in: bool,
    /// See [`JobKind::MADE_OF_JOBS`].
    pub made_of_jobs: bool,
    /// See [`JobKind::JOBS_IN`].
    pub jobs_in: Option<&'static str>,
    /// See [`JobKind::TAKES_AFFINITY`].
    pub takes_affinity: bool,
    /// See [`JobKind::LEAN_PATCHES`].
    pub lean_patches: bool,
    pub(crate) part_called: PartCalled,
    pub(crate) decode: fn(&str) -> serde_json::Result<Box<dyn JobObject>>,
    pub(crate) read: fn(&Value) -> serde_json::Result<Box<dyn JobObject>>,
}

impl JobInfo {
    /// Path at which a webhook is asked to `verb` its objects, as Kueue's controller runtime has it.
    #[must_use]
    pub fn review_path(&self, verb: &str) -> String {
        format!("/{verb}-{}-{}-{}", self.group.replace('.', "-"), self.version, self.kind.to_lowercase())
    }

    /// The facts of a kind `K`.
    pub(crate) const fn of<K: JobKind>() -> Self {
        Self {
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
            takes_affinity: K::TAKES_AFFINITY,
            lean_patches: K::LEAN_PATCHES,
            part_called: K::part_called,
            decode: |text| Ok(Box::new(Object::<K>(*lean::decode(text)?))),
            read: |value| Ok(Box::new(Object::<K>(K::Object::deserialize(value)?))),
        }
    }
}

/// A kind of job that can be suspended. Kinds are compared and ordered by their names and groups.
#[derive(Clone, Copy)]
pub struct JobType(&'static JobInfo);

impl JobType {
    /// batch/v1 Job.
    pub const JOB: Self = Self::of::<BatchJob>();
    /// jobset.x-k8s.io JobSet.
    pub const JOB_SET: Self = Self::of::<JobSet>();

    /// The kind `K`.
    #[must_use]
    pub const fn of<K: JobKind>() -> Self {
        Self(K::INFO)
    }

    /// The names of the kind, and the functions that read its objects.
    #[must_use]
    pub const fn info(self) -> &'static JobInfo {
        self.0
    }

    /// The kind of that name in that group.
    #[must_use]
    pub fn named(group: &str, kind: &str) -> Option<Self> {
        KINDS.into_iter().find(|one| one.0.kind == kind && one.0.group == group)
    }

    /// The kind of an owner.
    #[must_use]
    pub fn of_owner(owner: &OwnerReference) -> Option<Self> {
        Self::named(group_of(&owner.api_version), &owner.kind)
    }

    /// Reads a job as a watch or a review shows it, without `metadata.managedFields`.
    ///
    /// # Errors
    /// When it is no object of this kind.
    pub fn decode(self, text: &str) -> serde_json::Result<Box<dyn JobObject>> {
        (self.0.decode)(text)
    }

    /// Reads a job.
    ///
    /// # Errors
    /// When it is no object of this kind.
    pub fn read(self, value: &Value) -> serde_json::Result<Box<dyn JobObject>> {
        (self.0.read)(value)
    }

    fn name(self) -> (&'static str, &'static str) {
        (self.0.kind, self.0.group)
    }
}

impl PartialEq for JobType {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0) || self.name() == other.name()
    }
}

impl Eq for JobType {}

impl PartialOrd for JobType {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for JobType {
    fn cmp(&self, other: &Self) -> Ordering {
        if std::ptr::eq(self.0, other.0) { Ordering::Equal } else { self.name().cmp(&other.name()) }
    }
}

impl Hash for JobType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.kind.hash(state);
    }
}

impl Debug for JobType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.kind)
    }
}

/// A stored job of any kind, with the functions of its [`JobKind`].
pub trait JobObject: Debug + Send + Sync + Any {
    /// Metadata.
    fn metadata(&self) -> &ObjectMeta;
    /// The same, to be changed.
    fn metadata_mut(&mut self) -> &mut ObjectMeta;
    /// [`JobKind::part_names`].
    fn part_names(&self) -> Vec<(String, i32)>;
    /// [`JobState::read`].
    fn state(&self, older: Option<&JobState>) -> JobState;
    /// [`job_defaults`].
    fn defaults(&self, facts: Facts) -> Defaults;
    /// [`validate_job`].
    fn errors(&self) -> Vec<FieldError>;
    /// [`validate_job_update`], after an older state of the job; an older state of another kind counts as none.
    fn change_errors(&self, old: &dyn JobObject, default_queue: bool) -> Vec<FieldError>;
    /// [`validate_leaving_job`], after an older state of the job; an older state of another kind counts as none.
    fn leaving_errors(&self, old: &dyn JobObject) -> Vec<FieldError>;
    /// [`kept_suspend`], after an older state of the job; an older state of another kind counts as none.
    fn kept_suspend(&self, old: &dyn JobObject, facts: Facts) -> Option<KeptSuspend>;
    /// The object itself.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    fn value(&self) -> serde_json::Result<Value>;
    /// [`JobKind::pod_sets`].
    ///
    /// # Errors
    /// See there.
    fn pod_sets(&self) -> Result<Vec<PodSet>, String>;
    /// [`build_workload`].
    fn workload(&self, pod_sets: Vec<PodSet>, priority: Priority, copied: &BTreeSet<String>) -> Workload;
    /// [`JobKind::suspend_patch`].
    fn suspend_patch(&self) -> Value;
    /// [`JobKind::stop_patch`].
    fn stop_patch(&self) -> Value;
    /// [`JobKind::unlock_patch`].
    fn unlock_patch(&self) -> Option<Value>;
    /// [`JobKind::restore_patch`].
    fn restore_patch(&self, original: &[TemplateParts]) -> Option<Value>;
    /// [`JobKind::start_patch`].
    ///
    /// # Errors
    /// See there.
    fn start_patch(&self, placements: &[Placement]) -> Result<Value, PlacementError>;
}

/// A shared object, as observations carry it.
pub type SharedJob = Arc<dyn JobObject>;

#[derive(Debug)]
struct Object<K: JobKind>(K::Object);

impl<K: JobKind> JobObject for Object<K> {
    fn metadata(&self) -> &ObjectMeta {
        K::metadata(&self.0)
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        K::metadata_mut(&mut self.0)
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

    fn pod_sets(&self) -> Result<Vec<PodSet>, String> {
        K::pod_sets(&self.0)
    }

    fn workload(&self, pod_sets: Vec<PodSet>, priority: Priority, copied: &BTreeSet<String>) -> Workload {
        build_workload::<K>(&self.0, pod_sets, priority, copied)
    }

    fn suspend_patch(&self) -> Value {
        K::suspend_patch(&self.0)
    }

    fn stop_patch(&self) -> Value {
        K::stop_patch(&self.0)
    }

    fn unlock_patch(&self) -> Option<Value> {
        K::unlock_patch(&self.0)
    }

    fn restore_patch(&self, original: &[TemplateParts]) -> Option<Value> {
        K::restore_patch(&self.0, original)
    }

    fn start_patch(&self, placements: &[Placement]) -> Result<Value, PlacementError> {
        K::start_patch(&self.0, placements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeSet;

    #[test]
    fn job_kinds_have_unique_names() {
        for kind in KINDS {
            let info = kind.info();
            assert_eq!(info.api_version, format!("{}/{}", info.group, info.version));
            assert_eq!(JobType::named(info.group, info.kind), Some(kind));
            assert_eq!(JobType::named("other.io", info.kind), None);
        }
        let names: [fn(&JobInfo) -> &'static str; 4] =
            [|info| info.framework, |info| info.kind, |info| info.plural, |info| info.reporter];
        for name in names {
            let all: BTreeSet<&str> = KINDS.into_iter().map(|kind| name(kind.info())).collect();
            assert_eq!(all.len(), KINDS.len(), "{all:?}");
        }
    }

    #[test]
    fn job_object_of_any_kind_is_read_and_written_generically() {
        for kind in KINDS {
            let text = json!({"metadata": {"name": "a", "uid": "u", "managedFields": [{"manager": "m"}]}, "spec": {"suspend": true}});
            let mut object = kind.decode(&text.to_string()).unwrap();
            assert!(object.metadata().managed_fields.is_none());
            assert!(kind.read(&text).unwrap().metadata().managed_fields.is_some());
            object.metadata_mut().name = Some("b".to_owned());
            assert_eq!(object.value().unwrap()["metadata"]["name"], json!("b"));
            let state = object.state(None);
            assert!(state.suspended && state.kind == kind && state.uid == "u");
            assert!(kind.decode("[]").is_err() && kind.read(&json!({"metadata": 1})).is_err());
        }
    }

    #[test]
    fn job_change_is_judged_only_between_objects_of_one_kind() {
        let queue = "metadata.labels[kueue.x-k8s.io/queue-name]";
        let read = |kind: JobType, queue: &str| {
            let object =
                json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": queue}}, "spec": {"suspend": false}});
            kind.read(&object).unwrap()
        };
        for kind in KINDS {
            let moved = read(kind, "r");
            for other in KINDS {
                let errors = moved.change_errors(&*read(other, "q"), false);
                assert_eq!(errors.iter().any(|error| error.field == queue), other == kind, "{other:?} to {kind:?}");
            }
        }
    }
}
