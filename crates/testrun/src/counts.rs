//! Counts of tests, read from the output of test programs.

use std::fmt;
use std::ops::AddAssign;

/// Beginning of the line that a skipped test prints; the reason of the skip follows.
const SKIPPED: &str = "skipped: ";

/// Counts of the tests of one or several test programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Number of passed tests.
    pub(crate) passed: u64,
    /// Number of failed tests.
    pub(crate) failed: u64,
    /// Number of tests that are marked `#[ignore]`.
    pub(crate) ignored: u64,
    /// Reasons why tests were skipped, one entry per skipped test.
    pub(crate) skipped: Vec<String>,
}

impl Counts {
    /// Reads the summaries of one or several Rust test programs from a log.
    pub(crate) fn read(log: &str) -> Counts {
        let mut counts = Counts::default();
        for line in log.lines() {
            if let Some(reason) = line.trim_start().strip_prefix(SKIPPED) {
                counts.skipped.push(reason.to_owned());
            } else if let Some((_, summary)) = line.split_once("test result: ") {
                let number = |what: &str| {
                    let part = summary.split(['.', ';']).find_map(|part| part.trim().strip_suffix(what));
                    part.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
                };
                counts.passed += number("passed");
                counts.failed += number("failed");
                counts.ignored += number("ignored");
            }
        }
        counts
    }
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, more: &Counts) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.ignored += more.ignored;
        self.skipped.extend_from_slice(&more.skipped);
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed", self.passed)?;
        for (number, what) in [(self.failed, "failed"), (self.ignored, "ignored")] {
            if number > 0 {
                write!(f, ", {number} {what}")?;
            }
        }
        if !self.skipped.is_empty() {
            write!(f, ", {} skipped", self.skipped.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_summaries_of_several_programs_are_added_up() {
        let log = "test a ... ok\ntest result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.02s\n\
            skipped: kueue: KUEUE names no folder\ntest result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured\n";
        let counts = Counts::read(log);
        assert_eq!((counts.passed, counts.failed, counts.ignored), (13, 2, 1));
        assert_eq!(counts.skipped, ["kueue: KUEUE names no folder"]);
        assert_eq!(counts.to_string(), "13 passed, 2 failed, 1 ignored, 1 skipped");
    }
}
