//! Tests that the store forgets classes of equals and LocalQueues that are not used any more.

use std::collections::BTreeMap;

use crate::model::{Delta, LocalQueueSpec, StopPolicy, WorkloadSpec, WorkloadState};
use crate::world::World;

fn workload(uid: &str, namespace: &str, local_queue: &str) -> WorkloadSpec {
    WorkloadSpec {
        uid: uid.to_owned(),
        namespace: namespace.to_owned(),
        name: uid.to_owned(),
        local_queue: local_queue.to_owned(),
        priority: 0,
        queued_at: crate::model::Millis(0),
        at_front: false,
        pod_sets: vec![],
        allowed_flavors: None,
        tiers: None,
        preempts: crate::model::Preempts::AsQueue,
        points_per_hour: 0,
        waits_since: crate::model::Millis(0),
        replaces: None,
        refused: None,
        checks_failed: false,
        preemption_gated: false,
        runs: false,
        state: WorkloadState::Pending { not_before: None, blocked: None },
        revision: 1,
    }
}

#[test]
fn removed_local_queue_is_forgotten_once_no_workload_names_it() {
    let mut world = World::default();
    for round in 0..100 {
        let namespace = format!("run-{round}");
        world.apply(Delta::Namespace(namespace.clone(), BTreeMap::new())).unwrap();
        let spec = LocalQueueSpec {
            namespace: namespace.clone(),
            name: "default".into(),
            cluster_queue: "q".into(),
            stop: StopPolicy::None,
            weight: 1_000_000_000,
        };
        world.apply(Delta::LocalQueue(spec)).unwrap();
        world.apply(Delta::Workload(workload("a", &namespace, "default"))).unwrap();
        world.apply(Delta::Workload(workload("b", &namespace, "default"))).unwrap();
        // The workload `b` now names another LocalQueue, which no other workload names.
        world.apply(Delta::Workload(workload("b", &namespace, &format!("no-{round}")))).unwrap();
        world.apply(Delta::RemoveLocalQueue(namespace.clone(), "default".into())).unwrap();
        // The workload `a` still names the LocalQueue `default`.
        assert!(world.store.local_queue_names.get(&(namespace.clone(), "default".to_owned())).is_some());
        for uid in ["a", "b"] {
            world.apply(Delta::RemoveWorkload(uid.into())).unwrap();
        }
        world.apply(Delta::RemoveNamespace(namespace)).unwrap();
        assert!(crate::check(&world).is_empty());
    }
    assert!(world.store.local_queues.len() <= 2, "{}", world.store.local_queues.len());
}

#[test]
fn local_queue_knows_whether_its_namespace_exists() {
    let mut world = World::default();
    let local_queue = |namespace: &str| LocalQueueSpec {
        namespace: namespace.to_owned(),
        name: "default".into(),
        cluster_queue: "q".into(),
        stop: StopPolicy::None,
        weight: 1_000_000_000,
    };
    let lacks = |world: &World| -> Vec<bool> {
        let ids = ["a", "b", "c"].iter().filter_map(|name| world.find_local_queue(name, "default"));
        ids.map(|id| world.store.local_queues[id].lacks_namespace).collect()
    };
    for namespace in ["a", "b"] {
        world.apply(Delta::LocalQueue(local_queue(namespace))).unwrap();
    }
    // The world knows no namespace yet, so no namespace of a LocalQueue counts as missing.
    assert_eq!(lacks(&world), [false, false]);
    let steps = [
        (Delta::Namespace("a".into(), BTreeMap::new()), [false, true].as_slice()),
        (Delta::LocalQueue(local_queue("c")), &[false, true, true]),
        (Delta::Namespace("c".into(), BTreeMap::new()), &[false, true, false]),
        (Delta::Namespace("b".into(), BTreeMap::new()), &[false, false, false]),
        (Delta::RemoveNamespace("a".into()), &[true, false, false]),
        (Delta::RemoveNamespace("a".into()), &[true, false, false]),
        (Delta::RemoveNamespace("b".into()), &[true, true, false]),
        (Delta::RemoveNamespace("c".into()), &[false, false, false]),
    ];
    for (step, (delta, expected)) in steps.into_iter().enumerate() {
        world.apply(delta).unwrap();
        assert_eq!(lacks(&world), expected, "step {step}");
        assert!(crate::check(&world).is_empty(), "step {step}");
    }
}
