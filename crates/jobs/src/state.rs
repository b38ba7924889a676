//! The state of a job in control's memory: fields that are read often, and the job as packed JSON. The packed JSON takes a tenth of the memory of the object,
//! and is decoded only to make a Workload or a patch.

mod read;

use crate::equivalence::PodSetDigest;
use crate::finish::Finish;
use crate::job_object::JobObject;
use crate::job_type::JobType;
use crate::lean::lean_text;
use crate::object_patch::ObjectPatch;
use crate::parts::{Part, PartSize};
use crate::pod_set_error::PodSetError;
use crate::template::TemplateParts;
use crate::training::RoleState;
use berth_api::{PodSet, ReclaimablePod};
use std::borrow::Cow;
use std::sync::Arc;

/// The facts about a job that control reads often.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are read off a job")]
pub struct JobState {
    /// Kind of the job.
    pub kind: JobType,
    /// The job's `metadata.uid`.
    pub uid: String,
    /// The job's `metadata.resourceVersion` as a number; 0 if it has none.
    pub version: u64,
    /// Controller of the job, if it has one.
    pub owner: Option<Box<JobOwner>>,
    /// True if the job is being deleted.
    pub deleting: bool,
    /// True if the job is being deleted, and its pods are deleted before the job disappears.
    pub pods_go_first: bool,
    /// True if the job is being deleted, and the objects that it owns are orphaned first.
    pub leaves_pods: bool,
    /// LocalQueue of the job.
    pub queue_name: Option<Box<str>>,
    /// Queue name without effect; see [`crate::JobKind::misplaced_queue`].
    pub misplaced: Option<Box<str>>,
    /// Name of the job's prebuilt Workload.
    pub prebuilt_workload: Option<Box<str>>,
    /// WorkloadPriorityClass of the job, which wins over the pods' PriorityClass.
    pub workload_priority_class: Option<Box<str>>,
    /// PriorityClass of the job's pods.
    pub pod_priority_class: Option<Box<str>>,
    /// Maximum execution time of the job in seconds.
    pub max_execution_seconds: Option<i32>,
    /// True if `spec.suspend` is true, whatever the job's templates have.
    pub suspended: bool,
    /// True if a stop is running, so that the job's templates are not restored yet.
    pub stopping: bool,
    /// True if a template of the job has the marks that a start writes.
    pub placed: bool,
    /// Jobs of which the job consists; empty for a job whose controller creates its pods directly.
    pub parts: Box<[Part]>,
    /// Size of a Job with the marks of a start, of a Job that cannot be read, or of a Job whose controller is of a kind made of Jobs.
    pub size: Option<Box<PartSize>>,
    /// The part that the Job names in a label; see [`crate::named_part`].
    pub named_part: Option<Box<str>>,
    /// Number of the job's attempt; see [`crate::JobKind::attempt`].
    pub attempt: Option<i32>,
    /// True if pods of the job run or terminate.
    pub active: bool,
    /// Number of the job's own pods; see [`crate::JobKind::pods_there`].
    pub pods: i32,
    /// True if the job is suspended without pods; see [`crate::JobKind::is_still`].
    pub still: bool,
    /// True if the job has stopped after a start; see [`crate::JobKind::has_come_to_rest`].
    pub at_rest: bool,
    /// True if the job's controller has noticed the last start; see [`crate::JobKind::has_seen_start`].
    pub seen_start: bool,
    /// True if all pods of the job are ready or have succeeded.
    pub ready: bool,
    /// True if all pods of the job have succeeded; see [`crate::JobKind::pods_succeeded`].
    pub succeeded: bool,
    /// True if the job's pods work independently; see [`crate::JobKind::has_independent_pods`].
    pub independent: bool,
    /// True if the API server accepts changes of the job's templates now.
    pub may_change_template: bool,
    /// Result and message of a job that has succeeded or failed; `None` for a job that has not finished.
    pub finished: Option<Box<Finish>>,
    /// Number of pods per pod set that will not run again.
    pub reclaimable: Vec<ReclaimablePod>,
    /// The unsupported field of the job that would decide whether or where the job may run.
    pub unsupported: Option<Box<str>>,
    /// Uid of the TrainingJob in the labels of the job's pods; see [`crate::JobKind::training_of_pods`].
    pub training: Option<Box<str>>,
    /// State of the TrainingJob's role that the job runs, if a TrainingJob controls the job.
    pub role: Option<Box<RoleState>>,
    /// Labels with which a bastion runner marks its jobs, as far as this job has them.
    pub runner_labels: Box<[(&'static str, Box<str>)]>,
    /// Time of the job's creation, in milliseconds since 1970.
    pub created: i64,
    /// `metadata.generation` of the job: 1 until its spec changes.
    pub generation: i64,
    annotations: Box<[(Box<str>, Box<str>)]>,
    /// Digests of the job's pod sets, stored for jobs that need them often, because computing them reads all templates. The inner `None` of the digests means
    /// that the pod sets of the job cannot be read.
    asked: Option<Option<Arc<[PodSetDigest]>>>,
    packed: Option<Box<str>>,
    /// True if the packed JSON has only the fields that patches need.
    is_lean: bool,
}

/// Size in bytes from which on the text of a job counts as large.
const LARGE: usize = 64 << 10;

impl JobState {
    /// Number of Jobs of which the job consists.
    #[must_use]
    pub fn part_count(&self) -> i32 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.replicas))
    }

    /// The part and index of the Job called `name`, if this job is called `own`; the index may be beyond the existing Jobs.
    #[must_use]
    pub fn part_called(&self, own: &str, name: &str) -> Option<(&Part, i32)> {
        (self.kind.info().part_called)(own, name, &self.parts)
    }

    /// Whether both states have equal pod sets: pod sets follow from the spec, whose generation is equal, and from annotations.
    fn asks_as(&self, newer: &Self) -> bool {
        let settled = newer.generation > 0 && self.generation == newer.generation;
        settled && self.uid == newer.uid && self.annotations == newer.annotations
    }

    /// The value of one of the job's annotations.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        let (_, value) = self.annotations.iter().find(|(have, _)| **have == *key)?;
        Some(value)
    }

    /// Whether the job is suspended and its templates are as the user wrote them.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.suspended && !self.stopping
    }

    /// Whether a template of a suspended job still has changes of a start. `original` has the template parts that the Workload stores.
    #[must_use]
    pub fn needs_restore(&self, original: &[TemplateParts]) -> bool {
        self.suspended && (self.stopping || (self.placed && !original.iter().any(TemplateParts::is_placed)))
    }

    /// Digests of the job's pod sets; `None` if the job cannot be read.
    #[must_use]
    pub fn asked(&self) -> Option<Cow<'_, [PodSetDigest]>> {
        match &self.asked {
            Some(known) => known.as_deref().map(Cow::Borrowed),
            None => asked(self.decode()?.pod_sets()).map(|digests| Cow::Owned(digests.to_vec())),
        }
    }

    /// The decoded job, for a patch, or for a Workload if the packed JSON is complete; `None` after [`JobState::shed`].
    #[must_use]
    pub fn decode(&self) -> Option<Box<dyn JobObject>> {
        self.kind.decode(self.packed.as_deref()?).ok()
    }

    /// Patch that suspends a job without marks of a start, also after [`JobState::shed`].
    #[must_use]
    pub fn suspend_patch(&self) -> ObjectPatch {
        ObjectPatch::of_version(&self.uid, self.version.to_string()).spec("suspend", true)
    }

    /// Drops the fields of a large job that no patch needs. A Workload of this job can be made only after the job was read again.
    pub fn lighten(&mut self) {
        let Some(text) = self.packed.as_deref().filter(|_| self.is_large()) else { return };
        let Some(lean) = lean_text(self.kind, text) else { return };
        if self.asked.is_none() {
            self.asked = self.decode().map(|job| asked(job.pod_sets()));
        }
        self.packed = Some(lean.into());
        self.is_lean = true;
    }

    /// Whether fields were dropped from the packed JSON, so that no Workload can be made of it.
    #[must_use]
    pub const fn is_lean(&self) -> bool {
        self.is_lean
    }

    /// Whether the packed JSON is complete, and [`JobState::lighten`] would drop fields.
    #[must_use]
    pub fn is_large(&self) -> bool {
        let is_full = self.kind.info().lean_patches && !self.is_lean;
        is_full && self.packed.as_deref().is_some_and(|text| text.len() > LARGE)
    }

    /// Drops the packed JSON and the digests; the next state of the job has both again.
    pub fn shed(&mut self) {
        self.packed = None;
        self.asked = None;
    }
}

/// The controller of a job, from its owner reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOwner {
    /// Kind of the controller, with its group if Berth knows a kind of this name in another group.
    pub kind: Box<str>,
    /// Name of the controller.
    pub name: Box<str>,
    /// Uid of the controller.
    pub uid: Box<str>,
}

fn asked(sets: Result<Vec<PodSet>, PodSetError>) -> Option<Arc<[PodSetDigest]>> {
    Some(sets.ok()?.iter().map(PodSetDigest::of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchJob, JobKind};
    use k8s_openapi::api::batch::v1::Job;
    use serde_json::json;

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
        let full = state.decode().expect("packed");
        assert_eq!(full.pod_sets(), BatchJob::pod_sets(&job(1, "one", "q")));
        assert_eq!(full.suspend_patch(), BatchJob::suspend_patch(&job(1, "one", "q")));
        assert_eq!(state.suspend_patch(), full.suspend_patch());
    }

    #[test]
    fn large_job_keeps_few_bytes_and_what_it_asks_for() {
        let mut large = job(1, "one", "");
        large.spec.as_mut().unwrap().template.spec.as_mut().unwrap().containers[0].args =
            Some(vec!["x".repeat(1 << 20)]);
        let full = JobState::read::<BatchJob>(&large, None);
        let mut lean = full.clone();
        lean.lighten();
        assert!(lean.is_lean() && !full.is_lean() && full.is_large() && !lean.is_large());
        assert!(lean.packed.as_deref().is_some_and(|text| text.len() < 1_000), "{:?}", lean.packed);
        assert_eq!(lean.asked(), full.asked(), "it is asked for what it was");
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
        // A job's spec cannot change without a new generation, so the digests of its pod sets are not computed again for an equal generation.
        let same = JobState::read::<BatchJob>(&job(1, "two", "q"), Some(&first));
        assert_eq!(digests(&same), digests(&first));
        let next = JobState::read::<BatchJob>(&job(2, "two", "q"), Some(&same));
        assert_ne!(digests(&next), digests(&first));
        let unqueued = JobState::read::<BatchJob>(&job(2, "two", ""), None);
        assert_eq!(digests(&unqueued), digests(&next), "read when it is asked for");
    }

    /// The Job of a TrainingJob with a single worker.
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
        assert!(state.decode().is_none() && state.asked().is_none());
        let again = JobState::read::<BatchJob>(&job(1, "one", "q"), Some(&state));
        assert!(again.decode().is_some() && again.asked().is_some(), "of the same generation");
    }
}
