//! The engine agrees with a slow, obvious scheduler on random worlds.

#[path = "oracle/mod.rs"]
mod slow;
mod worlds;

use std::collections::{BTreeMap, BTreeSet};

use berth_engine::*;
use slow::Decided;
use worlds::{Objects, cases, random};

const NOW: Millis = Millis(1000);

fn fast(objects: &Objects) -> Decided {
    let mut world = objects.world();
    let plan = world.plan_cycles(NOW, Limits { max_admissions: 1000 }, 1);
    let mut decided = Decided::default();
    for admission in plan.admissions {
        let flavors: BTreeMap<String, String> = admission.pod_sets[0].flavors.clone();
        decided.admitted.insert(admission.uid.to_string(), flavors);
    }
    decided.evicted = plan.evictions.into_iter().map(|e| (e.uid, e.preemptor, e.reason)).collect::<BTreeSet<_>>();
    decided.waiting = plan.verdicts.into_iter().filter(|v| v.leading).map(|v| (v.uid.to_string(), v.reason)).collect();
    decided
}

fn slow(objects: &Objects) -> Decided {
    let books = slow::books(&objects.cohorts, &objects.queues, &objects.workloads);
    slow::cycle(&objects.options, books, &objects.workloads, NOW)
}

/// Compares every second world from `first`; returns how many cycles admit, preempt and leave heads.
fn part(first: u64, count: u64) -> [u64; 3] {
    let mut seen = [0; 3];
    for seed in (first..first + count).step_by(2) {
        let objects = random(seed);
        let (fast_one, slow_one) = (fast(&objects), slow(&objects));
        seen[0] += u64::from(!slow_one.admitted.is_empty());
        seen[1] += u64::from(!slow_one.evicted.is_empty());
        seen[2] += u64::from(!slow_one.waiting.is_empty());
        if fast_one != slow_one {
            let small = objects.shrink(|objects| fast(objects) != slow(objects));
            panic!("seed {seed}\n{}engine: {:?}\noracle: {:?}", small.describe(), fast(&small), slow(&small));
        }
    }
    seen
}

#[test]
fn one_cycle_is_what_the_specification_says() {
    let first: u64 = std::env::var("BERTH_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let count = u64::from(cases());
    let parts: Vec<_> = (0..2).map(|index| std::thread::spawn(move || part(first + index, count - index))).collect();
    let seen: Vec<[u64; 3]> = parts.into_iter().map(|part| part.join().unwrap()).collect();
    let total = |what: usize| -> u64 { seen.iter().map(|part| part[what]).sum() };
    println!("of {count} cycles {} admit, {} preempt, {} leave heads", total(0), total(1), total(2));
    assert!(count < 1000 || (0..3).all(|what| total(what) > count / 50), "too tame: {seen:?}");
}
