//! Writes under way: at most one per object, and the version of the object that must be observed before the next write.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use berth_cache::moments::after;
use berth_jobs::MOST_BYTES;
use jiff::Timestamp;
use rustc_hash::FxHashMap;

use crate::decision::Draft;
use crate::state::unresolved::UnresolvedWrites;
use crate::write::{Action, CheckpointPlace, Kind, Notice, ObjectKey, Purpose, QueryKind, TaskId, Write};

/// A task that was handed to the runtime.
#[derive(Clone, Debug)]
pub struct InFlightWrite {
    /// Key of the object whose decision led to the task.
    pub origin: ObjectKey,
    /// The purpose of the task.
    pub purpose: Purpose,
    /// Version of the object from which the task was derived.
    pub based_on: u64,
    /// Events to publish once the write has succeeded.
    pub notices: Vec<Notice>,
    /// Place of the checkpoints, if the task writes to a store of checkpoints.
    pub place: Option<Box<CheckpointPlace>>,
    /// True for a deletion that first deletes the objects that are owned by the deleted object.
    pub owned_first: bool,
    /// True if the object was removed while the task was under way, so that the watch never shows the result of the write.
    pub vanished: bool,
    /// Size in bytes of the Workload that the task creates or changes, or of the job that the task reads for a Workload.
    bytes: usize,
    /// True if a delay of the task does not delay writes to its object.
    pub spares_its_object: bool,
    /// Kind of the expected answer, if the task is a query.
    pub query: Option<QueryKind>,
}

/// A version that the watch must show.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    version: u64,
    /// The time at which the wait for a version ends that was only suspected because of a conflict; `None` if the version is known to exist.
    until: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct Backoff {
    until: Timestamp,
    attempts: u32,
}

/// Writes under way, versions that must still be observed, and back-offs.
#[derive(Debug, Default)]
pub struct InFlightWrites {
    sent: FxHashMap<ObjectKey, InFlightWrite>,
    keys: FxHashMap<TaskId, ObjectKey>,
    /// For each object, the version that the watch must show before the object is decided about again.
    awaited: FxHashMap<ObjectKey, Awaited>,
    backoffs: FxHashMap<ObjectKey, Backoff>,
    /// Unresolved writes: their outcome is unknown, and they may still be applied.
    unresolved: UnresolvedWrites,
    /// The last refusal to create an object, by the TrainingJob or Workload for which the object was to be created.
    refusals: BTreeMap<ObjectKey, (ObjectKey, String)>,
    /// Workloads whose reservation the API server refused, with the time until which each of them preempts no other Workload.
    refused_reservations: FxHashMap<ObjectKey, Timestamp>,
    /// Workloads whose first creation is under way, or has succeeded without being observed yet.
    first_creations: BTreeSet<ObjectKey>,
    /// Number of Workload creations under way.
    creations: usize,
    /// Size in bytes of the responses and request bodies under way for Workloads that are created or changed.
    creation_bytes: usize,
    /// Jobs that wait for their Workload because too many other Workloads are being created, first come, first served.
    held_back: VecDeque<ObjectKey>,
    /// The jobs of `held_back` as a set, so that a change of a waiting job does not queue the job again.
    held: BTreeSet<ObjectKey>,
    last: u64,
}

/// Maximum number of Workloads that are created at once; further jobs wait in the view, where a job costs less memory than in a request body.
const MOST_CREATIONS: usize = 64;
/// Maximum size in bytes of the responses and request bodies of Workload creations under way; the client holds copies of them.
const MOST_CREATION_BYTES: usize = 8 << 20;
/// Delay in milliseconds after the first failed write of an object.
const FIRST_DELAY_MS: i64 = 200;
/// Time in milliseconds for which a newer version is awaited after a conflict. The wait for a newer version after a conflict is longer than the usual lag of a
/// watch, because giving up too early costs a request. A conflict after which no newer version of the object is observed comes from a component between Berth
/// and the API server's store.
const CONFLICT_PATIENCE_MS: i64 = 3_000;
/// Maximum delay in milliseconds between two tries of a write; a change of the object ends the delay early.
const LONGEST_DELAY_MS: i64 = 60_000;

/// Number of failed writes in a row from which on a conflict with another writer does not explain the failures.
const SEVERAL: u32 = 3;

/// Time in milliseconds for which a Workload preempts no other Workload after its reservation was refused. If a Workload with a refused reservation could
/// preempt, its victims would be evicted again with each of its tries.
const REFUSED_MS: i64 = 3_600_000;

/// Time in milliseconds after the end of a back-off for which the back-off counts for the length of the next one.
const FORGOTTEN_MS: i64 = 600_000;

impl InFlightWrites {
    /// Unresolved writes: their outcome is unknown, and they may still be applied.
    pub fn unresolved(&self) -> &UnresolvedWrites {
        &self.unresolved
    }

    /// Unresolved writes, as a mutable reference. No other field of `InFlightWrites` follows a change of the unresolved writes.
    pub(crate) fn unresolved_mut(&mut self) -> &mut UnresolvedWrites {
        &mut self.unresolved
    }

    /// Notes that an object exists that was to be created: one of its unresolved creations may have made the object.
    pub fn note_exists(&mut self, key: &ObjectKey) {
        self.unresolved.note_applied(key);
    }

    /// Whether control must make no decision about the object now, because a write is under way or the result of a write was not observed yet.
    pub fn busy(&self, key: &ObjectKey) -> bool {
        self.sent.contains_key(key) || self.awaited.contains_key(key)
    }

    /// Whether a write of Berth is about to change the state of the object. A request to the pods of the object to save a checkpoint does not count as a
    /// change.
    pub(crate) fn changing(&self, key: &ObjectKey) -> bool {
        self.busy(key) && !self.sent.get(key).is_some_and(|write| write.purpose.asks_to_save())
    }

    /// The task under way for an object.
    pub fn sent(&self, key: &ObjectKey) -> Option<&InFlightWrite> {
        self.sent.get(key)
    }

    /// Time at which the object's back-off is over, if that time is yet to come.
    pub fn backing_off(&self, key: &ObjectKey, now: Timestamp) -> Option<Timestamp> {
        self.backoffs.get(key).map(|backoff| backoff.until).filter(|until| *until > now)
    }

    /// Time at which the object's back-off for writes is over. The answer "not yet" to a query about an object delays further queries only, and not the
    /// object's writes.
    pub fn backing_off_from_writes(&self, key: &ObjectKey, now: Timestamp) -> Option<Timestamp> {
        self.backing_off(key, now).filter(|_| self.backoffs.get(key).is_some_and(|backoff| backoff.attempts > 0))
    }

    /// Whether the object is backing off after several failed writes in a row.
    pub fn keeps_failing(&self, key: &ObjectKey, now: Timestamp) -> bool {
        self.backoffs.get(key).is_some_and(|backoff| backoff.until > now && backoff.attempts >= SEVERAL)
    }

    /// The earliest time at which a back-off of any object is over.
    pub fn next_retry(&self, now: Timestamp) -> Option<Timestamp> {
        self.backoffs.values().map(|backoff| backoff.until).filter(|until| *until > now).min()
    }

    /// Notes a task as under way, and returns the task's id.
    pub fn start(&mut self, draft: &mut Draft, origin: ObjectKey) -> TaskId {
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
        self.sent.insert(
            draft.key.clone(),
            InFlightWrite {
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

    /// Adds the size of the body of a write that has begun. Only the bodies of created and updated Workloads count in the size of writes under way, because
    /// such a body repeats everything that a user wrote.
    pub fn weigh(&mut self, key: &ObjectKey, bytes: usize) {
        let repeats = |purpose| matches!(purpose, Purpose::CreateWorkload | Purpose::UpdateWorkload);
        let Some(write) = self.sent.get_mut(key).filter(|write| repeats(write.purpose)) else { return };
        write.bytes = bytes;
        self.creation_bytes = self.creation_bytes.saturating_add(bytes);
    }

    /// Removes a task that has ended, and returns its object and its record.
    pub fn take(&mut self, id: TaskId) -> Option<(ObjectKey, InFlightWrite)> {
        let key = self.keys.remove(&id)?;
        let write = self.sent.remove(&key)?;
        if write.purpose.creates() {
            self.creations = self.creations.saturating_sub(1);
        }
        self.creation_bytes = self.creation_bytes.saturating_sub(write.bytes);
        Some((key, write))
    }

    /// Whether Workloads are being created for the first time, or were created for the first time and not observed yet.
    pub fn creates_workloads(&self) -> bool {
        !self.first_creations.is_empty()
    }

    /// Stops the wait for Workloads that are being created, because a Workload that no watch ever shows would delay each plan.
    pub fn forget_first_creations(&mut self) {
        self.first_creations.clear();
    }

    /// Whether the maximum number or size of Workload creations under way is reached.
    pub(crate) fn creations_full(&self) -> bool {
        self.creations >= MOST_CREATIONS || self.creation_bytes >= MOST_CREATION_BYTES
    }

    /// Holds a job back until the creation of a Workload ends.
    pub fn hold_back(&mut self, job: ObjectKey) {
        if self.held.insert(job.clone()) {
            self.held_back.push_back(job);
        }
    }

    /// The next job that was held back, if another Workload may be created now.
    pub fn next_held_back(&mut self) -> Option<ObjectKey> {
        let job = if self.creations_full() { None } else { self.held_back.pop_front() }?;
        self.held.remove(&job);
        Some(job)
    }

    /// Notes that the object must be observed at `version` or later before it is decided about again.
    pub fn expect(&mut self, key: ObjectKey, version: u64) {
        self.awaited.insert(key, Awaited { version, until: None });
    }

    /// Awaits a version newer than `version` after a conflict; returns the time at which the wait is over.
    pub fn suspect(&mut self, key: ObjectKey, version: u64, now: Timestamp) -> Timestamp {
        let until = after(now, CONFLICT_PATIENCE_MS);
        self.awaited.insert(key, Awaited { version: version.saturating_add(1), until: Some(until) });
        until
    }

    /// Whether `version` is a version that was awaited because of a conflict.
    pub fn explains_conflict(&self, key: &ObjectKey, version: u64) -> bool {
        self.awaited.get(key).is_some_and(|awaited| awaited.until.is_some() && awaited.version <= version)
    }

    /// Stops the wait for a version that a conflict suggested and that did not come in time; `true` if there was such a wait.
    pub fn give_up(&mut self, key: &ObjectKey, now: Timestamp) -> bool {
        let over = self.awaited.get(key).is_some_and(|awaited| awaited.until.is_some_and(|until| until <= now));
        over && self.awaited.remove(key).is_some()
    }

    /// Notes that the object was observed at a version; `true` if no version of the object is awaited any more.
    pub fn seen(&mut self, key: &ObjectKey, version: u64) -> bool {
        self.first_creations.remove(key);
        self.unresolved.seen(key, version);
        match self.awaited.get(key) {
            Some(awaited) if awaited.version > version => false,
            Some(_) => {
                self.awaited.remove(key);
                true
            }
            None => true,
        }
    }

    /// Notes that the object is gone, so that no version of it is awaited.
    pub fn vanished(&mut self, key: &ObjectKey) {
        self.first_creations.remove(key);
        self.refusals.remove(key);
        self.refused_reservations.remove(key);
        self.awaited.remove(key);
        self.backoffs.remove(key);
        self.unresolved.vanished(key);
        if let Some(write) = self.sent.get_mut(key) {
            write.vanished = true;
        }
    }

    /// Notes a write that succeeded: ends the object's back-off, and forgets a refusal to create the object.
    pub fn succeeded(&mut self, key: &ObjectKey, origin: &ObjectKey) {
        self.backoffs.remove(key);
        if self.refusal(origin).is_some_and(|(object, _)| object == key) {
            self.refusals.remove(origin);
        }
    }

    /// Notes that the API server refused the reservation of a Workload; returns the time until which the Workload preempts no other Workload.
    pub fn refused_reservation(&mut self, workload: &ObjectKey, now: Timestamp) -> Timestamp {
        *self.refused_reservations.entry(workload.clone()).or_insert_with(|| after(now, REFUSED_MS))
    }

    /// Forgets the refused reservation of a Workload, because the Workload got its quota or changed its request.
    pub fn forget_refused_reservation(&mut self, workload: &ObjectKey) {
        self.refused_reservations.remove(workload);
    }

    /// Forgets the refused reservation of a Workload when its time is over.
    pub fn forget_old_refusal(&mut self, workload: &ObjectKey, now: Timestamp) {
        if self.refused_reservations.get(workload).is_some_and(|until| *until <= now) {
            self.refused_reservations.remove(workload);
        }
    }

    /// Whether the reservation of a Workload was refused, so that victims would give up their quota for nothing.
    pub(crate) fn was_refused_quota(&self, workload: &ObjectKey) -> bool {
        self.refused_reservations.contains_key(workload)
    }

    /// Notes that the API server refused to create an object for another object. Refused creations are noted only for TrainingJobs and Workloads, because
    /// only these report the refusal later.
    pub fn refused(&mut self, origin: &ObjectKey, object: &ObjectKey, text: &str) {
        if matches!(origin.kind, Kind::TrainingJob | Kind::Workload) {
            self.refusals.insert(origin.clone(), (object.clone(), text.to_owned()));
        }
    }

    /// The object whose creation was refused, with the API server's message.
    pub fn refusal(&self, origin: &ObjectKey) -> Option<&(ObjectKey, String)> {
        self.refusals.get(origin)
    }

    /// Notes a failed write: doubles the object's back-off, and returns the time at which the back-off is over.
    pub fn failed(&mut self, key: &ObjectKey, now: Timestamp, at_least_ms: i64) -> Timestamp {
        self.first_creations.remove(key);
        let attempts = self.backoffs.get(key).map_or(0, |backoff| backoff.attempts);
        let doubled = FIRST_DELAY_MS.checked_shl(attempts.min(16)).unwrap_or(LONGEST_DELAY_MS);
        let delay = doubled.max(at_least_ms).min(LONGEST_DELAY_MS);
        let until = after(now, delay);
        self.backoffs.insert(key.clone(), Backoff { until, attempts: attempts.saturating_add(1) });
        until
    }

    /// Backs off after the answer "not yet" to a query; such a back-off does not grow.
    pub fn pause(&mut self, key: &ObjectKey, now: Timestamp, millis: i64) -> Timestamp {
        let until = after(now, millis);
        self.backoffs.insert(key.clone(), Backoff { until, attempts: 0 });
        until
    }

    /// Shortens the object's back-off so that it is over at `end` at the latest.
    pub fn not_beyond(&mut self, key: &ObjectKey, end: Timestamp) {
        if let Some(backoff) = self.backoffs.get_mut(key) {
            backoff.until = backoff.until.min(end);
        }
    }

    /// Forgets back-offs that ended long ago.
    pub fn forget_old(&mut self, now: Timestamp) {
        self.backoffs.retain(|_, backoff| after(backoff.until, FORGOTTEN_MS) > now);
    }

    /// Notes an object that was not observed before. A newly observed object was made by a creation with a lost answer, unless a creation by this process is
    /// under way or was answered.
    pub fn appeared(&mut self, key: &ObjectKey) {
        if !self.busy(key) {
            self.unresolved.note_applied(key);
        }
    }
}
