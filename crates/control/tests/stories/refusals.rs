//! Writes that the API server always refuses, or never answers: such a write affects only the Workload for which it is made.

use berth_control::settings::Settings;
use berth_control::write::{Kind, Purpose, WriteOutcome};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, job, local_queue, settings};
use crate::stories::groups::member;
use crate::stories::pods::pod;
use crate::stories::training::training;
use crate::stories::{one_queue, pod_queue, with_queue};

fn refusal() -> WriteOutcome {
    WriteOutcome::Refused("etcdserver: request is too large".into())
}

fn no_answer() -> WriteOutcome {
    WriteOutcome::Unknown("HTTP 500: failed calling webhook".into())
}

/// Adds the job `poison`; the API server gives each reservation of this job the outcome `outcome`.
fn poisoned(mut cluster: Cluster, outcome: WriteOutcome) -> Cluster {
    cluster.answers.push((Purpose::ReserveQuota, "job-poison-", outcome));
    cluster.put(Kind::JOB, job("poison", "lq", "1", true));
    cluster
}

fn another_queue(cluster: &mut Cluster, quota: &str) {
    cluster.put(Kind::ClusterQueue, cluster_queue("other", None, &[("default", quota)]));
    cluster.put(Kind::LocalQueue, local_queue("other", "other"));
}

fn reason(cluster: &Cluster, job: &str) -> Value {
    cluster.condition(job, "QuotaReserved").map_or(Value::Null, |condition| condition["reason"].clone())
}

/// The status of a Workload can never be written, or its writes are never answered: the statuses of jobs in other queues still say why these jobs wait, and the
/// jobs are admitted.
#[test]
fn unwritable_reservation_stops_no_reasons_or_admissions_of_others() {
    for outcome in [refusal(), no_answer()] {
        let mut cluster = poisoned(one_queue("2"), outcome.clone());
        another_queue(&mut cluster, "1");
        cluster.pass(5);
        cluster.put(Kind::JOB, job("large", "other", "9", true));
        cluster.put(Kind::JOB, job("small", "other", "1", true));
        cluster.put(Kind::JOB, job("beside", "lq", "1", true));
        cluster.pass(5);
        assert_eq!(reason(&cluster, "large"), json!("ExceedsMaxQuota"), "{outcome:?}: {:?}", cluster.writes);
        assert!(cluster.is("small", "Admitted") && cluster.is("beside", "Admitted"), "{outcome:?}");
        assert!(!cluster.is("poison", "QuotaReserved"));
    }
}

#[test]
fn unwritable_reservation_holds_up_no_others_under_block_admission() {
    for outcome in [refusal(), no_answer()] {
        let mut settings = settings();
        settings.wait_for_pods_ready.as_mut().unwrap().block_admission = true;
        let mut cluster = poisoned(with_queue(Cluster::with(settings), "2"), outcome.clone());
        another_queue(&mut cluster, "1");
        cluster.pass(5);
        cluster.put(Kind::JOB, job("a", "other", "1", true));
        cluster.pass(10);
        assert!(cluster.is("a", "Admitted"), "{outcome:?}: {:?}", cluster.writes);
    }
}

/// The API server never accepts as many reservations as may be unacknowledged: control still asks the engine for plans.
#[test]
fn unwritable_reservations_do_not_fill_limit_of_unacknowledged_plans() {
    for outcome in [refusal(), no_answer()] {
        let settings = Settings { max_unacknowledged: 1, ..settings() };
        let mut cluster = poisoned(with_queue(Cluster::with(settings), "2"), outcome.clone());
        cluster.pass(5);
        cluster.put(Kind::JOB, job("a", "lq", "1", true));
        cluster.pass(10);
        assert!(cluster.is("a", "Admitted"), "{outcome:?}: {:?}", cluster.writes);
    }
}

#[test]
fn strict_fifo_queue_passes_over_head_with_refused_reservation() {
    let mut cluster = one_queue("1");
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"queueingStrategy": "StrictFIFO"}}));
    let mut cluster = poisoned(cluster, refusal());
    cluster.pass(30);
    cluster.put(Kind::JOB, job("behind", "lq", "1", true));
    cluster.pass(5);
    assert!(cluster.is("behind", "Admitted"), "{:?}", cluster.writes);
}

/// The outcome of the Workload's last reservation is unknown: other Workloads get the rest of the quota, but not the quota that this Workload may hold.
#[test]
fn unanswered_reservation_keeps_its_quota_charged() {
    let mut cluster = poisoned(one_queue("2"), no_answer());
    cluster.pass(5);
    for name in ["a", "b"] {
        cluster.put(Kind::JOB, job(name, "lq", "1", true));
    }
    cluster.pass(300);
    let admitted: Vec<&str> = ["a", "b"].into_iter().filter(|name| cluster.is(name, "Admitted")).collect();
    assert_eq!(admitted, ["a"], "{:?}", cluster.writes);
    // From now on, the API server answers the writes of reservations again.
    cluster.answers.clear();
    cluster.pass(120);
    assert!(cluster.is("poison", "Admitted") && !cluster.is("b", "Admitted"), "{:?}", cluster.writes);
}

/// If the API server makes no write, the number of plans without acknowledgement is limited.
#[test]
fn plans_do_not_pile_up_during_api_server_outage() {
    let settings = Settings { max_unacknowledged: 2, ..settings() };
    let mut cluster = with_queue(Cluster::with(settings), "9");
    for index in 0..6 {
        cluster.put(Kind::JOB, job(&format!("a{index}"), "lq", "1", true));
    }
    for purpose in [Purpose::ReserveQuota, Purpose::ExplainPending, Purpose::QueueStatus] {
        cluster.answers.push((purpose, "", no_answer()));
    }
    cluster.pass(60);
    let mut tried: Vec<&str> = Vec::new();
    for (purpose, key) in &cluster.writes {
        if *purpose == Purpose::ReserveQuota && !tried.contains(&key.name.as_str()) {
            tried.push(&key.name);
        }
    }
    assert_eq!(tried.len(), 2, "{tried:?}");
    cluster.answers.clear();
    cluster.pass(120);
    for index in 0..6 {
        assert!(cluster.is(&format!("a{index}"), "Admitted"), "a{index}: {:?}", cluster.writes);
    }
}

/// Users look at the job first, so an event about the job says which write of its Workload the API server refuses.
#[test]
fn write_refused_for_workload_is_reported_on_its_job() {
    let job_set = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"namespace": "team", "name": "x", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"suspend": true, "replicatedJobs": [{"name": "job", "replicas": 1, "template": {"spec": {
            "parallelism": 1, "completions": 1, "template": {"spec": {"containers": [
                {"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}}}]}});
    let jobs = [
        (Kind::JOB, job("x", "lq", "1", true)),
        (Kind::JOB_SET, job_set),
        (Kind::TrainingJob, training("x", json!({}))),
        (Kind::Pod, pod("x", "1")),
        (Kind::Pod, member("x", "1", 1, &[])),
    ];
    for (kind, object) in jobs {
        let mut cluster = pod_queue("4");
        cluster.answers.push((Purpose::ReserveQuota, "", refusal()));
        cluster.put(kind, object);
        cluster.pass(3);
        for reported in [kind, Kind::Workload] {
            let about = cluster.notices.iter().filter(|notice| notice.key.kind == reported);
            let given: Vec<&str> =
                about.filter(|notice| notice.reason == "WriteRefused").map(|notice| notice.message.as_str()).collect();
            assert!(
                given.iter().any(|text| text.contains("request is too large")),
                "{kind:?} {reported:?}: {:?}",
                cluster.notices
            );
        }
    }
}

/// A Workload whose reservation is refused preempts no second time, because its victims would be admitted and evicted again at each try.
#[test]
fn workload_with_refused_reservation_preempts_only_once() {
    let mut cluster = one_queue("1");
    cluster.edit(
        Kind::ClusterQueue,
        "",
        "cq",
        &json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}),
    );
    cluster.set_class("high", 10);
    cluster.put(Kind::JOB, job("victim", "lq", "1", true));
    cluster.settle();
    let mut high = job("poison", "lq", "1", true);
    high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    cluster.answers.push((Purpose::ReserveQuota, "job-poison-", refusal()));
    cluster.put(Kind::JOB, high);
    cluster.pass(600);
    assert_eq!(cluster.count(Purpose::Evict), 1, "{:?}", cluster.writes);
    assert!(cluster.is("victim", "Admitted"), "{:?}", cluster.writes);
    // After a change of the job's request, control writes the reservation again, because the API server may accept it.
    cluster.answers.clear();
    cluster.edit(
        Kind::JOB,
        "team",
        "poison",
        &json!({"spec": {"template": {"spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "0.5"}}}]}}}}),
    );
    cluster.pass(120);
    assert!(cluster.is("poison", "Admitted"), "{:?}", cluster.writes);
}

/// If no webhook refuses a job whose Workload would be too large, an event of the job says why the job waits, with the size and the limit.
#[test]
fn stored_job_above_size_limit_gets_one_event_with_limit() {
    let args = |bytes: usize| json!(["x".repeat(bytes)]);
    let most = 1_048_576;
    let mut large = job("x", "lq", "1", true);
    large["spec"]["template"]["spec"]["containers"][0]["args"] = args(most);
    let job_set = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"namespace": "team", "name": "x", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"suspend": true, "replicatedJobs": [
            {"name": "job", "replicas": 1, "template": {"spec": large["spec"].clone()}}]}});
    let training = training(
        "x",
        json!({"template": {"spec": {"containers": [
        {"name": "c", "image": "i", "args": args(most)}]}}}),
    );
    let mut alone = pod("x", "1");
    alone["spec"]["containers"][0]["args"] = args(most);
    let parts = ["x", "y"].map(|name| {
        let mut part = member(name, "1", 2, &[("role-hash", name)]);
        part["spec"]["containers"][0]["args"] = args(most * 6 / 10);
        (Kind::Pod, part)
    });
    for objects in [
        vec![(Kind::JOB, large)],
        vec![(Kind::JOB_SET, job_set)],
        vec![(Kind::TrainingJob, training)],
        vec![(Kind::Pod, alone)],
        parts.to_vec(),
    ] {
        let kind = objects[0].0;
        let mut cluster = pod_queue("4");
        for (kind, object) in objects {
            cluster.put(kind, object);
        }
        cluster.pass(60);
        assert_eq!(cluster.count(Purpose::CreateWorkload), 0, "{kind:?}");
        let events = cluster.notices.iter().filter(|notice| notice.key.kind == kind && notice.key.name == "x");
        let events: Vec<&str> = events.map(|notice| notice.message.as_str()).collect();
        let about = events.iter().filter(|text| text.contains("may have 1048576 bytes: this one would have 1"));
        assert_eq!(about.count(), 1, "{kind:?}: {events:?}");
    }
}
