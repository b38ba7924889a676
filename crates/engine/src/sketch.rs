//! Small worlds for unit tests: they have one resource, `cpu`, in whole units of the engine.

use std::collections::BTreeMap;

use crate::model::{
    Amount, ClusterQueueSpec, Delta, FlavorQuotas, FlavorSpec, LocalQueueSpec, Millis, PodSetAssignment, PodSetSpec,
    Preemption, PreemptionPolicy, Preempts, Quota, Reservation, ResourceGroup, Selector, StopPolicy, WEIGHT_ONE,
    WorkloadSpec, WorkloadState,
};
use crate::options::Options;
use crate::world::World;

/// A queue that selects all namespaces, may preempt workloads of lower priority, and has the nominal quotas `quotas` by flavor.
pub(crate) fn queue(name: &str, cohort: Option<&str>, quotas: &[(&str, i64)]) -> ClusterQueueSpec {
    let quota = |nominal: i64| Quota { nominal: Amount::new(nominal), borrowing_limit: None, lending_limit: None };
    let flavors =
        quotas.iter().map(|(flavor, nominal)| FlavorQuotas { flavor: (*flavor).into(), quotas: vec![quota(*nominal)] });
    ClusterQueueSpec {
        name: name.into(),
        cohort: cohort.map(str::to_owned),
        groups: vec![ResourceGroup { covered: vec!["cpu".into()], flavors: flavors.collect() }],
        namespace_selector: Some(Selector::default()),
        preemption: Preemption {
            within_cluster_queue: PreemptionPolicy::LowerPriority,
            reclaim_within_cohort: PreemptionPolicy::LowerPriority,
            ..Preemption::default()
        },
        ..ClusterQueueSpec::default()
    }
}

/// A world with queues, each with a LocalQueue of the same name, and with the flavors that the queues name.
pub(crate) fn world(options: Options, queues: Vec<ClusterQueueSpec>, workloads: Vec<WorkloadSpec>) -> World {
    let mut world = World::new(options);
    let mut apply = |delta: Delta| world.apply(delta).unwrap();
    apply(Delta::Namespace("default".into(), BTreeMap::new()));
    for queue in queues {
        for flavor in queue.groups.iter().flat_map(|group| &group.flavors) {
            apply(Delta::Flavor(FlavorSpec { name: flavor.flavor.clone(), ..FlavorSpec::default() }));
        }
        apply(Delta::LocalQueue(LocalQueueSpec {
            namespace: "default".into(),
            name: queue.name.clone(),
            cluster_queue: queue.name.clone(),
            stop: StopPolicy::None,
            weight: WEIGHT_ONE,
        }));
        apply(Delta::ClusterQueue(queue));
    }
    for workload in workloads {
        apply(Delta::Workload(workload));
    }
    world
}

/// A pending workload with pod sets of one pod each; `pod_sets` has their names and requests.
pub(crate) fn pending(queue: &str, uid: &str, priority: i64, pod_sets: &[(&str, i64)]) -> WorkloadSpec {
    let pod_set = |(name, asked): &(&str, i64)| PodSetSpec {
        name: (*name).into(),
        count: 1,
        requests: BTreeMap::from([("cpu".to_owned(), Amount::new(*asked))]),
        ..PodSetSpec::default()
    };
    WorkloadSpec {
        uid: uid.into(),
        namespace: "default".into(),
        name: uid.into(),
        local_queue: queue.into(),
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

/// A workload that holds `amount` of a flavor since the first second.
pub(crate) fn held(queue: &str, uid: &str, priority: i64, flavor: &str, amount: i64) -> WorkloadSpec {
    let given = PodSetAssignment {
        name: "main".into(),
        count: 1,
        flavors: BTreeMap::from([("cpu".to_owned(), flavor.to_owned())]),
        usage: BTreeMap::from([("cpu".to_owned(), Amount::new(amount))]),
    };
    let reservation = Reservation {
        cluster_queue: queue.into(),
        pod_sets: vec![given],
        at: Millis(1000),
        saved: None,
        admitted: true,
        evicted: false,
        kept: false,
        surplus: None,
    };
    WorkloadSpec { state: WorkloadState::Reserved(reservation), ..pending(queue, uid, priority, &[("main", amount)]) }
}
