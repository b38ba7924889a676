//! Grace periods: before a running job is stopped, or its number of workers changes, it is asked to save its work. Its pods get an annotation, and
//! their signal only when they have saved or the grace period is over.

use std::collections::BTreeMap;

use berth_api::conditions::{own_reasons, types};
use berth_api::labels;
use jiff::Timestamp;

use crate::cache::{Name, WorkloadView};
use crate::capacity::watch::CLIMBED_BACK;
use crate::context::Context;
use crate::controller::flight::{Decision, Draft};
use crate::controller::{Control, after, after_seconds, key, millis_between};
use crate::job::altered::runs_beyond_quota;
use crate::training_job::status::CHECKPOINT_REQUESTED;
use crate::workload::status::{cut, find_true, is_true, seconds};
use crate::write::{Kind, Notice, ObjectKey, Outcome, Purpose, Request};

/// Grace period of a TrainingJob where no policy sets one, in milliseconds.
const GRACE_MS: i64 = 30_000;
/// A job that returns to a better tier or loses workers is asked for no other checkpoint within this many seconds after its last one: another would
/// delay the job longer than the work that it loses took.
const FRESH_SECONDS: i64 = 60;
/// Seconds after the end of a request to save before workers go in which the request still stands for the same loss of workers.
const REMEMBERED_SECONDS: i64 = 60;
/// Reason of a request to save before workers go, and of the event of their going.
pub(crate) const SCALING_DOWN: &str = own_reasons::SCALING_DOWN;
/// Longest text of a request to save, in bytes.
const REASON_LIMIT: usize = 512;

/// Recipients that know of a request to save. The request stands from the first try on: pods may know of it, whatever became of that try.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    /// The pods know, or cannot be notified.
    pub(crate) pods: bool,
    /// The status of the job has said so.
    pub(crate) user: bool,
}

/// A request to a running job to save its work before some of its workers go.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    at: Timestamp,
    until: Timestamp,
    /// Reason and message of the request, as the pods get them.
    why: (String, String),
    pub(crate) told: Told,
    /// The workers have gone.
    pub(crate) over: bool,
}

impl Asked {
    /// Ends the request when the workers go: the next loss of workers gets a request of its own.
    pub(crate) fn end(&mut self, now: Timestamp) {
        self.until = self.until.min(now);
        self.over = true;
    }
}

/// Time of a job's last save, and the step where it is known: of two saves within a second the greater step is the later one.
type LastSave = (Timestamp, Option<i64>);

/// State of a job's saves when it was evicted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    /// Time of the eviction write: the condition has whole seconds only.
    at: Timestamp,
    /// Last save of the job at that time.
    save: Option<LastSave>,
}

impl Before {
    /// Whether a save is newer than the eviction whose condition has the time `evicted`. Where both fall into one second and the save has no finer
    /// time, only a save that is later than the known one counts as newer.
    fn precedes(&self, save: LastSave, evicted: Timestamp) -> bool {
        let finer = save.0.subsec_nanosecond() != 0 && seconds(self.at) == evicted;
        let since = if finer { self.at } else { evicted };
        save.0 >= since && self.save.is_none_or(|known| save > known)
    }
}

/// Grace period of a job that saves its work and is to stop, or to lose workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grace {
    /// Why the job is to save.
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) until: Timestamp,
    /// The job has saved since it was asked to, or, where it does not stop for good, shortly before.
    pub(crate) saved: bool,
}

impl Grace {
    /// Whether the job may go on for now.
    pub(crate) fn lasts(&self, now: Timestamp) -> bool {
        !self.saved && now < self.until
    }

    /// Message of the request for the user of the job.
    pub(crate) fn request(&self) -> String {
        cut(&format!("asked to save a checkpoint before {}: {}", seconds(self.until), self.message), REASON_LIMIT)
    }

    /// The next step during the grace period: the job's pods are notified once, then waited for.
    pub(crate) fn wait(&self, ctx: &Context<'_>, workload: &WorkloadView, notice: Notice) -> Decision {
        if ctx.training.saving.notified.get(&workload.uid).is_some_and(|told| told.pods) {
            return Decision::Wait(self.until);
        }
        let names = [labels::STOP_AT, labels::STOP_REASON];
        self.tell(ctx, workload, (Purpose::NotifyPods, names), notice)
    }

    /// Notifies the pods until when and why they are to save, by annotations of these names.
    pub(crate) fn tell(
        &self,
        ctx: &Context<'_>,
        workload: &WorkloadView,
        (purpose, [until, why]): (Purpose, [&str; 2]),
        notice: Notice,
    ) -> Decision {
        let told = BTreeMap::from([
            (until.to_owned(), seconds(self.until).to_string()),
            (why.to_owned(), cut(&format!("{}: {}", self.reason, self.message), REASON_LIMIT)),
        ]);
        let request = Request::AnnotatePods { pods: ctx.pods_of(workload), annotations: told };
        let draft = Draft::of_any_version(purpose, key(Kind::Workload, &workload.key()), request);
        Decision::write(draft.telling(notice))
    }
}

impl Control {
    /// Notes a write that asks a job to save, or evicts it. The grace period begins with the first try: a repeated request does not extend it, and a
    /// timer is set for its end, whatever is under way then.
    pub(crate) fn note_request_to_save(&mut self, draft: &Draft, origin: &ObjectKey, now: Timestamp) {
        if draft.purpose != Purpose::Evict && !draft.purpose.asks_to_save() {
            return;
        }
        let name = (draft.key.namespace.clone(), draft.key.name.clone());
        let Some(workload) = self.view.workloads.get(&name) else { return };
        let (uid, told) = (workload.uid.clone(), Told { pods: false, user: self.context().is_shown(workload) });
        match (draft.purpose, &draft.request) {
            (Purpose::Evict, _) => {
                let before = Before { at: now, save: self.context().last_save(workload) };
                self.training.saving.before.insert(uid, before);
            }
            (Purpose::NotifyPods, _) => {
                self.training.saving.notified.entry(uid).or_insert(told);
            }
            (Purpose::AskToSave, Request::AnnotatePods { annotations, .. })
                if self.context().asked(workload, now).is_none() =>
            {
                let until = after(now, self.context().grace_ms(workload).unwrap_or(GRACE_MS));
                let words = annotations.get(labels::SAVE_REASON).map(String::as_str).unwrap_or_default();
                let (reason, why) = words.split_once(": ").unwrap_or((SCALING_DOWN, words));
                let asked = Asked { at: now, until, why: (reason.to_owned(), why.to_owned()), told, over: false };
                self.training.saving.asked.insert(uid, asked);
            }
            _ => {}
        }
        if let Some(end) = self.context().end_of_grace(&draft.key, draft.purpose) {
            self.wait(origin.clone(), end);
        }
    }

    /// Notes the outcome of a notification of pods. Pods that cannot be notified are not waited for longer than others. Any other failure is tried
    /// again with the same annotations, so that a pod that has them sees no change.
    pub(crate) fn note_notified(&mut self, object: &ObjectKey, purpose: Purpose, outcome: &Outcome) {
        let told = matches!(outcome, Outcome::Applied { .. } | Outcome::Gone | Outcome::Refused(_));
        let Some(uid) = self.context().uid_of(object).filter(|_| told && purpose.asks_to_save()) else { return };
        let request = match purpose {
            Purpose::NotifyPods => self.training.saving.notified.get_mut(&uid),
            _ => self.training.saving.asked.get_mut(&uid).map(|asked| &mut asked.told),
        };
        if let Some(request) = request {
            request.pods = true;
        }
    }

    /// Ends the back-off of a request to save with the grace period at the latest.
    pub(crate) fn retry_within_grace(&mut self, object: &ObjectKey, purpose: Purpose) {
        if let Some(end) = self.context().end_of_grace(object, purpose) {
            self.flights.not_beyond(object, end);
        }
    }

    /// Notes that the status of a TrainingJob shows the request to save.
    pub(crate) fn note_shown(&mut self, name: &Name) {
        let Some(job) = self.view.training.get(name) else { return };
        let Some(workload) = self.view.slice_of(&job.uid).filter(|workload| self.context().is_shown(workload)) else {
            return;
        };
        let uid = workload.uid.clone();
        if let Some(told) = self.training.saving.notified.get_mut(&uid) {
            told.user = true;
        }
        if let Some(asked) = self.training.saving.asked.get_mut(&uid) {
            asked.told.user = true;
        }
    }

    /// Keeps the last save of a workload's job when its eviction was stored: the job was not asked to save before that.
    pub(crate) fn note_evicted(&mut self, name: &Name) {
        let Some(workload) = self.view.workloads.get(name) else { return };
        let save = self.context().last_save(workload);
        if let Some(before) = self.training.saving.before.get_mut(&workload.uid) {
            before.save = save;
        }
    }
}

impl<'a> Context<'a> {
    /// End of the grace period to which a write of that purpose belongs.
    fn end_of_grace(&self, object: &ObjectKey, purpose: Purpose) -> Option<Timestamp> {
        if !purpose.asks_to_save() {
            return None;
        }
        let workload = self.view.workloads.get(&(object.namespace.clone(), object.name.clone()))?;
        if purpose == Purpose::AskToSave {
            return self.training.saving.asked.get(&workload.uid).map(|asked| self.end_of(asked));
        }
        Some(self.grace_within(workload, self.grace_ms(workload).unwrap_or(GRACE_MS))?.until)
    }

    /// Whether the status of the TrainingJob of a workload says that it is asked to save.
    fn is_shown(&self, workload: &WorkloadView) -> bool {
        let job = workload.training_job().and_then(|name| self.view.training.get(&name));
        job.is_some_and(|job| is_true(&job.status.conditions, CHECKPOINT_REQUESTED))
    }

    /// End of the grace period that a request gives.
    fn end_of(&self, asked: &Asked) -> Timestamp {
        self.view.timeline.after(asked.at, millis_between(asked.at, asked.until))
    }

    /// The request that still stands.
    fn asked(&self, workload: &WorkloadView, now: Timestamp) -> Option<&'a Asked> {
        let asked = self.training.saving.asked.get(&workload.uid)?;
        (!asked.over && now < after_seconds(self.end_of(asked), REMEMBERED_SECONDS)).then_some(asked)
    }

    /// Grace period of the TrainingJob of a workload before workers go, and whether its pods know; `None` when it is not asked.
    pub(crate) fn asked_to_save(&self, workload: &WorkloadView, now: Timestamp) -> Option<(Grace, bool)> {
        let told = self.asked(workload, now)?.told.pods;
        Some((self.last_request(workload)?.0, told))
    }

    /// The same of the last such request, whether it is over or not.
    pub(crate) fn last_request(&self, workload: &WorkloadView) -> Option<(Grace, &'a Asked)> {
        let asked = self.training.saving.asked.get(&workload.uid)?;
        let (reason, why) = &asked.why;
        Some((self.grace_to_scale(workload, (asked.at, self.end_of(asked)), (reason.as_str(), why.as_str())), asked))
    }

    /// Grace period that the job would get now; `None` if it does not save, has just done so, or gets no time.
    pub(crate) fn time_to_save(&self, workload: &WorkloadView, now: Timestamp, why: (&str, &str)) -> Option<Grace> {
        self.view.training.get(&workload.training_job()?).filter(|job| job.facts.saves)?;
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

    /// Grace period that the policy of a workload's queue sets, in milliseconds.
    pub(crate) fn grace_ms(&self, workload: &WorkloadView) -> Option<i64> {
        self.rules_for(workload).and_then(|rules| rules.grace_ms)
    }

    /// Grace period of the TrainingJob of an evicted workload, if the job saves its work.
    pub(crate) fn grace_of(&self, workload: &WorkloadView) -> Option<Grace> {
        self.view.training.get(&workload.training_job()?).filter(|job| job.facts.saves)?;
        let evicted = find_true(&workload.status.conditions, types::EVICTED)?;
        // Such a run uses quota that it was not given.
        if runs_beyond_quota(&evicted.reason) {
            return None;
        }
        self.grace_within(workload, self.grace_ms(workload).unwrap_or(GRACE_MS))
    }

    /// Grace period of an evicted workload, `None` of one that is not evicted. A save that was known when the eviction was written does not answer
    /// it: conditions have whole seconds, as some stores do, and the order within a second is not seen.
    pub(crate) fn grace_within(&self, workload: &WorkloadView, grace_ms: i64) -> Option<Grace> {
        let evicted = find_true(&workload.status.conditions, types::EVICTED)?;
        let asked = evicted.last_transition_time.0;
        let answers = |save: LastSave| match self.training.saving.before.get(&workload.uid) {
            // A job returns to a better tier because it has saved.
            _ if evicted.reason == CLIMBED_BACK => save.0 >= after_seconds(asked, -FRESH_SECONDS),
            Some(before) => before.precedes(save, asked),
            None => save.0 >= asked,
        };
        Some(Grace {
            reason: evicted.reason.clone(),
            message: evicted.message.clone(),
            until: self.view.timeline.after(asked, grace_ms),
            saved: self.last_save(workload).is_some_and(answers),
        })
    }

    /// Time of the last save of a workload's job, as far as it is known.
    pub(crate) fn saved_at(&self, workload: &WorkloadView) -> Option<Timestamp> {
        self.last_save(workload).map(|(at, _)| at)
    }

    fn last_save(&self, workload: &WorkloadView) -> Option<LastSave> {
        if let Some(name) = workload.training_job() {
            let job = self.view.training.get(&name)?;
            return self.saved_of(&name, job).map(|saved| (saved.at, saved.step));
        }
        let at = self.view.job_of(workload)?.annotation(labels::LAST_CHECKPOINT_TIME)?.parse::<Timestamp>().ok()?;
        Some((at, None))
    }
}
