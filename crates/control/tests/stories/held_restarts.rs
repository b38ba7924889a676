//! Restarts of elastic TrainingJobs that other changes, or failures, meet half way.

use berth_control::write::{Kind, Outcome, Purpose};
use jiff::SignedDuration;
use serde_json::json;

use crate::cluster::Cluster;
use crate::elastic::{other, with_priorities};
use crate::restarts::{started, told_once, uid, variable};

#[test]
fn a_host_file_lists_the_workers_of_the_restart_that_is_made_in_the_end() {
    let launcher = json!([{"name": "launcher", "replicaResources": {"cpu": "1"}}]);
    let mut cluster = started(told_once("a", &json!({"jobType": "MPIJob", "roles": launcher})));
    for _ in 0..100 {
        cluster.faults.push((Purpose::StartTraining, Outcome::Refused("no more Jobs".into()), false));
    }
    let hosts = |cluster: &Cluster| {
        let found = cluster.objects.iter().find(|(key, _)| key.kind == Kind::ConfigMap);
        found.map(|(_, map)| map["data"].to_string()).unwrap_or_default()
    };
    cluster.put(Kind::JOB, other("one", "2", 100));
    cluster.pass_judged(10, "one goes");
    assert!(!cluster.has_job("a-worker") && !cluster.has_job("a-launcher"), "{:?}", cluster.writes);
    assert!(hosts(&cluster).contains("a-worker-2.") && !hosts(&cluster).contains("a-worker-3."), "{}", hosts(&cluster));
    cluster.put(Kind::JOB, other("two", "1", 100));
    cluster.pass_judged(20, "another goes before anything starts");
    assert!(cluster.is("two", "Admitted"), "{:?}", cluster.writes);
    cluster.faults.clear();
    cluster.pass_judged(70, "it may start");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (2, "Running"), "{:?}", cluster.writes);
    assert!(hosts(&cluster).contains("a-worker-1.") && !hosts(&cluster).contains("a-worker-2."), "{}", hosts(&cluster));
}

#[test]
fn who_fails_while_others_are_deleted_for_a_restart_fails_nothing() {
    for fails_over in [false, true] {
        let ps = json!([{"name": "ps", "replicas": 1, "replicaResources": {"cpu": "1"}}]);
        let mut cluster = started(told_once("a", &json!({"jobType": "TFJob", "roles": ps, "backoffLimit": 0})));
        cluster.put(Kind::JOB, other("urgent", "3", 100));
        for _ in 0..200 {
            if cluster.has_job("a-ps") {
                let step = cluster.control.step(cluster.now);
                let quiet = step.writes.is_empty();
                cluster.take(step);
                let pause = SignedDuration::from_millis(if quiet { 50 } else { 0 });
                cluster.now = cluster.now.checked_add(pause).unwrap();
            }
        }
        assert!(!cluster.has_job("a-ps") && cluster.has_job("a-worker"), "{:?}", cluster.writes);
        let before = uid(&cluster, "a-worker");
        let at = cluster.now.to_string();
        let end = json!({"type": "Failed", "status": "True", "lastTransitionTime": at, "lastProbeTime": at});
        let status = json!({"active": 0, "ready": 0, "failed": 1, "conditions": [end]});
        cluster.edit(Kind::JOB, "team", "a-worker", &json!({"status": status}));
        if fails_over {
            cluster.restart();
            cluster = with_priorities(cluster);
        }
        cluster.pass_judged(20, "it restarts all the same");
        assert_eq!((cluster.workers("a"), cluster.phase("a")), (2, "Running"), "{fails_over}: {:?}", cluster.writes);
        assert_ne!(uid(&cluster, "a-worker"), before);
        assert!(!variable(&cluster, "a-ps", "TF_CONFIG").contains("a-worker-2."));
        assert!(cluster.is("urgent", "Admitted"));
        assert_eq!(
            cluster.count(Purpose::Evict),
            0,
            "it has workers to spare still, {fails_over}: {:?}",
            cluster.writes
        );
    }
}
