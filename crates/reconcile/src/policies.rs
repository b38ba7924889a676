//! QueuePolicies: the policies that a ClusterQueue follows. The modules below `policies` read labels of jobs (`labels`), hold the limits on a job (`limits` and
//! `gpus`), and write the QueuePolicy's status (`status`).

mod gpus;
mod labels;
mod limits;
pub(crate) mod status;

use berth_cache::WorkloadView;
use berth_cache::policy_rules::Rules;
use berth_engine::model as engine;

use crate::context::Context;

pub(crate) use berth_cache::priorities::{NamedClasses, Wanted};
pub(crate) use labels::{NO_CLASS, no_class};

impl<'a> Context<'a> {
    /// The rules that the policies of a ClusterQueue make.
    pub(crate) fn rules_of(&self, cluster_queue: &str) -> Option<&'a Rules> {
        self.view.rules_of(cluster_queue)
    }

    /// The rules of the ClusterQueue of a workload.
    pub(crate) fn rules_for(&self, workload: &WorkloadView) -> Option<&'a Rules> {
        if self.view.claims().is_empty() {
            return None;
        }
        self.rules_of(self.queue_of(workload)?)
    }

    /// The ClusterQueue whose quota a Workload holds; otherwise the ClusterQueue in which the Workload waits.
    pub(crate) fn queue_of<'b>(&self, workload: &'b WorkloadView) -> Option<&'b str>
    where
        'a: 'b,
    {
        let given = workload.status.admission.as_ref().and_then(|admission| admission.cluster_queue.as_deref());
        given.or_else(|| self.view.behind(&workload.local_queue()))
    }

    /// The flavors of a ClusterQueue; a flavor that is in several resource groups is returned several times.
    pub(crate) fn flavors_of(self, cluster_queue: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.view.flavors_of(cluster_queue)
    }

    /// Whether the tier rules of a Workload's ClusterQueue override selectors of capacity in the Workload's pods.
    pub(crate) fn overrides_selectors(&self, workload: &WorkloadView) -> bool {
        let tiers = self.rules_for(workload).and_then(|rules| rules.tiers.as_ref());
        // The node selector of a pod that exists can only be narrowed.
        let fixed = workload.owner_key().is_some_and(|owner_key| owner_key.kind.is_pods());
        tiers.is_some_and(|tiers| tiers.overrides) && !fixed
    }

    /// A ClusterQueue as the engine gets it, with the rules of its policies.
    pub(crate) fn queue_spec(&self, object: &berth_api::ClusterQueue) -> engine::ClusterQueueSpec {
        self.view.queue_spec(self.settings, object)
    }
}

#[cfg(test)]
mod tests;
