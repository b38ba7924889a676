//! Usage of a job beyond the quota that the job's Workloads hold. Usage beyond quota comes from pods that are replaced while they end, from pods of a job that
//! another client has started, and from Jobs and pods of a group for which no quota is held. Usage beyond quota is found in the view, passed to the engine, and
//! charged to the job's ClusterQueue until the pods are gone (`docs/departures/0063-usage-beyond-is-charged-to-its-queue.md`). No usage beyond quota is stored:
//! a process that begins to lead finds the usage again.

mod jobs;
pub(crate) mod known;
mod left;
pub(crate) mod pods;

use std::collections::BTreeMap;

use berth_engine::model as engine;
use berth_engine::model::{Amount, BeyondSpec, FlavorResource};

use crate::context::Context;
use crate::write::{Kind, ObjectKey};
use berth_cache::deltas;
use berth_cache::{Name, WorkloadView};
pub(crate) use known::Overruns;
use known::{ExcessUsage, Overrun};

/// Numbers of pods of a job, and the amounts that the pods use beyond quota.
#[derive(Default)]
struct Found {
    carrier: String,
    queue: Option<String>,
    usage: BTreeMap<FlavorResource, Amount>,
    pods: [i64; 2],
}

/// Requested amounts by resource.
type Requests = BTreeMap<String, Amount>;

impl Found {
    /// Charges `pods` pods with equal requests.
    fn charge(&mut self, ctx: &Context<'_>, given: Option<&BTreeMap<String, String>>, each: &Requests, pods: i64) {
        let all = |(resource, each): (&String, &Amount)| (resource.clone(), each.max(&Amount::ZERO).mul(pods));
        let mut amounts: Requests = each.iter().map(all).collect();
        // No pod requests the resource `pods` itself.
        amounts.insert("pods".to_owned(), Amount::new(pods));
        self.charge_amounts(ctx, given, amounts);
    }

    /// Charges amounts in the flavors that were given for their resources; a resource without a given flavor is charged in the queue's first flavor for the
    /// resource.
    fn charge_amounts(&mut self, ctx: &Context<'_>, given: Option<&BTreeMap<String, String>>, amounts: Requests) {
        for (resource, amount) in amounts.into_iter().filter(|(_, amount)| *amount > Amount::ZERO) {
            let first = || self.queue.as_deref().and_then(|queue| ctx.first_flavor(queue, &resource));
            let Some(flavor) = given.and_then(|given| given.get(&resource)).cloned().or_else(first) else { continue };
            let sum = self.usage.entry(FlavorResource { flavor, resource }).or_default();
            *sum = sum.add(amount);
        }
    }

    /// Counts the pods of one pod set, and charges the pods beyond the number for which quota is held.
    fn count(&mut self, ctx: &Context<'_>, held: &[engine::PodSetAssignment], set: &engine::PodSetSpec, runs: i64) {
        let given = held.iter().find(|held| held.name == set.name);
        let count = given.map_or(0, |given| given.count);
        self.pods = [self.pods[0].saturating_add(runs), self.pods[1].saturating_add(count)];
        let beyond = runs.saturating_sub(count);
        if beyond > 0 {
            self.charge(ctx, given.map(|given| &given.flavors), &set.requests, beyond);
        }
    }

    /// Whether pods run beyond quota, even if their queue is unknown.
    fn is_beyond(&self) -> bool {
        !self.usage.is_empty() || self.pods[0] > self.pods[1]
    }

    fn into_usage(self) -> ExcessUsage {
        let usage = self.usage.into_iter().collect();
        let spec = |queue| BeyondSpec { carrier: self.carrier, cluster_queue: queue, usage };
        ExcessUsage { charge: self.queue.map(spec), pods: self.pods }
    }
}

/// Usage beyond quota of a job, pod or group; `None` if no pod runs beyond quota.
pub fn usage_of(ctx: &Context<'_>, object: &ObjectKey) -> Option<ExcessUsage> {
    // A running job may have been read offline without its Workload.
    let counts = |found: &Found| found.is_beyond() && !(ctx.session.is_offline() && found.pods[1] == 0);
    ctx.overrun_of(object).filter(counts).map(Found::into_usage)
}

/// Whether pods that ran beyond quota outlive their job: the job is gone, and its Workload is kept until no pod is left.
pub fn outlives(ctx: &Context<'_>, object: &ObjectKey) -> bool {
    let known = ctx.quota.overruns().known.get(object);
    let charge = known.and_then(|known| known.charge.as_ref()).filter(|_| object.kind.is_admitted_with_pods());
    let Some(workload) = charge.and_then(|charge| ctx.view.workloads().by_uid(&charge.carrier)) else { return false };
    let owner = workload.owner.as_ref().map(|owner| &owner.uid);
    let is_gone = ctx.uid_of(object).is_none_or(|uid| owner.is_some_and(|owner| *owner != uid));
    is_gone && !ctx.notes_of(workload).pods().are_gone()
}

impl Context<'_> {
    /// Whether the ClusterQueue of a Workload has room for the usage beyond quota of the Workload's pods in a resource: the usage is charged to the queue
    /// already.
    pub(crate) fn has_room_for(&self, workload: &WorkloadView, resource: &str) -> bool {
        let known = workload
            .owner_key()
            .and_then(|owner_key| self.quota.overruns().known.get(&owner_key))
            .filter(|known| !known.crowded);
        let charge = known.and_then(|known| known.charge.as_ref());
        charge.is_some_and(|charge| charge.usage.iter().any(|(cell, _)| cell.resource == resource))
    }

    /// Whether the job of a Workload runs pods beyond its quota, as far as is known.
    pub(crate) fn has_overrun(&self, workload: &WorkloadView) -> bool {
        let overruns = self.quota.overruns();
        let is_known = || workload.owner_key().is_some_and(|owner_key| overruns.known.contains_key(&owner_key));
        overruns.outlived.contains_key(&workload.uid) || is_known()
    }

    /// Whether the job of a Workload runs pods without any quota. The Workload waits until pods without quota have ended, because a reservation in the meantime
    /// would hold quota for twice as many pods.
    pub(crate) fn runs_without_quota(&self, workload: &WorkloadView) -> bool {
        workload
            .owner_key()
            .is_some_and(|owner_key| self.quota.overruns().known.get(&owner_key).is_some_and(Overrun::is_without_quota))
    }

    /// Running pods of a job, a single pod, a group, or a Workload whose job is gone, and their usage beyond quota.
    fn overrun_of(&self, object: &ObjectKey) -> Option<Found> {
        match object.kind {
            Kind::Pod => self.overrun_of_pod(&(object.namespace.clone(), object.name.clone())),
            Kind::PodGroup => self.overrun_of_group(&(object.namespace.clone(), object.name.clone())),
            Kind::TrainingJob => self.overrun_of_training(object),
            Kind::Workload => self.overrun_of_left(object),
            kind if kind.is_job() => self.overrun_of_job(object),
            _ => None,
        }
    }

    /// The ClusterQueue that is charged for running pods of a Workload's job: the queue whose quota the Workload holds, or waits for.
    fn charged_for(&self, workload: &WorkloadView) -> Option<String> {
        let held = workload.holds().filter(|queue| !queue.is_empty()).map(str::to_owned);
        held.or_else(|| self.charged_behind(&workload.local_queue()))
    }

    /// The ClusterQueue that is charged for pods that run without quota and name a LocalQueue. A ClusterQueue whose namespace selector excludes the namespace
    /// is not charged: otherwise a user who may create LocalQueues in the namespace could take quota from other users.
    fn charged_behind(&self, local: &Name) -> Option<String> {
        let queue = self.view.behind(local)?;
        let selector = self.view.cluster_queues().get(queue)?.spec.namespace_selector.as_ref()?;
        let selector = deltas::selector(selector).ok()?;
        deltas::matches(&selector, self.view.namespaces().get(&local.0)?).then(|| queue.to_owned())
    }

    /// The flavor of a ClusterQueue in which pods that run without quota are charged.
    fn first_flavor(&self, queue: &str, resource: &str) -> Option<String> {
        let groups = &self.view.cluster_queues().get(queue)?.spec.resource_groups;
        let group = groups.iter().find(|group| group.covered_resources.iter().any(|covered| covered == resource))?;
        group.flavors.first().map(|flavor| flavor.name.clone())
    }
}

#[cfg(test)]
mod tests;
