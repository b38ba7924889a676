//! Promises of Jobs: they are started under a reservation for their requests (L1), do not run without one and have no pods while they are
//! suspended (L3), and wait as their user wrote them (L7). L3 and L7 hold for JobSets as well.

use std::time::Duration;

use serde_json::Value;

use super::asks::{self, Ask};
use super::change::Change;
use super::job_sets::ATTEMPT;
use super::read::{QUEUE, controller, label, others_own_suspend};
use super::spec::Spec;
use super::workload::Workload;
use super::{Judge, Rule};
use crate::kinds::{self, condition, items, text};

/// A managed job that runs without a reservation is suspended within this time.
const SUSPENDED_WITHIN: Duration = Duration::from_secs(10);
/// Time within which the pods of a suspended JobSet end: its controller first suspends the Jobs, which takes long on a busy machine.
const SET_SUSPENDED_WITHIN: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are read off an object")]
pub(super) struct Job {
    pub(super) key: String,
    pub(super) managed: bool,
    /// Key of the Workload that it names.
    pub(super) prebuilt: String,
    /// The job of another kind that it is part of.
    pub(super) owner: String,
    pub(super) suspended: bool,
    /// True if the Job is being deleted, its pods first.
    pub(super) leaves: bool,
    deleting: bool,
    /// True if the Job has the number of an attempt, without which the controller of JobSets does not count the Jobs of a JobSet.
    pub(super) has_attempt: bool,
    /// Time since which it is suspended, or is not.
    pub(super) since: Duration,
    ended: bool,
    spec: Spec,
    /// Time since which it runs without an admitted workload.
    loose: Option<Duration>,
}

/// Whether nothing runs of a Job that is being deleted: the job controller starts nothing for such a Job, and a finalizer may keep the Job.
fn is_left(object: &Value) -> bool {
    let active = object.pointer("/status/active").and_then(Value::as_i64).unwrap_or(0);
    object.pointer("/metadata/deletionTimestamp").is_some() && active == 0
}

impl Judge {
    pub(super) fn take_job(&mut self, change: &Change) {
        let object = &change.object;
        let uid = text(object, "/metadata/uid").to_owned();
        if change.deleted {
            self.jobs.remove(&uid);
            self.pods.values_mut().filter(|pod| pod.job == uid).for_each(|pod| pod.left = true);
            return;
        }
        let before = self.jobs.get(&uid).cloned();
        let suspended = object.pointer("/spec/suspend").and_then(Value::as_bool).unwrap_or(false);
        let prebuilt = label(object, "kueue.x-k8s.io/prebuilt-workload-name");
        let job = Job {
            key: kinds::key(object),
            managed: !label(object, QUEUE).is_empty(),
            prebuilt: if prebuilt.is_empty() {
                prebuilt
            } else {
                format!("{}/{prebuilt}", text(object, "/metadata/namespace"))
            },
            owner: controller(object),
            suspended,
            leaves: object.pointer("/metadata/deletionTimestamp").is_some()
                && items(object, "/metadata/finalizers").iter().any(|name| name == "foregroundDeletion"),
            deleting: object.pointer("/metadata/deletionTimestamp").is_some(),
            has_attempt: !label(object, ATTEMPT).is_empty(),
            since: before.as_ref().filter(|b| b.suspended == suspended).map_or(change.at, |b| b.since),
            ended: condition(object, "Complete") == "True" || condition(object, "Failed") == "True" || is_left(object),
            spec: Spec::seen(object, before.as_ref().filter(|_| !self.edited.contains(&uid)).map(|b| &b.spec)),
            loose: before.as_ref().and_then(|b| b.loose),
        };
        let started = before.as_ref().is_some_and(|b| b.suspended) && !suspended;
        if started && job.managed && !others_own_suspend(object) {
            if !self.may_start(&uid, &job.prebuilt, change.at) {
                self.fail(Rule::Start, format!("job {} was unsuspended while no workload of it is admitted", job.key));
            } else if self.is_over(&uid, &job.prebuilt) {
                self.fail(Rule::Finish, format!("job {} was unsuspended although its workload is finished", job.key));
            } else {
                self.check_asks(&uid, &job.prebuilt, &format!("job {}", job.key), &asks::of_job(object));
            }
        }
        if (before.is_none() || started) && !suspended && !others_own_suspend(object) {
            self.check_part(&uid, &job, change.at);
        }
        self.jobs.insert(uid.clone(), job);
        self.track_loose(&uid, change.at);
    }

    /// L1: Berth creates the Jobs of a TrainingJob only while its workload is admitted. A Job that a tenant forged as a part runs by a workload of its own.
    fn check_part(&mut self, uid: &str, job: &Job, at: Duration) {
        let is_part = self.training_jobs.contains_key(&job.owner);
        if is_part && !self.may_start(&job.owner, "", at) && !self.may_start(uid, &job.prebuilt, at) {
            let what = format!("job {} was created while no workload of its TrainingJob is admitted", job.key);
            self.fail(Rule::Start, what);
        }
    }

    fn is_of(workload: &Workload, uid: &str, prebuilt: &str) -> bool {
        workload.owner == uid || (!prebuilt.is_empty() && workload.key == prebuilt)
    }

    /// Whether a job has an admitted workload whose reservation stands.
    /// Whether a Workload of a job is admitted, or was until a moment ago, so that Berth may start the job.
    fn may_start(&self, uid: &str, prebuilt: &str, at: Duration) -> bool {
        self.workloads.values().filter(|w| w.may_start(at)).any(|w| Self::is_of(w, uid, prebuilt))
    }

    pub(super) fn is_admitted(&self, uid: &str, prebuilt: &str) -> bool {
        let is_admitted = |w: &&Workload| w.admitted && w.reserved && !w.deleting;
        self.workloads.values().filter(is_admitted).any(|w| Self::is_of(w, uid, prebuilt))
    }

    /// Whether every Workload of a job is finished.
    fn is_over(&self, uid: &str, prebuilt: &str) -> bool {
        self.workloads.values().filter(|w| Self::is_of(w, uid, prebuilt)).all(|w| w.finished)
    }

    /// L1: the reservation under which a job is started covers its requests.
    pub(super) fn check_asks(&mut self, uid: &str, prebuilt: &str, what: &str, asks: &[Ask]) {
        let is_admitted = |w: &&Workload| w.admitted && w.reserved && Self::is_of(w, uid, prebuilt);
        let faults: Vec<Option<String>> =
            self.workloads.values().filter(is_admitted).map(|w| asks::uncovered(asks, &w.asks)).collect();
        // One slice of an elastic job that covers it is enough.
        if faults.iter().all(Option::is_some)
            && let Some(Some(fault)) = faults.into_iter().next()
        {
            self.fail(Rule::Start, format!("{what} was unsuspended for other pods than it was admitted for: {fault}"));
        }
    }

    /// L3: measures for how long a managed job or JobSet has been running without an admitted workload.
    pub(super) fn track_loose(&mut self, uid: &str, at: Duration) {
        let (key, was, loose) = if let Some(job) = self.jobs.get(uid) {
            let runs = job.managed && !job.suspended && !job.ended;
            // A part of a job may name a queue, and runs by the quota of the job.
            let is_covered = self.is_admitted(uid, &job.prebuilt) || self.has_admitted(&job.owner);
            (format!("job {}", job.key), job.loose, runs && !is_covered)
        } else if let Some(set) = self.job_sets.get(uid) {
            let runs = set.managed && !set.suspended && !set.ended;
            (format!("JobSet {}", set.key), set.loose, runs && !self.is_admitted(uid, ""))
        } else {
            return;
        };
        let now = match (was, loose) {
            (None, true) => Some(at),
            (Some(since), false) => {
                let led = self.led_between(since, at);
                if led > SUSPENDED_WITHIN {
                    self.fail(Rule::Suspension, format!("{key} ran without a reservation for {led:?}"));
                }
                None
            }
            _ => return,
        };
        if let Some(job) = self.jobs.get_mut(uid) {
            job.loose = now;
        } else if let Some(set) = self.job_sets.get_mut(uid) {
            set.loose = now;
        }
    }

    /// L7: a job that waits is as its user wrote it. A job that is being deleted does not wait, because no deletion can be taken back.
    pub(super) fn check_template(&mut self, uid: &str) {
        let goes = self.jobs.get(uid).is_some_and(|job| job.deleting);
        let set_goes = self.job_sets.get(uid).is_some_and(|set| set.deleting);
        if goes || set_goes || self.edited.iter().any(|edited| edited == uid) {
            return;
        }
        let (what, changed) = if let Some(job) = self.jobs.get(uid) {
            (format!("job {}", job.key), job.spec.changed())
        } else if let Some(set) = self.job_sets.get(uid) {
            (format!("JobSet {}", set.key), set.spec.changed())
        } else {
            return;
        };
        if let Some(changed) = changed {
            self.fail(Rule::Template, format!("{what} waits, but is not as it was submitted: {changed}"));
        }
    }

    /// L3 and L7 for objects at rest.
    pub(super) fn check_resting(&mut self, now: Duration) {
        let jobs = self.jobs.iter().map(|(uid, job)| (uid.clone(), format!("job {}", job.key), job));
        let jobs = jobs.map(|(uid, what, job)| {
            (uid, what, job.managed, (job.suspended, job.since, SUSPENDED_WITHIN), job.loose, job.ended)
        });
        let sets = self.job_sets.iter().map(|(uid, set)| (uid.clone(), format!("JobSet {}", set.key), set));
        let sets = sets.map(|(uid, what, set)| {
            (uid, what, set.managed, (set.suspended, set.since, SET_SUSPENDED_WITHIN), set.loose, set.ended)
        });
        let all: Vec<_> = jobs.chain(sets).collect();
        for (uid, what, managed, (suspended, since, still_within), loose, ended) in all {
            if loose.is_some_and(|since| self.led_between(since, now) > SUSPENDED_WITHIN) {
                self.fail(Rule::Suspension, format!("{what} runs without a reservation"));
            }
            if !managed || !suspended {
                continue;
            }
            if now.saturating_sub(since) > still_within {
                let mine = self.pods.values().filter(|p| p.owner == uid && p.live && !p.deleting);
                let live: Vec<String> = mine.map(|p| p.key.clone()).collect();
                if !live.is_empty() {
                    self.fail(Rule::Suspension, format!("{what} is suspended and has pods: {}", live.join(", ")));
                }
            }
            if !ended && !self.workloads.values().any(|w| w.owner == uid && w.reserved) {
                self.check_template(&uid);
            }
        }
    }
}
