//! The interface between control and the kinds of job.

use crate::finish::Finish;
use crate::metadata::{annotation, is_stopping, queue_name};
use crate::parts::{Part, PartSize};
use crate::placement::{Placement, PlacementError};
use crate::template::TemplateParts;
use crate::training::RoleState;
use berth_api::validation::FieldError;
use berth_api::{PodSet, ReclaimablePod, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Debug;

/// A kind of job. Implementations are unit structs that only read and build values. Patches are RFC 7386 merge patches of
/// the whole object which carry `metadata.uid` and `metadata.resourceVersion`. [`crate::KINDS`] has them all.
pub trait JobKind: Debug + Sized + 'static {
    /// The API type.
    type Object: Serialize + DeserializeOwned + Debug + Send + Sync;
    /// Name of the integration in Kueue's configuration.
    const FRAMEWORK: &'static str;
    /// API group.
    const GROUP: &'static str;
    /// The version that is read and written.
    const VERSION: &'static str;
    /// Group and version, as in owner references.
    const API_VERSION: &'static str;
    /// Plural, as in the URL.
    const PLURAL: &'static str;
    /// Kind.
    const KIND: &'static str;

    /// Reporter of events about its jobs, by Kueue's name.
    const REPORTER: &'static str;
    /// Label by which pods name the uid of their job.
    const UID_LABEL: &'static str;
    /// True if a job may also name its queue in an annotation.
    const QUEUE_IN_ANNOTATION: bool = false;
    /// [`JobKind::unlock_patch`] has something to write to its status.
    const WRITES_STATUS: bool = false;
    /// Part of every cluster; else Berth does without it where its CRD is not installed.
    const BUILT_IN: bool = false;
    /// True if the controller of the kind makes batch/v1 Jobs, which are admitted together with the object.
    const MADE_OF_JOBS: bool = false;
    /// Field of the spec that lists these Jobs, each with the `template` of one: a queue that such a template names governs nothing.
    const JOBS_IN: Option<&'static str> = None;
    /// Label by which the controller of the kind finds the part of a Job that it controls: it starts each Job that names a part there, whatever the
    /// Job is called.
    const PART_LABEL: Option<&'static str> = None;
    /// While it is suspended, its templates can be given a node affinity.
    const TAKES_AFFINITY: bool = true;
    /// Patches of this kind say nothing of containers and volumes: a large job is kept without these.
    const LEAN_PATCHES: bool = false;

    /// Metadata of a job.
    fn metadata(job: &Self::Object) -> &ObjectMeta;
    /// Mutable metadata of a job.
    fn metadata_mut(job: &mut Self::Object) -> &mut ObjectMeta;
    /// LocalQueue that governs the job.
    fn queue_name(job: &Self::Object) -> Option<&str> {
        let metadata = Self::metadata(job);
        queue_name(metadata).or_else(|| annotation(metadata, labels::QUEUE_NAME).filter(|_| Self::QUEUE_IN_ANNOTATION))
    }
    /// Suspended, and its template is as the user wrote it. A job whose stop is under way is not.
    fn is_suspended(job: &Self::Object) -> bool {
        Self::has_suspend(job) && !is_stopping(Self::metadata(job))
    }
    /// Suspended in its spec, whatever is left in its templates.
    fn has_suspend(job: &Self::Object) -> bool;
    /// A template carries what a start has put there.
    fn is_placed(job: &Self::Object) -> bool;
    /// Jobs that it is made of, none where its pods are its own.
    fn parts(_: &Self::Object) -> Box<[Part]> {
        Box::default()
    }
    /// The Job of that name, as its controller calls those that it makes of a job called `own`: its pod set and index.
    fn part_called<'a>(_own: &str, _name: &str, _parts: &'a [Part]) -> Option<(&'a Part, i32)> {
        None
    }
    /// Which attempt it is, or belongs to, where a job that is made of Jobs may run them all again.
    fn attempt(_: &Self::Object) -> Option<i32> {
        None
    }
    /// Number of the job's pods at once and a digest of their requests, for a kind of which other jobs are made.
    fn part_size(_: &Self::Object) -> Option<PartSize> {
        None
    }
    /// The names of the parts that it is made of, and how many Jobs each has; a Job is called after the job, its part and its number.
    fn part_names(_: &Self::Object) -> Vec<(String, i32)> {
        Vec::new()
    }
    /// Pods run or terminate: quota is in use.
    fn is_active(job: &Self::Object) -> bool;
    /// Number of the job's own pods that run or terminate; no number for kinds that are made of Jobs, because these Jobs count the pods.
    fn pods_there(_: &Self::Object) -> i32 {
        0
    }
    /// True if the status written by the job's controller says that the job is suspended.
    fn says_suspended(job: &Self::Object) -> bool;
    /// Suspended, its controller has taken note of that, and no pod is left that it knows of.
    fn is_still(job: &Self::Object) -> bool {
        Self::has_suspend(job) && Self::says_suspended(job) && !Self::is_active(job)
    }
    /// True if the job's controller has taken note of a stop after a start, and no pod is left. Before that, a quiet status may only be one that its
    /// controller has not brought up to date yet.
    fn has_come_to_rest(job: &Self::Object) -> bool;
    /// True if the job's controller has taken note of the last start.
    fn has_seen_start(job: &Self::Object) -> bool;
    /// The end of the job, once it has ended.
    fn finished(job: &Self::Object) -> Option<Finish>;
    /// Pod sets of the job.
    ///
    /// # Errors
    /// Names the field or annotation that cannot be read, with its value.
    fn pod_sets(job: &Self::Object) -> Result<Vec<PodSet>, String>;
    /// Path of the pod template of its pod set number `index`.
    fn template_path(index: usize) -> String;
    /// All pods are ready or have succeeded.
    fn pods_ready(job: &Self::Object) -> bool;
    /// True if all pods that the job has to run have succeeded, so that only its end is still to be reported.
    fn pods_succeeded(_job: &Self::Object) -> bool {
        false
    }
    /// Pods per pod set that will not run again.
    fn reclaimable_pods(job: &Self::Object) -> Vec<ReclaimablePod>;
    /// PriorityClass of its pods.
    fn pod_priority_class(job: &Self::Object) -> Option<&str>;
    /// The field that decides whether or where the job may run, and that Berth does not support yet.
    fn unsupported(job: &Self::Object) -> Option<String>;
    /// Each of its pods does work of its own: the others go on where one is lost.
    fn has_independent_pods(_: &Self::Object) -> bool {
        false
    }
    /// State of the TrainingJob's role that it runs, if a TrainingJob controls it.
    fn training_role(_: &Self::Object) -> Option<RoleState> {
        None
    }
    /// The uid of the TrainingJob in the labels of its pods, whatever its own owner references say: the template of a running job cannot change.
    fn training_of_pods(_: &Self::Object) -> Option<&str> {
        None
    }
    /// The field in which the job names a queue that has no effect, with the queue; `None` where there is none.
    fn misplaced_queue(job: &Self::Object) -> Option<String> {
        let queue = annotation(Self::metadata(job), labels::QUEUE_NAME).filter(|_| Self::queue_name(job).is_none())?;
        Some(format!("metadata.annotations[{}] names queue {queue:?}", labels::QUEUE_NAME))
    }
    /// Faults of a job beyond the metadata fields that every kind has.
    fn invalid(_: &Self::Object) -> Vec<FieldError> {
        Vec::new()
    }
    /// Whether a fault of the new job that the old one did not have is no reason to refuse the change.
    fn is_tolerated(_: &FieldError, _old: &Self::Object, _new: &Self::Object) -> bool {
        false
    }
    /// Faults of a change of a job, beyond the faults of the new job by [`JobKind::invalid`].
    fn invalid_change(_: &Self::Object, _: &Self::Object) -> Vec<FieldError> {
        Vec::new()
    }

    /// Suspends a job that Berth did not start: its template is the user's.
    fn suspend_patch(job: &Self::Object) -> Value;
    /// Suspends a job that Berth started; the template is restored later.
    fn stop_patch(job: &Self::Object) -> Value;
    /// The API server accepts changes of the template now.
    fn may_change_template(job: &Self::Object) -> bool;
    /// A status patch that must come before the template may change, if one is needed. Only right once the job is no
    /// longer active.
    fn unlock_patch(job: &Self::Object) -> Option<Value>;
    /// Restores the template as the user wrote it; `None` when it is so already.
    fn restore_patch(job: &Self::Object, original: &[TemplateParts]) -> Option<Value>;
    /// Starts the job with its placements in one write.
    ///
    /// # Errors
    /// [`PlacementError`]: the job can never start as it was admitted.
    fn start_patch(job: &Self::Object, placements: &[Placement]) -> Result<Value, PlacementError>;
}
