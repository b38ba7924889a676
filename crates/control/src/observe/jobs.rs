//! Observations of jobs, and the state of each that the view keeps.

use berth_api as api;
use berth_jobs::{JobState, Part, SharedJob, version_of};
use jiff::Timestamp;

use super::known;
use crate::cache::shed::asks_alike;
use crate::cache::{Name, WorkloadView};
use crate::capacity::Pods;
use crate::controller::{Control, key};
use crate::event::Change;
use crate::write::{Kind, ObjectKey};

/// The part of a job made of Jobs on which decisions about these Jobs depend.
#[derive(PartialEq, Eq)]
struct Governing<'a> {
    /// Its end, its stop, and whether it is being deleted.
    stops: [bool; 3],
    has_queue: bool,
    parts: &'a [Part],
}

impl<'a> Governing<'a> {
    fn of(job: &'a JobState) -> Self {
        let stops = [job.finished.is_some(), job.suspended, job.deleting];
        Self { stops, has_queue: job.queue_name.is_some(), parts: &job.parts }
    }
}

/// The uid of the job made of Jobs that this one is, or that it names as its controller.
fn attempt_of(object: &ObjectKey, job: &JobState) -> Option<String> {
    if object.kind.is_made_of_jobs() {
        return Some(job.uid.clone());
    }
    job.size.is_some().then(|| job.owner.as_ref().map(|owner| owner.uid.to_string()))?
}

impl Control {
    pub(super) fn observe_jobs(&mut self, kind: Kind, change: Change<SharedJob>, now: Timestamp) {
        let all = self.view.jobs.keys().filter(|key| key.kind == kind);
        let known = known(&change, all.map(|key| (key.namespace.clone(), key.name.clone())));
        self.each_namespaced(change, known, |me, name, object| match object {
            Some(job) => me.put_job(key(kind, &name), now, |older| {
                let mut state = job.state(older);
                // A job that was read completely is decided about in a moment.
                let was_read = older.is_some_and(|older| older.is_large() && older.uid == state.uid);
                if !was_read {
                    state.lighten();
                }
                state
            }),
            None => me.forget_job(&key(kind, &name), now),
        });
    }

    /// An object was read. A large job was read because a Workload is to be made of it: it is kept completely for the next decision.
    pub(crate) fn note_read(&mut self, object: &ObjectKey, text: &str, now: Timestamp) {
        if object.kind == Kind::JobPod {
            self.note_job_pod(object, text, now);
            return;
        }
        let (Kind::Job(kind), Some(known)) = (object.kind, self.view.jobs.get(object)) else { return };
        let (uid, version) = (known.uid.clone(), known.version);
        let read = kind.decode(text).ok();
        let read =
            read.filter(|job| job.metadata().uid.as_ref() == Some(&uid) && version_of(job.metadata()) >= version);
        if let Some(job) = read {
            self.put_job(object.clone(), now, |older| job.state(older));
        }
        self.touch(object.clone());
    }

    /// A job is gone, whether or not another one has its name now: all that was remembered of it is removed in this one place.
    fn forget_job(&mut self, object: &ObjectKey, now: Timestamp) {
        // Objects that it owned are looked at before the name is forgotten.
        self.touch_related(object);
        self.flights.vanished(object);
        self.reports.told.remove(object);
        if let Some(old) = self.view.jobs.remove(object) {
            self.touch_jobs_below(&object.namespace, &old.uid);
            self.count_ending_pods_of(&object.namespace, &old.uid);
            if let Some(uid) = attempt_of(object, &old) {
                self.note_attempt(&uid);
            }
            self.mirror_waiting_of(&old.uid);
            if let Some(owner) = &old.owner {
                self.mirror_waiting_of(&owner.uid);
                // A user who takes away a Job of a TrainingJob may have taken objects that the Job needs: they are applied anew before the next.
                self.training.prepared.remove(&*owner.uid);
            }
            self.remains.forget_job(&old.uid);
            self.capacity.lacking.remove(&old.uid);
            self.reports.ration.forget_ended(&old.uid);
            self.training.growth.settled.remove(&old.uid);
            self.note_lost(object, &old, now);
            self.forget_child(object, &old);
            if old.pods > 0 || object.kind.is_made_of_jobs() {
                self.note_pods_of(object, &old);
            }
        }
    }

    fn put_job(&mut self, object: ObjectKey, now: Timestamp, read: impl FnOnce(Option<&JobState>) -> JobState) {
        let older = self.view.jobs.get(&object);
        let mut job = read(older);
        if self.context().passes_over(object.kind, &job) {
            job.shed();
        }
        let version = job.version;
        let appeared = older.is_none_or(|old| old.uid != job.uid);
        let changes_hands = older.is_some_and(|old| old.uid == job.uid && old.owner != job.owner);
        match older {
            Some(old) if old.uid == job.uid && old.version > version => return,
            Some(old) if old.uid != job.uid => self.forget_job(&object, now),
            _ => {}
        }
        if changes_hands {
            // The job that controlled this one until now is looked at as well.
            self.touch_related(&object);
        }
        if appeared {
            self.flights.appeared(&object);
            self.note_made(&object, &job, now);
        }
        self.note_stop(&object, &job, now);
        if job.deleting && job.pods_go_first {
            // The garbage collector takes that mark off again when the pods have gone.
            self.remains.note_rid_of_pods(job.uid.clone());
        }
        if !job.suspended {
            self.remains.job_runs(&job.uid);
        } else if job.at_rest {
            self.remains.note_at_rest(job.uid.clone());
        }
        let said = |job: &JobState| job.annotation(api::labels::LAST_CHECKPOINT_TIME).map(str::to_owned);
        let saved = self.view.jobs.get(&object).is_some_and(|old| said(old) != said(&job));
        let unsupported = job.unsupported.is_some();
        // By these figures a TrainingJob may, or may not, do without some workers.
        let of_role = |job: &JobState| job.role.as_ref().map(|role| (role.wanted, role.succeeded > 0));
        let scaled = of_role(&job).is_some() && self.view.jobs.get(&object).and_then(of_role) != of_role(&job);
        let training = job.owner.as_ref().filter(|_| scaled).map(|owner| owner.uid.to_string());
        let old = self.view.jobs.get(&object).filter(|old| old.uid == job.uid);
        let before = old.map(Pods::of);
        let moved = old.is_none_or(|old| old.deleting != job.deleting || !asks_alike(old, &job));
        let owner = job.owner.as_ref().map(|owner| owner.uid.to_string());
        let moved = moved.then(|| [Some(job.uid.clone()), owner]);
        let governs = old.map(Governing::of) != Some(Governing::of(&job));
        let whole = (governs && object.kind.is_made_of_jobs()).then(|| job.uid.clone());
        let attempt = attempt_of(&object, &job).filter(|_| {
            let said = |job: &JobState| (job.attempt, job.finished.is_some(), job.reclaimable.clone());
            old.map(said) != Some(said(&job))
        });
        let more_ended = old.is_some_and(|old| old.reclaimable != job.reclaimable);
        if job.finished.is_some() || job.suspended {
            self.reports.ration.forget_ended(&job.uid);
        } else if more_ended {
            self.reports.ration.note_ended(&job.uid, now);
        }
        self.note_capacity(&object, &job, before, now);
        self.note_settled(&object, &job);
        self.note_child(&object, &job);
        self.note_pods_since(&object, &job);
        let owned: Vec<Name> = self.view.workloads.owned_by(&job.uid).map(WorkloadView::key).collect();
        let counts_others = (appeared || changes_hands).then(|| job.uid.clone());
        self.view.jobs.insert(object.clone(), job);
        if let Some(uid) = counts_others {
            self.count_ending_pods_of(&object.namespace, &uid);
        }
        self.view.shed_job(&object);
        self.flights.seen(&object, version);
        self.touch_related(&object);
        if let Some(uid) = whole {
            self.touch_jobs_below(&object.namespace, &uid);
        }
        if let Some(uid) = attempt {
            self.note_attempt(&uid);
        }
        for uid in moved.into_iter().flatten().flatten() {
            self.mirror_waiting_of(&uid);
        }
        if let Some(uid) = training {
            self.mirror_owned_by(&uid);
        }
        if unsupported || saved {
            for workload in owned {
                self.mirror(&workload);
            }
        }
    }

    /// The Workload of a job that is made of Jobs was seen: the Jobs are looked at when it has come to another stage.
    pub(super) fn wake_parts(&mut self, name: &Name, before: Option<[bool; 5]>) {
        let Some(workload) = self.view.workloads.get(name).filter(|new| before != Some(new.stage())) else { return };
        if let Some(owner) = workload.owner.as_ref().map(|owner| owner.uid.clone()) {
            self.touch_jobs_below(&name.0, &owner);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::{Value, json};

    use super::*;
    use crate::event::{JobType, Observation};
    use crate::settings::Settings;

    fn see(control: &mut Control, uid: &str, status: &Value, gone: bool) {
        let owner = json!({"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob", "name": "t", "uid": "t-1",
            "controller": true});
        let template = json!({"spec": {"containers": [{"name": "c"}]}});
        let job = json!({"metadata": {"name": "t-worker", "namespace": "team", "uid": uid, "resourceVersion": "7",
                "ownerReferences": [owner], "labels": {"kueue.x-k8s.io/queue-name": "lq"},
                "annotations": {"berth.dev/elastic-workers": "1-4"}, "finalizers": ["foregroundDeletion"],
                "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"parallelism": 2, "completions": 2, "template": template}, "status": status});
        let job = SharedJob::from(JobType::JOB.decode(&job.to_string()).unwrap());
        let change = if gone { Change::Delete(job) } else { Change::Apply(job) };
        control.observe(Observation::Job(JobType::JOB, change), Timestamp::UNIX_EPOCH);
    }

    /// Number of entries that are remembered of jobs, by their uids and names.
    fn remembered(control: &Control) -> usize {
        let known = |uid: &&str| control.remains.job_is_at_rest(uid) || control.remains.job_is_rid_of_pods(uid);
        let stopped = ["one", "two"].iter().filter(|uid| known(uid)).count() + control.remains.starts.0.len();
        let by_uid = stopped + control.capacity.lacking.len();
        let settled = control.training.growth.settled.len();
        control.reports.told.len() + by_uid + settled + control.view.jobs.len() + control.view.jobs.controlled.len()
    }

    /// Shows a Job in all the states that leave an entry.
    fn lives(control: &mut Control, uid: &str) {
        let start = "2026-01-01T00:00:00Z";
        see(control, uid, &json!({"startTime": start, "active": 2, "ready": 2}), false);
        see(control, uid, &json!({"startTime": start, "active": 1, "ready": 1, "succeeded": 1}), false);
        let object = ObjectKey { kind: Kind::JOB, namespace: "team".into(), name: "t-worker".into() };
        control.remains.note_at_rest(uid.to_owned());
        control.reports.told.entry(object).or_default().insert("Reason".into(), "text".into());
        assert!(remembered(control) > 4, "{control:?}");
    }

    #[test]
    fn replaced_or_deleted_job_leaves_no_state_in_control() {
        let mut control = Control::new(Settings::default());
        lives(&mut control, "one");
        // Another Job has its name.
        see(&mut control, "two", &json!({}), false);
        assert!(!control.remains.job_is_at_rest("one") && !control.remains.job_is_rid_of_pods("one"));
        assert!(!control.capacity.lacking.contains_key("one") && !control.training.growth.settled.contains_key("one"));
        assert!(control.reports.told.is_empty(), "{:?}", control.reports.told);
        assert!(control.reports.ration.ended_at("one").is_none());
        lives(&mut control, "two");
        see(&mut control, "two", &json!({}), true);
        assert_eq!(remembered(&control), 0, "{control:?}");
        assert!(
            control.reports.ration.ended_at("two").is_none()
                && control.view.jobs.controlled_by("team", "t-1").next().is_none()
        );
    }
}
