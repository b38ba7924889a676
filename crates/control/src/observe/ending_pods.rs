//! Pods that are being deleted, of Jobs that other jobs are made of, as they are seen.

use std::collections::BTreeSet;

use crate::cache::ending_pods::EndingPod;
use crate::names::Name;
use crate::observe::pod_change::PodChange;

impl PodChange<'_> {
    /// Takes note of a pod that was seen, as [`crate::cache::View::ending_pod`] says it is to be remembered.
    pub(crate) fn note_ending_pod(&mut self, name: &Name, ending: Option<EndingPod>) {
        let Some(ending) = ending else {
            self.forget_ending_pod(name);
            return;
        };
        let known = self.view.ending_pods.get(name);
        if known == Some(&ending) {
            return;
        }
        let changed = ending.is_left || known.is_some_and(|known| known.is_left);
        let wholes = [known.map(|known| known.whole.clone()), Some(ending.whole.clone())];
        self.view.ending_pods.put(name, ending);
        for whole in wholes.into_iter().flatten().filter(|_| changed) {
            self.note_left_pods(&whole);
        }
    }

    /// A pod has ended, or is none of these any more.
    pub(crate) fn forget_ending_pod(&mut self, name: &Name) {
        if self.view.ending_pods.is_empty() {
            return;
        }
        if let Some(old) = self.view.ending_pods.remove(name).filter(|old| old.is_left) {
            self.note_left_pods(&old.whole);
        }
    }

    /// Pods that a list does not have are gone.
    pub(crate) fn miss_ending_pods(&mut self, listed: &BTreeSet<Name>) {
        let missed = self.view.ending_pods.names().filter(|name| !listed.contains(*name));
        for name in missed.cloned().collect::<Vec<_>>() {
            self.forget_ending_pod(&name);
        }
    }

    /// A Job has come, has gone, or has another controller: it counts its pods now, or does so no more.
    pub(crate) fn count_ending_pods_of(&mut self, namespace: &str, job: &str) {
        // A process that comes to lead looks at all of them.
        if self.view.ending_pods.is_empty() || !self.leads {
            return;
        }
        let pods = self.view.ending_pods.of_job(namespace, job);
        self.count_ending_pods(pods);
    }

    /// A process that comes to lead has seen all Jobs.
    pub(crate) fn count_all_ending_pods(&mut self) {
        let pods = self.view.ending_pods.names().cloned().collect();
        self.count_ending_pods(pods);
    }

    fn count_ending_pods(&mut self, pods: Vec<Name>) {
        let mut wholes = BTreeSet::new();
        for name in pods {
            let Some(pod) = self.view.ending_pods.get(&name) else { continue };
            let is_left = !self.view.is_counted(&name.0, &pod.job, &pod.whole);
            if pod.is_left != is_left {
                wholes.insert(pod.whole.clone());
                let pod = EndingPod { is_left, ..pod.clone() };
                self.view.ending_pods.put(&name, pod);
            }
        }
        for whole in wholes {
            self.note_left_pods(&whole);
        }
    }

    fn note_left_pods(&mut self, whole: &str) {
        if self.leads {
            self.overruns.note_left_pods(self.view, whole);
        }
    }
}
