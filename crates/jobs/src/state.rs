//! A job of any kind as control keeps it: fields that are read often, and the job as packed JSON. The JSON takes a tenth of the memory, and
//! is read only to make a Workload or a patch.

mod read;

use crate::equivalence::PodSetDigest;
use crate::finish::Finish;
use crate::job_object::JobObject;
use crate::job_type::JobType;
use crate::lean::lean_text;
use crate::parts::{Part, PartSize};
use crate::template::TemplateParts;
use crate::training::RoleState;
use berth_api::{PodSet, ReclaimablePod};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;

/// One state of a job.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are read off a job")]
pub struct JobState {
    /// Kind of the job.
    pub kind: JobType,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`, 0 when it has none.
    pub version: u64,
    /// Controller of the job, if it has one.
    pub owner: Option<Box<JobOwner>>,
    /// Being deleted.
    pub deleting: bool,
    /// Being deleted, and its pods are deleted before it goes.
    pub pods_go_first: bool,
    /// Being deleted, and the objects that it owns are orphaned first.
    pub leaves_pods: bool,
    /// LocalQueue that governs it.
    pub queue_name: Option<Box<str>>,
    /// See [`crate::JobKind::misplaced_queue`].
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
    /// True while a stop is under way: the templates are not yet as the user wrote them.
    pub stopping: bool,
    /// A template carries what a start has put there.
    pub placed: bool,
    /// Jobs that it is made of, none where its pods are its own.
    pub parts: Box<[Part]>,
    /// Size of a Job that has the marks of a start, that cannot be read, or whose controller is of a kind that is made of Jobs.
    pub size: Option<Box<PartSize>>,
    /// See [`crate::named_part`].
    pub named_part: Option<Box<str>>,
    /// See [`crate::JobKind::attempt`].
    pub attempt: Option<i32>,
    /// Pods run or terminate.
    pub active: bool,
    /// See [`crate::JobKind::pods_there`].
    pub pods: i32,
    /// See [`crate::JobKind::is_still`].
    pub still: bool,
    /// See [`crate::JobKind::has_come_to_rest`].
    pub at_rest: bool,
    /// See [`crate::JobKind::has_seen_start`].
    pub seen_start: bool,
    /// All pods are ready or have succeeded.
    pub ready: bool,
    /// See [`crate::JobKind::pods_succeeded`].
    pub succeeded: bool,
    /// See [`crate::JobKind::has_independent_pods`].
    pub independent: bool,
    /// The API server accepts changes of the templates now.
    pub may_change_template: bool,
    /// The end of the job, once it has ended.
    pub finished: Option<Box<Finish>>,
    /// Pods per pod set that will not run again.
    pub reclaimable: Vec<ReclaimablePod>,
    /// The field that decides whether or where the job may run, and that Berth does not support.
    pub unsupported: Option<Box<str>>,
    /// See [`crate::JobKind::training_of_pods`].
    pub training: Option<Box<str>>,
    /// State of the TrainingJob's role that it runs, if a TrainingJob controls it.
    pub role: Option<Box<RoleState>>,
    /// Labels by which a bastion runner marks its jobs, as far as this job has them.
    pub runner_labels: Box<[(&'static str, Box<str>)]>,
    /// Time of the job's creation, in milliseconds since 1970.
    pub created: i64,
    /// `metadata.generation`: 1 until its spec is changed.
    pub generation: i64,
    annotations: Box<[(Box<str>, Box<str>)]>,
    /// Digests of the job's pod sets, kept for jobs that need them often, because computing them reads all templates. The inner `None` is a job that
    /// cannot be read.
    asked: Option<Option<Arc<[PodSetDigest]>>>,
    packed: Option<Box<str>>,
    /// The packed JSON has only the fields that patches need.
    is_lean: bool,
}

/// A job whose text has more bytes is large.
const LARGE: usize = 64 << 10;

impl JobState {
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

fn asked(sets: Result<Vec<PodSet>, String>) -> Option<Arc<[PodSetDigest]>> {
    Some(sets.ok()?.iter().map(PodSetDigest::of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchJob, JobKind};
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
    fn job_state_without_its_object_is_complete_after_next_read() {
        let mut state = JobState::read::<BatchJob>(&job(1, "one", "q"), None);
        state.shed();
        assert!(state.whole().is_none() && state.asked().is_none());
        let again = JobState::read::<BatchJob>(&job(1, "one", "q"), Some(&state));
        assert!(again.whole().is_some() && again.asked().is_some(), "of the same generation");
    }
}
