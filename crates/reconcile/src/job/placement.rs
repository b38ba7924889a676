//! The placement of the pods of an admitted Workload, for jobs of all kinds.

use berth_cache::WorkloadView;
use berth_jobs::{AdmittedAs, Placement, PlacementError};

use crate::context::Context;

/// The placement of each pod set of an admission.
///
/// # Errors
/// [`PlacementError`] if the Workload can never start with its admission.
pub(crate) fn placements(ctx: &Context<'_>, workload: &WorkloadView) -> Result<Vec<Placement>, PlacementError> {
    let Some(admission) = &workload.status.admission else { return Ok(Vec::new()) };
    let queue = admission.cluster_queue.as_deref().unwrap_or_default();
    let about = AdmittedAs { workload: &workload.name, cluster_queue: queue, local_queue: &workload.queue };
    let flavor = |name: &str| ctx.view.flavors().get(name).map(Box::as_ref);
    let overrides = ctx.overrides_selectors(workload);
    let place = |set: &berth_api::PodSetAssignment| {
        let spec = workload.shape.pod_sets.iter().find(|spec| spec.name == set.effective_name());
        let count = spec.and_then(|spec| i32::try_from(spec.count).ok()).unwrap_or_default();
        let placement = Placement::of(set, count, about, &workload.status.admission_checks, flavor);
        // The number of pods of an elastic job may have decreased since the admission.
        let fewer = |placement: &Placement| placement.count.min(count);
        placement.map(|placement| Placement { overrides, count: fewer(&placement), ..placement })
    };
    admission.pod_set_assignments.iter().map(place).collect()
}

#[cfg(test)]
mod tests;
