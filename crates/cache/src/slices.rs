//! Slices of an elastic job: Each Workload slice of an elastic job replaces the slice before it.

use berth_api::conditions::{find_true, reasons, types};

use crate::{View, WorkloadView};

/// The reason of the end of a slice that another slice has replaced.
pub const REPLACED: &str = reasons::WORKLOAD_SLICE_REPLACED;

/// Whether a Workload was finished because another slice has replaced it.
pub fn is_replaced(workload: &WorkloadView) -> bool {
    let end = find_true(&workload.status.conditions, types::FINISHED);
    end.is_some_and(|end| end.reason == REPLACED)
}

impl View {
    /// The present Workload of an elastic job: the slice that has replaced the other slices.
    pub fn slice_of(&self, owner_uid: &str) -> Option<&WorkloadView> {
        let live: Vec<&WorkloadView> = self
            .workloads_of(owner_uid)
            .into_iter()
            // A finished slice shows how its job has ended until the job's status shows the end, even if the slice is being deleted.
            .filter(|workload| !workload.deleting || workload.is_finished())
            .filter(|workload| !is_replaced(workload))
            .collect();
        let replaces = |new: &WorkloadView, old: &WorkloadView| new.replaces.as_deref() == Some(&old.key());
        let first = live.iter().find(|new| !live.iter().any(|old| replaces(new, old)));
        let mut current = *first.or(live.first())?;
        for _ in &live {
            let replacement =
                live.iter().find(|new| replaces(new, current) && new.reserved() && new.is(types::ADMITTED));
            match replacement {
                Some(replacement) => current = replacement,
                None => break,
            }
        }
        Some(current)
    }
}
