//! If Kueue has started a pod without its topology assignment, Berth adds the assignment to the pod, or evicts the Workload.

use std::collections::BTreeMap;
use std::iter;

use berth_api::TopologyAssignment;
use berth_api::conditions::reasons;
use berth_api::labels::HOSTNAME;
use berth_cache::WorkloadView;
use berth_jobs::pods::{PodState, place};

use super::PodCase;
use crate::decision::Decision;
use crate::workload;
use crate::write::Purpose;

/// Reason of the eviction of a Workload that has no topology domain for its pod; Kueue uses this reason if it finds no other node.
const NO_PLACE: &str = reasons::NODE_FAILURES;

impl PodCase<'_> {
    /// Completes a start of the pod that Kueue had begun.
    pub(super) fn place(&self, workload: &WorkloadView) -> Decision {
        let role = self.pod.role();
        let set = workload.given().find(|set| set.effective_name() == role);
        let place = match set.and_then(|set| set.topology_assignment.as_ref()) {
            Some(assignment) => self.place_in(assignment),
            // Kueue also removes the gate if an admission has no topology assignment.
            None => Some(BTreeMap::new()),
        };
        let failed = |node: &String| workload.status.unhealthy_nodes.iter().any(|failed| failed.name == *node);
        let place = place.filter(|place| !place.get(HOSTNAME).is_some_and(failed));
        if let Some(patch) = place.and_then(|place| self.pod.place_patch(&place)) {
            return self.patch(Purpose::StartJob, patch, Vec::new());
        }
        let message = format!(
            "Pod {} was started without its place in the topology, and pod set {role} has none left for it; \
             topology-aware scheduling is not supported yet",
            self.name.1
        );
        Decision::write(workload::evict(workload, self.now, (NO_PLACE, ""), &message))
    }

    /// The topology domain of this pod among the pods of its role.
    fn place_in(&self, assignment: &TopologyAssignment) -> Option<BTreeMap<String, String>> {
        let Some(group) = &self.pod.group else { return place(assignment, iter::empty(), 0) };
        let name = (self.name.0.clone(), group.name.to_string());
        let (pods, role) = (self.ctx.view.pods(), self.pod.role());
        let of_role = || pods.members(&name).filter(|(_, pod)| pod.role() == role && pod.runs());
        let waits = |(other, pod): &(&str, &PodState)| pod.placing && *other < self.name.1.as_str();
        let before = of_role().filter(waits).count();
        place(assignment, of_role().filter_map(|(_, pod)| pod.selectors.as_deref()), before)
    }
}

#[cfg(test)]
mod tests;
