//! The cost of one event does not depend on the number of equal pending workloads: the plan after the event tries as many heads among 50,000 pending workloads
//! as among 1,000.

use std::collections::BTreeMap;

use berth_engine::*;

const NOW: Millis = Millis(1_000_000);
const ALL: Limits = Limits { max_admissions: usize::MAX };

/// A world of ten cohorts with ten queues each; each queue has ten cores, and preemption is on.
fn world() -> World {
    let mut world = World::new(Options::default());
    let mut apply = |delta| world.apply(delta).unwrap();
    apply(Delta::Namespace("default".into(), BTreeMap::new()));
    apply(Delta::Flavor(FlavorSpec { name: "default".into(), ..FlavorSpec::default() }));
    for number in 0..100 {
        let quota = Quota { nominal: Amount::new(10_000), borrowing_limit: None, lending_limit: None };
        let flavors = vec![FlavorQuotas { flavor: "default".into(), quotas: vec![quota] }];
        apply(Delta::ClusterQueue(ClusterQueueSpec {
            name: queue_of(number),
            cohort: Some(format!("c{}", number % 10)),
            groups: vec![ResourceGroup { covered: vec!["cpu".into()], flavors }],
            namespace_selector: Some(Selector::default()),
            preemption: Preemption {
                within_cluster_queue: PreemptionPolicy::LowerPriority,
                reclaim_within_cohort: PreemptionPolicy::Any,
                borrow_within_cohort: false,
                max_priority_threshold: None,
            },
            ..ClusterQueueSpec::default()
        }));
        apply(Delta::LocalQueue(LocalQueueSpec {
            namespace: "default".into(),
            name: queue_of(number),
            cluster_queue: queue_of(number),
            stop: StopPolicy::None,
            weight: WEIGHT_ONE,
        }));
    }
    world
}

/// The queue of the workload with the number `number`: queues take turns.
fn queue_of(number: usize) -> String {
    format!("q{}-{}", number % 10, number / 10 % 10)
}

/// A workload of one core.
fn workload(uid: String, number: usize, priority: i64, at: i64) -> WorkloadSpec {
    WorkloadSpec {
        namespace: "default".into(),
        name: uid.clone(),
        uid,
        local_queue: queue_of(number),
        priority,
        queued_at: Millis(at),
        at_front: false,
        pod_sets: vec![PodSetSpec {
            name: "main".into(),
            count: 1,
            requests: BTreeMap::from([("cpu".to_owned(), Amount::new(1000))]),
            ..PodSetSpec::default()
        }],
        allowed_flavors: None,
        tiers: None,
        preempts: Preempts::AsQueue,
        points_per_hour: 0,
        waits_since: Millis(at),
        replaces: None,
        refused: None,
        checks_failed: false,
        preemption_gated: false,
        runs: false,
        state: WorkloadState::Pending { not_before: None, blocked: None },
        revision: 1,
    }
}

/// Counts of a plan: number of heads, cycles, admissions and verdicts.
type Looks = [u64; 4];

fn plan_after(world: &mut World, event: Delta) -> Looks {
    world.apply(event).unwrap();
    let plan = world.plan(NOW, ALL);
    assert!(plan.evictions.is_empty(), "{:?}", plan.evictions);
    let [admissions, verdicts] =
        [plan.admissions.len(), plan.verdicts.len()].map(|count| u64::try_from(count).unwrap());
    [plan.heads, plan.cycles, admissions, verdicts]
}

/// Counts of the plans after an arrival, a finish and an eviction, in four queues of a cohort, while all quota is in use and `waiting` workloads are pending.
fn after_events(waiting: usize) -> Vec<[Looks; 3]> {
    let mut world = world();
    for number in 0..1_000 {
        world.apply(Delta::Workload(workload(format!("held{number}"), number, 100, 0))).unwrap();
    }
    assert_eq!(world.plan(NOW, ALL).admissions.len(), 1_000);
    for number in 0..waiting {
        let at = i64::try_from(number).unwrap();
        world.apply(Delta::Workload(workload(format!("waits{number}"), number, 50, at))).unwrap();
    }
    assert!(world.plan(NOW, ALL).admissions.is_empty());
    let events = (0..4).map(|queue| {
        let (ends, leaves) = (queue * 10, queue * 10 + 100);
        let arrives = workload(format!("new{queue}"), ends, 50, 1_000_000);
        let evicted = WorkloadSpec { revision: 2, ..workload(format!("held{leaves}"), leaves, 40, 2_000_000) };
        let ends = Delta::RemoveWorkload(format!("held{ends}"));
        [Delta::Workload(arrives), ends, Delta::Workload(evicted)].map(|event| plan_after(&mut world, event))
    });
    events.collect()
}

#[test]
fn plan_after_one_event_costs_same_however_many_workloads_wait() {
    let [few, many] = [1_000, 50_000].map(after_events);
    // The first events of a cohort may give all pending workloads a new verdict, so the first counts are not compared.
    assert_eq!(&few[1..], &many[1..], "heads, cycles, admissions, verdicts after arrivals, finishes, evictions");
    for [_, finish, eviction] in &many {
        for [heads, _, admissions, _] in [finish, eviction] {
            assert!(*heads > 0 && *admissions == 1, "room for one is given to one: {many:?}");
        }
    }
}
