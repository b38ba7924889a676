//! Large jobs: Berth keeps only a part of a large job in memory while the job waits, and treats the job otherwise like a small job.

use berth_control::write::{Kind, Purpose, WriteOutcome};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job};
use crate::stories::one_queue;

/// A job of some hundred kibibytes.
fn large(name: &str) -> Value {
    let mut large = job(name, "lq", "1", true);
    large["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["x".repeat(300 << 10)]);
    large
}

fn args(object: &Value) -> usize {
    object.pointer("/containers/0/args/0").and_then(Value::as_str).map_or(0, str::len)
}

#[test]
fn large_job_is_read_once_and_runs_with_full_spec() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, large("a"));
    cluster.pass(5);
    assert_eq!(cluster.count(Purpose::ReadJob), 1);
    assert!(cluster.is("a", "Admitted"), "{:?}", cluster.writes);
    let workload = cluster.workload_of("a").unwrap();
    assert_eq!(args(&workload["spec"]["podSets"][0]["template"]["spec"]), 300 << 10, "its Workload has all of it");
    let pods = &cluster.job("a")["spec"]["template"]["spec"];
    assert_eq!((args(pods), &pods["nodeSelector"]["tier"]), (300 << 10, &json!("reserved")));
    // After Berth has stopped the large job, the job has all fields that its user has written.
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    cluster.pass(30);
    let pods = &cluster.job("a")["spec"]["template"]["spec"];
    assert_eq!((args(pods), &pods["nodeSelector"]), (300 << 10, &json!({})), "{:?}", cluster.writes);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "None"}}));
    cluster.pass(30);
    assert!(cluster.is("a", "Admitted") && args(&cluster.job("a")["spec"]["template"]["spec"]) == 300 << 10);
    assert_eq!(cluster.count(Purpose::ReadJob), 1, "its Workload was made once");
}

/// After a restart of control, a large job is read again only if its Workload is gone.
#[test]
fn large_job_is_reread_only_for_new_workload_or_edit() {
    let mut cluster = one_queue("0");
    cluster.put(Kind::JOB, large("a"));
    cluster.pass(5);
    cluster.restart();
    cluster.pass(60);
    assert_eq!(cluster.count(Purpose::ReadJob), 1);
    let name = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.delete(&Cluster::key(Kind::Workload, "team", &name));
    cluster.pass(10);
    assert!(cluster.workload_of("a").is_some(), "{:?}", cluster.writes);
    assert_eq!(cluster.count(Purpose::ReadJob), 2);
    // An edit changes the spec of the job, and the job's Workload follows.
    let more = json!({"spec": {"template": {"spec": {"nodeSelector": {"zone": "a"}}}}});
    cluster.edit(Kind::JOB, "team", "a", &more);
    cluster.pass(10);
    let sets = &cluster.workload_of("a").unwrap()["spec"]["podSets"];
    assert_eq!(sets[0]["template"]["spec"]["nodeSelector"]["zone"], json!("a"), "{:?}", cluster.writes);
    assert_eq!(args(&sets[0]["template"]["spec"]), 300 << 10);
}

#[test]
fn large_job_with_failed_read_is_read_again_and_admitted() {
    for outcome in
        [WriteOutcome::Busy(1_000), WriteOutcome::Unknown("lost".into()), WriteOutcome::Gone, WriteOutcome::NotSent]
    {
        let mut cluster = one_queue("1");
        cluster.faults.push((Purpose::ReadJob, outcome.clone(), false));
        cluster.put(Kind::JOB, large("a"));
        cluster.pass(60);
        assert!(cluster.is("a", "Admitted"), "{outcome:?}: {:?}", cluster.writes);
    }
}

/// Two hundred large jobs, as many as a namespace may have, are read a few at a time, and small jobs do not wait for the large jobs.
#[test]
fn large_jobs_created_together_get_workloads_with_one_read_each() {
    let mut cluster = one_queue("3");
    for index in 0..40 {
        cluster.put(Kind::JOB, large(&format!("large-{index:02}")));
    }
    cluster.put(Kind::JOB, job("small", "lq", "1", true));
    cluster.pass(30);
    let made = cluster.objects().keys().filter(|key| key.kind == Kind::Workload).count();
    assert_eq!(made, 41, "{:?}", cluster.writes.len());
    assert_eq!(cluster.count(Purpose::ReadJob), 40, "each once");
}

/// All large jobs are edited at once: After such edits, Berth reads as few large jobs at a time as after the creation of the jobs, and each Workload follows
/// its job.
#[test]
fn large_jobs_edited_together_are_read_few_at_a_time() {
    let mut cluster = one_queue("0");
    let names: Vec<String> = (0..40).map(|index| format!("large-{index:02}")).collect();
    names.iter().for_each(|name| cluster.put(Kind::JOB, large(name)));
    cluster.pass(30);
    let more = json!({"spec": {"template": {"spec": {"nodeSelector": {"zone": "a"}}}}});
    names.iter().for_each(|name| cluster.edit(Kind::JOB, "team", name, &more));
    let step = cluster.control.step(cluster.now());
    let reads = step.tasks.iter().filter(|write| write.purpose == Purpose::ReadJob).count();
    assert!((1..=8).contains(&reads), "{reads} of a mebibyte at most");
    cluster.take(step);
    cluster.pass(30);
    for name in &names {
        let sets = &cluster.workload_of(name).expect("it keeps one")["spec"]["podSets"];
        assert_eq!(sets[0]["template"]["spec"]["nodeSelector"]["zone"], json!("a"), "{name}: {:?}", cluster.writes);
    }
    assert_eq!(cluster.count(Purpose::ReadJob), 80);
}
