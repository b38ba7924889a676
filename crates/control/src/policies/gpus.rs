//! The GPUs that a policy allows one job. A job that may do with fewer pods is judged by the fewest, and is never given more than the limit.

use berth_engine::model as engine;
use berth_jobs::training::{Cards, WORKER};

use crate::cache::WorkloadView;
use crate::context::Context;

/// GPUs that one pod asks for.
fn gpus_of(set: &engine::PodSetSpec, cards: &Cards) -> i64 {
    let devices = set.requests.iter().filter(|(resource, _)| cards.counts(resource));
    devices.fold(0, |sum, (_, one)| sum.saturating_add(one.get()))
}

/// GPUs that pod sets ask for with so many pods each.
pub(super) fn gpus(sets: &[engine::PodSetSpec], cards: &Cards, pods: impl Fn(&engine::PodSetSpec) -> i64) -> i64 {
    sets.iter().fold(0, |sum, set| sum.saturating_add(gpus_of(set, cards).saturating_mul(pods(set))))
}

impl Context<'_> {
    /// Fewest pods of a pod set with which a workload may be admitted: a slice by which a job grows has no fewer than its spec.
    pub(super) fn fewest(self, workload: &WorkloadView) -> impl Fn(&engine::PodSetSpec) -> i64 + use<> {
        let partial = self.settings.engine.partial_admission && self.replaced_by(workload).is_none();
        move |set| set.min_count.filter(|_| partial).map_or(set.count, |least| least.min(set.count))
    }

    /// Accelerators that the pods of a workload ask for together.
    pub(crate) fn accelerators_of(&self, workload: &WorkloadView) -> i64 {
        gpus(&workload.shape.pod_sets, &self.settings.cards, |set| set.count)
    }

    fn max_gpus(&self, workload: &WorkloadView) -> Option<i64> {
        self.rules_for(workload)?.limits.max_gpus
    }

    /// Takes off pods that a waiting workload may not have: of the pods that it can do without, last sets first, as many as would have more GPUs than
    /// its policy allows.
    pub(crate) fn cap_gpus(&self, workload: &WorkloadView, sets: &mut [engine::PodSetSpec]) {
        let Some(most) = self.max_gpus(workload) else { return };
        let cards = &self.settings.cards;
        let fewest = self.fewest(workload);
        let mut over = gpus(sets, cards, |set| set.count).saturating_sub(most);
        for set in sets.iter_mut().rev() {
            let each = gpus_of(set, cards);
            if over <= 0 || each <= 0 {
                continue;
            }
            let spare = set.count.saturating_sub(fewest(set)).max(0);
            let less = over.saturating_add(each - 1).checked_div(each).unwrap_or(0).min(spare);
            set.count -= less;
            over = over.saturating_sub(less.saturating_mul(each));
        }
    }

    /// Number of workers, of those that are wanted, to which a TrainingJob may grow.
    pub(crate) fn workers_within_limit(&self, workload: &WorkloadView, wanted: i32) -> i32 {
        let (sets, cards) = (&workload.shape.pod_sets, &self.settings.cards);
        let each = sets.iter().find(|set| set.name == WORKER).map_or(0, |set| gpus_of(set, cards));
        let Some(most) = self.max_gpus(workload).filter(|_| each > 0) else { return wanted };
        let others = gpus(sets, cards, |set| if set.name == WORKER { 0 } else { set.count });
        let may = most.saturating_sub(others).max(0).checked_div(each).unwrap_or(0);
        wanted.min(i32::try_from(may).unwrap_or(i32::MAX))
    }
}
