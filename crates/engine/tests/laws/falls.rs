//! Law that evictions come to an end without a change from outside: a potential falls with each round of evictions.
//!
//! The potential has two parts. The first part of the potential is the number of pairs of workloads without an eviction of one for the other so far. If the
//! first part of the potential does not fall in a round, all pairs of victim and preemptor of the round are known already, and the second part falls. The
//! second part of the potential places each workload below the workloads for which it was ever evicted, and counts, from the top down, the workloads that
//! neither hold quota nor wait for quota to be freed. Both parts of the potential are bounded, so evictions end.
//!
//! A failed law prints its seed; `BERTH_SEED=<seed> BERTH_CASES=1` repeats the failure.

use std::collections::{BTreeMap, BTreeSet};

use crate::extras;
use crate::worlds;
use crate::worlds::{Dice, Named, Objects, cases, mixed, seeds};
use berth_engine::*;

const NOW: Millis = Millis(1000);
const ALL: Limits = Limits { max_admissions: 1000 };

/// Victim and preemptor.
type Pair = (String, String);

/// Depth of each workload below its preemptors, direct or through other workloads. Returns an error if the pairs of victim and preemptor form a circle.
fn depths(uids: &BTreeSet<String>, pairs: &BTreeSet<Pair>) -> Result<BTreeMap<String, usize>, String> {
    let mut depths: BTreeMap<String, usize> = uids.iter().map(|uid| (uid.clone(), 0)).collect();
    for _ in 0..=uids.len() {
        let mut is_settled = true;
        for (victim, preemptor) in pairs {
            let least = depths[preemptor] + 1;
            if depths[victim] < least {
                depths.insert(victim.clone(), least);
                is_settled = false;
            }
        }
        if is_settled {
            return Ok(depths);
        }
    }
    Err(format!("a circle: {pairs:?}"))
}

/// The potential: the number of pairs without an eviction, and, from the top down, the number of workloads at each depth that neither hold quota nor wait for
/// quota to be freed.
fn potential(
    uids: &BTreeSet<String>,
    pairs: &BTreeSet<Pair>,
    has: &BTreeSet<String>,
) -> Result<(usize, Vec<usize>), String> {
    let mut without = vec![0; uids.len()];
    for (uid, depth) in depths(uids, pairs)? {
        without[depth] += usize::from(!has.contains(&uid));
    }
    Ok((uids.len() * uids.len() - pairs.len(), without))
}

/// Lets a world run until there are no more evictions. Returns the number of rounds with evictions, and the number of rounds in which the second part of the
/// potential fell.
fn run_out(objects: &Objects) -> Result<[u32; 2], String> {
    let mut world = objects.world();
    let mut specs: BTreeMap<String, WorkloadSpec> =
        objects.workloads.iter().map(|spec| (spec.uid.clone(), spec.clone())).collect();
    for spec in &objects.workloads {
        if matches!(&spec.state, WorkloadState::Reserved(held) if held.evicted) {
            world.apply(Delta::RemoveWorkload(spec.uid.clone())).unwrap();
            specs.remove(&spec.uid);
        }
    }
    let uids: BTreeSet<String> = specs.keys().cloned().collect();
    let holds = |spec: &&WorkloadSpec| matches!(spec.state, WorkloadState::Reserved(_));
    let mut has: BTreeSet<String> = specs.values().filter(holds).map(|spec| spec.uid.clone()).collect();
    let mut pairs = BTreeSet::<Pair>::new();
    let mut before = (usize::MAX, Vec::new());
    let (mut rounds, mut second) = (0, 0);
    loop {
        let plan = world.plan(NOW, ALL);
        for admission in &plan.admissions {
            has.insert(admission.uid.to_string());
            let spec = specs.get_mut(&*admission.uid).unwrap();
            worlds::admit(spec, admission, NOW);
            world.apply(Delta::Workload(spec.clone())).unwrap();
        }
        if plan.evictions.is_empty() {
            return Ok([rounds, second]);
        }
        for eviction in &plan.evictions {
            pairs.insert((eviction.uid.clone(), eviction.preemptor.clone()));
            has.remove(&eviction.uid);
        }
        has.extend(plan.evictions.iter().map(|eviction| eviction.preemptor.clone()));
        let known: BTreeSet<Pair> = world.evicted_for().into_iter().collect();
        if known != pairs {
            return Err(format!("the engine remembers {known:?}, and there were {pairs:?}"));
        }
        let now = potential(&uids, &pairs, &has)?;
        if now >= before {
            let reported: Vec<_> = plan.evictions.iter().map(|e| (&e.uid, &e.preemptor, e.reason)).collect();
            return Err(format!("round {rounds}: from {before:?} to {now:?} with {reported:?} after {pairs:?}"));
        }
        rounds += 1;
        second += u32::from(now.0 == before.0);
        before = now;
        for eviction in &plan.evictions {
            let spec = specs.get_mut(&eviction.uid).unwrap();
            worlds::queue_again(spec, NOW);
            world.apply(Delta::Workload(spec.clone())).unwrap();
        }
    }
}

#[test]
fn eviction_potential_falls_with_each_round_of_evictions() {
    let (mut several, mut second) = (0, 0);
    for seed in seeds() {
        let _named = Named(seed);
        let mut objects = mixed(seed);
        extras::stir(&mut objects, &mut Dice::new(seed ^ 0xa54f_f53a));
        match run_out(&objects) {
            Ok([rounds, fell]) => {
                several += u32::from(rounds > 1);
                second += fell;
            }
            Err(_) => {
                let small = objects.shrink(|objects| run_out(objects).is_err());
                panic!("seed {seed}\n{}{}", small.describe(), run_out(&small).err().unwrap_or_default());
            }
        }
    }
    println!("{several} worlds of several rounds, {second} rounds in which only the second part fell");
    assert!(cases() < 1000 || several > cases() / 200, "too tame: {several}");
}
