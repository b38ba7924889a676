//! Cache of the API server's verdicts about users' access. Each question about a user's access is sent to the API server once for all callers that wait for the
//! verdict. The number of concurrent questions, the number of questions per second and the number of cached verdicts are limited. Questions about recently
//! allowed users have slots of their own, so that a flood of unknown users does not block a known user.

use super::Verdict;
use crate::rate::Bucket;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Digest of a question about a user's access, the key of the cache of verdicts.
pub(super) type Key = [u8; 32];

/// Factor on the lifetime of a positive verdict: for this longer time the allowed user counts as known.
const KNOWN: u32 = 10;

/// Limits of the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Largest number of cached verdicts.
    pub(super) entries: usize,
    /// Largest number of concurrent questions to the API server.
    pub(super) at_once: usize,
    /// Largest number of questions to the API server per second, and of questions in a burst; `None` means no limit.
    pub(super) rate: Option<f64>,
    /// Time limit from a question about a user's access to the API server's verdict, including the wait for a slot.
    pub(super) deadline: Duration,
    /// Lifetime of a cached positive verdict.
    pub(super) good: Duration,
    /// Lifetime of a cached negative verdict.
    pub(super) bad: Duration,
}

enum Entry {
    Asked(Shared<BoxFuture<'static, Verdict>>),
    Known { verdict: Verdict, until: Instant },
}

/// The cached verdicts about users' access, and the questions to the API server that are running.
pub(super) struct Memory {
    limits: Limits,
    entries: Mutex<BTreeMap<Key, Entry>>,
    rate: Mutex<Bucket>,
    strangers: Semaphore,
    known: Semaphore,
}

impl Memory {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            entries: Mutex::default(),
            rate: Mutex::new(Bucket::new(limits.rate, limits.rate.unwrap_or(1.0), Instant::now())),
            strangers: Semaphore::new(limits.at_once),
            known: Semaphore::new(limits.at_once),
        }
    }

    /// The verdict on a question about a user's access: from the cache, from an equal question that is running, or from `ask`.
    pub(super) async fn verdict<F>(self: &Arc<Self>, key: Key, ask: impl FnOnce() -> F) -> Verdict
    where
        F: Future<Output = Verdict> + Send + 'static,
    {
        match self.known_or_asked(key, ask) {
            Ok(verdict) => verdict,
            Err(asked) => asked.await,
        }
    }

    fn known_or_asked<F>(
        self: &Arc<Self>,
        key: Key,
        ask: impl FnOnce() -> F,
    ) -> Result<Verdict, Shared<BoxFuture<'static, Verdict>>>
    where
        F: Future<Output = Verdict> + Send + 'static,
    {
        let now = Instant::now();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let was_allowed = match entries.get(&key) {
            Some(Entry::Asked(asked)) if asked.peek().is_none() => return Err(asked.clone()),
            Some(Entry::Known { verdict, until }) if *until > now => return Ok(verdict.clone()),
            Some(Entry::Known { verdict, .. }) => *verdict == Verdict::Allowed,
            Some(Entry::Asked(_)) | None => false,
        };
        let may_ask = || self.rate.lock().unwrap_or_else(PoisonError::into_inner).take(now).is_ok();
        if !was_allowed && (!may_ask() || !self.make_room(&mut entries, now)) {
            return Ok(Verdict::Busy);
        }
        let (memory, question) = (Arc::clone(self), ask());
        // Each question to the API server runs in a task of its own, so that a caller who disconnects does not cancel the question for other callers.
        let task = tokio::spawn(async move {
            let places = if was_allowed { &memory.known } else { &memory.strangers };
            let answer = async {
                let _place = places.acquire().await;
                question.await
            };
            let late = |_| Verdict::Unanswered(format!("no answer in {:?}", memory.limits.deadline).into());
            let verdict = tokio::time::timeout(memory.limits.deadline, answer).await.unwrap_or_else(late);
            memory.learn(key, &verdict, was_allowed);
            verdict
        });
        let asked = async move { task.await.unwrap_or_else(|error| Verdict::Unanswered(error.to_string().into())) };
        let asked = asked.boxed().shared();
        entries.insert(key, Entry::Asked(asked.clone()));
        Err(asked)
    }

    fn learn(&self, key: Key, verdict: &Verdict, was_allowed: bool) {
        let now = Instant::now();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let until = match verdict {
            Verdict::Allowed => now + self.limits.good,
            Verdict::Forbidden(_) | Verdict::Unknown => now + self.limits.bad,
            // A question that got no verdict from the API server is sent again later, and its known user remains known.
            Verdict::Busy | Verdict::Unanswered(_) if was_allowed => {
                entries.insert(key, Entry::Known { verdict: Verdict::Allowed, until: now });
                return;
            }
            Verdict::Busy | Verdict::Unanswered(_) => {
                entries.remove(&key);
                return;
            }
        };
        entries.insert(key, Entry::Known { verdict: verdict.clone(), until });
    }

    /// Whether the cache has room for one more verdict. Expired verdicts are removed first, then the negative verdict that expires first, then the positive
    /// verdict that expires first.
    fn make_room(&self, entries: &mut BTreeMap<Key, Entry>, now: Instant) -> bool {
        if entries.len() < self.limits.entries {
            return true;
        }
        let known = self.limits.good.saturating_mul(KNOWN);
        entries.retain(|_, entry| match entry {
            Entry::Known { verdict: Verdict::Allowed, until } => *until + known > now,
            Entry::Known { until, .. } => *until > now,
            Entry::Asked(asked) => asked.peek().is_none(),
        });
        if entries.len() < self.limits.entries {
            return true;
        }
        let ends = entries.iter().filter_map(|(key, entry)| match entry {
            Entry::Known { verdict, until } => Some((*verdict == Verdict::Allowed, *until, *key)),
            Entry::Asked(_) => None,
        });
        let first = ends.min();
        first.is_some_and(|(_, _, key)| entries.remove(&key).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const LIMITS: Limits = Limits {
        entries: 4,
        at_once: 2,
        rate: None,
        deadline: Duration::from_millis(200),
        good: Duration::from_millis(300),
        bad: Duration::from_millis(100),
    };

    /// A cache of verdicts, with an API server that counts the questions and the largest number of concurrent questions.
    struct Beside {
        memory: Arc<Memory>,
        asked: Arc<AtomicUsize>,
        at_once: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
    }

    impl Beside {
        fn new(limits: Limits) -> Self {
            let zero = Arc::<AtomicUsize>::default;
            Self { memory: Arc::new(Memory::new(limits)), asked: zero(), at_once: zero(), most: zero() }
        }

        /// Asks a question whose verdict the API server gives after `takes` milliseconds.
        fn ask(&self, key: u8, verdict: Verdict, takes: u64) -> tokio::task::JoinHandle<Verdict> {
            let memory = Arc::clone(&self.memory);
            let (asked, at_once, most) = (Arc::clone(&self.asked), Arc::clone(&self.at_once), Arc::clone(&self.most));
            tokio::spawn(async move {
                let answer = async move {
                    asked.fetch_add(1, Ordering::Relaxed);
                    most.fetch_max(at_once.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(takes)).await;
                    at_once.fetch_sub(1, Ordering::Relaxed);
                    verdict
                };
                memory.verdict([key; 32], || answer).await
            })
        }

        async fn answer(&self, key: u8, verdict: Verdict, takes: u64) -> Verdict {
            self.ask(key, verdict, takes).await.expect("an end")
        }

        fn count(&self) -> usize {
            self.asked.load(Ordering::Relaxed)
        }
    }

    #[tokio::test]
    async fn access_verdict_is_asked_once_and_cached_until_expiry() {
        let beside = Beside::new(LIMITS);
        let gone = beside.ask(1, Verdict::Allowed, 20);
        tokio::task::yield_now().await;
        gone.abort();
        let all: Vec<_> = (0..50).map(|_| beside.ask(1, Verdict::Unknown, 20)).collect();
        for one in all {
            assert_eq!(one.await.expect("an end"), Verdict::Allowed);
        }
        assert_eq!(beside.answer(1, Verdict::Unknown, 0).await, Verdict::Allowed);
        assert_eq!(beside.count(), 1);
        tokio::time::sleep(LIMITS.good).await;
        assert_eq!(beside.answer(1, Verdict::Unknown, 0).await, Verdict::Unknown, "a token that was withdrawn");
        assert_eq!(beside.answer(1, Verdict::Allowed, 0).await, Verdict::Unknown);
        tokio::time::sleep(LIMITS.bad + Duration::from_millis(20)).await;
        assert_eq!(beside.answer(1, Verdict::Allowed, 0).await, Verdict::Allowed);
        assert_eq!(beside.count(), 3);
    }

    #[tokio::test]
    async fn concurrent_access_questions_are_bounded_and_excess_gets_busy() {
        let beside = Beside::new(LIMITS);
        let all: Vec<_> = (0..4).map(|key| beside.ask(key, Verdict::Unknown, 20)).collect();
        tokio::task::yield_now().await;
        assert_eq!(beside.answer(4, Verdict::Allowed, 0).await, Verdict::Busy, "four are waited for");
        for one in all {
            assert_eq!(one.await.expect("an end"), Verdict::Unknown);
        }
        assert_eq!((beside.count(), beside.most.load(Ordering::Relaxed)), (4, 2));
    }

    /// A client with made-up tokens causes only few questions per second, and takes neither slots nor cache room from known users.
    #[tokio::test]
    async fn flood_of_unknown_tokens_does_not_block_known_users() {
        let beside = Beside::new(Limits { rate: Some(3.0), ..LIMITS });
        assert_eq!(beside.answer(0, Verdict::Allowed, 0).await, Verdict::Allowed);
        let mut busy = 0;
        for key in 1..200 {
            busy += usize::from(beside.answer(key, Verdict::Unknown, 0).await == Verdict::Busy);
        }
        assert!(beside.count() <= 4 && busy >= 195, "asked {}, busy {busy}", beside.count());
        assert!(beside.memory.entries.lock().expect("no panic").len() <= LIMITS.entries);
        tokio::time::sleep(LIMITS.good).await;
        for key in 1..200 {
            beside.answer(key, Verdict::Unknown, 0).await;
        }
        assert_eq!(
            beside.answer(0, Verdict::Allowed, 0).await,
            Verdict::Allowed,
            "it is asked about beside the others"
        );
    }

    #[tokio::test]
    async fn unanswered_access_question_is_repeated_and_never_allows() {
        let beside = Beside::new(LIMITS);
        assert!(matches!(beside.answer(1, Verdict::Allowed, 500).await, Verdict::Unanswered(_)));
        assert_eq!(beside.answer(1, Verdict::Allowed, 0).await, Verdict::Allowed);
        tokio::time::sleep(LIMITS.good).await;
        let no = || Verdict::Unanswered("down".into());
        assert_eq!(beside.answer(1, no(), 0).await, no(), "nobody is let in for having been let in");
        assert_eq!(beside.answer(1, Verdict::Forbidden("no".into()), 0).await, Verdict::Forbidden("no".into()));
        assert_eq!(beside.count(), 4);
    }

    #[tokio::test]
    async fn full_access_memory_drops_refusals_and_keeps_allowed_users() {
        // No verdict expires during the test, even on a slow machine.
        let lives = Limits { good: Duration::from_secs(600), bad: Duration::from_secs(60), ..LIMITS };
        let beside = Beside::new(lives);
        for key in 0..3 {
            beside.answer(key, Verdict::Allowed, 0).await;
        }
        for key in 10..20 {
            assert_eq!(beside.answer(key, Verdict::Unknown, 0).await, Verdict::Unknown);
        }
        let count = beside.count();
        for key in 0..3 {
            assert_eq!(beside.answer(key, Verdict::Unknown, 0).await, Verdict::Allowed);
        }
        assert_eq!(beside.count(), count, "those are kept");
    }
}
