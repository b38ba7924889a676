//! Which pods of a job that is made of Jobs are over for good. Its status counts Jobs that a restart runs again, and it may be restarted after
//! their quota went back: what runs again is charged again.

use berth_api::ReclaimablePod;
use berth_api::conditions::types;
use berth_jobs::JobState;

use crate::cache::{Name, Rare, WorkloadView};
use crate::controller::Control;
use crate::write::ObjectKey;

impl Control {
    /// Pods of a job, by pod set, that will not run again: what its status says of them, and of one that is made of Jobs no more than its
    /// Jobs of the present attempt show.
    pub(crate) fn over_of(&self, key: &ObjectKey, job: &JobState) -> Vec<ReclaimablePod> {
        let mut told = job.reclaimable.clone();
        if told.is_empty() || !key.kind.is_made_of_jobs() {
            return told;
        }
        let named = || self.view.jobs.controlled_by(&key.namespace, &job.uid);
        if job.attempt == Some(0) && named().next().is_none() {
            // Its status is all that there is: nobody makes Jobs here, or all of them were cleaned away.
            return told;
        }
        for pods in &mut told {
            let ended = named().filter(|(name, part)| {
                let called = job.part_called(&key.name, &name.name);
                let counts = called.is_some_and(|(part, index)| *part.name == *pods.name && index < part.replicas);
                counts && part.attempt == job.attempt && part.finished.as_ref().is_some_and(|end| end.success)
            });
            let ended = i32::try_from(ended.count()).unwrap_or(i32::MAX);
            let each = job.parts.iter().find(|part| *part.name == *pods.name).map_or(0, |part| part.pods);
            pods.count = pods.count.min(ended.saturating_mul(each));
        }
        told.retain(|pods| pods.count > 0);
        told
    }

    /// Pods whose quota went back and that run again, by pod set.
    fn again_of(&self, workload: &WorkloadView) -> Vec<ReclaimablePod> {
        let given_back = &workload.status.reclaimable_pods;
        if given_back.is_empty() || workload.is(types::FINISHED) {
            return Vec::new();
        }
        let whole = workload.job().filter(|key| key.kind.is_made_of_jobs());
        let Some((key, job)) = whole.zip(self.view.job_of(workload)) else { return Vec::new() };
        if job.finished.is_some() {
            return Vec::new();
        }
        let over = self.over_of(&key, job);
        let again = given_back.iter().filter_map(|back| {
            let over = over.iter().find(|over| over.name == back.name).map_or(0, |over| over.count);
            let count = back.count.saturating_sub(over);
            (count > 0).then(|| ReclaimablePod { name: back.name.clone(), count })
        });
        again.collect()
    }

    /// Takes note of the pods of a workload that run again. Whether that is something new.
    pub(crate) fn note_again(&mut self, name: &Name) -> bool {
        let Some(workload) = self.view.workloads.get(name) else { return false };
        let again = self.again_of(workload);
        if *workload.runs_again() == *again {
            return false;
        }
        if let Some(workload) = self.view.workloads.get_mut(name) {
            let mut rare = workload.rare.take().map_or_else(Rare::default, |rare| *rare);
            rare.again = again;
            workload.rare = rare.kept();
        }
        true
    }

    /// A job that is made of Jobs, or one of these, says something else of what is over.
    pub(crate) fn note_attempt(&mut self, uid: &str) {
        let gave_back = |workload: &&WorkloadView| !workload.status.reclaimable_pods.is_empty();
        let owned: Vec<Name> = self.view.workloads.owned_by(uid).filter(gave_back).map(WorkloadView::key).collect();
        for name in owned {
            if self.note_again(&name) {
                self.mirror(&name);
            }
        }
    }
}
