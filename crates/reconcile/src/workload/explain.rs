//! Status and event that explain why a workload waits.

use berth_api::conditions::{reasons, types};
use berth_cache::WorkloadView;
use berth_engine::model as engine;
use jiff::Timestamp;

use crate::decision::Draft;
use crate::workload::gates;
pub(crate) use crate::workload::requests::requests_of;
use crate::workload::{notice, status_write};
use crate::write::{EventType, Purpose, SCHEDULER};

/// The reason why a workload waits, as its status shows the reason.
pub struct PendingReport<'a> {
    /// The reason of the condition `QuotaReserved`.
    pub reason: &'a str,
    /// The message of the condition `QuotaReserved`.
    pub message: &'a str,
    /// True if the workload is the head of its ClusterQueue, or the first of its class of equals.
    pub leading: bool,
    /// True if the workload would preempt, and its preemption gates are closed.
    pub is_gated: bool,
}

impl<'a> PendingReport<'a> {
    /// The report of the engine's verdict about a workload, under the given reason.
    pub fn of(verdict: &'a engine::Verdict, reason: &'a str) -> Self {
        let is_gated = verdict.reason == engine::PendingReason::AdmissionGated;
        Self { reason, message: &verdict.message, leading: verdict.leading, is_gated }
    }
}

/// The write that explains why a workload waits.
pub fn explain(workload: &WorkloadView, report: &PendingReport<'_>, now: Timestamp) -> Draft {
    let purpose = if report.leading { Purpose::ExplainPending } else { Purpose::ExplainUnseen };
    let mut draft = status_write(workload, purpose, now, |edit| {
        edit.pending(report.reason, report.message);
        if report.is_gated {
            edit.set(types::BLOCKED_ON_PREEMPTION_GATES, true, reasons::PREEMPTION_GATED, report.message);
        }
        edit.status.resource_requests = requests_of(workload);
    });
    draft.notices.extend(gates::lifted(workload));
    draft.notices.push(notice(workload, EventType::Warning, report.reason, report.message.to_owned(), SCHEDULER));
    draft
}

#[cfg(test)]
mod tests;
