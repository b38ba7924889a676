//! The table at the end of a run: a line per step, with wall time, CPU time, waiting and peak memory.

use std::fmt::Write as _;

use crate::counts::Counts;
use crate::step::{Class, Line};

/// The text of the table of steps, with sums below.
pub(crate) fn table(lines: &[Line], cores: usize, wall: f64) -> String {
    let width = lines.iter().map(|line| line.name.len()).max().unwrap_or(0).max(4);
    let mut text =
        format!("{:width$}  {:>11} {:>8} {:>8} {:>8} {:>8}  tests\n", "step", "", "wall", "CPU", "waiting", "peak");
    let mut all = Counts::default();
    for line in lines {
        all += &line.counts;
        let class = match line.class {
            Class::Downloading => "downloading",
            Class::Compiling => "compiling",
            Class::Running => "running",
        };
        let cpu = line.cpu.map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.1} s"));
        let waiting = line.cpu.map_or_else(|| "-".to_owned(), |cpu| percent(waiting(cpu, line.wall, cores)));
        let peak = line.peak.map_or_else(|| "-".to_owned(), megabytes);
        let tests = if line.counts == Counts::default() { String::new() } else { line.counts.to_string() };
        let failed = if line.passed { "" } else { "  FAILED" };
        let wall = format!("{:.1} s", line.wall);
        let _ = writeln!(
            text,
            "{:width$}  {class:>11} {wall:>8} {cpu:>8} {waiting:>8} {peak:>8}  {tests}{failed}",
            line.name
        );
    }
    let of = |class: Class| lines.iter().filter(|line| line.class == class).map(|line| line.wall).sum::<f64>();
    let downloads = of(Class::Downloading);
    let _ = writeln!(text, "\nfrom the command to here {}, of which {} downloading", minutes(wall), minutes(downloads));
    let _ = writeln!(text, "without downloads: {}", minutes(wall - downloads));
    let _ = writeln!(text, "tests: {all}");
    text += &skipped(&all.skipped);
    text
}

/// Lines about skipped tests: one line per reason, with the number of tests that were skipped for the reason.
fn skipped(reasons: &[String]) -> String {
    let mut text = String::new();
    for (at, reason) in reasons.iter().enumerate() {
        if !reasons[..at].contains(reason) {
            let tests = reasons.iter().filter(|other| *other == reason).count();
            let _ = writeln!(text, "skipped: {reason} ({tests} {})", if tests == 1 { "test" } else { "tests" });
        }
    }
    text
}

/// The part of the machine's CPU time that a step did not use, from 0 to 1.
fn waiting(cpu: f64, wall: f64, cores: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a number of cores")]
    let there = wall * cores as f64;
    if there > 0.0 { (1.0 - cpu / there).clamp(0.0, 1.0) } else { 0.0 }
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes / 1_000_000)
}

/// A time in seconds, written as minutes and seconds.
pub(crate) fn minutes(seconds: f64) -> String {
    format!("{}:{:02} min", (seconds / 60.0).floor(), (seconds % 60.0).floor())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skip_reason_of_several_tests_is_shown_once_with_count() {
        let reasons = ["the real Kueue", "frameworks", "the real Kueue"].map(str::to_owned);
        assert_eq!(skipped(&reasons), "skipped: the real Kueue (2 tests)\nskipped: frameworks (1 test)\n");
        assert_eq!(skipped(&[]), "");
    }

    #[test]
    fn step_on_one_of_two_cores_waits_half_its_time() {
        assert_eq!(percent(waiting(10.0, 10.0, 2)), "50 %");
        assert_eq!(percent(waiting(30.0, 10.0, 2)), "0 %");
        assert_eq!(minutes(125.9), "2:05 min");
    }
}
