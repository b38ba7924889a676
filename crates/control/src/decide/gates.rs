//! Gates on admission: whoever is named in the annotation `kueue.x-k8s.io/admission-gated-by` of a job lets it be tried by taking its
//! name out (KEP 6915). Names are never added later.

use serde_json::Value;

use super::workload::{REPORTER, notice};
use crate::status::find;
use crate::view::WorkloadView;
use crate::write::{EventType, Notice};

/// Reason of what is gated, and of the event about it.
pub(crate) const GATED: &str = "AdmissionGated";
/// What a workload is told when nobody holds it any more.
pub(crate) const LIFTED: &str = "AdmissionGatedBy cleared, waiting for quota reservation";

/// Why a gated workload waits.
pub(crate) fn message(workload: &WorkloadView) -> Option<String> {
    (!workload.gated_by().is_empty()).then(|| format!("Admission is gated by: {}", workload.gated_by()))
}

/// The event at the beginning of the wait.
pub(crate) fn closed(workload: &WorkloadView) -> Notice {
    let text = format!("Workload admission is gated by: {}", workload.gated_by());
    notice(workload, EventType::Normal, GATED, text, REPORTER)
}

/// The event about a workload that is told to be gated and is not any more.
pub(crate) fn lifted(workload: &WorkloadView) -> Option<Notice> {
    let told = find(&workload.status.conditions, "QuotaReserved")?;
    let lifted =
        told.status == "False" && told.reason == GATED && workload.gated_by().is_empty() && !workload.preemption_gated;
    let text = "Admission gate cleared, workload is now admissible".to_owned();
    lifted.then(|| notice(workload, EventType::Normal, "AdmissionGateCleared", text, REPORTER))
}

/// The annotation that a Workload is to get because its job names fewer: null when it names none.
pub(crate) fn fewer(workload: &WorkloadView, named: Option<&str>) -> Option<Value> {
    let names = |text: &str| -> Vec<String> { text.split(',').map(|name| name.trim().to_owned()).collect() };
    let named = named.filter(|text| !text.is_empty());
    let known = names(workload.gated_by());
    let left = named.map(names).unwrap_or_default();
    let shrunk =
        !workload.gated_by().is_empty() && left.len() < known.len() && left.iter().all(|name| known.contains(name));
    shrunk.then(|| named.map_or(Value::Null, Into::into))
}
