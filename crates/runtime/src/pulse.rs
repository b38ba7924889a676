//! Heartbeat and readiness of the loop.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// State of the loop that other threads read without asking the loop.
#[derive(Debug)]
pub struct Pulse {
    origin: Instant,
    beat: AtomicU64,
    synced: AtomicBool,
    held: AtomicBool,
    stopping: AtomicBool,
    /// Kinds whose objects cannot be listed, and why.
    unlisted: Mutex<BTreeMap<String, String>>,
}

impl Default for Pulse {
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

impl Pulse {
    /// Shows that work goes on.
    pub(crate) fn beat(&self) {
        let millis = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.beat.store(millis, Ordering::Relaxed);
    }

    /// Time since the loop last went round.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.origin.elapsed().saturating_sub(Duration::from_millis(self.beat.load(Ordering::Relaxed)))
    }

    /// True when every kind was listed and no shutdown has begun. While the process may not lead yet, the lists do not count: they may need a
    /// conversion by its own webhook, which the API server does not reach before the process is ready.
    #[must_use]
    pub fn ready(&self) -> bool {
        let listed = self.synced.load(Ordering::Relaxed) || self.held.load(Ordering::Relaxed);
        listed && !self.stopping.load(Ordering::Relaxed)
    }

    /// Sets whether something keeps this process from leading for now.
    pub(crate) fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Relaxed);
    }

    /// Time since it began to beat.
    pub(crate) fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Every kind was listed; true the first time.
    pub(crate) fn note_listed(&self) -> bool {
        !self.synced.swap(true, Ordering::Relaxed)
    }

    /// The first list of a kind failed, so that its objects are unknown.
    pub(crate) fn note_unlisted(&self, resource: &str, why: String) {
        self.unlisted.lock().unwrap_or_else(PoisonError::into_inner).insert(resource.to_owned(), why);
    }

    /// A kind was listed.
    pub(crate) fn note_works(&self, resource: &str) {
        self.unlisted.lock().unwrap_or_else(PoisonError::into_inner).remove(resource);
    }

    /// The kinds that cannot be listed and why, `None` where all can.
    #[must_use]
    pub fn unlisted(&self) -> Option<String> {
        let all = self.unlisted.lock().unwrap_or_else(PoisonError::into_inner);
        let told: Vec<String> =
            all.iter().map(|(resource, why)| format!("{resource} cannot be listed: {why}")).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }

    /// The heartbeat of a loop that went round last that long ago.
    #[cfg(test)]
    pub(crate) fn of_age(age: Duration) -> Self {
        Self { origin: Instant::now() - age, ..Self::default() }
    }

    /// A shutdown has begun.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}
