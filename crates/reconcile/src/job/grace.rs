//! Grace periods of jobs that save checkpoints. Before a running job is stopped, or its number of workers changes, the job is asked to save a checkpoint.
//! During the grace period, the pods of the job have an annotation, and are stopped only when the job has saved or the period is over.

use std::collections::BTreeMap;

use berth_api::conditions::{own_reasons, types};
use berth_api::labels;
use berth_cache::WorkloadView;
use berth_cache::moments::{after, after_seconds, millis_between};
use berth_cache::tier_reasons::CLIMBED_BACK;
use jiff::Timestamp;

use crate::context::Context;
use crate::decision::{Decision, Draft};
use crate::job::altered::runs_beyond_quota;
use crate::job::save_requests::{Before, LastSave, Noted, Recipients, SaveRequest};
use crate::training_job::saves::{is_shown, last_save};
use crate::workload::status::{cut, find_true, seconds};
use crate::write::{Action, Notice, ObjectKey, Purpose, Write};

/// Grace period in milliseconds of a TrainingJob, if no QueuePolicy sets one.
const GRACE_MS: i64 = 30_000;
/// Time in seconds after the last checkpoint of a job in which the job is not asked for another one before it moves back to a better tier or loses workers.
/// Another checkpoint so soon after the last checkpoint would delay the job longer than repeating the lost work.
const FRESH_SECONDS: i64 = 60;
/// Time in seconds after the grace period of a request to save before a loss of workers, for which the request still counts for this loss.
const REMEMBERED_SECONDS: i64 = 60;
/// Reason of a request to save before a loss of workers, and of the event about the loss.
pub(crate) const SCALING_DOWN: &str = own_reasons::SCALING_DOWN;
/// Maximum length in bytes of the text of a request to save.
const REASON_LIMIT: usize = 512;

/// The grace period of a job that saves checkpoints and is to stop or to lose workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grace {
    /// The reason why the job is to save, as the conditions of its Workload name it.
    pub(crate) reason: String,
    /// The message of the request to save, in words for the user.
    pub(crate) message: String,
    /// The time at which the job's grace period is over.
    pub(crate) until: Timestamp,
    /// True if the job has saved since the request, or shortly before a request that does not stop the job for good.
    pub(crate) saved: bool,
}

impl Grace {
    /// Whether the job may still run on to save.
    pub(crate) fn lasts(&self, now: Timestamp) -> bool {
        !self.saved && now < self.until
    }

    /// The message of the request to save, for the user of the job.
    pub(crate) fn request(&self) -> String {
        cut(&format!("asked to save a checkpoint before {}: {}", seconds(self.until), self.message), REASON_LIMIT)
    }

    /// The next step during the grace period: the pods of the job are notified once, and then control waits until the grace period is over.
    pub(crate) fn wait(&self, ctx: &Context<'_>, workload: &WorkloadView, notice: Notice) -> Decision {
        if ctx.notes_of(workload).save().notified().is_some_and(|notified| notified.pods) {
            return Decision::Wait(self.until);
        }
        let names = [labels::STOP_AT, labels::STOP_REASON];
        self.notify(ctx, workload, (Purpose::NotifyPods, names), notice)
    }

    /// Annotates the pods with the time at which the grace period is over, and with the reason to save; `until` and `why` are the names of the annotations.
    pub(crate) fn notify(
        &self,
        ctx: &Context<'_>,
        workload: &WorkloadView,
        (purpose, [until, why]): (Purpose, [&str; 2]),
        notice: Notice,
    ) -> Decision {
        let notified = BTreeMap::from([
            (until.to_owned(), seconds(self.until).to_string()),
            (why.to_owned(), cut(&format!("{}: {}", self.reason, self.message), REASON_LIMIT)),
        ]);
        let write = Write::AnnotatePods { pods: ctx.training.pods_of(workload), annotations: notified };
        let draft = Draft::of_any_version(purpose, workload.object_key(), write);
        Decision::write(draft.with_event(notice))
    }
}

/// The note about a write that asks a job to save or evicts it, with the uid of the Workload; `None` for any other write.
pub fn noted(ctx: &Context<'_>, draft: &Draft, now: Timestamp) -> Option<(String, Noted)> {
    if draft.purpose != Purpose::Evict && !draft.purpose.asks_to_save() {
        return None;
    }
    let workload = ctx.view.workloads().get(&(draft.key.namespace.clone(), draft.key.name.clone()))?;
    let notified = Recipients { pods: false, user: is_shown(ctx.view, workload) };
    let noted = match (draft.purpose, &draft.action) {
        (Purpose::Evict, _) => Noted::Evicted(Before { at: now, save: ctx.last_save(workload) }),
        (Purpose::NotifyPods, _) => Noted::Notified(notified),
        (Purpose::AskToSave, Action::Write(Write::AnnotatePods { annotations, .. }))
            if ctx.asked(workload, now).is_none() =>
        {
            let until = after(now, ctx.grace_ms(workload).unwrap_or(GRACE_MS));
            let words = annotations.get(labels::SAVE_REASON).map(String::as_str).unwrap_or_default();
            let (reason, why) = words.split_once(": ").unwrap_or((SCALING_DOWN, words));
            Noted::Asked(SaveRequest {
                at: now,
                until,
                why: (reason.to_owned(), why.to_owned()),
                notified,
                over: false,
            })
        }
        _ => return None,
    };
    Some((workload.uid.clone(), noted))
}

impl<'a> Context<'a> {
    /// The time at which the grace period is over to which a write with the given purpose belongs; `None` if the write asks no job to save.
    pub fn end_of_grace(&self, object: &ObjectKey, purpose: Purpose) -> Option<Timestamp> {
        if !purpose.asks_to_save() {
            return None;
        }
        let workload = self.view.workloads().get(&(object.namespace.clone(), object.name.clone()))?;
        if purpose == Purpose::AskToSave {
            return self.notes_of(workload).save().asked().map(|asked| self.end_of(asked));
        }
        Some(self.grace_within(workload, self.grace_ms(workload).unwrap_or(GRACE_MS))?.until)
    }

    /// The time at which the grace period of a request to save is over.
    fn end_of(&self, asked: &SaveRequest) -> Timestamp {
        self.view.timeline().after(asked.at, millis_between(asked.at, asked.until))
    }

    /// The request to save that still counts at `now` for a Workload; `None` if there is none.
    fn asked(&self, workload: &WorkloadView, now: Timestamp) -> Option<&'a SaveRequest> {
        let asked = self.notes_of(workload).save().asked()?;
        (!asked.over && now < after_seconds(self.end_of(asked), REMEMBERED_SECONDS)).then_some(asked)
    }

    /// The grace period of a Workload's TrainingJob before a loss of workers, and whether its pods were notified; `None` if no request to save counts.
    pub(crate) fn asked_to_save(&self, workload: &WorkloadView, now: Timestamp) -> Option<(Grace, bool)> {
        let notified = self.asked(workload, now)?.notified.pods;
        Some((self.last_request(workload)?.0, notified))
    }

    /// The last request to save before a loss of workers that a Workload's job got, with its grace period, even if the grace period is over.
    pub(crate) fn last_request(&self, workload: &WorkloadView) -> Option<(Grace, &'a SaveRequest)> {
        let asked = self.notes_of(workload).save().asked()?;
        let (reason, why) = &asked.why;
        Some((self.grace_to_scale(workload, (asked.at, self.end_of(asked)), (reason.as_str(), why.as_str())), asked))
    }

    /// The grace period that a job would get now; `None` if the job saves no checkpoints, has saved recently, or gets no time.
    pub(crate) fn time_to_save(&self, workload: &WorkloadView, now: Timestamp, why: (&str, &str)) -> Option<Grace> {
        self.view.training().get(&workload.training_job()?).filter(|job| job.facts.saves)?;
        let until = after(now, self.grace_ms(workload).unwrap_or(GRACE_MS));
        Some(self.grace_to_scale(workload, (now, until), why)).filter(|grace| grace.lasts(now))
    }

    fn grace_to_scale(
        &self,
        workload: &WorkloadView,
        (asked, until): (Timestamp, Timestamp),
        (reason, why): (&str, &str),
    ) -> Grace {
        let saved = self.saved_at(workload).is_some_and(|at| at >= after_seconds(asked, -FRESH_SECONDS));
        Grace { reason: reason.to_owned(), message: why.to_owned(), until, saved }
    }

    /// The grace period in milliseconds that the QueuePolicy of a Workload's ClusterQueue sets.
    pub(crate) fn grace_ms(&self, workload: &WorkloadView) -> Option<i64> {
        self.rules_for(workload).and_then(|rules| rules.grace_ms)
    }

    /// The grace period of the TrainingJob of an evicted Workload, if the TrainingJob saves checkpoints.
    pub(crate) fn grace_of(&self, workload: &WorkloadView) -> Option<Grace> {
        self.view.training().get(&workload.training_job()?).filter(|job| job.facts.saves)?;
        let evicted = find_true(&workload.status.conditions, types::EVICTED)?;
        // A run beyond quota uses quota that was not given to the Workload, so the run gets no grace period.
        if runs_beyond_quota(&evicted.reason) {
            return None;
        }
        self.grace_within(workload, self.grace_ms(workload).unwrap_or(GRACE_MS))
    }

    /// The grace period of an evicted Workload; `None` if the Workload is not evicted. A save that was known at the eviction does not end the grace period: the
    /// times of conditions, and of some stores, are full seconds, so the order within a second is unknown.
    pub(crate) fn grace_within(&self, workload: &WorkloadView, grace_ms: i64) -> Option<Grace> {
        let evicted = find_true(&workload.status.conditions, types::EVICTED)?;
        let asked = evicted.last_transition_time.0;
        let answers = |save: LastSave| match self.notes_of(workload).save().before() {
            // If a job is evicted to move back to a better tier, a save shortly before the eviction ends the grace period, too, because the job was chosen for
            // having saved recently.
            _ if evicted.reason == CLIMBED_BACK => save.0 >= after_seconds(asked, -FRESH_SECONDS),
            Some(before) => before.precedes(save, asked),
            None => save.0 >= asked,
        };
        Some(Grace {
            reason: evicted.reason.clone(),
            message: evicted.message.clone(),
            until: self.view.timeline().after(asked, grace_ms),
            saved: self.last_save(workload).is_some_and(answers),
        })
    }

    /// The time of the last known save of a Workload's job.
    pub(crate) fn saved_at(&self, workload: &WorkloadView) -> Option<Timestamp> {
        self.last_save(workload).map(|(at, _)| at)
    }

    fn last_save(&self, workload: &WorkloadView) -> Option<LastSave> {
        last_save(self.notes.jobs(), self.view, workload)
    }
}

#[cfg(test)]
mod tests;
