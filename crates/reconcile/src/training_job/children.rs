//! Jobs that have run a TrainingJob since its admission, also if the Jobs themselves are gone. The uids of the Jobs that have run a TrainingJob distinguish the
//! TrainingJob's pods from pods that only carry its label.

use std::collections::{BTreeMap, BTreeSet};

use berth_cache::{View, WorkloadView};
use berth_jobs::JobState;
use berth_jobs::training::{child_job_name, role_of_child};

use crate::write::{Kind, ObjectKey, PodsOf};

/// The observed Jobs, by the uid of their TrainingJob.
#[derive(Debug, Default)]
pub(crate) struct Children(BTreeMap<String, Seen>);

/// The observed Jobs of one TrainingJob.
#[derive(Debug, Default)]
struct Seen {
    /// True if the TrainingJob was observed without quota, so that every later Job was observed, too.
    from_start: bool,
    /// Uids of the TrainingJob's Jobs, by the name of the Job.
    jobs: BTreeMap<String, BTreeSet<String>>,
}

impl Children {
    /// Records a Job that a TrainingJob controls.
    pub(crate) fn note_child(&mut self, object: &ObjectKey, job: &JobState) {
        let owner = job.owner.as_ref().filter(|owner| *owner.kind == *Kind::TrainingJob.name());
        let owner = owner.filter(|owner| role_of_child(&owner.name, &object.name).is_some());
        if let Some(owner) = owner.filter(|_| object.kind == Kind::JOB) {
            let seen = self.0.entry(owner.uid.to_string()).or_default();
            seen.jobs.entry(object.name.clone()).or_default().insert(job.uid.clone());
        }
    }

    /// Handles a Workload without quota: no Job of its TrainingJob runs, so Jobs of earlier runs that are gone are forgotten.
    pub(crate) fn note_idle(&mut self, view: &View, workload: &WorkloadView) {
        if workload.training_job().is_none() || workload.reserved() || workload.replaces.is_some() {
            return;
        }
        let Some(owner) = &workload.owner else { return };
        let jobs = std::mem::take(&mut self.0.entry(owner.uid.clone()).or_default().jobs);
        let there = |name: &String, uid: &String| {
            let object = ObjectKey { kind: Kind::JOB, namespace: workload.namespace.clone(), name: name.clone() };
            view.jobs().get(&object).is_some_and(|job| job.uid == *uid)
        };
        let left = jobs.into_iter().map(|(name, mut uids)| {
            uids.retain(|uid| there(&name, uid));
            (name, uids)
        });
        let left = left.filter(|(_, uids)| !uids.is_empty()).collect();
        self.0.insert(owner.uid.clone(), Seen { from_start: true, jobs: left });
    }

    /// Handles a TrainingJob's Job that is gone. The Job's uid is kept while its owner has a Workload, because the Job's pods may outlive the Job, and is
    /// forgotten otherwise.
    pub(crate) fn forget_child(&mut self, view: &View, object: &ObjectKey, job: &JobState) {
        let Some(owner) = job.owner.as_ref().map(|owner| owner.uid.to_string()) else { return };
        let Some(seen) = self.0.get_mut(&owner) else { return };
        if view.workloads().owned_by(&owner).next().is_some() {
            return;
        }
        if let Some(uids) = seen.jobs.get_mut(&object.name) {
            uids.remove(&job.uid);
        }
        seen.jobs.retain(|_, uids| !uids.is_empty());
        if seen.jobs.is_empty() {
            self.0.remove(&owner);
        }
    }

    /// Forgets the Jobs of an owner together with the owner's last Workload.
    pub(crate) fn forget_of(&mut self, view: &View, workload: &WorkloadView) {
        let owner = workload.owner.as_ref().filter(|owner| view.workloads().owned_by(&owner.uid).next().is_none());
        if let Some(owner) = owner {
            self.0.remove(&owner.uid);
        }
    }

    /// The criteria by which the pods of a Workload's job are found.
    pub(crate) fn pods_of(&self, workload: &WorkloadView) -> PodsOf {
        let uid = workload.owner.as_ref().map(|owner| owner.uid.clone()).unwrap_or_default();
        let kind = workload.owner_key().map_or(Kind::JOB, |owner_key| owner_key.kind);
        let jobs = match workload.training_job() {
            Some(name) => self.jobs_of(&name.1, &uid, workload),
            // The JobSet controller creates and deletes a JobSet's Jobs, so the uids of these Jobs do not restrict the search.
            None => (!kind.is_made_of_jobs()).then(|| BTreeSet::from([uid.clone()])),
        };
        PodsOf { label: kind.uid_label(), uid, jobs }
    }

    /// Uids of the Jobs that run a TrainingJob, or have run it, `None` if some Jobs may have gone before this process began.
    fn jobs_of(&self, name: &str, uid: &str, workload: &WorkloadView) -> Option<BTreeSet<String>> {
        let seen = self.0.get(uid)?;
        let mut all = BTreeSet::new();
        for set in &workload.shape.digests {
            match seen.jobs.get(&child_job_name(name, &set.name)) {
                Some(uids) => all.extend(uids.iter().cloned()),
                None if seen.from_start => {}
                None => return None,
            }
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use berth_jobs::BatchJob;
    use serde_json::json;

    use super::*;

    #[test]
    fn jobs_of_unknown_training_job_are_forgotten_one_by_one() {
        let (mut children, view) = (Children::default(), View::default());
        let object = ObjectKey { kind: Kind::JOB, namespace: "team".into(), name: "a-worker".into() };
        let job = |uid: &str| {
            let owner = json!({"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob", "name": "a", "uid": "forged",
                "controller": true});
            let job = json!({"metadata": {"name": "a-worker", "namespace": "team", "uid": uid, "ownerReferences": [owner]},
                "spec": {"template": {"spec": {"containers": []}}}});
            JobState::read::<BatchJob>(&serde_json::from_value(job).unwrap(), None)
        };
        for uid in ["one", "two"] {
            children.note_child(&object, &job(uid));
        }
        assert_eq!(children.0["forged"].jobs["a-worker"].len(), 2);
        children.forget_child(&view, &object, &job("one"));
        assert_eq!(children.0["forged"].jobs["a-worker"].len(), 1);
        children.forget_child(&view, &object, &job("two"));
        assert!(children.0.is_empty());
    }
}
