//! Moderation of a loop's or thread's turns, as network adapters moderate interrupts: a burst of turns runs promptly, and lasting load makes turns rarer, so
//! that each turn does more work. The costs of waking up and of cold caches arise once per turn, and so once for many changes.
//!
//! The algorithm for the rest between turns is the generic cell rate algorithm (ITU-T I.371) in its virtual scheduling form.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Average time between two turns of the I/O thread under lasting load, and so the longest delay that moderation adds to a request.
pub(crate) const IO_INTERVAL: Duration = Duration::from_millis(20);
/// Number of turns of the I/O thread without moderation after a rest, which is more than a job in a quiet cluster needs.
const IO_BURST: u32 = 100;

/// Moderator that computes the rest before each turn of a loop or thread. The moderator's times are durations since any fixed moment.
#[derive(Clone, Debug)]
pub struct Throttle {
    /// Shortest time between two turns, at any load.
    gap: Duration,
    /// Average time between two turns under lasting load.
    interval: Duration,
    /// Time by which a turn may begin before its regular time, which is one `interval` after the previous turn's regular time.
    lead: Duration,
    /// Time at which the last turn of the loop or thread began.
    last: Option<Duration>,
    /// Time at which the next turn would begin if all turns had kept the distance `interval`.
    due: Duration,
}

impl Throttle {
    /// A moderator with at least the time `gap` between turns, and with the time `interval` between turns after `burst` turns without a rest.
    #[must_use]
    pub fn new(gap: Duration, interval: Duration, burst: u32) -> Self {
        Self { gap, interval, lead: interval.saturating_mul(burst), last: None, due: Duration::ZERO }
    }

    /// Counts a turn, and returns the time from `now` until this turn may begin.
    pub fn rest(&mut self, now: Duration) -> Duration {
        let spaced = self.last.map_or(now, |last| last + self.gap);
        let turn = now.max(spaced).max(self.due.saturating_sub(self.lead));
        self.due = self.due.max(turn) + self.interval;
        self.last = Some(turn);
        turn.saturating_sub(now)
    }
}

/// Makes the thread of the async runtime rest before the thread waits for input.
pub fn moderate(builder: &mut tokio::runtime::Builder) -> &mut tokio::runtime::Builder {
    let origin = Instant::now();
    let throttle = Mutex::new(Throttle::new(Duration::ZERO, IO_INTERVAL, IO_BURST));
    builder.on_thread_park(move || {
        // The lock is never poisoned: only the runtime's thread takes the lock, and a panic with the lock would have ended this thread.
        let Ok(mut throttle) = throttle.lock() else { return };
        let rest = throttle.rest(origin.elapsed());
        std::thread::sleep(rest);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn turns_of_a_burst_are_spaced_by_gap_then_interval() {
        let mut throttle = Throttle::new(ms(10), ms(100), 3);
        let mut now = ms(5000);
        let mut turns = Vec::new();
        for _ in 0..7 {
            now += throttle.rest(now);
            turns.push(now - ms(5000));
        }
        assert_eq!(turns, [0, 10, 20, 30, 100, 200, 300].map(ms));
    }

    #[test]
    fn turns_that_come_rarely_are_never_delayed() {
        let mut throttle = Throttle::new(ms(10), ms(100), 3);
        for turn in 0..100 {
            assert_eq!(throttle.rest(ms(turn * 100)), Duration::ZERO);
        }
    }

    #[test]
    fn turns_after_a_rest_get_one_burst_and_no_more() {
        let mut throttle = Throttle::new(Duration::ZERO, ms(10), 2);
        let waits = |throttle: &mut Throttle, at: u64| (0..5).map(|_| throttle.rest(ms(at))).collect::<Vec<_>>();
        assert_eq!(waits(&mut throttle, 0), [0, 0, 0, 10, 20].map(ms));
        assert_eq!(waits(&mut throttle, 100_000), [0, 0, 0, 10, 20].map(ms));
    }
}
