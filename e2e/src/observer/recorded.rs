//! Observations of the observer's watches: the changes that were not judged yet, and the last change of each object.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use berth_invariants::Change;
use futures::StreamExt;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Client, ResourceExt};
use serde_json::Value;
use tokio::sync::watch as channel;

use super::{Scope, lock};
use crate::kinds::{self, EVENT, Kind, TRAINING_JOB, items, text};

/// The program's name, which is the field manager of Berth's events because Berth's writes of events name no field manager.
const BERTH: &str = "berth";

/// The reason why the observer watches a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The observer judges every change of the kind, and the change counts for invariant C6.
    Judged,
    /// Changes of the kind only count for invariant C6.
    Written,
}

/// Kind and key of an observed object, by which the observations about the object are kept.
pub(super) type Slot = (&'static str, String);

/// Start of the observations, from which the judge of the invariants counts time.
struct Beginning(Instant);

impl Default for Beginning {
    fn default() -> Beginning {
        Beginning(Instant::now())
    }
}

/// All observations.
#[derive(Default)]
pub(super) struct Recorded {
    beginning: Beginning,
    /// Observed changes of objects that the judge of the invariants has not got yet.
    pub(super) fresh: Vec<Change>,
    /// Last known revision and state of every object of the judged kinds.
    latest: BTreeMap<Slot, (u64, DynamicObject)>,
    /// Revisions (resourceVersions) at which objects of the judged kinds were deleted.
    gone: BTreeMap<Slot, u64>,
    /// Number of changes of each object, and the time at which the last change was seen.
    pub(super) touched: BTreeMap<Slot, (u64, Instant)>,
    /// Hash of the last content of each object that is not judged, without the fields that change by themselves.
    contents: BTreeMap<Slot, u64>,
    /// Number of changes of objects of the judged kinds.
    pub(super) total: u64,
    /// Kinds that the observer has listed at least once.
    listed: BTreeSet<&'static str>,
    /// Spans of revisions (first exclusive, last inclusive) of which the observer has only a list, which shows only the objects that existed at the
    /// end of the span.
    blind: Vec<(u64, u64)>,
    /// Kinds that are being listed, with the newest revision that was seen before the list.
    listing: BTreeMap<&'static str, u64>,
    /// Scopes for whose changes a wait listens, with the number of changes in the scope.
    awaited: Vec<(Scope, channel::Sender<u64>)>,
}

impl Recorded {
    /// The time from the start of the observations to the moment `at`, by which the judge of the invariants counts.
    pub(super) fn since_beginning(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.beginning.0)
    }

    /// Number of kinds that the observer has listed at least once.
    pub(super) fn listed(&self) -> usize {
        self.listed.len()
    }

    /// Whether objects may have had states at the revision `revision` that the observer has not seen, because it has only a list of them, or is still listing
    /// them.
    pub(super) fn is_blind_at(&self, revision: u64) -> bool {
        let within = |(after, upto): &(u64, u64)| *after < revision && revision <= *upto;
        self.blind.iter().any(within) || self.listing.values().any(|after| *after < revision)
    }

    /// An object in a list of revision `at` that the watch of the kind has not shown yet; `None` if the watch has shown all objects of the list.
    pub(super) fn behind(&self, kind: Kind, listed: &BTreeMap<String, u64>, at: u64) -> Option<String> {
        for (key, revision) in listed {
            let seen = self.latest.get(&(kind.kind, key.clone())).map(|(r, _)| *r);
            let gone = self.gone.get(&(kind.kind, key.clone())).copied();
            if seen.max(gone).unwrap_or(0) < *revision {
                return Some(format!("{} {key} at {revision} is not seen", kind.kind));
            }
        }
        let vanished = self
            .latest
            .iter()
            .find(|((k, key), (revision, _))| *k == kind.kind && *revision <= at && !listed.contains_key(key));
        vanished.map(|((_, key), _)| format!("the end of {} {key} is not seen", kind.kind))
    }

    /// A channel with the number of changes of objects in a scope, which grows with each change.
    pub(super) fn changes_in(&mut self, scope: Scope) -> channel::Receiver<u64> {
        self.awaited.retain(|(_, sender)| !sender.is_closed());
        let (sender, receiver) = channel::channel(0);
        self.awaited.push((scope, sender));
        receiver
    }

    /// Notifies waits that the object `key` has changed.
    fn notify(&self, key: &str) {
        for (_, sender) in self.awaited.iter().filter(|(scope, _)| scope.holds(key)) {
            sender.send_modify(|changes| *changes += 1);
        }
    }

    /// The newest revision of an object of the kind that was seen.
    fn newest(&self, kind: Kind) -> u64 {
        let there = self.latest.iter().filter(|((k, _), _)| *k == kind.kind).map(|(_, (revision, _))| *revision);
        let gone = self.gone.iter().filter(|((k, _), _)| *k == kind.kind).map(|(_, revision)| *revision);
        there.chain(gone).max().unwrap_or(0)
    }

    fn touch(&mut self, slot: Slot) -> Instant {
        let now = Instant::now();
        let touched = self.touched.entry(slot).or_insert((0, now));
        *touched = (touched.0 + 1, now);
        now
    }

    /// Records a change of an object of a judged kind.
    fn judged(&mut self, kind: Kind, object: DynamicObject, deleted: bool) {
        let (key, revision) = (key(&object), revision(&object));
        let Ok(value) = serde_json::to_value(&object) else { return };
        let slot = (kind.kind, key);
        if !deleted && self.latest.get(&slot).is_some_and(|(known, _)| *known == revision) {
            return;
        }
        self.notify(&slot.1);
        let quiet = kind == TRAINING_JOB && !deleted && !self.is_news(&slot, kind, &value);
        let at = if quiet { Instant::now() } else { self.touch(slot.clone()) };
        if deleted {
            self.latest.remove(&slot);
            self.gone.insert(slot, revision);
        } else {
            self.latest.insert(slot, (revision, object));
        }
        let at = self.since_beginning(at);
        self.fresh.push(Change { revision, kind: kind.judged(), object: value, deleted, at, blind: false });
        self.total += 1;
    }

    /// Records a change of an object that is not judged, which only counts as a change.
    fn written(&mut self, kind: Kind, object: &DynamicObject, deleted: bool) {
        let Ok(value) = serde_json::to_value(object) else { return };
        let slot = (kind.kind, key(object));
        self.notify(&slot.1);
        let of_berth = |entry: &Value| text(entry, "/manager") == BERTH;
        if kind == EVENT && (deleted || !items(&value, "/metadata/managedFields").iter().any(of_berth)) {
            // Events of other programs are ignored, and so are deleted events, because the API server deletes events after a time.
            return;
        }
        if deleted {
            self.contents.remove(&slot);
            self.touch(slot);
        } else if self.is_news(&slot, kind, &value) {
            self.touch(slot);
        }
    }

    /// Whether an object has new content, apart from fields that follow the progress of its job and not a decision of Berth.
    fn is_news(&mut self, slot: &Slot, kind: Kind, object: &Value) -> bool {
        let mut object = object.clone();
        let drop_field = |object: &mut Value, place: &str, field: &str| {
            object.pointer_mut(place).and_then(Value::as_object_mut).map(|map| map.remove(field));
        };
        drop_field(&mut object, "/metadata", "resourceVersion");
        drop_field(&mut object, "/metadata", "managedFields");
        if kind == TRAINING_JOB {
            drop_field(&mut object, "/status", "checkpoint");
            drop_field(&mut object, "/status", "events");
            if let Some(conditions) = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
                conditions.retain(|condition| text(condition, "/type") != "CheckpointStoreUnavailable");
            }
        }
        let mut hasher = DefaultHasher::new();
        object.to_string().hash(&mut hasher);
        let contents = hasher.finish();
        self.contents.insert(slot.clone(), contents) != Some(contents)
    }
}

pub(super) fn key(object: &impl ResourceExt) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

pub(super) fn revision(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|v| v.parse().ok()).unwrap_or(0)
}

fn record(recorded: &Mutex<Recorded>, (kind, role): (Kind, Role), object: DynamicObject, deleted: bool) {
    let mut recorded = lock(recorded);
    match role {
        Role::Judged => recorded.judged(kind, object, deleted),
        Role::Written => recorded.written(kind, &object, deleted),
    }
}

/// Follows the watch of a kind and never returns.
pub(super) async fn follow(client: Client, kind: Kind, role: Role, recorded: Arc<Mutex<Recorded>>) {
    let config = watcher::Config::default();
    let mut events = watch(kind.all(&client), config).default_backoff().boxed();
    let mut listed: Vec<String> = Vec::new();
    let (mut last, mut newest) = (0, 0);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => {
                listed.clear();
                // Up to the newest revision that was seen before this list, the watch has shown all states of the kind one by one.
                let mut recorded = lock(&recorded);
                last = recorded.newest(kind);
                newest = last;
                if role == Role::Judged {
                    recorded.listing.insert(kind.kind, last);
                }
            }
            Ok(Event::InitApply(object)) => {
                listed.push(key(&object));
                newest = newest.max(revision(&object));
                record(&recorded, (kind, role), object, false);
            }
            Ok(Event::InitDone) => {
                // An object that was deleted while the watch was broken has no event, so its last known state is recorded as deleted.
                let gone: Vec<DynamicObject> = lock(&recorded)
                    .latest
                    .iter()
                    .filter(|((k, key), _)| *k == kind.kind && !listed.contains(key))
                    .map(|(_, (_, object))| object.clone())
                    .collect();
                for object in gone {
                    record(&recorded, (kind, role), object, true);
                }
                let mut recorded = lock(&recorded);
                recorded.listed.insert(kind.kind);
                recorded.listing.remove(kind.kind);
                if role == Role::Judged && newest > last {
                    recorded.blind.push((last, newest));
                }
            }
            Ok(Event::Apply(object)) => record(&recorded, (kind, role), object, false),
            Ok(Event::Delete(object)) => record(&recorded, (kind, role), object, true),
            Err(e) => eprintln!("observer: watch of {}: {e}", kinds::Kind::resource(kind).plural),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{FLAVOR, JOB};
    use serde_json::json;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap_or_else(|e| panic!("{e}"))
    }

    fn changes(recorded: &Recorded) -> u64 {
        recorded.touched.values().map(|(count, _)| *count).sum()
    }

    #[test]
    fn watch_is_behind_until_it_has_shown_listed_objects() {
        let mut recorded = Recorded::default();
        let listed = BTreeMap::from([("ns/a".to_owned(), 5)]);
        assert!(recorded.behind(JOB, &listed, 7).is_some(), "a is not known");
        recorded.gone.insert((JOB.kind, "ns/a".to_owned()), 8);
        assert!(recorded.behind(JOB, &listed, 7).is_none(), "a has ended since");
        recorded.latest.insert((JOB.kind, "ns/b".to_owned()), (6, object(json!({"metadata": {"name": "b"}}))));
        assert!(recorded.behind(JOB, &listed, 7).is_some(), "the end of b is missing");
        assert!(recorded.behind(JOB, &listed, 5).is_none(), "b is younger than the list");
    }

    #[test]
    fn writes_of_unjudged_kinds_count_as_changes() {
        let mut recorded = Recorded::default();
        let flavor = |version: &str, finalizers: Value| {
            object(json!({"metadata": {"name": "f", "resourceVersion": version, "finalizers": finalizers}}))
        };
        recorded.written(FLAVOR, &flavor("1", json!([])), false);
        recorded.written(FLAVOR, &flavor("2", json!(["in-use"])), false);
        recorded.written(FLAVOR, &flavor("2", json!(["in-use"])), false);
        assert_eq!(changes(&recorded), 2, "a list shows the same again");
        recorded.written(FLAVOR, &flavor("3", json!([])), true);
        assert_eq!(changes(&recorded), 3);
        assert!(recorded.fresh.is_empty(), "they are not judged");
        let event = |manager: &str| {
            object(json!({"metadata": {"namespace": "ns", "name": manager, "managedFields": [{"manager": manager}]}}))
        };
        recorded.written(EVENT, &event("kube-scheduler"), false);
        assert_eq!(changes(&recorded), 3, "others publish as they like");
        recorded.written(EVENT, &event("berth"), false);
        assert_eq!(changes(&recorded), 4);
    }

    #[test]
    fn checkpoint_of_a_training_job_does_not_count_as_change() {
        let mut recorded = Recorded::default();
        let job = |version: &str, phase: &str, step: i64| {
            object(json!({"metadata": {"namespace": "ns", "name": "t", "resourceVersion": version},
                "status": {"phase": phase, "checkpoint": {"latest": {"step": step}}}}))
        };
        recorded.judged(TRAINING_JOB, job("1", "Running", 1), false);
        recorded.judged(TRAINING_JOB, job("2", "Running", 2), false);
        assert_eq!((changes(&recorded), recorded.fresh.len()), (1, 2));
        recorded.judged(TRAINING_JOB, job("3", "Queued", 2), false);
        assert_eq!(changes(&recorded), 2);
    }

    #[test]
    fn revision_that_a_list_passes_over_is_blind() {
        let mut recorded = Recorded { blind: vec![(10, 20)], ..Recorded::default() };
        for (revision, blind) in [(10, false), (11, true), (20, true), (21, false)] {
            assert_eq!(recorded.is_blind_at(revision), blind, "{revision}");
        }
        recorded.listing.insert(JOB.kind, 30);
        assert!(recorded.is_blind_at(31) && !recorded.is_blind_at(30), "a list is under way");
    }
}
