//! The state of a pod in control's memory. Tens of thousands of pods may run, so fields that only a pending pod needs are dropped when the pod loses its gate.

use super::governing::group_name;
use super::names::STATEFUL_SET_FRAMEWORK;
use super::owning_set::controlling_set;
use super::role::role_hash;
use crate::metadata::{
    annotation, controller, label, max_execution_seconds, prebuilt_workload_name, queue_name, version_of,
    workload_priority_class,
};
use crate::owner::owner_of;
use crate::state::JobOwner;
use crate::unsupported::TOPOLOGY;
use berth_api::conditions::types;
use berth_api::json::to_text;
use berth_api::{DEFAULT_POD_SET_NAME, labels};
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeMap;

/// Phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The pod has not started, or its phase is unknown.
    #[default]
    Pending,
    /// The pod runs.
    Running,
    /// All containers of the pod have succeeded.
    Succeeded,
    /// The pod has failed, and does not start again.
    Failed,
}

/// A pod's membership in a pod group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Name of the pod group, and of the group's Workload.
    pub name: Box<str>,
    /// Role of the pod, which is the name of its pod set.
    pub role: Box<str>,
    /// Size of the pod group; `None` if the size is absent or no positive number.
    pub total: Option<i32>,
    /// True if the group's Workload is created as soon as the group has one pod.
    pub fast: bool,
    /// True if the group serves: its pods come and go, and the group never ends.
    pub serving: bool,
    /// True if a failed pod of the group may be replaced.
    pub retriable: bool,
    /// `apiVersion` and kind of the controller that creates the pod again after its deletion, from the pod's owner reference.
    maker: Option<Box<(Box<str>, Box<str>)>>,
}

/// The facts about a pod that Berth uses.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are read off a pod")]
pub struct PodState {
    /// The pod's `metadata.uid`.
    pub uid: Box<str>,
    /// The pod's `metadata.resourceVersion` as a number; 0 if it has none.
    pub version: u64,
    /// Time of the pod's creation, in seconds since 1970.
    pub created: i64,
    /// Time of the pod's deletion request, in seconds since 1970.
    pub deleted: Option<i64>,
    /// Time of the pod's failure, in seconds since 1970, if the kubelet has reported it.
    pub failed: Option<i64>,
    /// Phase of the pod.
    pub phase: Phase,
    /// True if the pod is bound to a node.
    pub bound: bool,
    /// True if the pod has Berth's scheduling gate.
    pub gated: bool,
    /// True if Kueue has started the pod, and the pod still waits for its topology assignment.
    pub placing: bool,
    /// True if the pod's `restartPolicy` is Always, so that its containers always restart and its phase becomes Succeeded only through its deletion.
    pub restarts: bool,
    /// True if the pod is ready.
    pub ready: bool,
    /// True if the pod has Berth's finalizer.
    pub held: bool,
    /// True if the pod has the label of managed pods.
    pub marked: bool,
    /// True if a review has checked the pod or Berth has started it: the pod has the hash of its role or the name of its pod set. A user who forges this hash
    /// or label gains nothing, because Berth stops every reviewed pod that has no scheduling gate and is not admitted.
    pub reviewed: bool,
    /// True if a condition of the pod has the reason for its deletion.
    pub condemned: bool,
    /// Controller of the pod.
    pub owner: Option<Box<JobOwner>>,
    /// LocalQueue of the pod.
    pub queue_name: Option<Box<str>>,
    /// Name of the pod's prebuilt Workload.
    pub prebuilt_workload: Option<Box<str>>,
    /// WorkloadPriorityClass of the pod.
    pub workload_priority_class: Option<Box<str>>,
    /// PriorityClass of the pod.
    pub pod_priority_class: Option<Box<str>>,
    /// Maximum execution time of the pod in seconds.
    pub max_execution_seconds: Option<i32>,
    /// Value of the annotation that lists the controllers which keep the pod from being admitted (admission gates).
    pub admission_gates: Option<Box<str>>,
    /// Annotation with the capacity tiers that the pod accepts.
    pub capacity_tiers: Option<Box<str>>,
    /// Framework of the kind through which the pod is managed.
    pub parent: Option<Box<str>>,
    /// Node selectors of a started pod of a group, if the pod has its topology assignment.
    pub selectors: Option<Box<BTreeMap<String, String>>>,
    /// Membership of the pod in a pod group, if any.
    pub group: Option<Box<Membership>>,
    /// Message about the pod's end.
    pub message: Option<Box<str>>,
    /// The scheduler's message if it found no node for the pod.
    pub unschedulable: Option<Box<str>>,
    /// True if the kubelet has finished the pod's deletion, so that only finalizers keep the pod.
    gone: bool,
    /// Finalizers of the pod other than Berth's.
    pub(super) others: Box<[Box<str>]>,
    /// The pod as JSON, kept while the pod has its scheduling gate, or runs although no review has checked it.
    pub(super) packed: Option<Box<str>>,
}

impl PodState {
    /// Reads the state of a pod.
    #[must_use]
    pub fn read(pod: &Pod) -> Self {
        let metadata = &pod.metadata;
        let none = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&none);
        let status = pod.status.as_ref();
        let condition = |kind: &str| {
            let all = status.and_then(|status| status.conditions.as_ref());
            all.into_iter().flatten().find(|condition| condition.type_ == kind)
        };
        let failed =
            |condition: &&PodCondition| condition.status == "False" && condition.reason.as_deref() == Some("PodFailed");
        let is = |kind: &str| condition(kind).is_some_and(|condition| condition.status == "True");
        let unschedulable = |condition: &&PodCondition| {
            condition.status == "False" && condition.reason.as_deref() == Some("Unschedulable")
        };
        let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
        let has_gate = |name: &str| spec.scheduling_gates.iter().flatten().any(|gate| gate.name == name);
        let gated = has_gate(labels::ADMISSION_GATE);
        let placing = !gated && has_gate(labels::TOPOLOGY_GATE);
        let placed = !gated && !placing && TOPOLOGY.iter().any(|key| annotation(metadata, key).is_some());
        let group = membership(pod, spec, gated).map(Box::new);
        let reviewed = annotation(metadata, labels::ROLE_HASH).is_some() || label(metadata, labels::POD_SET).is_some();
        let state = Self {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            version: version_of(metadata),
            created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            deleted: metadata.deletion_timestamp.as_ref().map(|time| time.0.as_second()),
            failed: condition("ContainersReady")
                .filter(failed)
                .and_then(|condition| condition.last_transition_time.as_ref())
                .map(|time| time.0.as_second()),
            phase: match status.and_then(|status| status.phase.as_deref()) {
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                _ => Phase::Pending,
            },
            bound: spec.node_name.as_ref().is_some_and(|name| !name.is_empty()),
            gated,
            placing,
            restarts: spec.restart_policy.as_deref() == Some("Always"),
            ready: is("Ready"),
            held: finalizers.iter().any(|name| name == labels::MANAGED),
            marked: label(metadata, labels::MANAGED) == Some("true"),
            reviewed,
            condemned: is(types::TERMINATION_TARGET),
            owner: owner_of(metadata).map(Box::new),
            queue_name: queue_name(metadata).map(Into::into),
            prebuilt_workload: prebuilt_workload_name(metadata).map(Into::into),
            workload_priority_class: workload_priority_class(metadata).map(Into::into),
            pod_priority_class: spec.priority_class_name.as_deref().filter(|name| !name.is_empty()).map(Into::into),
            max_execution_seconds: max_execution_seconds(metadata),
            admission_gates: annotation(metadata, labels::ADMISSION_GATED_BY).map(Into::into),
            capacity_tiers: annotation(metadata, labels::CAPACITY_TIERS).map(Into::into),
            parent: annotation(metadata, labels::POD_SUSPENDING_PARENT).map(Into::into),
            selectors: (placed && group.is_some()).then(|| spec.node_selector.clone()).flatten().map(Box::new),
            group,
            message: status.and_then(|status| status.message.as_deref()).map(Into::into),
            unschedulable: condition("PodScheduled")
                .filter(unschedulable)
                .map(|condition| condition.message.as_deref().unwrap_or_default().into()),
            // A kubelet that has stopped a pod deletes it with a grace period of zero, and then only finalizers keep the pod.
            gone: metadata.deletion_timestamp.is_some() && metadata.deletion_grace_period_seconds == Some(0),
            others: finalizers
                .iter()
                .filter(|name| *name != labels::MANAGED)
                .map(|name| name.as_str().into())
                .collect(),
            packed: (gated || placing).then(|| to_text(pod).into()),
        };
        let packed = state.is_let_in().then(|| to_text(&as_made(pod)));
        Self { packed: packed.map(Into::into).or(state.packed), ..state }
    }

    /// Whether the pod was let in: the pod runs, and no review has checked it, because Berth did not answer at its creation. A pod that is being deleted, or
    /// has a condition with the reason for its deletion, does not count as let in.
    #[must_use]
    pub fn is_let_in(&self) -> bool {
        !self.reviewed && self.runs() && !self.placing && !self.deleting() && !self.condemned
    }

    /// True if the pod is being deleted.
    #[must_use]
    pub fn deleting(&self) -> bool {
        self.deleted.is_some()
    }

    /// Whether no container of the pod runs or will run.
    #[must_use]
    pub fn ended(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed) || self.never_runs()
    }

    /// Whether the pod runs or may run at any moment.
    #[must_use]
    pub fn runs(&self) -> bool {
        !self.gated && !self.ended()
    }

    /// Whether the pod counts in its pod group: the pod waits, runs, or has succeeded.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.succeeded() || (!matches!(self.phase, Phase::Succeeded | Phase::Failed) && !self.never_runs())
    }

    /// Whether the pod has succeeded. A deleted pod whose containers always restart was only stopped, even if they succeeded.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.phase == Phase::Succeeded && !(self.restarts && self.deleting())
    }

    /// Whether the pod is managed through its StatefulSet, whose queue counts instead of the pod's queue.
    #[must_use]
    pub fn is_of_set(&self) -> bool {
        let controlled = self.owner.as_ref().is_some_and(|owner| &*owner.kind == "StatefulSet");
        controlled && self.parent.as_deref() == Some(STATEFUL_SET_FRAMEWORK)
    }

    fn never_runs(&self) -> bool {
        self.deleting() && (!self.bound || self.gone)
    }

    /// Role of the pod, which is the name of its pod set.
    #[must_use]
    pub fn role(&self) -> &str {
        self.group.as_ref().map_or(DEFAULT_POD_SET_NAME, |group| &group.role)
    }

    /// Owner reference from the group's Workload to the controller that creates the pod again after its deletion; `None` without such a controller. If the
    /// controller of a pod is itself a pod of the group, it owns the group's Workload as a member of the group.
    #[must_use]
    pub fn maker_reference(&self) -> Option<OwnerReference> {
        let (api_version, kind) = &**self.group.as_ref()?.maker.as_ref()?;
        let owner = self.owner.as_ref()?;
        Some(OwnerReference {
            api_version: api_version.to_string(),
            kind: kind.to_string(),
            name: owner.name.to_string(),
            uid: owner.uid.to_string(),
            controller: None,
            block_owner_deletion: None,
        })
    }

    /// The complete pod, decoded from its JSON; `None` unless the pod has its scheduling gate, or runs although no review has checked it.
    #[must_use]
    pub fn decode(&self) -> Option<Pod> {
        serde_json::from_str(self.packed.as_deref()?).ok()
    }
}

fn membership(pod: &Pod, spec: &PodSpec, gated: bool) -> Option<Membership> {
    let metadata = &pod.metadata;
    let flag = |key: &str, value: &str| annotation(metadata, key) == Some(value);
    let (annotated, started_as) = (annotation(metadata, labels::ROLE_HASH), label(metadata, labels::POD_SET));
    // The role of a started pod is from its label with the pod set's name, because a start changes fields of which the role's hash is made, and an edit of the
    // annotation with the hash must not move the pod to another pod set.
    let role = if gated { annotated.or(started_as) } else { started_as.or(annotated) };
    // All pods of a StatefulSet have one role.
    let own_role = || match controlling_set(metadata) {
        Some(_) => DEFAULT_POD_SET_NAME.into(),
        None => role_hash(spec).into(),
    };
    Some(Membership {
        name: group_name(metadata)?.into(),
        role: role.map_or_else(own_role, Into::into),
        total: annotation(metadata, labels::POD_GROUP_TOTAL_COUNT)
            .and_then(|text| text.parse().ok())
            .filter(|total| *total > 0),
        fast: flag(labels::POD_GROUP_FAST_ADMISSION, "true"),
        serving: flag(labels::POD_GROUP_SERVING, "true"),
        retriable: !flag(labels::RETRIABLE_IN_GROUP, "false"),
        maker: controller(metadata)
            .filter(|owner| owner.kind != "Pod")
            .map(|owner| Box::new((owner.api_version.as_str().into(), owner.kind.as_str().into()))),
    })
}

/// The pod as its creator wrote it: without its node, which is no request.
fn as_made(pod: &Pod) -> Pod {
    let spec = pod.spec.clone().map(|spec| PodSpec { node_name: None, ..spec });
    Pod { metadata: ObjectMeta { managed_fields: None, ..pod.metadata.clone() }, spec, status: None }
}

/// The metadata and spec of a pod as a pod template.
pub(super) fn template(pod: &Pod) -> PodTemplateSpec {
    PodTemplateSpec { metadata: Some(pod.metadata.clone()), spec: pod.spec.clone() }
}
