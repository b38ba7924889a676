//! Rules at each change of a pod.

use std::time::Duration;

use serde_json::Value;

use super::change::Change;
use super::held::Claim;
use super::job_sets::UID_LABEL;
use super::read::{controller, label, unit};
use super::workload::Workload;
use super::{Judge, Rule};
use crate::kinds::{self, items, text};

/// The job controller, which is not ours, may create pods from a stale cache for this long after a suspension, on a busy machine.
const STALE_CONTROLLER: Duration = Duration::from_secs(8);

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are read off an object")]
pub(super) struct Pod {
    pub(super) key: String,
    /// Owner of its Workload: the uid of the job, or the name of its group.
    pub(super) owner: String,
    pub(super) live: bool,
    pub(super) deleting: bool,
    /// The uid of the controller of the pod.
    pub(super) job: String,
    /// True if the Job of the pod is gone, or if the pod has lost the Job: no controller counts the pod any more.
    pub(super) left: bool,
    /// True while the pod waits behind the gate of admission.
    gated: bool,
    /// True if the pod has Berth's label: it was made from a template that a start had changed.
    pub(super) marked: bool,
    /// The quota that the pod uses.
    pub(super) claim: Claim,
}

impl Judge {
    pub(super) fn take_pod(&mut self, change: &Change) {
        let object = &change.object;
        let uid = text(object, "/metadata/uid").to_owned();
        let before = self.pods.get(&uid).map(|pod| pod.claim.clone());
        if change.deleted {
            self.pods.remove(&uid);
            self.weigh_pod(&uid, before.as_ref(), change.at);
            return;
        }
        // A TrainingJob, like a JobSet, has one Workload for all its Jobs.
        let training = label(object, "berth.dev/training-job-uid");
        let of_training = !training.is_empty();
        let managed = !label(object, "kueue.x-k8s.io/managed").is_empty();
        let parent = [training, label(object, UID_LABEL)].into_iter().find(|uid| !uid.is_empty());
        let owner = if managed { unit(object) } else { parent.unwrap_or_else(|| controller(object)) };
        let deleting = object.pointer("/metadata/deletionTimestamp").is_some();
        let gated =
            items(object, "/spec/schedulingGates").iter().any(|gate| text(gate, "/name") == "kueue.x-k8s.io/admission");
        // Without a node, or with a grace period of zero, nothing runs in a pod that is deleted.
        let grace = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
        let never = deleting && (text(object, "/spec/nodeName").is_empty() || grace == Some(0));
        let ended = matches!(text(object, "/status/phase"), "Succeeded" | "Failed") || (managed && (gated || never));
        let marked = !label(object, "kueue.x-k8s.io/podset").is_empty();
        let fresh = !self.pods.contains_key(&uid);
        let claim = self.claim(object, (&owner, managed), before.as_ref());
        let job = controller(object);
        let lost = |before: &Pod| before.left || (!before.job.is_empty() && before.job != job);
        let left = self.pods.get(&uid).is_some_and(lost);
        let (key, live) = (kinds::key(object), !ended);
        let pod = Pod { key, owner: owner.clone(), live, deleting, job, left, gated, marked, claim };
        let started = self.pods.get(&uid).is_some_and(|before| before.gated) && !gated && !deleting;
        let admitted = |w: &Workload| w.owner == owner && w.may_start(change.at);
        if managed && started && !self.workloads.values().any(admitted) {
            self.fail(Rule::Start, format!("pod {} was started while no workload of it is admitted", pod.key));
        }
        if fresh
            && pod.live
            && let Some(job) = self.jobs.get(&owner)
            && job.managed
            && job.suspended
            && change.at.saturating_sub(job.since) > STALE_CONTROLLER
        {
            let what = format!("pod {} was created although job {} is suspended", pod.key, job.key);
            self.fail(Rule::Suspension, what);
        }
        if fresh {
            self.check_new_pod(&pod);
        }
        self.pods.insert(uid.clone(), pod);
        self.weigh_pod(&uid, before.as_ref(), change.at);
        if fresh && of_training {
            self.check_covered(&owner);
        }
    }
}
