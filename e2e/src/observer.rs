//! Watches all objects that Berth may touch and judges their history by [`berth_invariants`].
//!
//! The observer does not use Berth's watches, but watches of its own. The observer merges the events of all watches by resourceVersion, which etcd
//! counts for all kinds together, so that it can decide whether "the job was started before its workload was admitted".
//!
//! A test calls [`Observer::start`] beside the manager once the CRDs are served, and [`Observer::conclude`] (or [`Observer::conclude_in`] for one
//! namespace) while the manager still runs. If the manager does not run, the test calls [`Observer::violations`], because statuses may be out of date
//! then. A test that stops every manager calls [`Observer::nobody_leads`].

mod recorded;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use berth_invariants::{Change, Judge, Violation};
use kube::Client;
use tokio::task::JoinHandle;

use crate::autoscaler::{POD_TEMPLATE, PROVISIONING_REQUEST};
use crate::jobset::JOBSET;
use crate::kinds::{self, CLUSTER_QUEUE, COHORT, JOB, Kind, LOCAL_QUEUE, POD, WORKLOAD};
use crate::test_clock;
use crate::wait::{self, Changes, Seen};
use crate::webhooks::{MUTATING, VALIDATING};
use recorded::{Recorded, Role, follow, key, revision};

const ADMISSION_CHECK: Kind = Kind {
    api_version: "kueue.x-k8s.io/v1beta2",
    kind: "AdmissionCheck",
    plural: "admissionchecks",
    namespaced: false,
};

/// Kinds that the observer judges on every control plane.
const JUDGED: [Kind; 6] = [WORKLOAD, JOB, POD, CLUSTER_QUEUE, LOCAL_QUEUE, COHORT];

/// Kinds that the observer judges if the API server serves them.
const JUDGED_WHERE_SERVED: [Kind; 2] = [JOBSET, kinds::TRAINING_JOB];

/// Other kinds that Berth writes: the observer judges only whether their writes come to rest (invariant C6). Leases are left out, because a lease is
/// a heartbeat and never rests.
const WRITTEN: [Kind; 10] = [
    kinds::FLAVOR,
    ADMISSION_CHECK,
    kinds::QUEUE_POLICY,
    kinds::CHECKPOINT_STORE,
    kinds::STATEFUL_SET,
    kinds::EVENT,
    MUTATING,
    VALIDATING,
    PROVISIONING_REQUEST,
    POD_TEMPLATE,
];

/// Time for which queue statuses may lag behind the Workloads, on a busy machine where other tests kill Berth meanwhile.
const USAGE_LIMIT: Duration = Duration::from_secs(50);

/// Time limit for writes to stop at the end of a test.
const REST_LIMIT: Duration = Duration::from_secs(90);

/// The objects that a judgement is about, so that tests which share a control plane can be judged one by one.
#[derive(Clone, Debug, Default)]
pub struct Scope(String);

impl Scope {
    /// Everything.
    pub fn all() -> Scope {
        Scope::default()
    }

    /// The scope of a namespace: its objects, and cluster-scoped objects whose name is the namespace's name or begins with `<namespace>-`.
    pub fn of(namespace: &str) -> Scope {
        Scope(namespace.to_owned())
    }

    /// Whether the object with the key `key` belongs to this scope; a key is `namespace/name`, or the name of a cluster-scoped object.
    pub fn holds(&self, key: &str) -> bool {
        let Some(rest) = key.strip_prefix(&self.0) else { return false };
        self.0.is_empty() || rest.is_empty() || rest.starts_with('/') || (rest.starts_with('-') && !rest.contains('/'))
    }

    /// Whether the description `sentence` of a broken invariant names an object of this scope's namespace.
    fn named_in(&self, sentence: &str) -> bool {
        self.0.is_empty() || sentence.contains(&format!(" {}/", self.0))
    }
}

/// The observer, which watches one control plane.
pub struct Observer {
    client: Client,
    watched: Vec<Kind>,
    recorded: Arc<Mutex<Recorded>>,
    judge: Mutex<Judge>,
    /// Broken invariants that no caller has asked about yet.
    open: Mutex<Vec<Violation>>,
    /// Start of the last complete round in which the observer caught up with fresh lists. A caller that comes during a round waits, and then shares
    /// the next round.
    caught_up: tokio::sync::Mutex<Option<Instant>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Observer {
    /// Starts the watches, and returns when every watch has its first list; the observer does not judge the state of that list. The CRDs must exist
    /// already, because the observer watches only kinds that are served at its start.
    ///
    /// # Errors
    /// Fails when the API server does not answer.
    pub async fn start(client: Client) -> Result<Observer> {
        let mut watched = JUDGED.to_vec();
        for kind in JUDGED_WHERE_SERVED {
            if kind.is_served(&client).await? {
                watched.push(kind);
            }
        }
        let mut followed: Vec<(Kind, Role)> = watched.iter().map(|kind| (*kind, Role::Judged)).collect();
        for kind in WRITTEN {
            if kind.is_served(&client).await? {
                followed.push((kind, Role::Written));
            }
        }
        let recorded = Arc::new(Mutex::new(Recorded::default()));
        let follow = |(kind, role): &(Kind, Role)| tokio::spawn(follow(client.clone(), *kind, *role, recorded.clone()));
        let tasks = followed.iter().map(follow).collect();
        let observer = Observer {
            client,
            watched,
            recorded,
            judge: Mutex::default(),
            open: Mutex::default(),
            caught_up: tokio::sync::Mutex::default(),
            tasks,
        };
        wait::until(wait::STEP, "the observer has listed everything", || async {
            let listed = lock(&observer.recorded).listed();
            Ok(Seen::when(listed == followed.len(), || format!("{listed} of {} kinds", followed.len())))
        })
        .await?;
        Ok(observer)
    }

    /// Whether the observer judges objects of the kind `kind` on this control plane.
    pub fn watches(&self, kind: Kind) -> bool {
        self.watched.contains(&kind)
    }

    /// A source of notifications about changes of the objects in one scope, for waits.
    pub fn changes_in(&self, scope: Scope) -> Changes {
        Changes::new(lock(&self.recorded).changes_in(scope))
    }

    /// Number of changes of objects of the judged kinds that the observer has seen so far.
    pub fn changes(&self) -> u64 {
        lock(&self.recorded).total
    }

    /// The user of the job `uid` edits the job's template: from now on invariant L7 expects the edited template after an eviction of the job.
    pub fn user_edited(&self, uid: &str) {
        lock(&self.judge).user_edited(uid);
    }

    /// No manager leads from now on, because the test has stopped all managers: actions that Berth must take within a time (invariants Q6, L3, L5) are not due
    /// meanwhile. Invariants other than Q6, L3 and L5 are judged also while no manager leads.
    pub fn nobody_leads(&self) {
        let now = lock(&self.recorded).since_beginning(Instant::now());
        lock(&self.judge).nobody_leads(now);
    }

    /// A manager leads again.
    pub fn somebody_leads(&self) {
        let now = lock(&self.recorded).since_beginning(Instant::now());
        lock(&self.judge).somebody_leads(now);
    }

    /// Waits until every watch has seen the state of a fresh list, then hands new changes to the judge. The returned moment is after the call: the
    /// judge knows of every change before that moment.
    async fn catch_up(&self) -> Result<Instant> {
        let asked = Instant::now();
        let mut last = self.caught_up.lock().await;
        if let Some(begun) = last.filter(|begun| *begun >= asked) {
            return Ok(begun);
        }
        let begun = Instant::now();
        self.take_fresh().await?;
        *last = Some(begun);
        Ok(begun)
    }

    /// Lists each kind once, and hands the judge the changes that the watches saw up to these lists.
    async fn take_fresh(&self) -> Result<()> {
        // A change with a revision below the revision of every list cannot come any more, so the changes up to that revision can be put in order.
        let mut settled = u64::MAX;
        for kind in self.watched.iter().copied() {
            let listed = kind.all(&self.client).list_metadata(&Default::default()).await?;
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
        // The locks of the judge and of the observations are held at once, because two scenarios that ask at the same time must not judge later
        // changes before earlier ones.
        let mut judge = lock(&self.judge);
        let mut fresh = {
            let mut recorded = lock(&self.recorded);
            let (fresh, later) =
                std::mem::take(&mut recorded.fresh).into_iter().partition(|change| change.revision <= settled);
            recorded.fresh = later;
            let mut fresh: Vec<Change> = fresh;
            for change in &mut fresh {
                change.blind = recorded.is_blind_at(change.revision);
            }
            fresh
        };
        fresh.sort_by_key(|c| c.revision);
        for change in &fresh {
            judge.take(change);
        }
        Ok(())
    }

    /// Judges all changes seen so far (by all invariants but Q3 and C6); a broken invariant is reported once.
    ///
    /// # Errors
    /// Fails when the API server does not answer.
    pub async fn violations(&self, scope: &Scope) -> Result<Vec<Violation>> {
        let now = self.catch_up().await?;
        Ok(self.broken_at(scope, now))
    }

    /// The broken invariants in a scope that were not reported yet, as the judge knows them at the time `now`.
    fn broken_at(&self, scope: &Scope, now: Instant) -> Vec<Violation> {
        let now = lock(&self.recorded).since_beginning(now);
        let found = lock(&self.judge).verdict(now);
        let mut open = lock(&self.open);
        open.extend(found);
        let (mine, others) = std::mem::take(&mut *open).into_iter().partition(|v| scope.named_in(&v.what));
        *open = others;
        mine
    }

    /// The end of a test: waits until writes have stopped for `rest` (invariant C6) and the statuses agree with the Workloads (invariant Q3), then
    /// judges the history of all changes.
    ///
    /// # Errors
    /// Fails with every broken invariant.
    pub async fn conclude(&self, rest: Duration) -> Result<()> {
        self.conclude_in(&Scope::all(), rest).await
    }

    /// Judges the end of a test as [`Observer::conclude`] does, for the objects of one scope.
    ///
    /// # Errors
    /// Fails with every broken invariant of the scope.
    pub async fn conclude_in(&self, scope: &Scope, rest: Duration) -> Result<()> {
        let mut broken: Vec<String> = Vec::new();
        if let Err(e) = self.rest(scope, rest).await {
            broken.push(format!("C6: {e:#}"));
        }
        let violations = match self.balanced(scope).await {
            Ok(at) => self.broken_at(scope, at),
            Err(e) => {
                broken.push(format!("Q3: {e:#}"));
                self.violations(scope).await?
            }
        };
        broken.extend(violations.iter().map(ToString::to_string));
        if !broken.is_empty() {
            bail!("{} broken promise(s):\n  {}", broken.len(), broken.join("\n  "));
        }
        Ok(())
    }

    /// Invariant C6: no watched object changes for `rest`, which must begin within a minute and a half. The time limit for writes to stop is long,
    /// because the objects of five hundred jobs are released last.
    async fn rest(&self, scope: &Scope, rest: Duration) -> Result<()> {
        let (begun, limited) = (Instant::now(), test_clock::now());
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
            if test_clock::now() - limited > REST_LIMIT + rest {
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

    /// Invariant Q3: the queues' statuses agree with the Workloads. The returned moment is before the comparison of the statuses with the Workloads.
    async fn balanced(&self, scope: &Scope) -> Result<Instant> {
        wait::until(USAGE_LIMIT, "the books balance", || async {
            let at = self.catch_up().await?;
            let mut found = lock(&self.judge).unbalanced();
            found.retain(|(key, _)| scope.holds(key));
            Ok(match found.is_empty() {
                true => Seen::Yes(at),
                false => Seen::NotYet(found.iter().map(|(_, t)| t.as_str()).collect::<Vec<_>>().join("; ")),
            })
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

/// A poisoned lock only means that another test thread failed; the protected data are still the observed ones.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_holds_its_own_names_only() {
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
    fn judged_kinds_are_those_that_the_judge_reads() {
        let watched: Vec<_> = JUDGED.into_iter().chain(JUDGED_WHERE_SERVED).map(Kind::judged).collect();
        let read = berth_invariants::kinds::JUDGED;
        assert_eq!(watched.len(), read.len());
        assert!(read.iter().all(|kind| watched.contains(kind)), "{watched:?}");
    }
}
