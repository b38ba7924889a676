//! Worlds with features of Workloads and quotas beyond [`super::random`]: several pod sets and resources, two resource groups, `minCount`, amounts from zero to
//! beyond every quota, four levels of the cohort tree, limits that are zero, absent or unlimited, stopped queues, and priorities at the ends of their range.

use std::collections::BTreeMap;

use berth_engine::*;

use super::{Dice, Objects, WEIGHTS, flavor_labels, pending, queue, random_policies, random_sharing};

/// Names of the resources, which are counted in milli cores, bytes and devices.
const RESOURCES: [&str; 3] = ["cpu", "memory", "gpu"];
const POD_SETS: [&str; 3] = ["driver", "worker", "eval"];
const MI: i64 = 1 << 20;
const GI: i64 = 1 << 30;
/// The largest amount that does not mean "unlimited".
const LAST: i64 = i64::MAX - 1;

/// Range of the amounts in a generated world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    /// Small amounts, for which quota is often just enough.
    Small,
    /// Amounts of the size that users write.
    Real,
    /// Amounts whose sums leave the range of `i64`.
    Huge,
}

impl Scale {
    fn request(self, dice: &mut Dice, resource: usize) -> Amount {
        Amount::new(match (self, resource) {
            (Self::Small, _) => dice.below(4) as i64,
            (Self::Real, 0) => dice.pick(&[0, 1, 100, 250, 500, 1000, 1500, 4000]),
            (Self::Real, 1) => dice.pick(&[0, 1, 64 * MI, 200_000_000, GI, 3 * GI, 16 * GI]),
            (Self::Real, _) => dice.pick(&[0, 1, 1, 2, 8]),
            (Self::Huge, _) => dice.pick(&[0, 1, 1000, LAST / 4, LAST / 2, LAST / 2 + 1, LAST, i64::MAX]),
        })
    }

    fn quota(self, dice: &mut Dice, resource: usize) -> Amount {
        Amount::new(match (self, resource) {
            (Self::Small, _) => dice.below(8) as i64,
            (Self::Real, 0) => dice.pick(&[0, 500, 1000, 4000, 10_000, 64_000]),
            (Self::Real, 1) => dice.pick(&[0, GI, 10 * GI, 64 * GI, 100_000_000_000]),
            (Self::Real, _) => dice.pick(&[0, 1, 4, 8, 16]),
            (Self::Huge, _) => dice.pick(&[0, 1, LAST / 4, LAST / 2 + 1, LAST, i64::MAX]),
        })
    }
}

/// The resource groups of all queues of a world: for each group its resources, and the flavors that the resources share.
type Layout = Vec<(Vec<usize>, Vec<&'static str>)>;

fn random_layout(dice: &mut Dice) -> Layout {
    let all: Vec<usize> = (0..1 + dice.below(3) as usize).collect();
    let flavors = |dice: &mut Dice, names: [&'static str; 3]| names[..dice.pick(&[1, 1, 2, 2, 2, 3])].to_vec();
    if all.len() > 1 && dice.chance(2) {
        let (first, last) = all.split_at(all.len() - 1);
        vec![(first.to_vec(), flavors(dice, ["f0", "f1", "f4"])), (last.to_vec(), flavors(dice, ["f2", "f3", "f5"]))]
    } else {
        vec![(all, flavors(dice, ["f0", "f1", "f2"]))]
    }
}

/// Requests of `count` pods, clamped to the range of amounts.
pub(crate) fn total(one: Amount, count: i64) -> Amount {
    Amount::clamped(i128::from(one.get()) * i128::from(count))
}

/// A wide world, with the inputs from which edits of the same kind are made.
#[derive(Clone, Debug)]
pub(crate) struct Wide {
    pub(crate) objects: Objects,
    scale: Scale,
    layout: Layout,
}

/// A wide world.
pub(crate) fn wide(seed: u64) -> Objects {
    Wide::new(seed).objects
}

impl Wide {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x5bd1_e995);
        let scale = dice.pick(&[Scale::Small, Scale::Small, Scale::Real, Scale::Huge]);
        let layout = random_layout(&mut dice);
        let mut wide = Self { objects: Objects::default(), scale, layout };
        wide.objects.options.fair_sharing = random_sharing(&mut dice);
        wide.objects.options.partial_admission = !dice.chance(8);
        wide.add_forest(&mut dice);
        wide.add_workloads(&mut dice);
        // Holders are within quota, except in some worlds, in which quota was cut afterwards.
        if !dice.chance(5) {
            wide.objects.keep_within_quota();
        }
        wide.objects.save_some(seed);
        wide
    }

    /// Random quotas of a queue or cohort.
    pub(crate) fn random_groups(&self, dice: &mut Dice) -> Vec<ResourceGroup> {
        let mut groups = Vec::new();
        for (resources, flavors) in &self.layout {
            let mut group = ResourceGroup::default();
            group.covered.extend(resources.iter().map(|resource| RESOURCES[*resource].to_owned()));
            for flavor in flavors {
                let mut quotas = Vec::new();
                for resource in resources.iter().copied() {
                    quotas.push(Quota {
                        nominal: self.scale.quota(dice, resource),
                        borrowing_limit: self.random_limit(dice, resource),
                        lending_limit: self.random_limit(dice, resource),
                    });
                }
                group.flavors.push(FlavorQuotas { flavor: (*flavor).to_owned(), quotas });
            }
            groups.push(group);
        }
        groups
    }

    /// A random limit: absent in half of all cases, otherwise zero, any amount or unlimited.
    fn random_limit(&self, dice: &mut Dice, resource: usize) -> Option<Amount> {
        match dice.below(8) {
            0 => Some(Amount::ZERO),
            1 => Some(Amount::UNLIMITED),
            2 | 3 => Some(self.scale.quota(dice, resource)),
            _ => None,
        }
    }

    fn add_forest(&mut self, dice: &mut Dice) {
        let parents = match dice.below(6) {
            0 => vec![("x", None)],
            1 => vec![("x", None), ("y", Some("x"))],
            2 => vec![("x", None), ("y", Some("x")), ("z", Some("x"))],
            3 => vec![("x", None), ("y", Some("x")), ("z", None)],
            _ => vec![("x", None), ("y", Some("x")), ("z", Some("y"))],
        };
        for (name, parent) in &parents {
            let groups = if dice.chance(2) { self.random_groups(dice) } else { vec![] };
            let (name, parent) = ((*name).to_owned(), parent.map(str::to_owned));
            self.objects.cohorts.push(CohortSpec { name, parent, groups, weight: dice.pick(&WEIGHTS) });
        }
        for index in 0..2 + dice.below(4) {
            let cohort = (!dice.chance(8)).then(|| parents[dice.below(parents.len() as u64) as usize].0);
            let mut spec = queue(&format!("q{index}"), cohort, self.random_groups(dice));
            random_policies(dice, &mut spec);
            if dice.chance(8) {
                spec.stop = dice.pick(&[StopPolicy::Hold, StopPolicy::HoldAndDrain]);
            }
            self.objects.queues.push(spec);
        }
    }

    fn random_pod_sets(&self, dice: &mut Dice) -> Vec<PodSetSpec> {
        let mut pod_sets = Vec::new();
        for name in POD_SETS.iter().take(dice.pick(&[1, 1, 2, 3])) {
            let count = dice.pick(&[0_i64, 1, 1, 2, 2, 3, 4, 7]);
            let min_count = (count > 0 && dice.chance(3)).then(|| 1 + dice.below(count as u64) as i64);
            let mut requests = BTreeMap::new();
            for resource in self.layout.iter().flat_map(|(resources, _)| resources).copied() {
                if !dice.chance(4) {
                    requests.insert(RESOURCES[resource].to_owned(), self.scale.request(dice, resource));
                }
            }
            let name = (*name).to_owned();
            let flavors = &self.layout[dice.below(self.layout.len() as u64) as usize].1;
            let node_selector = if dice.chance(8) { flavor_labels(dice.pick(flavors)) } else { BTreeMap::new() };
            pod_sets.push(PodSetSpec { name, count, min_count, requests, node_selector, ..PodSetSpec::default() });
        }
        pod_sets
    }

    fn add_workloads(&mut self, dice: &mut Dice) {
        let priorities = if dice.chance(16) {
            [2 * i64::from(i32::MIN), i64::from(i32::MAX), i64::from(i32::MAX) + 1]
        } else {
            [0, 1, 2]
        };
        let queues = self.objects.queues.len() as u64;
        let points: Vec<u32> = (0..queues).map(|_| if dice.chance(8) { 3_600_000 } else { 0 }).collect();
        for index in 0..3 + dice.below(9) {
            let at = dice.below(queues) as usize;
            let owner = self.objects.queues[at].clone();
            let (priority, since) = (dice.pick(&priorities), dice.below(4) as i64);
            let mut spec = pending(&format!("w{index}"), &owner.name, priority, since, &[]);
            spec.pod_sets = self.random_pod_sets(dice);
            spec.points_per_hour = points[at];
            if dice.chance(8) {
                spec.preempts = dice.pick(&[Preempts::Lower, Preempts::Nobody]);
            }
            if dice.chance(2) {
                hold(&mut spec, &owner, dice);
            }
            self.objects.workloads.push(spec);
        }
    }
}

/// Gives a workload quota for its request, or for the smallest accepted size, in some flavor of each resource group.
fn hold(spec: &mut WorkloadSpec, owner: &ClusterQueueSpec, dice: &mut Dice) {
    let mut pod_sets = Vec::new();
    for set in &spec.pod_sets {
        let count = set.min_count.filter(|_| dice.chance(2)).unwrap_or(set.count);
        let mut given = PodSetAssignment { name: set.name.clone(), count, ..PodSetAssignment::default() };
        for group in &owner.groups {
            let flavor = &group.flavors[dice.below(group.flavors.len() as u64) as usize].flavor;
            for (resource, one) in set.requests.iter().filter(|(resource, _)| group.covered.contains(*resource)) {
                given.flavors.insert(resource.clone(), flavor.clone());
                given.usage.insert(resource.clone(), total(*one, count));
            }
        }
        pod_sets.push(given);
    }
    spec.state = WorkloadState::Reserved(Reservation {
        cluster_queue: owner.name.clone(),
        pod_sets,
        at: Millis(dice.below(4) as i64),
        saved: None,
        kept: false,
        surplus: None,
        admitted: true,
        evicted: dice.chance(8),
    });
}
