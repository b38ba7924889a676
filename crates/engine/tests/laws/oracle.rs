//! The engine agrees with the oracle, a slow and obvious scheduler, on random worlds: in single cycles, and in whole plans with the events after them.
//!
//! A failed law prints its seed and the smallest set of workloads that fails; `BERTH_SEED=<seed> BERTH_CASES=1` repeats the failure.

use std::collections::{BTreeMap, BTreeSet};

use crate::slow;
use crate::slow::Decided;
use crate::slow::accounting::Node;
use crate::slow::assign::Start;
use crate::slow::history::{History, Step};
use crate::slow::usage::LocalQueues;
use crate::worlds;
use crate::worlds::by_usage::by_usage;
use crate::worlds::{Named, Objects, cases, gates, mixed, random, shrinking};
use berth_engine::*;

const NOW: Millis = Millis(1000);
const ALL: Limits = Limits { max_admissions: 1000 };
/// Number of rounds in which victims leave and all workloads are tried again.
const ROUNDS: usize = 5;

/// Turns off the feature gates that are off in the world of the seed, as far as the oracle knows these gates.
fn gated(mut objects: Objects, seed: u64) -> Objects {
    let known = gates(seed);
    objects.options.gates = Gates { flavor_fungibility: true, recompute_overlap: true, park_equals: true, ..known };
    objects
}

/// A world with Kueue's decisions to the letter: with Kueue's own gates and profile.
fn as_kueue(mut objects: Objects) -> Objects {
    objects.options.profile = Profile::KueueLetter;
    objects.options.gates.prioritize_preemptors = false;
    objects
}

/// A world in which LocalQueue usage orders most queues, and some workloads start with fewer pods.
fn ordered(seed: u64) -> Objects {
    let objects = gated(random(seed), seed);
    by_usage(if seed.is_multiple_of(3) { shrinking(objects, seed) } else { objects }, seed)
}

/// A copy of the world without the order of workloads by LocalQueue usage.
fn unordered(objects: &Objects) -> Objects {
    let mut objects = objects.clone();
    objects.options.admission_fair_sharing = None;
    objects
}

/// The world, or `None` if fair shares have amounts so large that the engine's shares are not exact.
fn known(objects: Objects) -> Option<Objects> {
    let groups = objects.queues.iter().flat_map(|queue| &queue.groups);
    let groups = groups.chain(objects.cohorts.iter().flat_map(|cohort| &cohort.groups));
    let quotas = groups.flat_map(|group| group.flavors.iter().flat_map(|flavor| &flavor.quotas));
    let is_small = |quota: &Quota| quota.nominal.get() < 1 << 42;
    (objects.options.fair_sharing.is_none() || quotas.into_iter().all(is_small)).then_some(objects)
}

fn start(sets: &[PodSetAssignment]) -> Start {
    sets.iter().map(|set| (set.count, set.flavors.clone())).collect()
}

fn fast(objects: &Objects) -> Decided {
    let plan = objects.world().plan_cycles(NOW, ALL, 1);
    Decided {
        admitted: plan.admissions.iter().map(|a| (a.uid.to_string(), start(&a.pod_sets))).collect(),
        evicted: plan.evictions.into_iter().map(|e| (e.uid, e.preemptor, e.reason)).collect(),
        waiting: plan.verdicts.into_iter().filter(|v| v.leading).map(|v| (v.uid.to_string(), v.reason)).collect(),
    }
}

fn history(objects: &Objects) -> History<'_> {
    let accounting = slow::accounting(&objects.cohorts, &objects.queues, &objects.workloads);
    let local_queues = LocalQueues::new(&objects.options, &objects.queues, &objects.local_queues, &objects.ledgers);
    History::new(&objects.options, local_queues, accounting, &objects.workloads, NOW)
}

fn slow(objects: &Objects) -> Decided {
    slow::first_cycle(history(objects))
}

/// The decision of the first cycle in the world of a seed, by the engine and the oracle. If the two differ, the panic message has the smallest world in which
/// they differ.
fn agreed(objects: &Objects, seed: u64) -> Decided {
    let (fast_one, slow_one) = (fast(objects), slow(objects));
    if fast_one != slow_one {
        let small = objects.clone().shrink(|objects| fast(objects) != slow(objects));
        panic!("seed {seed}\n{}engine: {:?}\noracle: {:?}", small.describe(), fast(&small), slow(&small));
    }
    slow_one
}

/// Compares engine and oracle in every second world from `first` on; returns the numbers of cycles that admit, preempt and leave heads pending.
fn part(first: u64, count: u64) -> [u64; 3] {
    let mut seen = [0; 3];
    for seed in (first..first + count).step_by(2) {
        let _named = Named(seed);
        let objects = gated(random(seed), seed);
        let objects = if seed % 4 < 2 { objects } else { as_kueue(objects) };
        let decided = agreed(&objects, seed);
        seen[0] += u64::from(!decided.admitted.is_empty());
        seen[1] += u64::from(!decided.evicted.is_empty());
        seen[2] += u64::from(!decided.waiting.is_empty());
    }
    seen
}

/// Runs two halves of the cases side by side and adds their counts.
fn halves<const N: usize>(count: u64, part: fn(u64, u64) -> [u64; N]) -> [u64; N] {
    let first = worlds::seeds().start;
    let parts: Vec<_> = (0..2).map(|index| std::thread::spawn(move || part(first + index, count - index))).collect();
    let mut sums = [0; N];
    for seen in parts.into_iter().map(|part| part.join().unwrap()) {
        for (sum, more) in sums.iter_mut().zip(seen) {
            *sum += more;
        }
    }
    sums
}

#[test]
fn single_cycle_equals_that_of_the_oracle() {
    let count = u64::from(cases());
    let seen = halves(count, part);
    println!("of {count} cycles {} admit, {} preempt, {} leave heads", seen[0], seen[1], seen[2]);
    assert!(count < 1000 || seen.iter().all(|seen| *seen > count / 50), "too tame: {seen:?}");
}

/// Compares engine and oracle in every second world from `first` on, in turn with Kueue's decisions and with Berth's. Returns the number of cycles in which
/// LocalQueue usage changes the heads, and the number of cycles in which it changes only the victims of the heads.
fn part_by_usage(first: u64, count: u64) -> [u64; 2] {
    let mut seen = [0; 2];
    for seed in (first..first + count).step_by(2) {
        let _named = Named(seed);
        let objects = ordered(seed);
        let objects = if seed % 4 < 2 { objects } else { as_kueue(objects) };
        let (decided, otherwise) = (agreed(&objects, seed), slow(&unordered(&objects)));
        let are_same = decided.heads() == otherwise.heads();
        seen[0] += u64::from(!are_same);
        seen[1] += u64::from(are_same && decided.evicted != otherwise.evicted);
    }
    seen
}

/// LocalQueue usage decides about the head of a queue, and about the head's victims among several candidates.
#[test]
fn single_cycle_by_usage_equals_that_of_the_oracle() {
    let count = u64::from(cases());
    let [heads, victims] = halves(count, part_by_usage);
    println!("of {count} cycles usage changes heads in {heads}, and victims of the same heads in {victims}");
    assert!(count < 1000 || heads > count / 50, "too tame: {heads} cycles with other heads");
    assert!(count < 50_000 || victims > count / 2000, "too tame: {victims} cycles with other victims");
}

/// Results of a plan in one cohort tree: admissions and preemptions in their order, and the reasons of the other heads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Story {
    admitted: Vec<(String, Start)>,
    evicted: Vec<(String, BTreeSet<(String, &'static str)>)>,
    waiting: BTreeMap<String, PendingReason>,
}

/// Results by cohort tree, without trees in which nothing happens.
type Stories = BTreeMap<Node, Story>;

fn root(objects: &Objects, queue: &str) -> Node {
    slow::accounting(&objects.cohorts, &objects.queues, &[]).line(&Node::Queue(queue.to_owned())).pop().unwrap()
}

/// Whether reasons are compared: with several resource groups they are not, because the order of their reasons may differ.
fn reports_reasons(objects: &Objects) -> bool {
    objects.queues.iter().all(|queue| queue.groups.len() == 1)
}

fn fast_story(objects: &Objects, plan: &Plan) -> Stories {
    let mut stories = Stories::new();
    let queue_of = |uid: &str| objects.queue_of(objects.workloads.iter().find(|spec| spec.uid == uid).unwrap());
    let mut of = |uid: &str, change: &mut dyn FnMut(&mut Story)| {
        change(stories.entry(root(objects, queue_of(uid))).or_default());
    };
    for admission in &plan.admissions {
        let given = (admission.uid.to_string(), start(&admission.pod_sets));
        of(&admission.uid, &mut |story| story.admitted.push(given.clone()));
    }
    for eviction in &plan.evictions {
        let victim = (eviction.uid.clone(), eviction.reason);
        of(&eviction.preemptor, &mut |story| match story.evicted.last_mut() {
            Some((preemptor, victims)) if *preemptor == eviction.preemptor => {
                victims.insert(victim.clone());
            }
            _ => story.evicted.push((eviction.preemptor.clone(), BTreeSet::from([victim.clone()]))),
        });
    }
    for verdict in plan.verdicts.iter().filter(|verdict| verdict.leading && reports_reasons(objects)) {
        of(&verdict.uid, &mut |story| {
            story.waiting.insert(verdict.uid.to_string(), verdict.reason);
        });
    }
    stories
}

fn slow_story(objects: &Objects, steps: BTreeMap<Node, Vec<Step>>) -> Stories {
    let mut stories = Stories::new();
    for (root, steps) in steps {
        let mut story = Story::default();
        for step in steps {
            match step {
                Step::Admit(uid, start) => {
                    story.waiting.remove(&uid);
                    story.admitted.push((uid, start));
                }
                Step::Preempt(uid, victims) => {
                    story.waiting.insert(uid.clone(), PendingReason::WaitingForPreemptedWorkloads);
                    match story.evicted.last_mut() {
                        Some((preemptor, known)) if *preemptor == uid => known.extend(victims),
                        _ if victims.is_empty() => {}
                        _ => story.evicted.push((uid, victims)),
                    }
                }
                Step::Wait(uid, reason) => {
                    story.waiting.insert(uid, reason);
                }
            }
        }
        if !reports_reasons(objects) {
            story.waiting.clear();
        }
        if story != Story::default() {
            stories.insert(root, story);
        }
    }
    stories
}

/// Counts of the comparison of engine and oracle in a world.
#[derive(Default)]
struct Compared {
    plans: u64,
    admit: u64,
    preempt: u64,
    /// Number of steps of the longest plan.
    longest: usize,
    /// Number of workloads that started with fewer pods than requested.
    reduced: u64,
    /// Number of workloads that started with fewer pods and had victims before.
    after_victims: u64,
}

fn is_reduced(objects: &Objects, admission: &Admission) -> bool {
    let spec = objects.workloads.iter().find(|spec| spec.uid == *admission.uid).unwrap();
    admission.pod_sets.iter().zip(&spec.pod_sets).any(|(given, set)| given.count < set.count)
}

/// Runs a world with the engine and with the oracle; victims leave for good after each plan.
fn compare(objects: &Objects) -> Result<Compared, String> {
    let mut world = objects.world();
    let mut history = history(objects);
    let mut seen = Compared::default();
    let mut preemptors = BTreeSet::<String>::new();
    for round in 0..ROUNDS {
        let plan = world.plan(NOW, ALL);
        let (fast, slow) = (fast_story(objects, &plan), slow_story(objects, history.plan()));
        if fast != slow {
            return Err(format!("round {round}\nengine: {fast:#?}\noracle: {slow:#?}"));
        }
        seen.plans += 1;
        seen.admit += u64::from(!plan.admissions.is_empty());
        seen.preempt += u64::from(!plan.evictions.is_empty());
        seen.longest = seen.longest.max(plan.admissions.len() + plan.evictions.len());
        for admission in plan.admissions.iter().filter(|admission| is_reduced(objects, admission)) {
            seen.reduced += 1;
            seen.after_victims += u64::from(preemptors.contains(&*admission.uid));
        }
        preemptors.extend(plan.evictions.into_iter().map(|eviction| eviction.preemptor));
        let gone = history.let_leave();
        if gone.is_empty() {
            break;
        }
        for uid in gone {
            world.apply(Delta::RemoveWorkload(uid)).unwrap();
        }
    }
    Ok(seen)
}

/// The counts of [`compare`] in the world of a seed. If engine and oracle differ, the panic message has the smallest world in which they differ.
fn compared(objects: &Objects, seed: u64) -> Compared {
    compare(objects).unwrap_or_else(|_| {
        let small = objects.clone().shrink(|objects| compare(objects).is_err());
        panic!("seed {seed}\n{}{}", small.describe(), compare(&small).err().unwrap_or_default())
    })
}

/// The results of the engine's first plan.
fn stories(objects: &Objects) -> Stories {
    fast_story(objects, &objects.world().plan(NOW, ALL))
}

/// Compares engine and oracle in every second world from `first` on, in each world with Kueue's decisions and with Berth's. Returns the number of plans, the
/// numbers of plans that admitted and preempted, the number of worlds with a plan of more than two steps, and the number of worlds in which Berth's plan
/// differs from Kueue's.
fn complete(first: u64, count: u64) -> [u64; 5] {
    let mut seen = [0; 5];
    for seed in (first..first + count).step_by(2) {
        let _named = Named(seed);
        let Some(objects) = known(gated(mixed(seed), seed)) else { continue };
        let ways = [objects.clone(), as_kueue(objects)];
        for objects in &ways {
            let Compared { plans, admit, preempt, longest, .. } = compared(objects, seed);
            let more = [plans, admit, preempt, u64::from(longest > 2)];
            seen.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
        seen[4] += u64::from(stories(&ways[0]) != stories(&ways[1]));
    }
    seen
}

/// A plan of the engine tries several heads of each queue, and equal workloads once. The oracle runs Kueue's cycles one after another, tries one head of each
/// queue in each cycle, and keeps only the state that Kueue keeps.
#[test]
fn plan_equals_cycles_of_the_oracle_in_sequence() {
    let count = u64::from(cases());
    let [plans, admit, preempt, long, differ] = halves(count, complete);
    println!(
        "{count} worlds: {plans} plans, {admit} admit, {preempt} preempt, {long} of several steps; in {differ} worlds Berth departs from Kueue"
    );
    assert!(count < 1000 || [admit, preempt, long].iter().all(|seen| *seen > count / 20), "too tame");
    assert!(count < 1000 || differ > count / 200, "too tame: {differ} worlds in which Berth departs from Kueue");
}

/// Compares engine and oracle in every second world from `first` on, in turn with Kueue's decisions and with Berth's. Returns the number of plans that
/// preempted, the number of worlds with a plan of more than two steps, and the number of these worlds in which LocalQueue usage changes the first plan.
fn complete_by_usage(first: u64, count: u64) -> [u64; 3] {
    let mut seen = [0; 3];
    for seed in (first..first + count).step_by(2) {
        let _named = Named(seed);
        let objects = ordered(seed);
        let objects = if seed % 4 < 2 { objects } else { as_kueue(objects) };
        let Compared { preempt, longest, .. } = compared(&objects, seed);
        seen[0] += preempt;
        if longest > 2 {
            seen[1] += 1;
            seen[2] += u64::from(stories(&objects) != stories(&unordered(&objects)));
        }
    }
    seen
}

/// The charge of an admission decides which LocalQueue is tried next, and the charge of a workload that has left does not count any more.
#[test]
fn plan_by_usage_equals_cycles_of_the_oracle_in_sequence() {
    let count = u64::from(cases());
    let [preempt, long, changed] = halves(count, complete_by_usage);
    println!("{count} worlds: {preempt} plans preempt, {long} of several steps, of which usage changes {changed}");
    assert!(count < 1000 || [preempt, long].iter().all(|seen| *seen > count / 50), "too tame: {preempt} {long}");
    assert!(count < 1000 || changed > count / 100, "too tame: {changed} plans that usage changes");
}

/// Compares engine and oracle in every second world from `first` on, in turn with Kueue's decisions and with Berth's. Returns the number of plans that
/// preempted, the number of workloads that started with fewer pods than requested, and the number of these workloads that had victims.
fn reduced(first: u64, count: u64) -> [u64; 3] {
    let mut seen = [0; 3];
    for seed in (first..first + count).step_by(2) {
        let _named = Named(seed);
        let Some(objects) = known(shrinking(mixed(seed), seed)) else { continue };
        let objects = if seed % 4 < 2 { objects } else { as_kueue(objects) };
        let Compared { preempt, reduced, after_victims, .. } = compared(&objects, seed);
        seen.iter_mut().zip([preempt, reduced, after_victims]).for_each(|(sum, more)| *sum += more);
    }
    seen
}

/// A workload starts, or preempts, in the size that the oracle finds by its own search over the accepted sizes.
#[test]
fn plan_reduces_same_workloads_as_the_oracle() {
    let count = u64::from(cases());
    let [preempt, reduced, after_victims] = halves(count, reduced);
    println!(
        "{count} worlds: {preempt} plans preempt, {reduced} start in reduced size, {after_victims} of them after victims"
    );
    assert!(count < 1000 || (preempt > count / 50 && reduced > count / 100), "too tame: {preempt} {reduced}");
    assert!(count < 50_000 || after_victims > count / 10_000, "too tame: {after_victims}");
}
