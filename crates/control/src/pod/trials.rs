//! Pods that run and that no review has gone over, since they were created while Berth did not answer. Each is marked as managed, charged to its queue
//! at once, and tried for a short time; a pod that gets no quota meanwhile is stopped (`docs/departures/0064-pods-let-in-without-a-review.md`).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use berth_jobs::pods::{PodState, may_be_let_in};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::cache::pods::group_of;
use crate::cache::{Name, WorkloadView};
use crate::context::Context;
use crate::controller::{Control, after, key};
use crate::write::Kind;

/// Time in which such a pod gets quota, in milliseconds, from when a leader sees it first. The writes before that (the mark, the Workload, the
/// reservation) take a round trip each, and a plan some milliseconds. After ten seconds no more may run than there is quota for: the other half of
/// that time is for the end of the pod.
const TRIAL_MS: i64 = 5_000;
/// The same while the queue has room for all that it is charged with, in milliseconds: nothing runs beyond its quota, and after an outage many writes
/// may be waiting for a busy API server.
const TRIAL_WITH_ROOM_MS: i64 = 60_000;
/// Time for which the begin of a trial is remembered of a pod that is not seen any more, in milliseconds: a pod that comes out of sight by its labels is
/// not tried again.
const KEPT_MS: i64 = 120_000;

/// Begins of trials, by the uid of the pod. Nothing of it is stored: a process that comes to lead tries each pod anew.
#[derive(Debug, Default)]
pub(crate) struct Trials(BTreeMap<Box<str>, Timestamp>);

impl Trials {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether the trial of a pod is over where its queue has room, and where the queue has none.
    fn is_over(&self, pod: &PodState, now: Timestamp, has_room: bool) -> bool {
        let time = if has_room { TRIAL_WITH_ROOM_MS } else { TRIAL_MS };
        self.0.get(&pod.uid).is_some_and(|began| after(*began, time) <= now)
    }
}

impl Control {
    /// Takes the time since which pods are counted: pods without the label of managed pods that were created before are left alone, and all of them with
    /// `None`. To be called before pods are observed.
    pub fn count_pods_since(&mut self, since: Option<Timestamp>) {
        self.session.pods_counted_since = since;
    }

    /// Begins the trials of pods that were seen since. Costs the pods that are tried: nearly always none.
    pub(crate) fn begin_trials(&mut self, now: Timestamp) {
        if !self.view.pods.has_let_in() && self.quota.trials.0.is_empty() {
            return;
        }
        let asks = |name: &Name, pod: &PodState| {
            let managed = self.settings.job_kinds.contains(&Kind::Pod) && self.context().manages(&name.0);
            managed && self.context().names_a_queue(pod)
        };
        let tried = self.view.pods.let_in().filter(|(name, pod)| asks(name, pod));
        let tried: Vec<(Name, Box<str>)> = tried.map(|(name, pod)| (name.clone(), pod.uid.clone())).collect();
        let there: BTreeSet<&str> = tried.iter().map(|(_, uid)| &**uid).collect();
        self.quota.trials.0.retain(|uid, began| there.contains(&**uid) || after(*began, KEPT_MS) > now);
        for (name, uid) in tried {
            if let Entry::Vacant(trial) = self.quota.trials.0.entry(uid) {
                trial.insert(now);
                for time in [TRIAL_MS, TRIAL_WITH_ROOM_MS] {
                    self.wait(key(Kind::Pod, &name), after(now, time));
                }
            }
        }
    }
}

impl Context<'_> {
    /// The state of a pod without the label of managed pods, if the pod counts all the same. Most pods without the label do not, and are not read.
    pub(crate) fn let_in_state(&self, pod: &Pod) -> Option<PodState> {
        let since = self.session.pods_counted_since.filter(|_| may_be_let_in(pod))?;
        let created = pod.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
        let state = (created >= since.as_second()).then(|| PodState::read(pod))?;
        (!state.ended()).then_some(state)
    }

    /// Whether the time is over in which a pod is tried.
    pub(crate) fn trial_is_over(&self, name: &Name, pod: &PodState, now: Timestamp) -> bool {
        let trials = &self.quota.trials;
        trials.is_over(pod, now, true) || (trials.is_over(pod, now, false) && !self.has_room_for_pod(name, pod))
    }

    /// Whether a queue has room for all that a pod, or the group of the pod, uses: it holds that quota, or is charged with it.
    fn has_room_for_pod(&self, name: &Name, pod: &PodState) -> bool {
        let group = group_of(&name.0, pod);
        let object = group.as_ref().map_or_else(|| key(Kind::Pod, name), |group| key(Kind::PodGroup, group));
        self.quota.overruns.has_room(&object).unwrap_or_else(|| match &group {
            Some(group) => self.view.workloads.get(group).is_some_and(WorkloadView::holds_quota),
            None => self.view.workloads.owned_by(&pod.uid).any(WorkloadView::holds_quota),
        })
    }

    /// Whether a workload is tried although pods of it run: no review has gone over any of them, and it asks for the place that they have.
    pub(crate) fn is_on_trial(&self, workload: &WorkloadView) -> bool {
        let Some(whole) = workload.whole().filter(|_| self.view.pods.has_let_in()) else { return false };
        let (kind, name) = (whole.kind, (whole.namespace, whole.name));
        match kind {
            Kind::Pod => self.view.pods.get(&name).is_some_and(PodState::is_let_in),
            Kind::PodGroup => {
                let mut running = self.view.pods.members(&name).filter(|(_, pod)| pod.runs()).peekable();
                running.peek().is_some() && running.all(|(_, pod)| pod.is_let_in())
            }
            _ => false,
        }
    }
}
