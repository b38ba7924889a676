//! Checkpoints of TrainingJobs that name a store: the last listing of each job's place in it, and the decisions that follow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_api::berth::{CheckpointInfo, CheckpointStore};
use berth_api::conditions::{training_types, types};
use berth_jobs::training::Saved;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::cache::training_view::TrainingView;
use crate::cache::{Name, WorkloadView};
use crate::context::Context;
use crate::controller::flight::Flight;
use crate::controller::{Control, after, key};
use crate::job::grace::{Asked, Before, Told};
use crate::training_job::training_figures::saved;
use crate::workload::status::{find_true, seconds, since};
use crate::write::{Checkpoint, CheckpointPlace, Kind, ObjectKey, Outcome, Purpose};

/// Pause between two listings of a running job's checkpoints, in milliseconds: half of its interval within these bounds.
const LOOK_MS: (i64, i64) = (2_000, 60_000);
/// The same during the grace period of the job, in milliseconds.
const LOOK_IN_GRACE_MS: i64 = 1_000;
/// Pause after a failed listing, in milliseconds.
const LOOK_AGAIN_MS: i64 = 5_000;
/// Longest wait of a start for a successful listing, in milliseconds; then the start uses the checkpoint that is known.
const START_PATIENCE_MS: i64 = 60_000;

/// State about saved work.
#[derive(Debug, Default)]
pub(crate) struct Saving {
    /// Last listing of a job's checkpoints, by uid of the TrainingJob.
    pub(crate) books: BTreeMap<String, Book>,
    /// The checkpoint from which the present run of a TrainingJob began, by its uid.
    pub(crate) begun: BTreeMap<String, Option<String>>,
    /// Workloads whose pods are notified that they are to stop, by uid, from the first try on.
    pub(crate) notified: BTreeMap<String, Told>,
    /// Last saves of jobs when this process evicted their Workloads, by uid of the Workload. An entry outlives the quota, because the status may lag
    /// behind.
    pub(crate) before: BTreeMap<String, Before>,
    /// Workloads that are to lose workers, and whose pods are asked to save first, by uid, from the first try on.
    pub(crate) asked: BTreeMap<String, Asked>,
}

/// A listing of one job's checkpoints.
#[derive(Clone, Debug)]
pub(crate) struct Book {
    /// The place that was listed. The listing says nothing of another place, should the job or its store be edited.
    place: CheckpointPlace,
    /// Complete checkpoints, oldest first.
    pub(crate) listed: Vec<Checkpoint>,
    /// Time of the last successful listing.
    pub(crate) at: Option<Timestamp>,
    /// Time of the last listing, successful or not.
    pub(crate) tried: Timestamp,
    /// Why the last listing failed.
    pub(crate) fault: Option<String>,
}

impl Saving {
    /// Forgets the requests to save of a Workload that has gone or lost its quota.
    pub(crate) fn forget(&mut self, uid: &str) {
        self.notified.remove(uid);
        self.asked.remove(uid);
    }
}

impl Control {
    pub(crate) fn put_store(&mut self, name: &str, object: Option<Box<CheckpointStore>>) {
        match object {
            Some(object) => drop(self.view.stores.insert(name.to_owned(), Arc::new(object.spec))),
            None => drop(self.view.stores.remove(name)),
        }
        self.work.note_stores(!self.view.stores.is_empty());
        let users = self.view.training.iter().filter(|(_, job)| job.facts.store.as_deref() == Some(name));
        for (job, uid) in users.map(|(name, job)| (name.clone(), job.uid.clone())).collect::<Vec<_>>() {
            self.touch(key(Kind::TrainingJob, &job));
            self.mirror_owned_by(&uid);
            self.touch_owned_by(&uid);
        }
    }

    /// Takes over the result of a listing.
    pub(crate) fn note_look(
        &mut self,
        object: &ObjectKey,
        place: Option<&CheckpointPlace>,
        found: Result<Vec<Checkpoint>, String>,
        now: Timestamp,
    ) {
        self.flights.succeeded(object, object);
        let name = &(object.namespace.clone(), object.name.clone());
        let Some(view) = self.view.training.get(name) else { return };
        let uid = view.uid.clone();
        let Some(place) = place.filter(|place| self.context().place_of(name, view).as_ref() == Some(*place)) else {
            // The job or its store was edited meanwhile: the present place is still to be listed.
            self.touch(key(Kind::TrainingJob, name));
            return;
        };
        let unseen = || Book { place: place.clone(), listed: Vec::new(), at: None, tried: now, fault: None };
        let book = self.training.saving.books.entry(uid.clone()).or_insert_with(unseen);
        if book.place != *place {
            *book = unseen();
        }
        book.tried = now;
        let mut fresh = 0;
        let changed = match found {
            Ok(mut listed) => {
                listed.sort_by(|a, b| a.rank().cmp(&b.rank()));
                if book.at.is_some() {
                    let known: BTreeSet<&String> = book.listed.iter().map(|checkpoint| &checkpoint.id).collect();
                    fresh = listed.iter().filter(|checkpoint| !known.contains(&checkpoint.id)).count();
                }
                book.at = Some(now);
                book.fault = None;
                let changed = book.listed != listed;
                book.listed = listed;
                changed
            }
            Err(fault) => {
                book.fault = Some(fault);
                false
            }
        };
        if let Some(view) = self.view.training.get(name).filter(|_| fresh > 0) {
            self.reports.measures.push(saved(name, &view.status, fresh));
        }
        if changed {
            self.mirror_owned_by(&uid);
        }
        self.touch(key(Kind::TrainingJob, name));
    }

    /// Effects of applied writes: pods were notified that they are to save, a run began or changed, or checkpoints were deleted.
    pub(crate) fn note_saving(&mut self, object: &ObjectKey, flight: &Flight, outcome: &Outcome, now: Timestamp) {
        self.note_notified(object, flight.purpose, outcome);
        if !matches!(outcome, Outcome::Applied { .. }) {
            return;
        }
        let of = |key: &ObjectKey| (key.namespace.clone(), key.name.clone());
        match flight.purpose {
            Purpose::Evict => self.note_evicted(&of(object)),
            Purpose::StartTraining => self.note_start(&of(&flight.origin)),
            Purpose::ScaleTraining => {
                self.note_scaled(&of(&flight.origin), now);
                self.end_request(&of(&flight.origin), now);
            }
            // Workers that were never started go by this write alone.
            Purpose::LowerCount => self.end_request(&of(&flight.origin), now),
            Purpose::DeleteCheckpoints => {
                let Some(view) = self.view.training.get(&of(object)) else { return };
                let asked = |book: &Book| Some(&book.place) == flight.place.as_deref();
                // These ids are those of the request: only a listing changes them, and a job has one request at a time.
                let book = self.training.saving.books.get(&view.uid).filter(|book| asked(book));
                let gone = book.map(|book| self.context().surplus(view, book)).unwrap_or_default();
                if let Some(book) = self.training.saving.books.get_mut(&view.uid).filter(|book| asked(book)) {
                    book.listed.retain(|checkpoint| !gone.contains(&checkpoint.id));
                }
                self.touch(key(Kind::TrainingJob, &of(object)));
            }
            _ => {}
        }
    }

    /// Ends the request to save of a TrainingJob whose workers have gone.
    fn end_request(&mut self, name: &Name, now: Timestamp) {
        let slice = self.view.training.get(name).and_then(|job| self.view.slice_of(&job.uid));
        let uid = slice.map(|slice| slice.uid.clone());
        if let Some(asked) = uid.and_then(|uid| self.training.saving.asked.get_mut(&uid)) {
            asked.end(now);
        }
    }

    /// Keeps the checkpoint from which the run of a TrainingJob begins, for as long as it runs.
    fn note_start(&mut self, name: &Name) {
        let Some(view) = self.view.training.get(name) else { return };
        let saved = self.context().place_of(name, view).and_then(|_| self.context().saved_of(name, view)?.uri);
        let id = saved.as_deref().and_then(|uri| Some(uri.rsplit_once('/')?.1.to_owned()));
        self.training.saving.begun.insert(view.uid.clone(), id);
    }
}

impl<'a> Context<'a> {
    /// Why the store of a TrainingJob cannot be used at all.
    pub(crate) fn missing_store(&self, view: &TrainingView) -> Option<String> {
        let store = view.facts.store.as_ref().filter(|store| !self.view.stores.contains_key(*store))?;
        Some(no_such_store(store, self.view.stores.keys()))
    }

    /// The same for the TrainingJob of a workload, which could not start.
    pub(crate) fn lacks_store(&self, workload: &WorkloadView) -> Option<String> {
        self.missing_store(self.view.training.get(&workload.training_job()?)?)
    }

    /// Where the checkpoints of a TrainingJob are, when it names a store that exists.
    pub(crate) fn place_of(&self, name: &Name, view: &TrainingView) -> Option<CheckpointPlace> {
        let store = view.facts.store.as_ref()?;
        let spec = Arc::clone(self.view.stores.get(store)?);
        Some(CheckpointPlace { store: store.clone(), spec, namespace: name.0.clone(), job: name.1.clone() })
    }

    /// The listing of the place where the checkpoints of a TrainingJob are now.
    pub(crate) fn book_of(&self, name: &Name, view: &TrainingView) -> Option<&'a Book> {
        let book = self.training.saving.books.get(&view.uid)?;
        self.place_of(name, view).is_some_and(|place| place == book.place).then_some(book)
    }

    /// The last checkpoint of a TrainingJob: as its store shows it, as its status remembers it, or as it says itself.
    pub(crate) fn saved_of(&self, name: &Name, view: &TrainingView) -> Option<Saved> {
        let place = self.place_of(name, view);
        let shown = match (&place, self.book_of(name, view).filter(|book| book.at.is_some())) {
            (Some(place), Some(book)) => book.listed.last().map(|last| Saved {
                at: last.at,
                step: Some(last.step),
                uri: Some(place.uri_of(&last.id)),
            }),
            (Some(place), None) => {
                let known = view.status.checkpoint.as_ref().and_then(|shown| remembered(shown.latest.as_ref()?));
                known.filter(|saved| saved.uri.as_deref().is_none_or(|uri| place.has(uri)))
            }
            (None, _) => None,
        };
        shown.into_iter().chain(view.saved.clone()).max_by_key(|saved| saved.at)
    }

    /// Ids of checkpoints beyond the maximum: the oldest ones, never the last, nor the one from which the present run began.
    pub(crate) fn surplus(&self, view: &TrainingView, book: &Book) -> Vec<String> {
        let most = usize::try_from(view.facts.max_checkpoints.max(1)).unwrap_or(1);
        let remembered = || view.status.checkpoint.as_ref()?.resumed_from.clone();
        let begun = self.training.saving.begun.get(&view.uid).cloned().unwrap_or_else(remembered);
        let old = book.listed.len().saturating_sub(most);
        let ids = book.listed.iter().take(old).map(|checkpoint| &checkpoint.id);
        ids.filter(|id| begun.as_ref() != Some(id)).cloned().collect()
    }

    /// Whether the store was listed after the run began, or the start has waited long enough for that.
    pub(crate) fn knows_where_to_resume(
        &self,
        name: &Name,
        view: &TrainingView,
        (begun, now): (Timestamp, Timestamp),
    ) -> bool {
        let looked = self.book_of(name, view).and_then(|book| book.at);
        looked.is_some_and(|at| at >= begun) || now >= patience_ends(begun)
    }

    /// Time of the next listing of a job's checkpoints, `None` when nothing is to be expected there.
    pub(crate) fn next_look(&self, name: &Name, view: &TrainingView, now: Timestamp) -> Option<Timestamp> {
        let book = self.book_of(name, view);
        let at = book.and_then(|book| book.at);
        let paused = |ms: i64| book.map_or(now, |book| after(book.tried, ms));
        let not_before = |due: Timestamp| match book.and_then(|book| book.fault.as_ref()) {
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
        let begun = self.resumes_from(workload)?;
        if at.is_none_or(|at| at < begun) {
            return Some(not_before(now));
        }
        if self.asked_to_save(workload, now).is_some_and(|(grace, _)| grace.lasts(now)) {
            return Some(paused(LOOK_IN_GRACE_MS));
        }
        let half = view.facts.interval_seconds.map_or(LOOK_MS.1, |interval| interval.saturating_mul(500));
        Some(not_before(paused(half.clamp(LOOK_MS.0, LOOK_MS.1))))
    }

    /// Time by which a running job must have saved again, if it declares an interval.
    pub(crate) fn save_due(&self, name: &Name, view: &TrainingView) -> Option<Timestamp> {
        let interval = view.facts.interval_seconds?;
        let running = find_true(&view.status.conditions, training_types::RUNNING)?;
        let saved = self.saved_of(name, view).map(|saved| saved.at);
        let last = saved.map_or(running.last_transition_time.0, |at| at.max(running.last_transition_time.0));
        last.checked_add(SignedDuration::from_secs(interval)).ok()
    }
}

/// Time from which a start goes on without a listing.
pub(crate) fn patience_ends(begun: Timestamp) -> Timestamp {
    after(begun, START_PATIENCE_MS)
}

fn remembered(info: &CheckpointInfo) -> Option<Saved> {
    Some(Saved { at: info.time.0, step: info.step, uri: info.path.clone() })
}

/// A checkpoint as a status shows it.
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

/// Message about a CheckpointStore that does not exist, with the names of the existing ones.
pub(crate) fn no_such_store<'a>(name: &str, all: impl Iterator<Item = &'a String>) -> String {
    let all: BTreeSet<&str> = all.map(String::as_str).collect();
    let known =
        if all.is_empty() { "there is none".to_owned() } else { all.into_iter().collect::<Vec<_>>().join(", ") };
    format!("spec.checkpoint.store: {name:?} is no CheckpointStore; those that exist: {known}")
}
