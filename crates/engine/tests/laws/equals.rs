//! Laws of equal requests: no workload is passed over for an equal workload behind it, and a class of equals is tried once.
//!
//! A failed law prints its seed; `BERTH_SEED=<seed> BERTH_CASES=1` repeats the failure.

use std::collections::{BTreeMap, BTreeSet};

use crate::worlds::{Dice, Named, Objects, cases, random, seeds};
use berth_engine::steps::*;
use berth_engine::*;

const NOW: Millis = Millis(1000);
const ALL: Limits = Limits { max_admissions: 1000 };

fn is_pending(spec: &WorkloadSpec) -> bool {
    matches!(spec.state, WorkloadState::Pending { .. })
}

/// Sort key of a workload in its queue.
fn place(spec: &WorkloadSpec) -> (i64, Millis, &str) {
    (-spec.priority, spec.queued_at, spec.uid.as_str())
}

/// Whether two workloads request the same pod sets from the same LocalQueue, with the same preemption scope.
fn are_equal(a: &WorkloadSpec, b: &WorkloadSpec) -> bool {
    a.local_queue == b.local_queue && a.pod_sets == b.pod_sets && a.preempts == b.preempts
}

/// The world with some workloads changed, so that they have the same requests as another workload of their queue.
fn with_equals(mut objects: Objects, dice: &mut Dice) -> Objects {
    let mut models = BTreeMap::new();
    for spec in objects.workloads.iter_mut().filter(|spec| is_pending(spec)) {
        spec.points_per_hour = 0;
        let model = models.entry(spec.local_queue.clone()).or_insert_with(|| (spec.pod_sets.clone(), spec.preempts));
        if !dice.chance(4) {
            (spec.pod_sets, spec.preempts) = model.clone();
        }
    }
    objects
}

/// A workload that waits although this plan admitted an equal workload behind it, and the admitted workload.
fn passed_over<'a>(objects: &'a Objects, plan: &Plan) -> Option<(&'a WorkloadSpec, &'a WorkloadSpec)> {
    let mut ahead: BTreeMap<&str, &WorkloadSpec> =
        objects.workloads.iter().filter(|spec| is_pending(spec)).map(|spec| (spec.uid.as_str(), spec)).collect();
    for admission in &plan.admissions {
        // A workload that held quota at the beginning is not admitted again: a plan admits only workloads that were pending.
        let admitted = ahead.remove(&*admission.uid)?;
        let over = ahead.values().find(|other| are_equal(other, admitted) && place(other) < place(admitted));
        if let Some(over) = over {
            return Some((over, admitted));
        }
    }
    None
}

#[test]
fn workload_is_never_passed_over_for_an_equal_behind_it() {
    let mut several = 0;
    for seed in seeds() {
        let _named = Named(seed);
        // The workloads of this law have one pod set each. With several pod sets, an admission elsewhere can make a workload fit that did not fit before, and a
        // workload behind it is tried later (docs/departures/0005-no-eviction-loops.md, the last paragraph; the simplest example is world 25152 of the mixed
        // worlds).
        let mut objects = with_equals(random(seed), &mut Dice::new(seed ^ 0x3c6e_f372));
        // Possible victims depend on the preemptor: a workload of higher priority may choose a flavor whose holders another preemptor takes in the same cycle,
        // while the workload behind it, which has no victims, chooses the next flavor. This law about equal workloads therefore lets only queues without equal
        // workloads reclaim quota.
        for queue in &mut objects.queues {
            let has_equals =
                objects.workloads.iter().filter(|spec| is_pending(spec) && spec.local_queue == queue.name).count() > 1;
            if has_equals {
                queue.preemption = Preemption::default();
            }
        }
        let plan = objects.world().plan(NOW, ALL);
        if passed_over(&objects, &plan).is_some() {
            let fails = |objects: &Objects| passed_over(objects, &objects.world().plan(NOW, ALL)).is_some();
            let small = objects.shrink(fails);
            let plan = small.world().plan(NOW, ALL);
            panic!("seed {seed}\n{}{:?}\n{plan:#?}", small.describe(), passed_over(&small, &plan));
        }
        let admitted: BTreeSet<&str> = plan.admissions.iter().map(|admission| &*admission.uid).collect();
        let waits = |spec: &&WorkloadSpec| is_pending(spec) && !admitted.contains(spec.uid.as_str());
        let has_equal = |spec: &WorkloadSpec| {
            let mut equals = objects.workloads.iter().filter(|other| is_pending(other) && are_equal(other, spec));
            equals.any(|other| admitted.contains(other.uid.as_str()))
        };
        several += u32::from(objects.workloads.iter().filter(waits).any(has_equal));
    }
    println!("{several} worlds in which some equals were admitted and others wait");
    assert!(cases() < 1000 || several > cases() / 50, "too tame: {several}");
}

/// The world with `copies` more workloads that are equal to the first pending workload and behind it in the queue.
fn crowded(objects: &Objects, copies: u32) -> World {
    let mut objects = objects.clone();
    if let Some(model) = objects.workloads.iter().find(|spec| is_pending(spec)).cloned() {
        objects.workloads.extend((0..copies).map(|copy| {
            let uid = copy_of_model(copy);
            let queued_at = Millis(10 + i64::from(copy));
            WorkloadSpec { name: uid.clone(), uid, queued_at, ..model.clone() }
        }));
    }
    objects.world()
}

/// The uid of the copy of a pending workload with the number `number`.
fn copy_of_model(number: u32) -> String {
    format!("x{number:03}")
}

/// Number of copies of a pending workload that a plan admits.
fn started(plan: &Plan) -> usize {
    plan.admissions.iter().filter(|admission| admission.uid.starts_with('x')).count()
}

/// Changes a world so that every queue parks a workload without room, and waiting adds no points.
fn parking(mut objects: Objects) -> Objects {
    for queue in &mut objects.queues {
        queue.strategy = Strategy::BestEffortFifo;
    }
    for spec in &mut objects.workloads {
        spec.points_per_hour = 0;
    }
    objects
}

/// Results of a plan, and the number of heads that the plan tried.
fn done(plan: &Plan) -> (&[Admission], &[Eviction], u64) {
    (plan.admissions.as_slice(), plan.evictions.as_slice(), plan.heads)
}

const COPIES: [u32; 3] = [1, 12, 24];

/// Makes plans for one, twelve and twenty-four equal workloads; the number of equal workloads must make no difference. Until the end of a workload that holds
/// quota, no head may be tried again. Returns the world with one copy before the end of the holder, and whether heads were tried after it. The result is `None`
/// if the world with one copy of the pending workload admits the copy, or no workload is pending.
fn judged(objects: &Objects, seed: u64) -> Option<(World, bool)> {
    if !objects.workloads.iter().any(is_pending) {
        return None;
    }
    let description = || format!("seed {seed}\n{}", objects.describe());
    let mut worlds = COPIES.map(|copies| crowded(objects, copies));
    let plans = worlds.each_mut().map(|world| world.plan(NOW, ALL));
    if started(&plans[0]) > 0 {
        return None;
    }
    assert!(plans.iter().all(|plan| done(plan) == done(&plans[0])), "more looks for more equals: {}", description());
    // The equal workloads of this world are parked as one class of equals.
    let parked = worlds[0].steps().parked_with_equals(&copy_of_model(0));
    for (world, copies) in worlds.iter_mut().zip(COPIES) {
        let is_as_first = |copy| world.steps().parked_with_equals(&copy_of_model(copy)) == parked;
        assert!((0..copies).all(is_as_first), "{copies} equals are not parked together: {}", description());
    }
    // The world did not change since the last plan, so no head is tried.
    let looks = worlds.each_mut().map(|world| world.plan(NOW, ALL).heads);
    assert_eq!(looks, [0; 3], "{}", description());
    // The end of a workload that holds quota wakes the class of equals. Some members of the class of equals may start now; the other members are tried once,
    // whatever their number is.
    let [one, few, many] = worlds;
    let holds = |spec: &&WorkloadSpec| matches!(spec.state, WorkloadState::Reserved(_));
    let Some(holder) = objects.workloads.iter().find(holds) else { return Some((one, false)) };
    let plans = [few, many].map(|mut world| {
        world.apply(Delta::RemoveWorkload(holder.uid.clone())).unwrap();
        world.plan(NOW, ALL)
    });
    if started(&plans[0]) >= 12 {
        return Some((one, false));
    }
    assert_eq!(done(&plans[0]), done(&plans[1]), "more looks for more equals: {}", description());
    Some((one, plans[0].heads > 0))
}

#[test]
fn equals_are_judged_once_per_change_of_capacity() {
    let (mut refused, mut again) = (0, 0);
    for seed in seeds() {
        let _named = Named(seed);
        let mut objects = parking(random(seed));
        for queue in &mut objects.queues {
            queue.preemption = Preemption::default();
        }
        let Some((_, looked_again)) = judged(&objects, seed) else { continue };
        refused += 1;
        again += u32::from(looked_again);
    }
    println!("{refused} worlds in which no equal found room, {again} in which they were looked at again");
    assert!(cases() < 1000 || (refused > cases() / 10 && again > cases() / 20), "too tame: {refused} {again}");
}

/// Whether a search for victims runs for a workload, and finds no victims in any flavor.
fn finds_no_victims(world: &mut World, uid: &str, queue: &str) -> bool {
    let report = world.steps().assign(uid, queue, AssignInput::default()).unwrap();
    let attempts = report.pod_sets.iter().flat_map(|set| &set.attempts);
    let best = attempts.filter_map(|attempt| attempt.possibility).max();
    best == Some(PreemptionPossibility::NoCandidates)
}

/// The first member of a class of equals represents the class, whether it may preempt or not: the other members never go before it, and are tried only after
/// the first member has left the queue. A plan and its evictions therefore do not depend on the number of members of a class of equals, as long as none of them
/// starts.
#[test]
fn equals_that_may_preempt_are_tried_once_per_capacity_change() {
    let (mut refused, mut again, mut busy) = (0, 0, 0);
    for seed in seeds() {
        let _named = Named(seed);
        let objects = parking(random(seed));
        let Some((mut one, looked_again)) = judged(&objects, seed) else { continue };
        let Some(model) = objects.workloads.iter().find(|spec| is_pending(spec)) else { continue };
        let may_preempt = |queue: &ClusterQueueSpec| {
            let Preemption { within_cluster_queue, reclaim_within_cohort, .. } = queue.preemption;
            [within_cluster_queue, reclaim_within_cohort].iter().any(|policy| *policy != PreemptionPolicy::Never)
        };
        if !objects.queues.iter().any(|queue| queue.name == model.local_queue && may_preempt(queue)) {
            continue;
        }
        let first = copy_of_model(0);
        if one.steps().parked_with_equals(&first).is_none() {
            // The first member of the class of equals waits for its victims, or lost against other heads.
            busy += 1;
        } else if finds_no_victims(&mut one, &first, &model.local_queue) {
            refused += 1;
            again += u32::from(looked_again);
        }
    }
    println!(
        "{refused} worlds in which equals looked for victims and found none, {again} in which heads were looked at again, {busy} in which \
         the first of them waits for victims"
    );
    let is_wild = refused > cases() / 50 && again > cases() / 200 && busy > cases() / 1000;
    assert!(cases() < 1000 || is_wild, "too tame: {refused} {again} {busy}");
}
