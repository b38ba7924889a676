//! A Workload in slim form: its pod templates are reduced to a shared [`Shape`].

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_api as api;
use berth_api::conditions::gate_positions::CLOSED;
use berth_api::conditions::{is_true, types};
use berth_jobs::training::{Past, Scale, TrainingEnd};
use jiff::Timestamp;
use serde_json::Value;

use crate::deltas::Pods;
use crate::names::Name;
use crate::object::{Kind, ObjectKey, key};
use crate::provisioning_index::AskedCapacity;
use crate::shape::Shape;
use crate::workload_phase::WorkloadPhase;

/// The controlling owner of a Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The kind of the owner, with its API group if Berth does not know the kind of this name in that group.
    pub kind: String,
    /// The name of the owner, which is in the namespace of the Workload.
    pub name: String,
    /// The uid of the owner. A pod group is no object, so that a text with its name stands for its uid.
    pub uid: String,
}

/// A pod that owns the Workload of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name of the pod.
    pub name: Box<str>,
    /// The uid of the pod.
    pub uid: Box<str>,
}

/// The annotation that names the capacity tiers that a Workload accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierRequest {
    /// The text of the annotation `berth.dev/capacity-tiers`.
    pub text: String,
    /// The tiers, the best first, or the error of the text.
    pub tiers: Result<Vec<berth_engine::model::Tier>, String>,
}

impl TierRequest {
    /// The tiers that a text of the annotation `berth.dev/capacity-tiers` names. An invalid text of the annotation is kept with its error.
    pub fn of(text: &str) -> Self {
        let tiers = api::parse_tiers(text).map(|tiers| tiers.into_iter().map(crate::deltas::tier).collect());
        let tiers = tiers.map_err(|problem| format!("annotation {}: {problem}", api::labels::CAPACITY_TIERS));
        Self { text: text.to_owned(), tiers }
    }
}

/// The part of a Workload's state that decides about the pods of a group, and about the Jobs that are parts of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadStage {
    is_reserved: bool,
    is_admitted: bool,
    is_evicted: bool,
    is_finished: bool,
    is_deleting: bool,
}

/// A Workload in slim form.
#[derive(Clone, Debug)]
pub struct WorkloadView {
    /// The namespace of the Workload.
    pub namespace: String,
    /// The name of the Workload.
    pub name: String,
    /// The uid of the Workload.
    pub uid: String,
    /// The resourceVersion of the observed state, see [`Self::version`].
    pub resource_version: String,
    /// The generation of the Workload; 0 if the Workload has none. Two states of a Workload with the same positive generation have the same spec.
    pub generation: i64,
    /// The time of the Workload's creation; the beginning of 1970 if the object has no such time.
    pub created: Timestamp,
    /// True if the Workload is being deleted.
    pub deleting: bool,
    /// True if the Workload has Berth's finalizer.
    pub guarded: bool,
    /// The controlling owner; for the Workload of a pod group, the group. `None` if no owner controls the Workload.
    pub owner: Option<Box<Owner>>,
    /// For the Workload of a group, the pods that own the Workload together, in the order of their uids.
    pub group: Option<Box<[Member]>>,
    /// The value of the label `kueue.x-k8s.io/job-uid`, if the Workload has the label.
    pub job_uid: Option<String>,
    /// The labels of the Workload other than `kueue.x-k8s.io/job-uid`, if it has any.
    #[allow(clippy::box_collection, reason = "most have none, and there are 50,000")]
    pub labels: Option<Box<BTreeMap<String, String>>>,
    /// `spec.queueName`: the name of the LocalQueue in the Workload's namespace; empty if the Workload names none.
    pub queue: String,
    /// `spec.active`, which is true if absent; an inactive Workload gets no quota, and is evicted if it holds quota.
    pub active: bool,
    /// The phase of the Workload according to its status and `spec.active`.
    pub phase: WorkloadPhase,
    /// The capacity tiers that the Workload accepts, if its annotation names them.
    pub tiers: Option<Box<TierRequest>>,
    /// The preemption scope of the Workload.
    pub preempts: berth_engine::model::Preempts,
    /// Effective priority: the Workload's own, plus the boost that its annotation requests if boosts are enabled.
    pub priority: i64,
    /// `spec.priority`.
    pub own_priority: i32,
    /// `spec.priorityClassRef`: the class from which the priority comes; `None` if the priority comes from no class.
    pub priority_class: Option<Box<api::PriorityClassRef>>,
    /// True if the priority class of the Workload has another value, which the Workload should take over.
    pub(crate) takes_class_value: bool,
    /// `spec.maximumExecutionTimeSeconds`: the longest time in seconds for which the Workload is admitted, in all its admissions; `None` if there is no limit.
    pub max_execution_seconds: Option<i32>,
    /// The slice that the Workload should replace.
    pub replaces: Option<Box<Name>>,
    /// The pod sets of the Workload.
    pub shape: Arc<Shape>,
    /// The number of times that the shape was computed again because LimitRanges or RuntimeClasses changed.
    pub reshaped: u32,
    /// True if the stored object cannot be decoded, and this state is the readable rest of the object: the Workload keeps the quota that it holds, and control
    /// makes no decision about the Workload or its job.
    pub unreadable: bool,
    /// The capacity that Berth may have to request for the Workload.
    pub asked: Option<Box<AskedCapacity>>,
    /// Fields that hardly any Workload has.
    pub rare: Option<Box<Rare>>,
    /// The last observed status. After [`Self::shed`], a finished Workload has only its condition `Finished` and the name of its ClusterQueue.
    pub status: api::WorkloadStatus,
}

/// Fields that hardly any Workload has, which are kept separately: a cluster may have 50,000 Workloads, and an empty field would use memory in each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rare {
    /// The finalizers that other clients have put on the Workload.
    pub finalizers: Vec<String>,
    /// The references to the owners of a group's Workload that are not pods of the group.
    pub owners: Vec<Value>,
    /// The value of the annotation `kueue.x-k8s.io/admission-gated-by`.
    pub gated_by: String,
    /// Names of `spec.preemptionGates`, if the feature is enabled.
    pub preemption_gates: Vec<String>,
    /// The only flavors that the Workload may get, if its annotation names flavors and the feature gate is on.
    pub allowed_flavors: Option<Vec<String>>,
    /// The name of the first slice of the Workload's job.
    pub slice: Option<String>,
    /// Execution history of the previous slice, if this Workload is a scale-up.
    pub past: Option<Past>,
    /// Number of workers that the last restart for scaling gave the Workload's run (`training_job/restarts.rs` of `berth-reconcile`).
    pub scale: Option<Scale>,
    /// The end of the Workload's TrainingJob (the role that ended it, its success and the Job's message), noted while pods of the TrainingJob still run.
    pub end: Option<TrainingEnd>,
    /// True if the Workload was deactivated because its TrainingJob is suspended.
    pub suspended_with_job: bool,
    /// Pods that run again, by pod set, although their quota was released: the pods are observed at the Workload's job, and not read from the Workload.
    pub again: Vec<api::ReclaimablePod>,
    /// The reason why the Workload may not be admitted at all: a field that Berth does not support.
    pub unsupported: Option<String>,
    /// The reason why the Workload's admission is invalid: the admission does not fit the Workload's pod sets.
    pub misfit: Option<String>,
}

impl Rare {
    /// The `Rare` fields of a Workload if any of them is set; `None` otherwise.
    pub fn kept(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

impl WorkloadView {
    /// Whether a plan for this state of the Workload does not apply to the later state `new`, because the Workload requests other quota, another LocalQueue, or
    /// no quota.
    pub fn asks_otherwise(&self, new: &Self) -> bool {
        let is_over = new.is_finished() || new.deleting || new.unreadable || !new.active;
        let asked = (&self.queue, self.priority, &self.tiers, &self.shape.digests);
        is_over || asked != (&new.queue, new.priority, &new.tiers, &new.shape.digests)
    }

    /// Whether the condition of the given type is true; an absent condition is not true.
    pub fn is(&self, kind: &str) -> bool {
        is_true(&self.status.conditions, kind)
    }

    /// The controllers that gate the Workload's admission; empty if there are none.
    pub fn gated_by(&self) -> &str {
        self.rare.as_ref().map_or("", |rare| &rare.gated_by)
    }

    /// Whether the Workload was deactivated because its TrainingJob is suspended, as far as the Workload itself records it.
    pub fn suspended_with_job(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.suspended_with_job)
    }

    /// Preemption gates of the Workload, by name.
    pub fn preemption_gates(&self) -> &[String] {
        self.rare.as_ref().map_or(&[], |rare| &rare.preemption_gates)
    }

    /// Whether a preemption gate of the Workload is closed. A gate without a position in the status is closed.
    pub fn has_closed_preemption_gate(&self) -> bool {
        let known = |name: &String| self.status.preemption_gates.iter().find(|gate| gate.name == *name);
        self.preemption_gates().iter().any(|name| known(name).is_none_or(|gate| gate.position == CLOSED))
    }

    /// The pods of a pod set that may still run; `None` for an unknown name. The number of reclaimable pods is subtracted from the pods of the pod set only if
    /// `reclaims` is true.
    pub fn remaining(&self, pod_set: &str, reclaims: bool) -> Option<i64> {
        let set = self.shape.pod_sets.iter().find(|set| set.name == pod_set)?;
        let over = self.status.reclaimable_pods.iter().find(|pods| reclaims && pods.name == pod_set);
        let again = self.runs_again().iter().find(|pods| reclaims && pods.name == pod_set);
        let [over, again] = [over, again].map(|pods| pods.map_or(0, |pods| i64::from(pods.count)));
        Some(set.count.saturating_sub(over.saturating_sub(again)).max(0))
    }

    /// Pods that run again, by pod set, although their quota was released.
    pub fn runs_again(&self) -> &[api::ReclaimablePod] {
        self.rare.as_ref().map_or(&[], |rare| &rare.again)
    }

    /// The pods of a pod set, and the number of them that may still run; no pods if the spec does not have the pod set, as in Kueue. The pods of a pod set are
    /// `None` if the spec of the Workload cannot be read.
    pub fn pods(&self, pod_set: &str, reclaims: bool) -> Option<Pods<'_>> {
        let Some(set) = self.shape.pod_sets.iter().find(|set| set.name == pod_set) else {
            return (!self.unreadable).then(Pods::default);
        };
        let runs = self.remaining(pod_set, reclaims)?;
        let again = self.runs_again().iter().any(|pods| pods.name == pod_set);
        Some(Pods { all: set.count, runs, again, requests: Some(&set.requests) })
    }

    /// Namespace and name of the Workload.
    pub fn key(&self) -> Name {
        (self.namespace.clone(), self.name.clone())
    }

    /// The key of the Workload among all objects.
    pub fn object_key(&self) -> ObjectKey {
        key(Kind::Workload, &self.key())
    }

    /// The reason why the Workload may not be admitted at all: a field that Berth does not support, or an invalid field.
    pub fn refused(&self) -> Option<&str> {
        let unreadable = self.unreadable.then_some("the stored object does not decode");
        let unsupported = self.rare.as_ref().and_then(|rare| rare.unsupported.as_deref());
        let tiers = self.tiers.as_ref().and_then(|request| request.tiers.as_ref().err()).map(String::as_str);
        unreadable.or(self.shape.illegal.as_deref()).or(unsupported).or(tiers)
    }

    /// The part of the Workload's state that decides about the pods of a group.
    pub fn stage(&self) -> WorkloadStage {
        WorkloadStage {
            is_reserved: self.reserved(),
            is_admitted: self.is(types::ADMITTED),
            is_evicted: self.is(types::EVICTED),
            is_finished: self.is_finished(),
            is_deleting: self.deleting,
        }
    }

    /// The names of the Workload's pod sets, and the number of pods of each pod set.
    pub fn sizes(&self) -> impl Iterator<Item = (&str, i32)> {
        let sets = self.shape.pod_sets.iter();
        sets.map(|set| (set.name.as_str(), i32::try_from(set.count).unwrap_or(i32::MAX)))
    }

    /// The number of pods of a pod set; 0 if the Workload has no such pod set.
    pub fn size(&self, pod_set: &str) -> i32 {
        self.sizes().find(|(name, _)| *name == pod_set).map_or(0, |(_, count)| count)
    }

    /// Whether the pod with a uid is an owner of the Workload.
    pub fn is_owned_by(&self, uid: &str) -> bool {
        self.group.as_ref().is_some_and(|members| members.binary_search_by(|member| (*member.uid).cmp(uid)).is_ok())
    }

    /// Whether the Workload has ended.
    pub fn is_finished(&self) -> bool {
        self.phase == WorkloadPhase::Finished
    }

    /// Whether the Workload has a reservation, finished or not.
    pub fn reserved(&self) -> bool {
        self.is(types::QUOTA_RESERVED) && self.status.admission.is_some()
    }

    /// Why the Workload's admission is invalid; `None` if it is valid.
    pub fn misfit(&self) -> Option<&str> {
        self.rare.as_ref()?.misfit.as_deref()
    }

    /// Whether the Workload's pods may be started: the Workload is admitted, and its quota fits its pod sets. The result of `may_run` stops no running pods:
    /// running pods are stopped only by an eviction of the Workload.
    pub fn may_run(&self) -> bool {
        self.phase == WorkloadPhase::Admitted && self.misfit().is_none()
    }

    /// The TrainingJob that controls the Workload.
    pub fn training_job(&self) -> Option<Name> {
        let owner = self.owner.as_ref().filter(|owner| owner.kind == Kind::TrainingJob.name())?;
        Some((self.namespace.clone(), owner.name.clone()))
    }

    /// The job that controls the Workload, unless it is a TrainingJob, a pod or a pod group.
    pub fn job(&self) -> Option<ObjectKey> {
        self.owner_key().filter(|owner_key| owner_key.kind.is_job())
    }

    /// The job of any kind that controls the Workload.
    pub fn owner_key(&self) -> Option<ObjectKey> {
        let owner = self.owner.as_ref()?;
        let kind = Kind::of_owner(&owner.kind)?;
        Some(ObjectKey { kind, namespace: self.namespace.clone(), name: owner.name.clone() })
    }

    /// The LocalQueue that the Workload names.
    pub fn local_queue(&self) -> Name {
        (self.namespace.clone(), self.queue.clone())
    }

    /// Whether the Workload counts in the usage of a ClusterQueue: the Workload has a reservation, and has not finished.
    pub fn holds_quota(&self) -> bool {
        self.phase.holds_quota()
    }

    /// The ClusterQueue whose quota the Workload holds.
    pub fn holds(&self) -> Option<&str> {
        let admission = self.status.admission.as_ref().filter(|_| self.holds_quota())?;
        Some(admission.cluster_queue.as_deref().unwrap_or_default())
    }

    /// Whether every index has the same entries for two states of a Workload.
    pub(crate) fn indexed_as(&self, other: &Self) -> bool {
        let same = self.uid == other.uid && self.owner == other.owner && self.queue == other.queue;
        same && self.holds() == other.holds() && self.is_finished() == other.is_finished()
    }

    /// Drops the fields of a finished Workload that are no longer read: most Workloads that a cluster keeps are finished.
    pub fn shed(&mut self) {
        if !self.is_finished() {
            return;
        }
        self.labels = None;
        let mut conditions = std::mem::take(&mut self.status.conditions);
        conditions.retain(|condition| condition.type_ == types::FINISHED);
        conditions.shrink_to_fit();
        let cluster_queue = self.status.admission.take().and_then(|admission| admission.cluster_queue);
        // The ClusterQueue counts the finished Workload until the Workload is deleted.
        let admission =
            cluster_queue.map(|name| api::Admission { cluster_queue: Some(name), pod_set_assignments: Vec::new() });
        self.status = api::WorkloadStatus { conditions, admission, ..api::WorkloadStatus::default() };
    }

    /// The resourceVersion as a number, for comparison with other states of the Workload; 0 if it is not a number.
    pub fn version(&self) -> u64 {
        berth_jobs::version_number(&self.resource_version)
    }

    /// The identity of the observed state, with the resourceVersion that a server-side apply names as its precondition.
    pub fn identity(&self) -> berth_jobs::Identity<'_> {
        berth_jobs::Identity {
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            resource_version: &self.resource_version,
        }
    }
}

impl WorkloadView {
    /// The values of a label: first the values of the Workload's pod sets in their order, then the value of the Workload itself.
    pub fn label_values<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a str> {
        let of_pods = self.shape.originals.iter().filter_map(move |set| set.labels.get(key));
        let own = self.labels.iter().filter_map(move |labels| labels.get(key));
        of_pods.chain(own).map(String::as_str)
    }
}
