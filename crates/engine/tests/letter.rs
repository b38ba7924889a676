//! Tests of Kueue's rules to the letter, for which the lines of a golden case are not enough.

use std::collections::BTreeMap;

use berth_engine::steps::*;
use berth_engine::*;

const NOW: Millis = Millis(1000);
const ALL: Limits = Limits { max_admissions: 100 };

fn cpu(amount: i64) -> BTreeMap<String, Amount> {
    BTreeMap::from([("cpu".to_owned(), Amount::new(amount))])
}

fn nano(amounts: BTreeMap<String, Amount>) -> BTreeMap<String, Nano> {
    amounts.into_iter().map(|(name, amount)| (name.clone(), berth_quantity::to_nano(&name, amount))).collect()
}

/// A queue with one flavor, `f`, a nominal quota and a borrowing limit.
fn queue(name: &str, cohort: Option<&str>, nominal: i64, limit: Option<i64>) -> ClusterQueueSpec {
    let quota = Quota { nominal: Amount::new(nominal), borrowing_limit: limit.map(Amount::new), lending_limit: None };
    ClusterQueueSpec {
        name: name.into(),
        cohort: cohort.map(str::to_owned),
        groups: vec![ResourceGroup {
            covered: vec!["cpu".into()],
            flavors: vec![FlavorQuotas { flavor: "f".into(), quotas: vec![quota] }],
        }],
        namespace_selector: Some(Selector::default()),
        ..ClusterQueueSpec::default()
    }
}

fn local(namespace: &str, name: &str, queue: &str) -> Delta {
    let (namespace, name, cluster_queue) = (namespace.into(), name.into(), queue.into());
    Delta::LocalQueue(LocalQueueSpec { namespace, name, cluster_queue, stop: StopPolicy::None, weight: WEIGHT_ONE })
}

fn world(options: Options, queues: Vec<ClusterQueueSpec>) -> World {
    let mut world = World::new(options);
    let mut apply = |delta: Delta| world.apply(delta).unwrap();
    apply(Delta::Namespace("default".into(), BTreeMap::new()));
    apply(Delta::Flavor(FlavorSpec { name: "f".into(), ..FlavorSpec::default() }));
    for queue in queues {
        apply(local("default", &queue.name, &queue.name));
        apply(Delta::ClusterQueue(queue));
    }
    world
}

/// A pending workload of a LocalQueue, `namespace/name`; `pod_sets` has the name and the number of pods of each pod set, and each pod requests one cpu.
fn pending(uid: &str, local_queue: &str, priority: i64, pod_sets: &[(&str, i64)]) -> WorkloadSpec {
    let (namespace, local_queue) = local_queue.split_once('/').unwrap_or(("default", local_queue));
    let pod_set = |(name, count): &(&str, i64)| PodSetSpec {
        name: (*name).into(),
        count: *count,
        requests: cpu(1),
        ..PodSetSpec::default()
    };
    WorkloadSpec {
        uid: uid.into(),
        namespace: namespace.into(),
        name: uid.into(),
        local_queue: local_queue.into(),
        priority,
        queued_at: Millis(0),
        at_front: false,
        pod_sets: pod_sets.iter().map(pod_set).collect(),
        allowed_flavors: None,
        tiers: None,
        preempts: Preempts::AsQueue,
        points_per_hour: 0,
        waits_since: Millis(0),
        replaces: None,
        refused: None,
        checks_failed: false,
        preemption_gated: false,
        runs: false,
        state: WorkloadState::Pending { not_before: None, blocked: None },
        revision: 1,
    }
}

fn given(pod_sets: &[(&str, i64)]) -> Vec<PodSetAssignment> {
    let one = |(name, count): &(&str, i64)| PodSetAssignment {
        name: (*name).into(),
        count: *count,
        flavors: BTreeMap::from([("cpu".to_owned(), "f".to_owned())]),
        usage: cpu(*count),
    };
    pod_sets.iter().map(one).collect()
}

/// A workload that holds quota of a ClusterQueue for its requests.
fn held(uid: &str, local_queue: &str, queue: &str, priority: i64, pod_sets: &[(&str, i64)]) -> WorkloadSpec {
    let reservation = Reservation {
        cluster_queue: queue.into(),
        pod_sets: given(pod_sets),
        at: NOW,
        saved: None,
        admitted: true,
        evicted: false,
        kept: false,
        surplus: None,
    };
    WorkloadSpec { state: WorkloadState::Reserved(reservation), ..pending(uid, local_queue, priority, pod_sets) }
}

fn by_usage() -> Options {
    let settings = AdmissionFairSharing { half_life: 10_000, sampling_interval: 1000, weights: BTreeMap::new() };
    Options { admission_fair_sharing: Some(settings), ..Options::default() }
}

fn usage_based(name: &str) -> ClusterQueueSpec {
    ClusterQueueSpec { usage_based: true, ..queue(name, Some("c"), 9, None) }
}

/// Uids of workloads in the order in which they are tried as victims of `asks`; each workload is given with its LocalQueue, ClusterQueue and priority. The
/// LocalQueue usage of workloads whose uid begins with `unknown` is not known.
fn order(usages: &[(&str, &str, i64)], workloads: &[(&str, &str, &str, i64)]) -> Vec<String> {
    let queues = ["a", "b"].map(usage_based).into_iter().chain([queue("asks", Some("c"), 9, None)]);
    let mut world = world(by_usage(), queues.collect());
    for (namespace, name, used) in usages {
        let figures = LedgerFigures { consumed: nano(cpu(used * 1000)), at: NOW };
        world.apply(local(namespace, name, "a")).unwrap();
        world.apply(Delta::Ledger((*namespace).into(), (*name).into(), figures)).unwrap();
    }
    for (uid, local_queue, queue, priority) in workloads {
        world.apply(Delta::Workload(held(uid, local_queue, queue, *priority, &[("main", 1)]))).unwrap();
    }
    let uids: Vec<&str> = workloads.iter().map(|(uid, ..)| *uid).collect();
    let without: Vec<&str> = uids.iter().copied().filter(|uid| uid.starts_with("unknown")).collect();
    let forth = world.steps().candidate_order("asks", &uids, &without);
    let back: Vec<&str> = uids.into_iter().rev().collect();
    assert_eq!(
        forth,
        world.steps().candidate_order("asks", &back, &without),
        "the order in which they come plays no part"
    );
    forth
}

#[test]
fn victim_order_puts_usage_before_priority_within_one_queue_only() {
    let usages = [("n", "busy", 9), ("n", "idle", 1)];
    let high = ("high", "n/busy", "a", 9);
    assert_eq!(order(&usages, &[("low", "n/idle", "a", 0), high]), ["high", "low"]);
    assert_eq!(order(&usages, &[("low", "n/idle", "b", 0), high]), ["low", "high"]);
    assert_eq!(order(&usages, &[("low", "n/busy", "a", 0), high]), ["low", "high"], "the same LocalQueue");
}

#[test]
fn victim_order_ignores_usage_known_for_one_alone() {
    let usages = [("n", "busy", 9), ("n", "idle", 1)];
    let known = ("high", "n/busy", "a", 9);
    assert_eq!(order(&usages, &[("unknown", "n/idle", "a", 0), known]), ["unknown", "high"]);
    assert_eq!(
        order(&usages, &[("unknown-1", "n/idle", "a", 0), ("unknown-2", "n/busy", "a", 9)]),
        ["unknown-1", "unknown-2"]
    );
}

#[test]
fn victim_order_treats_local_queues_of_one_name_as_one() {
    let usages = [("n", "x", 9), ("m", "x", 1), ("n", "y", 5)];
    let workloads = [("one", "n/x", "a", 5), ("two", "m/x", "a", 7)];
    assert_eq!(order(&usages, &workloads), ["one", "two"]);
    // The workload `three` comes between `one` and `two` by usage, and `one` before `two` by priority: the three comparisons form an order.
    let between = [workloads[0], workloads[1], ("three", "n/y", "a", 0)];
    assert_eq!(order(&usages, &between), ["one", "three", "two"]);
}

#[test]
fn victim_order_is_stable_where_kueue_defines_none() {
    // Between the two LocalQueues with the same name, the workload of the LocalQueue with less usage goes first by priority, so that each of the three
    // workloads comes before another one in a circle.
    let usages = [("n", "x", 9), ("m", "x", 1), ("n", "y", 5)];
    let circle = [("one", "n/x", "a", 7), ("two", "m/x", "a", 5), ("three", "n/y", "a", 0)];
    assert_eq!(order(&usages, &circle).len(), 3);
}

#[test]
fn pod_set_that_shrinks_in_slice_makes_room_for_another() {
    let mut world = world(Options::default(), vec![queue("q", None, 4, None)]);
    let old = [("a", 3), ("b", 1)];
    world.apply(Delta::Workload(held("old", "q", "q", 0, &old))).unwrap();
    let replaces = Some(Replaced { uid: "old".into(), pod_sets: given(&old) });
    let new = WorkloadSpec { replaces, ..pending("new", "q", 0, &[("a", 1), ("b", 3)]) };
    world.apply(Delta::Workload(new)).unwrap();
    let plan = world.plan(NOW, ALL);
    let counts: Vec<i64> =
        plan.admissions.iter().flat_map(|admission| &*admission.pod_sets).map(|set| set.count).collect();
    assert_eq!(counts, [1, 3]);
    assert!(check(&world).is_empty(), "{:?}", check(&world));
}

#[test]
fn slice_gets_no_flavor_where_its_older_slice_had_none() {
    let mut world = world(Options::default(), vec![queue("q", None, 4, None)]);
    let new = pending("new", "q", 0, &[("a", 1)]);
    world.apply(Delta::Workload(new)).unwrap();
    let bare = PodSetAssignment { name: "a".into(), count: 1, ..PodSetAssignment::default() };
    let asked = AssignInput {
        replaced: Some(vec![bare]),
        oracle: Some(&mut |_, _| (PreemptionPossibility::Preempt, 0)),
        ..AssignInput::default()
    };
    let report = world.steps().assign("new", "q", asked).unwrap();
    assert_eq!(report.mode, Mode::NoFit);
    let reasons: Vec<&str> = report.pod_sets.iter().flat_map(|set| &set.reasons).map(String::as_str).collect();
    assert_eq!(reasons, ["could not assign f flavor since the original workload is assigned: "]);
}

#[test]
fn pod_set_below_its_minimum_count_is_not_reduced() {
    let up_to = |most: i64| move |counts: &[i64]| counts.iter().sum::<i64>() <= most;
    assert_eq!(reduce_counts(&[(5, Some(2)), (1, Some(3))], up_to(4)), Some(vec![3, 1]));
    assert_eq!(reduce_counts(&[(5, Some(2)), (1, Some(3))], up_to(2)), None);
    assert_eq!(reduce_counts(&[(1, Some(3))], up_to(9)), None, "there is nothing to reduce");
}

#[test]
fn queue_above_its_borrowing_limit_keeps_negative_free_quota() {
    let mut world = world(Options::default(), vec![queue("q", Some("c"), 2, Some(1)), queue("r", Some("c"), 9, None)]);
    world.apply(Delta::Workload(held("over", "q", "q", 0, &[("main", 7)]))).unwrap();
    let cell = FlavorResource { flavor: "f".into(), resource: "cpu".into() };
    let wanted = BTreeMap::from([(cell.clone(), Amount::new(2))]);
    let kept = |borrowing: u32, world: &mut World| {
        world.steps().kept_free("q", Mode::Preempt, borrowing, &wanted).remove(&cell)
    };
    assert_eq!(kept(1, &mut world), Some(Amount::new(-4)));
    assert_eq!(kept(0, &mut world), Some(Amount::new(0)), "what does not borrow is cut off at nothing");
}

#[test]
fn queue_over_its_limits_keeps_exact_usage_after_a_cycle() {
    // A high borrowing limit lets the head search for victims, although its further request is more than the queue may have.
    let options = Options { profile: Profile::KueueLetter, ..Options::default() };
    let mut world = world(options, vec![queue("q", Some("c"), 2, Some(9)), queue("r", Some("c"), 9, None)]);
    world.apply(Delta::Workload(held("over", "q", "q", 0, &[("main", 12)]))).unwrap();
    world.apply(Delta::Workload(pending("asks", "q", 5, &[("main", 3)]))).unwrap();
    world.apply(Delta::Workload(pending("other", "r", 5, &[("main", 1)]))).unwrap();
    let plan = world.plan(NOW, ALL);
    assert_eq!(plan.admissions.len(), 0);
    assert!(check(&world).is_empty(), "{:?}", check(&world));
}

#[test]
fn repeated_victim_search_is_counted_by_its_result() {
    let takes_back = |name: &str| ClusterQueueSpec {
        preemption: Preemption { reclaim_within_cohort: PreemptionPolicy::Any, ..Preemption::default() },
        ..queue(name, Some("c"), 3, None)
    };
    for (spare, result) in [(3, "new_targets"), (0, "deferred_fit")] {
        let options = Options { profile: Profile::KueueLetter, ..Options::default() };
        let mut world = world(options, vec![takes_back("a"), takes_back("b"), queue("lent", Some("c"), 0, None)]);
        let mut apply = |spec: WorkloadSpec| world.apply(Delta::Workload(spec)).unwrap();
        apply(held("first", "lent", "lent", 0, &[("main", 6 - spare)]));
        if spare > 0 {
            apply(held("second", "lent", "lent", 1, &[("main", spare)]));
        }
        apply(pending("a", "a", 9, &[("main", 3)]));
        apply(pending("b", "b", 8, &[("main", 3)]));
        let plan = world.plan_cycles(NOW, ALL, 1);
        let counted: Vec<(&str, u32)> = plan.recomputed_targets.iter().map(|((_, what), n)| (*what, *n)).collect();
        assert_eq!(counted, [(result, 1)]);
    }
}

#[test]
fn flavor_scan_round_ends_at_the_limit_of_berth() {
    let many = |resource: &str, count: usize| {
        let nominal = Amount::new(9);
        let quotas = vec![Quota { nominal, borrowing_limit: None, lending_limit: None }];
        let flavor = |at: usize| FlavorQuotas { flavor: format!("{resource}{at}"), quotas: quotas.clone() };
        ResourceGroup { covered: vec![resource.into()], flavors: (0..count).map(flavor).collect() }
    };
    // The scans of 16 and of 17 flavors are at the end of their lists at the same time after 272 scans.
    for (profile, scans) in [(Profile::KueueLetter, 272), (Profile::Berth, 256)] {
        let mut spec = queue("q", None, 1, None);
        spec.groups.extend([many("memory", 16), many("gpu", 17)]);
        let mut world = world(Options { profile, ..Options::default() }, vec![]);
        for name in spec.groups.iter().flat_map(|group| &group.flavors).map(|quotas| quotas.flavor.clone()) {
            world.apply(Delta::Flavor(FlavorSpec { name, ..FlavorSpec::default() })).unwrap();
        }
        world.apply(local("default", "q", "q")).unwrap();
        world.apply(Delta::ClusterQueue(spec)).unwrap();
        world.apply(Delta::Workload(held("runs", "q", "q", 0, &[("main", 1)]))).unwrap();
        let mut asks = pending("asks", "q", 0, &[("main", 1)]);
        asks.pod_sets[0].requests.extend(["memory", "gpu"].map(|resource| (resource.to_owned(), Amount::new(1))));
        world.apply(Delta::Workload(asks)).unwrap();
        let plan = world.plan(NOW, ALL);
        assert_eq!((plan.heads, world.figures("q").unwrap().pending_inadmissible), (scans, 1));
    }
}

#[test]
fn workload_admitted_in_a_cycle_is_no_victim_in_it() {
    for profile in [Profile::KueueLetter, Profile::Berth] {
        let takes = |name: &str, nominal: i64| ClusterQueueSpec {
            preemption: Preemption {
                reclaim_within_cohort: PreemptionPolicy::Any,
                borrow_within_cohort: true,
                ..Preemption::default()
            },
            ..queue(name, Some("c"), nominal, None)
        };
        let others = [("lent", 0), ("small", 0), ("spare", 1)];
        let others = others.map(|(name, nominal)| queue(name, Some("c"), nominal, None));
        let gates = Gates { priority_sorting: false, ..Gates::default() };
        let queues = [takes("a", 3), takes("b", 2)].into_iter().chain(others).collect();
        let mut world = world(Options { profile, gates, ..Options::default() }, queues);
        let mut apply = |spec: WorkloadSpec| world.apply(Delta::Workload(spec)).unwrap();
        apply(held("first", "lent", "lent", 1, &[("main", 3)]));
        apply(held("second", "lent", "lent", 2, &[("main", 2)]));
        apply(pending("a", "a", 9, &[("main", 3)]));
        apply(pending("small", "small", 0, &[("main", 1)]));
        // Workload `b` is the last of the three pending workloads: its victim `first` already leaves for `a`, and without `small` and `second` there would be
        // room for `b` as well.
        apply(WorkloadSpec { queued_at: Millis(5), ..pending("b", "b", 5, &[("main", 3)]) });
        let plan = world.plan_cycles(NOW, ALL, 1);
        let admitted: Vec<&str> = plan.admissions.iter().map(|admission| &*admission.uid).collect();
        let evicted: Vec<&str> = plan.evictions.iter().map(|eviction| eviction.uid.as_str()).collect();
        assert_eq!((admitted, evicted), (vec!["small"], vec!["first"]));
    }
}

#[test]
fn preemptor_with_changed_spec_loses_its_precedence() {
    for (revision, first) in [(1, "high"), (2, "other")] {
        let takes = ClusterQueueSpec {
            preemption: Preemption {
                within_cluster_queue: PreemptionPolicy::LowerPriority,
                reclaim_within_cohort: PreemptionPolicy::Any,
                borrow_within_cohort: true,
                ..Preemption::default()
            },
            ..queue("a", Some("c"), 2, None)
        };
        let queues = vec![takes, queue("b", Some("c"), 0, None), queue("spare", Some("c"), 2, None)];
        let mut world = world(Options { profile: Profile::KueueLetter, ..Options::default() }, queues);
        let mut apply = |delta: Delta| world.apply(delta).unwrap();
        apply(Delta::Workload(held("low", "a", "a", 0, &[("main", 2)])));
        let high = pending("high", "a", 1, &[("main", 3)]);
        apply(Delta::Workload(high.clone()));
        let plan = world.plan(NOW, ALL);
        assert_eq!(plan.evictions.len(), 1);
        let mut apply = |delta: Delta| world.apply(delta).unwrap();
        apply(Delta::RemoveWorkload("low".into()));
        apply(Delta::Workload(WorkloadSpec { revision, ..high }));
        apply(Delta::Workload(pending("other", "b", 9, &[("main", 4)])));
        let plan = world.plan_cycles(NOW, ALL, 1);
        let admitted: Vec<&str> = plan.admissions.iter().map(|admission| &*admission.uid).collect();
        assert_eq!(admitted, [first], "revision {revision}");
    }
}

#[test]
fn local_queue_counts_only_usage_of_cluster_queue_it_names() {
    let mut world = world(Options::default(), vec![queue("q", None, 9, None), queue("r", None, 9, None)]);
    world.apply(Delta::Workload(held("one", "q", "q", 0, &[("main", 2)]))).unwrap();
    world.apply(Delta::Workload(held("two", "q", "r", 0, &[("main", 3)]))).unwrap();
    let reported_by = |world: &World| {
        let figures = world.local_queue_figures("default", "q").unwrap();
        let used: Vec<Amount> = figures.reservation.iter().map(|cell| cell.total).collect();
        (figures.reserving, used)
    };
    let so_much = |count: u32, cpu: i64| (count, vec![Amount::new(cpu)]);
    assert_eq!(reported_by(&world), so_much(1, 2));
    world.apply(local("default", "q", "r")).unwrap();
    assert_eq!(reported_by(&world), so_much(1, 3));
    world.apply(Delta::RemoveWorkload("two".into())).unwrap();
    assert_eq!(reported_by(&world), so_much(0, 0));
    world.apply(local("default", "q", "gone")).unwrap();
    assert_eq!(reported_by(&world), (0, vec![]));
    world.apply(local("default", "q", "q")).unwrap();
    assert_eq!(reported_by(&world), so_much(1, 2));
    world.apply(Delta::RemoveClusterQueue("q".into())).unwrap();
    assert_eq!(reported_by(&world), (0, vec![]), "nobody knows its flavors");
}

/// Two namespaces submit workloads in the same second: in some seconds the workload of one namespace goes first, in other seconds the workload of the other
/// namespace. A world that is made anew from the same objects has the same order.
#[test]
fn equal_workloads_of_two_namespaces_are_ordered_by_hash() {
    let first = |second: i64, turned: bool| {
        let mut world = world(Options::default(), vec![queue("q", None, 1, None)]);
        let mut names = ["n/a", "m/b"].map(|name| name.split_once('/').unwrap());
        if turned {
            names.reverse();
        }
        for (namespace, uid) in names {
            world.apply(Delta::Namespace(namespace.into(), BTreeMap::new())).unwrap();
            world.apply(local(namespace, "q", "q")).unwrap();
            let spec = pending(uid, &format!("{namespace}/q"), 0, &[("main", 1)]);
            world.apply(Delta::Workload(WorkloadSpec { queued_at: Millis(second * 1000), ..spec })).unwrap();
        }
        let plan = world.plan(Millis(second * 1000), ALL);
        assert_eq!(plan.admissions.len(), 1);
        plan.admissions[0].uid.to_string()
    };
    let firsts: Vec<String> = (1..20).map(|second| first(second, false)).collect();
    assert!(firsts.iter().any(|uid| uid == "a") && firsts.iter().any(|uid| uid == "b"), "{firsts:?}");
    assert_eq!(firsts, (1..20).map(|second| first(second, true)).collect::<Vec<_>>(), "they may come in any order");
}

/// A salt orders equals alike whether it comes before the workloads or after them, in their queue and among the holders of quota. With Kueue's decisions to the
/// letter, no salt changes the order of equal workloads.
#[test]
fn tie_salt_orders_equal_workloads_whenever_it_comes() {
    #[derive(Clone, Copy, PartialEq)]
    enum Salt {
        Never,
        First,
        Last,
    }
    let orders = |salted: Salt, text: &str, profile: Profile| -> Vec<String> {
        let order = |second: i64| {
            let mut world = world(Options { profile, ..Options::default() }, vec![queue("q", None, 3, None)]);
            let salt = || Delta::TieSalt(text.into());
            if salted == Salt::First {
                world.apply(salt()).unwrap();
            }
            for (namespace, uid) in [("n", "a"), ("m", "b")] {
                world.apply(Delta::Namespace(namespace.into(), BTreeMap::new())).unwrap();
                world.apply(local(namespace, "q", "q")).unwrap();
                let queue = format!("{namespace}/q");
                let spec = pending(uid, &queue, 0, &[("main", 1)]);
                world.apply(Delta::Workload(WorkloadSpec { queued_at: Millis(second * 1000), ..spec })).unwrap();
                let runs = held(&format!("{uid}-runs"), &queue, "q", 0, &[("main", 1)]);
                world.apply(Delta::Workload(WorkloadSpec { queued_at: Millis(second * 1000), ..runs })).unwrap();
            }
            if salted == Salt::Last {
                world.apply(salt()).unwrap();
                world.apply(salt()).unwrap();
            }
            assert_eq!(check(&world), [""; 0]);
            let plan = world.plan(Millis(second * 1000), ALL);
            assert_eq!(plan.admissions.len(), 1, "one of two fits beside those that hold quota");
            assert_eq!(check(&world), [""; 0]);
            plan.admissions[0].uid.to_string()
        };
        (1..40).map(order).collect()
    };
    let ours = Profile::Berth;
    assert_eq!(orders(Salt::First, "uid-1", ours), orders(Salt::Last, "uid-1", ours));
    assert_ne!(orders(Salt::First, "uid-1", ours), orders(Salt::First, "uid-2", ours));
    assert_ne!(orders(Salt::First, "uid-1", ours), orders(Salt::Never, "", ours));
    let letter = Profile::KueueLetter;
    assert_eq!(orders(Salt::Last, "uid-1", letter), orders(Salt::Never, "", letter));
}
