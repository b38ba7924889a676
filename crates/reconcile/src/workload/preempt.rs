//! Preemption of a workload that the engine has chosen as a victim.

use berth_api::conditions::{event_reasons, reasons, types};
use berth_cache::WorkloadView;
use berth_engine::model as engine;
use jiff::Timestamp;

use crate::context::Context;
use crate::decision::Decision;
use crate::workload::{REPORTER, evicted_due_to, notice, status_write};
use crate::write::{EventType, Kind, Notice, Purpose, SCHEDULER, key};

/// Message of the condition `Preempted`, in Kueue's words. An empty argument is written into the message as UNKNOWN. A preemption reason that Kueue does not
/// have gets no explanation in the message, but the engine has no such reason.
#[must_use]
pub fn preemption_message(
    (preemptor_uid, job_uid): (&str, &str),
    reason: &str,
    preemptor_path: &str,
    preemptee_path: &str,
) -> String {
    let or_unknown = |text: &str| if text.is_empty() { "UNKNOWN".to_owned() } else { text.to_owned() };
    let cause = match reason {
        reasons::IN_CLUSTER_QUEUE => "prioritization in the ClusterQueue",
        reasons::IN_COHORT_RECLAMATION => "reclamation within the cohort",
        reasons::IN_COHORT_FAIR_SHARING => "Fair Sharing within the cohort",
        reasons::IN_COHORT_RECLAIM_WHILE_BORROWING => "reclamation within the cohort while borrowing",
        "" => "UNKNOWN",
        _ => "",
    };
    format!(
        "Preempted to accommodate a workload (UID: {}, JobUID: {}) due to {cause}; preemptor path: {}; preemptee path: {}",
        or_unknown(preemptor_uid),
        or_unknown(job_uid),
        or_unknown(preemptor_path),
        or_unknown(preemptee_path)
    )
}

/// The uid of the preemptor that a message of the condition `Preempted` names.
#[must_use]
pub fn preemptor_named(message: &str) -> Option<&str> {
    let (uid, _) = message.split_once("(UID: ")?.1.split_once(',')?;
    (uid != "UNKNOWN").then_some(uid)
}

/// A preemptor in words for the users of its victims: the preemptor's ClusterQueue, without the name of another tenant's object.
pub(crate) fn preemptor_words(ctx: &Context<'_>, preemptor: Option<&WorkloadView>) -> String {
    let queue = preemptor
        .and_then(|preemptor| ctx.view.local_queues().get(&preemptor.local_queue())?.spec.cluster_queue.as_deref());
    queue.map_or_else(|| "a Workload that is gone".to_owned(), |queue| format!("a Workload of ClusterQueue {queue}"))
}

/// A victim in words for an event of its preemptor. The event names the victim only if both are in one namespace, because a reader of events of one namespace
/// may not be allowed to read another namespace.
fn victim_words(victim: &WorkloadView, preemptor: &WorkloadView) -> String {
    if victim.namespace == preemptor.namespace {
        format!("workload {}/{}", victim.namespace, victim.name)
    } else {
        "a workload of another namespace".to_owned()
    }
}

/// Event for a TrainingJob about the ClusterQueue that takes its quota, the ClusterQueue whose quota the TrainingJob held, and the reason.
fn event_for_training_job(
    ctx: &Context<'_>,
    workload: &WorkloadView,
    preemptor: Option<&WorkloadView>,
    reason: &str,
) -> Option<Notice> {
    let name = workload.training_job()?;
    let uid = workload.owner.as_ref()?.uid.clone();
    let by = preemptor_words(ctx, preemptor);
    let from = workload.holds().unwrap_or_default();
    Some(Notice {
        key: key(Kind::TrainingJob, &name),
        uid,
        event_type: EventType::Normal,
        reason: reasons::PREEMPTED.to_owned(),
        message: format!("{by} takes the quota that this job holds of ClusterQueue {from}: {reason}"),
        reporter: crate::training_job::REPORTER,
    })
}

/// The priority of a workload that decides about preemption, with its parts.
fn priority_of(workload: &WorkloadView) -> String {
    let (base, effective) = (workload.own_priority, workload.priority);
    let boost = effective.saturating_sub(i64::from(base));
    format!("effective priority: {effective} (base: {base}, boost: {boost})")
}

/// The write that evicts a victim for its preemptor, with the events for both.
pub fn preempt(ctx: &Context<'_>, workload: &WorkloadView, eviction: &engine::Eviction, now: Timestamp) -> Decision {
    let preemptor = ctx.view.workloads().by_uid(&eviction.preemptor);
    let job = preemptor.and_then(|preemptor| preemptor.job_uid.as_deref()).unwrap_or_default();
    let message = preemption_message(
        (&eviction.preemptor, job),
        eviction.reason,
        &eviction.preemptor_path,
        &eviction.preemptee_path,
    );
    let mut draft = status_write(workload, Purpose::Evict, now, |edit| {
        edit.evict(reasons::PREEMPTED, "", &message);
        edit.set(types::PREEMPTED, true, eviction.reason, &message);
    });
    let event = evicted_due_to(reasons::PREEMPTED);
    draft.notices.push(notice(workload, EventType::Normal, &event, message.clone(), REPORTER));
    let priorities = match preemptor {
        Some(preemptor) => format!("; preemptor {}; preemptee {}", priority_of(preemptor), priority_of(workload)),
        None => String::new(),
    };
    draft.notices.push(notice(
        workload,
        EventType::Normal,
        reasons::PREEMPTED,
        format!("{message}{priorities}"),
        SCHEDULER,
    ));
    draft.notices.extend(event_for_training_job(ctx, workload, preemptor, eviction.reason));
    if let Some(preemptor) = preemptor {
        let message = format!(
            "Preempted {} (UID: {}) in ClusterQueue {}{priorities}",
            victim_words(workload, preemptor),
            workload.uid,
            workload.holds().unwrap_or_default()
        );
        draft.notices.push(notice(preemptor, EventType::Normal, event_reasons::PREEMPTED_WORKLOAD, message, SCHEDULER));
    }
    Decision::write(draft)
}

#[cfg(test)]
mod tests;
