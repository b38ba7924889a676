//! QueuePolicies that were seen, and the rules that each ClusterQueue follows by them.

use berth_engine::model as engine;

use crate::View;
use crate::deltas;
use crate::names::Name;
use crate::policy_rules::{Rules, fields};
use crate::settings::Settings;

/// Bounds the borrowing of a ClusterQueue by the smaller of two limits: the queue's own limit, and a share of its nominal quota.
fn bound_borrowing(group: &mut engine::ResourceGroup, percent: i64) {
    for quota in group.flavors.iter_mut().flat_map(|flavor| &mut flavor.quotas) {
        let nominal = i128::from(quota.nominal.get());
        let share = engine::Amount::clamped(nominal.saturating_mul(i128::from(percent)) / 100);
        quota.borrowing_limit = Some(quota.borrowing_limit.map_or(share, |limit| limit.min(share)));
    }
}

impl View {
    /// The rules that the policies of a ClusterQueue make.
    pub fn rules_of(&self, cluster_queue: &str) -> Option<&Rules> {
        self.claims().get(cluster_queue).map(|claim| &*claim.rules)
    }

    /// The ClusterQueue that a LocalQueue names.
    pub fn behind(&self, local: &Name) -> Option<&str> {
        self.local_queues().get(local)?.spec.cluster_queue.as_deref()
    }

    /// The flavors of a ClusterQueue; a flavor that is in several resource groups is returned several times.
    pub fn flavors_of(&self, cluster_queue: &str) -> impl Iterator<Item = &str> + use<'_> {
        let queue = self.cluster_queues().get(cluster_queue).into_iter();
        let groups = queue.flat_map(|queue| &queue.spec.resource_groups);
        groups.flat_map(|group| &group.flavors).map(|flavor| flavor.name.as_str())
    }

    /// A ClusterQueue as the engine gets it, with the rules of its policies.
    pub fn queue_spec(&self, settings: &Settings, object: &berth_api::ClusterQueue) -> engine::ClusterQueueSpec {
        let mut spec = deltas::cluster_queue(object, self.checks(), settings);
        if let Some(rules) = self.rules_of(&spec.name) {
            spec.tiers = rules.tiers.as_ref().map(|tiers| tiers.default.clone()).unwrap_or_default();
            spec.max_shares = rules.tiers.as_ref().map(|tiers| tiers.max_shares).unwrap_or_default();
            spec.max_jobs = rules.limits.max_jobs.map(|most| engine::JobLimit {
                most,
                source: format!("QueuePolicy {}: {}", rules.source(fields::MAX_JOBS), fields::MAX_JOBS),
            });
            spec.guard = rules.guard;
            if let Some(percent) = rules.borrowing_percent {
                spec.groups.iter_mut().for_each(|group| bound_borrowing(group, percent));
            }
        }
        spec
    }
}
