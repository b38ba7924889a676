//! A job of any kind as control keeps it: fields that are read often, and the job as packed JSON. The JSON takes a tenth of the memory, and
//! is read only to make a Workload or a patch.

use crate::equivalence::PodSetDigest;
use crate::kind::{
    Finish, JobKind, Part, PartSize, controller, group_of, is_stopping, label, max_execution_seconds,
    prebuilt_workload_name, version_of, workload_priority_class,
};
use crate::kinds::{JobObject, JobType, KINDS};
use crate::lean::lean_text;
use crate::template::TemplateParts;
use crate::training::KIND as TRAINING_JOB;
use crate::training::RoleState;
use berth_api::{BASTION_JOB_VERSION, BASTION_TIER, PodSet, ReclaimablePod, berth};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;

/// One state of a job.
#[derive(Clone, Debug)]
pub struct JobState {
    /// Its kind.
    pub kind: JobType,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`, 0 when it has none.
    pub version: u64,
    /// Its controller, if it has one.
    pub owner: Option<Box<JobOwner>>,
    /// Being deleted.
    pub deleting: bool,
    /// Being deleted, and its pods are deleted before it goes.
    pub pods_go_first: bool,
    /// Being deleted, and the objects that it owns are orphaned first.
    pub leaves_pods: bool,
    /// LocalQueue that governs it.
    pub queue_name: Option<Box<str>>,
    /// See [`JobKind::misplaced_queue`].
    pub misplaced: Option<Box<str>>,
    /// Name of the Workload that was made for it beforehand.
    pub prebuilt_workload: Option<Box<str>>,
    /// WorkloadPriorityClass; it wins over the pods' PriorityClass.
    pub workload_priority_class: Option<Box<str>>,
    /// PriorityClass of its pods.
    pub pod_priority_class: Option<Box<str>>,
    /// Maximum execution time in seconds.
    pub max_execution_seconds: Option<i32>,
    /// Suspended in its spec, whatever is left in its templates.
    pub suspended: bool,
    /// Its stop is under way: its templates are not yet as the user wrote them.
    pub stopping: bool,
    /// A template carries what a start has put there.
    pub placed: bool,
    /// Jobs that it is made of, none where its pods are its own.
    pub parts: Box<[Part]>,
    /// Size of a Job that has the marks of a start, that cannot be read, or whose controller is of a kind that is made of Jobs.
    pub size: Option<Box<PartSize>>,
    /// See [`JobKind::attempt`].
    pub attempt: Option<i32>,
    /// Pods run or terminate.
    pub active: bool,
    /// See [`JobKind::pods_there`].
    pub pods: i32,
    /// See [`JobKind::is_still`].
    pub still: bool,
    /// See [`JobKind::has_come_to_rest`].
    pub at_rest: bool,
    /// See [`JobKind::has_seen_start`].
    pub seen_start: bool,
    /// All pods are ready or have succeeded.
    pub ready: bool,
    /// See [`JobKind::pods_succeeded`].
    pub succeeded: bool,
    /// See [`JobKind::has_independent_pods`].
    pub independent: bool,
    /// The API server accepts changes of the templates now.
    pub may_change_template: bool,
    /// The end of the job, once it has ended.
    pub finished: Option<Box<Finish>>,
    /// Pods per pod set that will not run again.
    pub reclaimable: Vec<ReclaimablePod>,
    /// The field that decides whether or where it may run and that Berth does not act on.
    pub unsupported: Option<Box<str>>,
    /// See [`JobKind::training_of_pods`].
    pub training: Option<Box<str>>,
    /// State of the TrainingJob's role that it runs, if a TrainingJob controls it.
    pub role: Option<Box<RoleState>>,
    /// Labels by which a bastion runner marks its jobs, as far as this job has them.
    pub runner_labels: Box<[(&'static str, Box<str>)]>,
    /// When it was created, in milliseconds since 1970.
    pub created: i64,
    /// `metadata.generation`: 1 until its spec is changed.
    pub generation: i64,
    annotations: Box<[(Box<str>, Box<str>)]>,
    /// Digests of its pod sets, kept where they are needed often, because making them costs a walk over the templates. The inner `None` is a job
    /// that cannot be read.
    asked: Option<Option<Arc<[PodSetDigest]>>>,
    packed: Option<Box<str>>,
    /// The packed JSON has only the fields that patches need.
    is_lean: bool,
}

/// A job whose text has more bytes is large.
const LARGE: usize = 64 << 10;

impl JobState {
    /// Reads a job of kind `K`; parts of its older state are reused.
    #[must_use]
    pub fn read<K: JobKind>(job: &K::Object, older: Option<&Self>) -> Self {
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
            packed: serde_json::to_string(job).ok().map(Into::into),
            is_lean: false,
        };
        let same = older.filter(|older| older.uid == state.uid && state.finished.is_some());
        let ended = same.and_then(|older| older.role.as_deref()?.finish.clone());
        if let Some(role) = state.role.as_deref_mut().filter(|role| role.finish.is_none()) {
            // Times are whole seconds, but an end that was seen earlier came before the deletion.
            role.finish = ended;
        }
        let known = older.filter(|older| older.asks_as(&state)).and_then(|older| older.asked.clone());
        state.asked = known.or_else(|| state.queue_name.is_some().then(|| asked(K::pod_sets(job))));
        let of_jobs = state.owner.as_ref().is_some_and(|owner| owner.is_made_of_jobs());
        // A tenant may make a running job unreadable by an annotation: its size still shows whether it has grown.
        if of_jobs || state.placed || matches!(state.asked, Some(None)) {
            let known = older.filter(|older| older.asks_as(&state)).and_then(|older| older.size.clone());
            state.size = known.or_else(|| K::part_size(job).map(Box::new));
        }
        state
    }

    /// Number of Jobs that it is made of.
    #[must_use]
    pub fn part_count(&self) -> i32 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.replicas))
    }

    /// The Job of that name, if this job is called `own`: its pod set and index, which may be beyond the existing Jobs.
    #[must_use]
    pub fn part_called(&self, own: &str, name: &str) -> Option<(&Part, i32)> {
        (self.kind.info().part_called)(own, name, &self.parts)
    }

    /// The pod sets follow from the spec, which a generation fixes, and from annotations.
    fn asks_as(&self, newer: &Self) -> bool {
        let settled = newer.generation > 0 && self.generation == newer.generation;
        settled && self.uid == newer.uid && self.annotations == newer.annotations
    }

    /// An annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        let (_, value) = self.annotations.iter().find(|(have, _)| **have == *key)?;
        Some(value)
    }

    /// Suspended, and its templates are as the user wrote them.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.suspended && !self.stopping
    }

    /// A suspended job still has a template changed by Berth. `original` is what the Workload stores.
    #[must_use]
    pub fn needs_restore(&self, original: &[TemplateParts]) -> bool {
        self.suspended && (self.stopping || (self.placed && !original.iter().any(TemplateParts::is_placed)))
    }

    /// Digests of its pod sets, `None` when the job cannot be read.
    #[must_use]
    pub fn asked(&self) -> Option<Cow<'_, [PodSetDigest]>> {
        match &self.asked {
            Some(known) => known.as_deref().map(Cow::Borrowed),
            None => asked(self.whole()?.pod_sets()).map(|digests| Cow::Owned(digests.to_vec())),
        }
    }

    /// The job itself, for a patch, or for a Workload unless it is lean; `None` after [`JobState::shed`].
    #[must_use]
    pub fn whole(&self) -> Option<Box<dyn JobObject>> {
        self.kind.decode(self.packed.as_deref()?).ok()
    }

    /// Suspends a job without marks of a start, also after [`JobState::shed`].
    #[must_use]
    pub fn suspend_patch(&self) -> Value {
        json!({
            "metadata": {"uid": self.uid, "resourceVersion": self.version.to_string()},
            "spec": {"suspend": true},
        })
    }

    /// Drops the fields of a large job that no patch needs. A Workload can be made of it only after it was read again.
    pub fn lighten(&mut self) {
        let Some(text) = self.packed.as_deref().filter(|_| self.is_large()) else { return };
        let Some(lean) = lean_text(self.kind, text) else { return };
        if self.asked.is_none() {
            self.asked = self.whole().map(|job| asked(job.pod_sets()));
        }
        self.packed = Some(lean.into());
        self.is_lean = true;
    }

    /// Whether no Workload can be made of the kept fields.
    #[must_use]
    pub const fn is_lean(&self) -> bool {
        self.is_lean
    }

    /// Whether all fields are kept, and [`JobState::lighten`] would drop some.
    #[must_use]
    pub fn is_large(&self) -> bool {
        let is_whole = self.kind.info().lean_patches && !self.is_lean;
        is_whole && self.packed.as_deref().is_some_and(|text| text.len() > LARGE)
    }

    /// Drops the job itself and its digests: its next state has both again.
    pub fn shed(&mut self) {
        self.packed = None;
        self.asked = None;
    }
}

/// Finalizer of an object that is deleted after the objects that it owns.
const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an object that is deleted after the objects that it owns were orphaned.
const ORPHAN: &str = "orphan";

/// Whether an object is being deleted, and the objects that it owns are orphaned first.
#[must_use]
pub fn lets_go_first(metadata: &ObjectMeta) -> bool {
    let kept = metadata.finalizers.iter().flatten().any(|name| name == ORPHAN);
    kept && metadata.deletion_timestamp.is_some()
}

/// The controller of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOwner {
    /// Kind; with its group where that is not the one of which Berth knows a kind of this name.
    pub kind: Box<str>,
    /// Name.
    pub name: Box<str>,
    /// Uid.
    pub uid: Box<str>,
}

impl JobOwner {
    /// Whether it is one of Berth's kinds that are made of Jobs, beside TrainingJobs.
    fn is_made_of_jobs(&self) -> bool {
        KINDS.into_iter().any(|kind| kind.info().made_of_jobs && *kind.info().kind == *self.kind)
    }
}

pub(crate) fn owner_of(metadata: &ObjectMeta) -> Option<JobOwner> {
    let controller = controller(metadata)?;
    Some(JobOwner {
        kind: kind_in_group(&controller.kind, &controller.api_version),
        name: controller.name.as_str().into(),
        uid: controller.uid.as_str().into(),
    })
}

/// A kind by its name, with the group where another one has that name: Volcano's Job is none of ours.
#[must_use]
pub fn kind_in_group(kind: &str, api_version: &str) -> Box<str> {
    let group = group_of(api_version);
    let ours = match KINDS.into_iter().find(|known| known.info().kind == kind) {
        Some(known) => known.info().group,
        None if kind == TRAINING_JOB => berth::GROUP,
        None => group,
    };
    if group == ours { kind.into() } else { format!("{kind}.{group}").into() }
}

fn runner_labels(metadata: &ObjectMeta) -> Box<[(&'static str, Box<str>)]> {
    let all = [BASTION_TIER, BASTION_JOB_VERSION].into_iter();
    all.filter_map(|key| Some((key, label(metadata, key)?.into()))).collect()
}

fn pairs(metadata: &ObjectMeta) -> Box<[(Box<str>, Box<str>)]> {
    let all = metadata.annotations.iter().flatten();
    all.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect()
}

fn asked(sets: Result<Vec<PodSet>, String>) -> Option<Arc<[PodSetDigest]>> {
    Some(sets.ok()?.iter().map(PodSetDigest::of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BatchJob;
    use k8s_openapi::api::batch::v1::Job;

    fn job(generation: i64, image: &str, queue: &str) -> Job {
        serde_json::from_value(json!({
            "metadata": {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": generation,
                "labels": {"kueue.x-k8s.io/queue-name": queue}, "annotations": {"a": "1", "empty": ""}},
            "spec": {"suspend": true, "parallelism": 2, "template": {"spec": {
                "containers": [{"name": "c", "image": image}], "priorityClassName": "high"}}},
        }))
        .expect("job")
    }

    #[test]
    fn packed_job_state_gives_back_the_job() {
        let state = JobState::read::<BatchJob>(&job(1, "one", "q"), None);
        assert_eq!((state.version, state.queue_name.as_deref()), (7, Some("q")));
        assert_eq!(state.pod_priority_class.as_deref(), Some("high"));
        assert!(state.runner_labels.is_empty());
        assert_eq!(
            (state.annotation("a"), state.annotation("empty"), state.annotation("b")),
            (Some("1"), Some(""), None)
        );
        let whole = state.whole().expect("packed");
        assert_eq!(whole.pod_sets(), BatchJob::pod_sets(&job(1, "one", "q")));
        assert_eq!(whole.suspend_patch(), BatchJob::suspend_patch(&job(1, "one", "q")));
        assert_eq!(state.suspend_patch(), whole.suspend_patch());
    }

    #[test]
    fn large_job_keeps_few_bytes_and_what_it_asks_for() {
        let mut large = job(1, "one", "");
        large.spec.as_mut().unwrap().template.spec.as_mut().unwrap().containers[0].args =
            Some(vec!["x".repeat(1 << 20)]);
        let whole = JobState::read::<BatchJob>(&large, None);
        let mut lean = whole.clone();
        lean.lighten();
        assert!(lean.is_lean() && !whole.is_lean() && whole.is_large() && !lean.is_large());
        assert!(lean.packed.as_deref().is_some_and(|text| text.len() < 1_000), "{:?}", lean.packed);
        assert_eq!(lean.asked(), whole.asked(), "it is asked for what it was");
        let mut small = JobState::read::<BatchJob>(&job(1, "one", "q"), None);
        small.lighten();
        assert!(!small.is_lean());
    }

    #[test]
    fn terminating_pods_count_as_pods_of_job() {
        for (status, pods) in [
            (json!({}), 0),
            (json!({"active": 2}), 2),
            (json!({"active": 2, "terminating": 3, "ready": 1, "succeeded": 4, "failed": 5}), 5),
            (json!({"active": -1, "terminating": 2_147_483_647}), i32::MAX),
        ] {
            let mut watched = job(1, "one", "q");
            watched.status = serde_json::from_value(status.clone()).expect("status");
            assert_eq!(JobState::read::<BatchJob>(&watched, None).pods, pods, "{status}");
        }
    }

    #[test]
    fn runner_labels_of_job_are_kept() {
        let mut watched = job(1, "one", "q");
        let labels = watched.metadata.labels.get_or_insert_default();
        labels.extend([("bastion-job-version".to_owned(), "3".to_owned()), ("bastion-tier".to_owned(), String::new())]);
        let state = JobState::read::<BatchJob>(&watched, None);
        assert_eq!(&*state.runner_labels, &[("bastion-job-version", Box::<str>::from("3"))][..]);
    }

    #[test]
    fn job_requests_are_read_once_per_generation() {
        let first = JobState::read::<BatchJob>(&job(1, "one", "q"), None);
        let digests = |state: &JobState| state.asked().expect("readable").into_owned();
        // The spec of one generation cannot change, so it is not read again.
        let same = JobState::read::<BatchJob>(&job(1, "two", "q"), Some(&first));
        assert_eq!(digests(&same), digests(&first));
        let next = JobState::read::<BatchJob>(&job(2, "two", "q"), Some(&same));
        assert_ne!(digests(&next), digests(&first));
        let unqueued = JobState::read::<BatchJob>(&job(2, "two", ""), None);
        assert_eq!(digests(&unqueued), digests(&next), "read when it is asked for");
    }

    /// The Job of a TrainingJob's only worker.
    fn child(status: &serde_json::Value, deleted: Option<&str>) -> Job {
        let owner = json!({"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob", "name": "t", "uid": "t-1",
            "controller": true});
        serde_json::from_value(json!({
            "metadata": {"name": "t-worker", "namespace": "n", "uid": "u", "ownerReferences": [owner],
                "deletionTimestamp": deleted},
            "spec": {"completions": 1, "template": {"spec": {"containers": []}}}, "status": status,
        }))
        .expect("job")
    }

    #[test]
    fn job_end_seen_before_deletion_counts_within_the_same_second() {
        let at = "2026-11-27T10:00:01Z";
        let ended = json!({"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": at}]});
        let read = |status: &serde_json::Value, deleted: Option<&str>, older: Option<&JobState>| {
            JobState::read::<BatchJob>(&child(status, deleted), older)
        };
        let counts = |state: &JobState| state.role.as_ref().is_some_and(|role| role.finish.is_some());
        let (runs, over) = (read(&json!({}), None, None), read(&ended, None, None));
        assert!(!counts(&runs) && counts(&over));
        let deleted = read(&ended, Some(at), Some(&over));
        assert!(counts(&deleted) && counts(&read(&ended, Some(at), Some(&deleted))));
        assert!(!counts(&read(&ended, Some(at), Some(&runs))) && !counts(&read(&ended, Some(at), None)), "not seen");
    }

    #[test]
    fn shed_job_state_gives_no_job_until_read_again() {
        let mut state = JobState::read::<BatchJob>(&job(1, "one", "q"), None);
        state.shed();
        assert!(state.whole().is_none() && state.asked().is_none());
        let again = JobState::read::<BatchJob>(&job(1, "one", "q"), Some(&state));
        assert!(again.whole().is_some() && again.asked().is_some(), "of the same generation");
    }
}
