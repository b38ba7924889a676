//! How much of the time writes that move jobs are under way, so that what nobody waits for can give way to them.
//!
//! An API server that is busy with admissions and starts does these sooner when it is asked for nothing else; one that has
//! time left between them is not slowed down by the rest. The share is a moving average, so that a gap between two bursts
//! counts as what it is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// What is older hardly counts.
const MEMORY: Duration = Duration::from_secs(2);

/// Writes under way, and the share of the time in which there were any.
#[derive(Debug)]
pub struct Load {
    state: Mutex<State>,
    /// Somebody waits for quota: what gives quota back moves jobs then.
    wanted: AtomicBool,
}

#[derive(Debug)]
struct State {
    pressing: usize,
    share: f64,
    at: Instant,
}

impl Load {
    /// Nothing under way, and nothing before.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { state: Mutex::new(State { pressing: 0, share: 0.0, at: now }), wanted: AtomicBool::new(false) }
    }

    /// Says whether anybody waits for quota.
    pub fn set_wanted(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    /// Whether anybody waits for quota.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// A write that moves jobs waits from now on.
    pub fn begin(&self, now: Instant) {
        self.at(now, |state| state.pressing += 1);
    }

    /// One has ended.
    pub fn end(&self, now: Instant) {
        self.at(now, |state| state.pressing = state.pressing.saturating_sub(1));
    }

    /// How far others should give way: 0 while such writes take less than half of the time, 1 when they take all of it.
    #[must_use]
    pub fn yielding(&self, now: Instant) -> f64 {
        let share = self.at(now, |state| state.share);
        (2.0 * share - 1.0).clamp(0.0, 1.0)
    }

    fn at<T>(&self, now: Instant, act: impl FnOnce(&mut State) -> T) -> T {
        // Every change is whole before anything can panic.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(state.at).as_secs_f64();
        let weight = 1.0 - (-passed / MEMORY.as_secs_f64()).exp();
        let busy = if state.pressing > 0 { 1.0 } else { 0.0 };
        state.share += weight * (busy - state.share);
        state.at = now;
        act(&mut state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is asked of others after a time in which writes took so many milliseconds of every 100.
    fn yielding_after(busy: u64) -> f64 {
        let start = Instant::now();
        let load = Load::new(start);
        let mut now = start;
        for _ in 0..200 {
            if busy > 0 {
                load.begin(now);
                load.end(now + Duration::from_millis(busy));
            }
            now += Duration::from_millis(100);
        }
        load.yielding(now)
    }

    #[test]
    fn a_server_with_time_left_is_asked_for_everything() {
        for busy in [0, 10, 45] {
            assert!(yielding_after(busy) < 0.01, "{busy} % busy");
        }
    }

    #[test]
    fn the_busier_the_more_others_give_way() {
        let all: Vec<f64> = [60, 80, 100].into_iter().map(yielding_after).collect();
        assert!(
            all.is_sorted() && all.iter().zip([0.2, 0.6, 1.0]).all(|(is, near)| (is - near).abs() < 0.05),
            "{all:?}"
        );
    }

    #[test]
    fn what_was_is_forgotten_within_seconds() {
        let start = Instant::now();
        let load = Load::new(start);
        load.begin(start);
        load.begin(start);
        load.end(start + Duration::from_secs(9));
        assert!(load.yielding(start + Duration::from_secs(10)) > 0.9, "one is still under way");
        load.end(start + Duration::from_secs(10));
        assert!(load.yielding(start + Duration::from_secs(13)) < 0.01);
    }
}
