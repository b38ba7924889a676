//! Writes under way: at most one per object, and the version that has to be seen before the next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use berth_jobs::MOST_BYTES;
use jiff::Timestamp;
use rustc_hash::FxHashMap;

use crate::decision::Draft;
use crate::moments::after;
use crate::state::strays::Strays;
use crate::write::{Action, CheckpointPlace, Kind, Notice, ObjectKey, Purpose, QueryKind, TaskId, Write};

/// A task that was handed to the runtime.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    /// The object whose decision it was.
    pub(crate) origin: ObjectKey,
    pub(crate) purpose: Purpose,
    pub(crate) based_on: u64,
    pub(crate) notices: Vec<Notice>,
    /// For a write to a store of checkpoints: the place of the checkpoints.
    pub(crate) place: Option<Box<CheckpointPlace>>,
    /// A deletion that takes the objects that the object owns first.
    pub(crate) owned_first: bool,
    /// The object vanished meanwhile: the result of the write can never be seen.
    pub(crate) vanished: bool,
    /// Bytes of the Workload that is made or changed, or of the job that is read for that.
    bytes: usize,
    /// When the task has to wait, writes to its object do not.
    pub(crate) spares_its_object: bool,
    /// Kind of the answer that is expected, if it is a query.
    pub(crate) query: Option<QueryKind>,
}

/// A version that the watch must show.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    version: u64,
    /// `None`: the version exists and will come. Else a conflict made us expect it, until then.
    until: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct Backoff {
    until: Timestamp,
    attempts: u32,
}

/// Writes under way, versions still to be seen, and back-offs.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    flying: FxHashMap<ObjectKey, Flight>,
    keys: FxHashMap<TaskId, ObjectKey>,
    /// The watch must show at least this version before the object is judged again.
    awaited: FxHashMap<ObjectKey, Awaited>,
    backoffs: FxHashMap<ObjectKey, Backoff>,
    /// Writes of unknown outcome that may still be applied.
    pub(crate) strays: Strays,
    /// Last refusal to create an object, by the TrainingJob or the Workload that the object is for.
    refusals: BTreeMap<ObjectKey, (ObjectKey, String)>,
    /// Workloads that the API server refused to give quota, with the time until which they preempt nobody.
    refused_reservations: FxHashMap<ObjectKey, Timestamp>,
    /// Workloads whose first creation is under way, or was answered and is not seen yet.
    first_creations: BTreeSet<ObjectKey>,
    /// Creations of Workloads under way.
    creations: usize,
    /// Bytes of the responses and request bodies under way for Workloads that are created or changed.
    creation_bytes: usize,
    /// Jobs without a Workload because too many others are being made, in the order in which they came.
    held_back: VecDeque<ObjectKey>,
    /// The same jobs: whatever touches one of them meanwhile does not queue it again.
    held: BTreeSet<ObjectKey>,
    last: u64,
}

/// Workloads that are created at once: a flood of jobs stays in the view, where it costs least, and not in request bodies.
const MOST_CREATIONS: usize = 64;
/// Most bytes of their responses and request bodies. The client holds copies of these.
const MOST_CREATION_BYTES: usize = 8 << 20;
/// First delay after a failed write.
const FIRST_DELAY_MS: i64 = 200;
/// How long a newer version is waited for after a conflict, longer than a watch mostly lags: too short costs a request. A
/// conflict without a newer version comes from something between us and the store.
const CONFLICT_PATIENCE_MS: i64 = 3_000;
/// Longest delay between two tries of a write; the object's own changes cut it short.
const LONGEST_DELAY_MS: i64 = 60_000;

/// Number of failed writes in a row for which a conflict with another writer is no explanation any more.
const SEVERAL: u32 = 3;

/// Time in milliseconds for which a workload preempts nobody after its reservation was refused: its victims would come back, and be evicted again
/// with each of its tries.
const REFUSED_MS: i64 = 3_600_000;

/// Time in milliseconds after its end for which a delay counts for the length of the next one.
const FORGOTTEN_MS: i64 = 600_000;

impl Flights {
    /// Whether the object must be left alone now: a write is under way, or its result is not seen yet.
    pub(crate) fn busy(&self, key: &ObjectKey) -> bool {
        self.flying.contains_key(key) || self.awaited.contains_key(key)
    }

    /// Whether the state of the object is about to change by a write of ours: a request to its pods to save changes nothing of it.
    pub(crate) fn changing(&self, key: &ObjectKey) -> bool {
        self.busy(key) && !self.flying.get(key).is_some_and(|flight| flight.purpose.asks_to_save())
    }

    pub(crate) fn flying(&self, key: &ObjectKey) -> Option<&Flight> {
        self.flying.get(key)
    }

    /// End of the object's back-off, if that is yet to come.
    pub(crate) fn backing_off(&self, key: &ObjectKey, now: Timestamp) -> Option<Timestamp> {
        self.backoffs.get(key).map(|backoff| backoff.until).filter(|until| *until > now)
    }

    /// As [`Self::backing_off`], for a write to the object: an answer "not yet" to a question about it holds up further questions only, and not its
    /// writes.
    pub(crate) fn backing_off_from_writes(&self, key: &ObjectKey, now: Timestamp) -> Option<Timestamp> {
        self.backing_off(key, now).filter(|_| self.backoffs.get(key).is_some_and(|backoff| backoff.attempts > 0))
    }

    /// Whether the object is backing off after several writes that failed one after the other.
    pub(crate) fn keeps_failing(&self, key: &ObjectKey, now: Timestamp) -> bool {
        self.backoffs.get(key).is_some_and(|backoff| backoff.until > now && backoff.attempts >= SEVERAL)
    }

    /// The earliest end of a delay after a failed write.
    pub(crate) fn next_retry(&self, now: Timestamp) -> Option<Timestamp> {
        self.backoffs.values().map(|backoff| backoff.until).filter(|until| *until > now).min()
    }

    pub(crate) fn start(&mut self, draft: &mut Draft, origin: ObjectKey) -> TaskId {
        self.last = self.last.saturating_add(1);
        let bytes = if draft.purpose == Purpose::ReadJob { MOST_BYTES } else { 0 };
        self.creation_bytes = self.creation_bytes.saturating_add(bytes);
        if draft.purpose.creates() {
            self.creations = self.creations.saturating_add(1);
        }
        if draft.purpose == Purpose::CreateWorkload && !self.backoffs.contains_key(&draft.key) {
            self.first_creations.insert(draft.key.clone());
        }
        let id = TaskId(self.last);
        self.keys.insert(id, draft.key.clone());
        self.flying.insert(
            draft.key.clone(),
            Flight {
                origin,
                purpose: draft.purpose,
                based_on: draft.based_on,
                notices: std::mem::take(&mut draft.notices),
                place: draft.action.place().cloned().map(Box::new),
                owned_first: matches!(draft.action, Action::Write(Write::Delete { owned_first: true, .. })),
                vanished: false,
                bytes,
                spares_its_object: draft.action.spares_its_object(),
                query: match &draft.action {
                    Action::Query(query) => Some(query.kind()),
                    Action::Write(_) => None,
                },
            },
        );
        id
    }

    /// Counts the bytes of the body of a write that has begun. Only bodies of Workloads repeat all that a user wrote.
    pub(crate) fn weigh(&mut self, key: &ObjectKey, bytes: usize) {
        let repeats = |purpose| matches!(purpose, Purpose::CreateWorkload | Purpose::UpdateWorkload);
        let Some(flight) = self.flying.get_mut(key).filter(|flight| repeats(flight.purpose)) else { return };
        flight.bytes = bytes;
        self.creation_bytes = self.creation_bytes.saturating_add(bytes);
    }

    pub(crate) fn land(&mut self, id: TaskId) -> Option<(ObjectKey, Flight)> {
        let key = self.keys.remove(&id)?;
        let flight = self.flying.remove(&key)?;
        if flight.purpose.creates() {
            self.creations = self.creations.saturating_sub(1);
        }
        self.creation_bytes = self.creation_bytes.saturating_sub(flight.bytes);
        Some((key, flight))
    }

    /// Whether Workloads are being created for the first time, none of which was waited for in vain.
    pub(crate) fn creates_workloads(&self) -> bool {
        !self.first_creations.is_empty()
    }

    /// Waits no longer for the Workloads that are being created: one that no watch ever shows would hold up each plan.
    pub(crate) fn forget_first_creations(&mut self) {
        self.first_creations.clear();
    }

    /// Whether as many Workloads are being created as may be at once.
    pub(crate) fn creations_full(&self) -> bool {
        self.creations >= MOST_CREATIONS || self.creation_bytes >= MOST_CREATION_BYTES
    }

    /// Holds a job back until a creation ends.
    pub(crate) fn hold_back(&mut self, job: ObjectKey) {
        if self.held.insert(job.clone()) {
            self.held_back.push_back(job);
        }
    }

    /// The job whose turn it is now, if any.
    pub(crate) fn next_held_back(&mut self) -> Option<ObjectKey> {
        let job = if self.creations_full() { None } else { self.held_back.pop_front() }?;
        self.held.remove(&job);
        Some(job)
    }

    /// The object must be seen at `version` or later before it is judged again.
    pub(crate) fn expect(&mut self, key: ObjectKey, version: u64) {
        self.awaited.insert(key, Awaited { version, until: None });
    }

    /// Expects a version newer than `version` after a conflict; returns the time until which it is expected.
    pub(crate) fn suspect(&mut self, key: ObjectKey, version: u64, now: Timestamp) -> Timestamp {
        let until = after(now, CONFLICT_PATIENCE_MS);
        self.awaited.insert(key, Awaited { version: version.saturating_add(1), until: Some(until) });
        until
    }

    /// Whether this is the version for which a conflict made us wait.
    pub(crate) fn explains_conflict(&self, key: &ObjectKey, version: u64) -> bool {
        self.awaited.get(key).is_some_and(|awaited| awaited.until.is_some() && awaited.version <= version)
    }

    /// Stops to expect a version that a conflict has hinted at and that never came; `true` when there was one.
    pub(crate) fn give_up(&mut self, key: &ObjectKey, now: Timestamp) -> bool {
        let over = self.awaited.get(key).is_some_and(|awaited| awaited.until.is_some_and(|until| until <= now));
        over && self.awaited.remove(key).is_some()
    }

    /// The object was seen at a version; `true` when nothing is awaited any more.
    pub(crate) fn seen(&mut self, key: &ObjectKey, version: u64) -> bool {
        self.first_creations.remove(key);
        self.strays.seen(key, version);
        match self.awaited.get(key) {
            Some(awaited) if awaited.version > version => false,
            Some(_) => {
                self.awaited.remove(key);
                true
            }
            None => true,
        }
    }

    /// The object is gone: nothing is awaited of it.
    pub(crate) fn vanished(&mut self, key: &ObjectKey) {
        self.first_creations.remove(key);
        self.refusals.remove(key);
        self.refused_reservations.remove(key);
        self.awaited.remove(key);
        self.backoffs.remove(key);
        self.strays.vanished(key);
        if let Some(flight) = self.flying.get_mut(key) {
            flight.vanished = true;
        }
    }

    pub(crate) fn succeeded(&mut self, key: &ObjectKey, origin: &ObjectKey) {
        self.backoffs.remove(key);
        if self.refusal(origin).is_some_and(|(object, _)| object == key) {
            self.refusals.remove(origin);
        }
    }

    /// Notes that the API server refused to give a workload quota; returns the time until which it preempts nobody.
    pub(crate) fn refused_reservation(&mut self, workload: &ObjectKey, now: Timestamp) -> Timestamp {
        *self.refused_reservations.entry(workload.clone()).or_insert_with(|| after(now, REFUSED_MS))
    }

    /// Forgets that refusal: the workload got its quota, or asks for something else, so that its next reservation may be taken.
    pub(crate) fn forget_refused_reservation(&mut self, workload: &ObjectKey) {
        self.refused_reservations.remove(workload);
    }

    /// Forgets a refused reservation when its time is over.
    pub(crate) fn forget_old_refusal(&mut self, workload: &ObjectKey, now: Timestamp) {
        if self.refused_reservations.get(workload).is_some_and(|until| *until <= now) {
            self.refused_reservations.remove(workload);
        }
    }

    /// Whether victims of this workload would give up their quota for a reservation that is not written.
    pub(crate) fn was_refused_quota(&self, workload: &ObjectKey) -> bool {
        self.refused_reservations.contains_key(workload)
    }

    /// Notes that the API server refused to create an object for another one. Only TrainingJobs and Workloads report that later.
    pub(crate) fn refused(&mut self, origin: &ObjectKey, object: &ObjectKey, text: &str) {
        if matches!(origin.kind, Kind::TrainingJob | Kind::Workload) {
            self.refusals.insert(origin.clone(), (object.clone(), text.to_owned()));
        }
    }

    /// The refused object, with the API server's message.
    pub(crate) fn refusal(&self, origin: &ObjectKey) -> Option<&(ObjectKey, String)> {
        self.refusals.get(origin)
    }

    /// Notes a failed write: doubles the object's delay and returns its end.
    pub(crate) fn failed(&mut self, key: &ObjectKey, now: Timestamp, at_least_ms: i64) -> Timestamp {
        self.first_creations.remove(key);
        let attempts = self.backoffs.get(key).map_or(0, |backoff| backoff.attempts);
        let doubled = FIRST_DELAY_MS.checked_shl(attempts.min(16)).unwrap_or(LONGEST_DELAY_MS);
        let delay = doubled.max(at_least_ms).min(LONGEST_DELAY_MS);
        let until = after(now, delay);
        self.backoffs.insert(key.clone(), Backoff { until, attempts: attempts.saturating_add(1) });
        until
    }

    /// A delay that does not grow: the answer was "not yet".
    pub(crate) fn pause(&mut self, key: &ObjectKey, now: Timestamp, millis: i64) -> Timestamp {
        let until = after(now, millis);
        self.backoffs.insert(key.clone(), Backoff { until, attempts: 0 });
        until
    }

    /// Ends the object's delay by then.
    pub(crate) fn not_beyond(&mut self, key: &ObjectKey, end: Timestamp) {
        if let Some(backoff) = self.backoffs.get_mut(key) {
            backoff.until = backoff.until.min(end);
        }
    }

    /// Forgets delays that ended long ago.
    pub(crate) fn forget_old(&mut self, now: Timestamp) {
        self.backoffs.retain(|_, backoff| after(backoff.until, FORGOTTEN_MS) > now);
    }

    /// Notes an object that was not there before. Unless a creation of ours is under way or was answered, a creation whose answer was lost has made
    /// it.
    pub(crate) fn appeared(&mut self, key: &ObjectKey) {
        if !self.busy(key) {
            self.strays.landed(key);
        }
    }
}
