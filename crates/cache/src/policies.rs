//! QueuePolicies that were seen, and the rules that each ClusterQueue follows by them.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_api::berth::QueuePolicy;
use berth_engine::model as engine;

use crate::deltas;
use crate::names::{Name, same_intent};
use crate::policy_rules::{Policy, Rules, fields};
use crate::settings::Settings;
use crate::{View, policy_merge};

/// The labels of an object that has none.
static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

/// Bounds the borrowing of a ClusterQueue by the smaller of two limits: the queue's own limit, and a share of its nominal quota.
fn bound_borrowing(group: &mut engine::ResourceGroup, percent: i64) {
    for quota in group.flavors.iter_mut().flat_map(|flavor| &mut flavor.quotas) {
        let nominal = i128::from(quota.nominal.get());
        let share = engine::Amount::clamped(nominal.saturating_mul(i128::from(percent)) / 100);
        quota.borrowing_limit = Some(quota.borrowing_limit.map_or(share, |limit| limit.min(share)));
    }
}

impl View {
    /// Records a policy that was observed, or its deletion. Returns the ClusterQueues that the policy claims now or claimed before; `None` if nothing but the
    /// policy's status has changed.
    pub fn put_policy(&mut self, name: &str, object: Option<Box<QueuePolicy>>) -> Option<Vec<String>> {
        let old = match (self.policies.get_mut(name), object) {
            (Some(known), Some(object)) if same_intent(&known.object.metadata, &object.metadata) => {
                known.object = object;
                return None;
            }
            (_, Some(object)) => self.policies.insert(name.to_owned(), Policy::new(object)),
            (_, None) => self.policies.remove(name),
        };
        let new = self.policies.get(name);
        let claimed = self.cluster_queues.iter().filter(|(queue, object)| {
            let labels = object.metadata.labels.as_ref().unwrap_or(&NO_LABELS);
            old.as_ref().into_iter().chain(new).any(|policy| policy.claims(queue, labels))
        });
        Some(claimed.map(|(queue, _)| queue.clone()).collect())
    }

    /// Finds the rules that a ClusterQueue with the given labels follows. Returns the policies that claim the queue now or claimed it before; `None` if the
    /// rules have not changed.
    pub fn claim(&mut self, queue: &str, labels: Option<&BTreeMap<String, String>>) -> Option<Vec<Arc<str>>> {
        let labels = labels.unwrap_or(&NO_LABELS);
        let claiming = self.policies.values().filter(|policy| policy.claims(queue, labels));
        let new = policy_merge::merged(claiming.collect());
        if self.claims.get(queue) == new.as_ref() {
            return None;
        }
        let old = match new {
            Some(new) => self.claims.insert(queue.to_owned(), new),
            None => self.claims.remove(queue),
        };
        let claims = [old.as_ref(), self.claims.get(queue)];
        Some(claims.into_iter().flatten().flat_map(|claim| claim.of.iter().cloned()).collect())
    }

    /// The rules that the policies of a ClusterQueue make.
    pub fn rules_of(&self, cluster_queue: &str) -> Option<&Rules> {
        self.claims.get(cluster_queue).map(|claim| &*claim.rules)
    }

    /// The ClusterQueue that a LocalQueue names.
    pub fn behind(&self, local: &Name) -> Option<&str> {
        self.local_queues.get(local)?.spec.cluster_queue.as_deref()
    }

    /// The flavors of a ClusterQueue; a flavor that is in several resource groups is returned several times.
    pub fn flavors_of(&self, cluster_queue: &str) -> impl Iterator<Item = &str> + use<'_> {
        let queue = self.cluster_queues.get(cluster_queue).into_iter();
        let groups = queue.flat_map(|queue| &queue.spec.resource_groups);
        groups.flat_map(|group| &group.flavors).map(|flavor| flavor.name.as_str())
    }

    /// A ClusterQueue as the engine gets it, with the rules of its policies.
    pub fn queue_spec(&self, settings: &Settings, object: &berth_api::ClusterQueue) -> engine::ClusterQueueSpec {
        let mut spec = deltas::cluster_queue(object, &self.checks, settings);
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
