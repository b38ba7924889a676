//! The cost of an edit of a QueuePolicy or ClusterQueue: after the edit, control decides again about the jobs of the queues that the edit concerns, and about
//! no other job.

use berth_control::write::Kind;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, flavor, job, local_queue};
use crate::stories::crowds::spent;
use crate::stories::policies::policy;

/// The number of jobs of each ClusterQueue.
const OF_ONE: usize = 100;
/// The greatest number of objects other than jobs and Workloads that an edit may concern: the ClusterQueue, its LocalQueue, the policy, and flavors.
const OTHERS: usize = 5;

/// The number of jobs of all ClusterQueues together (environment variable `BERTH_EDIT_JOBS`).
fn jobs() -> usize {
    std::env::var("BERTH_EDIT_JOBS").map_or(400, |text| text.parse().expect("BERTH_EDIT_JOBS: a number"))
}

/// A cluster with ClusterQueues without quota, each with its own flavor and [`OF_ONE`] jobs.
fn crowd() -> Cluster {
    let mut cluster = Cluster::new();
    for queue in 0..jobs() / OF_ONE {
        let name = |what: &str| format!("{what}-{queue}");
        cluster.put(Kind::ResourceFlavor, flavor(&name("flavor"), json!({"pool": name("pool")})));
        cluster.put(Kind::ClusterQueue, cluster_queue(&name("cq"), None, &[(&name("flavor"), "0")]));
        cluster.put(Kind::LocalQueue, local_queue(&name("lq"), &name("cq")));
        for index in 0..OF_ONE {
            cluster.put(Kind::JOB, job(&format!("job-{queue}-{index}"), &name("lq"), "1", true));
        }
    }
    cluster.pass(20);
    cluster
}

/// The number of objects that control decides about after an edit; prints the processor time of the edit and the following step.
fn after(cluster: &mut Cluster, edit: impl FnOnce(&mut Cluster)) -> u64 {
    let begin = spent();
    edit(cluster);
    let step = cluster.control.step(cluster.now());
    let (took, decided) = (spent() - begin, step.decided);
    println!("{decided} objects of {} jobs were looked at in {took:?}", jobs());
    cluster.take(step);
    cluster.pass(10);
    decided
}

fn limits(most: u32) -> Value {
    policy("p", json!({"clusterQueues": ["cq-0"], "admission": {"maxJobs": most}}))
}

#[test]
fn queue_policy_or_cluster_queue_edit_reconciles_only_its_jobs() {
    let mut cluster = crowd();
    let most = u64::try_from(2 * OF_ONE + OTHERS).unwrap();
    let made = after(&mut cluster, |cluster| cluster.put(Kind::QueuePolicy, limits(7)));
    let more = json!({"spec": {"admission": {"maxJobs": 8}}});
    let edited = after(&mut cluster, |cluster| cluster.edit(Kind::QueuePolicy, "", "p", &more));
    for decided in [made, edited] {
        assert!(decided <= most, "{decided} objects for an edit of a policy");
        assert!(decided >= OF_ONE as u64, "{decided}: its jobs follow the policy");
    }
    let quota = json!({"spec": {"resourceGroups": [{"coveredResources": ["cpu"],
        "flavors": [{"name": "flavor-0", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]}]}});
    let decided = after(&mut cluster, |cluster| cluster.edit(Kind::ClusterQueue, "", "cq-0", &quota));
    assert!(decided <= most, "{decided} objects for an edit of a ClusterQueue");
    let admitted = cluster.objects().iter().filter(|(key, _)| key.kind == Kind::Workload);
    let admitted = admitted.filter(|(key, _)| cluster.workload_is(&key.name, "Admitted")).count();
    assert_eq!(admitted, 2);
    let decided = after(&mut cluster, |cluster| cluster.delete(&Cluster::key(Kind::QueuePolicy, "", "p")));
    assert!(decided <= most, "{decided} objects for a policy that is gone");
}

/// The job waits for a priority class that the policy derives from a label of the job, and that a later policy does not name.
#[test]
fn job_waiting_for_priority_class_gets_it_from_queue_policy() {
    let mut cluster = Cluster::new();
    cluster.put(Kind::ResourceFlavor, flavor("flavor", json!({"pool": "a"})));
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("flavor", "9")]));
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    let mut waits = job("a", "lq", "1", true);
    waits["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("none");
    waits["spec"]["template"]["metadata"]["labels"]["band"] = json!("high");
    cluster.put(Kind::JOB, waits);
    cluster.pass(30);
    assert!(cluster.workload_of("a").is_none(), "it has no priority");
    cluster.set_class("top", 7);
    cluster.pass(30);
    assert!(cluster.workload_of("a").is_none(), "nobody names that class");
    let by_label = json!({"label": "band", "classes": [{"value": "high", "workloadPriorityClass": "top"}]});
    cluster.put(Kind::QueuePolicy, policy("p", json!({"clusterQueues": ["cq"], "priorityFromLabel": by_label})));
    cluster.pass(30);
    let workload = cluster.workload_of("a").expect("a Workload");
    assert_eq!(workload["spec"]["priority"], 7);
}
