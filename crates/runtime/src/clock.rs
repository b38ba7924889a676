//! The clock of the control loop, the only source of time for control; its time never decreases.
//!
//! Control stores deadlines as times of day. If the loop used the wall clock directly, setting the wall clock back by half an hour would prolong every wait by
//! half an hour. Control measures durations by the monotonic clock, which cannot be set (`cache/src/timeline.rs`).

use jiff::{SignedDuration, Timestamp};
use std::time::Duration;
use tokio::time::Instant;

/// If the control loop's time is ahead of the wall clock by more than this, Berth writes a log line.
const NOTED: SignedDuration = SignedDuration::from_secs(2);

/// The clock of the control loop follows the wall clock, except after the wall clock was set back. After the wall clock was set back, the loop's time advances
/// at half speed until the wall clock has caught up, so that no wait takes more than twice as long. The loop's time follows a forward jump of the wall clock at
/// once.
#[derive(Debug)]
pub struct Clock {
    last: Timestamp,
    begin: Instant,
    read: Instant,
    /// How far the last time of the loop was ahead of the wall clock.
    lead: SignedDuration,
    is_reported: bool,
}

impl Default for Clock {
    fn default() -> Self {
        Self::starting(Timestamp::now(), Instant::now())
    }
}

impl Clock {
    fn starting(wall: Timestamp, instant: Instant) -> Self {
        Self { last: wall, begin: instant, read: instant, lead: SignedDuration::ZERO, is_reported: false }
    }

    /// The current time of the control loop, which is never before the last returned time.
    pub fn now(&mut self) -> Timestamp {
        let now = self.at(Timestamp::now(), Instant::now());
        if self.lead > NOTED && !self.is_reported {
            let seconds = self.lead.as_secs();
            tracing::warn!(
                seconds,
                "the wall clock was set back: time goes on at half its speed until it has caught up; times that are written are ahead until then"
            );
        }
        self.is_reported = self.lead > NOTED;
        now
    }

    /// Time by the monotonic clock from the start of the loop's clock to the last reading of the clock.
    #[must_use]
    pub fn steady(&self) -> Duration {
        self.read.saturating_duration_since(self.begin)
    }

    /// The loop's time for readings of the wall clock and of the monotonic clock.
    fn at(&mut self, wall: Timestamp, instant: Instant) -> Timestamp {
        let passed = instant.saturating_duration_since(self.read);
        let least = self.last.checked_add(passed / 2).unwrap_or(self.last);
        self.last = wall.max(least);
        self.read = instant;
        self.lead = self.last.duration_since(wall);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wall clock whose offset from a monotonic clock the test sets, in seconds.
    struct Wall {
        begin: Instant,
        passed: Duration,
        off: i64,
    }

    impl Wall {
        fn wall(&self) -> Timestamp {
            let begin = Timestamp::from_second(1_700_000_000).unwrap();
            begin.checked_add(self.passed).unwrap().checked_add(SignedDuration::from_secs(self.off)).unwrap()
        }

        fn read(&self, clock: &mut Clock) -> Timestamp {
            clock.at(self.wall(), self.begin + self.passed)
        }
    }

    fn start() -> (Wall, Clock) {
        let wall = Wall { begin: Instant::now(), passed: Duration::ZERO, off: 0 };
        let clock = Clock::starting(wall.wall(), wall.begin);
        (wall, clock)
    }

    #[test]
    fn wall_clock_that_is_not_set_back_is_believed() {
        let (mut wall, mut clock) = start();
        for step in [1, 10, 5_000, 10_000_000] {
            wall.passed += Duration::from_millis(step);
            assert_eq!(wall.read(&mut clock), wall.wall());
        }
        wall.off = 86_400 * 365;
        assert_eq!(wall.read(&mut clock), wall.wall(), "a step forward");
        // A time daemon slows the wall clock down to correct it, but does not stop it.
        let before = wall.wall();
        let slow = before.checked_add(Duration::from_millis(9_990)).unwrap();
        let passed = wall.passed + Duration::from_secs(10);
        assert_eq!(clock.at(slow, wall.begin + passed), slow);
        assert_eq!(clock.steady(), passed, "whatever the wall clock shows");
    }

    #[test]
    fn deadline_is_reached_within_double_time_after_clock_setback() {
        let (mut wall, mut clock) = start();
        let due = wall.wall().checked_add(SignedDuration::from_secs(10)).unwrap();
        wall.off = -1_800;
        let mut last = wall.read(&mut clock);
        while wall.read(&mut clock) < due {
            wall.passed += Duration::from_millis(100);
            let now = wall.read(&mut clock);
            assert!(now > last && wall.passed <= Duration::from_secs(20), "{now} after {:?}", wall.passed);
            last = now;
        }
        // The loop's time makes up for half an hour within an hour, and then follows the wall clock again.
        while wall.passed < Duration::from_secs(3_500) {
            wall.passed += Duration::from_millis(700);
            assert!(wall.read(&mut clock) > wall.wall());
        }
        wall.passed = Duration::from_secs(3_601);
        assert_eq!(wall.read(&mut clock), wall.wall());
    }

    /// Timers still work, because the monotonic clock is not affected. After the wall clock was set back by a day, it has caught up with the loop's time within
    /// two days.
    #[test]
    fn clock_set_back_by_a_day_runs_at_half_speed() {
        let (mut wall, mut clock) = start();
        wall.off = -86_400;
        let before = wall.read(&mut clock);
        wall.passed = Duration::from_secs(100);
        assert_eq!(wall.read(&mut clock).duration_since(before), SignedDuration::from_secs(50));
        assert_eq!(clock.steady(), wall.passed);
        wall.passed = Duration::from_secs(2 * 86_400 + 1);
        assert_eq!(wall.read(&mut clock), wall.wall());
    }
}
