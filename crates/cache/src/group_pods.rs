//! Questions about the pods of groups and their Workloads that the view alone answers.

use berth_api::labels;
use berth_jobs::workload_name;
use k8s_openapi::api::core::v1::Pod;

use crate::object::Kind;
use crate::{Name, View};

impl View {
    /// Whether a pod that is of that group now says that it was started by a Workload which is none of a group.
    pub fn was_started_alone(&self, name: &Name, pod: &Pod, group: &str) -> bool {
        let annotations = pod.metadata.annotations.as_ref();
        let Some(by) = annotations.and_then(|all| all.get(labels::WORKLOAD)).filter(|by| *by != group) else {
            return false;
        };
        let own = || workload_name(Kind::Pod.name(), "", &name.1, pod.metadata.uid.as_deref().unwrap_or_default());
        let found = self.workloads().get(&(name.0.clone(), by.clone()));
        found.map_or_else(|| *by == own(), |workload| workload.group.is_none())
    }

    /// Whether a Workload holds quota for this pod alone.
    pub fn has_quota_of_its_own(&self, uid: &str) -> bool {
        self.workloads().owned_by(uid).any(|workload| workload.holds_quota())
    }

    /// Whether a role has more pods than its Workload: a change of one of them may give another one its place.
    pub fn is_crowded(&self, group: &Name, role: &str) -> bool {
        let Some(workload) = self.workloads().get(group).filter(|workload| workload.group.is_some()) else {
            return false;
        };
        let counting = self.pods().group(group).map_or(0, |group| group.tally.role(role).counting);
        counting > workload.size(role)
    }
}
