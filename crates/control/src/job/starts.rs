//! Starts of a job after the first one of its admission. Something that is no eviction stops such a job, and nothing here shows what. Each further
//! start comes later than the one before, so that two controllers that want different things do not make writes and pods without end. A stop never
//! waits.
//!
//! A start counts when it is seen, whoever wrote it: a standby counts on. A new process knows of none.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use berth_api::conditions::types;
use berth_jobs::JobState;
use berth_jobs::training::role_of_child;
use jiff::Timestamp;
use rustc_hash::{FxHashMap, FxHasher};

use crate::cache::{View, WorkloadView};
use crate::measure::Measure;
use crate::moments::{after_seconds, seconds_between};
use crate::training_job::restarts::{goes_for_restart, scaled};
use crate::workload::status::since;
use crate::write::{Kind, ObjectKey};

/// The longest pause before a start.
const LONGEST_SECONDS: i64 = 300;
/// A run of so many seconds ends such a row.
const FORGETS_SECONDS: i64 = 600;
/// The counter of such starts.
const METRIC: &str = "berth_repeated_starts";

/// Starts in a row, by the uid of the object that holds quota, and by the Job's name for kinds whose Jobs are started one by one.
#[derive(Debug, Default)]
pub(crate) struct Starts(pub(crate) FxHashMap<Box<str>, BTreeMap<Box<str>, Row>>);

/// Starts in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
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

/// Digest of the requests of a workload, and of the number of workers of a restart that was noted.
fn shape_of(workload: &WorkloadView) -> u64 {
    let mut hasher = FxHasher::default();
    for set in &workload.shape.digests {
        (&set.name, set.count, set.min_count, set.containers, set.tolerations, set.parts).hash(&mut hasher);
    }
    scaled(workload).map(|scale| scale.workers).hash(&mut hasher);
    hasher.finish()
}

impl Starts {
    /// Notes that the Job of that name, or a job that has no such Jobs, was seen stopped under a workload that was admitted then.
    fn stopped(&mut self, uid: &str, job: &str, (shape, admitted): (u64, Timestamp), now: Timestamp) {
        let rows = self.0.entry(uid.into()).or_default();
        let row = rows.entry(job.into()).or_insert(Row { shape, starts: 0, began: None, stopped: now });
        let ran = seconds_between(row.began.unwrap_or(admitted), now);
        if row.shape != shape || ran >= FORGETS_SECONDS {
            row.starts = 0;
        }
        *row = Row { shape, starts: row.starts.saturating_add(1), began: None, stopped: now };
    }

    /// Notes that it was seen to run; true if it did before, in the same admission.
    fn began(&mut self, uid: &str, job: &str, now: Timestamp) -> bool {
        let row = self.0.get_mut(uid).and_then(|rows| rows.get_mut(job));
        row.is_some_and(|row| row.began.replace(now).is_none())
    }

    /// The next start of it, where that is not the first of its admission.
    pub(crate) fn again(&self, uid: &str, job: &str, workload: &WorkloadView) -> Option<Again> {
        let row = self.0.get(uid)?.get(job).filter(|row| row.shape == shape_of(workload))?;
        let due = after_seconds(row.stopped, pause(row.starts));
        Some(Again { number: row.starts.saturating_add(1), stopped: row.stopped, due })
    }

    /// Notes a new state of a job; true if it shows another start within one admission.
    pub(crate) fn note_stop(&mut self, view: &View, object: &ObjectKey, job: &JobState, now: Timestamp) -> bool {
        if job.finished.is_some() {
            self.forget(&job.uid);
            return false;
        }
        let Some(old) = view.jobs.get(object).filter(|old| old.uid == job.uid) else { return false };
        if old.placed && !old.suspended && job.suspended {
            if let Some(run) = admitted_run(view, &job.uid) {
                self.stopped(&job.uid, "", (shape_of(run), admitted_at(run, now)), now);
            }
            return false;
        }
        old.suspended && !job.suspended && self.began(&job.uid, "", now)
    }

    /// A Job appears. Where it runs the role of a TrainingJob that had another Job for it, that is another start of the TrainingJob: true then.
    pub(crate) fn note_made(&mut self, object: &ObjectKey, job: &JobState, now: Timestamp) -> bool {
        let owner = job.owner.as_ref().filter(|owner| *owner.kind == *Kind::TrainingJob.name());
        owner.is_some_and(|owner| self.began(&owner.uid, &object.name, now))
    }

    /// A Job is gone. Where that was no step of a restart, the TrainingJob that it ran was stopped.
    pub(crate) fn note_lost(&mut self, view: &View, object: &ObjectKey, job: &JobState, now: Timestamp) {
        self.forget(&job.uid);
        let Some(owner) = job.owner.as_ref().filter(|owner| *owner.kind == *Kind::TrainingJob.name()) else { return };
        if job.finished.is_some() || role_of_child(&owner.name, &object.name).is_none() {
            return;
        }
        if let Some(run) = admitted_run(view, &owner.uid).filter(|run| !goes_for_restart(run, job)) {
            self.stopped(&owner.uid, &object.name, (shape_of(run), admitted_at(run, now)), now);
        }
    }

    /// Forgets a job that is gone, or over, or was evicted.
    pub(crate) fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }
}

/// The workload under which a job runs, or has run a moment before, unless it was evicted.
fn admitted_run<'a>(view: &'a View, uid: &str) -> Option<&'a WorkloadView> {
    let owned = view.workloads_of(uid);
    let newest = owned.into_iter().rev().find(|workload| !workload.is(types::FINISHED))?;
    (!newest.is(types::EVICTED)).then_some(newest)
}

/// The measure of a start that is not the first one of its admission.
pub(crate) fn measure(kind: Kind) -> Measure {
    Measure::Count { name: METRIC, labels: vec![("kind", kind.name().to_owned())], by: 1 }
}

fn admitted_at(workload: &WorkloadView, now: Timestamp) -> Timestamp {
    since(&workload.status.conditions, types::ADMITTED, "True").unwrap_or(now)
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
        let starts = |book: &Starts| book.0["a"][""].starts;
        let mut book = Starts::default();
        book.stopped("a", "", (1, at(0)), at(5));
        assert!(book.began("a", "", at(6)) && !book.began("a", "", at(7)), "seen twice");
        book.stopped("a", "", (1, at(0)), at(8));
        assert_eq!(starts(&book), 2);
        book.stopped("a", "", (2, at(0)), at(9));
        assert_eq!(starts(&book), 1, "it asks for something else");
        book.began("a", "", at(10));
        book.stopped("a", "", (2, at(0)), at(610));
        assert_eq!(starts(&book), 1, "it ran for ten minutes");
        book.stopped("a", "", (2, at(605)), at(611));
        assert_eq!(starts(&book), 2);
        book.forget("a");
        assert_eq!(book.0.len(), 0);
    }
}
