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
use crate::kinds::{self, CLUSTER_QUEUE, COHORT, JOB, Kind, LOCAL_QUEUE, POD, WORKLOAD};
use crate::wait::{self, Seen};

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
    /// Changes per kind and key, for the complaint about unrest.
    counts: BTreeMap<String, u64>,
    last_change: Option<Instant>,
    total: u64,
}

/// The observer of one control plane.
pub struct Observer {
    client: Client,
    recorded: Arc<Mutex<Recorded>>,
    judge: Mutex<Judge>,
    tasks: Vec<JoinHandle<()>>,
}

impl Observer {
    /// Starts watching. The CRDs must be there already.
    pub fn start(client: Client) -> Observer {
        let recorded = Arc::new(Mutex::new(Recorded::default()));
        let tasks = WATCHED.iter().map(|kind| tokio::spawn(follow(client.clone(), *kind, recorded.clone()))).collect();
        Observer { client, recorded, judge: Mutex::new(Judge::default()), tasks }
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
        wait::until(wait::STEP, "the observer's watches are up to date", || async {
            for kind in WATCHED {
                let listed = kind.all(&self.client).list(&Default::default()).await?;
                let mut revisions: BTreeMap<String, u64> = BTreeMap::new();
                for object in &listed.items {
                    revisions.insert(key(object), revision(object));
                }
                let recorded = lock(&self.recorded);
                let known: BTreeMap<String, u64> = recorded
                    .latest
                    .iter()
                    .filter(|((k, _), _)| *k == kind.kind)
                    .map(|((_, key), (r, _))| (key.clone(), *r))
                    .collect();
                if known != revisions {
                    return Ok(Seen::NotYet(format!(
                        "{}: {} known, {} listed, or revisions differ",
                        kind.kind,
                        known.len(),
                        revisions.len()
                    )));
                }
            }
            Ok(Seen::Yes(()))
        })
        .await?;
        let mut fresh = std::mem::take(&mut lock(&self.recorded).fresh);
        fresh.sort_by_key(|c| c.revision);
        let mut judge = lock(&self.judge);
        for change in &fresh {
            judge.take(change);
        }
        Ok(())
    }

    /// Judges everything seen so far (all promises but Q3 and C6).
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn violations(&self) -> Result<Vec<Violation>> {
        self.catch_up().await?;
        Ok(lock(&self.judge).verdict(Instant::now()))
    }

    /// The end of a test: waits until writes have stopped for `rest` (C6) and the books balance (Q3), then judges the history.
    ///
    /// # Errors
    /// With every broken promise.
    pub async fn conclude(&self, rest: Duration) -> Result<()> {
        let mut broken: Vec<String> = Vec::new();
        if let Err(e) = self.rest(rest).await {
            broken.push(format!("C6: {e:#}"));
        }
        if let Err(e) = self.balanced().await {
            broken.push(format!("Q3: {e:#}"));
        }
        broken.extend(self.violations().await?.iter().map(ToString::to_string));
        if !broken.is_empty() {
            bail!("{} broken promise(s):\n  {}", broken.len(), broken.join("\n  "));
        }
        Ok(())
    }

    /// C6: no change of any watched object for `rest`, within half a minute.
    async fn rest(&self, rest: Duration) -> Result<()> {
        lock(&self.recorded).counts.clear();
        let begun = Instant::now();
        loop {
            let last = lock(&self.recorded).last_change.unwrap_or(begun).max(begun - rest);
            if last.elapsed() >= rest {
                return Ok(());
            }
            if begun.elapsed() > REST_LIMIT + rest {
                let recorded = lock(&self.recorded);
                let mut busy: Vec<_> = recorded.counts.iter().map(|(k, n)| (*n, k.clone())).collect();
                busy.sort_by(|a, b| b.cmp(a));
                busy.truncate(5);
                bail!("writes did not stop within {} s; most changed: {busy:?}", begun.elapsed().as_secs());
            }
            tokio::time::sleep(rest.saturating_sub(last.elapsed()).max(Duration::from_millis(20))).await;
        }
    }

    /// Q3: the queues' statuses agree with the workloads.
    async fn balanced(&self) -> Result<()> {
        wait::until(BOOKS_LIMIT, "the books balance", || async {
            self.catch_up().await?;
            let found = lock(&self.judge).unbalanced();
            Ok(Seen::when(found.is_empty(), || found.join("; ")))
        })
        .await
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
    if deleted {
        recorded.latest.remove(&slot);
    } else {
        recorded.latest.insert(slot, (revision, object));
    }
    let now = Instant::now();
    recorded.fresh.push(Change { revision, kind, object: value, deleted, at: now });
    *recorded.counts.entry(format!("{} {key}", kind.kind)).or_default() += 1;
    recorded.last_change = Some(now);
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
