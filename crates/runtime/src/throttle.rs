//! Moderation of turns, as network adapters moderate interrupts: a burst of turns runs promptly, and lasting load makes turns rarer, so that each turn does
//! more work. Waking up and cold caches then cost once for many changes.
//!
//! The algorithm is the generic cell rate algorithm (ITU-T I.371) in its virtual scheduling form.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Time per turn of the I/O thread under lasting load, which limits the delay that moderation adds to a request.
pub(crate) const IO_INTERVAL: Duration = Duration::from_millis(20);
/// Number of prompt turns of the I/O thread after a rest, which is more than a job in a quiet cluster needs.
const IO_BURST: u32 = 100;

/// Moderator that computes the rest before each turn. Times are distances from any fixed origin.
#[derive(Clone, Debug)]
pub struct Throttle {
    /// Shortest time between two turns, at any load.
    gap: Duration,
    /// Time per turn under lasting load.
    interval: Duration,
    /// Time by which turns may run ahead of the interval.
    lead: Duration,
    /// Time at which the last turn began.
    last: Option<Duration>,
    /// Time at which the next turn would be due if all turns had kept the interval.
    due: Duration,
}

impl Throttle {
    /// A moderator with at least `gap` between turns, and with `interval` after `burst` turns without a rest.
    #[must_use]
    pub fn new(gap: Duration, interval: Duration, burst: u32) -> Self {
        Self { gap, interval, lead: interval.saturating_mul(burst), last: None, due: Duration::ZERO }
    }

    /// Accounts for a turn, and returns the rest from `now` until the turn may begin.
    pub fn rest(&mut self, now: Duration) -> Duration {
        let spaced = self.last.map_or(now, |last| last + self.gap);
        let turn = now.max(spaced).max(self.due.saturating_sub(self.lead));
        self.due = self.due.max(turn) + self.interval;
        self.last = Some(turn);
        turn.saturating_sub(now)
    }
}

/// Makes the runtime's thread rest before it waits for input.
pub fn moderate(builder: &mut tokio::runtime::Builder) -> &mut tokio::runtime::Builder {
    let origin = Instant::now();
    let throttle = Mutex::new(Throttle::new(Duration::ZERO, IO_INTERVAL, IO_BURST));
    builder.on_thread_park(move || {
        // Only this thread takes the lock, and a panic with the lock would have ended the thread.
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
