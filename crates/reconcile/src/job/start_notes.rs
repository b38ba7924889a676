//! Notes about the repeated starts of one job within one admission.

use std::collections::BTreeMap;

use berth_cache::moments::{after_seconds, seconds_between};
use jiff::Timestamp;

/// Maximum pause in seconds before a repeated start of a job.
const LONGEST_SECONDS: i64 = 300;
/// Duration in seconds of a run after which the next start of the job begins a new row of repeated starts.
const FORGETS_SECONDS: i64 = 600;

/// The rows of repeated starts of the object that holds quota; the key is the name of the Job for kinds whose Jobs Berth starts one by one, otherwise empty.
#[derive(Debug, Default)]
pub struct StartNotes(BTreeMap<Box<str>, StartRow>);

/// A row of repeated starts.
#[derive(Clone, Copy, Debug)]
struct StartRow {
    /// The digest of the job's requests; a job whose requests have changed is started at once.
    shape: u64,
    starts: u32,
    began: Option<Timestamp>,
    stopped: Timestamp,
}

/// A start of a job that is not the first start in the present admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// The number of the repeated start in its row.
    pub number: u32,
    /// The time at which the earlier run was stopped.
    pub stopped: Timestamp,
    /// The time from which the repeated start may happen.
    pub due: Timestamp,
}

impl Again {
    /// The text of the event about the repeated start.
    pub(crate) fn words(&self, now: Timestamp) -> String {
        format!(
            "start {} within one admission: it was stopped {}s ago, and neither evicted nor changed; the next one waits {}s",
            self.number,
            seconds_between(self.stopped, now),
            pause(self.number)
        )
    }
}

/// The pause in seconds before the next repeated start of a job, after the given number of starts.
fn pause(starts: u32) -> i64 {
    2_i64.saturating_pow(starts.saturating_sub(1)).min(LONGEST_SECONDS)
}

impl StartNotes {
    /// Whether no repeated starts are noted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes that a Job of a TrainingJob, or a job of another kind, was observed as stopped while its Workload was admitted.
    pub fn stopped(&mut self, job: &str, (shape, admitted): (u64, Timestamp), now: Timestamp) {
        let row = self.0.entry(job.into()).or_insert(StartRow { shape, starts: 0, began: None, stopped: now });
        let ran = seconds_between(row.began.unwrap_or(admitted), now);
        if row.shape != shape || ran >= FORGETS_SECONDS {
            row.starts = 0;
        }
        *row = StartRow { shape, starts: row.starts.saturating_add(1), began: None, stopped: now };
    }

    /// Notes that a Job was observed to run; true if the start is a repeated start within one admission.
    pub(crate) fn began(&mut self, job: &str, now: Timestamp) -> bool {
        self.0.get_mut(job).is_some_and(|row| row.began.replace(now).is_none())
    }

    /// The next start of a Job for requests with the given digest, if the start is not the first of its admission.
    pub fn again(&self, job: &str, shape: u64) -> Option<Again> {
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
        let starts = |notes: &StartNotes| notes.0[""].starts;
        let mut notes = StartNotes::default();
        notes.stopped("", (1, at(0)), at(5));
        assert!(notes.began("", at(6)) && !notes.began("", at(7)), "seen twice");
        notes.stopped("", (1, at(0)), at(8));
        assert_eq!(starts(&notes), 2);
        notes.stopped("", (2, at(0)), at(9));
        assert_eq!(starts(&notes), 1, "it asks for something else");
        notes.began("", at(10));
        notes.stopped("", (2, at(0)), at(610));
        assert_eq!(starts(&notes), 1, "it ran for ten minutes");
        notes.stopped("", (2, at(605)), at(611));
        assert_eq!(starts(&notes), 2);
        notes = StartNotes::default();
        assert_eq!(notes.0.len(), 0);
    }
}
