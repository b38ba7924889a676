//! Promises of elastic jobs: a slice that replaces another is charged with the difference, and no more pods live than quota is held for.

use super::pods::Pod;
use super::workload::Workload;
use super::{Judge, Rule};

impl Judge {
    /// The replacement slice that holds quota in place of another.
    pub(super) fn replacement(&self, older: &str) -> Option<&Workload> {
        self.workloads.values().find(|w| w.replaces == older && w.reserved && !w.finished)
    }

    /// Quota of a slice that is still charged to the one that it replaces.
    pub(super) fn handed_over(&self, slice: &Workload, cell: &(String, String)) -> i128 {
        if slice.replaces.is_empty() {
            return 0;
        }
        let older = self.workloads.values().find(|w| w.key == slice.replaces && w.owner == slice.owner);
        let older =
            older.filter(|older| older.reserved && !older.finished && older.cluster_queue == slice.cluster_queue);
        older.and_then(|older| older.charge.get(cell)).copied().unwrap_or(0)
    }

    /// Q6: where a job gives up some of its quota, no more pods live than the rest is for. L4: the same where pods of a Job are reported as
    /// over and their quota is freed; a pod that is being deleted may have been replaced already.
    pub(super) fn check_shrink(&mut self, before: &Workload, after: Option<&Workload>) {
        let Some(after) = after.filter(|after| after.reserved && !after.finished) else { return };
        let staying = self.pods.values().filter(|pod| pod.owner == before.owner && pod.live && !pod.deleting).count();
        let freed = before.reserved && after.pods == before.pods && after.left < before.left;
        if freed && self.jobs.contains_key(&before.owner) && staying > after.left {
            let (key, left) = (&after.key, after.left);
            let what = format!("quota of workload {key} was freed for all but {left} pods, and {staying} live");
            self.fail(Rule::Release, what);
        }
        if after.pods >= before.pods {
            return;
        }
        let live = self.pods.values().filter(|pod| pod.owner == before.owner && pod.live).count();
        if before.reserved && live > after.pods {
            let what = format!("workload {} gave quota up for all but {} pods, and {live} live", after.key, after.pods);
            self.fail(Rule::PodCount, what);
        }
    }

    /// Q6: no more pods of a TrainingJob live than quota is held for, beside pods that are ending and pods that no Job counts any more. These pods are charged
    /// until they have ended (see `held.rs`), also beside the pods of the Job that Berth creates in place of a deleted one.
    pub(super) fn check_covered(&mut self, owner: &str) {
        let mut own = self.workloads.values().filter(|w| w.owner == owner && !w.finished).peekable();
        if own.peek().is_none() {
            // The TrainingJob has ended, or its Workload was deleted with it: L4 judges the remaining pods.
            return;
        }
        let most = own.filter(|w| w.reserved).map(|w| w.pods).max().unwrap_or(0);
        let is_counted = |pod: &&Pod| pod.owner == owner && pod.live && !pod.deleting && !pod.left;
        let live = self.pods.values().filter(is_counted).count();
        if live > most {
            self.fail(Rule::PodCount, format!("{live} pods of the job with uid {owner} live, with quota for {most}"));
        }
    }
}
