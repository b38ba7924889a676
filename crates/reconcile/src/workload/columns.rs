//! Columns of `kubectl get` for which Kueue has no field: the size of a Workload, the capacity tier with which the Workload was admitted, and the quota that a
//! ClusterQueue has given. Each column is a text in an object that is written anyway (`docs/departures/0056-columns-without-a-field.md`).

use std::collections::{BTreeMap, BTreeSet};

use berth_api as api;
use berth_api::json::to_value;
use berth_api::labels::SIZE;
use berth_cache::WorkloadView;
use berth_engine::model as engine;
use berth_jobs::training::Accelerators;
use berth_quantity::Amount;
use serde_json::{Map, Value};

use crate::context::Context;

/// Largest number of resources in a column.
const MOST_RESOURCES: usize = 6;

/// Sums of amounts by resource, with accelerators first.
#[derive(Default)]
struct Sums<'a>(BTreeMap<(bool, &'a str), Amount>);

impl<'a> Sums<'a> {
    fn add(&mut self, accelerators: &Accelerators, resource: &'a str, amount: Amount) {
        let sum = self.0.entry((!accelerators.counts(resource), resource)).or_default();
        *sum = sum.add(amount);
    }
}

/// A list of words that is cut to the length of a column.
fn listed(mut words: Vec<String>) -> String {
    let more = words.len().saturating_sub(MOST_RESOURCES);
    words.truncate(MOST_RESOURCES);
    if more > 0 {
        words.push(format!("{more} more"));
    }
    words.join(", ")
}

/// The size of a Workload as text: its number of pods and the sum of their requests. Each entry of `sets` is a number of pods and the requests of one of these
/// pods.
fn size<'a>(accelerators: &Accelerators, sets: impl Iterator<Item = (i64, &'a BTreeMap<String, Amount>)>) -> String {
    let (mut pods, mut sums) = (0_i64, Sums::default());
    for (count, requests) in sets {
        pods = pods.saturating_add(count);
        requests.iter().for_each(|(resource, amount)| sums.add(accelerators, resource, amount.mul(count)));
    }
    let asked = sums.0.iter().filter(|(_, amount)| **amount != Amount::ZERO);
    let asked: Vec<String> = asked
        .map(|((_, resource), amount)| format!("{resource} {}", berth_quantity::format(resource, *amount)))
        .collect();
    let pods = if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") };
    if asked.is_empty() { pods } else { format!("{pods}, {}", listed(asked)) }
}

/// The quota that a ClusterQueue has given and its nominal quota, by resource over all flavors, as `cpu 7/10`; `None` for a queue without quota. The text of a
/// ClusterQueue's used quota is derived only from the ClusterQueue's spec and the usage in its status.
pub(crate) fn used(
    accelerators: &Accelerators,
    spec: &api::ClusterQueueSpec,
    cells: &[engine::CellUsage],
) -> Option<String> {
    let (mut quotas, mut given) = (Sums::default(), Sums::default());
    for quota in spec.resource_groups.iter().flat_map(|group| &group.flavors).flat_map(|flavor| &flavor.resources) {
        let nominal = berth_quantity::quota(&quota.name, &quota.nominal_quota.0).unwrap_or_default();
        quotas.add(accelerators, &quota.name, nominal);
    }
    for cell in cells {
        // Usage of a resource for which the ClusterQueue has no quota is summed, too, but shown nowhere.
        given.add(accelerators, &cell.resource, cell.total);
    }
    let words = quotas.0.iter().map(|((order, resource), nominal)| {
        let held = given.0.get(&(*order, *resource)).copied().unwrap_or_default();
        let text = |amount: Amount| berth_quantity::format(resource, amount);
        let nominal = if nominal.is_unlimited() { "unlimited".to_owned() } else { text(*nominal) };
        format!("{resource} {}/{nominal}", text(held))
    });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| listed(words))
}

/// Annotations of a Workload.
pub(crate) type Annotations = Map<String, Value>;

/// The annotation that shows the size of a Workload.
fn annotation(text: String) -> Annotations {
    [(SIZE.to_owned(), text.into())].into_iter().collect()
}

impl Context<'_> {
    /// The size of a Workload with these pod sets, as an annotation.
    pub(crate) fn size_of_pod_sets(&self, namespace: &str, sets: &[api::PodSet]) -> Annotations {
        let needs = self.needs_of(namespace, sets);
        annotation(size(&self.settings.accelerators, needs.iter().map(|set| (i64::from(set.count), &set.requests))))
    }

    /// The size of a Workload with a number of pods for each pod set, as an annotation.
    pub(crate) fn size_of_workload(
        &self,
        workload: &WorkloadView,
        pods: impl Fn(&engine::PodSetSpec) -> i64,
    ) -> Annotations {
        let sets = workload.shape.pod_sets.iter();
        annotation(size(&self.settings.accelerators, sets.map(|set| (pods(set), &set.requests))))
    }

    /// Pod sets as JSON for a patch, and the annotation of the size that changes with the pod sets.
    pub(crate) fn other_pod_sets(&self, namespace: &str, sets: &[api::PodSet]) -> (Value, Annotations) {
        (to_value(sets), self.size_of_pod_sets(namespace, sets))
    }

    /// The capacity tiers of flavors, each tier once.
    pub(crate) fn tiers_of<'b>(&self, flavors: impl Iterator<Item = &'b String>) -> Vec<String> {
        let tiers: BTreeSet<_> = flavors.filter_map(|flavor| self.capacity_tier_of(flavor)).collect();
        tiers.into_iter().map(|tier| tier.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn requests(of: &[(&str, i64)]) -> BTreeMap<String, Amount> {
        of.iter().map(|(resource, amount)| ((*resource).to_owned(), Amount::new(*amount))).collect()
    }

    #[test]
    fn workload_size_column_counts_pods_and_names_accelerators_first() {
        let accelerators = Accelerators::default();
        let worker = requests(&[("cpu", 1500), ("memory", 4 << 30), ("nvidia.com/gpu", 8), ("idle", 0)]);
        let master = requests(&[("cpu", 1000)]);
        let text = size(&accelerators, [(1, &master), (2, &worker)].into_iter());
        assert_eq!(text, "3 pods, nvidia.com/gpu 16, cpu 4, memory 8Gi");
        assert_eq!(size(&accelerators, std::iter::once((1, &requests(&[])))), "1 pod");
        assert_eq!(
            size(&accelerators, std::iter::once((2, &requests(&[("cpu", i64::MAX)])))).split(", ").count(),
            2,
            "no overflow"
        );
    }

    #[test]
    fn workload_size_column_is_cut_when_resources_are_many() {
        let names: Vec<String> = (0..9).map(|number| format!("r{number}")).collect();
        let asked = requests(&names.iter().map(|name| (name.as_str(), 1)).collect::<Vec<_>>());
        let text = size(&Accelerators::default(), std::iter::once((1, &asked)));
        assert_eq!(text, "1 pod, r0 1, r1 1, r2 1, r3 1, r4 1, r5 1, 3 more");
    }

    #[test]
    fn used_column_sums_flavors_and_omits_resources_without_quota() {
        let spec = json!({"resourceGroups": [
            {"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": [
                {"name": "a", "resources": [{"name": "cpu", "nominalQuota": "4"}, {"name": "nvidia.com/gpu", "nominalQuota": "8"}]},
                {"name": "b", "resources": [{"name": "cpu", "nominalQuota": "6"}, {"name": "nvidia.com/gpu", "nominalQuota": "0"}]}]},
            {"coveredResources": ["memory"], "flavors": [
                {"name": "m", "resources": [{"name": "memory", "nominalQuota": "9223372036854775807"}]}]}]});
        let spec: api::ClusterQueueSpec = serde_json::from_value(spec).unwrap();
        let cell = |flavor: &str, resource: &str, total| engine::CellUsage {
            flavor: flavor.to_owned(),
            resource: resource.to_owned(),
            total: Amount::new(total),
            borrowed: Amount::ZERO,
        };
        let cells =
            [cell("a", "cpu", 4000), cell("b", "cpu", 7500), cell("m", "memory", 1 << 30), cell("gone", "disk", 3)];
        let text = used(&Accelerators::default(), &spec, &cells);
        assert_eq!(text.as_deref(), Some("nvidia.com/gpu 0/8, cpu 11500m/10, memory 1Gi/unlimited"));
        assert_eq!(used(&Accelerators::default(), &api::ClusterQueueSpec::default(), &cells), None);
    }
}
