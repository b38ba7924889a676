//! Questions about the pods of pod groups and about their Workloads that the view can answer by itself.

use berth_api::labels;
use berth_jobs::workload_name;
use k8s_openapi::api::core::v1::Pod;

use crate::object::Kind;
use crate::{Name, View};

impl View {
    /// Whether the annotation of a pod in the given group names, as the Workload that started the pod, a Workload that is not the Workload of a pod group.
    pub fn was_started_alone(&self, name: &Name, pod: &Pod, group: &str) -> bool {
        let annotations = pod.metadata.annotations.as_ref();
        let Some(by) = annotations.and_then(|all| all.get(labels::WORKLOAD)).filter(|by| *by != group) else {
            return false;
        };
        let own = || workload_name(Kind::Pod.name(), "", &name.1, pod.metadata.uid.as_deref().unwrap_or_default());
        let found = self.workloads().get(&(name.0.clone(), by.clone()));
        found.map_or_else(|| *by == own(), |workload| workload.group.is_none())
    }

    /// Whether a Workload that the pod with the given uid controls holds quota.
    pub fn has_quota_of_its_own(&self, uid: &str) -> bool {
        self.workloads().owned_by(uid).any(|workload| workload.holds_quota())
    }

    /// Whether a role of a pod group has more counted pods than its Workload has for the role, so that a change of one pod may make another pod one of the
    /// admitted pods.
    pub fn is_crowded(&self, group: &Name, role: &str) -> bool {
        let Some(workload) = self.workloads().get(group).filter(|workload| workload.group.is_some()) else {
            return false;
        };
        let counting = self.pods().group(group).map_or(0, |group| group.tally.role(role).counting);
        counting > workload.size(role)
    }
}
