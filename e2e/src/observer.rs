//! Watches everything that Berth may touch and judges the whole history by [`crate::invariants`].
//!
//! The observer has its own watches. Their events are merged by resourceVersion, which one store counts for all kinds, so
//! that "the job was started before its workload was admitted" has an answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::StreamExt;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Client, ResourceExt};
use tokio::task::JoinHandle;

use crate::invariants::{Change, Judge, Violation};
use crate::jobset::JOBSET;
use crate::kinds::{self, CLUSTER_QUEUE, COHORT, JOB, Kind, LOCAL_QUEUE, POD, WORKLOAD};
use crate::wait::{self, Seen};

/// Watched everywhere.
const WATCHED: [Kind; 6] = [WORKLOAD, JOB, POD, CLUSTER_QUEUE, LOCAL_QUEUE, COHORT];

/// Statuses may lag this long behind the workloads.
const BOOKS_LIMIT: Duration = Duration::from_secs(15);

/// Writes fall to zero within this time.
const REST_LIMIT: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Recorded {
    /// Changes that were not judged yet.
    fresh: Vec<Change>,
    /// Last known revision and state of every object, by kind and key.
    latest: BTreeMap<(&'static str, String), (u64, DynamicObject)>,
    /// Revisions at which objects ended.
    gone: BTreeMap<(&'static str, String), u64>,
    /// Changes per kind and key and when the last one was seen.
    touched: BTreeMap<(&'static str, String), (u64, Instant)>,
    total: u64,
}

/// The objects that a judgement is about, so that tests which share a control plane can be judged one by one.
#[derive(Clone, Debug, Default)]
pub struct Scope(String);

impl Scope {
    /// Everything.
    pub fn all() -> Scope {
        Scope::default()
    }

    /// Objects of one namespace, and cluster-scoped ones that are called as it or `<namespace>-...`.
    pub fn of(namespace: &str) -> Scope {
        Scope(namespace.to_owned())
    }

    /// Whether an object of this key (`namespace/name`, or a name) belongs here.
    pub fn holds(&self, key: &str) -> bool {
        let Some(rest) = key.strip_prefix(&self.0) else { return false };
        self.0.is_empty() || rest.is_empty() || rest.starts_with('/') || (rest.starts_with('-') && !rest.contains('/'))
    }

    /// Whether a sentence names an object of this scope's namespace.
    fn named_in(&self, sentence: &str) -> bool {
        self.0.is_empty() || sentence.contains(&format!(" {}/", self.0))
    }
}

/// The observer of one control plane.
pub struct Observer {
    client: Client,
    watched: Vec<Kind>,
    recorded: Arc<Mutex<Recorded>>,
    judge: Mutex<Judge>,
    /// Broken promises that nobody has asked about yet.
    open: Mutex<Vec<Violation>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Observer {
    /// Starts watching. The CRDs must be there already: JobSets are watched only where they are served by now.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn start(client: Client) -> Result<Observer> {
        let mut watched = WATCHED.to_vec();
        if JOBSET.is_served(&client).await? {
            watched.push(JOBSET);
        }
        let recorded = Arc::new(Mutex::new(Recorded::default()));
        let tasks = watched.iter().map(|kind| tokio::spawn(follow(client.clone(), *kind, recorded.clone()))).collect();
        Ok(Observer { client, watched, recorded, judge: Mutex::default(), open: Mutex::default(), tasks })
    }

    /// Whether objects of this kind are judged here.
    pub fn watches(&self, kind: Kind) -> bool {
        self.watched.contains(&kind)
    }

    /// Number of changes seen so far.
    pub fn changes(&self) -> u64 {
        lock(&self.recorded).total
    }

    /// L7 asks for the present template of this job from now on, because its user edits it.
    pub fn user_edited(&self, uid: &str) {
        lock(&self.judge).user_edited(uid);
    }

    /// Waits until every watch has seen what a fresh list shows, then judges what is new.
    async fn catch_up(&self) -> Result<()> {
        // A change below every list's own revision cannot come any more: all before it can be put in order.
        let mut settled = u64::MAX;
        for kind in self.watched.iter().copied() {
            let listed = kind.all(&self.client).list(&Default::default()).await?;
            let revisions: BTreeMap<String, u64> = listed.items.iter().map(|o| (key(o), revision(o))).collect();
            let at = listed.metadata.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0);
            wait::until(wait::STEP, "the observer's watches are up to date", || async {
                Ok(match lock(&self.recorded).behind(kind, &revisions, at) {
                    Some(what) => Seen::NotYet(what),
                    None => Seen::Yes(()),
                })
            })
            .await?;
            settled = settled.min(at);
        }
        // Both locks at once: two scenarios that ask at the same time must not judge later changes before earlier ones.
        let mut judge = lock(&self.judge);
        let mut fresh = {
            let mut recorded = lock(&self.recorded);
            let (fresh, later) =
                std::mem::take(&mut recorded.fresh).into_iter().partition(|change| change.revision <= settled);
            recorded.fresh = later;
            let fresh: Vec<Change> = fresh;
            fresh
        };
        fresh.sort_by_key(|c| c.revision);
        for change in &fresh {
            judge.take(change);
        }
        Ok(())
    }

    /// Judges everything seen so far (all promises but Q3 and C6); a broken promise is told once.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn violations(&self, scope: &Scope) -> Result<Vec<Violation>> {
        self.catch_up().await?;
        let found = lock(&self.judge).verdict(Instant::now());
        let mut open = lock(&self.open);
        open.extend(found);
        let (mine, others) = std::mem::take(&mut *open).into_iter().partition(|v| scope.named_in(&v.what));
        *open = others;
        Ok(mine)
    }

    /// The end of a test: waits until writes have stopped for `rest` (C6) and the books balance (Q3), then judges the history.
    ///
    /// # Errors
    /// With every broken promise.
    pub async fn conclude(&self, rest: Duration) -> Result<()> {
        self.conclude_in(&Scope::all(), rest).await
    }

    /// As [`Observer::conclude`], about one scope.
    ///
    /// # Errors
    /// With every broken promise there.
    pub async fn conclude_in(&self, scope: &Scope, rest: Duration) -> Result<()> {
        let mut broken: Vec<String> = Vec::new();
        if let Err(e) = self.rest(scope, rest).await {
            broken.push(format!("C6: {e:#}"));
        }
        if let Err(e) = self.balanced(scope).await {
            broken.push(format!("Q3: {e:#}"));
        }
        broken.extend(self.violations(scope).await?.iter().map(ToString::to_string));
        if !broken.is_empty() {
            bail!("{} broken promise(s):\n  {}", broken.len(), broken.join("\n  "));
        }
        Ok(())
    }

    /// C6: no change of any watched object for `rest`, within half a minute.
    async fn rest(&self, scope: &Scope, rest: Duration) -> Result<()> {
        let begun = Instant::now();
        let before = lock(&self.recorded).touched.clone();
        loop {
            let last = {
                let recorded = lock(&self.recorded);
                let times = recorded.touched.iter().filter(|((_, key), _)| scope.holds(key)).map(|(_, (_, at))| *at);
                times.max().unwrap_or(begun).max(begun - rest)
            };
            if last.elapsed() >= rest {
                return Ok(());
            }
            if begun.elapsed() > REST_LIMIT + rest {
                let recorded = lock(&self.recorded);
                let grown = recorded.touched.iter().filter(|((_, key), _)| scope.holds(key)).map(|(slot, (n, _))| {
                    let (kind, key) = slot;
                    (n - before.get(slot).map_or(0, |(n, _)| *n), format!("{kind} {key}"))
                });
                let mut busy: Vec<_> = grown.collect();
                busy.sort_by(|a, b| b.cmp(a));
                busy.truncate(5);
                bail!("writes did not stop within {} s; most changed: {busy:?}", begun.elapsed().as_secs());
            }
            tokio::time::sleep(rest.saturating_sub(last.elapsed()).max(Duration::from_millis(20))).await;
        }
    }

    /// Q3: the queues' statuses agree with the workloads.
    async fn balanced(&self, scope: &Scope) -> Result<()> {
        wait::until(BOOKS_LIMIT, "the books balance", || async {
            self.catch_up().await?;
            let mut found = lock(&self.judge).unbalanced();
            found.retain(|(key, _)| scope.holds(key));
            Ok(Seen::when(found.is_empty(), || found.iter().map(|(_, t)| t.as_str()).collect::<Vec<_>>().join("; ")))
        })
        .await
    }
}

impl Recorded {
    /// What the watch of this kind has not shown yet of a list of revision `at`; `None` when nothing.
    fn behind(&self, kind: Kind, listed: &BTreeMap<String, u64>, at: u64) -> Option<String> {
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
}

impl Drop for Observer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// A poisoned lock only means that another test thread failed; the data is still what was seen.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn key(object: &DynamicObject) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

fn revision(object: &DynamicObject) -> u64 {
    object.resource_version().and_then(|v| v.parse().ok()).unwrap_or(0)
}

fn record(recorded: &Mutex<Recorded>, kind: Kind, object: DynamicObject, deleted: bool) {
    let (key, revision) = (key(&object), revision(&object));
    let Ok(value) = serde_json::to_value(&object) else { return };
    let mut recorded = lock(recorded);
    let slot = (kind.kind, key.clone());
    if !deleted && recorded.latest.get(&slot).is_some_and(|(known, _)| *known == revision) {
        return;
    }
    let now = Instant::now();
    let touched = recorded.touched.entry(slot.clone()).or_insert((0, now));
    *touched = (touched.0 + 1, now);
    if deleted {
        recorded.latest.remove(&slot);
        recorded.gone.insert(slot, revision);
    } else {
        recorded.latest.insert(slot, (revision, object));
    }
    recorded.fresh.push(Change { revision, kind, object: value, deleted, at: now });
    recorded.total += 1;
}

async fn follow(client: Client, kind: Kind, recorded: Arc<Mutex<Recorded>>) {
    let config = watcher::Config::default();
    let mut events = watch(kind.all(&client), config).default_backoff().boxed();
    let mut listed: Vec<String> = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                listed.push(key(&object));
                record(&recorded, kind, object, false);
            }
            Ok(Event::InitDone) => {
                // What vanished while the watch was broken has no event of its own; its last state stands for it.
                let gone: Vec<DynamicObject> = lock(&recorded)
                    .latest
                    .iter()
                    .filter(|((k, key), _)| *k == kind.kind && !listed.contains(key))
                    .map(|(_, (_, object))| object.clone())
                    .collect();
                for object in gone {
                    record(&recorded, kind, object, true);
                }
            }
            Ok(Event::Apply(object)) => record(&recorded, kind, object, false),
            Ok(Event::Delete(object)) => record(&recorded, kind, object, true),
            Err(e) => eprintln!("observer: watch of {}: {e}", kinds::Kind::resource(kind).plural),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_holds_its_own_names_only() {
        let scope = Scope::of("hold");
        for (key, mine) in [
            ("hold", true),
            ("hold-cq", true),
            ("hold/queue", true),
            ("holder", false),
            ("hold-more/queue", false),
            ("local-hold/queue", false),
        ] {
            assert_eq!(scope.holds(key), mine, "{key}");
        }
        assert!(Scope::all().holds("any/thing"));
    }

    #[test]
    fn a_watch_is_behind_until_it_has_shown_what_was_listed() {
        let mut recorded = Recorded::default();
        let listed = BTreeMap::from([("ns/a".to_owned(), 5)]);
        assert!(recorded.behind(JOB, &listed, 7).is_some(), "a is not known");
        recorded.gone.insert((JOB.kind, "ns/a".to_owned()), 8);
        assert!(recorded.behind(JOB, &listed, 7).is_none(), "a has ended since");
        let object: DynamicObject =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "b"}})).unwrap_or_else(|e| panic!("{e}"));
        recorded.latest.insert((JOB.kind, "ns/b".to_owned()), (6, object));
        assert!(recorded.behind(JOB, &listed, 7).is_some(), "the end of b is missing");
        assert!(recorded.behind(JOB, &listed, 5).is_none(), "b is younger than the list");
    }
}
