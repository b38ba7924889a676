//! Laws of quota (Q1 to Q5 and Q7) over wide worlds: three levels of cohorts with limits, amounts up to the end of `i64`, several pod sets and resources.
//! Queues and cohorts move and change while workloads hold quota. All figures of the engine are compared with a ledger that is counted from the objects.
//!
//! A failed law prints its seed and the smallest set of workloads that fails; `BERTH_SEED=<seed> BERTH_CASES=1` repeats the failure.

use std::collections::BTreeMap;

use crate::worlds;
use crate::worlds::ledger::{Fr, Ledger, UNLIMITED};
use crate::worlds::wide::{Wide, total};
use crate::worlds::{Dice, Named, Objects, cases, gates, seeds};
use berth_engine::*;

const NOW: Millis = Millis(1000);
const ALL: Limits = Limits { max_admissions: 1000 };

/// Laws Q3 and Q4: every figure of the world is exactly the figure that is counted from the objects.
fn compared(objects: &Objects, world: &World) -> Result<Ledger, String> {
    let faults = check(world);
    if !faults.is_empty() {
        return Err(format!("books: {faults:?}"));
    }
    let ledger = Ledger::of(objects);
    for ((is_queue, name), levels) in ledger.nodes.iter().zip(&ledger.levels) {
        let rows = world.snapshot(name, *is_queue).into_iter();
        let rows: BTreeMap<Fr, (Amount, Amount)> = rows.map(|(f, r, usage, quota)| ((f, r), (usage, quota))).collect();
        if let Some((fr, _)) = rows.iter().find(|(fr, (usage, _))| !ledger.frs.contains(fr) && *usage != Amount::ZERO) {
            return Err(format!("{name} uses {fr:?}, which nobody holds"));
        }
        for (fr, level) in ledger.frs.iter().zip(levels) {
            let reported = rows.get(fr).copied().unwrap_or_default();
            let counted = (Amount::clamped(level.usage), Amount::clamped(level.subtree));
            if reported != counted {
                return Err(format!("{name} {fr:?}: usage and quota {reported:?}, counted {counted:?}"));
            }
            if *is_queue {
                let reported = world.availability(name, &fr.0, &fr.1);
                let counted = (Amount::clamped(level.room.max(0)), Amount::clamped(level.most));
                if reported != Some(counted) {
                    return Err(format!("{name} {fr:?}: free and most {reported:?}, counted {counted:?} of {level:?}"));
                }
            }
        }
        if *is_queue {
            statuses(objects, world, &ledger, name)?;
        }
    }
    Ok(ledger)
}

/// Compares the figures for the status of a queue with the ledger.
fn statuses(objects: &Objects, world: &World, ledger: &Ledger, name: &str) -> Result<(), String> {
    let figures = world.figures(name).ok_or_else(|| format!("no figures of {name}"))?;
    let local = world.local_queue_figures("default", name).ok_or_else(|| format!("no figures of local {name}"))?;
    let holder = |spec: &WorkloadSpec| match &spec.state {
        WorkloadState::Reserved(held) => held.cluster_queue == name,
        WorkloadState::Pending { .. } => false,
    };
    let holders = objects.workloads.iter().filter(|spec| holder(spec)).count();
    if figures.reserving as usize != holders || local.reserving as usize != holders {
        return Err(format!("{name}: {} and {} reserve, {holders} do", figures.reserving, local.reserving));
    }
    for (cell, local) in figures.reservation.iter().zip(&local.reservation) {
        let level = ledger.queue(name, &cell.flavor, &cell.resource);
        let is_bounded = level.has_parent && level.nominal < UNLIMITED;
        let borrowed = if is_bounded { (level.usage - level.nominal).max(0) } else { 0 };
        let counted = (Amount::clamped(level.usage), Amount::clamped(borrowed));
        if (cell.total, cell.borrowed) != counted || local.total != counted.0 {
            return Err(format!("{name}: status says {cell:?} and {local:?}, counted {counted:?}"));
        }
    }
    Ok(())
}

/// The next larger counts of pods on the way from `minCount` to full size; `None` at full size.
fn larger(spec: &WorkloadSpec, given: &[PodSetAssignment]) -> Result<Option<Vec<i64>>, String> {
    let deltas: Vec<i64> = spec.pod_sets.iter().map(|set| set.count - set.min_count.unwrap_or(set.count)).collect();
    let total: i64 = deltas.iter().sum();
    let counts = |step: i64| -> Vec<i64> {
        let reduced = |(set, delta): (&PodSetSpec, &i64)| set.count - if total > 0 { delta * step / total } else { 0 };
        spec.pod_sets.iter().zip(&deltas).map(reduced).collect()
    };
    let given: Vec<i64> = given.iter().map(|set| set.count).collect();
    let step = (0..=total).find(|step| counts(*step) == given);
    let step = step.ok_or_else(|| format!("{} has {given:?} pods, which is no common step down", spec.uid))?;
    Ok((step > 0).then(|| counts(step - 1)))
}

/// Law Q7: an admitted workload has all its pod sets in one assignment. The pod sets of an admission have their full requests, in flavors of the workload's
/// queue, with one flavor for each pod set and resource group; no pod set is below its minimum, and all pod sets are reduced by common steps.
fn reduced_sets(objects: &Objects, plan: &Plan) -> Result<u64, String> {
    let mut reduced = 0;
    for admission in &plan.admissions {
        let spec = objects.workloads.iter().find(|spec| spec.uid == *admission.uid).unwrap();
        let queue = objects.queues.iter().find(|queue| queue.name == *admission.cluster_queue).unwrap();
        let fault = |what: &str| Err(format!("{what}: {admission:?} of {:?}", spec.pod_sets));
        if spec.local_queue != queue.name || queue.stop != StopPolicy::None {
            return fault("from a queue that is stopped or another one");
        }
        if admission.pod_sets.len() != spec.pod_sets.len() {
            return fault("not all pod sets");
        }
        for (given, set) in admission.pod_sets.iter().zip(&spec.pod_sets) {
            if given.name != set.name {
                return fault("pod sets of other names");
            }
            if given.count > set.count || given.count < set.min_count.unwrap_or(set.count) {
                return fault("below its minimum, or more than it asked for");
            }
            let asked: BTreeMap<String, Amount> =
                set.requests.iter().map(|(resource, one)| (resource.clone(), total(*one, given.count))).collect();
            if given.usage != asked || !given.flavors.keys().eq(asked.keys()) {
                return fault("not exactly what it asks for");
            }
            for group in &queue.groups {
                let mut flavors: Vec<&String> =
                    group.covered.iter().filter_map(|resource| given.flavors.get(resource)).collect();
                flavors.dedup();
                let offers = |flavor: &&String| group.flavors.iter().any(|offered| offered.flavor == **flavor);
                if flavors.len() > 1 || !flavors.iter().all(offers) {
                    return fault("not one flavor of its group");
                }
            }
        }
        if larger(spec, &admission.pod_sets)?.is_some() {
            reduced += 1;
            if !objects.options.partial_admission {
                return fault("reduced though partial admission is off");
            }
        }
    }
    Ok(reduced)
}

/// Counts of events in a world that is planned and edited in turn.
#[derive(Default)]
struct Seen {
    admissions: u64,
    evictions: u64,
    /// Number of queues and cohorts over their quota when a plan was made.
    debts: u64,
}

/// Makes two plans in a world, each followed by its outcome and by an edit of the world.
fn walk(wide: &Wide, mut objects: Objects, seed: u64) -> Result<Seen, String> {
    let mut world = objects.world();
    let mut dice = Dice::new(seed ^ 0x3c6e_f372);
    let mut seen = Seen::default();
    for _ in 0..2 {
        let before = compared(&objects, &world)?.debts();
        let plan = world.plan(NOW, Limits { max_admissions: dice.pick(&[1, 3, 1000]) });
        reduced_sets(&objects, &plan)?;
        objects = objects.after(&plan, NOW);
        // Laws Q1, Q2 and Q5: no node comes to be over its quota, and a node that was over its quota gets no more usage.
        let after = compared(&objects, &world)?.debts();
        let fed = after.iter().find(|(cell, debt)| **debt > before.get(*cell).copied().unwrap_or(0));
        if let Some((cell, debt)) = fed {
            return Err(format!("{cell:?} is over by {debt}, before by {:?}: {plan:?}", before.get(cell)));
        }
        seen.admissions += plan.admissions.len() as u64;
        seen.evictions += plan.evictions.len() as u64;
        seen.debts += u64::from(!before.is_empty());
        follow(&mut dice, &mut objects, &mut world, &plan);
        change(&mut dice, wide, &mut objects, &mut world);
    }
    compared(&objects, &world)?;
    for spec in std::mem::take(&mut objects.workloads) {
        world.apply(Delta::RemoveWorkload(spec.uid)).unwrap();
    }
    // If no workload holds quota, each figure of usage is exactly zero.
    compared(&objects, &world)?;
    Ok(seen)
}

/// Applies the outcome of a plan: admissions are confirmed, forgotten or not confirmed yet, and victims leave or still hold their quota.
fn follow(dice: &mut Dice, objects: &mut Objects, world: &mut World, plan: &Plan) {
    let is_new = |uid: &str| plan.admissions.iter().any(|admission| *admission.uid == *uid);
    let mut stay = Vec::new();
    for mut spec in std::mem::take(&mut objects.workloads) {
        let evicted = match &spec.state {
            WorkloadState::Reserved(held) => held.evicted,
            WorkloadState::Pending { .. } => {
                stay.push(spec);
                continue;
            }
        };
        if is_new(&spec.uid) && dice.chance(8) {
            world.apply(Delta::Forget(spec.uid.clone())).unwrap();
            spec.state = WorkloadState::Pending { not_before: None, blocked: None };
        } else if evicted && dice.chance(3) {
            spec.revision += 1;
            spec.state = WorkloadState::Pending { not_before: None, blocked: None };
            world.apply(Delta::Workload(spec.clone())).unwrap();
        } else if dice.chance(if evicted { 3 } else { 16 }) {
            world.apply(Delta::RemoveWorkload(spec.uid)).unwrap();
            continue;
        } else if dice.chance(2) {
            world.apply(Delta::Workload(spec.clone())).unwrap();
        }
        stay.push(spec);
    }
    objects.workloads = stay;
}

/// An administrator's edit: another parent, another quota, or a queue that is stopped or runs again.
fn change(dice: &mut Dice, wide: &Wide, objects: &mut Objects, world: &mut World) {
    let (queues, cohorts) = (objects.queues.len() as u64, objects.cohorts.len() as u64);
    let (queue, cohort) = (dice.below(queues) as usize, dice.below(cohorts) as usize);
    // The new parent is a cohort that is earlier in the list, so that there is no circle.
    let above = dice.below(cohort as u64 + 1) as usize;
    let names: Vec<String> = objects.cohorts.iter().map(|cohort| cohort.name.clone()).collect();
    match dice.below(5) {
        0 => objects.queues[queue].cohort = names.get(dice.below(cohorts + 1) as usize).cloned(),
        1 => objects.queues[queue].groups = wide.random_groups(dice),
        2 => {
            let stops = objects.queues[queue].stop == StopPolicy::None;
            objects.queues[queue].stop = if stops { StopPolicy::Hold } else { StopPolicy::None };
        }
        3 => objects.cohorts[cohort].parent = names.get(above).filter(|_| above < cohort).cloned(),
        _ => objects.cohorts[cohort].groups = if dice.chance(4) { vec![] } else { wide.random_groups(dice) },
    }
    world.apply(Delta::ClusterQueue(objects.queues[queue].clone())).unwrap();
    world.apply(Delta::Cohort(objects.cohorts[cohort].clone())).unwrap();
}

#[test]
fn quota_holds_and_figures_are_exact_at_any_depth() {
    let mut seen = Seen::default();
    for seed in seeds() {
        let _named = Named(seed);
        let mut wide = Wide::new(seed);
        wide.objects.options.gates = gates(seed);
        match walk(&wide, wide.objects.clone(), seed) {
            Ok(more) => {
                seen.admissions += more.admissions;
                seen.evictions += more.evictions;
                seen.debts += more.debts;
            }
            Err(_) => {
                let small = wide.objects.clone().shrink(|objects| walk(&wide, objects.clone(), seed).is_err());
                let fault = walk(&wide, small.clone(), seed).err();
                panic!("seed {seed}\n{}{}", small.describe(), fault.unwrap_or_default());
            }
        }
    }
    let Seen { admissions, evictions, debts } = seen;
    println!("{admissions} admissions, {evictions} evictions, {debts} plans beside a node over its quota");
    let least = u64::from(cases()) / 50;
    assert!(cases() < 1000 || (admissions > least && evictions > least && debts > least), "too tame");
}

/// Judges the first cycle: an admission is complete, and for an admission in reduced size the next larger size does not fit. A reduced size is judged only if
/// there is one way to assign it (one flavor in each group).
fn first_cycle(objects: &Objects) -> Result<u64, String> {
    let plan = objects.world().plan_cycles(NOW, ALL, 1);
    let reduced = reduced_sets(objects, &plan)?;
    if reduced == 0 {
        return Ok(0);
    }
    let ledger = Ledger::of(objects);
    for admission in &plan.admissions {
        let spec = objects.workloads.iter().find(|spec| spec.uid == *admission.uid).unwrap();
        let queue = objects.queues.iter().find(|queue| queue.name == *admission.cluster_queue).unwrap();
        let Some(counts) = larger(spec, &admission.pod_sets)? else { continue };
        if queue.groups.iter().any(|group| group.flavors.len() > 1) {
            continue;
        }
        let mut wanted: BTreeMap<Fr, i128> = BTreeMap::new();
        for ((set, given), count) in spec.pod_sets.iter().zip(admission.pod_sets.iter()).zip(&counts) {
            for (resource, one) in &set.requests {
                let fr = (given.flavors[resource].clone(), resource.clone());
                *wanted.entry(fr).or_default() += i128::from(total(*one, *count).get());
            }
        }
        let room = |fr: &Fr| ledger.queue(&queue.name, &fr.0, &fr.1).room.max(0);
        if wanted.iter().all(|(fr, value)| *value <= room(fr)) {
            return Err(format!("{counts:?} pods would have fit: {admission:?}"));
        }
    }
    Ok(reduced)
}

#[test]
fn workload_holds_quota_for_all_pod_sets_or_none() {
    let mut reduced = 0;
    for seed in seeds() {
        let _named = Named(seed);
        let mut objects = worlds::wide::wide(seed);
        objects.options.gates = gates(seed);
        match first_cycle(&objects) {
            Ok(count) => reduced += count,
            Err(_) => {
                let small = objects.shrink(|objects| first_cycle(objects).is_err());
                panic!("seed {seed}\n{}{}", small.describe(), first_cycle(&small).err().unwrap_or_default());
            }
        }
    }
    println!("{reduced} admitted in reduced size");
    assert!(cases() < 1000 || reduced > u64::from(cases()) / 100, "too tame: {reduced}");
}

/// The ledger itself is tested against figures that were worked out by hand.
#[test]
fn ledger_with_limits_at_three_levels_matches_hand_computed_figures() {
    let groups = |nominal: i64, borrowing_limit: Option<i64>, lending_limit: Option<i64>| {
        let quota = Quota {
            nominal: Amount::new(nominal),
            borrowing_limit: borrowing_limit.map(Amount::new),
            lending_limit: lending_limit.map(Amount::new),
        };
        let flavors = vec![FlavorQuotas { flavor: "f0".into(), quotas: vec![quota] }];
        vec![ResourceGroup { covered: vec!["cpu".into()], flavors }]
    };
    let cohort = |name: &str, parent: Option<&str>, groups: Vec<ResourceGroup>| CohortSpec {
        name: name.into(),
        parent: parent.map(str::to_owned),
        groups,
        weight: WEIGHT_ONE,
    };
    let mut objects = Objects::default();
    objects.cohorts.push(cohort("x", None, groups(10, None, None)));
    objects.cohorts.push(cohort("y", Some("x"), groups(4, Some(3), Some(1))));
    objects.queues.push(worlds::queue("a", Some("y"), groups(2, Some(20), Some(0))));
    objects.queues.push(worlds::queue("b", Some("y"), groups(0, None, None)));
    let mut spec = worlds::pending("w", "a", 0, 0, &[("cpu", 3)]);
    worlds::hold(&mut spec, "f0", 0, false);
    objects.workloads.push(spec);
    let ledger = Ledger::of(&objects);
    let a = ledger.queue("a", "f0", "cpu");
    // In the example worked out by hand, queue `a` uses its own 2 and 1 of the 4 of cohort `y`. Cohort `y` keeps 3 to itself, lends 1 and may borrow 3, so that
    // queue `a` has 2 and 1 + 3 left.
    assert_eq!((a.usage, a.room, a.most), (3, 6, 9));
    assert_eq!(ledger.queue("b", "f0", "cpu").room, 6);
    assert_eq!(compared(&objects, &objects.world()).map(|ledger| ledger.debts()), Ok(BTreeMap::new()));
    // Queue `a` now borrows more than it may.
    objects.queues[0].groups = groups(2, Some(0), Some(0));
    let debt = (((true, "a".to_owned()), ("f0".to_owned(), "cpu".to_owned())), 1);
    assert_eq!(compared(&objects, &objects.world()).map(|ledger| ledger.debts()), Ok(BTreeMap::from([debt])));
    // An unlimited quota is never exceeded, however much of it is in use.
    objects.queues[0].groups = groups(i64::MAX, Some(0), Some(0));
    assert_eq!(Ledger::of(&objects).queue("a", "f0", "cpu").room, UNLIMITED);
    assert!(Ledger::of(&objects).debts().is_empty());
}
