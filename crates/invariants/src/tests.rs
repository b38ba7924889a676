//! Each promise is broken once here, so that the judge is known to notice it.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Change, Judge, Rule};
use crate::kinds::{self, CLUSTER_QUEUE, JOB, JOBSET, Kind, POD, TRAINING_JOB, WORKLOAD};

mod admission;
mod evicted;
mod held;
mod strength;
mod waiting;

struct Story {
    judge: Judge,
    revision: u64,
    now: Duration,
    blind: bool,
}

impl Story {
    fn new() -> Story {
        let mut story = Story { judge: Judge::default(), revision: 0, now: Duration::ZERO, blind: false };
        story.see(CLUSTER_QUEUE, queue("4"));
        story.wait(30);
        story
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn change(&mut self, kind: Kind, object: Value, deleted: bool) {
        self.revision += 1;
        self.judge.take(&Change { revision: self.revision, kind, object, deleted, at: self.now, blind: self.blind });
    }

    fn see(&mut self, kind: Kind, object: Value) {
        self.change(kind, object, false);
    }

    fn broken(&mut self) -> Vec<&'static str> {
        self.judge.verdict(self.now).into_iter().map(|v| v.rule.invariant()).collect()
    }
}

fn queue(nominal: &str) -> Value {
    let resources = json!([{"name": "cpu", "nominalQuota": nominal}]);
    json!({"metadata": {"name": "cq"}, "spec": {"resourceGroups": [
        {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]}]}})
}

fn workload(name: &str, job: &str, conditions: &[(&str, &str)], cpu: &str) -> Value {
    let conditions: Vec<Value> = conditions.iter().map(|(t, s)| json!({"type": t, "status": s})).collect();
    json!({
        "metadata": {"namespace": "ns", "name": name, "uid": name, "ownerReferences": [{"controller": true, "uid": job}]},
        "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": {}}]},
        "status": {"conditions": conditions, "admission": {"clusterQueue": "cq", "podSetAssignments": [
            {"name": "main", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": cpu}}]}},
    })
}

fn job(uid: &str, suspend: bool, manager: &str, selector: Value) -> Value {
    json!({
        "metadata": {"namespace": "ns", "name": uid, "uid": uid, "labels": {"kueue.x-k8s.io/queue-name": "lq"},
            "managedFields": [{"manager": manager, "fieldsV1": {"f:spec": {"f:suspend": {}}}}]},
        "spec": {"suspend": suspend, "parallelism": 1, "template": {"spec": {"nodeSelector": selector}}},
    })
}

fn pod(uid: &str, job: &str, phase: &str) -> Value {
    json!({"metadata": {"namespace": "ns", "name": uid, "uid": uid, "ownerReferences": [{"controller": true, "uid": job}]},
        "status": {"phase": phase}})
}

fn job_set(suspend: bool, manager: &str) -> Value {
    json!({
        "metadata": {"namespace": "ns", "name": "s", "uid": "s", "annotations": {"kueue.x-k8s.io/queue-name": "lq"},
            "managedFields": [{"manager": manager, "fieldsV1": {"f:spec": {"f:suspend": {}}}}]},
        "spec": {"suspend": suspend, "replicatedJobs": [{"name": "main", "template": {"spec": {"template": {}}}}]},
    })
}

/// A pod of that JobSet, with or without Berth's mark.
fn part(uid: &str, marked: bool, phase: &str) -> Value {
    let mut pod = pod(uid, "child", phase);
    pod["metadata"]["name"] = json!(format!("s-job-0-{uid}"));
    pod["metadata"]["labels"] = json!({"jobset.sigs.k8s.io/jobset-uid": "s"});
    if marked {
        pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] = json!("job");
    }
    pod
}

const WAITING: &[(&str, &str)] = &[];
const ADMITTED: &[(&str, &str)] = &[("QuotaReserved", "True"), ("Admitted", "True")];
const EVICTED: &[(&str, &str)] = &[("QuotaReserved", "False"), ("Admitted", "False")];
const FINISHED: &[(&str, &str)] = &[("QuotaReserved", "True"), ("Admitted", "True"), ("Finished", "True")];

#[test]
fn correct_life_of_a_job_breaks_no_invariant() {
    let mut story = Story::new();
    story.see(JOB, job("j", true, kinds::USER, json!({})));
    story.see(WORKLOAD, workload("w", "j", &[], "4"));
    story.see(WORKLOAD, workload("w", "j", ADMITTED, "4"));
    story.see(JOB, job("j", false, "berth", json!({"tier": "spot"})));
    story.see(POD, pod("p", "j", "Running"));
    story.see(JOB, job("j", true, "berth", json!({})));
    story.change(POD, pod("p", "j", "Failed"), true);
    story.see(WORKLOAD, workload("w", "j", EVICTED, "4"));
    story.see(WORKLOAD, workload("w", "j", ADMITTED, "4"));
    story.see(JOB, job("j", false, "berth", json!({"tier": "spot"})));
    story.see(POD, pod("p2", "j", "Succeeded"));
    story.see(WORKLOAD, workload("w", "j", FINISHED, "4"));
    story.wait(60);
    assert_eq!(story.broken(), Vec::<&str>::new());
}

#[test]
fn q1_usage_beyond_quota_in_sum_is_reported() {
    let mut story = Story::new();
    story.see(WORKLOAD, workload("a", "", ADMITTED, "3"));
    story.see(WORKLOAD, workload("b", "", ADMITTED, "2"));
    assert_eq!(story.broken(), ["Q1"]);
}

#[test]
fn violation_is_given_once_at_the_step_that_breaks() {
    let mut story = Story::new();
    story.see(WORKLOAD, workload("a", "", ADMITTED, "3"));
    assert_eq!(story.judge.found(), []);
    story.see(WORKLOAD, workload("b", "", ADMITTED, "2"));
    let found = story.judge.found();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].rule, found[0].revision), (Rule::Fit, story.revision));
    assert_eq!(story.judge.found(), []);
    assert_eq!(story.judge.verdict(story.now), []);
}

#[test]
fn change_is_read_from_an_object_of_a_judged_kind() {
    let object = |kind: &str, version: &str| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"resourceVersion": version}});
    let change = Change::of(object("Workload", "7"), true, Duration::from_secs(1)).unwrap();
    assert_eq!((change.kind, change.revision, change.deleted, change.blind), (WORKLOAD, 7, true, false));
    for (kind, version) in [("Topology", "7"), ("Workload", "x"), ("Workload", "")] {
        assert!(Change::of(object(kind, version), false, Duration::ZERO).is_none(), "{kind} {version:?}");
    }
}

#[test]
fn q1_quota_cut_counts_after_its_grace_time() {
    for (seconds, expected) in [(1, vec![]), (6, vec!["Q1"])] {
        let mut story = Story::new();
        story.see(CLUSTER_QUEUE, queue("1"));
        story.wait(seconds);
        story.see(WORKLOAD, workload("a", "", ADMITTED, "3"));
        assert_eq!(story.broken(), expected, "after {seconds} s");
    }
}

#[test]
fn q3_usage_in_status_without_workloads_is_reported() {
    let mut story = Story::new();
    assert_eq!(story.judge.unbalanced(), Vec::<(String, String)>::new());
    let mut reported = queue("4");
    reported["status"] = json!({"flavorsReservation": [{"name": "f", "resources": [{"name": "cpu", "total": "1"}]}]});
    story.see(CLUSTER_QUEUE, reported);
    assert_eq!(story.judge.unbalanced().len(), 1);
}

#[test]
fn l1_job_started_without_admission_is_reported() {
    for (manager, expected) in [("berth", vec!["L1"]), (kinds::USER, vec![])] {
        let mut story = Story::new();
        story.see(JOB, job("j", true, kinds::USER, json!({})));
        story.see(JOB, job("j", false, manager, json!({})));
        assert_eq!(story.broken(), expected, "unsuspended by {manager}");
    }
}

#[test]
fn l3_unadmitted_job_or_pods_of_suspended_one_are_reported() {
    let mut story = Story::new();
    story.see(JOB, job("j", false, kinds::USER, json!({})));
    story.wait(11);
    assert_eq!(story.broken(), ["L3"]);
    let mut story = Story::new();
    story.see(JOB, job("j", true, kinds::USER, json!({})));
    story.wait(9);
    story.see(POD, pod("p", "j", "Pending"));
    assert_eq!(story.broken(), ["L3"]);
}

#[test]
fn l4_quota_freed_while_pods_run_is_reported() {
    let mut story = Story::new();
    story.see(JOB, job("j", true, kinds::USER, json!({})));
    story.see(WORKLOAD, workload("w", "j", ADMITTED, "1"));
    story.see(POD, pod("p", "j", "Running"));
    story.see(WORKLOAD, workload("w", "j", EVICTED, "1"));
    assert_eq!(story.broken(), ["L4"]);
}

#[test]
fn l7_template_not_restored_at_suspension_is_reported() {
    let mut story = Story::new();
    story.see(JOB, job("j", true, kinds::USER, json!({})));
    story.see(WORKLOAD, workload("w", "j", ADMITTED, "1"));
    story.see(JOB, job("j", false, "berth", json!({"tier": "spot"})));
    story.see(JOB, job("j", true, "berth", json!({"tier": "spot"})));
    story.see(WORKLOAD, workload("w", "j", EVICTED, "1"));
    assert_eq!(story.broken(), ["L7"]);
}

#[test]
fn l2_admission_without_reservation_and_l8_second_workload_are_reported() {
    let mut story = Story::new();
    story.see(WORKLOAD, workload("w", "j", &[("Admitted", "True")], "1"));
    story.see(WORKLOAD, workload("w2", "j", &[], "1"));
    assert_eq!(story.broken(), ["L2", "L8"]);
}

#[test]
fn q6_pods_of_a_training_job_beyond_quota_are_reported() {
    let training = |uid: &str| {
        let mut pod = pod(uid, "child", "Running");
        pod["metadata"]["labels"] = json!({"berth.dev/training-job-uid": "t"});
        pod
    };
    let mut story = Story::new();
    story.see(WORKLOAD, workload("w", "t", ADMITTED, "1"));
    story.see(POD, training("one"));
    assert!(story.broken().is_empty());
    story.see(POD, training("two"));
    assert_eq!(story.broken(), ["Q6"], "quota is for one");
    let mut story = Story::new();
    story.see(WORKLOAD, workload("w", "t", &[], "1"));
    story.see(POD, training("one"));
    assert_eq!(story.broken(), ["Q6"], "there is no quota at all");
}

/// A tenant deletes the Job of a TrainingJob, or its owner reference in the pod: Berth creates the Job again, and the old pod is charged until it has ended.
#[test]
fn q6_pod_without_its_job_counts_as_excess_only() {
    let training = |uid: &str, job: &str| {
        let mut pod = pod(uid, job, "Running");
        pod["metadata"]["labels"] = json!({"berth.dev/training-job-uid": "t"});
        pod["spec"]["nodeName"] = json!("n");
        pod["spec"]["containers"] = json!([{"name": "c", "resources": {"requests": {"cpu": "1"}}}]);
        pod
    };
    let part_of = |uid: &str| {
        let mut part = job(uid, false, "berth", json!({}));
        part["metadata"]["ownerReferences"] = json!([{"controller": true, "uid": "t"}]);
        part
    };
    let start = || {
        let mut story = Story::new();
        story.see(TRAINING_JOB, json!({"metadata": {"namespace": "ns", "name": "t", "uid": "t"}}));
        story.see(WORKLOAD, workload("w", "t", ADMITTED, "1"));
        story.see(JOB, part_of("child"));
        story.see(POD, training("one", "child"));
        story
    };
    for is_job_gone in [true, false] {
        let mut story = start();
        if is_job_gone {
            story.change(JOB, part_of("child"), true);
        } else {
            let mut orphan = training("one", "child");
            orphan["metadata"]["ownerReferences"] = json!([]);
            story.see(POD, orphan);
        }
        story.see(JOB, part_of("next"));
        story.see(POD, training("two", "next"));
        assert!(story.broken().is_empty(), "job gone: {is_job_gone}");
        story.wait(60);
        assert_eq!(story.broken(), ["Q6"], "it neither ends nor is charged; job gone: {is_job_gone}");
    }
    let mut story = start();
    story.see(POD, training("two", "next"));
    assert_eq!(story.broken(), ["Q6"], "the Job is there");
}

#[test]
fn correct_life_of_a_jobset_breaks_no_invariant() {
    let mut story = Story::new();
    story.see(JOBSET, job_set(false, kinds::USER));
    story.see(POD, part("early", false, "Running"));
    story.see(JOBSET, job_set(true, "kueue"));
    story.see(POD, part("late", false, "Pending"));
    story.see(WORKLOAD, workload("w", "s", WAITING, "1"));
    story.see(WORKLOAD, workload("w", "s", ADMITTED, "1"));
    story.see(POD, part("early", false, "Failed"));
    story.change(POD, part("late", false, "Pending"), true);
    for pod in ["first", "second"] {
        story.see(JOBSET, job_set(false, "kueue"));
        story.see(POD, part(pod, true, "Running"));
        story.see(JOBSET, job_set(true, "kueue"));
        story.see(POD, part(pod, true, "Failed"));
        story.see(WORKLOAD, workload("w", "s", EVICTED, "1"));
        story.see(WORKLOAD, workload("w", "s", ADMITTED, "1"));
    }
    story.see(JOBSET, job_set(false, "kueue"));
    story.see(POD, part("third", true, "Succeeded"));
    story.see(WORKLOAD, workload("w", "s", FINISHED, "1"));
    story.wait(60);
    assert_eq!(story.broken(), Vec::<&str>::new());
}

#[test]
fn l1_pod_of_a_jobset_without_admission_is_reported() {
    let cases = [
        (true, WAITING, vec!["L1"]),
        (true, EVICTED, vec!["L1"]),
        (true, FINISHED, vec!["L1"]),
        (true, ADMITTED, vec![]),
        (false, WAITING, vec![]),
    ];
    for (marked, conditions, expected) in cases {
        let mut story = Story::new();
        story.see(JOBSET, job_set(true, "kueue"));
        story.see(WORKLOAD, workload("w", "s", conditions, "1"));
        story.see(POD, part("p", marked, "Pending"));
        assert_eq!(story.broken(), expected, "mark: {marked}, workload: {conditions:?}");
    }
    let mut story = Story::new();
    let mut free = job_set(false, kinds::USER);
    free["metadata"]["annotations"] = json!({});
    story.see(JOBSET, free);
    story.see(POD, part("p", true, "Pending"));
    assert_eq!(story.broken(), Vec::<&str>::new(), "it has no queue");
}

#[test]
fn l1_jobset_started_without_admission_is_reported() {
    for (manager, expected) in [("kueue", vec!["L1"]), (kinds::USER, vec![])] {
        let mut story = Story::new();
        story.see(JOBSET, job_set(true, "kueue"));
        story.see(JOBSET, job_set(false, manager));
        assert_eq!(story.broken(), expected, "unsuspended by {manager}");
    }
}

#[test]
fn l4_quota_freed_while_jobset_pods_live_is_reported() {
    let cases = [(true, "Running", vec!["L4"]), (false, "Pending", vec!["L4"]), (true, "Failed", vec![])];
    for (marked, phase, expected) in cases {
        let mut story = Story::new();
        story.see(JOBSET, job_set(true, "kueue"));
        story.see(WORKLOAD, workload("w", "s", ADMITTED, "1"));
        story.see(POD, part("p", marked, phase));
        story.see(WORKLOAD, workload("w", "s", EVICTED, "1"));
        assert_eq!(story.broken(), expected, "mark: {marked}, {phase}");
    }
}

#[test]
fn q6_jobset_started_beside_pods_without_mark_is_reported() {
    for (phase, manager, expected) in
        [("Running", "kueue", vec!["Q6"]), ("Failed", "kueue", vec![]), ("Running", kinds::USER, vec![])]
    {
        let mut story = Story::new();
        story.see(JOBSET, job_set(false, kinds::USER));
        story.see(POD, part("early", false, "Running"));
        story.see(JOBSET, job_set(true, "kueue"));
        story.see(WORKLOAD, workload("w", "s", ADMITTED, "1"));
        story.see(POD, part("early", false, phase));
        story.see(JOBSET, job_set(false, manager));
        assert_eq!(story.broken(), expected, "{phase}, unsuspended by {manager}");
    }
}

#[test]
fn q6_pod_of_user_template_in_running_jobset_is_reported() {
    let mut story = Story::new();
    story.see(JOBSET, job_set(true, "kueue"));
    story.see(WORKLOAD, workload("w", "s", ADMITTED, "1"));
    story.see(JOBSET, job_set(false, "kueue"));
    // A later change of the JobSet is neither another start nor an end.
    story.see(JOBSET, job_set(false, "kueue"));
    let mut forged = part("forged", false, "Pending");
    forged["metadata"]["name"] = json!("other-x");
    story.see(POD, forged);
    assert!(story.broken().is_empty(), "its Job only names the JobSet as its controller");
    story.see(POD, part("extra", false, "Pending"));
    assert_eq!(story.broken(), ["Q6"]);
    story.see(JOBSET, job_set(true, "kueue"));
    story.see(POD, part("after", false, "Pending"));
    assert!(story.broken().is_empty(), "it is suspended");
}
