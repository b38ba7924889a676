//! Laws of preemption in worlds with Berth's additions to Kueue: bounds of preemption, limits of jobs, tiers, stock-outs, and admission fair sharing. Time goes
//! on in the worlds of these laws: protections and stock-outs end, and usage decays. Another law in worlds with Berth's additions: a plan equals its cycles
//! made one by one, also with workload slices and with jobs that are admitted in reduced size.
//!
//! A failed law prints its seed and the smallest world that fails; `BERTH_SEED=<seed> BERTH_CASES=1` repeats the failure.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::extras::{Extras, with_extras, with_usage};
use crate::worlds::{Dice, Named, cases, mixed, random, seeds, shrinking};
use berth_engine::*;

const NOW: Millis = Millis(1000);
/// The end of time in the worlds of these laws: no test waits for later events.
const HORIZON: i64 = 8000;
const ALL: Limits = Limits { max_admissions: 1000 };

/// Counts of events in worlds.
#[derive(Debug, Default)]
struct Tally {
    rounds: u32,
    /// Number of rounds with evictions after the time of the world had moved on.
    later: u32,
    evictions: u32,
    /// Counts of preemptors to which a bound of preemption applied, of victims in queues that protect their workloads, and of preemptions whose victims' quota
    /// was compared with the request.
    bounded: u32,
    protecting: u32,
    shares: u32,
    /// Counts of comparisons of the victims' quota with the request, in a world with two flavors (`two_flavors`), and in a cycle with another preemptor or an
    /// admission (`not_alone`).
    two_flavors: u32,
    not_alone: u32,
}

/// Amounts that a queue may still use, by flavor and resource.
type Room = BTreeMap<(String, String), i128>;

/// A world that runs, with the state that an observer of its plans keeps.
struct Life<'a> {
    extras: &'a Extras,
    world: World,
    specs: BTreeMap<String, WorkloadSpec>,
    /// Victims of each workload since the last change from outside of the engine.
    victims: BTreeMap<String, BTreeSet<String>>,
    now: Millis,
}

/// Results of a round.
#[derive(Default)]
struct Round {
    admissions: Vec<Admission>,
    evictions: Vec<Eviction>,
}

impl<'a> Life<'a> {
    fn new(extras: &'a Extras) -> Self {
        let mut life = Self {
            extras,
            world: extras.world(),
            specs: extras.objects.workloads.iter().map(|spec| (spec.uid.clone(), spec.clone())).collect(),
            victims: BTreeMap::new(),
            now: NOW,
        };
        // Workloads that were evicted when the world began leave for good.
        for spec in &extras.objects.workloads {
            if matches!(&spec.state, WorkloadState::Reserved(held) if held.evicted) {
                life.world.apply(Delta::RemoveWorkload(spec.uid.clone())).unwrap();
                life.specs.remove(&spec.uid);
            }
        }
        life
    }

    fn held(&self, uid: &str) -> Option<&Reservation> {
        match &self.specs[uid].state {
            WorkloadState::Reserved(held) => Some(held),
            WorkloadState::Pending { .. } => None,
        }
    }

    /// Amounts that each queue may use at this moment.
    fn rooms(&self) -> BTreeMap<&'a str, Room> {
        let mut rooms = BTreeMap::<&str, Room>::new();
        for queue in &self.extras.objects.queues {
            let room = rooms.entry(&queue.name).or_default();
            for group in &queue.groups {
                for (flavor, resource) in
                    group.flavors.iter().flat_map(|f| group.covered.iter().map(|r| (&f.flavor, r)))
                {
                    let free = self.world.availability(&queue.name, flavor, resource).map_or(0, |(free, _)| free.get());
                    room.insert((flavor.clone(), resource.clone()), i128::from(free));
                }
            }
        }
        rooms
    }

    /// Runs cycles of a world until no cycle admits or evicts. Admitted workloads hold their quota at once, and victims keep their quota for the time being.
    fn round(&mut self, bounds: Option<&mut Tally>) -> Result<Round, String> {
        let mut round = Round::default();
        let (mut quiet, mut bounds) = (0, bounds);
        // A cycle may only continue a scan of flavors, without an admission or eviction. The test cannot know how many cycles in a row only continue a scan of
        // flavors, so a whole plan is made after eight of them.
        while quiet <= 8 {
            // Free quota changes from cycle to cycle in a plan, so the bounds are judged for single cycles only.
            let rooms = (bounds.is_some() && quiet < 8).then(|| self.rooms());
            let step = self.world.plan_cycles(self.now, ALL, if quiet < 8 { 1 } else { u64::MAX });
            if step.cycles == 0 {
                break;
            }
            quiet = if step.admissions.is_empty() && step.evictions.is_empty() { quiet + 1 } else { 0 };
            if let (Some(rooms), Some(tally)) = (&rooms, bounds.as_deref_mut()) {
                self.judge(&step, rooms, tally)?;
            }
            self.note(step, &mut round);
        }
        Ok(round)
    }

    /// Records the admissions and evictions of a step: admitted workloads hold their quota at once.
    fn note(&mut self, step: Plan, round: &mut Round) {
        for eviction in &step.evictions {
            let victims = self.victims.entry(eviction.preemptor.clone()).or_default();
            victims.insert(eviction.uid.clone());
        }
        for admission in &step.admissions {
            let held = Reservation {
                cluster_queue: admission.cluster_queue.to_string(),
                pod_sets: admission.pod_sets.to_vec(),
                at: self.now,
                saved: None,
                kept: false,
                surplus: None,
                admitted: true,
                evicted: false,
            };
            self.specs.get_mut(&*admission.uid).unwrap().state = WorkloadState::Reserved(held);
        }
        round.admissions.extend(step.admissions);
        round.evictions.extend(step.evictions);
    }

    /// Fails if the evictions of one cycle are not within the bounds of preemption.
    fn judge(&self, step: &Plan, rooms: &BTreeMap<&str, Room>, tally: &mut Tally) -> Result<(), String> {
        let mut fresh = BTreeMap::<&str, Vec<&str>>::new();
        for eviction in &step.evictions {
            fresh.entry(&eviction.preemptor).or_default().push(&eviction.uid);
        }
        for (preemptor, fresh) in &fresh {
            let spec = &self.specs[*preemptor];
            let queue = self.extras.queue_of(spec);
            let guard = queue.guard;
            tally.bounded += u32::from(guard != PreemptionGuard::default());
            let fault =
                |what: &str| Err(format!("at {}: {what}: {fresh:?} for {preemptor} under {guard:?}", self.now.0));
            for victim in fresh.iter().map(|uid| &self.specs[*uid]) {
                let least = guard.min_priority_difference;
                if least > 0 && spec.priority.saturating_sub(victim.priority) < i64::from(least) {
                    return fault("too near in priority");
                }
                let theirs = self.extras.guard_of(victim);
                tally.protecting += u32::from(theirs.protected_ms > 0);
                // A victim without known quota was given its quota in this same cycle.
                let since = self.held(&victim.uid).map_or(self.now, |held| held.at);
                if theirs.protected_ms > 0 && since.0 + theirs.protected_ms > self.now.0 {
                    return fault("protected");
                }
            }
            let earlier = self.victims.get(*preemptor).cloned().unwrap_or_default();
            let all: BTreeSet<&str> = earlier.iter().map(String::as_str).chain(fresh.iter().copied()).collect();
            if all.len() == earlier.len() {
                continue;
            }
            if guard.max_victims.is_some_and(|most| all.len() > most as usize) {
                return fault(&format!("too many with {earlier:?}"));
            }
            // If other heads took victims in the same cycle, the cells that lack quota were found again without these victims, so the quota of the victims is
            // not compared with the request.
            let recomputed = step.recomputed_targets.keys().any(|(name, _)| *name == queue.name);
            let Some(percent) = guard.max_evicted_percent.filter(|_| !recomputed) else { continue };
            let room = &rooms[queue.name.as_str()];
            let flavors = &queue.groups[0].flavors;
            if !flavors.iter().any(|flavor| self.is_within(spec, fresh, &all, (&flavor.flavor, room), percent)) {
                return fault(&format!("too much with {earlier:?}, where there was {room:?}"));
            }
            tally.shares += 1;
            tally.two_flavors += u32::from(flavors.len() > 1);
            let is_alone = step.admissions.is_empty() && step.evictions.iter().all(|e| e.preemptor == *preemptor);
            tally.not_alone += u32::from(!is_alone);
        }
        Ok(())
    }

    /// Whether a flavor may be the flavor for which these victims were evicted: each victim holds a lacking resource of the flavor, and together the victims
    /// hold no more of the resource than the queue's policy allows.
    fn is_within(
        &self,
        spec: &WorkloadSpec,
        fresh: &[&str],
        all: &BTreeSet<&str>,
        (flavor, room): (&str, &Room),
        percent: u32,
    ) -> bool {
        let asked =
            |resource: &str| spec.pod_sets[0].requests.get(resource).map_or(0, |amount| i128::from(amount.get()));
        let free = |resource: &str| room.get(&(flavor.to_owned(), resource.to_owned())).copied().unwrap_or(0).max(0);
        let contested: Vec<&str> =
            spec.pod_sets[0].requests.keys().map(String::as_str).filter(|r| asked(r) > free(r)).collect();
        let holds = |uid: &str, resource: &str| {
            let set = self.held(uid).and_then(|held| held.pod_sets.first())?;
            set.flavors.get(resource).filter(|other| *other == flavor)?;
            set.usage.get(resource).map(|amount| i128::from(amount.get()))
        };
        // A victim without the lacking resource may be among the victims, as in Kueue: under fair sharing the victim's other resources count as well.
        let is_cause = |uid: &&str| contested.iter().any(|resource| holds(uid, resource).is_some());
        let is_little = |resource: &&str| {
            let evicted: i128 = all.iter().filter_map(|uid| holds(uid, resource)).sum();
            evicted * 100 <= asked(resource) * i128::from(percent)
        };
        fresh.iter().all(is_cause) && contested.iter().all(is_little)
    }

    /// Applies the outcome of a round to the world: admissions are confirmed, and victims have left and wait again.
    fn confirm(&mut self, round: &Round) {
        for admission in &round.admissions {
            self.world.apply(Delta::Workload(self.specs[&*admission.uid].clone())).unwrap();
        }
        for eviction in &round.evictions {
            let spec = self.specs.get_mut(&eviction.uid).unwrap();
            spec.revision += 1;
            spec.waits_since = self.now;
            spec.state = WorkloadState::Pending { not_before: None, blocked: None };
            self.world.apply(Delta::Workload(spec.clone())).unwrap();
        }
    }
}

/// Lets a world run until no cycle admits or evicts any more and no event is due before the horizon.
fn run_out(extras: &Extras, tally: &mut Tally, with_bounds: bool) -> Result<(), String> {
    let mut life = Life::new(extras);
    let mut last = Vec::new();
    let mut is_later = false;
    for _ in 0..60 {
        let round = life.round(with_bounds.then_some(&mut *tally))?;
        let faults = check(&life.world);
        if !faults.is_empty() {
            return Err(format!("books: {faults:?}"));
        }
        life.confirm(&round);
        if round.evictions.is_empty() {
            let again = life.world.plan(life.now, ALL);
            if !again.admissions.is_empty() || !again.evictions.is_empty() {
                // An admission counts as used when it is confirmed, and then another workload may be next.
                let is_used = extras.objects.options.admission_fair_sharing.is_some() && !round.admissions.is_empty();
                if !is_used {
                    return Err(format!("a plan after a plan found more: {again:?}"));
                }
                let mut more = Round::default();
                life.note(again, &mut more);
                life.confirm(&more);
                continue;
            }
            let found = life.world.sweep(life.now);
            if found > 0 {
                return Err(format!("sweep found {found} at {}", life.now.0));
            }
            match again.wake_at.filter(|at| at.0 <= HORIZON) {
                Some(at) if at <= life.now => return Err(format!("at {} it is due at {}", life.now.0, at.0)),
                Some(at) => life.now = at,
                None => return Ok(()),
            }
            is_later = true;
            continue;
        }
        tally.rounds += 1;
        tally.later += u32::from(is_later);
        tally.evictions += round.evictions.len() as u32;
        let describe = |eviction: &Eviction| format!("{} for {} {}", eviction.uid, eviction.preemptor, eviction.reason);
        last.push((life.now.0, round.evictions.iter().map(describe).collect::<Vec<_>>()));
        life.now.0 += 1;
    }
    let last = last.split_off(last.len().saturating_sub(6));
    Err(format!("it does not come to rest, the last evictions:\n{last:#?}"))
}

fn hold_on(make: fn(u64) -> Extras, with_bounds: bool) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds() {
        let _named = Named(seed);
        let extras = make(seed);
        if run_out(&extras, &mut tally, with_bounds).is_err() {
            let fails = |extras: &Extras| run_out(extras, &mut Tally::default(), with_bounds).err();
            let small = extras.shrink(|extras| fails(extras).is_some());
            panic!("seed {seed}\n{}{}", small.describe(), fails(&small).unwrap_or_default());
        }
    }
    println!("{tally:?}");
    tally
}

/// Whether a test counted more than one in `many` cases of what it is about. The check of the number of counted cases always passes if there are fewer than
/// 1000 cases.
fn is_one_in(many: u32, count: u32) -> bool {
    cases() < 1000 || count > cases() / many
}

#[test]
fn evictions_come_to_an_end_with_all_that_berth_adds() {
    let tally = hold_on(|seed| with_extras(mixed(seed), seed), false);
    assert!(is_one_in(10, tally.rounds) && is_one_in(50, tally.later), "too tame: {tally:?}");
}

#[test]
fn evictions_under_admission_fair_sharing_come_to_an_end() {
    let tally = hold_on(|seed| with_usage(random(seed), seed), false);
    assert!(is_one_in(10, tally.rounds) && is_one_in(50, tally.later), "too tame: {tally:?}");
}

#[test]
fn bounds_of_preemption_hold_in_every_cycle() {
    let tally = hold_on(|seed| with_extras(random(seed), seed), true);
    assert!(is_one_in(15, tally.bounded) && is_one_in(25, tally.protecting), "too tame: {tally:?}");
    assert!(is_one_in(20, tally.shares) && is_one_in(50, tally.two_flavors), "too tame: {tally:?}");
    assert!(is_one_in(80, tally.not_alone), "too tame: {tally:?}");
}

/// Checks in which order ClusterQueues that are ordered by usage admit workloads, as long as all heads were admitted: a head that is not admitted may change
/// the next choice. Counts the heads that were checked, and the heads that would have been behind another workload by priority and age.
fn turns(extras: &Extras) -> Result<[u32; 2], String> {
    let mut world = extras.world();
    let none = world.plan_cycles(NOW, ALL, 0);
    assert!(none.admissions.is_empty() && none.evictions.is_empty(), "no cycle, and yet {none:?}");
    let mut waiting = BTreeMap::<&str, Vec<&WorkloadSpec>>::new();
    for spec in extras.objects.workloads.iter().filter(|spec| matches!(spec.state, WorkloadState::Pending { .. })) {
        let queue = extras.queue_of(spec);
        if queue.usage_based {
            waiting.entry(&queue.name).or_default().push(spec);
        }
    }
    let place = |spec: &WorkloadSpec| (-spec.priority, spec.queued_at, spec.uid.clone());
    let mut seen = [0; 2];
    while !waiting.is_empty() {
        let mut used = BTreeMap::<&str, f64>::new();
        for spec in waiting.values().flatten().copied() {
            let usage = world.local_queue_usage("default", &spec.local_queue).unwrap_or(0.0);
            used.insert(&spec.local_queue, usage);
        }
        let step = world.plan_cycles(NOW, ALL, 1);
        let is_admitted = |spec: &WorkloadSpec| step.admissions.iter().any(|admission| *admission.uid == *spec.uid);
        let stays =
            |spec: &WorkloadSpec| step.verdicts.iter().any(|reported| reported.leading && *reported.uid == *spec.uid);
        let is_before = |one: &WorkloadSpec, other: &WorkloadSpec| {
            let by_usage = used[one.local_queue.as_str()].total_cmp(&used[other.local_queue.as_str()]);
            // If points for waiting count as well, the comparison ends with usage, because this law does not compute the points.
            let by_place = || if one.points_per_hour == 0 { place(one).cmp(&place(other)) } else { Ordering::Equal };
            by_usage.then_with(by_place).is_lt()
        };
        let mut fault = None;
        waiting.retain(|queue, specs| {
            let Some(at) = specs.iter().position(|spec| is_admitted(spec) || stays(spec)) else { return false };
            let head = specs.remove(at);
            if let Some(ahead) = specs.iter().find(|spec| is_before(spec, head)) {
                fault = Some(format!("in {queue} it is the turn of {}, not of {}: {used:?}", head.uid, ahead.uid));
            }
            seen[0] += 1;
            seen[1] += u32::from(specs.iter().any(|spec| place(spec) < place(head)));
            is_admitted(head) && !specs.is_empty()
        });
        if let Some(fault) = fault {
            return Err(fault);
        }
    }
    Ok(seen)
}

/// Adds the counts of a law over the worlds of all seeds. If the law does not hold, the panic message has the seed and the smallest world that fails.
fn add_up<const N: usize>(make: fn(u64) -> Extras, law: fn(&Extras) -> Result<[u32; N], String>) -> [u32; N] {
    let mut sums = [0; N];
    for seed in seeds() {
        let _named = Named(seed);
        let extras = make(seed);
        match law(&extras) {
            Ok(more) => sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more),
            Err(_) => {
                let small = extras.shrink(|extras| law(extras).is_err());
                panic!("seed {seed}\n{}{}", small.describe(), law(&small).err().unwrap_or_default());
            }
        }
    }
    sums
}

/// The charge of an admission counts when the ClusterQueue chooses its next head among its LocalQueues.
#[test]
fn local_queue_with_least_usage_has_its_turn_first() {
    let seen = add_up(|seed| with_usage(random(seed), seed), turns);
    println!("{} turns, {} of them against priority and age", seen[0], seen[1]);
    assert!(is_one_in(10, seen[0]) && is_one_in(200, seen[1]), "too tame: {seen:?}");
}

/// A world ordered by usage in which many workloads start with fewer pods, and some workloads are larger replacement slices of a holder in their LocalQueue.
fn ordered_by_usage(seed: u64) -> Extras {
    let mut extras = with_usage(shrinking(random(seed), seed), seed);
    // The departure `stand_aside` is off, because it passes a class of equals over for the rest of a plan, and single cycles have no rest of a plan.
    extras.objects.options.profile = Profile::BerthWithout(Departure::LosersStandAside);
    let stays = |spec: &&WorkloadSpec| matches!(&spec.state, WorkloadState::Reserved(held) if !held.evicted);
    let mut holders: Vec<WorkloadSpec> = extras.objects.workloads.iter().filter(stays).cloned().collect();
    let mut dice = Dice::new(seed ^ 0xa54f_f53a);
    for spec in &mut extras.objects.workloads {
        let waits = matches!(spec.state, WorkloadState::Pending { .. }) && dice.chance(2);
        let Some(at) = holders.iter().position(|old| waits && old.local_queue == spec.local_queue) else { continue };
        let old = holders.remove(at);
        let WorkloadState::Reserved(held) = &old.state else { continue };
        let replaces = Some(Replaced { uid: old.uid.clone(), pod_sets: held.pod_sets.clone() });
        let (uid, name, state) = (spec.uid.clone(), spec.name.clone(), spec.state.clone());
        let queued_at = Millis(old.queued_at.0 + 1);
        *spec = WorkloadSpec { uid, name, state, replaces, queued_at, ..old };
        spec.pod_sets[0].count += dice.pick(&[1, 1, 2]);
    }
    extras
}

/// Makes a plan in one call and once more cycle by cycle, and compares both results. Counts plans of several steps, workloads that start with fewer pods than
/// requested, replacement slices, and plans that would differ without any LocalQueue usage.
fn planned(extras: &Extras) -> Result<[u32; 4], String> {
    let plan = extras.world().plan(NOW, ALL);
    let (mut world, mut quiet) = (extras.world(), 0);
    let (mut admissions, mut evictions) = (Vec::new(), Vec::new());
    // A cycle that only continues a scan of flavors neither admits nor evicts, and several workloads in a row may need a cycle of this kind.
    while quiet < 600 {
        let step = world.plan_cycles(NOW, ALL, 1);
        if step.cycles == 0 {
            break;
        }
        quiet = if step.admissions.is_empty() && step.evictions.is_empty() { quiet + 1 } else { 0 };
        admissions.extend(step.admissions);
        evictions.extend(step.evictions);
    }
    if plan.admissions != admissions || plan.evictions != evictions {
        return Err(format!("at once {plan:#?}\ncycle by cycle {admissions:#?} {evictions:#?}"));
    }
    let spec = |uid: &str| extras.objects.workloads.iter().find(|spec| spec.uid == uid).unwrap();
    let is_reduced = |admission: &&Admission| {
        let mut sets = admission.pod_sets.iter().zip(&spec(&admission.uid).pod_sets);
        sets.any(|(given, set)| given.count < set.count)
    };
    let reduced = admissions.iter().filter(is_reduced).count();
    let slices = admissions.iter().filter(|admission| spec(&admission.uid).replaces.is_some()).count();
    let mut unordered = extras.clone();
    unordered.objects.options.admission_fair_sharing = None;
    let other = unordered.world().plan(NOW, ALL);
    let by_usage = other.admissions != admissions || other.evictions != evictions;
    let is_long = admissions.len() + evictions.len() > 2;
    Ok([u32::from(is_long), reduced as u32, slices as u32, u32::from(by_usage)])
}

/// The same law as in `rules.rs`, with features that the worlds in `rules.rs` do not have.
#[test]
fn plan_by_usage_equals_its_cycles_made_one_by_one() {
    let seen = add_up(ordered_by_usage, planned);
    let [long, reduced, slices, by_usage] = seen;
    println!("{long} long plans, {reduced} in reduced size, {slices} slices, {by_usage} plans that usage changes");
    assert!(is_one_in(50, long) && is_one_in(200, reduced), "too tame: {seen:?}");
    assert!(is_one_in(200, slices) && is_one_in(1000, by_usage), "too tame: {seen:?}");
}
