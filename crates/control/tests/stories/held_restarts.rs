//! Restarts of elastic TrainingJobs during which other changes or failures happen.

use berth_control::write::{Kind, Purpose, WriteOutcome};
use jiff::SignedDuration;
use serde_json::json;

use crate::stories::checkpoints::save;
use crate::stories::cluster::{Cluster, merge};
use crate::stories::elastic::{Judged, cluster, other, with_priorities};
use crate::stories::restarts::{restarted_on_scale, started, uid, variable};

#[test]
fn host_file_lists_workers_of_restart_that_finally_happens() {
    let launcher = json!([{"name": "launcher", "replicaResources": {"cpu": "1"}}]);
    let mut cluster = started(restarted_on_scale("a", &json!({"jobType": "MPIJob", "roles": launcher})));
    for _ in 0..100 {
        cluster.faults.push((Purpose::StartTraining, WriteOutcome::Refused("no more Jobs".into()), false));
    }
    let hosts = |cluster: &Cluster| {
        let found = cluster.objects().iter().find(|(key, _)| key.kind == Kind::ConfigMap);
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

/// Makes steps until the parameter server is deleted, and the worker, which fails without the parameter server, is not yet deleted.
fn fail_for_want_of_ps(cluster: &mut Cluster) {
    for _ in 0..400 {
        if cluster.has_job("a-ps") {
            let step = cluster.control.step(cluster.now());
            let quiet = step.tasks.is_empty();
            cluster.take(step);
            let pause = SignedDuration::from_millis(if quiet { 50 } else { 0 });
            cluster.set_now(cluster.now().checked_add(pause).unwrap());
        }
    }
    assert!(!cluster.has_job("a-ps") && cluster.has_job("a-worker"), "{:?}", cluster.writes);
    assert!(cluster.job("a-worker")["metadata"]["deletionTimestamp"].is_null(), "{:?}", cluster.writes);
    cluster.fail("a-worker");
}

#[test]
fn part_failure_while_restart_deletes_its_peers_is_ignored() {
    for fails_over in [false, true] {
        let ps = json!([{"name": "ps", "replicas": 1, "replicaResources": {"cpu": "1"}}]);
        let mut cluster =
            started(restarted_on_scale("a", &json!({"jobType": "TFJob", "roles": ps, "backoffLimit": 0})));
        cluster.put(Kind::JOB, other("urgent", "3", 100));
        fail_for_want_of_ps(&mut cluster);
        let before = uid(&cluster, "a-worker");
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

/// A TrainingJob of a parameter server and two workers that saves checkpoints, and grows when more quota of its queue is idle. For the restart with four
/// workers Berth deletes the parameter server, without which the Job of the workers fails; a finalizer keeps the Job of the workers.
fn kept_from_before_its_growth() -> Cluster {
    let mut cluster = with_priorities(cluster());
    cluster.put(Kind::JOB, other("first", "3", 1));
    cluster.pass(3);
    let ps = json!([{"name": "ps", "replicas": 1, "replicaResources": {"cpu": "1"}}]);
    let saves = json!({"checkpoint": {"interval": "10m"}, "elasticConfig": {"scalePolicy": {"scaleUpStep": 2}}});
    let mut job = restarted_on_scale("a", &json!({"jobType": "TFJob", "roles": ps, "backoffLimit": 0}));
    merge(&mut job["spec"], &saves);
    cluster.put(Kind::TrainingJob, job);
    cluster.pass_judged(12, "two");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (2, "Running"), "{:?}", cluster.writes);
    cluster.edit(Kind::JOB, "team", "a-worker", &json!({"metadata": {"finalizers": ["somebodys/finalizer"]}}));
    cluster.complete("first");
    cluster.pass_judged(20, "what is idle waits until it has saved");
    save(&mut cluster, "a", 700);
    fail_for_want_of_ps(&mut cluster);
    // The Job of the workers fails before Berth deletes the Job.
    cluster.set_now(cluster.now().checked_add(SignedDuration::from_secs(3)).unwrap());
    cluster.pass_judged(10, "its old Job is kept");
    assert!(cluster.job("a-worker")["metadata"]["deletionTimestamp"].is_string(), "{:?}", cluster.writes);
    assert_eq!((cluster.slices("a")[0].1, cluster.phase("a")), (4, "Pending"), "{:?}", cluster.writes);
    cluster
}

#[test]
fn failed_part_from_before_growth_does_not_fail_shrunk_run() {
    // The TrainingJob shrinks to the number of workers with which the kept Job was started (2), or to another number (3).
    for (cpus, keeps) in [("3", 2), ("2", 3)] {
        let mut cluster = kept_from_before_its_growth();
        cluster.put(Kind::JOB, other("urgent", cpus, 100));
        cluster.pass_judged(10, "a newcomer");
        assert!(cluster.is("urgent", "Admitted"), "{keeps}: {:?}", cluster.writes);
        assert_eq!((cluster.slices("a")[0].1, cluster.phase("a")), (keeps, "Pending"), "{:?}", cluster.writes);
        cluster.edit(Kind::JOB, "team", "a-worker", &json!({"metadata": {"finalizers": []}}));
        cluster.pass_judged(30, "the old Job is gone");
        assert_eq!((cluster.workers("a"), cluster.phase("a")), (keeps, "Running"), "{:?}", cluster.writes);
        let reported = variable(&cluster, "a-ps", "TF_CONFIG");
        let last = keeps - 1;
        assert!(reported.contains(&format!("a-worker-{last}.")), "{reported}");
        assert!(!reported.contains(&format!("a-worker-{keeps}.")), "{reported}");
        assert_eq!(cluster.count(Purpose::Evict), 0, "{keeps}: {:?}", cluster.writes);
    }
}
