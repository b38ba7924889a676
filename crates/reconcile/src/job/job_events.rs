//! Events at a job about the reason why its Workload waits: one event for the first reason, and one for each other reason, but at most one in five minutes.
//! Events about the reason of a Workload are published with writes that are made anyway. An event about a reason that came within five minutes after the last
//! event is published by itself, without another write, when the five minutes are over.

use std::collections::BTreeSet;

use berth_api::conditions::{reasons, types};
use berth_cache::pods::SetIndex;
use berth_cache::{View, WorkloadView};
use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;

use crate::decision::Draft;
use crate::workload::status::find;
use crate::write::{EventType, Kind, Notice, ObjectKey, Purpose, SCHEDULER};

/// Minimum time between two events about the reason of one Workload.
const PAUSE: SignedDuration = SignedDuration::from_secs(300);
/// If more than this number of Workloads is remembered, Workloads whose last event is older than the minimum time between two events are forgotten.
const FEW: usize = 1024;

/// The last event that was sent at a job.
#[derive(Debug)]
struct SentEvent {
    reason: Box<str>,
    at: Timestamp,
}

impl SentEvent {
    fn due(&self) -> Timestamp {
        self.at.checked_add(PAUSE).unwrap_or(Timestamp::MAX)
    }
}

/// The last events of jobs, by the uid of their Workload.
#[derive(Debug, Default)]
pub(crate) struct JobEvents {
    sent: FxHashMap<Box<str>, SentEvent>,
    /// Workloads whose reason has changed since the last event, with the time from which the next event may be sent.
    later: BTreeSet<(Timestamp, Box<str>)>,
    /// Number of Workloads that were still remembered after old entries were last forgotten.
    left: usize,
    /// Time of the first reason that this process reports; an earlier leader has reported earlier reasons.
    since: Option<Timestamp>,
}

impl JobEvents {
    /// Whether the job of a Workload gets an event about a reason now. An event about a changed reason is sent later if the last event is less than five
    /// minutes old.
    fn may_send(&mut self, uid: &str, reason: &str, now: Timestamp) -> bool {
        if let Some(sent) = self.sent.get(uid) {
            let due = sent.due();
            if *sent.reason == *reason {
                // The reason of the Workload has changed for a while, and has changed back.
                self.later.remove(&(due, uid.into()));
                return false;
            }
            if due > now {
                self.later.insert((due, uid.into()));
                return false;
            }
        }
        self.note(uid, reason, now);
        true
    }

    fn note(&mut self, uid: &str, reason: &str, at: Timestamp) {
        if self.sent.len() >= self.left.saturating_mul(2).max(FEW) {
            self.sent.retain(|_, sent| sent.due() > at);
            self.left = self.sent.len();
        }
        self.sent.insert(uid.into(), SentEvent { reason: reason.into(), at });
    }

    /// Removes and returns a Workload whose job may get an event now, if the reason still differs from the last event.
    fn next_due(&mut self, now: Timestamp) -> Option<Box<str>> {
        let first = self.later.first().filter(|(due, _)| *due <= now)?.clone();
        self.later.remove(&first);
        Some(first.1)
    }

    /// The time at which the next delayed event is due.
    pub(crate) fn wake_at(&self) -> Option<Timestamp> {
        self.later.first().map(|(due, _)| *due)
    }

    /// Adds the event at a job to the write that explains why its Workload waits.
    pub(crate) fn note_draft(&mut self, view: &View, draft: &mut Draft, now: Timestamp) {
        if !matches!(draft.purpose, Purpose::ExplainPending | Purpose::ExplainUnseen) {
            return;
        }
        let name = (draft.key.namespace.clone(), draft.key.name.clone());
        let Some(workload) = view.workloads().get(&name) else { return };
        let says_why = |notice: &&Notice| notice.key == draft.key && notice.event_type == EventType::Warning;
        let Some(notice_of_draft) =
            draft.notices.iter().find(says_why).filter(|notice_of_draft| !notice_of_draft.message.is_empty())
        else {
            return;
        };
        let uid = workload.uid.as_str();
        let since = *self.since.get_or_insert(now);
        if !self.sent.contains_key(uid)
            && let Some((reason, _)) = reason_of(workload).filter(|_| was_reported_before(workload, since))
        {
            // An earlier leader has sent the event about the reason that the Workload's status shows, at a time that this process does not know.
            self.note(uid, reason, since);
        }
        if let Some(job) = event_target(workload, view.sets())
            && self.may_send(uid, &notice_of_draft.reason, now)
        {
            let notice = event(job, &notice_of_draft.reason, &notice_of_draft.message);
            draft.notices.push(notice);
        }
    }

    /// The events that are due at jobs whose reason had changed too early for an event.
    pub(crate) fn due(&mut self, view: &View, now: Timestamp) -> Vec<Notice> {
        let mut notices = Vec::new();
        while let Some(uid) = self.next_due(now) {
            let Some(workload) = view.workloads().by_uid(&uid) else { continue };
            let Some((reason, message)) = reason_of(workload).filter(|(_, message)| !message.is_empty()) else {
                continue;
            };
            if let Some(job) = event_target(workload, view.sets())
                && self.may_send(&uid, reason, now)
            {
                notices.push(event(job, reason, message));
            }
        }
        notices
    }
}

/// The reason and the message why a Workload waits, from its status; `None` if the Workload does not wait or has no reason.
fn reason_of(workload: &WorkloadView) -> Option<(&str, &str)> {
    let sent = find(&workload.status.conditions, types::QUOTA_RESERVED)?;
    let waits = sent.status == "False" && workload.active && !workload.deleting && !workload.is_finished();
    waits.then_some((sent.reason.as_str(), sent.message.as_str()))
}

/// Whether the reason for which a Workload waits was written before the given time.
fn was_reported_before(workload: &WorkloadView, time: Timestamp) -> bool {
    let sent = find(&workload.status.conditions, types::QUOTA_RESERVED);
    sent.is_some_and(|sent| sent.last_transition_time.0 < time)
}

/// The key and the uid of the object that gets the events about a Workload: its job, the StatefulSet of a pod group, or the first pod by name of any other
/// group.
fn event_target(workload: &WorkloadView, sets: &SetIndex) -> Option<(ObjectKey, String)> {
    let owner = workload.owner_key()?;
    if owner.kind != Kind::PodGroup {
        let uid = workload.owner.as_ref()?.uid.clone();
        return Some((owner, uid));
    }
    // The pods of a StatefulSet do not own its Workload.
    if let Some((name, set)) = sets.of_group(&(owner.namespace.clone(), owner.name.clone())) {
        let object = ObjectKey { kind: Kind::StatefulSet, namespace: owner.namespace, name: name.to_owned() };
        return Some((object, set.uid.to_string()));
    }
    let first = workload.group.iter().flatten().min_by(|one, other| one.name.cmp(&other.name))?;
    let object = ObjectKey { kind: Kind::Pod, namespace: owner.namespace, name: first.name.to_string() };
    Some((object, first.uid.to_string()))
}

/// The event about a reason at the given object.
fn event((key, uid): (ObjectKey, String), reason: &str, message: &str) -> Notice {
    Notice {
        key,
        uid,
        event_type: if reason == reasons::MISCONFIGURED { EventType::Warning } else { EventType::Normal },
        reason: reason.to_owned(),
        message: message.to_owned(),
        reporter: SCHEDULER,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    #[test]
    fn job_event_waits_five_minutes_and_repeated_reason_is_dropped() {
        let mut events = JobEvents::default();
        assert!(events.may_send("u", "WaitingForQuota", at(0)));
        assert!(!events.may_send("u", "WaitingForQuota", at(400)));
        assert!(events.may_send("u", "ExceedsMaxQuota", at(401)));
        assert!(!events.may_send("u", "WaitingForQuota", at(500)));
        assert_eq!(events.wake_at(), Some(at(701)));
        assert_eq!((events.next_due(at(700)), events.next_due(at(701)).as_deref()), (None, Some("u")));
        assert!(events.may_send("u", "WaitingForQuota", at(701)));
        assert_eq!(events.wake_at(), None);
    }

    #[test]
    fn delayed_job_event_is_dropped_when_earlier_reason_returns() {
        let mut events = JobEvents::default();
        assert!(events.may_send("u", "WaitingForQuota", at(0)));
        assert!(!events.may_send("u", "Suspended", at(10)));
        assert!(!events.may_send("u", "WaitingForQuota", at(20)));
        assert_eq!(events.wake_at(), None);
    }

    #[test]
    fn jobs_with_only_old_events_are_forgotten() {
        let mut events = JobEvents::default();
        for number in 0..10_000 {
            assert!(events.may_send(&format!("u-{number}"), "WaitingForQuota", at(number * 10)));
        }
        assert!(events.sent.len() <= 2 * FEW, "{}", events.sent.len());
    }
}
