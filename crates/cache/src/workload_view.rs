//! A Workload in slim form: its pod templates are reduced to a shared [`Shape`].

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_api as api;
use berth_api::conditions::gate_positions::CLOSED;
use berth_api::conditions::{is_true, types};
use berth_jobs::training::{Past, Scale, TrainingEnd};
use jiff::Timestamp;
use serde_json::Value;

use crate::cache::provisioning_book::AskedCapacity;
use crate::cache::shape::Shape;
use crate::cache::workload_phase::WorkloadPhase;
use crate::deltas::Pods;
use crate::names::Name;
use crate::write::{Kind, ObjectKey, key};

/// The controlling owner of a Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The kind of the owner, with its API group if Berth does not know the kind of this name in that group.
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// A pod that owns the Workload of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
}

/// The annotation that names the capacity tiers that a Workload accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TierWish {
    /// The text of the annotation.
    pub(crate) text: String,
    /// The tiers, the best first, or the error of the text.
    pub(crate) tiers: Result<Vec<berth_engine::model::Tier>, String>,
}

impl TierWish {
    pub(crate) fn of(text: &str) -> Self {
        let tiers = api::parse_tiers(text).map(|tiers| tiers.into_iter().map(crate::deltas::tier).collect());
        let tiers = tiers.map_err(|problem| format!("annotation {}: {problem}", api::labels::CAPACITY_TIERS));
        Self { text: text.to_owned(), tiers }
    }
}

/// The part of a Workload's state that decides about the pods of a group, and about the Jobs that are parts of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkloadStage {
    is_reserved: bool,
    is_admitted: bool,
    is_evicted: bool,
    is_finished: bool,
    is_deleting: bool,
}

/// A Workload in slim form.
#[derive(Clone, Debug)]
pub(crate) struct WorkloadView {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) generation: i64,
    pub(crate) created: Timestamp,
    pub(crate) deleting: bool,
    /// True if the Workload has Berth's finalizer.
    pub(crate) guarded: bool,
    pub(crate) owner: Option<Box<Owner>>,
    /// For the Workload of a group, the pods that own the Workload together, in the order of their uids.
    pub(crate) group: Option<Box<[Member]>>,
    /// The value of the label `kueue.x-k8s.io/job-uid`, if the Workload has the label.
    pub(crate) job_uid: Option<String>,
    /// Other labels of the Workload, if it has any.
    #[allow(clippy::box_collection, reason = "most have none, and there are 50,000")]
    pub(crate) labels: Option<Box<BTreeMap<String, String>>>,
    pub(crate) queue: String,
    pub(crate) active: bool,
    /// The phase of the Workload according to its status and `spec.active`.
    pub(crate) phase: WorkloadPhase,
    /// The capacity tiers that the Workload accepts, if its annotation names them.
    pub(crate) tiers: Option<Box<TierWish>>,
    /// The preemption scope of the Workload.
    pub(crate) preempts: berth_engine::model::Preempts,
    /// Effective priority: the Workload's own, plus the boost that its annotation requests if boosts are enabled.
    pub(crate) priority: i64,
    /// `spec.priority`.
    pub(crate) own_priority: i32,
    pub(crate) priority_class: Option<Box<api::PriorityClassRef>>,
    /// True if the priority class of the Workload has another value, which the Workload should take over.
    pub(crate) takes_class_value: bool,
    pub(crate) max_execution_seconds: Option<i32>,
    /// The slice that the Workload should replace.
    pub(crate) replaces: Option<Box<Name>>,
    /// The pod sets of the Workload.
    pub(crate) shape: Arc<Shape>,
    /// The number of times that the shape was computed again because LimitRanges or RuntimeClasses changed.
    pub(crate) reshaped: u32,
    /// True if the stored object cannot be decoded, and this state is the readable rest of the object: the Workload keeps the quota that it holds, and control
    /// makes no decision about the Workload or its job.
    pub(crate) unreadable: bool,
    /// The capacity that Berth may have to request for the Workload.
    pub(crate) asked: Option<Box<AskedCapacity>>,
    /// Fields that hardly any Workload has.
    pub(crate) rare: Option<Box<Rare>>,
    pub(crate) status: api::WorkloadStatus,
}

/// Fields that hardly any Workload has, which are kept separately: a cluster may have 50,000 Workloads, and an empty field would use memory in each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rare {
    /// The finalizers of other clients.
    pub(crate) finalizers: Vec<String>,
    /// The references to the other owners of a group's Workload beside the group's pods.
    pub(crate) owners: Vec<Value>,
    /// The value of the annotation `kueue.x-k8s.io/admission-gated-by`.
    pub(crate) gated_by: String,
    /// Names of `spec.preemptionGates`, if the feature is enabled.
    pub(crate) preemption_gates: Vec<String>,
    /// The only flavors that the Workload may get, if its annotation names flavors and the feature gate is on.
    pub(crate) allowed_flavors: Option<Vec<String>>,
    /// The name of the first slice of the Workload's job.
    pub(crate) slice: Option<String>,
    /// Execution history of the previous slice, if this Workload is a scale-up.
    pub(crate) past: Option<Past>,
    /// Number of workers to which a restart brought its run last, see [`crate::training_job::restarts`].
    pub(crate) scale: Option<Scale>,
    /// The end of the Workload's TrainingJob, while pods of the TrainingJob still run.
    pub(crate) end: Option<TrainingEnd>,
    /// True if the Workload was deactivated because its TrainingJob is suspended.
    pub(crate) suspended_with_job: bool,
    /// Pods that run again, by pod set, although their quota was released: the pods are observed at the Workload's job, and not read from the Workload.
    pub(crate) again: Vec<api::ReclaimablePod>,
    /// The reason why the Workload may not be admitted at all: a field that Berth does not support.
    pub(crate) unsupported: Option<String>,
    /// The reason why the Workload's admission is invalid: the admission does not fit the Workload's pod sets.
    pub(crate) misfit: Option<String>,
}

impl Rare {
    /// The rare fields if any of them is set; `None` otherwise.
    pub(crate) fn kept(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

impl WorkloadView {
    /// Whether a plan for this state does not apply to a later state, because the Workload requests other quota, another queue, or no quota.
    pub(crate) fn asks_otherwise(&self, new: &Self) -> bool {
        let is_over = new.is_finished() || new.deleting || new.unreadable || !new.active;
        let asked = (&self.queue, self.priority, &self.tiers, &self.shape.digests);
        is_over || asked != (&new.queue, new.priority, &new.tiers, &new.shape.digests)
    }

    pub(crate) fn is(&self, kind: &str) -> bool {
        is_true(&self.status.conditions, kind)
    }

    /// The controllers that gate the Workload's admission; empty if there are none.
    pub(crate) fn gated_by(&self) -> &str {
        self.rare.as_ref().map_or("", |rare| &rare.gated_by)
    }

    /// Whether the Workload was deactivated because its TrainingJob is suspended, as far as the Workload itself records it.
    pub(crate) fn suspended_with_job(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.suspended_with_job)
    }

    /// Preemption gates of the Workload, by name.
    pub(crate) fn preemption_gates(&self) -> &[String] {
        self.rare.as_ref().map_or(&[], |rare| &rare.preemption_gates)
    }

    /// Whether a preemption gate of the Workload is closed. A gate without a position in the status is closed.
    pub(crate) fn has_closed_preemption_gate(&self) -> bool {
        let known = |name: &String| self.status.preemption_gates.iter().find(|gate| gate.name == *name);
        self.preemption_gates().iter().any(|name| known(name).is_none_or(|gate| gate.position == CLOSED))
    }

    /// The pods of a pod set that may still run; `None` for an unknown name. Reclaimable pods are subtracted only if `reclaims` is true.
    pub(crate) fn remaining(&self, pod_set: &str, reclaims: bool) -> Option<i64> {
        let set = self.shape.pod_sets.iter().find(|set| set.name == pod_set)?;
        let over = self.status.reclaimable_pods.iter().find(|pods| reclaims && pods.name == pod_set);
        let again = self.runs_again().iter().find(|pods| reclaims && pods.name == pod_set);
        let [over, again] = [over, again].map(|pods| pods.map_or(0, |pods| i64::from(pods.count)));
        Some(set.count.saturating_sub(over.saturating_sub(again)).max(0))
    }

    /// Pods that run again, by pod set, although their quota was released.
    pub(crate) fn runs_again(&self) -> &[api::ReclaimablePod] {
        self.rare.as_ref().map_or(&[], |rare| &rare.again)
    }

    /// The pods of a pod set, and the number of them that may still run; no pods if the spec does not have the pod set, as in Kueue. `None` if the spec cannot
    /// be read.
    pub(crate) fn pods(&self, pod_set: &str, reclaims: bool) -> Option<Pods<'_>> {
        let Some(set) = self.shape.pod_sets.iter().find(|set| set.name == pod_set) else {
            return (!self.unreadable).then(Pods::default);
        };
        let runs = self.remaining(pod_set, reclaims)?;
        let again = self.runs_again().iter().any(|pods| pods.name == pod_set);
        Some(Pods { all: set.count, runs, again, requests: Some(&set.requests) })
    }

    pub(crate) fn key(&self) -> Name {
        (self.namespace.clone(), self.name.clone())
    }

    /// The key of the Workload among all objects.
    pub(crate) fn object_key(&self) -> ObjectKey {
        key(Kind::Workload, &self.key())
    }

    /// The reason why the Workload may not be admitted at all: a field that Berth does not support, or an invalid field.
    pub(crate) fn refused(&self) -> Option<&str> {
        let unreadable = self.unreadable.then_some("the stored object does not decode");
        let unsupported = self.rare.as_ref().and_then(|rare| rare.unsupported.as_deref());
        let tiers = self.tiers.as_ref().and_then(|wish| wish.tiers.as_ref().err()).map(String::as_str);
        unreadable.or(self.shape.illegal.as_deref()).or(unsupported).or(tiers)
    }

    /// The part of the Workload's state that decides about the pods of a group.
    pub(crate) fn stage(&self) -> WorkloadStage {
        WorkloadStage {
            is_reserved: self.reserved(),
            is_admitted: self.is(types::ADMITTED),
            is_evicted: self.is(types::EVICTED),
            is_finished: self.is_finished(),
            is_deleting: self.deleting,
        }
    }

    /// The names of the Workload's pod sets, and the number of pods of each pod set.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (&str, i32)> {
        let sets = self.shape.pod_sets.iter();
        sets.map(|set| (set.name.as_str(), i32::try_from(set.count).unwrap_or(i32::MAX)))
    }

    /// The number of pods of a pod set; 0 if the Workload has no such pod set.
    pub(crate) fn size(&self, pod_set: &str) -> i32 {
        self.sizes().find(|(name, _)| *name == pod_set).map_or(0, |(_, count)| count)
    }

    /// Whether the pod with a uid is an owner of the Workload.
    pub(crate) fn is_owned_by(&self, uid: &str) -> bool {
        self.group.as_ref().is_some_and(|members| members.binary_search_by(|member| (*member.uid).cmp(uid)).is_ok())
    }

    /// Whether the Workload has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.phase == WorkloadPhase::Finished
    }

    /// Whether the Workload has a reservation, finished or not.
    pub(crate) fn reserved(&self) -> bool {
        self.is(types::QUOTA_RESERVED) && self.status.admission.is_some()
    }

    /// Why the Workload's admission is invalid; `None` if it is valid.
    pub(crate) fn misfit(&self) -> Option<&str> {
        self.rare.as_ref()?.misfit.as_deref()
    }

    /// Whether the Workload's pods may be started: the Workload is admitted, and its quota fits its pod sets. Running pods are stopped by an eviction.
    pub(crate) fn may_run(&self) -> bool {
        self.phase == WorkloadPhase::Admitted && self.misfit().is_none()
    }

    /// The TrainingJob that controls the Workload.
    pub(crate) fn training_job(&self) -> Option<Name> {
        let owner = self.owner.as_ref().filter(|owner| owner.kind == Kind::TrainingJob.name())?;
        Some((self.namespace.clone(), owner.name.clone()))
    }

    /// The job that controls the Workload, unless it is a TrainingJob, a pod or a pod group.
    pub(crate) fn job(&self) -> Option<ObjectKey> {
        self.whole().filter(|whole| whole.kind.is_job())
    }

    /// The job of any kind that controls the Workload.
    pub(crate) fn whole(&self) -> Option<ObjectKey> {
        let owner = self.owner.as_ref()?;
        let kind = Kind::of_whole(&owner.kind)?;
        Some(ObjectKey { kind, namespace: self.namespace.clone(), name: owner.name.clone() })
    }

    /// The LocalQueue that the Workload names.
    pub(crate) fn local_queue(&self) -> Name {
        (self.namespace.clone(), self.queue.clone())
    }

    /// Whether the Workload counts in the usage of a ClusterQueue: the Workload has a reservation, and has not finished.
    pub(crate) fn holds_quota(&self) -> bool {
        self.phase.holds_quota()
    }

    /// The ClusterQueue whose quota the Workload holds.
    pub(crate) fn holds(&self) -> Option<&str> {
        let admission = self.status.admission.as_ref().filter(|_| self.holds_quota())?;
        Some(admission.cluster_queue.as_deref().unwrap_or_default())
    }

    /// Whether every index has the same entries for two states of a Workload.
    pub(crate) fn indexed_as(&self, other: &Self) -> bool {
        let same = self.uid == other.uid && self.owner == other.owner && self.queue == other.queue;
        same && self.holds() == other.holds() && self.is_finished() == other.is_finished()
    }

    /// Drops the fields of a finished Workload that are no longer read: most Workloads that a cluster keeps are finished.
    pub(crate) fn shed(&mut self) {
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

    pub(crate) fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or_default()
    }

    pub(crate) fn identity(&self) -> berth_jobs::Identity<'_> {
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
    pub(crate) fn label_values<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a str> {
        let of_pods = self.shape.originals.iter().filter_map(move |set| set.labels.get(key));
        let own = self.labels.iter().filter_map(move |labels| labels.get(key));
        of_pods.chain(own).map(String::as_str)
    }
}
