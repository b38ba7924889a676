//! What a waiting workload is told.

use berth_api as api;
use berth_api::conditions::{reasons, types};
use berth_engine::model as engine;
use jiff::Timestamp;

use super::gates;
use super::workload::{notice, status_write};
use crate::flight::Draft;
use crate::view::WorkloadView;
use crate::write::{EventType, Purpose, SCHEDULER};

/// The pending reason of a verdict, under the name that it is told with.
pub(crate) fn explain(workload: &WorkloadView, verdict: &engine::Verdict, reason: &str, now: Timestamp) -> Draft {
    let purpose = if verdict.leading { Purpose::ExplainPending } else { Purpose::ExplainUnseen };
    let mut draft = status_write(workload, purpose, now, |edit| {
        edit.pending(reason, &verdict.message);
        if verdict.reason == engine::PendingReason::AdmissionGated {
            edit.set(types::BLOCKED_ON_PREEMPTION_GATES, true, reasons::PREEMPTION_GATED, &verdict.message);
        }
        edit.status.resource_requests = requests_of(workload);
    });
    draft.notices.extend(gates::lifted(workload));
    draft.notices.push(notice(workload, EventType::Warning, reason, verdict.message.to_string(), SCHEDULER));
    draft
}

pub(crate) fn requests_of(workload: &WorkloadView) -> Vec<api::PodSetRequest> {
    workload
        .shape
        .pod_sets
        .iter()
        .map(|set| api::PodSetRequest {
            name: set.name.clone(),
            resources: set
                .requests
                .iter()
                .map(|(resource, amount)| {
                    let total = amount.mul(set.count);
                    (resource.clone(), crate::deltas::quantity(resource, total))
                })
                .collect(),
        })
        .collect()
}
