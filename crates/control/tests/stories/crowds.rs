//! A pod group with far more pods than were admitted: the cost of one step grows in proportion to the number of the pods, not to its square.

use std::fs;
use std::time::Duration;

use berth_control::write::{Kind, Purpose};

use crate::stories::groups::{gated, member};
use crate::stories::pod_queue;

/// The number of pods. With so many pods, a step of an algorithm that compares each pod with all other pods takes minutes.
const PODS: usize = 8_000;
/// The limit of the processor time of one step of control: ten times the time that the step takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(15);

/// The processor time that this thread has used. On a busy machine the thread may wait for minutes, and the time of waiting does not count.
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
    let step = cluster.control.step(cluster.now());
    let purposes: Vec<Purpose> = step.tasks.iter().map(|write| write.purpose).collect();
    assert!(purposes.contains(&Purpose::AddOwners) && !purposes.contains(&Purpose::StartJob), "{purposes:?}");
    cluster.take(step);
    // A change of one pod of the group makes control look at all pods of the group again, and delete the first excess pod.
    cluster.put(Kind::Pod, member("b-1", "1", 1, &[("retriable-in-group", "false")]));
    let step = cluster.control.step(cluster.now());
    let purposes: Vec<Purpose> = step.tasks.iter().map(|write| write.purpose).collect();
    let deleted = purposes.iter().filter(|purpose| **purpose == Purpose::DeletePod).count();
    assert!(deleted == 1 && !purposes.contains(&Purpose::StartJob), "{purposes:?}");
    let took = spent() - begin;
    assert!(took > Duration::ZERO && took < PATIENCE, "{PODS} pods took {took:?}");
}
