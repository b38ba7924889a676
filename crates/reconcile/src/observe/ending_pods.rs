//! Ending pods of the Jobs that are parts of other jobs, as the watch shows them.

use std::collections::BTreeSet;

use berth_cache::ending_pods::EndingPod;
use berth_cache::names::Name;

use crate::observe::pod_change::PodChange;

impl PodChange<'_> {
    /// Handles an observed pod of a job; `ending` is its record if the pod is ending (see [`berth_cache::View::ending_pod`]).
    pub(crate) fn note_ending_pod(&mut self, name: &Name, ending: Option<EndingPod>) {
        let Some(ending) = ending else {
            self.forget_ending_pod(name);
            return;
        };
        let known = self.view.ending_pods().get(name);
        if known == Some(&ending) {
            return;
        }
        let changed = ending.is_left || known.is_some_and(|known| known.is_left);
        let owner_uids = [known.map(|known| known.owner_uid.clone()), Some(ending.owner_uid.clone())];
        self.view.put_ending_pod(name, ending);
        for owner_uid in owner_uids.into_iter().flatten().filter(|_| changed) {
            self.note_left_pods(&owner_uid);
        }
    }

    /// Forgets an ending pod that is gone or is not an ending pod any more.
    pub(crate) fn forget_ending_pod(&mut self, name: &Name) {
        if self.view.ending_pods().is_empty() {
            return;
        }
        if let Some(old) = self.view.remove_ending_pod(name).filter(|old| old.is_left) {
            self.note_left_pods(&old.owner_uid);
        }
    }

    /// Forgets the ending pods that a list does not have, because these pods are gone.
    pub(crate) fn miss_ending_pods(&mut self, listed: &BTreeSet<Name>) {
        let missed = self.view.ending_pods().names().filter(|name| !listed.contains(*name));
        for name in missed.cloned().collect::<Vec<_>>() {
            self.forget_ending_pod(&name);
        }
    }

    /// Computes anew which ending pods a Job counts, because the Job was observed for the first time, was removed, or has another controller.
    pub fn count_ending_pods_of(&mut self, namespace: &str, job: &str) {
        // A process that becomes the leader computes for all ending pods whether a Job counts them, so other processes skip the computation.
        if self.view.ending_pods().is_empty() || !self.leads {
            return;
        }
        let pods = self.view.ending_pods().of_job(namespace, job);
        self.count_ending_pods(pods);
    }

    /// Computes anew which ending pods no Job counts. A process that becomes the leader has observed all Jobs.
    pub fn count_all_ending_pods(&mut self) {
        let pods = self.view.ending_pods().names().cloned().collect();
        self.count_ending_pods(pods);
    }

    fn count_ending_pods(&mut self, pods: Vec<Name>) {
        let mut owner_uids = BTreeSet::new();
        for name in pods {
            let Some(pod) = self.view.ending_pods().get(&name) else { continue };
            let is_left = !self.view.is_counted(&name.0, &pod.job, &pod.owner_uid);
            if pod.is_left != is_left {
                owner_uids.insert(pod.owner_uid.clone());
                let pod = EndingPod { is_left, ..pod.clone() };
                self.view.put_ending_pod(&name, pod);
            }
        }
        for owner_uid in owner_uids {
            self.note_left_pods(&owner_uid);
        }
    }

    fn note_left_pods(&mut self, owner_uid: &str) {
        if self.leads {
            self.overruns.note_left_pods(self.view, owner_uid);
        }
    }
}
