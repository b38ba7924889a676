//! Time for which a Workload has run, by the monotonic clock for the time that this process has observed.

use berth_api::conditions::types;
use berth_cache::workload_view::WorkloadView;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::context::Context;
use crate::decision::Decision;
use crate::workload::status::since;
use crate::write::{Action, Kind, Write};

impl Context<'_> {
    /// Seconds for which a workload has run since its last admission.
    pub(crate) fn time_run(&self, workload: &WorkloadView, now: Timestamp) -> i64 {
        let admitted = since(&workload.status.conditions, types::ADMITTED, "True");
        admitted.map_or(0, |admitted| self.view.timeline().seconds_between(admitted, now))
    }

    /// Corrects the accumulated execution time in a decision that releases quota. The decision itself computes the accumulated execution time by the wall clock
    /// (`Edit::take_back`); the correction leaves out jumps of the wall clock.
    pub fn timed(&self, mut decision: Decision, now: Timestamp) -> Decision {
        if self.view.timeline().is_even() {
            return decision;
        }
        if let Decision::Write(draft) = &mut decision
            && let Action::Write(Write::Apply { body, .. }) = &mut draft.action
            && let Some(status) = body.pointer_mut("/status").filter(|_| draft.key.kind == Kind::Workload)
        {
            let name = (draft.key.namespace.clone(), draft.key.name.clone());
            if let Some(ran) =
                self.view.workloads().get(&name).and_then(|workload| self.run_in_all(workload, status, now))
            {
                status["accumulatedPastExecutionTimeSeconds"] = json!(ran);
            }
        }
        decision
    }

    /// Accumulated execution time in seconds that a status is to have; `None` if the status does not add the time since the last admission.
    fn run_in_all(&self, workload: &WorkloadView, status: &Value, now: Timestamp) -> Option<i64> {
        let admitted = since(&workload.status.conditions, types::ADMITTED, "True")?;
        let past = i64::from(workload.status.accumulated_past_execution_time_seconds.unwrap_or_default());
        let written = status.get("accumulatedPastExecutionTimeSeconds")?.as_i64()?;
        let shown = now.as_second().saturating_sub(admitted.as_second());
        (shown != 0 && written == past.saturating_add(shown)).then(|| past.saturating_add(self.time_run(workload, now)))
    }
}

#[cfg(test)]
mod tests;
