//! Heartbeat and readiness of the control loop.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// State of the control loop that other threads read without a query to the loop.
#[derive(Debug)]
pub struct Liveness {
    origin: Instant,
    beat: AtomicU64,
    synced: AtomicBool,
    held: AtomicBool,
    stopping: AtomicBool,
    /// Kinds whose objects cannot be listed, with the reason.
    unlisted: Mutex<BTreeMap<String, String>>,
}

impl Default for Liveness {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            beat: AtomicU64::new(0),
            synced: AtomicBool::new(false),
            held: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            unlisted: Mutex::default(),
        }
    }
}

impl Liveness {
    /// Notes a heartbeat of the loop.
    pub(crate) fn beat(&self) {
        let millis = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.beat.store(millis, Ordering::Relaxed);
    }

    /// Time since the last heartbeat of the loop.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.origin.elapsed().saturating_sub(Duration::from_millis(self.beat.load(Ordering::Relaxed)))
    }

    /// Whether the process is ready: every watched kind was listed, and no shutdown has begun. While the process may not lead yet, the process is ready without
    /// these lists, because the lists may need a conversion by the process's own webhook, which the API server reaches only after the process is ready.
    #[must_use]
    pub fn ready(&self) -> bool {
        let listed = self.synced.load(Ordering::Relaxed) || self.held.load(Ordering::Relaxed);
        listed && !self.stopping.load(Ordering::Relaxed)
    }

    /// Sets whether the process may not lead yet.
    pub(crate) fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Relaxed);
    }

    /// Time since the process created the heartbeat of its control loop.
    pub(crate) fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Notes that every watched kind was listed. Returns true at the first call.
    pub(crate) fn note_listed(&self) -> bool {
        !self.synced.swap(true, Ordering::Relaxed)
    }

    /// Notes that the first list of a kind failed, so that the kind's objects are unknown.
    pub(crate) fn note_unlisted(&self, resource: &str, why: String) {
        self.unlisted.lock().unwrap_or_else(PoisonError::into_inner).insert(resource.to_owned(), why);
    }

    /// Notes that a kind whose first list had failed was listed.
    pub(crate) fn note_works(&self, resource: &str) {
        self.unlisted.lock().unwrap_or_else(PoisonError::into_inner).remove(resource);
    }

    /// Message about the kinds that cannot be listed, with reasons; `None` if all kinds can be listed.
    #[must_use]
    pub fn unlisted(&self) -> Option<String> {
        let all = self.unlisted.lock().unwrap_or_else(PoisonError::into_inner);
        let listed: Vec<String> =
            all.iter().map(|(resource, why)| format!("{resource} cannot be listed: {why}")).collect();
        (!listed.is_empty()).then(|| listed.join("; "))
    }

    /// The state of a control loop whose last heartbeat was `age` ago.
    #[cfg(test)]
    pub(crate) fn of_age(age: Duration) -> Self {
        Self { origin: Instant::now() - age, ..Self::default() }
    }

    /// Notes that a shutdown has begun.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}
