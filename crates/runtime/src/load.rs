//! Load of writes that move jobs: the share of time in which such writes run, and how slowly they are answered, so that other writes can give way to them.
//!
//! A busy API server handles admissions and starts of jobs sooner if other requests pause, and a server with idle time is not slowed down by other requests.
//! The share of time with such writes is a moving average, so that a gap between two bursts of writes counts as idle time. An API server that other clients
//! also keep busy answers several times as slowly as it can; the share of time then counts up to twice. Background transport protocols also take slower answers
//! as the sign that they disturb other connections (LEDBAT, RFC 6817).

use crate::throttle::IO_INTERVAL;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Time constant of the moving average of the share of time in which writes that move jobs run.
const MEMORY: Duration = Duration::from_secs(2);
/// Time constant with which the API server's fastest answer time is forgotten, so that a constantly slow server stops counting as slow.
const BEST_KNOWN: Duration = Duration::from_secs(60);
/// Smallest value in seconds that the API server's fastest answer time can have, so that answer times of three times this value never count as slow.
const BEST: f64 = 0.003;
/// Average answer time relative to the fastest answer time: throttling of writes that do not move jobs starts at 3x and is full at 8x.
const STRAINED: (f64, f64) = (3.0, 8.0);

/// Number of running writes that move jobs, and the share of time in which such writes run.
#[derive(Debug)]
pub struct Load {
    state: Mutex<State>,
    /// True if a workload waits for quota, so that writes that free quota count as writes that move jobs.
    wanted: AtomicBool,
}

#[derive(Debug)]
struct State {
    pressing: usize,
    share: f64,
    at: Instant,
    /// Average and fastest time in seconds in which the API server answers writes that move jobs; `None` before the first answer.
    answers: Option<Answers>,
}

#[derive(Clone, Copy, Debug)]
struct Answers {
    mean: f64,
    best: f64,
    at: Instant,
}

impl Answers {
    /// Adds an answer of the API server that took `took` seconds.
    fn with(self, took: f64, now: Instant) -> Self {
        // Between two answers, at most a second counts for forgetting the fastest answer time, because a longer time without writes says nothing about the API
        // server.
        let passed = now.saturating_duration_since(self.at).as_secs_f64().min(1.0);
        let best = self.best * (passed / BEST_KNOWN.as_secs_f64()).exp();
        Self { mean: self.mean + (took - self.mean) / 16.0, best: best.min(took).max(BEST), at: now }
    }

    /// Strain of the API server: 0 if its average answer time is at most three times the fastest answer time, and 1 from eight times on.
    fn strain(self) -> f64 {
        let (begins, counts) = STRAINED;
        ((self.mean / self.best - begins) / (counts - begins)).clamp(0.0, 1.0)
    }
}

impl Load {
    /// The load of an API server before any write that moves jobs.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            state: Mutex::new(State { pressing: 0, share: 0.0, at: now, answers: None }),
            wanted: AtomicBool::new(false),
        }
    }

    /// Sets whether a workload waits for quota.
    pub fn set_wanted(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    /// Whether a workload waits for quota.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Notes the begin of a write that moves jobs.
    pub fn begin(&self, now: Instant) {
        self.at(now, |state| state.pressing += 1);
    }

    /// Notes that a write that moves jobs has ended. `sent` is the time at which the write was sent, and `None` for a write that was refused or got no answer:
    /// the duration of such a write says nothing about the API server.
    pub fn end(&self, sent: Option<Instant>, now: Instant) {
        // The thread that receives the API server's answer may have rested for up to [`IO_INTERVAL`] first, so this interval does not count as answer time.
        let took = sent.map(|sent| now.saturating_duration_since(sent).saturating_sub(IO_INTERVAL).as_secs_f64());
        self.at(now, |state| {
            state.pressing = state.pressing.saturating_sub(1);
            if let Some(took) = took {
                let known = state.answers.unwrap_or(Answers { mean: took, best: took.max(BEST), at: now });
                state.answers = Some(known.with(took, now));
            }
        });
    }

    /// Degree from 0 to 1 to which other writes should give way: 0 while writes that move jobs take less than half of the time, and 1 while they take all of
    /// it. If the API server answers slowly, the limits are a quarter and half of the time instead.
    #[must_use]
    pub fn yielding(&self, now: Instant) -> f64 {
        let (share, strain) = self.at(now, |state| (state.share, state.answers.map_or(0.0, Answers::strain)));
        (2.0 * share * (1.0 + strain) - 1.0).clamp(0.0, 1.0)
    }

    fn at<T>(&self, now: Instant, act: impl FnOnce(&mut State) -> T) -> T {
        // No change of the load's state can panic halfway, so the state behind a poisoned lock is still valid.
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

    /// The result of [`Load::yielding`] after a time in which writes took `busy` of every 100 milliseconds, and the last answer took `answered` milliseconds.
    fn yielding_with(busy: u64, answered: u64) -> f64 {
        let start = Instant::now();
        let load = Load::new(start);
        let mut now = start;
        load.begin(now);
        load.end(Some(now), now + Duration::from_millis(4));
        for _ in 0..200 {
            if busy > 0 {
                let ended = now + Duration::from_millis(busy);
                load.begin(now);
                load.end(ended.checked_sub(Duration::from_millis(answered)), ended);
            }
            now += Duration::from_millis(100);
        }
        load.yielding(now)
    }

    fn yielding_after(busy: u64) -> f64 {
        yielding_with(busy, 5)
    }

    #[test]
    fn background_writes_yield_sooner_to_a_slow_server() {
        let at = |answered| [20, 40, 60].map(|busy| yielding_with(busy, answered));
        let close = |is: [f64; 3], to: [f64; 3]| is.iter().zip(to).all(|(is, to)| (is - to).abs() < 0.07);
        assert!(close(at(5), [0.0, 0.0, 0.2]), "as quick as ever: {:?}", at(5));
        assert!(close(at(60), [0.0, 0.6, 1.0]), "many times as slow: {:?}", at(60));
    }

    #[test]
    fn latency_baseline_adapts_to_a_server_that_stays_slow() {
        let strain_after = |seconds: u64| {
            let start = Instant::now();
            let load = Load::new(start);
            for second in 0..seconds {
                let now = start + Duration::from_secs(second);
                load.begin(now);
                load.end(Some(now), now + Duration::from_millis(if second == 0 { 4 } else { 100 }));
            }
            load.state.lock().unwrap().answers.unwrap().strain()
        };
        assert!(strain_after(20) > 0.9);
        assert!(strain_after(600) < 0.01);
    }

    #[test]
    fn latency_baseline_survives_a_long_silence() {
        let start = Instant::now();
        let load = Load::new(start);
        load.end(Some(start), start + Duration::from_millis(4));
        for number in 0..40 {
            let now = start + Duration::from_secs(600) + Duration::from_millis(20) * number;
            load.end(Some(now), now + Duration::from_millis(60));
        }
        assert!(load.state.lock().unwrap().answers.unwrap().strain() > 0.9);
    }

    #[test]
    fn quick_answers_and_unsent_requests_cause_no_strain() {
        let start = Instant::now();
        let load = Load::new(start);
        for number in 0..100 {
            let (now, millis) = (start + Duration::from_secs(number), 1 + number % 28);
            load.begin(now);
            load.end(Some(now), now + Duration::from_millis(millis));
            load.begin(now);
            load.end(None, now + Duration::from_secs(9));
        }
        assert!(load.state.lock().unwrap().answers.unwrap().strain() < 0.01);
    }

    #[test]
    fn background_writes_do_not_yield_while_server_is_half_idle() {
        for busy in [0, 10, 45] {
            assert!(yielding_after(busy) < 0.01, "{busy} % busy");
        }
    }

    #[test]
    fn background_writes_yield_more_the_busier_the_server_is() {
        let all: Vec<f64> = [60, 80, 100].into_iter().map(yielding_after).collect();
        assert!(
            all.is_sorted() && all.iter().zip([0.2, 0.6, 1.0]).all(|(is, near)| (is - near).abs() < 0.05),
            "{all:?}"
        );
    }

    #[test]
    fn load_of_past_requests_is_forgotten_within_seconds() {
        let start = Instant::now();
        let load = Load::new(start);
        load.begin(start);
        load.begin(start);
        load.end(None, start + Duration::from_secs(9));
        assert!(load.yielding(start + Duration::from_secs(10)) > 0.9, "one is still under way");
        load.end(None, start + Duration::from_secs(10));
        assert!(load.yielding(start + Duration::from_secs(13)) < 0.01);
    }
}
