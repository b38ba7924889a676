//! Workloads whose job is gone: kept until nothing of the job can run any more.

use jiff::Timestamp;

use super::workload::{has_finalizer, remove_finalizer, status_write};
use crate::core::{Control, after, key};
use crate::flight::{Decision, Draft};
use crate::view::WorkloadView;
use crate::write::{Kind, Purpose, Request};

/// Pause between two looks for Jobs that garbage collection is to take, in milliseconds.
const CHILDREN_PAUSE_MS: i64 = 1_000;

/// A workload whose owner is gone. With an owner reference, garbage collection deletes it, and it is let go once no pod of
/// the job is left: until then its quota is in use (invariant L4). Without one, it is finished.
pub(crate) fn decide(control: &Control, workload: &WorkloadView, now: Timestamp) -> Option<Decision> {
    let Some(owner) = &workload.owner else {
        if workload.deleting {
            return has_finalizer(workload).then(|| Decision::write(remove_finalizer(workload)));
        }
        let orphaned = workload.job_uid.is_some() && !workload.is("Finished");
        return orphaned.then(|| {
            Decision::write(status_write(workload, Purpose::FinishWorkload, now, |edit| {
                edit.finish("OwnerNotFound", "The workload's owner no longer exists");
            }))
        });
    };
    let kind = Kind::of_whole(&owner.kind)?;
    if kind.is_pods() {
        return of_pods(control, workload, kind);
    }
    let there = match workload.training_job() {
        Some(name) => control.view.training.get(&name).filter(|job| job.uid == owner.uid).map(|job| job.deleting),
        None => control.view.job_of(workload).map(|job| job.deleting),
    };
    if there.is_some_and(|leaving| !(leaving && workload.deleting)) {
        return None;
    }
    let parts = match workload.training_job() {
        // What only says that it is part of it is not waited for.
        Some(name) => {
            workload.shape.digests.iter().any(|set| control.view.child_of(&name, &owner.uid, &set.name).is_some())
        }
        None => kind.is_made_of_jobs() && control.view.has_children(&workload.namespace, &owner.uid),
    };
    if parts {
        // Garbage collection takes them; before that they may make pods.
        return Some(Decision::Wait(after(now, CHILDREN_PAUSE_MS)));
    }
    if !workload.deleting || !has_finalizer(workload) {
        return Some(Decision::Done);
    }
    let ran = workload.reserved() && workload.is("Admitted") && !workload.is("Finished");
    if ran && !control.pods_gone.contains(&workload.uid) {
        return Some(probe_pods(control, workload));
    }
    Some(Decision::write(remove_finalizer(workload)))
}

/// A workload whose pods are all gone: garbage collection deletes it, and nothing is left that could use its quota.
fn of_pods(control: &Control, workload: &WorkloadView, kind: Kind) -> Option<Decision> {
    let owner = workload.owner.as_ref()?;
    let name = (workload.namespace.clone(), owner.name.clone());
    let there = match kind {
        Kind::Pod => control.view.pods.get(&name).is_some_and(|pod| *pod.uid == *owner.uid),
        _ => control.view.pods.group(&name).is_some() || control.view.sets.of_group(&name).is_some(),
    };
    if there {
        return None;
    }
    let goes = workload.deleting && has_finalizer(workload);
    Some(if goes { Decision::write(remove_finalizer(workload)) } else { Decision::Done })
}

/// Asks whether pods are left of a workload's job.
pub(crate) fn probe_pods(control: &Control, workload: &WorkloadView) -> Decision {
    Decision::write(Draft {
        purpose: Purpose::ProbePods,
        key: key(Kind::Workload, &workload.key()),
        request: Request::ProbePods { pods: control.pods_of(workload), most: 0 },
        based_on: 0,
        notices: Vec::new(),
    })
}
