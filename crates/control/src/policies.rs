//! QueuePolicies: the policies that a ClusterQueue follows. `rules` has their fields, read once, `labels` what they read in labels of jobs, and
//! `limits` and `gpus` what a job may have at most.

mod gpus;
mod labels;
mod limits;
mod merge;
pub(crate) mod rules;
pub(crate) mod status;

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_api::berth::QueuePolicy;
use berth_engine::model as engine;

use crate::cache::{View, WorkloadView};
use crate::context::Context;
use crate::deltas;
use crate::names::{Name, same_intent};
use crate::settings::Settings;

pub(crate) use crate::cache::priorities::{NamedClasses, Wanted};
pub(crate) use labels::{NO_CLASS, no_class};
use rules::{Policy, Rules, fields};

/// Labels of an object without any.
static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

/// The smaller of two limits holds: the queue's own, and a share of its nominal quota.
fn bound_borrowing(group: &mut engine::ResourceGroup, percent: i64) {
    for quota in group.flavors.iter_mut().flat_map(|flavor| &mut flavor.quotas) {
        let nominal = i128::from(quota.nominal.get());
        let share = engine::Amount::clamped(nominal.saturating_mul(i128::from(percent)) / 100);
        quota.borrowing_limit = Some(quota.borrowing_limit.map_or(share, |limit| limit.min(share)));
    }
}

impl View {
    /// Takes a policy that was seen, or is gone. Names the ClusterQueues that it claims, or has claimed until now; `None` if nothing but its status
    /// has changed.
    pub(crate) fn put_policy(&mut self, name: &str, object: Option<Box<QueuePolicy>>) -> Option<Vec<String>> {
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

    /// Finds the rules that a ClusterQueue with these labels follows. Names the policies that claim it, or have claimed it until now; `None` if the
    /// rules have not changed.
    pub(crate) fn claim(&mut self, queue: &str, labels: Option<&BTreeMap<String, String>>) -> Option<Vec<Arc<str>>> {
        let labels = labels.unwrap_or(&NO_LABELS);
        let claiming = self.policies.values().filter(|policy| policy.claims(queue, labels));
        let new = merge::merged(claiming.collect());
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
    pub(crate) fn rules_of(&self, cluster_queue: &str) -> Option<&Rules> {
        self.claims.get(cluster_queue).map(|claim| &*claim.rules)
    }

    /// The ClusterQueue behind a LocalQueue.
    pub(crate) fn behind(&self, local: &Name) -> Option<&str> {
        self.local_queues.get(local)?.spec.cluster_queue.as_deref()
    }

    /// The flavors of a ClusterQueue; one that is in several of its groups more than once.
    pub(crate) fn flavors_of(&self, cluster_queue: &str) -> impl Iterator<Item = &str> + use<'_> {
        let queue = self.cluster_queues.get(cluster_queue).into_iter();
        let groups = queue.flat_map(|queue| &queue.spec.resource_groups);
        groups.flat_map(|group| &group.flavors).map(|flavor| flavor.name.as_str())
    }

    /// A ClusterQueue as the engine gets it, with the rules of its policies.
    pub(crate) fn queue_spec(&self, settings: &Settings, object: &berth_api::ClusterQueue) -> engine::ClusterQueueSpec {
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

impl<'a> Context<'a> {
    /// The rules that the policies of a ClusterQueue make.
    pub(crate) fn rules_of(&self, cluster_queue: &str) -> Option<&'a Rules> {
        self.view.rules_of(cluster_queue)
    }

    /// The rules of the ClusterQueue of a workload.
    pub(crate) fn rules_for(&self, workload: &WorkloadView) -> Option<&'a Rules> {
        if self.view.claims.is_empty() {
            return None;
        }
        self.rules_of(self.queue_of(workload)?)
    }

    /// The ClusterQueue whose quota a workload holds, else the one it waits in.
    pub(crate) fn queue_of<'b>(&self, workload: &'b WorkloadView) -> Option<&'b str>
    where
        'a: 'b,
    {
        let given = workload.status.admission.as_ref().and_then(|admission| admission.cluster_queue.as_deref());
        given.or_else(|| self.view.behind(&workload.local_queue()))
    }

    /// The flavors of a ClusterQueue; one that is in several of its groups more than once.
    pub(crate) fn flavors_of(self, cluster_queue: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.view.flavors_of(cluster_queue)
    }

    /// Whether selectors of capacity in a workload's pods give way to the tiers of its queue.
    pub(crate) fn overrides_selectors(&self, workload: &WorkloadView) -> bool {
        let tiers = self.rules_for(workload).and_then(|rules| rules.tiers.as_ref());
        // The node selector of a pod that exists can only be narrowed.
        let fixed = workload.whole().is_some_and(|whole| whole.kind.is_pods());
        tiers.is_some_and(|tiers| tiers.overrides) && !fixed
    }

    /// A ClusterQueue as the engine gets it, with the rules of its policies.
    pub(crate) fn queue_spec(&self, object: &berth_api::ClusterQueue) -> engine::ClusterQueueSpec {
        self.view.queue_spec(self.settings, object)
    }
}
