//! Laws of usage beyond quota. Usage beyond quota counts against its own queue only, and no workload is admitted into quota that usage beyond quota takes.
//! Usage beyond quota is gone when the workload that is charged with it is preempted, and afterwards the world is as if the usage had never been.
//!
//! A failed law prints its seed; `BERTH_SEED=<seed> BERTH_CASES=1` repeats the failure.

use std::collections::BTreeMap;

use crate::worlds::{Dice, Named, Objects, cases, mixed, seeds};
use berth_engine::*;

const NOW: Millis = Millis(1000);
const ALL: Limits = Limits { max_admissions: 1000 };

/// Flavor and resource.
type Fr = (String, String);

/// The flavors and resources of which a queue has quota.
fn cells(queue: &ClusterQueueSpec) -> Vec<Fr> {
    let mut cells = Vec::new();
    for group in &queue.groups {
        for flavor in &group.flavors {
            cells.extend(group.covered.iter().map(|resource| (flavor.flavor.clone(), resource.clone())));
        }
    }
    cells
}

/// Amount that each queue may still use of each flavor and resource of which it has quota.
fn free(objects: &Objects, world: &World) -> BTreeMap<(String, Fr), i64> {
    let mut free = BTreeMap::new();
    for queue in &objects.queues {
        for (flavor, resource) in cells(queue) {
            let (value, _) = world.availability(&queue.name, &flavor, &resource).unwrap();
            free.insert((queue.name.clone(), (flavor, resource)), value.get());
        }
    }
    free
}

/// Usage and quota of all nodes of the cohort forest, as text.
fn charged_usage(objects: &Objects, world: &World) -> String {
    let queues = objects.queues.iter().map(|queue| (queue.name.as_str(), true));
    let nodes = queues.chain(objects.cohorts.iter().map(|cohort| (cohort.name.as_str(), false)));
    nodes.map(|(name, is_queue)| format!("{name} {:?}\n", world.snapshot(name, is_queue))).collect()
}

/// Random usage beyond quota of some workloads, and of a job without a workload, each charged to a random queue.
fn random(dice: &mut Dice, objects: &Objects) -> Vec<BeyondSpec> {
    let mut carriers: Vec<String> = objects.workloads.iter().map(|spec| spec.uid.clone()).collect();
    carriers.push("a job".into());
    carriers.retain(|_| dice.chance(2));
    let mut specs = Vec::new();
    for carrier in carriers {
        let Some(queue) = objects.queues.get(dice.below(objects.queues.len().max(1) as u64) as usize) else { continue };
        let mut usage = Vec::new();
        for (flavor, resource) in cells(queue) {
            if dice.chance(2) {
                usage.push((FlavorResource { flavor, resource }, Amount::new(dice.below(5) as i64)));
            }
        }
        specs.push(BeyondSpec { carrier, cluster_queue: queue.name.clone(), usage });
    }
    specs
}

fn add(world: &mut World, specs: &[BeyondSpec]) {
    for spec in specs {
        world.apply(Delta::Beyond(spec.clone())).unwrap();
        assert_eq!(check(world), Vec::<String>::new());
    }
}

#[test]
fn usage_beyond_quota_is_charged_to_its_queue_alone() {
    let (mut charged, mut admitted, mut evicted) = (0, 0, 0);
    for seed in seeds() {
        let _named = Named(seed);
        let objects = mixed(seed);
        let mut world = objects.world();
        let (free_before, charged_before) = (free(&objects, &world), charged_usage(&objects, &world));
        let mut dice = Dice::new(seed ^ 0x1f83_d9ab);
        let specs = random(&mut dice, &objects);
        add(&mut world, &specs);
        let mut sums: BTreeMap<(String, Fr), i64> = BTreeMap::new();
        for spec in &specs {
            for (cell, value) in &spec.usage {
                let at = (spec.cluster_queue.clone(), (cell.flavor.clone(), cell.resource.clone()));
                *sums.entry(at).or_default() += value.get();
            }
        }
        charged += sums.values().filter(|sum| **sum > 0).count();
        // Usage beyond quota changes the reserved usage of no node of the cohort forest, and the free quota of no queue except its own.
        assert_eq!(charged_usage(&objects, &world), charged_before);
        let free_now = free(&objects, &world);
        for (at, before) in &free_before {
            let sum = sums.get(at).copied().unwrap_or(0);
            let least = (before - sum).max(0);
            // Free quota that was unlimited may still be unlimited.
            let is_right = if *before == i64::MAX { free_now[at] >= least } else { free_now[at] == least };
            assert!(is_right, "{at:?}: {before} less {sum} is not {}", free_now[at]);
        }
        for queue in &objects.queues {
            for cell in world.figures(&queue.name).unwrap().reservation {
                let at = (queue.name.clone(), (cell.flavor.clone(), cell.resource.clone()));
                let used = world.snapshot(&queue.name, true).into_iter();
                let used =
                    used.filter(|row| (&row.0, &row.1) == (&at.1.0, &at.1.1)).map(|row| row.2.get()).sum::<i64>();
                assert_eq!(cell.total.get(), used.saturating_add(sums.get(&at).copied().unwrap_or(0)), "{at:?}");
            }
        }
        // No workload is admitted into quota that usage beyond quota takes.
        let plan = world.plan(NOW, ALL);
        assert_eq!((check(&world), world.refused_victims()), (Vec::new(), 0));
        let mut given: BTreeMap<(String, Fr), i64> = BTreeMap::new();
        for admission in &plan.admissions {
            for set in admission.pod_sets.iter() {
                for (resource, flavor) in &set.flavors {
                    let at = (admission.cluster_queue.to_string(), (flavor.clone(), resource.clone()));
                    let sum = given.entry(at).or_default();
                    *sum = sum.saturating_add(set.usage[resource].get());
                }
            }
        }
        for (at, value) in &given {
            assert!(*value <= free_now[at], "{at:?}: {value} of {} were given", free_now[at]);
        }
        admitted += plan.admissions.len();
        evicted += plan.evictions.len();
    }
    println!("{charged} cells charged, {admitted} admissions and {evicted} evictions beside them");
    assert!(cases() < 1000 || (charged > 0 && admitted > 0 && evicted > 0), "too tame");
}

#[test]
fn usage_beyond_quota_leaves_nothing_behind() {
    for seed in seeds() {
        let _named = Named(seed);
        let objects = mixed(seed);
        let mut world = objects.world();
        let mut dice = Dice::new(seed ^ 0x9b05_688c);
        for _ in 0..2 {
            add(&mut world, &random(&mut dice, &objects));
        }
        let carriers = objects.workloads.iter().map(|spec| spec.uid.clone()).chain(["a job".to_owned()]);
        let none = |carrier| BeyondSpec { carrier, cluster_queue: String::new(), usage: Vec::new() };
        add(&mut world, &carriers.map(none).collect::<Vec<_>>());
        for queue in &objects.queues {
            assert_eq!(world.beyond(&queue.name), Vec::new());
        }
        let (reported, fresh) = (world.plan(NOW, ALL), objects.world().plan(NOW, ALL));
        assert_eq!(format!("{reported:?}"), format!("{fresh:?}"));
    }
}

/// A workload whose pods run already finds the quota free that its own usage beyond quota is charged to. Workloads with running pods are given no more quota
/// than their queues have, and no other workload is given the same quota.
#[test]
fn running_pods_get_no_more_quota_than_their_queue_has() {
    let mut given = 0;
    for seed in seeds() {
        let _named = Named(seed);
        let mut objects = mixed(seed);
        let mut dice = Dice::new(seed ^ 0x3c6e_f372);
        for spec in &mut objects.workloads {
            let is_pending = matches!(spec.state, WorkloadState::Pending { .. });
            spec.runs = is_pending && dice.chance(2);
            if spec.runs {
                spec.preempts = Preempts::Nobody;
            }
        }
        let mut world = objects.world();
        add(&mut world, &random(&mut dice, &objects));
        let plan = world.plan(NOW, ALL);
        assert_eq!((check(&world), world.refused_victims()), (Vec::new(), 0));
        let runs = |uid: &str| objects.workloads.iter().any(|spec| spec.uid == uid && spec.runs);
        given += plan.admissions.iter().filter(|admission| runs(&admission.uid)).count();
        assert!(plan.evictions.iter().all(|eviction| !runs(&eviction.preemptor)));
    }
    println!("{given} admissions of pods that ran");
    assert!(cases() < 1000 || given > 0, "too tame");
}
