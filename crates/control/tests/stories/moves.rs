//! Running jobs that another client suspends, without a webhook that restores the field `suspend`.

use berth_control::write::{EventType, Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, job, local_queue};
use crate::stories::one_queue;

/// A cluster with LocalQueue `lq` of ClusterQueue `cq`, and LocalQueue `other` of ClusterQueue `cq-other`, with one cpu each.
fn two_queues() -> Cluster {
    let mut cluster = one_queue("1");
    cluster.put(Kind::ClusterQueue, cluster_queue("cq-other", None, &[("default", "1")]));
    cluster.put(Kind::LocalQueue, local_queue("other", "cq-other"));
    cluster
}

fn suspended() -> Value {
    json!({"spec": {"suspend": true}})
}

/// A user applies a manifest with `suspend: true` again: Berth starts the job again, and an event says how to stop the job.
#[test]
fn running_job_suspended_by_user_is_resumed_with_warning_event() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    let (starts, text) = (cluster.count(Purpose::StartJob), cluster.notices.len());
    cluster.edit(Kind::JOB, "team", "a", &suspended());
    cluster.pass(10);
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(false), "{:?}", cluster.writes);
    assert_eq!(cluster.count(Purpose::StartJob), starts + 1, "{:?}", cluster.writes);
    assert!(cluster.is("a", "Admitted") && !cluster.is("a", "Evicted"));
    let event = cluster.notices[text..].iter().find(|notice| notice.reason == "SuspensionUndone").expect("an event");
    assert_eq!((event.key.kind, event.event_type), (Kind::JOB, EventType::Warning));
    let workload = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap();
    assert!(event.message.contains(workload) && event.message.contains("spec.active"), "{}", event.message);
}

/// Berth's start of a job after an eviction does not count as the end of a suspension by a user.
#[test]
fn job_restarted_after_eviction_gets_no_suspension_event() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    let workload = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    for active in [false, true] {
        cluster.edit(Kind::Workload, "team", &workload, &json!({"spec": {"active": active}}));
        cluster.pass(10);
    }
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(false), "{:?}", cluster.writes);
    assert!(cluster.notices.iter().all(|notice| notice.reason != "SuspensionUndone"));
}

/// A write that suspends a job and moves it to another queue stops the job: its quota is free for other jobs, its pod template is the user's again, and the job
/// waits in its new queue.
#[test]
fn job_suspended_and_moved_waits_in_its_new_queue() {
    let mut cluster = two_queues();
    cluster.put(Kind::JOB, job("holder", "other", "1", true));
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    assert!(cluster.is("a", "Admitted") && cluster.is("holder", "Admitted"));
    let moved = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}, "spec": {"suspend": true}});
    cluster.edit(Kind::JOB, "team", "a", &moved);
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    cluster.pass(10);
    assert!(!cluster.is("a", "QuotaReserved") && cluster.is("b", "Admitted"), "{:?}", cluster.writes);
    assert_eq!(cluster.workload_of("a").unwrap()["spec"]["queueName"], json!("other"));
    let template = &cluster.job("a")["spec"]["template"];
    assert!(template["metadata"]["labels"].get("kueue.x-k8s.io/podset").is_none(), "{template}");
    cluster.complete("holder");
    cluster.pass(10);
    assert!(cluster.is("a", "Admitted"), "{:?}", cluster.writes);
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(false));
    assert_eq!(cluster.count(Purpose::StartJob), 4, "each once, and the moved one twice: {:?}", cluster.writes);
}

/// A user changes the queue of a job between the job's admission and its start.
#[test]
fn admitted_job_moved_before_start_is_admitted_in_new_queue() {
    let mut cluster = two_queues();
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    // The next leader finds the job admitted and suspended, and with another queue in its label.
    cluster.edit(Kind::JOB, "team", "a", &suspended());
    cluster.edit(Kind::JOB, "team", "a", &json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}));
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    cluster.pass(10);
    assert!(cluster.is("a", "Admitted") && cluster.is("b", "Admitted"), "{:?}", cluster.writes);
    assert_eq!(cluster.workload_of("a").unwrap()["status"]["admission"]["clusterQueue"], json!("cq-other"));
    assert!(!cluster.is("a", "Evicted"));
}
