//! Pods of a job that was deleted without them (`--cascade=orphan`). They hold its quota until they have ended, and are stopped when the quota has to
//! go back. They are found by the labels in which pods name the uid of their job. Anybody may write these labels, so a pod for which another job
//! answers does not count as left behind.

use berth_api::conditions::{reasons, types};
use jiff::Timestamp;

use crate::cache::WorkloadView;
use crate::context::Context;
use crate::controller::flight::{Decision, Draft};
use crate::controller::{Control, after, key};
use crate::workload::orphan::PODS_COME_MS;
use crate::workload::status::since;
use crate::workload::{REPORTER, notice};
use crate::write::{EventType, Kind, LeftPod, ObjectKey, Purpose, Question};

/// Pause between two looks for such pods while they may run on, in milliseconds.
const LOOK_MS: i64 = 10_000;
/// The same while they are stopped.
const CHASE_MS: i64 = 1_000;

/// Result of the last look.
#[derive(Debug)]
pub(crate) struct Left {
    /// Time of the look.
    at: Timestamp,
    /// Pods about which something is to be done; never empty.
    pods: Vec<LeftPod>,
}

/// Looks whether pods of a workload whose job is gone are left: the workload goes on as long as they do.
pub(crate) fn watch(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    let ours = workload.owner.is_none() && workload.job_uid.is_some() && workload.is(types::ADMITTED);
    if !ours || workload.is(types::EVICTED) || workload.deleting {
        return Decision::Done;
    }
    if ctx.remains.left.contains_key(&workload.uid) {
        let message =
            "its job was deleted and its pods were left: they hold its quota until they have ended".to_owned();
        let said = (reasons::OWNER_NOT_FOUND, message);
        if ctx.is_untold(&key(Kind::Workload, &workload.key()), &said) {
            return Decision::tell(notice(workload, EventType::Warning, said.0, said.1, REPORTER));
        }
    }
    look_again(ctx, workload, now)
}

/// Asks from time to time whether pods are left.
fn look_again(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    ask_after(workload, ctx.remains.left.get(&workload.uid).map(|left| after(left.at, LOOK_MS)), now)
}

/// The wait until no pod runs, as in [`watch`], for a workload whose job is being deleted and lets its pods go before it.
pub(crate) fn of_leaving(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    if workload.deleting || workload.is(types::EVICTED) {
        return stop(ctx, workload, now);
    }
    look_again(ctx, workload, now)
}

/// The same for a workload that has to give its quota back: its pods are stopped.
pub(crate) fn stop(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Decision {
    let known = ctx.remains.left.get(&workload.uid);
    let next = known.and_then(|left| left.pods.iter().find_map(|pod| send_off(ctx, &workload.namespace, pod)));
    next.unwrap_or_else(|| ask_after(workload, known.map(|left| after(left.at, CHASE_MS)), now))
}

/// The write that makes a pod go: the deletion of its Job, where that would make the pod again.
fn send_off(ctx: &Context<'_>, namespace: &str, pod: &LeftPod) -> Option<Decision> {
    let object = |kind: Kind, name: &str| key(kind, &(namespace.to_owned(), name.to_owned()));
    let draft = match &pod.job {
        Some((_, uid)) if ctx.remains.job_is_rid_of_pods(uid) => return None,
        Some((name, uid)) => Draft::delete_owned_first(Purpose::DeleteChild, object(Kind::JOB, name), uid),
        None if pod.deleting => return None,
        None => Draft::delete(Purpose::DeletePod, object(Kind::Pod, &pod.name), &pod.uid),
    };
    Some(Decision::write(draft))
}

/// Looks at the time `due`, or as soon as all pods of the last start must have come.
fn ask_after(workload: &WorkloadView, due: Option<Timestamp>, now: Timestamp) -> Decision {
    let admitted = since(&workload.status.conditions, types::ADMITTED, "True");
    let due = due.or_else(|| admitted.map(|at| after(at, PODS_COME_MS)));
    if let Some(due) = due.filter(|due| *due > now) {
        return Decision::Wait(due);
    }
    let labels = Kind::jobs().chain([Kind::TrainingJob]).map(Kind::uid_label).collect();
    let uid = workload.job_uid.clone().unwrap_or_default();
    let question = Question::FindLeftPods { labels, uid };
    Decision::write(Draft::ask(Purpose::FindLeftPods, key(Kind::Workload, &workload.key()), question))
}

impl Control {
    /// Takes over the result of a look.
    pub(crate) fn note_left(&mut self, object: &ObjectKey, pods: Vec<LeftPod>, now: Timestamp) {
        let Some(uid) = self.context().uid_of(object) else { return };
        let gone = self.view.workloads.by_uid(&uid).and_then(|workload| workload.job_uid.clone()).unwrap_or_default();
        let pods: Vec<LeftPod> = pods.into_iter().filter(|pod| self.context().is_left(object, pod, &gone)).collect();
        if pods.is_empty() {
            self.remains.left.remove(&uid);
            self.remains.note_pods_gone(uid);
        } else {
            self.remains.left.insert(uid, Left { at: now, pods });
        }
        self.touch(object.clone());
    }

    /// Notes that a decision about another object deletes pods that jobs have left behind, or the Jobs of such pods.
    pub(crate) fn note_sent_off(&mut self, origin: &ObjectKey, object: &ObjectKey) {
        if self.remains.left.is_empty() || origin == object || !(object.kind == Kind::JOB || object.kind == Kind::Pod) {
            return;
        }
        let workloads = &self.view.workloads;
        let here = |uid: &str| workloads.by_uid(uid).is_some_and(|workload| workload.namespace == object.namespace);
        for (_, left) in self.remains.left.iter_mut().filter(|(uid, _)| here(uid)) {
            left.pods.retain(|pod| match &pod.job {
                Some((job, _)) => object.kind != Kind::JOB || *job != object.name,
                None => object.kind != Kind::Pod || pod.name != object.name,
            });
        }
        self.touch(origin.clone());
    }
}

impl Context<'_> {
    /// Whether no job answers for a pod any more, nor for the Job that makes it; the job with the uid `gone` is on its way out itself.
    fn is_left(&self, workload: &ObjectKey, pod: &LeftPod, gone: &str) -> bool {
        let name = |name: &str| (workload.namespace.clone(), name.to_owned());
        let Some((job, uid)) = &pod.job else {
            // A managed pod has a Workload of its own.
            return self.view.pods.get(&name(&pod.name)).is_none();
        };
        if *uid == gone {
            return true;
        }
        let job = self.view.jobs.get(&key(Kind::JOB, &name(job))).filter(|job| job.uid == *uid);
        job.is_none_or(|job| match &job.owner {
            // The job is being deleted, and has not let go of this Job yet.
            Some(owner) => *owner.uid == *gone,
            None => self.view.workloads.owned_by(&job.uid).next().is_none() && !self.manages_job(Kind::JOB, job),
        })
    }
}
