//! Promises of JobSets. A JobSet has one Workload, and its Jobs have none. Its pods are found by the label that its controller puts on
//! them, and pods of a start by the mark that the start puts into its templates.
//!
//! - L1: it is unsuspended by Berth, and a pod with the mark is created, only while its Workload is admitted, and for the same pod
//!   sets. Pods without the mark are its user's own: where no webhook suspends it at its creation they run before Berth has
//!   suspended it, which breaks nothing.
//! - L3: it does not run without an admitted Workload for longer than a while, and has no pods a while after it was suspended: two
//!   controllers stand between it and them.
//! - L4: its quota is freed when none of its pods lives, with or without the mark. That is judged as for Jobs.
//! - L7: when its quota is given back by an eviction its spec is as its user wrote it.
//!
//! Q6: from the write by which Berth starts it until it is suspended again, no pod without the mark lives. A pod that is left from before
//! the start, even if it is terminating, is where the user's template put it, and not where the quota is.

use std::time::Duration;

use serde_json::Value;

use super::change::Change;
use super::pods::Pod;
use super::read::{QUEUE, annotation, label, others_own_suspend};
use super::spec::Spec;
use super::{Judge, Rule, asks};
use crate::kinds::{self, condition, text};

/// Label of a pod with the uid of its JobSet.
pub(super) const UID_LABEL: &str = "jobset.sigs.k8s.io/jobset-uid";
/// Label of a Job with the number of the attempt of its JobSet.
pub(super) const ATTEMPT: &str = "jobset.sigs.k8s.io/restart-attempt";

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are read off an object")]
pub(super) struct JobSet {
    pub(super) key: String,
    pub(super) managed: bool,
    pub(super) suspended: bool,
    /// Time since which it is suspended, or is not.
    pub(super) since: Duration,
    /// True if the JobSet runs and Berth has started it.
    started: bool,
    pub(super) ended: bool,
    pub(super) deleting: bool,
    pub(super) spec: Spec,
    /// Time since which it runs without an admitted workload.
    pub(super) loose: Option<Duration>,
}

impl Judge {
    pub(super) fn take_job_set(&mut self, change: &Change) {
        let object = &change.object;
        let uid = text(object, "/metadata/uid").to_owned();
        if change.deleted {
            self.job_sets.remove(&uid);
            return;
        }
        let before = self.job_sets.get(&uid).cloned();
        let was = |state: fn(&JobSet) -> bool| before.as_ref().is_some_and(state);
        let suspended = object.pointer("/spec/suspend").and_then(Value::as_bool).unwrap_or(false);
        let managed = !label(object, QUEUE).is_empty() || !annotation(object, QUEUE).is_empty();
        // A JobSet that its user starts is Berth's to suspend (L3), and not Berth's start.
        let starts = managed && was(|set| set.suspended) && !suspended && !others_own_suspend(object);
        let set = JobSet {
            key: kinds::key(object),
            managed,
            suspended,
            since: before.as_ref().filter(|b| b.suspended == suspended).map_or(change.at, |b| b.since),
            started: !suspended && (starts || was(|set| set.started)),
            // The controller of JobSets starts nothing of a JobSet that is being deleted; a finalizer may keep the JobSet.
            ended: condition(object, "Completed") == "True"
                || condition(object, "Failed") == "True"
                || object.pointer("/metadata/deletionTimestamp").is_some(),
            deleting: object.pointer("/metadata/deletionTimestamp").is_some(),
            spec: Spec::seen(object, before.as_ref().filter(|_| !self.edited.contains(&uid)).map(|b| &b.spec)),
            loose: before.as_ref().and_then(|b| b.loose),
        };
        if starts {
            self.check_start(&uid, &set.key);
            self.check_asks(&uid, "", &format!("JobSet {}", set.key), &asks::of_job_set(object));
        }
        self.job_sets.insert(uid.clone(), set);
        self.track_loose(&uid, change.at);
    }

    fn check_start(&mut self, uid: &str, key: &str) {
        if !self.has_admitted(uid) {
            self.fail(Rule::Start, format!("JobSet {key} was unsuspended while no workload of it is admitted"));
        }
        let left = self.pods.values().filter(|pod| pod.owner == uid && pod.live && !pod.marked);
        let left: Vec<String> =
            left.map(|pod| if pod.deleting { format!("{} (terminating)", pod.key) } else { pod.key.clone() }).collect();
        if !left.is_empty() {
            let left = left.join(", ");
            self.fail(
                Rule::PodCount,
                format!("JobSet {key} was started while pods of its user's template live: {left}"),
            );
        }
    }

    /// Judges a pod at its creation; the pod counts if it belongs to a JobSet.
    pub(super) fn check_new_pod(&mut self, pod: &Pod) {
        let Some(set) = self.job_sets.get(&pod.owner).filter(|set| set.managed && pod.live) else { return };
        if !pod.key.starts_with(&format!("{}-", set.key)) {
            // A tenant's Job that names the JobSet as its controller: `held.rs` counts its pods.
            return;
        }
        let (key, started) = (set.key.clone(), set.started);
        if pod.marked && !self.has_admitted(&pod.owner) {
            self.fail(
                Rule::Start,
                format!("pod {} was created while no workload of JobSet {key} is admitted", pod.key),
            );
        }
        if !pod.marked && started {
            self.fail(
                Rule::PodCount,
                format!("pod {} of the user's template was created while JobSet {key} runs", pod.key),
            );
        }
    }

    /// Whether a job has an admitted Workload; one that is being deleted holds its quota until no pod is left.
    pub(super) fn has_admitted(&self, uid: &str) -> bool {
        self.workloads.values().any(|w| w.owner == uid && w.admitted && w.reserved && !w.finished)
    }
}
