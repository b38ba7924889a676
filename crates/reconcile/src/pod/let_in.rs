//! Decisions about a pod that was let in, that is, a running pod that no webhook of Berth has reviewed. A let-in pod is marked as managed and gets a trial,
//! and its admission is written into the pod. Berth adds no scheduling gate to a let-in pod, because only a new pod can get a gate.

use berth_api::conditions::{own_reasons, reasons};
use berth_cache::pods::group_of;
use berth_cache::{Name, WorkloadView};
use berth_jobs::Facts;
use berth_jobs::pods::{PodState, may_be_let_in, pod_defaults};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::context::Context;
use crate::decision::Decision;
use crate::job::placement::placements;
use crate::pod::PodCase;
use crate::write::{EventType, Kind, Purpose, key};

/// Message about a pod that got no quota within its trial.
const NO_ROOM: &str = "The pod was created while Berth did not answer, and its queue had no quota for it";

impl PodCase<'_> {
    /// Whether the pod was let in and may still get quota within its trial.
    pub(super) fn is_tried(&self) -> bool {
        self.pod.is_let_in() && !self.ctx.trial_is_over(self.name, self.pod, self.now)
    }

    /// The stop of a pod that runs without an admission.
    pub(super) fn not_admitted(&self) -> Decision {
        let usual = "Not admitted by cluster queue";
        self.stop(reasons::NOT_ADMITTED, if self.pod.reviewed { usual } else { NO_ROOM })
    }

    /// The write that marks a pod as managed: the pod gets all fields that a review would have set, except the gate.
    pub(super) fn mark(&self) -> Decision {
        let goes = self.pod.ended() || self.pod.deleting() || self.ctx.is_ending(&self.name.0);
        if goes || !self.managed() {
            return Decision::Done;
        }
        if self.pod.condemned || self.ctx.trial_is_over(self.name, self.pod, self.now) {
            // The write that marks the pod may be refused again and again, so a pod whose trial is over is stopped without the mark.
            return self.not_admitted();
        }
        let settings = &self.ctx.settings;
        let has = |kind| settings.job_kinds.contains(&kind);
        let facts = Facts {
            managed_namespace: true,
            without_queue_name: settings.manage_jobs_without_queue_name,
            pods: true,
            deployments: has(Kind::Deployment),
            stateful_sets: has(Kind::StatefulSet),
            ..Facts::default()
        };
        // A StatefulSet itself names the fields of its Workload, so the pod gets no defaults from its StatefulSet.
        let defaults = self.pod.decode().map(|pod| pod_defaults(&pod, facts, None)).unwrap_or_default();
        let patch = self.pod.mark_patch(defaults);
        let text = "The pod was created while Berth did not answer: it runs without quota, and is stopped unless its queue has room for it";
        let notice = self.notice(EventType::Warning, own_reasons::NOT_REVIEWED, text.to_owned());
        self.patch(Purpose::MarkPod, patch, vec![notice])
    }

    /// Writes the admission by which a let-in pod runs into the pod, with an event; `None` if the pod was not let in or needs no write.
    pub(super) fn annotate_admission(&self, workload: &WorkloadView) -> Option<Decision> {
        if !self.pod.is_let_in() {
            return None;
        }
        let placements = placements(self.ctx, workload).ok()?;
        let patch = self.pod.admitted_patch(&placements)?;
        let queue = workload.holds().unwrap_or_default();
        let notice = self.notice(EventType::Normal, reasons::STARTED, format!("Admitted by clusterQueue {queue}"));
        Some(self.patch(Purpose::MarkPod, patch, vec![notice]))
    }
}

/// The pods that were let in and request quota, with their uids. The cost of `tried` grows with the number of let-in pods, and there are nearly always none.
pub fn tried(ctx: &Context<'_>) -> Vec<(Name, Box<str>)> {
    let asks = |name: &Name, pod: &PodState| {
        let managed = ctx.settings.job_kinds.contains(&Kind::Pod) && ctx.manages(&name.0);
        managed && ctx.names_a_queue(pod)
    };
    let tried = ctx.view.pods().let_in().filter(|(name, pod)| asks(name, pod));
    tried.map(|(name, pod)| (name.clone(), pod.uid.clone())).collect()
}

impl Context<'_> {
    /// The state of a pod without the label of managed pods, if the pod was let in. Most pods without the label of managed pods were not let in, and are not
    /// decoded.
    pub fn let_in_state(&self, pod: &Pod) -> Option<PodState> {
        let since = self.session.pods_counted_since().filter(|_| may_be_let_in(pod))?;
        let created = pod.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
        let state = (created >= since.as_second()).then(|| PodState::read(pod))?;
        (!state.ended()).then_some(state)
    }

    /// Whether the trial of a pod is over.
    pub(crate) fn trial_is_over(&self, name: &Name, pod: &PodState, now: Timestamp) -> bool {
        let trials = self.quota.trials();
        trials.is_over(pod, now, true) || (trials.is_over(pod, now, false) && !self.has_room_for_pod(name, pod))
    }

    /// Whether the ClusterQueue of a pod, or of its group, has room for the usage: the Workload holds quota for the usage, or the ClusterQueue is charged with
    /// the usage and is not overdrawn.
    fn has_room_for_pod(&self, name: &Name, pod: &PodState) -> bool {
        let group = group_of(&name.0, pod);
        let object = group.as_ref().map_or_else(|| key(Kind::Pod, name), |group| key(Kind::PodGroup, group));
        self.quota.overruns().has_room(&object).unwrap_or_else(|| match &group {
            Some(group) => self.view.workloads().get(group).is_some_and(WorkloadView::holds_quota),
            None => self.view.workloads().owned_by(&pod.uid).any(WorkloadView::holds_quota),
        })
    }

    /// Whether a Workload is on trial: it requests quota for running pods, and no webhook has reviewed any of these pods.
    pub(crate) fn is_on_trial(&self, workload: &WorkloadView) -> bool {
        let Some(owner_key) = workload.owner_key().filter(|_| self.view.pods().has_let_in()) else { return false };
        let (kind, name) = (owner_key.kind, (owner_key.namespace, owner_key.name));
        match kind {
            Kind::Pod => self.view.pods().get(&name).is_some_and(PodState::is_let_in),
            Kind::PodGroup => {
                let mut running = self.view.pods().members(&name).filter(|(_, pod)| pod.runs()).peekable();
                running.peek().is_some() && running.all(|(_, pod)| pod.is_let_in())
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
