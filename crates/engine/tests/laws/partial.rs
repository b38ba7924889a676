//! Laws of partial admission: a workload starts in a size that fits, if need be with victims, and the next larger size does not fit. The test tries each size
//! of a workload on a copy of the world in which the workload has only this size and no minimum.
//!
//! A failed law prints its seed and the smallest set of workloads that fails; `BERTH_SEED=<seed> BERTH_CASES=1` repeats the failure.

use std::collections::BTreeSet;

use crate::extras::{random_guard, stir};
use crate::worlds::wide::wide;
use crate::worlds::{Dice, Named, Objects, add_up, cases, one_that_waits, seeds};
use berth_engine::*;

const NOW: Millis = Millis(1000);
const ALL: Limits = Limits { max_admissions: 1000 };

/// Outcome of the first cycle for the only pending workload of a world.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    given: Option<Vec<PodSetAssignment>>,
    victims: BTreeSet<(String, &'static str)>,
}

impl Outcome {
    fn is_none(&self) -> bool {
        self.given.is_none() && self.victims.is_empty()
    }
}

/// Runs the first cycle.
fn outcome(objects: &Objects) -> Outcome {
    let plan = objects.world().plan_cycles(NOW, ALL, 1);
    Outcome {
        given: plan.admissions.first().map(|admission| admission.pod_sets.to_vec()),
        victims: plan.evictions.into_iter().map(|eviction| (eviction.uid, eviction.reason)).collect(),
    }
}

/// The sizes of a workload from the full size down to the minimum, in common steps as in Kueue.
fn sizes(spec: &WorkloadSpec) -> Vec<Vec<i64>> {
    let deltas: Vec<i64> = spec.pod_sets.iter().map(|set| set.count - set.min_count.unwrap_or(set.count)).collect();
    let total: i64 = deltas.iter().sum();
    let counts = |step: i64| -> Vec<i64> {
        let reduced = |(set, delta): (&PodSetSpec, &i64)| set.count - if total > 0 { delta * step / total } else { 0 };
        spec.pod_sets.iter().zip(&deltas).map(reduced).collect()
    };
    let mut sizes: Vec<Vec<i64>> = (0..=total).map(counts).collect();
    sizes.dedup();
    sizes
}

/// Outcome of the first cycle for a workload in one size.
fn in_size(objects: &Objects, uid: &str, size: &[i64]) -> Outcome {
    let mut objects = objects.clone();
    for (set, count) in objects.workload(uid).pod_sets.iter_mut().zip(size) {
        (set.count, set.min_count) = (*count, None);
    }
    outcome(&objects)
}

/// Judges the outcome of the first cycle for a workload under partial admission. Counts outcomes in reduced size, and outcomes in reduced size that preempt.
fn judge(objects: &Objects, uid: &str) -> Result<[u32; 2], String> {
    let waits = |spec: &WorkloadSpec| matches!(spec.state, WorkloadState::Pending { .. });
    let mut objects = objects.clone();
    objects.workloads.retain(|spec| spec.uid == uid || !waits(spec));
    let Some(spec) = objects.workloads.iter().find(|spec| spec.uid == uid) else { return Ok([0; 2]) };
    let sizes = sizes(spec);
    let fault = |what: &str, reported: &Outcome| Err(format!("{what}: {reported:?} for {uid}, of sizes {sizes:?}"));
    let (reported, full) = (outcome(&objects), in_size(&objects, uid, &sizes[0]));
    if !full.is_none() || !objects.options.partial_admission {
        return if reported == full { Ok([0; 2]) } else { fault("it does not start in full size", &reported) };
    }
    let mut larger = full;
    for size in &sizes[1..] {
        let outcome = in_size(&objects, uid, size);
        if !outcome.is_none() && outcome == reported && larger.is_none() {
            return Ok([1, u32::from(reported.given.is_none())]);
        }
        larger = outcome;
    }
    if !reported.is_none() {
        return fault("no size comes to that of which the next larger one finds no room", &reported);
    }
    if larger.is_none() { Ok([0; 2]) } else { fault("it waits, and its minimum finds room", &larger) }
}

/// A wide world in which many workloads preempt, and in which the policies of every third queue bound preemption.
fn world(seed: u64) -> Objects {
    let mut objects = wide(seed);
    let mut dice = Dice::new(seed ^ 0x9b05_688c);
    stir(&mut objects, &mut dice);
    for queue in &mut objects.queues {
        if dice.chance(3) {
            queue.guard = random_guard(&mut dice);
        }
    }
    for spec in &mut objects.workloads {
        match &mut spec.state {
            // The pending workload would wait for an evicted holder without an eviction in the plan, so no holder is evicted at the beginning.
            WorkloadState::Reserved(held) => held.evicted = false,
            WorkloadState::Pending { .. } => {
                for set in &mut spec.pod_sets {
                    let is_many = set.count > 1 && !dice.chance(3);
                    set.min_count = is_many.then_some(1).or(set.min_count);
                }
            }
        }
    }
    objects
}

#[test]
fn workload_starts_in_largest_size_that_finds_room() {
    let mut sums = [0; 2];
    for seed in seeds() {
        let _named = Named(seed);
        let objects = world(seed);
        let Some(uid) = one_that_waits(&objects, seed) else { continue };
        add_up(&mut sums, seed, objects, |objects| judge(objects, &uid));
    }
    println!("{} in reduced size, {} of them preempt", sums[0], sums[1]);
    assert!(cases() < 1000 || sums[0] > cases() / 500, "too tame: {sums:?}");
    assert!(cases() < 50_000 || sums[1] > cases() / 10_000, "too tame: {sums:?}");
}
