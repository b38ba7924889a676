//! Laws over random worlds: what a plan may do to quota and workloads, lawful and lean preemption, an end to evictions, and
//! changes of the input that must not matter.

#[path = "oracle/mod.rs"]
mod slow;
mod worlds;

use std::collections::{BTreeMap, BTreeSet};

use berth_engine::*;
use slow::books::{Amounts, Fr, Node};
use slow::victims::{Plea, has_room, lawful};
use worlds::{Dice, Objects, amount, cases, random};

const NOW: Millis = Millis(1000);
const ALL: Limits = Limits { max_admissions: 1000 };

fn seeds() -> std::ops::Range<u64> {
    let first: u64 = std::env::var("BERTH_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    first..first + u64::from(cases())
}

/// What a plan does, with names mapped.
fn story(plan: &Plan, name: impl Fn(&str) -> String) -> Vec<String> {
    let mut story = Vec::new();
    for admission in &plan.admissions {
        let flavors: Vec<_> = admission.pod_sets.iter().flat_map(|set| set.flavors.clone()).collect();
        story.push(format!("admit {} {} {flavors:?}", name(&admission.uid), name(&admission.cluster_queue)));
    }
    for eviction in &plan.evictions {
        story.push(format!("evict {} for {} {}", name(&eviction.uid), name(&eviction.preemptor), eviction.reason));
    }
    for verdict in plan.verdicts.iter().filter(|verdict| verdict.leading) {
        story.push(format!("wait {} {:?}", name(&verdict.uid), verdict.reason));
    }
    story.sort();
    story
}

/// Lets a world run: victims leave and queue again, until nothing moves. Returns the rounds with evictions.
fn run_out(objects: &Objects, world: &mut World) -> Result<usize, String> {
    let mut specs: BTreeMap<String, WorkloadSpec> =
        objects.workloads.iter().map(|spec| (spec.uid.clone(), spec.clone())).collect();
    // Those that were on their way out when the world began leave for good.
    for spec in &objects.workloads {
        if matches!(&spec.state, WorkloadState::Reserved(held) if held.evicted) {
            world.apply(Delta::RemoveWorkload(spec.uid.clone())).unwrap();
        }
    }
    let mut evictions = Vec::new();
    for round in 0..40 {
        let plan = world.plan(NOW, ALL);
        if std::env::var_os("BERTH_SHOW").is_some() {
            println!("round {round}: {plan:#?}");
        }
        let faults = check(world);
        if !faults.is_empty() {
            return Err(format!("books: {faults:?}"));
        }
        for admission in &plan.admissions {
            let spec = specs.get_mut(&*admission.uid).unwrap();
            let whole = admission.pod_sets.iter().zip(&spec.pod_sets).all(|(given, set)| {
                given.name == set.name
                    && given.count >= set.min_count.unwrap_or(set.count)
                    && given.count <= set.count
                    && set.requests.keys().all(|resource| given.flavors.contains_key(resource))
            });
            if !whole || admission.pod_sets.len() != spec.pod_sets.len() {
                return Err(format!("not all or nothing: {admission:?}"));
            }
            let held = Reservation {
                cluster_queue: admission.cluster_queue.to_string(),
                pod_sets: admission.pod_sets.to_vec(),
                at: Millis(NOW.0 + round),
                saved: None,
                surplus: None,
                evicted: false,
            };
            let mut confirmed = spec.clone();
            confirmed.state = WorkloadState::Reserved(held);
            world.apply(Delta::Workload(confirmed)).unwrap();
        }
        if plan.evictions.is_empty() {
            let again = world.plan(NOW, ALL);
            if !again.admissions.is_empty() || !again.evictions.is_empty() {
                return Err(format!("a plan after a plan found more: {again:?}"));
            }
            let found = world.sweep(NOW);
            return if found == 0 { Ok(evictions.len()) } else { Err(format!("sweep found {found}")) };
        }
        evictions.push(story(&plan, str::to_owned));
        for eviction in &plan.evictions {
            let spec = specs.get_mut(&eviction.uid).unwrap();
            spec.revision += 1;
            spec.waits_since = NOW;
            spec.state = WorkloadState::Pending { not_before: None, blocked: false };
            world.apply(Delta::Workload(spec.clone())).unwrap();
        }
    }
    let last = evictions.split_off(evictions.len() - 6);
    Err(format!("evictions without end, the last:\n{last:#?}"))
}

#[test]
fn evictions_come_to_an_end_and_leave_nothing_to_do() {
    let mut rounds = [0_u32; 8];
    for seed in seeds() {
        let objects = random(seed);
        match run_out(&objects, &mut objects.world()) {
            Ok(count) => rounds[count.min(7)] += 1,
            Err(_) => {
                let small = objects.shrink(|objects| run_out(objects, &mut objects.world()).is_err());
                panic!("seed {seed}\n{}{}", small.describe(), run_out(&small, &mut small.world()).unwrap_err());
            }
        }
    }
    println!("rounds with evictions: {rounds:?}");
    assert!(cases() < 1000 || rounds[1] > cases() / 20, "too tame: {rounds:?}");
}

#[test]
fn a_plan_puts_no_queue_over_its_quota() {
    for seed in seeds() {
        let objects = random(seed);
        let mut world = objects.world();
        let before: BTreeSet<String> = world.over_quota().into_iter().collect();
        let plan = world.plan(NOW, ALL);
        let fresh: Vec<String> = world.over_quota().into_iter().filter(|fault| !before.contains(fault)).collect();
        assert!(fresh.is_empty(), "seed {seed}: {fresh:?}\n{}{plan:?}", objects.describe());
        // The same figures, counted from the objects.
        let mut after = slow::books(&objects.cohorts, &objects.queues, &objects.workloads);
        for admission in &plan.admissions {
            let given = &admission.pod_sets[0];
            let usage = given.usage.iter().map(|(resource, value)| {
                ((given.flavors[resource].clone(), resource.clone()), i128::from(value.get()))
            });
            after.booked.push((admission.cluster_queue.to_string(), usage.collect()));
        }
        for queue in after.queues.keys() {
            for fr in after.all_frs() {
                let node = Node::Queue(queue.clone());
                let (available, _) = world.availability(queue, &fr.0, &fr.1).unwrap_or_default();
                let counted = after.available(&node, &fr).max(0);
                assert_eq!(i128::from(available.get()), counted, "seed {seed} {queue} {fr:?}");
            }
        }
        for cohort in after.cohorts.keys() {
            let figures = world.share(cohort, false, &BTreeMap::new()).unwrap();
            assert_eq!(figures.share, after.share(&Node::Cohort(cohort.clone())), "seed {seed} {cohort}");
        }
    }
}

/// Bounds of preemption, of which most queues set some.
fn random_guard(dice: &mut Dice) -> PreemptionGuard {
    PreemptionGuard {
        min_priority_difference: dice.pick(&[0, 0, 1, 2]),
        protected_ms: dice.pick(&[0, 0, 998, 10_000]),
        max_victims: dice.pick(&[None, Some(0), Some(1), Some(2)]),
        max_evicted_percent: dice.pick(&[None, Some(100), Some(150), Some(300)]),
    }
}

#[test]
fn what_is_evicted_stays_within_the_bounds_of_policies() {
    let (mut bounded, mut shares) = (0, 0);
    for seed in seeds() {
        let mut objects = random(seed);
        let mut dice = Dice::new(seed ^ 0x6a09_e667);
        for queue in &mut objects.queues {
            queue.guard = random_guard(&mut dice);
        }
        let books = slow::books(&objects.cohorts, &objects.queues, &objects.workloads);
        let plan = objects.world().plan(NOW, ALL);
        let spec = |uid: &str| objects.workloads.iter().find(|spec| spec.uid == uid).unwrap();
        let mut victims = BTreeMap::<&str, Vec<&WorkloadSpec>>::new();
        for eviction in &plan.evictions {
            victims.entry(&eviction.preemptor).or_default().push(spec(&eviction.uid));
        }
        for (preemptor, victims) in &victims {
            let preemptor = spec(preemptor);
            let guard = objects.queues.iter().find(|queue| queue.name == preemptor.local_queue).unwrap().guard;
            bounded += usize::from(guard != PreemptionGuard::default());
            let told = || format!("seed {seed}: {victims:#?} for {preemptor:#?} under {guard:?}");
            let most = guard.max_victims.map_or(usize::MAX, |most| most as usize);
            assert!(victims.len() <= most, "{}", told());
            for victim in victims {
                let difference = preemptor.priority - victim.priority;
                let least = guard.min_priority_difference;
                assert!(least <= 0 || difference >= least, "too near: {}", told());
                // One that was pending got its quota in this very plan.
                let at = match &victim.state {
                    WorkloadState::Reserved(held) => held.at,
                    WorkloadState::Pending { .. } => NOW,
                };
                let theirs = objects.queues.iter().find(|queue| queue.name == victim.local_queue).unwrap().guard;
                let protected = theirs.protected_ms > 0 && at.0 + theirs.protected_ms > NOW.0;
                assert!(!protected, "protected: {}", told());
            }
            // With one flavor and one preemptor it is plain what was contested.
            let alone = plan.admissions.is_empty() && plan.evictions.iter().all(|e| e.preemptor == preemptor.uid);
            let flavors = objects.queues.iter().flat_map(|queue| &queue.groups).map(|group| group.flavors.len()).max();
            let Some(percent) = guard.max_evicted_percent.filter(|_| alone && flavors == Some(1)) else { continue };
            for (resource, asked) in &preemptor.pod_sets[0].requests {
                let (fr, asked) = (("f0".to_owned(), resource.clone()), i128::from(asked.get()));
                if asked <= books.available(&Node::Queue(preemptor.local_queue.clone()), &fr).max(0) {
                    continue;
                }
                let holds = |victim: &&&WorkloadSpec| books.holders.iter().find(|holder| holder.uid == victim.uid);
                let given = victims.iter().filter_map(|victim| holds(&victim)?.usage.get(&fr).copied());
                let evicted: i128 = given.sum();
                shares += 1;
                assert!(evicted * 100 <= asked * i128::from(percent), "too much of {resource}: {}", told());
            }
        }
    }
    assert!(cases() < 1000 || (bounded > 100 && shares > 20), "too tame: {bounded} {shares}");
}

#[test]
fn preemption_is_lawful_and_lean() {
    let mut sets = 0;
    for seed in seeds() {
        let objects = random(seed);
        let mut world = objects.world();
        let books = slow::books(&objects.cohorts, &objects.queues, &objects.workloads);
        for spec in objects.workloads.iter().filter(|spec| matches!(spec.state, WorkloadState::Pending { .. })) {
            let wanted: Vec<(Fr, i128)> = spec.pod_sets[0]
                .requests
                .iter()
                .map(|(resource, value)| (("f0".to_owned(), resource.clone()), i128::from(value.get())))
                .collect();
            let node = Node::Queue(spec.local_queue.clone());
            let lacks = |(fr, value): &&(Fr, i128)| *value > books.available(&node, fr).max(0);
            let needs: Vec<Fr> = wanted.iter().filter(lacks).map(|(fr, _)| fr.clone()).collect();
            let usage: Amounts = wanted.iter().filter(|(_, value)| *value > 0).cloned().collect();
            let cell = |fr: &Fr| FlavorResource { flavor: fr.0.clone(), resource: fr.1.clone() };
            let cells: Vec<FlavorResource> = needs.iter().map(cell).collect();
            let asked = usage.iter().map(|(fr, value)| (cell(fr), amount(u64::try_from(*value).unwrap()))).collect();
            let victims = world.victims(&spec.uid, &spec.local_queue, &cells, &asked).unwrap();
            if victims.is_empty() {
                continue;
            }
            sets += 1;
            let queue = spec.local_queue.as_str();
            let plea = Plea { queue, priority: spec.priority, queued_at: spec.queued_at, needs, usage };
            let uids: Vec<String> = victims.iter().map(|(uid, _)| uid.clone()).collect();
            let policy = books.queues[queue].preemption;
            for uid in &uids {
                let holder = books.holders.iter().find(|holder| holder.uid == *uid).unwrap();
                let (own, other) = (policy.within_cluster_queue, policy.reclaim_within_cohort);
                let rule = if holder.queue == queue { own } else { other };
                assert!(lawful(rule, &plea, holder), "seed {seed}: {uid} for {}\n{}", spec.uid, objects.describe());
                let touches = plea.needs.iter().any(|fr| holder.usage.contains_key(fr));
                assert!(touches, "seed {seed}: {uid} holds nothing that {} needs", spec.uid);
            }
            let lean = [true, false].iter().any(|borrow| {
                has_room(&books.without(&uids), &plea, *borrow)
                    && uids.iter().all(|kept| {
                        let others: Vec<String> = uids.iter().filter(|uid| *uid != kept).cloned().collect();
                        !has_room(&books.without(&others), &plea, *borrow)
                    })
            });
            assert!(lean, "seed {seed}: {victims:?} for {}\n{}", spec.uid, objects.describe());
        }
    }
    println!("sets of victims {sets}");
    assert!(cases() < 1000 || sets > cases() / 20);
}

fn permuted(objects: &Objects, seed: u64) -> Objects {
    let mut dice = Dice::new(seed ^ 0xABCD);
    let mut objects = objects.clone();
    for index in (1..objects.workloads.len()).rev() {
        objects.workloads.swap(index, dice.below(index as u64 + 1) as usize);
    }
    objects.queues.reverse();
    objects.cohorts.reverse();
    objects
}

fn renamed(objects: &Objects) -> Objects {
    let mut objects = objects.clone();
    let name = |name: &mut String| *name = format!("n-{name}");
    for cohort in &mut objects.cohorts {
        name(&mut cohort.name);
        cohort.parent.iter_mut().for_each(name);
    }
    for queue in &mut objects.queues {
        name(&mut queue.name);
        queue.cohort.iter_mut().for_each(name);
    }
    for workload in &mut objects.workloads {
        name(&mut workload.uid);
        name(&mut workload.local_queue);
        if let WorkloadState::Reserved(held) = &mut workload.state {
            name(&mut held.cluster_queue);
        }
    }
    objects
}

fn scaled(objects: &Objects) -> Objects {
    let mut objects = objects.clone();
    let scale = |amount: &mut Amount| *amount = Amount::new(amount.get() * 4096);
    let queues = objects.queues.iter_mut().flat_map(|queue| &mut queue.groups);
    for group in queues.chain(objects.cohorts.iter_mut().flat_map(|cohort| &mut cohort.groups)) {
        for quota in group.flavors.iter_mut().flat_map(|flavor| &mut flavor.quotas) {
            scale(&mut quota.nominal);
            quota.borrowing_limit.iter_mut().for_each(scale);
            quota.lending_limit.iter_mut().for_each(scale);
        }
    }
    for workload in &mut objects.workloads {
        workload.pod_sets[0].requests.values_mut().for_each(scale);
        if let WorkloadState::Reserved(held) = &mut workload.state {
            held.pod_sets[0].usage.values_mut().for_each(scale);
        }
    }
    objects
}

fn with_strangers(objects: &Objects, seed: u64) -> Objects {
    let strangers = renamed(&random(seed + 1_000_003));
    let mut objects = objects.clone();
    objects.cohorts.extend(strangers.cohorts);
    objects.queues.extend(strangers.queues);
    objects.workloads.extend(strangers.workloads);
    objects
}

#[test]
fn what_must_not_matter_does_not() {
    for seed in seeds() {
        let objects = random(seed);
        let plan = objects.world().plan(NOW, ALL);
        let told = story(&plan, str::to_owned);
        let strip = |name: &str| name.strip_prefix("n-").unwrap_or(name).to_owned();
        let context = || format!("seed {seed}\n{}", objects.describe());
        let again = objects.world().plan(NOW, ALL);
        assert_eq!(format!("{plan:?}"), format!("{again:?}"), "twice: {}", context());
        let other = permuted(&objects, seed).world().plan(NOW, ALL);
        assert_eq!(told, story(&other, str::to_owned), "permuted: {}", context());
        let other = renamed(&objects).world().plan(NOW, ALL);
        assert_eq!(told, story(&other, strip), "renamed: {}", context());
        let other = scaled(&objects).world().plan(NOW, ALL);
        assert_eq!(told, story(&other, str::to_owned), "scaled: {}", context());
        let other = with_strangers(&objects, seed).world().plan(NOW, ALL);
        let mine: Vec<String> = story(&other, str::to_owned).into_iter().filter(|line| !line.contains(" n-")).collect();
        assert_eq!(told, mine, "with strangers: {}", context());
    }
}

/// One plan walks several heads per queue; Kueue's cycles, run one after another, do the same.
#[test]
fn a_plan_is_kueues_cycles_one_after_another() {
    for seed in seeds() {
        let objects = random(seed);
        let mut told = story(&objects.world().plan(NOW, ALL), str::to_owned);
        told.retain(|line| !line.starts_with("wait"));
        let (mut world, mut steps, mut quiet) = (objects.world(), Vec::new(), 0);
        // A cycle that only goes on scanning flavors moves nothing.
        while quiet < 8 {
            let mut step = story(&world.plan_cycles(NOW, ALL, 1), str::to_owned);
            step.retain(|line| !line.starts_with("wait"));
            quiet = if step.is_empty() { quiet + 1 } else { 0 };
            steps.extend(step);
        }
        steps.sort();
        assert_eq!(told, steps, "seed {seed}\n{}", objects.describe());
    }
}

#[test]
fn more_quota_takes_nothing_away() {
    for seed in seeds() {
        let mut objects = random(seed);
        objects.cohorts.clear();
        for queue in &mut objects.queues {
            queue.cohort = None;
            queue.preemption = Preemption::default();
            queue.strategy = Strategy::StrictFifo;
            // A second flavor would let the first workload take another way.
            queue.groups[0].flavors.truncate(1);
        }
        let before = objects.world().plan(NOW, ALL);
        let mut dice = Dice::new(seed);
        for queue in &mut objects.queues {
            for quota in queue.groups[0].flavors.iter_mut().flat_map(|flavor| &mut flavor.quotas) {
                quota.nominal = Amount::new(quota.nominal.get() + dice.below(3) as i64);
            }
        }
        let after: BTreeSet<String> =
            objects.world().plan(NOW, ALL).admissions.into_iter().map(|a| a.uid.to_string()).collect();
        for admission in before.admissions {
            assert!(after.contains(&*admission.uid), "seed {seed}: {} is out\n{}", admission.uid, objects.describe());
        }
    }
}
