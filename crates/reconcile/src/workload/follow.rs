//! Updates of a Workload to its owner, a job, a pod or a StatefulSet. A prebuilt Workload is adopted, changes of the owner are taken over, and the Workload is
//! finished with its owner. Each decision about an update of a Workload to its owner asks for at most one write.

use berth_api::conditions::{event_reasons, reasons};
use berth_api::json::to_value;
use berth_api::labels::{ADMISSION_GATED_BY, CAPACITY_TIERS, JOB_UID, PREEMPTION_POLICY};
use berth_cache::WorkloadView;
use berth_cache::deltas;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::decision::Decision;
use crate::policies::Wanted;
use crate::workload::columns::Annotations;
use crate::workload::gates;
use crate::workload::{object_write, status_write};
use crate::write::{EventType, Notice, Purpose};

/// Message with which a prebuilt Workload is finished that does not match its changed job.
pub(crate) const OUT_OF_SYNC: &str = "The prebuilt workload is out of sync with its user job";

/// Values that a Workload gets from its job, pod or StatefulSet.
pub(crate) struct DesiredFields<'a> {
    /// Pod sets with the annotation of their size, if the pod sets are to change.
    pub(crate) pod_sets: Option<(Value, Annotations)>,
    /// Name of the owner's LocalQueue; `None` leaves the Workload's present LocalQueue.
    pub(crate) queue: Option<&'a str>,
    /// Priority of the owner; `None` leaves the Workload's present priority.
    pub(crate) priority: Option<Wanted>,
    /// Names of the controllers that gate the admission, separated by commas.
    pub(crate) gated_by: Option<&'a str>,
    /// Capacity tiers that the owner accepts.
    pub(crate) tiers: Option<&'a str>,
    /// Longest execution time in seconds, null for no limit; `None` leaves the present limit.
    pub(crate) limit: Option<Value>,
    /// Preemption scope, null if the owner sets no scope; `None` leaves the present scope.
    pub(crate) preempts: Option<Value>,
    /// True if the Workload is prebuilt, and keeps its own values for fields that the owner leaves open.
    pub(crate) prebuilt: bool,
}

/// The one write that updates a Workload to its owner: pod sets, LocalQueue, longest execution time, tiers and preemption scope while the Workload has no
/// quota, and priority and gates at any time.
pub(crate) fn follow(workload: &WorkloadView, desired: DesiredFields<'_>) -> Option<Decision> {
    follow_with_event(workload, desired, |_| None)
}

/// Updates a Workload to its owner; `to_notice` makes the events about another priority class and about fewer gates.
pub(crate) fn follow_with_event(
    workload: &WorkloadView,
    desired: DesiredFields<'_>,
    to_notice: impl Fn(String) -> Option<Notice>,
) -> Option<Decision> {
    let DesiredFields { pod_sets, queue, priority, gated_by, tiers, limit, preempts, prebuilt } = desired;
    let waits = !workload.reserved();
    let mut spec = class_change(workload, priority);
    let other_class = spec.contains_key("priorityClassRef");
    let (pod_sets, size) = pod_sets.filter(|_| waits).unzip();
    spec.extend(pod_sets.map(|sets| ("podSets".to_owned(), sets)));
    let queue = queue.filter(|queue| waits && workload.queue != *queue);
    spec.extend(queue.map(|queue| ("queueName".to_owned(), Value::from(queue))));
    let limit = limit.filter(|limit| waits && *limit != json!(workload.max_execution_seconds));
    spec.extend(limit.map(|limit| ("maximumExecutionTimeSeconds".to_owned(), limit)));
    let says = |named: Option<&str>| named.is_some() || !prebuilt;
    let mut annotations = size.unwrap_or_default();
    let known = workload.tiers.as_ref().map(|request| request.text.as_str());
    if waits && tiers != known && says(tiers) {
        annotations.insert(CAPACITY_TIERS.to_owned(), json!(tiers));
    }
    let preempts = preempts.filter(|policy| waits && workload.preempts != deltas::preempts(policy.as_str()));
    annotations.extend(preempts.map(|policy| (PREEMPTION_POLICY.to_owned(), policy)));
    let fewer = gates::fewer(workload, gated_by).filter(|_| says(gated_by));
    let fewer_gates = fewer.is_some();
    annotations.extend(fewer.map(|left| (ADMISSION_GATED_BY.to_owned(), left)));
    if annotations.is_empty() && spec.is_empty() {
        return None;
    }
    let mut draft = object_write(workload, Purpose::UpdateWorkload, |patch| {
        let patch = patch.spec_fields(spec);
        if annotations.is_empty() { patch } else { patch.annotations(annotations) }
    });
    if other_class {
        let text = format!("Updated workload priority class: {}/{}", workload.namespace, workload.name);
        draft.notices.extend(to_notice(text));
    }
    if fewer_gates {
        let left = gated_by.unwrap_or_default();
        draft.notices.extend(to_notice(format!("Updated workload AdmissionGatedBy to {left:?}")));
    }
    Some(Decision::write(draft))
}

/// Fields of `spec` that change the priority class of a Workload, empty if the Workload keeps its class.
fn class_change(workload: &WorkloadView, wanted: Option<Wanted>) -> Map<String, Value> {
    let wanted = wanted.filter(|wanted| workload.changes_class(wanted));
    let Some(Wanted { priority, .. }) = wanted else { return Map::new() };
    let class = to_value(&priority.class);
    [("priority".to_owned(), priority.value.into()), ("priorityClassRef".to_owned(), class)].into_iter().collect()
}

/// Makes a job, pod or StatefulSet, given by its API version and kind, name and uid, the controlling owner of a prebuilt Workload.
pub(crate) fn adopt(
    ctx: &Context<'_>,
    workload: &WorkloadView,
    (api_version, kind): (&str, &str),
    (name, uid): (&str, &str),
) -> Decision {
    let owner = json!({
        "apiVersion": api_version, "kind": kind, "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    });
    Decision::write(object_write(workload, Purpose::AdoptWorkload, |patch| {
        let patch = patch.label(JOB_UID, uid).owner_references(vec![owner]);
        patch.annotations(ctx.size_of_workload(workload, |set| set.count))
    }))
}

/// Finishes a Workload together with its owner; `to_notice` makes the event about the end.
pub(crate) fn finish(
    workload: &WorkloadView,
    now: Timestamp,
    (success, message): (bool, &str),
    to_notice: impl FnOnce(EventType, &str, String) -> Option<Notice>,
) -> Decision {
    let reason = if success { reasons::SUCCEEDED } else { reasons::FAILED };
    let mut draft = status_write(workload, Purpose::FinishWorkload, now, |edit| edit.finish(reason, message));
    let text = format!("Workload '{}/{}' is declared finished", workload.namespace, workload.name);
    draft.notices.extend(to_notice(EventType::Normal, event_reasons::FINISHED_WORKLOAD, text));
    Decision::write(draft)
}

/// Finishes a prebuilt Workload that requests other pods than its owner; `to_notice` makes the event about the end.
pub(crate) fn out_of_sync(
    workload: &WorkloadView,
    now: Timestamp,
    to_notice: impl FnOnce(EventType, &str, String) -> Notice,
) -> Decision {
    let draft =
        status_write(workload, Purpose::FinishWorkload, now, |edit| edit.finish(reasons::OUT_OF_SYNC, OUT_OF_SYNC));
    Decision::write(draft.with_event(to_notice(EventType::Warning, reasons::OUT_OF_SYNC, OUT_OF_SYNC.to_owned())))
}

#[cfg(test)]
mod tests;
