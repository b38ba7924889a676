//! TrainingJobs that wait for their user: they take nobody's quota.

use berth_control::write::{Kind, Outcome, Purpose};
use serde_json::json;

use crate::cluster::{Cluster, job};
use crate::training::{cluster, training};

#[test]
fn created_suspended_it_takes_nobodys_quota_before_it_is_resumed() {
    // Its status is told at once, or refused for a while.
    for refused in [0, 20] {
        let mut cluster = cluster("2");
        let preempts = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
        cluster.edit(Kind::ClusterQueue, "", "cq", &preempts);
        cluster.set_class("high", 10);
        cluster.put(Kind::JOB, job("victim", "lq", "2", true));
        cluster.pass(3);
        assert!(cluster.is("victim", "Admitted"), "{:?}", cluster.writes);
        let refusal = (Purpose::TrainingStatus, Outcome::Refused("no".into()), false);
        cluster.faults.extend(vec![refusal; refused]);
        let spec = json!({"suspend": true, "schedulingConfig": {"priority": "high"}});
        cluster.put(Kind::TrainingJob, training("a", spec));
        cluster.pass(30);
        // Somebody deletes its Workload, and it gets another one.
        let workload = cluster.workload_of_training("a").unwrap()["metadata"]["name"].clone();
        cluster.delete(&Cluster::key(Kind::Workload, "team", workload.as_str().unwrap()));
        cluster.pass(30);
        assert!(cluster.workload_of_training("a").unwrap()["status"]["admission"].is_null());
        assert!(cluster.is("victim", "Admitted") && !cluster.is("victim", "Evicted"), "{:?}", cluster.writes);
        assert_eq!(cluster.count(Purpose::ReserveQuota), 1, "{:?}", cluster.writes);
        cluster.faults.clear();
        cluster.pass(120);
        assert_eq!(cluster.phase("a"), "Suspended");
        assert_eq!(cluster.workload_of_training("a").unwrap()["spec"]["active"], false);
        cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"suspend": false}}));
        cluster.pass(30);
        assert_eq!((cluster.phase("a"), cluster.is("victim", "Admitted")), ("Running", false), "{:?}", cluster.writes);
    }
}
