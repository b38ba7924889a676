//! Gauges of the cohort tree: quota, usage and running Workloads of each subtree, and the parent of each ClusterQueue and cohort.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::conditions::types;
use berth_cache::WorkloadView;
use berth_quantity::Amount;

use super::{Gauges, shown};
use crate::context::Context;
use crate::measure::{Labels, Measure};

/// The amounts of a subtree by flavor and resource.
type Amounts = BTreeMap<(String, String), Amount>;

/// The quota and usage of one subtree.
#[derive(Default)]
struct Subtree {
    quota: Amounts,
    reserved: Amounts,
    admitted: usize,
}

fn add(amounts: &mut Amounts, flavor: &str, resource: &str, amount: Amount) {
    let sum = amounts.entry((flavor.to_owned(), resource.to_owned())).or_default();
    *sum = sum.add(amount);
}

impl Context<'_> {
    /// The cohort itself and the cohorts above it, from the cohort to the root. A cycle of cohorts, which is inactive, ends at the cohort that closes the
    /// cycle.
    fn lineage(&self, cohort: &str) -> Vec<String> {
        let mut line: Vec<String> = Vec::new();
        let mut next = Some(cohort.to_owned());
        while let Some(name) = next.filter(|name| !name.is_empty() && !line.contains(name)) {
            next = self.view.cohorts().get(&name).and_then(|cohort| cohort.spec.parent_name.clone());
            line.push(name);
        }
        line
    }

    /// The cohorts above a ClusterQueue, from the nearest cohort to the root.
    pub(crate) fn above(&self, queue: &str) -> Vec<String> {
        let cohort = self.view.cluster_queues().get(queue).and_then(|queue| queue.spec.cohort_name.as_deref());
        cohort.map(|cohort| self.lineage(cohort)).unwrap_or_default()
    }

    /// The gauges of all cohorts, including cohorts without a Cohort object.
    pub(super) fn cohort_gauges(&self, gauges: &mut Gauges) {
        let mut trees: BTreeMap<String, Subtree> = BTreeMap::new();
        for (name, queue) in self.view.cluster_queues() {
            let above = self.above(name);
            let at = |key, value: Option<&String>| (key, value.cloned().unwrap_or_default());
            let info = vec![
                ("cluster_queue", name.clone()),
                at("parent_cohort", above.first()),
                at("root_cohort", above.last()),
            ];
            gauges.count("kueue_cluster_queue_info", info, 1);
            let groups = berth_cache::deltas::groups(&queue.spec.resource_groups).unwrap_or_default();
            let Some(figures) = self.quota.world().figures(name) else { continue };
            let admitted =
                self.view.workloads().reserving(name).filter(|workload| workload.is(types::ADMITTED)).count();
            for cohort in above {
                let tree = trees.entry(cohort).or_default();
                tree.admitted = tree.admitted.saturating_add(admitted);
                for cell in &figures.reservation {
                    add(&mut tree.reserved, &cell.flavor, &cell.resource, cell.total);
                }
                quotas(&mut tree.quota, &groups);
            }
        }
        for (name, cohort) in self.view.cohorts() {
            let groups = berth_cache::deltas::groups(&cohort.spec.resource_groups).unwrap_or_default();
            for above in self.lineage(name) {
                quotas(&mut trees.entry(above).or_default().quota, &groups);
            }
        }
        for (name, tree) in trees {
            let line = self.lineage(&name);
            let info = vec![
                ("cohort", name.clone()),
                ("parent_cohort", line.get(1).cloned().unwrap_or_default()),
                ("root_cohort", line.last().cloned().unwrap_or_default()),
            ];
            gauges.count("kueue_cohort_info", info, 1);
            gauges.count(
                "kueue_cohort_subtree_admitted_active_workloads",
                vec![("cohort", name.clone())],
                tree.admitted,
            );
            for (metric, amounts) in [
                ("kueue_cohort_subtree_quota", tree.quota),
                ("kueue_cohort_subtree_resource_reservations", tree.reserved),
            ] {
                for ((flavor, resource), amount) in amounts {
                    let value = shown(&resource, amount);
                    gauges.put(
                        metric,
                        vec![("cohort", name.clone()), ("flavor", flavor), ("resource", resource)],
                        value,
                    );
                }
            }
        }
    }

    /// The metric changes (`Measure`) of cohorts for a change of a Workload from `old` to `new`.
    pub(crate) fn cohort_measures(&self, old: &WorkloadView, new: &WorkloadView) -> Vec<Measure> {
        if !new.is(types::ADMITTED) || old.is(types::ADMITTED) {
            return Vec::new();
        }
        let class = new.priority_class.as_ref().map(|class| class.name.clone()).unwrap_or_default();
        let cohorts: BTreeSet<String> = new.holds().map(|queue| self.above(queue)).into_iter().flatten().collect();
        let labels = |cohort| -> Labels { vec![("cohort", cohort), ("priority_class", class.clone())] };
        let name = "kueue_cohort_subtree_admitted_workloads";
        cohorts.into_iter().map(|cohort| Measure::Count { name, labels: labels(cohort), by: 1 }).collect()
    }
}

fn quotas(amounts: &mut Amounts, groups: &[berth_engine::model::ResourceGroup]) {
    for group in groups {
        for flavor in &group.flavors {
            for (resource, quota) in group.covered.iter().zip(&flavor.quotas) {
                add(amounts, &flavor.flavor, resource, quota.nominal);
            }
        }
    }
}

#[cfg(test)]
mod tests;
