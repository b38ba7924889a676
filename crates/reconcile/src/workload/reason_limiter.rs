//! Rate limit for writes of pending reasons. A reason is written if its code changes, or if its text or the requests differ and the old text is a minute old.
//! Reasons of queue heads are written first, admissions before all reasons, and reasons never faster than a steady rate.

use berth_api::conditions::types;
use berth_cache::WorkloadView;
use berth_engine::model::{PendingReason, Verdict};
use jiff::{SignedDuration, Timestamp};

use crate::notes::WorkloadRecords;
use crate::workload::older_reasons;
use crate::workload::reason_notes::{ReasonNotes, ReasonPlace};
use crate::workload::requests::requests_of;
use crate::workload::status::requests_differ;

/// Age in milliseconds at which the text of a pending reason is written again if the text differs.
const STALE_MS: i64 = 60_000;
/// Largest number of writes of pending reasons per second.
const RATE_PER_SECOND: i64 = 10;
const BURST: i64 = 60;
/// Milliseconds after an admission in which reasons are written at half the rate, so that the API server has time for admissions.
const BUSY_MS: i64 = 1_000;
/// Tokens for one write: each millisecond adds one token for each write per second of the rate.
const WRITE: i64 = 1_000;

/// State of the rate limit for writes of pending reasons. The reasons that are still to be written are in the records of their workloads, and the records are
/// queued by their reasons.
#[derive(Debug, Default)]
pub struct ReasonLimiter {
    /// Tokens for writes of pending reasons; a thousand tokens allow one write.
    tokens: i64,
    filled_at: Option<Timestamp>,
    admitted_at: Option<Timestamp>,
    /// True if Kueue's older reasons are written.
    says_older: bool,
}

/// The time at which a verdict is worth a write: now, later or never.
enum Worth {
    Now,
    At(Timestamp),
    Never,
}

fn worth(
    verdict: &Verdict,
    reason: &str,
    workload: &WorkloadView,
    written: Option<Timestamp>,
    now: Timestamp,
) -> Worth {
    let Some(condition) = crate::workload::status::find(&workload.status.conditions, types::QUOTA_RESERVED) else {
        return Worth::Now;
    };
    if condition.status != "False" || condition.reason != reason {
        return Worth::Now;
    }
    // The numbers in the text of an equal workload's verdict change with each try. A workload whose verdict was copied from an equal workload gets the text
    // once for each reason, and again when the workload becomes the head.
    let says_so = *condition.message == *verdict.message || is_of_class(verdict);
    if says_so && !requests_differ(&workload.status.resource_requests, &requests_of(workload)) {
        return Worth::Never;
    }
    let due = written
        .unwrap_or(condition.last_transition_time.0)
        .checked_add(SignedDuration::from_millis(STALE_MS))
        .unwrap_or(now);
    if due <= now { Worth::Now } else { Worth::At(due) }
}

/// Whether a verdict was copied from an equal workload before this workload.
fn is_of_class(verdict: &Verdict) -> bool {
    let is_of_queue = matches!(verdict.reason, PendingReason::Suspended | PendingReason::Misconfigured);
    !verdict.leading && !is_of_queue
}

impl ReasonLimiter {
    /// A rate limit without verdicts; `says_older` selects Kueue's older reasons.
    pub fn new(says_older: bool) -> Self {
        Self { says_older, ..Self::default() }
    }

    /// The reason under which a verdict is written, `None` if the verdict is not written.
    pub fn reason_to_report(&self, verdict: &Verdict) -> Option<&'static str> {
        if self.says_older { older_reasons::of_verdict(verdict) } else { Some(verdict.reason.as_str()) }
    }

    /// Takes a new verdict, which replaces the older verdict about the workload. With `unpaced`, the new text of a reason does not wait until the text in the
    /// status is old enough.
    pub fn take(
        &self,
        workloads: &mut WorkloadRecords,
        verdict: Verdict,
        workload: &WorkloadView,
        now: Timestamp,
        unpaced: bool,
    ) {
        let known = workloads.of(&verdict.uid).reason();
        if known.next() == Some(&verdict) {
            return;
        }
        let Some(reason) = self.reason_to_report(&verdict) else { return };
        let place = match worth(&verdict, reason, workload, known.written(), now) {
            Worth::At(due) if !unpaced => Some(ReasonPlace::Later(due)),
            Worth::Now | Worth::At(_) => Some(ReasonPlace::Queue(!verdict.leading)),
            Worth::Never => None,
        };
        let uid = verdict.uid.clone();
        let next = place.map(|place| (verdict, place));
        workloads.change(&uid, |notes| notes.reason_mut().wait(next));
    }

    /// Notes that an admission was decided: the workload's reason is dropped, and reasons are written more slowly for a while.
    pub fn admitted(&mut self, workloads: &mut WorkloadRecords, uid: &str, now: Timestamp) {
        self.refill(now);
        self.admitted_at = Some(now);
        forget(workloads, uid);
    }

    fn refill(&mut self, now: Timestamp) {
        let Some(last) = self.filled_at else {
            self.tokens = BURST * WRITE;
            self.filled_at = Some(now);
            return;
        };
        let elapsed = now.as_millisecond().saturating_sub(last.as_millisecond());
        let busy =
            self.admitted_at.is_some_and(|at| last.as_millisecond().saturating_sub(at.as_millisecond()) < BUSY_MS);
        let rate = if busy { RATE_PER_SECOND / 2 } else { RATE_PER_SECOND };
        self.tokens = self.tokens.saturating_add(elapsed.saturating_mul(rate)).min(BURST * WRITE);
        self.filled_at = Some(now);
    }

    /// The next verdict about a pending workload to write, if the rate allows a write.
    pub fn next(&mut self, workloads: &mut WorkloadRecords, now: Timestamp, unpaced: bool) -> Option<Verdict> {
        self.refill(now);
        while let Some((_, uid)) = workloads.first_queued_from(LATER).filter(|(place, _)| is_due(*place, now)) {
            workloads.change(&uid, |notes| notes.reason_mut().move_to(ReasonPlace::Queue(true)));
        }
        if self.tokens < WRITE && !unpaced {
            return None;
        }
        let (_, uid) = workloads.first_queued().filter(|(place, _)| matches!(place, ReasonPlace::Queue(_)))?;
        self.tokens = self.tokens.saturating_sub(WRITE);
        workloads.change(&uid, |notes| notes.reason_mut().write(now))
    }
}

/// The first place behind the queue of pending reasons.
const LATER: ReasonPlace = ReasonPlace::Later(Timestamp::MIN);

/// Whether a reason behind the queue has waited until its old text is old enough.
fn is_due(place: ReasonPlace, now: Timestamp) -> bool {
    matches!(place, ReasonPlace::Later(due) if due <= now)
}

/// Queues a verdict again that could not be written now.
pub fn put_back(workloads: &mut WorkloadRecords, verdict: Verdict) {
    let uid = verdict.uid.clone();
    workloads.change(&uid, |notes| notes.reason_mut().wait(Some((verdict, ReasonPlace::Queue(true)))));
}

/// Forgets the reason of a workload that is no longer pending.
pub fn forget(workloads: &mut WorkloadRecords, uid: &str) {
    workloads.change_known(uid, |notes| *notes.reason_mut() = ReasonNotes::default());
}

/// Time at which the next pending reason may be written.
pub fn wake_at(workloads: &WorkloadRecords, now: Timestamp) -> Option<Timestamp> {
    match workloads.first_queued()?.0 {
        ReasonPlace::Queue(_) => now.checked_add(SignedDuration::from_millis(1000 / RATE_PER_SECOND)).ok(),
        ReasonPlace::Later(due) => Some(due),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;
    use berth_cache::View;
    use berth_cache::settings::Settings;
    use berth_cache::shape::Shapes;
    use berth_cache::slim::slim;

    /// Number of reasons written in ten seconds of a hundred steps each, with an admission in every `admissions`-th step.
    fn written(admissions: usize) -> i64 {
        let (mut reason_limiter, mut all) = (ReasonLimiter::default(), WorkloadRecords::default());
        let mut count = 0;
        for step in 0..1_000 {
            let now = Timestamp::from_millisecond(1_700_000_000_000 + i64::try_from(step).unwrap() * 10).unwrap();
            if step % admissions == 0 {
                reason_limiter.admitted(&mut all, "other", now);
            }
            for index in 0..3 {
                let uid = format!("{step}-{index}");
                put_back(&mut all, verdict(&uid, PendingReason::ExceedsMaxQuota, "never", false));
            }
            while reason_limiter.next(&mut all, now, false).is_some() {
                count += 1;
            }
        }
        count
    }

    #[test]
    fn pending_reasons_are_written_slower_while_admissions_happen() {
        let (quiet, busy) = (written(usize::MAX), written(10));
        // The first second after the only admission counts as busy.
        assert!((BURST + 94..=BURST + 100).contains(&quiet), "{quiet}");
        assert!((BURST + 49..=BURST + 51).contains(&busy), "{busy}");
    }
    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    /// A workload whose status has said since second 0, with the given message, that the workload waits for quota.
    fn with_message(message: &str) -> WorkloadView {
        reason_to_report("WaitingForQuota", message)
    }

    fn reason_to_report(reason: &str, message: &str) -> WorkloadView {
        let condition = json!({"type": "QuotaReserved", "status": "False", "reason": reason,
            "message": message, "lastTransitionTime": at(0).to_string()});
        let object = json!({"metadata": {"namespace": "team", "name": "job-a", "uid": "u"},
            "spec": {"queueName": "lq", "podSets": []}, "status": {"conditions": [condition]}});
        let object = serde_json::from_value(object).unwrap();
        slim(&Settings::default(), &View::default(), &mut Shapes::default(), object)
    }

    fn verdict(uid: &str, reason: PendingReason, message: &str, leading: bool) -> Verdict {
        Verdict { uid: uid.into(), reason, message: message.into(), leading }
    }

    #[test]
    fn pending_reason_that_changed_is_written_at_once() {
        let workload = with_message("1 more needed");
        let (mut reason_limiter, mut all) = (ReasonLimiter::default(), WorkloadRecords::default());
        reason_limiter.take(
            &mut all,
            verdict("u", PendingReason::ExceedsMaxQuota, "1 more needed", false),
            &workload,
            at(1),
            false,
        );
        let next = reason_limiter.next(&mut all, at(1), false);
        assert_eq!(next.map(|verdict| verdict.reason), Some(PendingReason::ExceedsMaxQuota));
        // A message that the status has already is not written again, however old the message is.
        reason_limiter.take(
            &mut all,
            verdict("u", PendingReason::WaitingForQuota, "1 more needed", true),
            &workload,
            at(600),
            false,
        );
        assert_eq!((reason_limiter.next(&mut all, at(600), false), wake_at(&all, at(600))), (None, None));
    }

    #[test]
    fn changed_pending_message_waits_until_old_one_is_minute_old() {
        let workload = with_message("1 more needed");
        let (mut reason_limiter, mut all) = (ReasonLimiter::default(), WorkloadRecords::default());
        let waits = |message: &str| verdict("u", PendingReason::WaitingForQuota, message, true);
        reason_limiter.take(&mut all, waits("2 more needed"), &workload, at(10), false);
        reason_limiter.take(&mut all, waits("3 more needed"), &workload, at(20), false);
        assert_eq!((reason_limiter.next(&mut all, at(59), false), wake_at(&all, at(59))), (None, Some(at(60))));
        assert_eq!(reason_limiter.next(&mut all, at(60), false), Some(waits("3 more needed")), "the last of them");
        assert_eq!(reason_limiter.next(&mut all, at(60), false), None, "and no other");

        // The minute in which no other message of the workload is written begins when the last message was written.
        let workload = with_message("3 more needed");
        reason_limiter.take(&mut all, waits("4 more needed"), &workload, at(61), false);
        assert_eq!((reason_limiter.next(&mut all, at(119), false), wake_at(&all, at(119))), (None, Some(at(120))));
        // While the new message waits, the next message equals the message in the status again.
        reason_limiter.take(&mut all, waits("3 more needed"), &workload, at(119), false);
        assert_eq!((reason_limiter.next(&mut all, at(120), false), wake_at(&all, at(120))), (None, None));
        // With `unpaced`, the new message does not wait until the message in the status is old enough.
        reason_limiter.take(&mut all, waits("5 more needed"), &workload, at(119), true);
        assert_eq!(reason_limiter.next(&mut all, at(119), true), Some(waits("5 more needed")));
    }

    #[test]
    fn equal_workload_gets_numbers_of_its_class_only_once() {
        let workload = with_message("1 more needed");
        let (mut reason_limiter, mut all) = (ReasonLimiter::default(), WorkloadRecords::default());
        let equal = |reason, message: &str| verdict("u", reason, message, false);
        reason_limiter.take(
            &mut all,
            equal(PendingReason::WaitingForQuota, "2 more needed"),
            &workload,
            at(600),
            false,
        );
        assert_eq!((reason_limiter.next(&mut all, at(600), false), wake_at(&all, at(600))), (None, None));
        let other = equal(PendingReason::ExceedsMaxQuota, "2 more needed");
        reason_limiter.take(&mut all, other.clone(), &workload, at(601), false);
        assert_eq!(reason_limiter.next(&mut all, at(601), false), Some(other), "another reason is told");
        // A message about a queue contains no number that changes with each try, so the message is written at once.
        let workload = reason_to_report("Misconfigured", "LocalQueue a doesn't exist");
        let queue = equal(PendingReason::Misconfigured, "ClusterQueue q doesn't exist");
        reason_limiter.take(&mut all, queue.clone(), &workload, at(700), false);
        assert_eq!(reason_limiter.next(&mut all, at(700), false), Some(queue));
    }

    #[test]
    fn queue_heads_get_pending_reasons_before_other_equals() {
        let workload = with_message("1 more needed");
        let (mut reason_limiter, mut all) = (ReasonLimiter::default(), WorkloadRecords::default());
        for (uid, leading) in [("a", false), ("b", false), ("c", true), ("d", false), ("e", true)] {
            reason_limiter.take(
                &mut all,
                verdict(uid, PendingReason::ExceedsMaxQuota, "never", leading),
                &workload,
                at(1),
                false,
            );
        }
        // A verdict that the engine found for the workload itself, and did not copy from an equal workload, makes the workload a head of its queue.
        reason_limiter.take(
            &mut all,
            verdict("d", PendingReason::NoMatchingFlavor, "none", true),
            &workload,
            at(1),
            false,
        );
        let written = std::iter::from_fn(|| reason_limiter.next(&mut all, at(1), false));
        let order: Vec<String> = written.map(|verdict| verdict.uid.to_string()).collect();
        assert_eq!(order, ["c", "d", "e", "a", "b"]);
    }
}
