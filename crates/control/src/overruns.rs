//! Usage of a job beyond the quota that its Workloads hold: pods that are replaced while they end, pods of a job that another client has started,
//! Jobs and pods of a group that have no place. Such usage is found in the view, passed to the engine, and charged to the job's ClusterQueue until it
//! is gone (`docs/departures/0063-usage-beyond-is-charged-to-its-queue.md`). Nothing of it is stored: a process that comes to lead finds it again.

mod jobs;
pub(crate) mod known;
mod left;
pub(crate) mod pods;

use std::collections::BTreeMap;

use berth_engine::model as engine;
use berth_engine::model::{Amount, BeyondSpec, FlavorResource};

use crate::cache::{Name, WorkloadView};
use crate::context::Context;
use crate::deltas;
use crate::write::{Kind, ObjectKey};
pub(crate) use known::Overruns;
use known::{ExcessUsage, Overrun};

/// Numbers of pods, and the amounts that they use beyond quota.
#[derive(Default)]
struct Found {
    carrier: String,
    queue: Option<String>,
    usage: BTreeMap<FlavorResource, Amount>,
    pods: [i64; 2],
}

/// Amounts by resource.
type Requests = BTreeMap<String, Amount>;

impl Found {
    /// Charges so many pods.
    fn charge(&mut self, ctx: &Context<'_>, given: Option<&BTreeMap<String, String>>, each: &Requests, pods: i64) {
        let all = |(resource, each): (&String, &Amount)| (resource.clone(), each.max(&Amount::ZERO).mul(pods));
        let mut amounts: Requests = each.iter().map(all).collect();
        // No pod asks for the resource `pods` itself.
        amounts.insert("pods".to_owned(), Amount::new(pods));
        self.charge_amounts(ctx, given, amounts);
    }

    /// Charges amounts in the flavors that were given for them, and others in the first flavor that the queue has for them.
    fn charge_amounts(&mut self, ctx: &Context<'_>, given: Option<&BTreeMap<String, String>>, amounts: Requests) {
        for (resource, amount) in amounts.into_iter().filter(|(_, amount)| *amount > Amount::ZERO) {
            let first = || self.queue.as_deref().and_then(|queue| ctx.first_flavor(queue, &resource));
            let Some(flavor) = given.and_then(|given| given.get(&resource)).cloned().or_else(first) else { continue };
            let sum = self.usage.entry(FlavorResource { flavor, resource }).or_default();
            *sum = sum.add(amount);
        }
    }

    /// Counts the pods of one pod set, and charges those that are more than are held.
    fn count(&mut self, ctx: &Context<'_>, held: &[engine::PodSetAssignment], set: &engine::PodSetSpec, runs: i64) {
        let given = held.iter().find(|held| held.name == set.name);
        let count = given.map_or(0, |given| given.count);
        self.pods = [self.pods[0].saturating_add(runs), self.pods[1].saturating_add(count)];
        let beyond = runs.saturating_sub(count);
        if beyond > 0 {
            self.charge(ctx, given.map(|given| &given.flavors), &set.requests, beyond);
        }
    }

    /// Whether something runs beyond quota, even if its queue is unknown.
    fn is_beyond(&self) -> bool {
        !self.usage.is_empty() || self.pods[0] > self.pods[1]
    }

    fn into_usage(self) -> ExcessUsage {
        let usage = self.usage.into_iter().collect();
        let spec = |queue| BeyondSpec { carrier: self.carrier, cluster_queue: queue, usage };
        ExcessUsage { charge: self.queue.map(spec), pods: self.pods }
    }
}

/// Usage beyond quota of a job, pod or group; `None` if nothing runs beyond quota.
pub(crate) fn usage_of(ctx: &Context<'_>, object: &ObjectKey) -> Option<ExcessUsage> {
    // Offline a job that runs may have been read without its Workload.
    let counts = |found: &Found| found.is_beyond() && !(ctx.session.is_offline && found.pods[1] == 0);
    ctx.overrun_of(object).filter(counts).map(Found::into_usage)
}

/// Whether pods that ran beyond quota outlive their job: it is gone, and its Workload is kept until none of them is left.
pub(crate) fn outlives(ctx: &Context<'_>, object: &ObjectKey) -> bool {
    let known = ctx.quota.overruns.known.get(object);
    let charge = known.and_then(|known| known.charge.as_ref()).filter(|_| object.kind.is_admitted_with_pods());
    let Some(workload) = charge.and_then(|charge| ctx.view.workloads.by_uid(&charge.carrier)) else { return false };
    let owner = workload.owner.as_ref().map(|owner| &owner.uid);
    let is_gone = ctx.uid_of(object).is_none_or(|uid| owner.is_some_and(|owner| *owner != uid));
    is_gone && !ctx.notes_of(workload).pods().are_gone()
}

impl Context<'_> {
    /// Whether the queue of a Workload has room for the excess of its pods in a resource: it is charged with that already.
    pub(crate) fn has_room_for(&self, workload: &WorkloadView, resource: &str) -> bool {
        let known =
            workload.whole().and_then(|whole| self.quota.overruns.known.get(&whole)).filter(|known| !known.crowded);
        let charge = known.and_then(|known| known.charge.as_ref());
        charge.is_some_and(|charge| charge.usage.iter().any(|(cell, _)| cell.resource == resource))
    }

    /// Whether the job of a Workload runs something beyond the quota that it holds, as far as is known.
    pub(crate) fn has_overrun(&self, workload: &WorkloadView) -> bool {
        let overruns = &self.quota.overruns;
        let is_known = || workload.whole().is_some_and(|whole| overruns.known.contains_key(&whole));
        overruns.outlived.contains_key(&workload.uid) || is_known()
    }

    /// Whether the job of a Workload runs pods without any quota: the Workload waits until they have ended, since a reservation in the meantime would
    /// hold twice as many.
    pub(crate) fn runs_without_quota(&self, workload: &WorkloadView) -> bool {
        workload
            .whole()
            .is_some_and(|whole| self.quota.overruns.known.get(&whole).is_some_and(Overrun::is_without_quota))
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

    /// The ClusterQueue that is charged for running pods of a Workload's job: the one whose quota it holds, or waits for.
    fn charged_for(&self, workload: &WorkloadView) -> Option<String> {
        let held = workload.holds().filter(|queue| !queue.is_empty()).map(str::to_owned);
        held.or_else(|| self.charged_behind(&workload.local_queue()))
    }

    /// The ClusterQueue that is charged for pods that run without quota by a LocalQueue. A ClusterQueue that takes nothing of the namespace is not
    /// charged: a user who may make LocalQueues there could take its quota from others.
    fn charged_behind(&self, local: &Name) -> Option<String> {
        let queue = self.view.behind(local)?;
        let selector = self.view.cluster_queues.get(queue)?.spec.namespace_selector.as_ref()?;
        let selector = deltas::selector(selector).ok()?;
        deltas::matches(&selector, self.view.namespaces.get(&local.0)?).then(|| queue.to_owned())
    }

    /// The flavor of a queue in which pods that run without quota are charged.
    fn first_flavor(&self, queue: &str, resource: &str) -> Option<String> {
        let groups = &self.view.cluster_queues.get(queue)?.spec.resource_groups;
        let group = groups.iter().find(|group| group.covered_resources.iter().any(|covered| covered == resource))?;
        group.flavors.first().map(|flavor| flavor.name.clone())
    }
}

#[cfg(test)]
mod tests;
