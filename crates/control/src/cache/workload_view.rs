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

/// The controlling owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// With its group where that is not the one of which Berth knows a kind of this name.
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

/// The annotation that names the accepted capacity tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TierWish {
    /// As it is written.
    pub(crate) text: String,
    /// The tiers, best first, or the fault of the text.
    pub(crate) tiers: Result<Vec<berth_engine::model::Tier>, String>,
}

impl TierWish {
    pub(crate) fn of(text: &str) -> Self {
        let tiers = api::parse_tiers(text).map(|tiers| tiers.into_iter().map(crate::deltas::tier).collect());
        let tiers = tiers.map_err(|problem| format!("annotation {}: {problem}", api::labels::CAPACITY_TIERS));
        Self { text: text.to_owned(), tiers }
    }
}

/// The part of a Workload's state that decides about the pods of a group, and about the Jobs that a job is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkloadStage {
    is_reserved: bool,
    is_admitted: bool,
    is_evicted: bool,
    is_finished: bool,
    is_deleting: bool,
}

/// A Workload, slim.
#[derive(Clone, Debug)]
pub(crate) struct WorkloadView {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) generation: i64,
    pub(crate) created: Timestamp,
    pub(crate) deleting: bool,
    /// Carries Berth's finalizer.
    pub(crate) guarded: bool,
    pub(crate) owner: Option<Box<Owner>>,
    /// The pods that own it together, of the Workload of a group, in the order of their uids.
    pub(crate) group: Option<Box<[Member]>>,
    /// Carries the label `kueue.x-k8s.io/job-uid`.
    pub(crate) job_uid: Option<String>,
    /// Other labels of the Workload, if it has any.
    #[allow(clippy::box_collection, reason = "most have none, and there are 50,000")]
    pub(crate) labels: Option<Box<BTreeMap<String, String>>>,
    pub(crate) queue: String,
    pub(crate) active: bool,
    /// Phase of the Workload, as its status and `spec.active` show it.
    pub(crate) phase: WorkloadPhase,
    /// The capacity tiers that it accepts, where its annotation names them.
    pub(crate) tiers: Option<Box<TierWish>>,
    /// Its preemption scope.
    pub(crate) preempts: berth_engine::model::Preempts,
    /// Effective priority: the Workload's own, plus the boost that its annotation requests if boosts are enabled.
    pub(crate) priority: i64,
    /// `spec.priority`.
    pub(crate) own_priority: i32,
    pub(crate) priority_class: Option<Box<api::PriorityClassRef>>,
    /// The priority class of the Workload has another value, which the Workload is to take over.
    pub(crate) takes_class_value: bool,
    pub(crate) max_execution_seconds: Option<i32>,
    /// The slice that it is to replace.
    pub(crate) replaces: Option<Box<Name>>,
    /// Its pod sets.
    pub(crate) shape: Arc<Shape>,
    /// Number of times that the shape was computed again because LimitRanges or RuntimeClasses changed.
    pub(crate) reshaped: u32,
    /// The stored object does not decode, and this is what could be read: it keeps the quota that it holds, and nothing is
    /// decided about it or its job.
    pub(crate) unreadable: bool,
    /// Capacity that may have to be asked for.
    pub(crate) asked: Option<Box<AskedCapacity>>,
    /// Fields that hardly any workload has.
    pub(crate) rare: Option<Box<Rare>>,
    pub(crate) status: api::WorkloadStatus,
}

/// Fields that hardly any workload has, kept beside it: there are 50,000, and each text takes its room, empty or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rare {
    /// Finalizers of others.
    pub(crate) finalizers: Vec<String>,
    /// References to its other owners beside its pods, of a group's.
    pub(crate) owners: Vec<Value>,
    /// `kueue.x-k8s.io/admission-gated-by`.
    pub(crate) gated_by: String,
    /// Names of `spec.preemptionGates`, where they count.
    pub(crate) preemption_gates: Vec<String>,
    /// The only flavors that it may get, where its annotation names them and the gate lets it.
    pub(crate) allowed_flavors: Option<Vec<String>>,
    /// Name of the first slice of its job.
    pub(crate) slice: Option<String>,
    /// Execution history of the previous slice, if this Workload is a scale-up.
    pub(crate) past: Option<Past>,
    /// Number of workers to which a restart brought its run last, see [`crate::training_job::restarts`].
    pub(crate) scale: Option<Scale>,
    /// End of its TrainingJob, while something of that runs still.
    pub(crate) end: Option<TrainingEnd>,
    /// The Workload was deactivated because its TrainingJob is suspended.
    pub(crate) suspended_with_job: bool,
    /// Pods that run again, by pod set, though their quota went back: seen at its job, and not read from its fields.
    pub(crate) again: Vec<api::ReclaimablePod>,
    /// A field that Berth does not act on: why it may not be admitted at all.
    pub(crate) unsupported: Option<String>,
    /// Why its admission is invalid: it does not fit its pod sets.
    pub(crate) misfit: Option<String>,
}

impl Rare {
    /// Itself where any field is set.
    pub(crate) fn kept(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

impl WorkloadView {
    /// Whether a plan that was made for this state says nothing about a later one: it asks for something else, elsewhere, or for nothing.
    pub(crate) fn asks_otherwise(&self, new: &Self) -> bool {
        let is_over = new.is_finished() || new.deleting || new.unreadable || !new.active;
        let asked = (&self.queue, self.priority, &self.tiers, &self.shape.digests);
        is_over || asked != (&new.queue, new.priority, &new.tiers, &new.shape.digests)
    }

    pub(crate) fn is(&self, kind: &str) -> bool {
        is_true(&self.status.conditions, kind)
    }

    /// Controllers that gate its admission, empty where none does.
    pub(crate) fn gated_by(&self) -> &str {
        self.rare.as_ref().map_or("", |rare| &rare.gated_by)
    }

    /// Whether it was deactivated because its TrainingJob is suspended, as far as it says so itself.
    pub(crate) fn suspended_with_job(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.suspended_with_job)
    }

    /// Preemption gates of the Workload, by name.
    pub(crate) fn preemption_gates(&self) -> &[String] {
        self.rare.as_ref().map_or(&[], |rare| &rare.preemption_gates)
    }

    /// Whether one of them is closed. A gate without a state in the status is.
    pub(crate) fn has_closed_preemption_gate(&self) -> bool {
        let known = |name: &String| self.status.preemption_gates.iter().find(|gate| gate.name == *name);
        self.preemption_gates().iter().any(|name| known(name).is_none_or(|gate| gate.position == CLOSED))
    }

    /// Pods of a pod set that may still run, `None` for an unknown name. Reclaimable pods count only where `reclaims`.
    pub(crate) fn remaining(&self, pod_set: &str, reclaims: bool) -> Option<i64> {
        let set = self.shape.pod_sets.iter().find(|set| set.name == pod_set)?;
        let over = self.status.reclaimable_pods.iter().find(|pods| reclaims && pods.name == pod_set);
        let again = self.runs_again().iter().find(|pods| reclaims && pods.name == pod_set);
        let [over, again] = [over, again].map(|pods| pods.map_or(0, |pods| i64::from(pods.count)));
        Some(set.count.saturating_sub(over.saturating_sub(again)).max(0))
    }

    /// Pods that run again, by pod set, though their quota went back.
    pub(crate) fn runs_again(&self) -> &[api::ReclaimablePod] {
        self.rare.as_ref().map_or(&[], |rare| &rare.again)
    }

    /// The pods of a pod set, and how many of them may still run: none where the spec does not have the pod set, as in Kueue. `None` if the spec
    /// cannot be read.
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

    /// Why it may not be admitted at all: a field that Berth does not act on, or one that is not legal.
    pub(crate) fn refused(&self) -> Option<&str> {
        let unreadable = self.unreadable.then_some("the stored object does not decode");
        let unsupported = self.rare.as_ref().and_then(|rare| rare.unsupported.as_deref());
        let tiers = self.tiers.as_ref().and_then(|wish| wish.tiers.as_ref().err()).map(String::as_str);
        unreadable.or(self.shape.illegal.as_deref()).or(unsupported).or(tiers)
    }

    /// The part of its state that decides about the pods of a group.
    pub(crate) fn stage(&self) -> WorkloadStage {
        WorkloadStage {
            is_reserved: self.reserved(),
            is_admitted: self.is(types::ADMITTED),
            is_evicted: self.is(types::EVICTED),
            is_finished: self.is_finished(),
            is_deleting: self.deleting,
        }
    }

    /// The names of its pod sets, and the pods that each has.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (&str, i32)> {
        let sets = self.shape.pod_sets.iter();
        sets.map(|set| (set.name.as_str(), i32::try_from(set.count).unwrap_or(i32::MAX)))
    }

    /// Pods of a pod set, none where it has no such set.
    pub(crate) fn size(&self, pod_set: &str) -> i32 {
        self.sizes().find(|(name, _)| *name == pod_set).map_or(0, |(_, count)| count)
    }

    /// Whether a pod is one of its owners.
    pub(crate) fn is_owned_by(&self, uid: &str) -> bool {
        self.group.as_ref().is_some_and(|members| members.binary_search_by(|member| (*member.uid).cmp(uid)).is_ok())
    }

    /// Whether it has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.phase == WorkloadPhase::Finished
    }

    /// Whether it has a reservation, finished or not.
    pub(crate) fn reserved(&self) -> bool {
        self.is(types::QUOTA_RESERVED) && self.status.admission.is_some()
    }

    /// Why the Workload's admission is invalid; `None` if it is valid.
    pub(crate) fn misfit(&self) -> Option<&str> {
        self.rare.as_ref()?.misfit.as_deref()
    }

    /// Whether its pods may be started: it is admitted, has quota, and that is for these pods. Running pods are stopped by an eviction.
    pub(crate) fn may_run(&self) -> bool {
        self.phase == WorkloadPhase::Admitted && self.misfit().is_none()
    }

    /// The TrainingJob that controls it.
    pub(crate) fn training_job(&self) -> Option<Name> {
        let owner = self.owner.as_ref().filter(|owner| owner.kind == Kind::TrainingJob.name())?;
        Some((self.namespace.clone(), owner.name.clone()))
    }

    /// The job that controls it.
    pub(crate) fn job(&self) -> Option<ObjectKey> {
        self.whole().filter(|whole| whole.kind.is_job())
    }

    /// The job of any sort that controls it, a TrainingJob too.
    pub(crate) fn whole(&self) -> Option<ObjectKey> {
        let owner = self.owner.as_ref()?;
        let kind = Kind::of_whole(&owner.kind)?;
        Some(ObjectKey { kind, namespace: self.namespace.clone(), name: owner.name.clone() })
    }

    /// The LocalQueue that it names.
    pub(crate) fn local_queue(&self) -> Name {
        (self.namespace.clone(), self.queue.clone())
    }

    /// Whether the workload counts in the usage of a ClusterQueue: it has a reservation, and has not finished.
    pub(crate) fn holds_quota(&self) -> bool {
        self.phase.holds_quota()
    }

    /// The ClusterQueue whose quota it holds.
    pub(crate) fn holds(&self) -> Option<&str> {
        let admission = self.status.admission.as_ref().filter(|_| self.holds_quota())?;
        Some(admission.cluster_queue.as_deref().unwrap_or_default())
    }

    /// Whether every index finds another state of the same workload where it finds this one.
    pub(crate) fn indexed_as(&self, other: &Self) -> bool {
        let same = self.uid == other.uid && self.owner == other.owner && self.queue == other.queue;
        same && self.holds() == other.holds() && self.is_finished() == other.is_finished()
    }

    /// Lets go of fields that nothing reads of a finished workload: most workloads that a cluster keeps are finished.
    pub(crate) fn shed(&mut self) {
        if !self.is_finished() {
            return;
        }
        self.labels = None;
        let mut conditions = std::mem::take(&mut self.status.conditions);
        conditions.retain(|condition| condition.type_ == types::FINISHED);
        conditions.shrink_to_fit();
        let cluster_queue = self.status.admission.take().and_then(|admission| admission.cluster_queue);
        // Its queue counts it until it is deleted.
        let admission =
            cluster_queue.map(|name| api::Admission { cluster_queue: Some(name), pod_set_assignments: Vec::new() });
        self.status = api::WorkloadStatus { conditions, admission, ..api::WorkloadStatus::default() };
    }

    pub(crate) fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or_default()
    }

    pub(crate) fn identity(&self) -> crate::workload::status::Identity<'_> {
        crate::workload::status::Identity {
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            resource_version: &self.resource_version,
        }
    }
}

impl WorkloadView {
    /// The values of a label: those of its pod sets in their order, then its own.
    pub(crate) fn label_values<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a str> {
        let of_pods = self.shape.originals.iter().filter_map(move |set| set.labels.get(key));
        let own = self.labels.iter().filter_map(move |labels| labels.get(key));
        of_pods.chain(own).map(String::as_str)
    }
}
