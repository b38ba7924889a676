//! Q6 of jobs whose Workloads have never held quota: stories that break it, each beside stories that keep it.

use serde_json::{Value, json};

use super::held::{deleted, member, on_node, orphaned, runs};
use super::{Story, WAITING, job, pod, queue, workload};
use crate::kinds::{self, CLUSTER_QUEUE, JOB, LOCAL_QUEUE, POD, WORKLOAD};

const NONE: [&str; 0] = [];

/// A story with the LocalQueue of all Workloads.
fn begun() -> Story {
    let mut story = Story::new();
    story.see(LOCAL_QUEUE, json!({"metadata": {"namespace": "ns", "name": "lq"}, "spec": {"clusterQueue": "cq"}}));
    story
}

/// The broken promises but L3, which judges the same jobs, and L1.
fn broken(story: &mut Story) -> Vec<&'static str> {
    story.broken().into_iter().filter(|law| !["L1", "L3"].contains(law)).collect()
}

/// Job `j` waits for quota, and its user lets it run.
fn let_loose() -> Story {
    let mut story = begun();
    story.see(JOB, job("j", true, kinds::USER, json!({})));
    story.see(WORKLOAD, workload("w", "j", WAITING, "2"));
    story.see(JOB, job("j", false, kinds::USER, json!({})));
    story
}

/// A pod by itself that Berth has marked, on a node.
fn marked(cpu: &str) -> Value {
    let mut pod = orphaned(runs("p", "", cpu));
    pod["metadata"]["labels"] = json!({"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/queue-name": "lq"});
    pod
}

#[test]
fn q6_pod_of_waiting_job_is_reported_after_the_bound() {
    for (seconds, expected) in [(9, vec![]), (11, vec!["Q6"])] {
        let mut story = let_loose();
        story.see(POD, runs("p", "j", "2"));
        story.wait(seconds);
        assert_eq!(broken(&mut story), expected, "after {seconds} s");
    }
}

#[test]
fn q6_pods_of_waiting_job_that_is_stopped_break_nothing() {
    let mut story = let_loose();
    story.see(POD, runs("p", "j", "2"));
    story.wait(2);
    story.see(JOB, job("j", true, "berth", json!({})));
    story.wait(60);
    assert_eq!(broken(&mut story), NONE, "its controller deletes them");
    let mut story = let_loose();
    story.see(POD, runs("p", "j", "2"));
    story.wait(2);
    story.see(POD, deleted(runs("p", "j", "2"), 60));
    story.wait(60);
    assert_eq!(broken(&mut story), NONE, "it ends");
}

#[test]
fn q6_waiting_job_usage_may_be_charged_to_its_queue() {
    let mut charged = queue("4");
    let usage = json!([{"name": "f", "resources": [{"name": "cpu", "total": "2", "borrowed": "0"}]}]);
    charged["status"] = json!({"flavorsReservation": usage, "flavorsUsage": usage, "pendingWorkloads": 1});
    let mut story = let_loose();
    story.see(CLUSTER_QUEUE, charged);
    story.see(
        LOCAL_QUEUE,
        json!({"metadata": {"namespace": "ns", "name": "lq"}, "spec": {"clusterQueue": "cq"},
        "status": {"pendingWorkloads": 1}}),
    );
    story.see(POD, runs("p", "j", "2"));
    story.wait(600);
    assert_eq!(broken(&mut story), NONE);
    assert_eq!(story.judge.unbalanced(), Vec::new(), "the charge is right");
    story.see(POD, runs("p2", "j", "1"));
    story.wait(11);
    assert_eq!(broken(&mut story), ["Q6"], "more runs than is charged");
}

#[test]
fn q6_jobs_without_a_workload_are_free() {
    // A job that names no queue, in a namespace that forces none.
    let mut story = begun();
    let mut unlabelled = job("j", false, kinds::USER, json!({}));
    unlabelled["metadata"]["labels"] = json!({});
    story.see(JOB, unlabelled);
    story.see(POD, runs("p", "j", "3"));
    story.wait(600);
    assert_eq!(broken(&mut story), NONE);
    // A job that names a queue in a namespace that is not managed.
    let mut story = begun();
    story.see(JOB, job("j", false, kinds::USER, json!({})));
    story.see(POD, runs("p", "j", "3"));
    story.wait(600);
    assert_eq!(broken(&mut story), NONE);
    // A job whose Workload goes, because the job's namespace is not managed any more.
    let mut story = let_loose();
    story.see(POD, runs("p", "j", "3"));
    story.wait(5);
    story.change(WORKLOAD, workload("w", "j", WAITING, "2"), true);
    story.wait(600);
    assert_eq!(broken(&mut story), NONE);
    // A job that came into a queue while it ran.
    let mut story = begun();
    let mut unlabelled = job("j", false, kinds::USER, json!({}));
    unlabelled["metadata"]["labels"] = json!({});
    story.see(JOB, unlabelled);
    story.see(POD, runs("p", "j", "3"));
    story.see(JOB, job("j", false, kinds::USER, json!({})));
    story.see(WORKLOAD, workload("w", "j", WAITING, "2"));
    story.wait(600);
    assert_eq!(broken(&mut story), NONE);
}

#[test]
fn q6_waiting_job_needs_quota_for_covered_resources_only() {
    let mut story = let_loose();
    let mut pod = on_node(pod("p", "j", "Running"), "0");
    pod["spec"]["containers"][0]["resources"]["requests"] = json!({"memory": "1Gi"});
    story.see(POD, pod);
    story.wait(600);
    assert_eq!(broken(&mut story), NONE);
}

#[test]
fn q6_ungated_pod_without_quota_is_reported() {
    // A pod by itself, and one of a group.
    let mut gated = marked("2");
    gated["spec"]["nodeName"] = Value::Null;
    gated["spec"]["schedulingGates"] = json!([{"name": "kueue.x-k8s.io/admission"}]);
    let mut group = orphaned(workload("g", "", WAITING, "4"));
    group["metadata"]["annotations"] = json!({"kueue.x-k8s.io/is-group-workload": "true"});
    let cases = [
        (workload("w", "p", WAITING, "2"), gated, marked("2")),
        (group, member("p", "g", "2", true), member("p", "g", "2", false)),
    ];
    for (workload, waits, runs) in cases {
        let mut story = begun();
        story.see(POD, waits);
        story.see(WORKLOAD, workload.clone());
        story.wait(600);
        assert_eq!(broken(&mut story), NONE, "it waits: {workload}");
        story.see(POD, runs);
        story.wait(9);
        assert_eq!(broken(&mut story), NONE, "{workload}");
        story.wait(2);
        assert_eq!(broken(&mut story), ["Q6"], "{workload}");
    }
}

#[test]
fn q6_let_in_pod_is_judged_once_marked() {
    let mut story = begun();
    let mut let_in = marked("2");
    let_in["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "lq"});
    story.see(POD, let_in);
    story.wait(600);
    assert_eq!(broken(&mut story), NONE, "it may be older than the queueing of pods");
    story.see(POD, marked("2"));
    story.see(WORKLOAD, workload("w", "p", WAITING, "2"));
    story.wait(9);
    assert_eq!(broken(&mut story), NONE);
    story.wait(2);
    assert_eq!(broken(&mut story), ["Q6"]);
}
