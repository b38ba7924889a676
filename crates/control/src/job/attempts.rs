//! Pods that are over for good, of a job that is made of Jobs. The status of such a job counts Jobs that a restart runs again, and the restart may
//! come after the quota of their pods went back. Pods that run again are charged again.

use berth_api::ReclaimablePod;
use berth_api::conditions::types;
use berth_jobs::JobState;

use crate::cache::{Name, Rare, WorkloadView};
use crate::context::Context;
use crate::controller::Control;
use crate::write::ObjectKey;

impl Control {
    /// Stores which pods of a workload run again; true if they have changed.
    pub(crate) fn note_again(&mut self, name: &Name) -> bool {
        let Some(workload) = self.view.workloads.get(name) else { return false };
        let again = self.context().again_of(workload);
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

    /// A job that is made of Jobs, or one of these Jobs, has changed: some of its finished pods may run again.
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

impl Context<'_> {
    /// Pods of a job that will not run again, by pod set: as its status counts them, and for a job made of Jobs at most as many as its Jobs of the
    /// present attempt show.
    pub(crate) fn over_of(&self, key: &ObjectKey, job: &JobState) -> Vec<ReclaimablePod> {
        let mut told = job.reclaimable.clone();
        if told.is_empty() || !key.kind.is_made_of_jobs() {
            return told;
        }
        let named = || self.view.jobs.controlled_by(&key.namespace, &job.uid);
        if job.attempt == Some(0) && named().next().is_none() {
            // The status is all that there is: no controller makes Jobs here, or all of them were cleaned away.
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
}
