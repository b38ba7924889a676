//! Reading of a job's state from its object.

use super::{JobState, asked};
use crate::job_type::{JobType, ListedKind};
use crate::metadata::{
    is_stopping, label, lets_go_first, max_execution_seconds, prebuilt_workload_name, version_of,
    workload_priority_class,
};
use crate::owner::{is_made_of_jobs, named_part, owner_of};
use berth_api::json::to_text;
use berth_api::{BASTION_JOB_VERSION, BASTION_TIER};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

impl JobState {
    /// Reads the state of a job of kind `K`; equal parts of the older state are reused.
    #[must_use]
    pub fn read<K: ListedKind>(job: &K::Object, older: Option<&Self>) -> Self {
        let metadata = K::metadata(job);
        let mut state = Self {
            kind: JobType::of::<K>(),
            uid: metadata.uid.clone().unwrap_or_default(),
            version: version_of(metadata),
            owner: owner_of(metadata).map(Box::new),
            deleting: metadata.deletion_timestamp.is_some(),
            pods_go_first: metadata.finalizers.iter().flatten().any(|name| name == FOREGROUND),
            leaves_pods: lets_go_first(metadata),
            queue_name: K::queue_name(job).map(Into::into),
            misplaced: K::misplaced_queue(job).map(Into::into),
            prebuilt_workload: prebuilt_workload_name(metadata).map(Into::into),
            workload_priority_class: workload_priority_class(metadata).map(Into::into),
            pod_priority_class: K::pod_priority_class(job).map(Into::into),
            max_execution_seconds: max_execution_seconds(metadata),
            suspended: K::has_suspend(job),
            stopping: is_stopping(metadata),
            placed: K::is_placed(job),
            parts: K::parts(job),
            size: None,
            named_part: named_part(metadata).map(Into::into),
            attempt: K::attempt(job),
            active: K::is_active(job),
            pods: K::pods_there(job),
            still: K::is_still(job),
            at_rest: K::has_come_to_rest(job),
            seen_start: K::has_seen_start(job),
            ready: K::pods_ready(job),
            succeeded: K::pods_succeeded(job),
            independent: K::has_independent_pods(job),
            may_change_template: K::may_change_template(job),
            finished: K::finished(job).map(Box::new),
            reclaimable: K::reclaimable_pods(job),
            unsupported: K::unsupported(job).map(Into::into),
            training: K::training_of_pods(job).map(Into::into),
            role: K::training_role(job).map(Box::new),
            runner_labels: runner_labels(metadata),
            created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_millisecond()),
            generation: metadata.generation.unwrap_or_default(),
            annotations: pairs(metadata),
            asked: None,
            packed: Some(to_text(job).into()),
            is_lean: false,
        };
        let same = older.filter(|older| older.uid == state.uid && state.finished.is_some());
        let ended = same.and_then(|older| older.role.as_deref()?.finish.clone());
        if let Some(role) = state.role.as_deref_mut().filter(|role| role.finish.is_none()) {
            // If an older state of the same Job has the end of its role, the end came before the Job's deletion and is kept, because timestamps of full seconds
            // may be equal.
            role.finish = ended;
        }
        let known = older.filter(|older| older.asks_as(&state)).and_then(|older| older.asked.clone());
        state.asked = known.or_else(|| state.queue_name.is_some().then(|| asked(K::pod_sets(job))));
        let of_jobs = state.owner.as_deref().is_some_and(is_made_of_jobs);
        // A user may set an annotation that makes the pod sets of a running job unreadable; the stored size then still shows whether the job has grown.
        if of_jobs || state.placed || matches!(state.asked, Some(None)) {
            let known = older.filter(|older| older.asks_as(&state)).and_then(|older| older.size.clone());
            state.size = known.or_else(|| K::part_size(job).map(Box::new));
        }
        state
    }
}

/// Finalizer with which an object is deleted after its dependents.
const FOREGROUND: &str = "foregroundDeletion";

fn runner_labels(metadata: &ObjectMeta) -> Box<[(&'static str, Box<str>)]> {
    let all = [BASTION_TIER, BASTION_JOB_VERSION].into_iter();
    all.filter_map(|key| Some((key, label(metadata, key)?.into()))).collect()
}

fn pairs(metadata: &ObjectMeta) -> Box<[(Box<str>, Box<str>)]> {
    let all = metadata.annotations.iter().flatten();
    all.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect()
}
