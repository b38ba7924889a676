//! Starts in a row of one job, within one admission.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::moments::{after_seconds, seconds_between};

/// The longest pause before a start.
const LONGEST_SECONDS: i64 = 300;
/// A run of so many seconds ends such a row.
const FORGETS_SECONDS: i64 = 600;

/// Starts in a row of the object that holds quota, by the Job's name for kinds whose Jobs are started one by one.
#[derive(Debug, Default)]
pub(crate) struct StartNotes(BTreeMap<Box<str>, StartRow>);

/// Starts in a row.
#[derive(Clone, Copy, Debug)]
struct StartRow {
    /// Digest of the requests: a job that asks for something else is started at once.
    shape: u64,
    starts: u32,
    began: Option<Timestamp>,
    stopped: Timestamp,
}

/// A start that is not the first one of its admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    /// Number of the start in its row.
    pub(crate) number: u32,
    /// Time at which the run before was stopped.
    pub(crate) stopped: Timestamp,
    /// Time from which it may come.
    pub(crate) due: Timestamp,
}

impl Again {
    /// Text of the event about it.
    pub(crate) fn words(&self, now: Timestamp) -> String {
        format!(
            "start {} within one admission: it was stopped {}s ago, and neither evicted nor changed; the next one waits {}s",
            self.number,
            seconds_between(self.stopped, now),
            pause(self.number)
        )
    }
}

/// Seconds before the start after so many.
fn pause(starts: u32) -> i64 {
    2_i64.saturating_pow(starts.saturating_sub(1)).min(LONGEST_SECONDS)
}

impl StartNotes {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes that the Job of that name, or a job that has no such Jobs, was seen stopped under a workload that was admitted then.
    pub(crate) fn stopped(&mut self, job: &str, (shape, admitted): (u64, Timestamp), now: Timestamp) {
        let row = self.0.entry(job.into()).or_insert(StartRow { shape, starts: 0, began: None, stopped: now });
        let ran = seconds_between(row.began.unwrap_or(admitted), now);
        if row.shape != shape || ran >= FORGETS_SECONDS {
            row.starts = 0;
        }
        *row = StartRow { shape, starts: row.starts.saturating_add(1), began: None, stopped: now };
    }

    /// Notes that it was seen to run; true if it did before, in the same admission.
    pub(crate) fn began(&mut self, job: &str, now: Timestamp) -> bool {
        self.0.get_mut(job).is_some_and(|row| row.began.replace(now).is_none())
    }

    /// The next start of it for requests of that digest, where that is not the first of its admission.
    pub(crate) fn again(&self, job: &str, shape: u64) -> Option<Again> {
        let row = self.0.get(job).filter(|row| row.shape == shape)?;
        let due = after_seconds(row.stopped, pause(row.starts));
        Some(Again { number: row.starts.saturating_add(1), stopped: row.stopped, due })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_pause_doubles_with_each_start_up_to_five_minutes() {
        let pauses: Vec<i64> = [1, 2, 3, 4, 9, 10, 64, u32::MAX].map(pause).into();
        assert_eq!(pauses, [1, 2, 4, 8, 256, 300, 300, 300]);
    }

    #[test]
    fn start_count_resets_after_changed_request_or_ten_minute_run() {
        let at = |seconds: i64| after_seconds(Timestamp::UNIX_EPOCH, seconds);
        let starts = |book: &StartNotes| book.0[""].starts;
        let mut book = StartNotes::default();
        book.stopped("", (1, at(0)), at(5));
        assert!(book.began("", at(6)) && !book.began("", at(7)), "seen twice");
        book.stopped("", (1, at(0)), at(8));
        assert_eq!(starts(&book), 2);
        book.stopped("", (2, at(0)), at(9));
        assert_eq!(starts(&book), 1, "it asks for something else");
        book.began("", at(10));
        book.stopped("", (2, at(0)), at(610));
        assert_eq!(starts(&book), 1, "it ran for ten minutes");
        book.stopped("", (2, at(605)), at(611));
        assert_eq!(starts(&book), 2);
        book = StartNotes::default();
        assert_eq!(book.0.len(), 0);
    }
}
