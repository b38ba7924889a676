//! The right of a running pod to run: an admission gives each role a number of pods, and the requests of each pod. A pod has no right to run if another
//! client removed its gate, if the scale was raised past the webhook, or if the pod was resized.

use berth_api::conditions::{own_reasons, reasons};
use berth_cache::WorkloadView;
use berth_cache::shape::Excess;
use berth_engine::model::Amount;
use berth_jobs::PodSetNeeds;
use berth_jobs::pods::PodState;

use super::PodCase;
use crate::context::Context;
use crate::decision::Decision;
use crate::job::altered::evict_and_pause;

impl PodCase<'_> {
    /// Stops a pod of a group that runs without being admitted, or that requests more than the admission gives it; `None` if the pod runs as admitted. After
    /// the stop of a pod that has no right to run, another pod of the group can start in its place.
    pub(super) fn without_right(&self, workload: &WorkloadView) -> Option<Decision> {
        let role = self.pod.role();
        if workload.sizes().all(|(known, _)| known != role) {
            return Some(self.stop(own_reasons::ROLE_NOT_FOUND, &of_no_role(self.pod, workload)));
        }
        if !self.is_admitted(workload) {
            return Some(self.stop(own_reasons::EXCESS_POD, &one_too_many(self.pod, workload)));
        }
        self.outgrown(workload).map(|text| self.stop(reasons::OUT_OF_SYNC, &text))
    }

    /// Evicts the Workload of a pod outside a group if the pod requests more than the Workload has quota for.
    pub(super) fn too_large(&self, workload: &WorkloadView) -> Option<Decision> {
        let text = self.outgrown(workload)?;
        Some(evict_and_pause(self.ctx, workload, self.now, (own_reasons::POD_RESIZED, &text)))
    }

    /// Text about the amount by which the running pod exceeds its admitted requests; `None` if the pod does not, or if its queue has room for the additional
    /// requests.
    fn outgrown(&self, workload: &WorkloadView) -> Option<String> {
        let asked = self.ctx.view.pods().asked(self.name)?;
        outgrown(self.ctx, workload, (self.pod.role(), asked), &self.name.1)
    }
}

/// Text about the amount by which a running pod of a role exceeds its admitted requests; `None` if the pod does not, or if its queue has room for the
/// additional requests.
pub(crate) fn outgrown(
    ctx: &Context<'_>,
    workload: &WorkloadView,
    (role, asked): (&str, &PodSetNeeds),
    name: &str,
) -> Option<String> {
    let Excess { resource, asked, given } = beyond(workload, role, asked)?;
    if ctx.has_room_for(workload, &resource) {
        return None;
    }
    let amount = |amount: Amount| berth_quantity::format(&resource, amount);
    Some(format!(
        "Pod {name} asks for {} of {resource}, pod set {role:?} of Workload {:?} has {} for each of its pods, and its ClusterQueue has no room for more",
        amount(asked),
        workload.name,
        amount(given)
    ))
}

/// The resource of which a pod requests more than its admitted pod set gives to each pod. LimitRanges, overheads and the configuration may have changed since
/// the admission, so a pod exceeds its pod set only if it requests more than the present requests of the pod set and more than the admitted amount.
pub(crate) fn beyond(workload: &WorkloadView, role: &str, asked: &PodSetNeeds) -> Option<Excess> {
    let asks = workload.shape.pod_sets.iter().find(|set| set.name == role)?;
    let given = workload.given().find(|set| set.effective_name() == role);
    let each = |resource: &String| {
        let given = given?;
        let total = berth_quantity::request(resource, &given.resource_usage.get(resource)?.0).ok()?;
        let count = i64::from(given.count.unwrap_or(1)).max(1);
        Some(Amount::new(total.get().checked_div(count)?))
    };
    asked.requests.iter().find_map(|(resource, asked)| {
        let asks = asks.requests.get(resource).copied().unwrap_or(Amount::ZERO);
        let given = each(resource).unwrap_or(Amount::ZERO).max(asks).max(Amount::ZERO);
        (*asked > given).then(|| Excess { resource: resource.clone(), asked: *asked, given })
    })
}

/// Text that says that a Workload has no pod set for the role of a pod.
pub(super) fn of_no_role(pod: &PodState, workload: &WorkloadView) -> String {
    let known: Vec<&str> = workload.sizes().map(|(role, _)| role).collect();
    format!(
        "the pod's role {:?} is none of the pod sets of Workload {:?} ({})",
        pod.role(),
        workload.name,
        known.join(", ")
    )
}

/// Text that says that a pod is one more than the number of admitted pods of its role.
pub(super) fn one_too_many(pod: &PodState, workload: &WorkloadView) -> String {
    let (role, size) = (pod.role(), workload.size(pod.role()));
    format!("Workload {:?} was admitted for {size} pods of role {role:?}, and this is one more", workload.name)
}

#[cfg(test)]
mod tests;
