//! Rationing of pending reasons: when the code changes, or when the text is a minute old and differs; heads first; after
//! admissions; and never more than a steady rate.

use std::collections::{BTreeMap, BTreeSet};

use berth_engine::model::Verdict;
use jiff::{SignedDuration, Timestamp};

use crate::view::WorkloadView;

/// Text that differs is written again only when it is this old.
const STALE_MS: i64 = 60_000;
/// Writes of reasons per second, and how many may come at once.
const RATE_PER_SECOND: i64 = 10;
const BURST: i64 = 60;

/// What is known of the reasons and still to be written.
#[derive(Debug, Default)]
pub(crate) struct Ration {
    verdicts: BTreeMap<String, (Verdict, Option<Timestamp>)>,
    /// When the last text of a workload was written.
    written: BTreeMap<String, Timestamp>,
    /// Waiting to be written: (not leading, uid).
    queue: BTreeSet<(bool, String)>,
    /// Texts that differ but are young: written at that time.
    later: BTreeSet<(Timestamp, String)>,
    tokens: i64,
    filled_at: Option<Timestamp>,
}

/// Whether a verdict is worth a write now, later or never.
enum Worth {
    Now,
    At(Timestamp),
    Never,
}

fn worth(verdict: &Verdict, workload: &WorkloadView, written: Option<Timestamp>, now: Timestamp) -> Worth {
    let Some(condition) = crate::status::find(&workload.status.conditions, "QuotaReserved") else {
        return Worth::Now;
    };
    if condition.status != "False" || condition.reason != verdict.reason.as_str() {
        return Worth::Now;
    }
    if condition.message == verdict.message {
        return Worth::Never;
    }
    let due = written
        .unwrap_or(condition.last_transition_time.0)
        .checked_add(SignedDuration::from_millis(STALE_MS))
        .unwrap_or(now);
    if due <= now { Worth::Now } else { Worth::At(due) }
}

impl Ration {
    /// Takes a new verdict; it replaces the older one of the workload. `unpaced` lets no text grow old first.
    pub(crate) fn take(&mut self, verdict: Verdict, workload: &WorkloadView, now: Timestamp, unpaced: bool) {
        self.drop_verdict(&verdict.uid);
        let mut at = None;
        match worth(&verdict, workload, self.written.get(&verdict.uid).copied(), now) {
            Worth::At(due) if !unpaced => {
                self.later.insert((due, verdict.uid.clone()));
                at = Some(due);
            }
            Worth::Now | Worth::At(_) => {
                self.queue.insert((!verdict.leading, verdict.uid.clone()));
            }
            Worth::Never => return,
        }
        self.verdicts.insert(verdict.uid.clone(), (verdict, at));
    }

    /// The workload is no longer pending.
    pub(crate) fn forget(&mut self, uid: &str) {
        self.drop_verdict(uid);
        self.written.remove(uid);
    }

    fn drop_verdict(&mut self, uid: &str) {
        if let Some((_, at)) = self.verdicts.remove(uid) {
            self.queue.remove(&(false, uid.to_owned()));
            self.queue.remove(&(true, uid.to_owned()));
            if let Some(at) = at {
                self.later.remove(&(at, uid.to_owned()));
            }
        }
    }

    fn refill(&mut self, now: Timestamp) {
        let Some(last) = self.filled_at else {
            self.tokens = BURST;
            self.filled_at = Some(now);
            return;
        };
        let elapsed = now.as_millisecond().saturating_sub(last.as_millisecond());
        let fresh = elapsed.saturating_mul(RATE_PER_SECOND) / 1000;
        if fresh > 0 {
            self.tokens = self.tokens.saturating_add(fresh).min(BURST);
            self.filled_at = Some(now);
        }
    }

    /// The next verdict to write, if the rate allows one.
    pub(crate) fn next(&mut self, now: Timestamp, unpaced: bool) -> Option<Verdict> {
        self.refill(now);
        while let Some((due, uid)) = self.later.first().cloned() {
            if due > now {
                break;
            }
            self.later.remove(&(due, uid.clone()));
            self.queue.insert((true, uid));
        }
        if self.tokens <= 0 && !unpaced {
            return None;
        }
        let (_, uid) = self.queue.pop_first()?;
        self.tokens = self.tokens.saturating_sub(1);
        self.written.insert(uid.clone(), now);
        self.verdicts.remove(&uid).map(|(verdict, _)| verdict)
    }

    /// Puts a verdict back that could not be written now.
    pub(crate) fn put_back(&mut self, verdict: Verdict) {
        self.queue.insert((true, verdict.uid.clone()));
        self.verdicts.insert(verdict.uid.clone(), (verdict, None));
    }

    /// When to look again.
    pub(crate) fn wake_at(&self, now: Timestamp) -> Option<Timestamp> {
        let soon = now.checked_add(SignedDuration::from_millis(1000 / RATE_PER_SECOND)).ok();
        if self.queue.is_empty() { self.later.first().map(|(due, _)| *due) } else { soon }
    }
}
