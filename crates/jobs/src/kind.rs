//! The interface between control and the kinds of job.

use crate::finish::Finish;
use crate::metadata::{annotation, is_stopping, queue_name};
use crate::object_patch::ObjectPatch;
use crate::parts::{Part, PartSize};
use crate::placement::{Placement, PlacementError};
use crate::pod_set_error::PodSetError;
use crate::template::TemplateParts;
use crate::training::RoleState;
use berth_api::validation::FieldError;
use berth_api::{PodSet, ReclaimablePod, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// A kind of job. Types that implement `JobKind` are unit structs whose functions only read and build values. Patches of a job are RFC 7386 merge patches of
/// the complete object with `metadata.uid` and `metadata.resourceVersion`. [`crate::KINDS`] lists all kinds.
pub trait JobKind: Debug + Sized + 'static {
    /// The API type of the kind's objects.
    type Object: Serialize + DeserializeOwned + Debug + Send + Sync;
    /// Name of the kind's integration in Kueue's configuration.
    const FRAMEWORK: &'static str;
    /// API group of the kind.
    const GROUP: &'static str;
    /// API version of the kind that Berth reads and writes.
    const VERSION: &'static str;
    /// Group and version of the kind, as in owner references.
    const API_VERSION: &'static str;
    /// Plural name of the kind, as in URLs.
    const PLURAL: &'static str;
    /// Name of the kind.
    const KIND: &'static str;

    /// Reporter of events about jobs of the kind, with Kueue's name.
    const REPORTER: &'static str;
    /// Label of pods with the uid of their job.
    const UID_LABEL: &'static str;
    /// True if a job may name its queue in an annotation, too.
    const QUEUE_IN_ANNOTATION: bool = false;
    /// True if [`JobKind::unlock_patch`] may write to the status of a job.
    const WRITES_STATUS: bool = false;
    /// True if every cluster has the kind. For other kinds, Berth works without the kind until its CRD is installed.
    const BUILT_IN: bool = false;
    /// True if the controller of the kind creates batch/v1 Jobs, which are admitted together with the object.
    const MADE_OF_JOBS: bool = false;
    /// Field of the spec that lists the Jobs of a job, each with its `template`. A queue name in the template of one of these Jobs has no effect.
    const JOBS_IN: Option<&'static str> = None;
    /// Label of a Job with the name of its part. The controller of the kind starts each Job that names a part in this label, whatever the Job's name is.
    const PART_LABEL: Option<&'static str> = None;
    /// True if the templates of a suspended job accept a node affinity.
    const TAKES_AFFINITY: bool = true;
    /// True if patches of the kind need no containers and volumes, so that a large job is kept without them.
    const LEAN_PATCHES: bool = false;

    /// Metadata of a job.
    fn metadata(job: &Self::Object) -> &ObjectMeta;
    /// Mutable metadata of a job.
    fn metadata_mut(job: &mut Self::Object) -> &mut ObjectMeta;
    /// LocalQueue of the job.
    fn queue_name(job: &Self::Object) -> Option<&str> {
        let metadata = Self::metadata(job);
        queue_name(metadata).or_else(|| annotation(metadata, labels::QUEUE_NAME).filter(|_| Self::QUEUE_IN_ANNOTATION))
    }
    /// Whether the job is suspended and its template is as the user wrote it; a job with a running stop is not.
    fn is_suspended(job: &Self::Object) -> bool {
        Self::has_suspend(job) && !is_stopping(Self::metadata(job))
    }
    /// Whether `spec.suspend` is true, whatever its templates have.
    fn has_suspend(job: &Self::Object) -> bool;
    /// Whether a template of the job has the marks that a start writes.
    fn is_placed(job: &Self::Object) -> bool;
    /// Jobs of which the job consists; empty for a job whose controller creates its pods directly.
    fn parts(_: &Self::Object) -> Box<[Part]> {
        Box::default()
    }
    /// The part and index of the Job called `name`, if the controller of a job called `own` gives such a name to one of the job's Jobs.
    fn part_called<'a>(_own: &str, _name: &str, _parts: &'a [Part]) -> Option<(&'a Part, i32)> {
        None
    }
    /// Number of the attempt in which a JobSet is, or for which a JobSet has made a Job: a restart of a JobSet, which creates all its Jobs again, begins the
    /// next attempt.
    fn attempt(_: &Self::Object) -> Option<i32> {
        None
    }
    /// Number of the job's concurrent pods and a digest of their requests; `None` for kinds other than batch/v1 Job, because no other job consists of them.
    fn part_size(_: &Self::Object) -> Option<PartSize> {
        None
    }
    /// Names of the job's parts, and the number of Jobs of each part. The name of a Job consists of the names of the job and the part, and an index.
    fn part_names(_: &Self::Object) -> Vec<(String, i32)> {
        Vec::new()
    }
    /// Whether pods of the job run or terminate, so that quota is in use.
    fn is_active(job: &Self::Object) -> bool;
    /// Number of the job's own pods that run or terminate; zero for a job made of Jobs, which count these pods.
    fn pods_there(_: &Self::Object) -> i32 {
        0
    }
    /// Whether the status that the job's controller wrote says that the job is suspended.
    fn says_suspended(job: &Self::Object) -> bool;
    /// Whether the job is suspended, its controller has noticed the suspension, and no pod is left in its status.
    fn is_still(job: &Self::Object) -> bool {
        Self::has_suspend(job) && Self::says_suspended(job) && !Self::is_active(job)
    }
    /// Whether the job's controller has noticed the stop after a start, and no pod is left. Before the job's controller has noticed the stop, a status of the
    /// job that shows no pods may be outdated.
    fn has_come_to_rest(job: &Self::Object) -> bool;
    /// Whether the job's controller has noticed the last start.
    fn has_seen_start(job: &Self::Object) -> bool;
    /// Result and message of a job that has succeeded or failed; `None` for a job that has not finished.
    fn finished(job: &Self::Object) -> Option<Finish>;
    /// Pod sets of the job.
    ///
    /// # Errors
    /// The error names the field or annotation that cannot be read, with its value.
    fn pod_sets(job: &Self::Object) -> Result<Vec<PodSet>, PodSetError>;
    /// Path of the pod template of the job's pod set number `index`.
    fn template_path(index: usize) -> String;
    /// Whether all pods of the job are ready or have succeeded.
    fn pods_ready(job: &Self::Object) -> bool;
    /// Whether all pods that the job has to run have succeeded, so that only the report of its end is missing.
    fn pods_succeeded(_job: &Self::Object) -> bool {
        false
    }
    /// Number of pods per pod set that will not run again.
    fn reclaimable_pods(job: &Self::Object) -> Vec<ReclaimablePod>;
    /// PriorityClass of the job's pods.
    fn pod_priority_class(job: &Self::Object) -> Option<&str>;
    /// The unsupported field of the job that would decide whether or where the job may run.
    fn unsupported(job: &Self::Object) -> Option<String>;
    /// Whether each pod of the job works alone, so that the other pods continue after the loss of one pod.
    fn has_independent_pods(_: &Self::Object) -> bool {
        false
    }
    /// State of the TrainingJob's role that the job runs, if a TrainingJob controls the job.
    fn training_role(_: &Self::Object) -> Option<RoleState> {
        None
    }
    /// The TrainingJob's uid in the labels of the job's pods. Labels of the pods prove the TrainingJob even if the job's owner references do not, because the
    /// template of a running job cannot change.
    fn training_of_pods(_: &Self::Object) -> Option<&str> {
        None
    }
    /// The field in which the job names a queue although Berth does not read the queue from this field, with the queue's name; `None` without such a field.
    fn misplaced_queue(job: &Self::Object) -> Option<String> {
        let queue = annotation(Self::metadata(job), labels::QUEUE_NAME).filter(|_| Self::queue_name(job).is_none())?;
        Some(format!("metadata.annotations[{}] names queue {queue:?}", labels::QUEUE_NAME))
    }
    /// Faults of a job, except the faults of the metadata fields that every kind has.
    fn invalid(_: &Self::Object) -> Vec<FieldError> {
        Vec::new()
    }
    /// Whether a change of a job is accepted although the changed job has the fault, which the job did not have before.
    fn is_tolerated(_: &FieldError, _old: &Self::Object, _new: &Self::Object) -> bool {
        false
    }
    /// Faults of a job's change, except the faults of the changed job from [`JobKind::invalid`].
    fn invalid_change(_: &Self::Object, _: &Self::Object) -> Vec<FieldError> {
        Vec::new()
    }

    /// Patch that suspends a job that Berth did not start, whose template is as the user wrote it.
    fn suspend_patch(job: &Self::Object) -> ObjectPatch;
    /// Patch that suspends a job that Berth started; a later patch restores the template.
    fn stop_patch(job: &Self::Object) -> ObjectPatch;
    /// Whether the API server accepts changes of the job's template now.
    fn may_change_template(job: &Self::Object) -> bool;
    /// Patch of the status that must precede a change of the template, if the kind needs one. The status patch is valid only for a job without pods that run or
    /// terminate.
    fn unlock_patch(job: &Self::Object) -> Option<ObjectPatch>;
    /// Patch that restores the template as the user wrote it; `None` if the template needs no change.
    fn restore_patch(job: &Self::Object, original: &[TemplateParts]) -> Option<ObjectPatch>;
    /// Patch that starts the job with its placements in one write.
    ///
    /// # Errors
    /// The job can never start as it was admitted; see [`PlacementError`].
    fn start_patch(job: &Self::Object, placements: &[Placement]) -> Result<ObjectPatch, PlacementError>;
}
