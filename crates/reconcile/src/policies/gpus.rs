//! The GPUs that a policy allows one job. A job that accepts fewer pods is judged by its fewest pods, and never gets more GPUs than the limit.

use berth_cache::WorkloadView;
use berth_engine::model as engine;
use berth_jobs::training::{Accelerators, WORKER};

use crate::context::Context;

/// GPUs that one pod of a pod set requests.
fn gpus_of(set: &engine::PodSetSpec, accelerators: &Accelerators) -> i64 {
    let devices = set.requests.iter().filter(|(resource, _)| accelerators.counts(resource));
    devices.fold(0, |sum, (_, one)| sum.saturating_add(one.get()))
}

/// GPUs that pod sets request together, if `pods` gives the number of pods of each pod set.
pub(super) fn gpus(
    sets: &[engine::PodSetSpec],
    accelerators: &Accelerators,
    pods: impl Fn(&engine::PodSetSpec) -> i64,
) -> i64 {
    sets.iter().fold(0, |sum, set| sum.saturating_add(gpus_of(set, accelerators).saturating_mul(pods(set))))
}

impl Context<'_> {
    /// The fewest pods of a pod set with which a Workload may be admitted: a slice by which a job grows may not have fewer pods than its spec.
    pub(super) fn fewest(self, workload: &WorkloadView) -> impl Fn(&engine::PodSetSpec) -> i64 + use<> {
        let partial = self.settings.engine.partial_admission && self.replaced_by(workload).is_none();
        move |set| set.min_count.filter(|_| partial).map_or(set.count, |least| least.min(set.count))
    }

    /// Accelerators that the pods of a Workload request together.
    pub(crate) fn accelerators_of(&self, workload: &WorkloadView) -> i64 {
        gpus(&workload.shape.pod_sets, &self.settings.accelerators, |set| set.count)
    }

    fn max_gpus(&self, workload: &WorkloadView) -> Option<i64> {
        self.rules_for(workload)?.limits.max_gpus
    }

    /// Reduces the pods of a waiting Workload to the number of GPUs that its policy allows. Only pods that the Workload can do without are removed, from the
    /// last pod sets first.
    pub(crate) fn cap_gpus(&self, workload: &WorkloadView, sets: &mut [engine::PodSetSpec]) {
        let Some(most) = self.max_gpus(workload) else { return };
        let accelerators = &self.settings.accelerators;
        let fewest = self.fewest(workload);
        let mut over = gpus(sets, accelerators, |set| set.count).saturating_sub(most);
        for set in sets.iter_mut().rev() {
            let each = gpus_of(set, accelerators);
            if over <= 0 || each <= 0 {
                continue;
            }
            let spare = set.count.saturating_sub(fewest(set)).max(0);
            let less = over.saturating_add(each - 1).checked_div(each).unwrap_or(0).min(spare);
            set.count -= less;
            over = over.saturating_sub(less.saturating_mul(each));
        }
    }

    /// The number of workers to which a TrainingJob may grow under its limit, at most `wanted`.
    pub(crate) fn workers_within_limit(&self, workload: &WorkloadView, wanted: i32) -> i32 {
        let (sets, accelerators) = (&workload.shape.pod_sets, &self.settings.accelerators);
        let each = sets.iter().find(|set| set.name == WORKER).map_or(0, |set| gpus_of(set, accelerators));
        let Some(most) = self.max_gpus(workload).filter(|_| each > 0) else { return wanted };
        let others = gpus(sets, accelerators, |set| if set.name == WORKER { 0 } else { set.count });
        let may = most.saturating_sub(others).max(0).checked_div(each).unwrap_or(0);
        wanted.min(i32::try_from(may).unwrap_or(i32::MAX))
    }
}

#[cfg(test)]
mod tests;
