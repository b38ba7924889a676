//! The present speed of the machine, by which waits on a slow machine get more time.
//!
//! Every second a thread does the same short arithmetic and measures the wall time and the CPU time of it. The function [`now`] is the clock of the
//! time limits of waits: the clock runs at normal speed while the machine is no slower than usual under `make test`, and slows down as the machine
//! becomes slower than that. A limit that was chosen on the usual machine therefore also holds on a machine of half the speed, and beside another
//! build.

use std::fs;
use std::hint::black_box;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Number of steps of the arithmetic, which take six milliseconds of CPU time.
const STEPS: u32 = 1_000_000;
/// Seconds of CPU time for one step on the machine for which the limits were chosen, in the build of the tests.
const STEP_SECONDS: f64 = 6e-9;
/// Wall time of the arithmetic, relative to a machine at rest, beyond which time limits are stretched.
const USUAL: f64 = 4.0;
/// Pause between two measurements of the machine's speed.
const PAUSE: Duration = Duration::from_secs(1);
/// Weight of a new measurement in the mean with the measurements before it.
const SHARE: f64 = 0.2;
/// Largest factor by which the clock runs slower than real time.
const SLOWEST: f64 = 8.0;

/// The clock of the time limits, and the mean of the measurements.
#[derive(Clone, Copy, Debug)]
struct TestClock {
    /// Moment of the last measurement of the machine's speed.
    at: Instant,
    /// Time that the clock of the time limits showed at the last measurement of the machine's speed.
    reading: Duration,
    /// Recent mean of the wall time of the arithmetic, relative to the expected time.
    wall: f64,
    /// Recent mean of the CPU time of the arithmetic, relative to the expected time.
    core: f64,
}

impl TestClock {
    fn new(at: Instant) -> TestClock {
        TestClock { at, reading: Duration::ZERO, wall: 1.0, core: 1.0 }
    }

    /// Factor by which the clock runs slower than real time.
    fn slowness(&self) -> f64 {
        (self.wall / USUAL).clamp(1.0, SLOWEST)
    }

    fn now(&self, at: Instant) -> Duration {
        self.reading + at.saturating_duration_since(self.at).div_f64(self.slowness())
    }

    /// Adds a measurement of the machine's speed to the means of the measurements.
    fn seen(&mut self, at: Instant, wall: f64, core: f64) {
        self.reading = self.now(at);
        self.at = at;
        self.wall += (wall - self.wall) * SHARE;
        self.core += (core - self.core) * SHARE;
    }
}

/// Does the arithmetic; returns its wall time and its CPU time, relative to the expected times.
fn look() -> Option<(f64, f64)> {
    let (begun, used) = (Instant::now(), of_a_core()?);
    let mut state = 1_u64;
    for _ in 0..STEPS {
        state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    }
    let should = f64::from(STEPS) * STEP_SECONDS;
    Some((begun.elapsed().as_secs_f64() / should, (of_a_core()? - used) / should))
}

/// Seconds of CPU time that this thread has used.
fn of_a_core() -> Option<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split(' ').next()?.parse::<f64>().ok()? / 1e9)
}

static TEST_CLOCK: LazyLock<Mutex<TestClock>> = LazyLock::new(|| {
    // The measuring thread ends with the process. If the kernel does not report the CPU time of a thread, the clock runs at normal speed.
    thread::spawn(|| {
        while let Some((wall, core)) = look() {
            lock().seen(Instant::now(), wall, core);
            thread::sleep(PAUSE);
        }
    });
    Mutex::new(TestClock::new(Instant::now()))
});

fn lock() -> MutexGuard<'static, TestClock> {
    TEST_CLOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The clock of the time limits: it never runs faster than real time, and runs slower while the machine is slower than usual.
#[must_use]
pub fn now() -> Duration {
    lock().now(Instant::now())
}

/// CPU time that the arithmetic takes now, relative to the machine for which the limits were chosen: at least 1.
#[must_use]
pub fn of_cores() -> f64 {
    lock().core.clamp(1.0, SLOWEST)
}

/// A sentence for the reader of a log: how many times longer the arithmetic takes than on a machine at rest.
#[must_use]
pub fn summary() -> String {
    let clock = *lock();
    format!("the machine takes {:.1} times as long as alone, {:.1} times as much of a core", clock.wall, clock.core)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_clock_slows_on_a_slow_machine_and_never_hurries() {
        let begun = Instant::now();
        let second = |n: u64| begun + Duration::from_secs(n);
        let mut clock = TestClock::new(begun);
        clock.seen(second(10), 0.1, 0.1);
        assert_eq!(clock.now(second(20)), Duration::from_secs(20), "a fast machine gains nothing");
        for _ in 0..100 {
            clock.seen(second(20), 2.0 * USUAL, 1.0);
        }
        assert_eq!(clock.now(second(20)), Duration::from_secs(20), "what has passed has passed");
        assert!(clock.now(second(40)).abs_diff(Duration::from_secs(30)) < Duration::from_millis(10));
        for _ in 0..100 {
            clock.seen(second(40), 1e9, 1.0);
        }
        let later = clock.now(second(120)) - clock.now(second(40));
        assert!(later.abs_diff(Duration::from_secs(10)) < Duration::from_millis(10), "every wait ends: {later:?}");
    }

    #[test]
    fn machine_speed_measurement_takes_wall_and_core_time() {
        let (wall, core) = look().unwrap_or_default();
        assert!(core > 0.0 && wall >= core * 0.9, "{wall} {core}");
    }
}
