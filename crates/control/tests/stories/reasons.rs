//! Who is told first why it waits, when many do.

use berth_control::write::{Kind, Purpose};
use serde_json::json;

use crate::stories::cluster::Cluster;
use crate::stories::one_queue;

/// Writes of reasons that may come at once.
const AT_ONCE: usize = 60;

/// Names of the Workloads that were told, in order.
fn told(cluster: &Cluster) -> Vec<&str> {
    let explains = |purpose: &Purpose| [Purpose::ExplainPending, Purpose::ExplainUnseen].contains(purpose);
    let writes = cluster.writes.iter().filter(|(purpose, _)| explains(purpose));
    writes.map(|(_, key)| key.name.as_str()).collect()
}

#[test]
fn of_many_equals_one_is_told_at_once_and_the_others_in_time() {
    let mut cluster = one_queue("1");
    // Two classes of equals, none of which ever fits.
    for (class, cpu) in [("a", "2"), ("b", "3")] {
        for number in 0..50 {
            let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
            let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
            let sets = json!([{"name": "main", "count": 1, "template": template}]);
            let name = format!("{class}-{number:02}");
            let spec = json!({"queueName": "lq", "active": true, "podSets": sets});
            let metadata = json!({"namespace": "team", "name": name});
            cluster.put(Kind::Workload, json!({"metadata": metadata, "spec": spec}));
        }
    }
    cluster.settle();
    let mut first: Vec<&str> = told(&cluster).into_iter().take(2).map(|name| &name[..1]).collect();
    first.sort_unstable();
    assert_eq!(first, ["a", "b"], "one of each class: {:?}", told(&cluster));
    assert_eq!(told(&cluster).len(), AT_ONCE, "no more than that at one moment");
    cluster.pass(10);
    let mut all = told(&cluster);
    assert_eq!(all.len(), 100);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 100, "each once");
    assert_eq!(cluster.count(Purpose::ExplainPending), 2, "one of each class was looked at");
    cluster.pass(300);
    assert_eq!(told(&cluster).len(), 100, "and nothing again while nothing changes");
}
