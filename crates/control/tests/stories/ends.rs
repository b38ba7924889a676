//! A TrainingJob ends once, whatever happens to the Workload that records the end.

use berth_control::write::{Kind, Purpose, WriteOutcome};
use serde_json::json;

use crate::stories::cluster::{Cluster, settings};
use crate::stories::tiers::tiered_cluster_on;
use crate::stories::training::training;

/// A cluster in which TrainingJob `a` runs, and in which finished Workloads are retained for the given time.
fn running(retain_finished_ms: Option<i64>) -> Cluster {
    let mut settings = settings();
    settings.retain_finished_ms = retain_finished_ms;
    let mut cluster = tiered_cluster_on(Cluster::with(settings), "2");
    cluster.put(Kind::TrainingJob, training("a", json!({})));
    cluster.pass(5);
    assert_eq!(cluster.phase("a"), "Running");
    cluster
}

fn assert_over(cluster: &Cluster, what: &str) {
    assert_eq!((cluster.phase("a"), cluster.has_job("a-worker")), ("Succeeded", true), "{what}: its logs stay");
    assert_eq!(cluster.workload_of_training("a"), None, "{what}");
    let made = (cluster.count(Purpose::CreateWorkload), cluster.count(Purpose::StartTraining));
    assert_eq!(made, (1, 1), "{what}: {:?}", cluster.writes);
}

/// Makes steps until the TrainingJob's Workload has finished, and stops before the TrainingJob's own status shows the end.
fn finish(cluster: &mut Cluster) -> String {
    let name = cluster.workload_of_training("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.complete("a-worker");
    for _ in 0..9 {
        if !cluster.workload_is(&name, "Finished") {
            let step = cluster.control.step(cluster.now());
            cluster.take(step);
        }
    }
    assert_eq!((cluster.workload_is(&name, "Finished"), cluster.phase("a")), (true, "Running"));
    name
}

#[test]
fn training_job_succeeds_once_although_its_workload_is_not_retained() {
    for keep in [0, 1] {
        let mut cluster = running(Some(keep));
        cluster.complete("a-worker");
        cluster.pass(30);
        assert_over(&cluster, &format!("kept for {keep} ms"));
    }
}

#[test]
fn new_leader_reports_training_end_before_expired_workload_is_deleted() {
    let mut cluster = running(Some(60_000));
    finish(&mut cluster);
    cluster.set_now(cluster.now().checked_add(jiff::SignedDuration::from_secs(600)).unwrap());
    cluster.restart();
    cluster.pass(30);
    assert_over(&cluster, "its retention ended while nobody led");
}

#[test]
fn finished_workload_deleted_by_hand_stays_until_end_is_reported() {
    let mut cluster = running(None);
    let name = finish(&mut cluster);
    cluster.delete(&Cluster::key(Kind::Workload, "team", &name));
    cluster.pass(30);
    assert_over(&cluster, "deleted by hand");
}

/// The TrainingJob ended while no replica led, and its Workload does not record the end yet.
#[test]
fn workload_deleted_before_it_finishes_does_not_rerun_ended_training() {
    let mut cluster = running(None);
    let name = cluster.workload_of_training("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.control.lead(None);
    cluster.complete("a-worker");
    cluster.delete(&Cluster::key(Kind::Workload, "team", &name));
    cluster.restart();
    cluster.pass(30);
    assert_over(&cluster, "deleted before its end was told");
}

#[test]
fn finished_workload_stays_while_training_job_status_is_refused() {
    let mut cluster = running(Some(0));
    let refused = (Purpose::TrainingStatus, WriteOutcome::Refused("no".into()), false);
    cluster.faults.extend(std::iter::repeat_n(refused, 1_000));
    let name = finish(&mut cluster);
    cluster.delete(&Cluster::key(Kind::Workload, "team", &name));
    cluster.pass(300);
    assert!(cluster.workload_is(&name, "Finished"), "nothing else remembers its end");
    assert_eq!(cluster.count(Purpose::StartTraining), 1, "{:?}", cluster.writes);
    cluster.delete(&Cluster::key(Kind::TrainingJob, "team", "a"));
    cluster.pass(10);
    assert!(cluster.objects().keys().all(|key| ![Kind::Workload, Kind::JOB].contains(&key.kind)));
}
