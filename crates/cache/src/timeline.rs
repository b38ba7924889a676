//! Durations by a monotonic clock, for the time that this process has observed. Wall clock times are written into objects, and are all that is known about the
//! time before the process started. A change of the wall clock changes only the written times: such a change neither ends nor prolongs a job.

use std::time::Duration;

use jiff::Timestamp;

use crate::moments::after;

/// Milliseconds up to which a difference between the wall clock and the monotonic clock is ignored.
const NOTED_MS: i64 = 1_000;
/// Milliseconds below which the speed of a clock cannot be measured.
const LEAST_MS: i64 = 20;
/// The wall clock counts as slow if it loses at least one part in this number of the time that the monotonic clock shows.
const SLOW_PART: i64 = 4;
/// Largest number of remembered points of the timeline.
const MOST: usize = 64;

/// Lead of the wall clock over the monotonic clock at a wall clock time, both in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Point {
    at: i64,
    lead: i64,
}

impl Point {
    /// The reading of the monotonic clock at this point of the timeline.
    const fn steady(self) -> i64 {
        self.at.saturating_sub(self.lead)
    }
}

/// Relation of the wall clock and the monotonic clock. The lead of the wall clock over the monotonic clock changes evenly between two points, and is constant
/// before the first point. Without points in the timeline, the wall clock and the monotonic clock have always gone together.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    points: Vec<Point>,
    /// The last reading of the wall clock and the monotonic clock.
    latest: Point,
    /// True if the wall clock has gone at about half the speed of the monotonic clock since the last point but one, and still does.
    slow: bool,
}

impl Timeline {
    /// Records a reading of the wall clock and the monotonic clock, neither of which goes back. The result of `tick` is true if the relation of the wall clock
    /// and the monotonic clock has changed since the last reading.
    pub fn tick(&mut self, now: Timestamp, steady: Duration) -> bool {
        let at = now.as_millisecond();
        let point = Point { at, lead: at.saturating_sub(i64::try_from(steady.as_millis()).unwrap_or(i64::MAX)) };
        let before = std::mem::replace(&mut self.latest, point);
        let Some(last) = self.points.last().copied() else {
            self.points.push(point);
            return false;
        };
        let change = point.lead.saturating_sub(last.lead);
        let slow = change < 0 && self.goes_slowly(before, point);
        if change.saturating_abs() <= NOTED_MS {
            self.slow &= slow;
            return false;
        }
        let goes_on = slow && self.slow;
        if goes_on {
            // The last segment of the timeline is prolonged.
            self.points.pop();
        } else if before != last {
            self.points.push(before);
        }
        self.points.push(point);
        self.slow = slow;
        while self.points.len() > MOST {
            // The two oldest segments of the timeline become one.
            self.points.remove(1);
        }
        !goes_on
    }

    fn goes_slowly(&self, before: Point, point: Point) -> bool {
        let passed = point.steady().saturating_sub(before.steady());
        let lost = before.lead.saturating_sub(point.lead);
        if passed < LEAST_MS { self.slow } else { lost.saturating_mul(SLOW_PART) >= passed }
    }

    /// Whether the wall clock and the monotonic clock have always gone together.
    pub fn is_even(&self) -> bool {
        self.points.len() < 2
    }

    /// The reading of the monotonic clock at a wall clock time, up to a constant.
    fn steady(&self, at: i64) -> i64 {
        at.saturating_sub(self.lead(at))
    }

    fn lead(&self, at: i64) -> i64 {
        let next = self.points.partition_point(|point| point.at <= at);
        let before = next.checked_sub(1).and_then(|index| self.points.get(index));
        match (before, self.points.get(next)) {
            (Some(before), Some(next)) => {
                let (part, total) = (at.saturating_sub(before.at), next.at.saturating_sub(before.at).max(1));
                before.lead.saturating_add(share(next.lead.saturating_sub(before.lead), part, total))
            }
            // A slow wall clock goes at half the speed: its lead shrinks by as much as it gains.
            (Some(last), None) if self.slow => last.lead.saturating_sub(at.saturating_sub(last.at)),
            (Some(one), None) | (None, Some(one)) => one.lead,
            (None, None) => 0,
        }
    }

    /// The wall clock time at which `ms` milliseconds have passed since another wall clock time.
    pub fn after(&self, since: Timestamp, ms: i64) -> Timestamp {
        if self.is_even() {
            return after(since, ms);
        }
        let wanted = self.steady(since.as_millisecond()).saturating_add(ms);
        // The wall clock time that is sought is between two points of the timeline, before the first point, or after the last point.
        let next = self.points.partition_point(|point| point.steady() < wanted);
        let before = next.checked_sub(1).and_then(|index| self.points.get(index));
        let at = match (before, self.points.get(next)) {
            (Some(before), Some(next)) => {
                let from = before.steady();
                let total = next.steady().saturating_sub(from).max(1);
                before.at.saturating_add(share(next.at.saturating_sub(before.at), wanted.saturating_sub(from), total))
            }
            (Some(last), None) => {
                let left = wanted.saturating_sub(last.steady());
                last.at.saturating_add(if self.slow { left / 2 } else { left })
            }
            (None, Some(first)) => wanted.saturating_add(first.lead),
            (None, None) => wanted,
        };
        Timestamp::from_millisecond(at).unwrap_or(Timestamp::MAX)
    }

    /// The wall clock time at which `seconds` seconds have passed since another wall clock time.
    pub fn after_seconds(&self, since: Timestamp, seconds: i64) -> Timestamp {
        self.after(since, seconds.saturating_mul(1_000))
    }

    /// Milliseconds that passed from one wall clock time to another, 0 if the second time is earlier.
    pub fn millis_between(&self, from: Timestamp, to: Timestamp) -> i64 {
        if self.is_even() {
            return crate::moments::millis_between(from, to);
        }
        self.steady(to.as_millisecond()).saturating_sub(self.steady(from.as_millisecond())).max(0)
    }

    /// Seconds that passed from one wall clock time to another; 0 if the second time is earlier.
    pub fn seconds_between(&self, from: Timestamp, to: Timestamp) -> i64 {
        if self.is_even() {
            return crate::moments::seconds_between(from, to);
        }
        self.millis_between(from, to) / 1_000
    }
}

/// The share of an amount that belongs to `part` of `total`.
fn share(amount: i64, part: i64, total: i64) -> i64 {
    let exact = i128::from(amount).saturating_mul(i128::from(part)).checked_div(i128::from(total)).unwrap_or_default();
    i64::try_from(exact).unwrap_or(if exact < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use proptest::prelude::*;

    const DAY: i64 = 86_400_000;
    const BEGIN: i64 = 1_700_000_000_000;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).unwrap()
    }

    /// A wall clock and a monotonic clock, and their readings so far.
    struct Clocks {
        line: Timeline,
        now: i64,
        steady: i64,
        /// Each reading of the wall clock, with the reading of the monotonic clock at that moment.
        seen: Vec<(i64, i64)>,
    }

    impl Clocks {
        fn new() -> Self {
            let mut clocks = Self { line: Timeline::default(), now: BEGIN, steady: 0, seen: Vec::new() };
            clocks.pass(0, 0);
            clocks
        }

        fn pass(&mut self, now: i64, steady: i64) {
            self.now += now;
            self.steady += steady;
            self.line.tick(at(self.now), Duration::from_millis(u64::try_from(self.steady).unwrap()));
            self.seen.push((self.now, self.steady));
        }

        /// Lets wall clock and monotonic clock go on together, with a reading each second.
        fn run(&mut self, seconds: i64) {
            (0..seconds).for_each(|_| self.pass(1_000, 1_000));
        }

        /// Lets the wall clock go at half the speed of the monotonic clock.
        fn crawl(&mut self, seconds: i64) {
            (0..seconds).for_each(|_| self.pass(500, 1_000));
        }
    }

    #[test]
    fn wall_clock_without_jumps_is_believed() {
        let mut clocks = Clocks::new();
        for _ in 0..2 {
            for (from, to) in [(BEGIN - DAY, BEGIN + 1), (BEGIN + 5, BEGIN + 3_004), (BEGIN + 9, BEGIN)] {
                let between = (to - from).max(0);
                assert_eq!(clocks.line.millis_between(at(from), at(to)), between);
                assert_eq!(clocks.line.after(at(from), between), at(from + between));
                assert_eq!(Timeline::default().millis_between(at(from), at(to)), between);
            }
            clocks.run(100);
        }
        // A synchronized clock goes a little faster or slower at times.
        (0..100).for_each(|_| clocks.pass(1_001, 1_000));
        (0..100).for_each(|_| clocks.pass(999, 1_000));
        assert_eq!(clocks.line.points.len(), 1);
    }

    #[test]
    fn day_skipped_by_wall_clock_jump_has_not_passed() {
        let mut clocks = Clocks::new();
        let (long_before, started) = (at(BEGIN - 5_000), at(BEGIN + 10_000));
        clocks.run(20);
        clocks.pass(DAY, 0);
        let stamped = at(clocks.now);
        clocks.run(7);
        let now = at(clocks.now);
        assert_eq!(clocks.line.seconds_between(started, now), 17);
        assert_eq!(clocks.line.seconds_between(long_before, now), 32, "what was before the process, too");
        assert_eq!(clocks.line.seconds_between(stamped, now), 7, "it was written with the new time");
        assert_eq!(clocks.line.after_seconds(started, 20), at(clocks.now + 3_000));
        assert_eq!(clocks.line.after_seconds(started, 5), at(BEGIN + 15_000), "it was over before the jump");
        // The object was created by another machine with a correct clock, within the day that the wall clock skipped.
        assert_eq!(clocks.line.seconds_between(at(BEGIN + DAY / 2), now), 7);
    }

    #[test]
    fn slow_wall_clock_is_compensated_in_durations_and_due_times() {
        let mut clocks = Clocks::new();
        let started = at(BEGIN);
        clocks.run(20);
        clocks.crawl(3_600);
        assert!(clocks.line.points.len() < 5, "{:?}", clocks.line.points);
        let passed = clocks.line.millis_between(started, at(clocks.now));
        assert!((passed - 3_620_000).abs() <= NOTED_MS, "{passed}");
        // While the wall clock goes at half the speed, a delay ends after half as many milliseconds on the wall clock.
        let due = clocks.line.after(started, 3_620_000 + 100_000).as_millisecond() - clocks.now;
        assert!((due - 50_000).abs() <= NOTED_MS, "{due}");
        clocks.run(60);
        let due = clocks.line.after(started, 3_680_000 + 100_000).as_millisecond() - clocks.now;
        assert!((due - 100_000).abs() <= NOTED_MS, "{due}");
    }

    #[test]
    fn many_wall_clock_jumps_are_joined_without_losing_time() {
        let mut clocks = Clocks::new();
        let started = at(BEGIN);
        for _ in 0..1_000 {
            clocks.run(15);
            clocks.pass(5_000, 0);
        }
        assert!(clocks.line.points.len() <= MOST);
        assert_eq!(clocks.line.seconds_between(started, at(clocks.now)), 15_000);
    }

    /// Random moves of the clocks: both go on together, both jump forward, or the wall clock lags.
    fn moves() -> impl Strategy<Value = Vec<(u8, i64)>> {
        proptest::collection::vec((0_u8..4, 1_i64..5_000), 0..12)
    }

    fn played(moves: &[(u8, i64)]) -> Clocks {
        let mut clocks = Clocks::new();
        for (what, amount) in moves {
            match what {
                0 => clocks.pass(amount * 100_000, 0),
                1 => clocks.crawl(amount / 10),
                _ => clocks.run(amount / 10),
            }
        }
        clocks
    }

    proptest! {
        #[test]
        fn passed_time_equals_what_monotonic_clock_measured(moves in moves(), picks in (any::<prop::sample::Index>(), any::<prop::sample::Index>())) {
            let clocks = played(&moves);
            let (one, other) = (picks.0.get(&clocks.seen), picks.1.get(&clocks.seen));
            let (from, to) = if one <= other { (one, other) } else { (other, one) };
            let passed = clocks.line.millis_between(at(from.0), at(to.0));
            // The times at the beginning and at the end of a measured duration may each be off by a difference between the clocks that is ignored.
            prop_assert!((passed - (to.1 - from.1)).abs() <= 2 * NOTED_MS, "{passed} for {} of {:?}", to.1 - from.1, clocks.line);
        }

        #[test]
        fn passed_time_adds_up_and_never_shrinks(moves in moves(), mut times in proptest::collection::vec(-DAY..3 * DAY, 3)) {
            let line = played(&moves).line;
            times.sort_unstable();
            let [a, b, c] = [times[0], times[1], times[2]].map(|ms| at(BEGIN + ms));
            let (ab, bc, ac) = (line.millis_between(a, b), line.millis_between(b, c), line.millis_between(a, c));
            prop_assert_eq!(ab + bc, ac);
            prop_assert!(ab >= 0 && bc >= 0 && ac >= ab);
        }

        #[test]
        fn due_time_is_when_its_delay_has_passed(moves in moves(), since in -DAY..3 * DAY, ms in 0..2 * DAY) {
            let line = played(&moves).line;
            let since = at(BEGIN + since);
            let due = line.after(since, ms);
            let passed = line.millis_between(since, due);
            // The due time is exact to the millisecond but for rounding, while the wall clock goes at half speed.
            prop_assert!((passed - ms).abs() <= 2, "{passed} of {ms} at {due} of {line:?}");
            prop_assert!(line.after(since, ms + 1) >= due);
        }
    }
}
