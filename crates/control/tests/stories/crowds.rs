//! A group with far more pods than it was admitted for: what one step costs grows with the pods, and not with their square.

use std::fs;
use std::time::Duration;

use berth_control::write::{Kind, Purpose};

use crate::stories::groups::{gated, member};
use crate::stories::pod_queue;

/// Where each pod walks over all others, that many take minutes.
const PODS: usize = 8_000;
/// Time on a core; ten times what they take on a slow machine.
const PATIENCE: Duration = Duration::from_secs(15);

/// Time that this thread has had a core: where others have the machine it may wait for minutes.
pub(crate) fn spent() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

#[test]
fn group_with_thousands_of_excess_pods_costs_linear_time() {
    let mut cluster = pod_queue("100000");
    cluster.put(Kind::Pod, member("a", "1", 1, &[]));
    cluster.settle();
    assert!(!gated(&cluster, "a"), "{:?}", cluster.writes);
    let begin = spent();
    for index in 0..PODS {
        cluster.put(Kind::Pod, member(&format!("b-{index}"), "1", 1, &[]));
    }
    let step = cluster.control.step(cluster.now);
    let purposes: Vec<Purpose> = step.writes.iter().map(|write| write.purpose).collect();
    assert!(purposes.contains(&Purpose::AddOwners) && !purposes.contains(&Purpose::StartJob), "{purposes:?}");
    cluster.take(step);
    // One of them changes: all are looked at again, and one is the first to go.
    cluster.put(Kind::Pod, member("b-1", "1", 1, &[("retriable-in-group", "false")]));
    let step = cluster.control.step(cluster.now);
    let purposes: Vec<Purpose> = step.writes.iter().map(|write| write.purpose).collect();
    let deleted = purposes.iter().filter(|purpose| **purpose == Purpose::DeletePod).count();
    assert!(deleted == 1 && !purposes.contains(&Purpose::StartJob), "{purposes:?}");
    let took = spent() - begin;
    assert!(took > Duration::ZERO && took < PATIENCE, "{PODS} pods took {took:?}");
}
