//! The gauges of queues and Workloads, computed from the view and the engine's accounting when a scrape asks for them.

mod cohorts;
mod gone;
mod unadmitted;

use std::collections::BTreeMap;

use berth_api::conditions::types;
use berth_cache::{Name, WorkloadView};
use berth_engine::model as engine;
use berth_quantity::Amount;

use crate::context::Context;
use crate::measure::{Figures, Gauge, Labels};
use crate::queues;
use crate::state::plans::planned;
use crate::workload::blocked::may_queue;

pub(crate) use gone::Gone;

/// An amount as Prometheus shows it: cpu in cores. An amount beyond 2^53 loses its last digits, as in every client of Prometheus.
#[allow(clippy::cast_precision_loss, reason = "figures for people")]
pub(crate) fn shown(resource: &str, amount: Amount) -> f64 {
    if amount == Amount::UNLIMITED {
        return f64::INFINITY;
    }
    let value = amount.get() as f64;
    if resource == "cpu" { value / 1000.0 } else { value }
}

/// Numbers of Workloads by LocalQueue, that is, by namespace and name.
type Locally<'a> = BTreeMap<(&'a str, &'a str), usize>;

/// The gauges that are collected so far.
#[derive(Default)]
pub(crate) struct Gauges(Vec<Gauge>);

impl Gauges {
    pub(crate) fn put(&mut self, name: &'static str, labels: Labels, value: f64) {
        self.0.push(Gauge { name, labels, value });
    }

    pub(crate) fn count(&mut self, name: &'static str, labels: Labels, value: usize) {
        self.put(name, labels, f64::from(u32::try_from(value).unwrap_or(u32::MAX)));
    }
}

impl<'a> Context<'a> {
    /// The gauges of all queues, and the gauges of control's own health. The cost of computing the gauges grows with the number of Workloads.
    pub fn figures(&self) -> Figures {
        let mut gauges = Gauges::default();
        let (finished, finished_locally) = self.finished();
        let mut feeding: BTreeMap<&str, Vec<&Name>> = BTreeMap::new();
        for (local, object) in self.view.local_queues() {
            feeding.entry(object.spec.cluster_queue.as_deref().unwrap_or_default()).or_default().push(local);
        }
        for name in self.view.cluster_queues().keys() {
            let feeding = feeding.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
            self.cluster_queue_gauges(&mut gauges, name, &finished, feeding);
        }
        if self.settings.cohort_metrics {
            self.cohort_gauges(&mut gauges);
        }
        if self.settings.local_queue_metrics {
            for name in self.view.local_queues().keys() {
                self.local_queue_gauges(&mut gauges, name, &finished_locally);
            }
        }
        if self.settings.engine.fair_sharing.is_some() {
            for name in self.view.cohorts().keys() {
                if let Some(share) = self.quota.world().share(name, false, &BTreeMap::new()) {
                    // The weighted share of a Cohort is neither rounded nor made finite in its gauge, as in Kueue (docs/departures/0015-share-gauges.md).
                    gauges.put("kueue_cohort_weighted_share", vec![("cohort", name.clone())], share.share.value());
                }
            }
        }
        if self.settings.observe_unadmitted {
            self.unadmitted_gauges(&mut gauges);
        }
        self.training_gauges(&mut gauges);
        gauges.put(
            "berth_sweep_found",
            Vec::new(),
            f64::from(u32::try_from(self.reports.sweep_found()).unwrap_or(u32::MAX)),
        );
        let refused = u32::try_from(self.quota.world().refused_victims()).unwrap_or(u32::MAX);
        gauges.put("berth_victims_refused", Vec::new(), f64::from(refused));
        gauges.count("berth_unacknowledged_admissions", Vec::new(), planned(self.notes.workloads()));
        Figures { gauges: gauges.0 }
    }

    /// Finished workloads that still exist, by ClusterQueue and by LocalQueue.
    fn finished(&self) -> (BTreeMap<&'a str, usize>, Locally<'a>) {
        let mut finished = BTreeMap::new();
        let mut locally = BTreeMap::new();
        for workload in self.view.workloads().values().filter(|workload| workload.is_finished()) {
            let queue = workload.status.admission.as_ref().and_then(|admission| admission.cluster_queue.as_deref());
            if let Some(queue) = queue {
                let count: &mut usize = finished.entry(queue).or_default();
                *count = count.saturating_add(1);
            }
            let count: &mut usize = locally.entry((workload.namespace.as_str(), workload.queue.as_str())).or_default();
            *count = count.saturating_add(1);
        }
        (finished, locally)
    }

    fn cluster_queue_gauges(
        &self,
        gauges: &mut Gauges,
        name: &str,
        finished: &BTreeMap<&str, usize>,
        feeding: &[&Name],
    ) {
        let Some(figures) = self.quota.world().figures(name) else { return };
        let queue = || ("cluster_queue", name.to_owned());
        let status = |text: &str| vec![queue(), ("status", text.to_owned())];
        let count = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
        gauges.count("kueue_pending_workloads", status("active"), count(figures.pending_active));
        gauges.count("kueue_pending_workloads", status("inadmissible"), count(figures.pending_inadmissible));
        gauges.count("kueue_reserving_active_workloads", vec![queue()], count(figures.reserving));
        let reserving = self.view.workloads().reserving(name);
        let admitted: Vec<&WorkloadView> = reserving.filter(|workload| workload.is(types::ADMITTED)).collect();
        gauges.count("kueue_admitted_active_workloads", vec![queue()], admitted.len());
        gauges.count("kueue_finished_workloads", vec![queue()], finished.get(name).copied().unwrap_or_default());
        let skipped = self.reports.skipped_preemptions(name);
        gauges.count("kueue_admission_cycle_preemption_skips", vec![queue()], count(skipped));
        let active = self.quota.world().readiness(name).is_some_and(|readiness| readiness.active);
        let object = self.view.cluster_queues().get(name);
        let terminating = object.is_some_and(|queue| queue.metadata.deletion_timestamp.is_some());
        for (text, holds) in [("active", active), ("pending", !active && !terminating), ("terminating", terminating)] {
            gauges.count("kueue_cluster_queue_status", status(text), usize::from(holds));
        }
        if self.settings.queue_resource_metrics {
            self.resource_gauges(gauges, name, &figures, &admitted);
            self.pending_resources(gauges, name, feeding);
        }
    }

    fn resource_gauges(
        &self,
        gauges: &mut Gauges,
        name: &str,
        figures: &engine::QueueFigures,
        admitted: &[&WorkloadView],
    ) {
        let Some(queue) = self.view.cluster_queues().get(name) else { return };
        let cohort = queue.spec.cohort_name.clone().unwrap_or_default();
        let labels = |flavor: &str, resource: &str| {
            let pairs =
                [("cohort", cohort.as_str()), ("cluster_queue", name), ("flavor", flavor), ("resource", resource)];
            pairs.map(|(key, value)| (key, value.to_owned())).to_vec()
        };
        let mut used = queues::usage_of(admitted.iter().copied(), self.settings.reclaimable_pods);
        for (at, beyond) in self.quota.world().beyond(name) {
            let sum = used.entry((at.flavor, at.resource)).or_default();
            *sum = sum.add(beyond);
        }
        for cell in &figures.reservation {
            let at = labels(&cell.flavor, &cell.resource);
            let usage = queues::used(&used, cell);
            gauges.put("kueue_cluster_queue_resource_reservation", at.clone(), shown(&cell.resource, cell.total));
            gauges.put("kueue_cluster_queue_resource_usage", at, shown(&cell.resource, usage));
        }
        let groups = berth_cache::deltas::groups(&queue.spec.resource_groups).unwrap_or_default();
        for group in &groups {
            for flavor in &group.flavors {
                for (resource, quota) in group.covered.iter().zip(&flavor.quotas) {
                    let at = || labels(&flavor.flavor, resource);
                    let limit = |limit: Option<Amount>| limit.map_or(f64::INFINITY, |limit| shown(resource, limit));
                    gauges.put("kueue_cluster_queue_nominal_quota", at(), shown(resource, quota.nominal));
                    gauges.put("kueue_cluster_queue_borrowing_limit", at(), limit(quota.borrowing_limit));
                    gauges.put("kueue_cluster_queue_lending_limit", at(), limit(quota.lending_limit));
                }
            }
        }
        if self.settings.engine.fair_sharing.is_some()
            && let Some(share) = self.quota.world().share(name, true, &BTreeMap::new())
        {
            let at = vec![("cluster_queue", name.to_owned()), ("cohort", cohort.clone())];
            // The share is not rounded, as in Kueue; the share of a borrower of weight 0 is NaN for a ClusterQueue, and infinite for a Cohort
            // (docs/departures/0015-share-gauges.md).
            let value = Some(share.share.value()).filter(|value| value.is_finite()).unwrap_or(f64::NAN);
            gauges.put("kueue_cluster_queue_weighted_share", at, value);
        }
    }

    /// The requests of the Workloads that wait in the given LocalQueues. The gauges show every resource that the ClusterQueue covers, even if no Workload
    /// requests the resource.
    fn pending_resources(&self, gauges: &mut Gauges, name: &str, feeding: &[&Name]) {
        let groups = self.view.cluster_queues().get(name).into_iter().flat_map(|queue| &queue.spec.resource_groups);
        let covered = groups.flat_map(|group| &group.covered_resources);
        let mut pending: BTreeMap<&str, Amount> = covered.map(|name| (name.as_str(), Amount::ZERO)).collect();
        for workload in feeding.iter().flat_map(|local| self.view.workloads().members(local)) {
            if workload.reserved() || !workload.active || !may_queue(workload) {
                continue;
            }
            for set in &workload.shape.pod_sets {
                for (resource, one) in &set.requests {
                    let sum = pending.entry(resource).or_default();
                    *sum = sum.add(one.mul(set.count));
                }
            }
        }
        for (resource, amount) in pending {
            let at = vec![("cluster_queue", name.to_owned()), ("resource", resource.to_owned())];
            gauges.put("kueue_cluster_queue_resource_pending", at, shown(resource, amount));
        }
    }

    fn local_queue_gauges(&self, gauges: &mut Gauges, key: &Name, finished: &Locally<'_>) {
        let (namespace, name) = key;
        let Some(figures) = self.quota.world().local_queue_figures(namespace, name) else { return };
        let with = |more: &[(&'static str, &str)]| -> Labels {
            let own = [("name", name.as_str()), ("namespace", namespace.as_str())];
            own.iter().chain(more).map(|(key, value)| (*key, (*value).to_owned())).collect()
        };
        let count = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
        let parked = count(figures.pending_inadmissible);
        gauges.count(
            "kueue_local_queue_pending_workloads",
            with(&[("status", "active")]),
            count(figures.pending_active),
        );
        gauges.count("kueue_local_queue_pending_workloads", with(&[("status", "inadmissible")]), parked);
        let active =
            self.quota.world().local_queue_readiness(namespace, name).is_some_and(|readiness| readiness.active);
        for (text, holds) in [("True", active), ("False", !active), ("Unknown", false)] {
            gauges.count("kueue_local_queue_status", with(&[("active", text)]), usize::from(holds));
        }
        let queue = self.quota.world().cluster_queue_of(namespace, name).unwrap_or_default();
        if !self.view.cluster_queues().contains_key(queue) {
            // A Workload cannot hold quota of a ClusterQueue that does not exist, and Kueue shows no gauges of such a queue either.
            return;
        }
        gauges.count("kueue_local_queue_reserving_active_workloads", with(&[]), count(figures.reserving));
        let holding = queues::holding(self, key);
        let admitted: Vec<&WorkloadView> = holding.filter(|workload| workload.is(types::ADMITTED)).collect();
        let finished = finished.get(&(namespace.as_str(), name.as_str())).copied().unwrap_or_default();
        gauges.count("kueue_local_queue_admitted_active_workloads", with(&[]), admitted.len());
        gauges.count("kueue_local_queue_finished_workloads", with(&[]), finished);
        if let Some(usage) = self.quota.world().local_queue_usage(namespace, name) {
            gauges.put("kueue_local_queue_admission_fair_sharing_usage", with(&[("cluster_queue", queue)]), usage);
        }
        let used = queues::usage_of(admitted.iter().copied(), self.settings.reclaimable_pods);
        for cell in &figures.reservation {
            let at = || with(&[("flavor", cell.flavor.as_str()), ("resource", cell.resource.as_str())]);
            let usage = queues::used(&used, cell);
            gauges.put("kueue_local_queue_resource_reservation", at(), shown(&cell.resource, cell.total));
            gauges.put("kueue_local_queue_resource_usage", at(), shown(&cell.resource, usage));
        }
    }
}

#[cfg(test)]
mod tests;
