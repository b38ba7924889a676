use super::*;
use crate::cycle::report::Report;
use crate::explain::why::Message;
use crate::model::{ClusterQueueSpec, Limits, Millis, PendingReason, Preemption, PreemptionGuard, WorkloadSpec};
use crate::options::FairSharing;
use crate::options::profile::{Departure, Profile};
use crate::preempt::targets;
use crate::queue::tie::Tie;
use crate::sketch::{held, pending, queue, world};
use crate::world::store::Rank;

const RECLAIMED: &str = "InCohortReclamation";
const BORROWED: &str = "InCohortReclaimWhileBorrowing";
const OWN: &str = "InClusterQueue";

/// Four queues, of which queue `a` lacks quota, queue `b` borrows, queue `d` does not borrow, and queue `alone` is in no cohort.
fn queues() -> Vec<ClusterQueueSpec> {
    vec![
        queue("a", Some("c"), &[("f", 4)]),
        queue("b", Some("c"), &[("f", 2)]),
        queue("d", Some("c"), &[("f", 1)]),
        queue("alone", None, &[("f", 4)]),
    ]
}

fn workloads() -> Vec<WorkloadSpec> {
    vec![
        pending("a", "asks", 5, &[("main", 2)]),
        held("a", "own", 0, "f", 1),
        held("a", "equal", 5, "f", 1),
        held("b", "one", 0, "f", 2),
        held("b", "two", 0, "f", 1),
        held("b", "high", 4, "f", 1),
        held("d", "within", 0, "f", 1),
        held("alone", "other", 0, "f", 1),
    ]
}

fn fair() -> Options {
    Options { fair_sharing: Some(FairSharing { strategies: Vec::new() }), ..Options::default() }
}

/// A preemption query of the workload `asks` in queue `a` for `asked` units; `asks` must not preempt the workloads in `gone`.
struct Court {
    world: World,
    asked: i128,
    gone: BTreeSet<WorkloadId>,
    /// All workloads that the search took before it dropped the unneeded ones, if known.
    taken: Option<Vec<Target>>,
}

impl Court {
    fn new(options: Options, queues: Vec<ClusterQueueSpec>, workloads: Vec<WorkloadSpec>, asked: i128) -> Self {
        Self { world: world(options, queues, workloads), asked, gone: BTreeSet::new(), taken: None }
    }

    fn id(&self, uid: &str) -> WorkloadId {
        *self.world.store.by_uid.get(uid).unwrap()
    }

    /// Calls the function `act` with the preemption query, and returns its result.
    fn hear<R>(&mut self, act: impl FnOnce(&Store, &mut Tree, &Options, &Ask<'_>) -> R) -> R {
        let (id, cell) = (self.id("asks"), self.world.store.intern_cell("f", "cpu"));
        let (needs, usage) = ([cell], [(cell, self.asked)]);
        let World { store, tree, options, .. } = &mut self.world;
        let queue = *store.queue_ids.get("a").unwrap();
        let ask = Ask::of(store, store.workload(id).unwrap(), queue, &self.gone, options);
        act(store, tree, options, &Ask { needs: &needs, usage: &usage, ..ask })
    }

    /// Uids and reasons of the victims, in the order in which the search finds them.
    fn found(&mut self) -> Vec<(String, &'static str)> {
        let targets = self.hear(targets).unwrap();
        let uid = |target: &Target| self.world.store.workload(target.workload).unwrap().uid.to_string();
        targets.iter().map(|target| (uid(target), target.reason)).collect()
    }

    fn targets(&self, victims: &[(&str, &'static str)]) -> Vec<Target> {
        let target = |&(uid, reason): &(&str, &'static str)| Target { workload: self.id(uid), reason, gives_up: None };
        victims.iter().map(target).collect()
    }

    fn judge(&mut self, victims: &[(&str, &'static str)]) -> Result<(), Breach> {
        let targets = self.targets(victims);
        self.judge_targets(&targets)
    }

    fn judge_targets(&mut self, targets: &[Target]) -> Result<(), Breach> {
        let taken = self.taken.clone();
        self.hear(|store, tree, options, ask| check(store, tree, options, ask, targets, taken.as_deref()))
    }
}

fn classical() -> Court {
    Court::new(Options::default(), queues(), workloads(), 2)
}

#[test]
fn found_victims_pass_recheck_and_are_evicted() {
    let mut court = classical();
    let found = court.found();
    assert!(!found.is_empty() && found.iter().all(|(_, reason)| *reason == RECLAIMED), "{found:?}");
    let plan = court.world.plan(Millis(2000), Limits { max_admissions: 10 });
    let evicted: Vec<_> = plan.evictions.iter().map(|eviction| (eviction.uid.clone(), eviction.reason)).collect();
    assert_eq!((evicted, court.world.refused_victims()), (found, 0));
}

/// Victims with reasons, and the expected result of the second check of them.
type Case = (&'static [(&'static str, &'static str)], Result<(), Breach>);

const SETS: [Case; 11] = [
    (&[], Ok(())),
    (&[("one", RECLAIMED)], Ok(())),
    (&[("two", RECLAIMED), ("high", RECLAIMED)], Ok(())),
    (&[("one", RECLAIMED), ("one", RECLAIMED)], Err(Breach::NoVictim)),
    (&[("one", RECLAIMED), ("asks", OWN)], Err(Breach::NoVictim)),
    (&[("one", RECLAIMED), ("equal", OWN)], Err(Breach::Policy)),
    (&[("one", RECLAIMED), ("other", RECLAIMED)], Err(Breach::Elsewhere)),
    (&[("one", RECLAIMED), ("within", RECLAIMED)], Err(Breach::WithinQuota)),
    (&[("one", BORROWED)], Err(Breach::Right)),
    (&[("own", RECLAIMED), ("two", RECLAIMED)], Err(Breach::Right)),
    (&[("two", RECLAIMED)], Err(Breach::NotEnough)),
];

#[test]
fn corrupted_victim_set_is_refused() {
    for (victims, message) in SETS {
        assert_eq!(classical().judge(victims), message, "{victims:?}");
    }
}

/// Queue `b` holds 4 of a quota of 2: one workload that holds 2 may be preempted, and after that no other workload.
#[test]
fn victim_set_that_takes_queue_below_quota_is_refused() {
    let all = [("one", RECLAIMED), ("two", RECLAIMED), ("high", RECLAIMED)];
    assert_eq!(classical().judge(&all), Err(Breach::WithinQuota));
    assert_eq!(classical().judge(&all[..2]), Ok(()), "the smaller may have gone first");
}

#[test]
fn ineligible_victim_is_refused_by_recheck() {
    let mut court = classical();
    court.gone = BTreeSet::from([court.id("one")]);
    assert_eq!(court.judge(&[("one", RECLAIMED)]), Err(Breach::NotPreemptible));
    let mut court = classical();
    let part = Target { workload: court.id("one"), reason: RECLAIMED, gives_up: Some(1) };
    assert_eq!(court.judge_targets(&[part]), Err(Breach::NoVictim), "it has no pods to spare");
    let mut queues = queues();
    queues[1].stop = crate::model::StopPolicy::Hold;
    let mut court = Court::new(Options::default(), queues, workloads(), 2);
    assert_eq!(court.judge(&[("one", RECLAIMED)]), Err(Breach::Elsewhere), "its queue is stopped");
}

#[test]
fn final_victim_set_beyond_policy_bounds_is_refused() {
    let guarded = |at: usize, guard: PreemptionGuard| {
        let mut queues = queues();
        queues[at].guard = guard;
        Court::new(Options::default(), queues, workloads(), 2)
    };
    let none = PreemptionGuard::default();
    let mut near = guarded(0, PreemptionGuard { min_priority_difference: 2, ..none });
    assert_eq!(near.judge(&[("one", RECLAIMED)]), Ok(()));
    assert_eq!(near.judge(&[("two", RECLAIMED), ("high", RECLAIMED)]), Err(Breach::TooNear));
    let mut young = guarded(1, PreemptionGuard { protected_ms: 5000, ..none });
    young.world.store.now = Millis(5999);
    assert_eq!(young.judge(&[("one", RECLAIMED)]), Err(Breach::Protected));
    young.world.store.now = Millis(6000);
    assert_eq!(young.judge(&[("one", RECLAIMED)]), Ok(()));
    let mut few = guarded(0, PreemptionGuard { max_victims: Some(1), ..none });
    assert_eq!(few.judge(&[("one", RECLAIMED)]), Ok(()));
    assert_eq!(few.judge(&[("two", RECLAIMED), ("high", RECLAIMED)]), Err(Breach::Bounds));
    let mut little = guarded(0, PreemptionGuard { max_evicted_percent: Some(100), ..none });
    assert_eq!(little.judge(&[("one", RECLAIMED)]), Ok(()));
    assert_eq!(little.judge(&[("one", RECLAIMED), ("two", RECLAIMED)]), Err(Breach::Bounds));
}

/// A queue that exceeds its own quota may preempt only victims that `borrowWithinCohort` covers, up to the priority threshold.
#[test]
fn final_victim_set_above_borrowing_threshold_is_refused() {
    let mut queues = queues();
    queues[0].groups[0].flavors[0].quotas[0].nominal = crate::model::Amount::new(2);
    queues[0].preemption =
        Preemption { borrow_within_cohort: true, max_priority_threshold: Some(3), ..queues[0].preemption };
    let mut workloads = workloads();
    workloads.retain(|workload| ["asks", "one", "two", "high"].contains(&workload.uid.as_str()));
    // The workload `asks` requests 3 of the 2 that its queue owns, while queue `b` uses 4 of the cohort's 5.
    let mut court = Court::new(Options::default(), queues, workloads, 3);
    assert_eq!(court.judge(&[("one", BORROWED)]), Ok(()));
    assert_eq!(court.judge(&[("two", BORROWED), ("high", BORROWED)]), Err(Breach::Right), "above the threshold");
    assert_eq!(court.judge(&[("two", BORROWED), ("high", RECLAIMED)]), Err(Breach::NotEnough), "it would borrow");
}

/// Workloads of a queue that hold one unit each.
fn ones(queue: &str, uids: &[&str]) -> Vec<WorkloadSpec> {
    uids.iter().map(|uid| held(queue, uid, 0, "f", 1)).collect()
}

fn shared(asked: i128) -> Court {
    let quotas = [("a", 2), ("b", 2), ("d", 2), ("e", 1)];
    let queues = quotas.map(|(name, nominal)| queue(name, Some("c"), &[("f", nominal)]));
    let mut workloads = vec![pending("a", "asks", 5, &[("main", 3)])];
    workloads.extend(ones("b", &["b1", "b2", "b3"]));
    workloads.extend(ones("d", &["d1", "d2", "d3"]));
    workloads.extend(ones("e", &["within"]));
    Court::new(fair(), queues.to_vec(), workloads, asked)
}

#[test]
fn fair_shares_are_judged_again_on_final_victim_set() {
    let mut court = shared(3);
    assert_eq!(court.judge(&[("b1", FAIR), ("d1", FAIR)]), Err(Breach::NotEnough));
    assert_eq!(court.judge(&[("within", FAIR)]), Err(Breach::WithinQuota));
    assert_eq!(court.judge(&[("b1", RECLAIM)]), Err(Breach::Right), "it asks for more than its own");
    let all = [("d1", FAIR), ("d2", FAIR), ("d3", FAIR)];
    assert_eq!(court.judge(&all), Err(Breach::Share), "d has less then than a would have");
    court.taken = Some(court.targets(&all));
    assert_eq!(court.judge(&all), Err(Breach::Share), "nor had it more when they were taken");
    // A queue may preempt to get its own nominal quota back, whatever the fair shares are.
    let mut court = shared(1);
    assert_eq!(court.judge(&[("b1", FAIR)]), Err(Breach::Right));
    assert_eq!(court.judge(&[("b1", RECLAIM)]), Ok(()));
    assert_eq!(court.found().len(), 1);
}

/// While the victim `own` was to leave, queue `b` had no smaller share than queue `a` would have; after that, `own` could stay.
#[test]
fn fair_shares_are_judged_without_victims_put_back() {
    let quotas = [("a", 2), ("b", 2), ("d", 2), ("e", 1)];
    let queues = quotas.map(|(name, nominal)| queue(name, Some("c"), &[("f", nominal)]));
    let mut workloads = vec![pending("a", "asks", 5, &[("main", 3)]), held("a", "own", 0, "f", 1)];
    workloads.push(held("b", "big", 0, "f", 3));
    workloads.extend(ones("d", &["d1", "d2"]));
    workloads.extend(ones("e", &["within"]));
    let mut court = Court::new(fair(), queues.to_vec(), workloads, 3);
    let big = [("big", FAIR)];
    assert_eq!(court.judge(&big), Err(Breach::Share));
    court.taken = Some(court.targets(&[("own", OWN), ("big", FAIR)]));
    assert_eq!(court.judge(&big), Ok(()));
    court.taken = Some(court.targets(&[("own", OWN)]));
    assert_eq!(court.judge(&big), Err(Breach::Share), "nobody took it");
}

#[test]
fn queue_with_highest_share_gives_victims() {
    let quotas = [("a", 1), ("b", 2), ("d", 3)];
    let queues = quotas.map(|(name, nominal)| queue(name, Some("c"), &[("f", nominal)]));
    let mut workloads = vec![pending("a", "asks", 5, &[("main", 2)])];
    workloads.extend(ones("b", &["b1", "b2", "b3", "b4", "b5"]));
    workloads.extend(ones("d", &["d1"]));
    let mut court = Court::new(fair(), queues.to_vec(), workloads, 2);
    let found = court.found();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|(uid, reason)| uid.starts_with('b') && *reason == FAIR), "{found:?}");
}

/// A world in which the accounting of queue `b` is wrong and lists the workload `one` twice. A search for victims that needs more than `one` holds takes `one`
/// twice, and its victims are refused. The tests run cycles one by one in the world with wrong accounting, because a plan panics in debug builds after a
/// refusal.
fn misled(mut queues: Vec<ClusterQueueSpec>, workloads: Vec<WorkloadSpec>) -> World {
    queues.push(queue("b", Some("c"), &[("f", 0)]));
    // Among equals the workload with the smaller UID is preempted first, so that the tests can name the victim.
    let profile = Profile::BerthWithout(Departure::EqualsByLot);
    let mut world = world(Options { profile, ..Options::default() }, queues, workloads);
    let one = *world.store.by_uid.get("one").unwrap();
    let giving = *world.store.queue_ids.get("b").unwrap();
    world.store.queues[giving].held.staying.insert(Rank::new(-1, Millis(1000), &Tie::Uid("one".into()), one));
    let live = world.live.iter().map(|node| world.tree.root(*node)).collect();
    world.live = live;
    world
}

/// Runs a cycle; returns the uids of its victims and its report.
fn cycle(world: &mut World) -> (Vec<String>, Report) {
    let (mut lines, mut report) = (world.lines(), Report::default());
    world.run_cycle(Millis(2000), 10, &mut lines, &mut report);
    (report.evictions.iter().map(|eviction| eviction.uid.clone()).collect(), report)
}

/// A workload of `count` pods of one unit each that accepts no fewer than `least` pods.
fn asks(queue: &str, uid: &str, count: i64, least: i64) -> WorkloadSpec {
    let mut asks = pending(queue, uid, 5, &[("main", 1)]);
    asks.pod_sets[0].count = count;
    asks.pod_sets[0].min_count = Some(least);
    asks
}

#[test]
fn refused_victim_sets_of_partial_admission_count_once() {
    // Columns: number of pods, smallest number of pods, whether victims are found for some number of pods, and the number of refusals.
    for (count, least, is_found, refused) in [
        (2, 1, true, 0),
        // The victims for the full size of the workload are refused, and the victims for a smaller size are not.
        (4, 1, true, 1),
        // The full size of the workload exceeds the quota; the victims for the smaller sizes that are tried earlier are refused, and the victims for a later
        // size are not.
        (6, 1, true, 1),
        // The victims for each size that the workload accepts are refused.
        (4, 3, false, 1),
        (6, 3, false, 1),
    ] {
        let workloads = vec![asks("a", "asks", count, least), held("b", "one", 0, "f", 2), held("b", "two", 0, "f", 2)];
        let mut world = misled(vec![queue("a", Some("c"), &[("f", 4)])], workloads);
        let (evicted, report) = cycle(&mut world);
        let found = if is_found { vec!["one".to_owned()] } else { Vec::new() };
        assert_eq!((evicted, world.refused_victims()), (found, refused), "{count} pods, at least {least}");
        if count == 4 && !is_found {
            let reported = (PendingReason::WaitingForQuota, Message::Plainly(Breach::NoVictim.text()));
            assert_eq!(report.findings.get(world.store.by_uid.get("asks").unwrap()), Some(&reported));
        }
    }
}

/// The second of two heads searches victims again, because the first head has taken its victim.
#[test]
fn refused_victim_sets_count_when_others_are_found_afterwards() {
    let queues = vec![queue("a", Some("c"), &[("f", 4)]), queue("d", Some("c"), &[("f", 4)])];
    let mut workloads = vec![asks("a", "first", 4, 1), asks("d", "second", 4, 1)];
    workloads.extend([held("b", "one", 0, "f", 2), held("b", "two", 0, "f", 6)]);
    let mut world = misled(queues, workloads);
    let (evicted, _) = cycle(&mut world);
    assert_eq!((evicted, world.refused_victims()), (vec!["one".to_owned(), "two".to_owned()], 2));
}
