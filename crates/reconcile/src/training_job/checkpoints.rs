//! Checkpoints of TrainingJobs that name a CheckpointStore: the last listing of each job's checkpoints, and the decisions that depend on the listing.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_api::berth::{CheckpointInfo, CheckpointStore};
use berth_api::conditions::{training_types, types};
use berth_cache::moments::after;
use berth_cache::training_view::TrainingView;
use berth_cache::{Name, View, WorkloadView};
use berth_jobs::training::Saved;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::context::Context;
use crate::state::work_queue::WorkQueue;
use crate::training_job::growth::resumes_from;
use crate::training_job::listing::Listing;
use crate::training_job::saves::{listing_of, place_of, saved_of};
use crate::workload::status::{find_true, seconds, since};
use crate::write::{Checkpoint, CheckpointPlace, Kind, key};

/// Least and largest pause between two listings of a running job's checkpoints, in milliseconds; within these bounds the pause is half of the job's save
/// interval.
const LOOK_MS: (i64, i64) = (2_000, 60_000);
/// Pause between two listings during the job's grace period, in milliseconds.
const LOOK_IN_GRACE_MS: i64 = 1_000;
/// Pause after a failed listing of a checkpoint store, in milliseconds.
const LOOK_AGAIN_MS: i64 = 5_000;
/// Longest wait of a start for a successful listing, in milliseconds; after that the start uses the checkpoint that is known.
const START_PATIENCE_MS: i64 = 60_000;

/// Stores an observed CheckpointStore, or removes a deleted store: control decides again about the TrainingJobs that save there, and computes again the work
/// that they would lose.
pub fn put_store(view: &mut View, work: &mut WorkQueue, name: &str, object: Option<Box<CheckpointStore>>) {
    view.put_store(name, object.map(|object| Arc::new(object.spec)));
    work.note_stores(!view.stores().is_empty());
    for (job, user) in view.training().iter().filter(|(_, job)| job.facts.store.as_deref() == Some(name)) {
        work.touch(key(Kind::TrainingJob, job));
        work.mirror_owned_by(view, &user.uid);
        work.touch_owned_by(view, &user.uid);
    }
}

impl<'a> Context<'a> {
    /// The reason why the store of a TrainingJob cannot be used: the store does not exist.
    pub(crate) fn missing_store(&self, view: &TrainingView) -> Option<String> {
        let store = view.facts.store.as_ref().filter(|store| !self.view.stores().contains_key(*store))?;
        Some(no_such_store(store, self.view.stores().keys()))
    }

    /// The reason why the store of a Workload's TrainingJob cannot be used, so that the job could not start.
    pub(crate) fn lacks_store(&self, workload: &WorkloadView) -> Option<String> {
        self.missing_store(self.view.training().get(&workload.training_job()?)?)
    }

    /// The place in a store where the checkpoints of a TrainingJob are, if the TrainingJob names an existing store.
    pub(crate) fn place_of(&self, name: &Name, view: &TrainingView) -> Option<CheckpointPlace> {
        place_of(self.view, name, view)
    }

    /// The listing of the place where the checkpoints of a TrainingJob are now.
    pub(crate) fn listing_of(&self, name: &Name, view: &TrainingView) -> Option<&'a Listing> {
        listing_of(self.notes.jobs(), self.view, name, view)
    }

    /// The last checkpoint of a TrainingJob: from the listing of its store, from its status, or from the job's own report.
    pub(crate) fn saved_of(&self, name: &Name, view: &TrainingView) -> Option<Saved> {
        saved_of(self.notes.jobs(), self.view, name, view)
    }

    /// Whether the store was listed after the run began, or the start has waited long enough for a listing.
    pub(crate) fn knows_where_to_resume(
        &self,
        name: &Name,
        view: &TrainingView,
        (begun, now): (Timestamp, Timestamp),
    ) -> bool {
        let looked = self.listing_of(name, view).and_then(|listing| listing.at);
        looked.is_some_and(|at| at >= begun) || now >= patience_ends(begun)
    }

    /// Time of the next listing of a job's checkpoints, `None` if no new checkpoint is expected.
    pub(crate) fn next_look(&self, name: &Name, view: &TrainingView, now: Timestamp) -> Option<Timestamp> {
        let listing = self.listing_of(name, view);
        let at = listing.and_then(|listing| listing.at);
        let paused = |ms: i64| listing.map_or(now, |listing| after(listing.tried, ms));
        let not_before = |due: Timestamp| match listing.and_then(|listing| listing.fault.as_ref()) {
            Some(_) => due.max(paused(LOOK_AGAIN_MS)),
            None => due,
        };
        if view.is_over() {
            let conditions = &view.status.conditions;
            let ended = [training_types::SUCCEEDED, training_types::FAILED]
                .into_iter()
                .find_map(|kind| since(conditions, kind, "True"))?;
            return at.filter(|at| *at < ended).map(|_| not_before(now));
        }
        let workload = self.view.slice_of(&view.uid).filter(|workload| workload.reserved())?;
        if workload.is(types::EVICTED) {
            return self.grace_of(workload).filter(|grace| grace.lasts(now)).map(|_| paused(LOOK_IN_GRACE_MS));
        }
        let begun = resumes_from(self.notes.workloads(), workload)?;
        if at.is_none_or(|at| at < begun) {
            return Some(not_before(now));
        }
        if self.asked_to_save(workload, now).is_some_and(|(grace, _)| grace.lasts(now)) {
            return Some(paused(LOOK_IN_GRACE_MS));
        }
        let half = view.facts.interval_seconds.map_or(LOOK_MS.1, |interval| interval.saturating_mul(500));
        Some(not_before(paused(half.clamp(LOOK_MS.0, LOOK_MS.1))))
    }

    /// Time by which a running job must save its next checkpoint, if the job declares an interval.
    pub(crate) fn save_due(&self, name: &Name, view: &TrainingView) -> Option<Timestamp> {
        let interval = view.facts.interval_seconds?;
        let running = find_true(&view.status.conditions, training_types::RUNNING)?;
        let saved = self.saved_of(name, view).map(|saved| saved.at);
        let last = saved.map_or(running.last_transition_time.0, |at| at.max(running.last_transition_time.0));
        last.checked_add(SignedDuration::from_secs(interval)).ok()
    }
}

/// Time from which a start goes on without a listing of the checkpoint store.
pub(crate) fn patience_ends(begun: Timestamp) -> Timestamp {
    after(begun, START_PATIENCE_MS)
}

/// A checkpoint in the form for the status of a TrainingJob.
pub(crate) fn shown(place: &CheckpointPlace, checkpoint: &Checkpoint) -> CheckpointInfo {
    CheckpointInfo {
        id: Some(checkpoint.id.clone()),
        time: Time(seconds(checkpoint.at)),
        step: Some(checkpoint.step),
        epoch: checkpoint.epoch,
        path: Some(place.uri_of(&checkpoint.id)),
        size_bytes: i64::try_from(checkpoint.bytes).ok(),
        metadata: checkpoint.metadata.clone(),
    }
}

/// Message about a CheckpointStore that does not exist, with the names of the existing stores.
pub(crate) fn no_such_store<'a>(name: &str, all: impl Iterator<Item = &'a String>) -> String {
    let all: BTreeSet<&str> = all.map(String::as_str).collect();
    let known =
        if all.is_empty() { "there is none".to_owned() } else { all.into_iter().collect::<Vec<_>>().join(", ") };
    format!("spec.checkpoint.store: {name:?} is no CheckpointStore; those that exist: {known}")
}

#[cfg(test)]
mod tests;
