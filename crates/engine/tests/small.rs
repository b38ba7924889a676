//! Small worlds, enumerated: three queues in one of two forests, two flavors, four workloads, amounts 0 to 2, two priorities, a
//! pairwise set of policies, and worlds that differ only in the order of workloads counted once.
//!
//! `BERTH_WORLDS` says which part is tried: every n-th world, 1 is all of them; a plain test run takes every 331st.

#[path = "oracle/mod.rs"]
mod slow;
mod worlds;

use std::collections::{BTreeMap, BTreeSet};

use berth_engine::*;
use worlds::{Objects, amount, hold, pending, queue};

const NOW: Millis = Millis(1000);
const ALL: Limits = Limits { max_admissions: 100 };
const QUEUES: [&str; 3] = ["q0", "q1", "q2"];

/// Nominal quotas of the two flavors, per queue: every combination of these.
const QUOTAS: [[u64; 2]; 3] = [[1, 1], [2, 0], [0, 1]];

/// Four rules with three values each; every pair of values occurs once.
const RULES: [[usize; 4]; 9] = [
    [0, 0, 0, 0],
    [0, 1, 1, 2],
    [0, 2, 2, 1],
    [1, 0, 1, 1],
    [1, 1, 2, 0],
    [1, 2, 0, 2],
    [2, 0, 2, 2],
    [2, 1, 0, 1],
    [2, 2, 1, 0],
];

/// Below which cohort each queue is.
const FORESTS: [[&str; 3]; 2] = [["x", "x", "x"], ["x", "y", "y"]];

fn objects(forest: usize, quotas: usize, rules: usize) -> Objects {
    let [within, reclaim, scan, mode] = RULES[rules];
    let mut objects = Objects::default();
    if mode > 0 {
        let strategies = if mode == 1 { vec![] } else { vec![ShareStrategy::LessThanInitialShare] };
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
        let [first, second] = QUOTAS[quotas / 3_usize.pow(u32::try_from(index).unwrap()) % 3];
        let quota = |nominal| Quota { nominal: amount(nominal), borrowing_limit: None, lending_limit: None };
        let flavor = |name: &str, nominal| FlavorQuotas { flavor: name.to_owned(), quotas: vec![quota(nominal)] };
        let flavors = vec![flavor("f0", first), flavor("f1", second)];
        let groups = vec![ResourceGroup { covered: vec!["cpu".into()], flavors }];
        let mut spec = queue(name, Some(FORESTS[forest][index]), groups);
        let policies =
            [PreemptionPolicy::Never, PreemptionPolicy::LowerPriority, PreemptionPolicy::LowerOrNewerEqualPriority];
        spec.preemption.within_cluster_queue = policies[within];
        spec.preemption.reclaim_within_cohort =
            [PreemptionPolicy::Never, PreemptionPolicy::LowerPriority, PreemptionPolicy::Any][reclaim];
        spec.preemption.borrow_within_cohort = reclaim == 1;
        if scan > 0 {
            spec.fungibility.when_can_preempt = Fungibility::MayStopSearch;
        }
        if scan == 2 {
            spec.fungibility.when_can_borrow = Fungibility::TryNextFlavor;
        }
        objects.queues.push(spec);
    }
    objects
}

/// Queue, priority, amount and state of a workload by number; amount 0 only waits.
const KINDS: usize = 3 * 2 * 7;

fn workload(index: usize, kind: usize) -> WorkloadSpec {
    let (queue, rest) = (QUEUES[kind % 3], kind / 3);
    let (priority, rest) = (i32::try_from(rest % 2).unwrap(), rest / 2);
    let (asked, state) = if rest == 6 { (0, 0) } else { (1 + rest as u64 % 2, rest / 2) };
    let at = i64::try_from(index).unwrap();
    let mut spec = pending(&format!("w{index}"), queue, priority, at, &[("cpu", asked)]);
    if state > 0 {
        hold(&mut spec, ["f0", "f1"][state - 1], at, false);
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
            spec.state = WorkloadState::Pending { not_before: None, blocked: false };
            world.apply(Delta::Workload(spec.clone())).unwrap();
        }
    }
    Err(format!("evictions without end ({last} rounds)"))
}

fn decided(world: &mut World) -> (BTreeSet<String>, BTreeSet<(String, String, &'static str)>) {
    let plan = world.plan_cycles(NOW, ALL, 1);
    let admitted = plan.admissions.into_iter().map(|admission| admission.uid.to_string()).collect();
    (admitted, plan.evictions.into_iter().map(|e| (e.uid, e.preemptor, e.reason)).collect())
}

/// Runs one part of the worlds; returns how many it tried and how many it compared with the oracle.
fn part(forest: usize, stride: u64) -> (u64, u64) {
    let (mut number, mut tried, mut compared) = (0_u64, 0_u64, 0_u64);
    for quotas in 0..27 {
        for rules in 0..RULES.len() {
            let mut objects = objects(forest, quotas, rules);
            let mut world = objects.world();
            let mut kinds = [0_usize; 4];
            loop {
                number += 1;
                if number % stride == 0 {
                    objects.workloads = kinds.iter().enumerate().map(|(at, kind)| workload(at, *kind)).collect();
                    for spec in &objects.workloads {
                        world.apply(Delta::Workload(spec.clone())).unwrap();
                    }
                    tried += 1;
                    let faulty = |what: &str| -> ! {
                        let context = objects.describe();
                        panic!("forest {forest} quotas {quotas} rules {rules} kinds {kinds:?}: {what}\n{context}")
                    };
                    if let Err(fault) = quick_laws(&objects, &mut world) {
                        faulty(&fault);
                    }
                    for spec in &objects.workloads {
                        world.apply(Delta::RemoveWorkload(spec.uid.clone())).unwrap();
                    }
                    if tried % 16 == 0 {
                        compared += 1;
                        let books = slow::books(&objects.cohorts, &objects.queues, &objects.workloads);
                        let slow = slow::cycle(&objects.options, books, &objects.workloads, NOW);
                        let fast = decided(&mut objects.world());
                        if fast != (slow.admitted.keys().cloned().collect(), slow.evicted.clone()) {
                            faulty(&format!("engine {fast:?} oracle {slow:?}"));
                        }
                    }
                }
                // The next sorted choice of four kinds.
                let Some(at) = (0..4).rev().find(|at| kinds[*at] + 1 < KINDS) else { break };
                let next = kinds[at] + 1;
                kinds[at..].fill(next);
            }
        }
    }
    (tried, compared)
}

#[test]
fn laws_hold_in_every_small_world() {
    let stride: u64 = std::env::var("BERTH_WORLDS").ok().and_then(|text| text.parse().ok()).unwrap_or(331);
    let parts: Vec<_> = (0..2).map(|forest| std::thread::spawn(move || part(forest, stride))).collect();
    let (mut tried, mut compared) = (0, 0);
    for part in parts {
        let (worlds, oracle) = part.join().unwrap();
        tried += worlds;
        compared += oracle;
    }
    println!("small worlds: {tried} tried, {compared} of them compared with the oracle");
    assert!(tried * stride > 40_000_000, "{tried} worlds only");
}
