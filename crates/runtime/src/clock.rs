//! The time that is told to control. It comes from this clock alone, and never goes back.
//!
//! All that control waits for is kept as a time of day. If the wall clock were simply believed, then setting it back by half an
//! hour would make everything wait half an hour longer.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A lead over the wall clock that is worth a word.
const NOTED: SignedDuration = SignedDuration::from_secs(2);
/// The largest lead: what is written with it is wrong by as much, and whoever leads next would wait for it.
const MOST: SignedDuration = SignedDuration::from_hours(1);

/// The wall clock, but for what it is set back: then time goes on at half its speed until the wall clock has caught up, so that
/// nothing takes more than twice as long as it should. A step forward is followed at once.
#[derive(Debug)]
pub struct Clock {
    last: Timestamp,
    read: Instant,
    /// By how much the last time was ahead of the wall clock.
    lead: SignedDuration,
    told: bool,
}

impl Default for Clock {
    fn default() -> Self {
        Self::starting(Timestamp::now(), Instant::now())
    }
}

impl Clock {
    fn starting(wall: Timestamp, instant: Instant) -> Self {
        Self { last: wall, read: instant, lead: SignedDuration::ZERO, told: false }
    }

    /// The time: not before the one that was told last.
    pub fn now(&mut self) -> Timestamp {
        let now = self.at(Timestamp::now(), Instant::now());
        if self.lead > NOTED && !self.told {
            let seconds = self.lead.as_secs();
            tracing::warn!(
                seconds,
                "the wall clock was set back: time goes on at half its speed until it has caught up"
            );
        }
        self.told = self.lead > NOTED;
        now
    }

    /// Whether the wall clock was set back so far that it is better to start over than to wait for it: by more than an hour.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lead > MOST
    }

    /// The time where the wall clock shows that, and the one that cannot be set this.
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
    use std::time::Duration;

    /// A wall clock that is off by so many seconds from a time that cannot be set.
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
    fn a_wall_clock_that_is_not_set_back_is_believed() {
        let (mut wall, mut clock) = start();
        for step in [1, 10, 5_000, 10_000_000] {
            wall.passed += Duration::from_millis(step);
            assert_eq!(wall.read(&mut clock), wall.wall());
        }
        wall.off = 86_400 * 365;
        assert_eq!(wall.read(&mut clock), wall.wall(), "a step forward");
        // Slowed down by whoever keeps it right, but not stopped.
        let before = wall.wall();
        let slow = before.checked_add(Duration::from_millis(9_990)).unwrap();
        assert_eq!(clock.at(slow, wall.begin + wall.passed + Duration::from_secs(10)), slow);
        assert!(!clock.is_lost());
    }

    #[test]
    fn what_is_due_in_ten_seconds_is_due_in_twenty_when_the_clock_was_set_back() {
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
        // Half an hour is made up for in an hour, and then the wall clock is believed again.
        while wall.passed < Duration::from_secs(3_500) {
            wall.passed += Duration::from_millis(700);
            assert!(wall.read(&mut clock) > wall.wall());
        }
        wall.passed = Duration::from_secs(3_601);
        assert_eq!(wall.read(&mut clock), wall.wall());
        assert!(!clock.is_lost());
    }

    #[test]
    fn a_lead_that_takes_too_long_to_lose_is_known() {
        let (mut wall, mut clock) = start();
        for (off, lost) in [(-3_600, false), (-3_601, true), (0, false)] {
            wall.off = off;
            wall.read(&mut clock);
            assert_eq!(clock.is_lost(), lost, "{off}");
        }
    }
}
