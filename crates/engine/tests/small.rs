//! Small worlds: a sample at even steps of all small worlds. A small world has up to three queues in one of two forests, two flavors with quotas of 0 to 2
//! each, and four workloads with amounts of 0 to 2, two priorities, every order of age among workloads of equal priority, pending or with quota, and a pairwise
//! set of policies.
//!
//! Equivalent worlds are counted once (see `choices`): queues with equal quota below the same cohort are interchangeable, age matters only among workloads of
//! equal priority, and priority matters only if two priorities occur. Worlds without a pending request are left out. 3,805,672,248 worlds are left.
//! `BERTH_WORLDS` sets the part that is tried: every n-th world, and 1 means all worlds; a plain test run tries every 17,789th world. `BERTH_WORLDS_SECONDS` is
//! the time in seconds that five million worlds may take (`make night PART=random`).

use std::collections::{BTreeMap, BTreeSet};

use berth_engine::*;

use crate::slow;
use crate::worlds::ledger::Ledger;
use crate::worlds::{Named, Objects, amount, hold, pending, queue};

const NOW: Millis = Millis(1000);
const ALL: Limits = Limits { max_admissions: 100 };
const QUEUES: [&str; 3] = ["q0", "q1", "q2"];
/// Number of small worlds.
const TOTAL: u64 = 3_805_672_248;
/// A plain test run tries one world in `PLAIN` worlds.
const PLAIN: u64 = 17_789;

/// Number of nominal quotas of a flavor; a queue has a quota of each of two flavors, so that there are nine pairs of quotas.
const QUOTAS: usize = 3;
const PAIRS: usize = QUOTAS * QUOTAS;

/// Columns of `RULES`: queueing strategy; `withinClusterQueue`; `reclaimWithinCohort`; scan over flavors; fair sharing, by equal weights or by [`WEIGHTS`];
/// limits of quota; strategies of fair sharing; preemption before borrowing, or while borrowing. In the table `RULES`, every pair of values of two columns
/// occurs in some row.
const RULES: [[usize; 8]; 18] = [
    [0, 0, 0, 0, 0, 0, 0, 0],
    [0, 0, 1, 1, 1, 1, 1, 1],
    [0, 0, 2, 2, 2, 2, 2, 2],
    [0, 1, 0, 0, 1, 1, 2, 2],
    [0, 1, 1, 1, 2, 2, 0, 0],
    [0, 1, 2, 2, 0, 0, 1, 1],
    [0, 2, 0, 1, 0, 2, 1, 2],
    [0, 2, 1, 2, 1, 0, 2, 0],
    [0, 2, 2, 0, 2, 1, 0, 1],
    [1, 0, 0, 2, 2, 1, 1, 0],
    [1, 0, 1, 0, 0, 2, 2, 1],
    [1, 0, 2, 1, 1, 0, 0, 2],
    [1, 1, 0, 1, 2, 0, 2, 1],
    [1, 1, 1, 2, 0, 1, 0, 2],
    [1, 1, 2, 0, 1, 2, 1, 0],
    [1, 2, 0, 2, 1, 2, 0, 1],
    [1, 2, 1, 0, 2, 0, 1, 2],
    [1, 2, 2, 1, 0, 1, 2, 0],
];

/// Weights of the queues of a small world, in the rules in which weights differ. Queues that differ in weight alone have the same weight in all worlds.
const WEIGHTS: [i64; 3] = [0, 1_000_000_000, 2_000_000_000];

/// Cohort of each queue, for each forest.
const FORESTS: [[&str; 3]; 2] = [["x", "x", "x"], ["x", "y", "y"]];

/// The number that stands for a queue's pair of quotas, one quota for each flavor.
fn pair(quotas: usize, queue: usize) -> usize {
    quotas / PAIRS.pow(u32::try_from(queue).unwrap()) % PAIRS
}

fn objects(forest: usize, quotas: usize, rules: usize) -> Objects {
    let [strict, within, reclaim, scan, mode, limits, strategies, extra] = RULES[rules];
    let mut objects = Objects::default();
    if mode > 0 {
        let strategies = match strategies {
            0 => vec![],
            1 => vec![ShareStrategy::LessThanOrEqualToFinalShare],
            _ => vec![ShareStrategy::LessThanInitialShare],
        };
        objects.options.fair_sharing = Some(FairSharing { strategies });
    }
    let cohort = |name: &str, parent: Option<&str>| CohortSpec {
        name: name.to_owned(),
        parent: parent.map(str::to_owned),
        groups: vec![],
        weight: 1_000_000_000,
    };
    objects.cohorts.push(cohort("x", None));
    if forest == 1 {
        objects.cohorts.push(cohort("y", Some("x")));
    }
    for (index, name) in QUEUES.iter().enumerate() {
        let pair = pair(quotas, index);
        let limit = |which: usize| (limits == which).then(|| amount(1));
        let quota =
            |nominal| Quota { nominal: amount(nominal as u64), borrowing_limit: limit(1), lending_limit: limit(2) };
        let flavor = |name: &str, nominal| FlavorQuotas { flavor: name.to_owned(), quotas: vec![quota(nominal)] };
        let flavors = vec![flavor("f0", pair % QUOTAS), flavor("f1", pair / QUOTAS)];
        let groups = vec![ResourceGroup { covered: vec!["cpu".into()], flavors }];
        let mut spec = queue(name, Some(FORESTS[forest][index]), groups);
        if strict == 1 {
            spec.strategy = Strategy::StrictFifo;
        }
        let policies =
            [PreemptionPolicy::Never, PreemptionPolicy::LowerPriority, PreemptionPolicy::LowerOrNewerEqualPriority];
        spec.preemption.within_cluster_queue = policies[within];
        spec.preemption.reclaim_within_cohort =
            [PreemptionPolicy::Never, PreemptionPolicy::LowerPriority, PreemptionPolicy::Any][reclaim];
        spec.preemption.borrow_within_cohort = reclaim > 0 && extra == 2;
        if scan > 0 {
            spec.fungibility.when_can_preempt = Fungibility::MayStopSearch;
        }
        if scan == 2 {
            spec.fungibility.when_can_borrow = Fungibility::TryNextFlavor;
        }
        if extra == 1 {
            // The preference between borrowing and preemption matters only if the scan goes on to the next flavor both after borrowing and after preemption.
            spec.fungibility = FlavorFungibility {
                when_can_borrow: Fungibility::TryNextFlavor,
                when_can_preempt: Fungibility::TryNextFlavor,
                preemption_over_borrowing: true,
            };
        }
        if mode == 2 {
            spec.weight = WEIGHTS[index];
        }
        objects.queues.push(spec);
    }
    objects
}

/// A workload of a small world. A workload with an empty request (`asked` is 0) is always pending.
#[derive(Clone, Copy)]
struct Kind {
    queue: usize,
    priority: i64,
    asked: u64,
    /// State of the workload: 0 if it is pending, otherwise the flavor, first or second, in which it holds quota.
    state: usize,
}

const KINDS: u8 = 3 * 2 * 7;

fn kind(number: u8) -> Kind {
    let (queue, rest) = (usize::from(number % 3), number / 3);
    let (priority, rest) = (i64::from(rest % 2), rest / 2);
    let (asked, state) = if rest == 6 { (0, 0) } else { (1 + u64::from(rest % 2), usize::from(rest / 2)) };
    Kind { queue, priority, asked, state }
}

/// For every distinct world, the kinds of its four workloads, the oldest workload first. The parameter `alike` is true for a queue that is equal to the queue
/// before it.
fn choices(alike: [bool; 3]) -> Vec<[u8; 4]> {
    let mut found = Vec::new();
    let mut chosen = Vec::new();
    choose(alike, &mut chosen, &mut found);
    found
}

fn choose(alike: [bool; 3], chosen: &mut Vec<u8>, found: &mut Vec<[u8; 4]>) {
    if let Ok(numbers) = <[u8; 4]>::try_from(chosen.as_slice()) {
        // A world without a pending request is left out.
        if numbers.iter().any(|number| kind(*number).asked > 0 && kind(*number).state == 0) {
            found.push(numbers);
        }
        return;
    }
    for number in 0..KINDS {
        let next = kind(number);
        let in_order = match chosen.last().map(|last| kind(*last)) {
            // If all workloads have one priority, it is priority 0; so the first workload always has priority 0.
            None => next.priority == 0,
            // Age counts only among workloads of equal priority, and a workload with an empty request is the oldest of them.
            Some(last) if last.priority == next.priority => {
                next.asked > 0 || (last.asked == 0 && last.queue <= next.queue)
            }
            Some(last) => last.priority < next.priority,
        };
        // Workloads use equal queues in the order of the queues, so that symmetric worlds are counted once.
        let uses_first = !alike[next.queue] || chosen.iter().any(|known| kind(*known).queue + 1 == next.queue);
        if in_order && uses_first {
            chosen.push(number);
            choose(alike, chosen, found);
            chosen.pop();
        }
    }
}

fn workload(index: usize, kind: Kind) -> WorkloadSpec {
    let at = i64::try_from(index).unwrap();
    let mut spec = pending(&format!("w{index}"), QUEUES[kind.queue], kind.priority, at, &[("cpu", kind.asked)]);
    if kind.state > 0 {
        hold(&mut spec, ["f0", "f1"][kind.state - 1], at, false);
    }
    spec
}

fn quick_laws(objects: &Objects, world: &mut World) -> Result<(), String> {
    let over: BTreeSet<String> = world.over_quota().into_iter().collect();
    let mut last = 0;
    let mut waiting: BTreeMap<String, WorkloadSpec> =
        objects.workloads.iter().map(|spec| (spec.uid.clone(), spec.clone())).collect();
    for round in 0..30 {
        let plan = world.plan(NOW, ALL);
        let faults = check(world);
        if !faults.is_empty() {
            return Err(format!("books {faults:?}"));
        }
        if let Some(fault) = world.over_quota().into_iter().find(|fault| !over.contains(fault)) {
            return Err(fault);
        }
        if plan.evictions.is_empty() {
            let again = world.plan(NOW, ALL);
            let is_quiet = again.admissions.is_empty() && again.evictions.is_empty() && world.sweep(NOW) == 0;
            return if is_quiet { Ok(()) } else { Err(format!("not quiet {again:?}")) };
        }
        last = round;
        for eviction in &plan.evictions {
            let spec = waiting.get_mut(&eviction.uid).unwrap();
            spec.revision += 1;
            spec.state = WorkloadState::Pending { not_before: None, blocked: None };
            world.apply(Delta::Workload(spec.clone())).unwrap();
        }
    }
    Err(format!("evictions without end ({last} rounds)"))
}

/// Fails if the oracle decides the first cycle differently from the engine.
fn agrees(objects: &Objects) -> Result<(), String> {
    let plan = objects.world().plan_cycles(NOW, ALL, 1);
    let given = |sets: &[PodSetAssignment]| sets.iter().map(|set| (set.count, set.flavors.clone())).collect();
    let fast = slow::Decided {
        admitted: plan.admissions.iter().map(|a| (a.uid.to_string(), given(&a.pod_sets))).collect(),
        evicted: plan.evictions.into_iter().map(|e| (e.uid, e.preemptor, e.reason)).collect(),
        waiting: plan.verdicts.into_iter().filter(|v| v.leading).map(|v| (v.uid.to_string(), v.reason)).collect(),
    };
    let accounting = slow::accounting(&objects.cohorts, &objects.queues, &objects.workloads);
    let slow = slow::cycle(&objects.options, accounting, &objects.workloads, NOW);
    if fast == slow { Ok(()) } else { Err(format!("engine {fast:?} oracle {slow:?}")) }
}

/// Law Q2: a node of the cohort tree that is over its quota gets no more usage. Law Q2 counts usage from the objects of the world, not from the engine's
/// figures.
fn feeds_nobody(objects: &Objects) -> Result<(), String> {
    let before = Ledger::of(objects).debts();
    let plan = objects.world().plan(NOW, ALL);
    let after = Ledger::of(&objects.after(&plan, NOW)).debts();
    let fed = after.iter().find(|(cell, debt)| **debt > before.get(*cell).copied().unwrap_or(0));
    fed.map_or(Ok(()), |(cell, debt)| Err(format!("{cell:?} is over by {debt}")))
}

/// The forests with the quotas of their queues, without symmetric repetitions; the flags are true for queues that are equal to the queue before.
fn forests() -> Vec<(usize, usize, [bool; 3])> {
    let mut forests = Vec::new();
    for (forest, cohorts) in FORESTS.iter().enumerate() {
        for quotas in 0..PAIRS.pow(3) {
            let of = |queue: usize| pair(quotas, queue);
            let beside = |queue: usize| queue > 0 && cohorts[queue] == cohorts[queue - 1];
            let sorted = (0..3).all(|queue| !beside(queue) || of(queue - 1) <= of(queue));
            if sorted {
                let alike = [0, 1, 2].map(|queue| beside(queue) && of(queue - 1) == of(queue));
                forests.push((forest, quotas, alike));
            }
        }
    }
    forests
}

/// Counts of tried worlds.
#[derive(Default)]
struct Done {
    tried: u64,
    /// Number of worlds in which the engine was compared with the oracle.
    compared: u64,
    /// Number of worlds with a pending workload that has the priority of a holder of quota and is younger than it.
    older_holders: u64,
}

/// Tests the worlds of every second forest, beginning with forest `first`; one world in `stride` is tried.
fn part(first: usize, stride: u64) -> Done {
    let (mut number, mut done) = (0_u64, Done::default());
    let mut lists: BTreeMap<[bool; 3], Vec<[u8; 4]>> = BTreeMap::new();
    for (forest, quotas, alike) in forests().into_iter().skip(first).step_by(2) {
        let list = lists.entry(alike).or_insert_with(|| choices(alike));
        for rules in 0..RULES.len() {
            let mut objects = objects(forest, quotas, rules);
            let mut world = objects.world();
            let skipped = stride - 1 - number % stride;
            number += list.len() as u64;
            for numbers in list.iter().skip(skipped as usize).step_by(stride as usize) {
                let _named = Named((forest, quotas, rules, *numbers));
                let kinds = numbers.map(kind);
                objects.workloads = kinds.iter().enumerate().map(|(at, kind)| workload(at, *kind)).collect();
                for spec in &objects.workloads {
                    world.apply(Delta::Workload(spec.clone())).unwrap();
                }
                done.tried += 1;
                let younger = |at: usize| {
                    let equal = |kind: &&Kind| kind.priority == kinds[at].priority;
                    kinds[at].state > 0 && kinds[at..].iter().filter(equal).any(|kind| kind.state == 0)
                };
                done.older_holders += u64::from((0..kinds.len()).any(younger));
                let faulty = |what: &str| -> ! {
                    let context = objects.describe();
                    panic!("forest {forest} quotas {quotas} rules {rules} kinds {numbers:?}: {what}\n{context}")
                };
                if let Err(fault) = quick_laws(&objects, &mut world) {
                    faulty(&fault);
                }
                for spec in &objects.workloads {
                    world.apply(Delta::RemoveWorkload(spec.uid.clone())).unwrap();
                }
                if done.tried % 16 == 0 {
                    done.compared += 1;
                    if let Err(fault) = agrees(&objects).and_then(|()| feeds_nobody(&objects)) {
                        faulty(&fault);
                    }
                }
            }
        }
    }
    done
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn laws_hold_in_every_small_world() {
    let stride = number("BERTH_WORLDS").unwrap_or(PLAIN);
    let began = std::time::Instant::now();
    let parts: Vec<_> = (0..2).map(|first| std::thread::spawn(move || part(first, stride))).collect();
    let parts: Vec<Done> = parts.into_iter().map(|part| part.join().unwrap()).collect();
    let total = |what: fn(&Done) -> u64| -> u64 { parts.iter().map(what).sum() };
    let (tried, compared) = (total(|done| done.tried), total(|done| done.compared));
    let (older_holders, seconds) = (total(|done| done.older_holders), began.elapsed().as_secs());
    println!("small worlds: {tried} tried in {seconds} s, {compared} of them compared with the oracle");
    println!("in {older_holders} of them somebody waits who is as important as a holder and younger");
    assert!(tried.abs_diff(TOTAL / stride) <= 2, "{tried} worlds, where there are {}", TOTAL / stride);
    assert!(older_holders * 10 > tried, "{older_holders} worlds with older holders only");
    if let Some(most) = number("BERTH_WORLDS_SECONDS") {
        assert!(tried >= 5_000_000, "{tried} worlds are fewer than five million");
        assert!(seconds <= most, "{tried} worlds took {seconds} s, and five million may take {most} s");
    }
}

/// Worlds in which the oracle once differed from the engine: forest, quotas, rules, kinds of workload. In the first world of the list, an eviction in the same
/// cycle forbids another eviction, because its victim would return to its strict queue before the next preemptor.
const DIFFERED: [(usize, usize, usize, [u8; 4]); 1] = [(1, 272, 17, [19, 0, 7, 27])];

#[test]
fn oracle_agrees_in_worlds_where_it_once_differed() {
    for (forest, quotas, rules, numbers) in DIFFERED {
        let mut objects = objects(forest, quotas, rules);
        objects.workloads = numbers.iter().enumerate().map(|(at, number)| workload(at, kind(*number))).collect();
        assert_eq!(agrees(&objects), Ok(()), "{}", objects.describe());
    }
}

#[test]
fn rule_table_contains_every_pair_of_rule_values() {
    let values = [2, 3, 3, 3, 3, 3, 3, 3];
    for first in 0..values.len() {
        for second in 0..first {
            let pairs: BTreeSet<(usize, usize)> = RULES.iter().map(|row| (row[first], row[second])).collect();
            assert_eq!(pairs.len(), values[first] * values[second], "rules {first} and {second}");
        }
    }
}
