//! Decisions about a pod that runs and that no review has gone over: the pod is marked as managed, tried, and told when it is admitted. A gate can only be
//! given to a new pod.

use berth_api::conditions::{own_reasons, reasons};
use berth_jobs::Facts;
use berth_jobs::pods::pod_defaults;

use crate::cache::WorkloadView;
use crate::controller::flight::Decision;
use crate::job::placement::placements;
use crate::pod::Case;
use crate::write::{EventType, Kind, Purpose, Request, Subresource};

/// Message to a pod that got no quota in time.
const NO_ROOM: &str = "The pod was created while Berth did not answer, and its queue had no quota for it";

impl Case<'_> {
    /// Whether the pod runs without a review, and may get quota still.
    pub(super) fn is_tried(&self) -> bool {
        self.pod.is_let_in() && !self.ctx.trial_is_over(self.name, self.pod, self.now)
    }

    /// The stop of a pod that runs without an admission.
    pub(super) fn not_admitted(&self) -> Decision {
        let usual = "Not admitted by cluster queue";
        self.stop(reasons::NOT_ADMITTED, if self.pod.reviewed { usual } else { NO_ROOM })
    }

    /// The mark of a pod that is not marked: what a review would have given it, but for the gate.
    pub(super) fn mark(&self) -> Decision {
        let goes = self.pod.ended() || self.pod.deleting() || self.ctx.is_ending(&self.name.0);
        if goes || !self.managed() {
            return Decision::Done;
        }
        if self.pod.condemned || self.ctx.trial_is_over(self.name, self.pod, self.now) {
            // The mark may be refused: the pod goes all the same.
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
        // A StatefulSet says itself what its Workload is to say.
        let defaults = self.pod.whole().map(|pod| pod_defaults(&pod, facts, None)).unwrap_or_default();
        let body = self.pod.mark_patch(defaults);
        let text = "The pod was created while Berth did not answer: it runs without quota, and is stopped unless its queue has room for it";
        let notice = self.notice(EventType::Warning, own_reasons::NOT_REVIEWED, text.to_owned());
        let request = Request::Merge { manager: "kueue", subresource: Subresource::None, body };
        self.write(Purpose::MarkPod, request, vec![notice])
    }

    /// Tells a pod that was let in by which admission it runs; `None` where nothing is to be told.
    pub(super) fn tell_admission(&self, workload: &WorkloadView) -> Option<Decision> {
        if !self.pod.is_let_in() {
            return None;
        }
        let placements = placements(self.ctx, workload).ok()?;
        let body = self.pod.admitted_patch(&placements)?;
        let queue = workload.holds().unwrap_or_default();
        let notice = self.notice(EventType::Normal, reasons::STARTED, format!("Admitted by clusterQueue {queue}"));
        let request = Request::Merge { manager: "kueue", subresource: Subresource::None, body };
        Some(self.write(Purpose::MarkPod, request, vec![notice]))
    }
}
