//! Q6 (excess): stories that break it, each beside stories that keep it.

use serde_json::{Value, json};

use super::{ADMITTED, EVICTED, FINISHED, Story, job, job_set, pod, queue, workload};
use crate::kinds::{self, CLUSTER_QUEUE, JOB, JOBSET, POD, TRAINING_JOB, WORKLOAD};

const NONE: [&str; 0] = [];

/// The given pod on a node, with that much cpu.
pub(super) fn on_node(mut pod: Value, cpu: &str) -> Value {
    pod["spec"] = json!({"nodeName": "node", "containers": [{"resources": {"requests": {"cpu": cpu}}}]});
    pod
}

/// A pod of a job, on a node.
pub(super) fn runs(uid: &str, job: &str, cpu: &str) -> Value {
    on_node(pod(uid, job, "Running"), cpu)
}

/// The given pod while it is being deleted.
pub(super) fn deleted(mut pod: Value, grace: u64) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("2026-11-29T12:00:00Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    pod
}

/// TrainingJob `t`.
pub(super) fn training() -> Value {
    json!({"metadata": {"namespace": "ns", "name": "t", "uid": "t"}})
}

/// The Job of TrainingJob `t`.
pub(super) fn child() -> Value {
    let mut child = job("child", false, "berth", json!({}));
    child["metadata"]["labels"] = json!({});
    child["metadata"]["ownerReferences"] = json!([{"controller": true, "uid": "t"}]);
    child
}

/// Without a controller.
pub(super) fn orphaned(mut object: Value) -> Value {
    object["metadata"]["ownerReferences"] = json!([]);
    object
}

/// A workload with that many pods.
fn of_pods(mut workload: Value, asked: u32, given: u32) -> Value {
    workload["spec"]["podSets"][0]["count"] = json!(asked);
    workload["status"]["admission"]["podSetAssignments"][0]["count"] = json!(given);
    workload
}

/// Job `j` runs, and its workload `w` holds two cpus.
pub(super) fn started() -> Story {
    let mut story = Story::new();
    story.see(JOB, job("j", true, kinds::USER, json!({})));
    story.see(WORKLOAD, workload("w", "j", ADMITTED, "2"));
    story.see(JOB, job("j", false, "berth", json!({})));
    story
}

/// The queue, charged with that much cpu.
fn charged(cpu: &str) -> Value {
    let mut object = queue("4");
    let flavors = json!([{"name": "f", "resources": [{"name": "cpu", "total": cpu, "borrowed": "0"}]}]);
    object["status"] = json!({"flavorsReservation": flavors, "flavorsUsage": flavors, "reservingWorkloads": 1,
        "admittedWorkloads": 1});
    object
}

#[test]
fn q6_pod_larger_than_quota_is_reported_after_the_bound() {
    for (cpu, seconds, expected) in [("2", 600, vec![]), ("3", 9, vec![]), ("3", 11, vec!["Q6"])] {
        let mut story = started();
        story.see(POD, runs("p", "j", cpu));
        story.wait(seconds);
        assert_eq!(story.broken(), expected, "{cpu} cpus for {seconds} s");
    }
    // The excess has ended, and is reported nevertheless.
    let mut story = started();
    story.see(POD, runs("p", "j", "3"));
    story.wait(11);
    story.see(POD, on_node(pod("p", "j", "Succeeded"), "3"));
    assert_eq!(story.broken(), ["Q6"]);
}

#[test]
fn q6_pod_without_a_node_uses_nothing() {
    let mut story = started();
    story.see(POD, runs("p", "j", "2"));
    let mut waits = runs("p2", "j", "2");
    waits["spec"]["nodeName"] = Value::Null;
    story.see(POD, waits);
    story.wait(60);
    assert_eq!(story.broken(), NONE);
}

#[test]
fn q6_more_pods_than_quota_are_reported() {
    let mut story = started();
    for name in ["p1", "p2"] {
        story.see(POD, runs(name, "j", "2"));
    }
    story.wait(11);
    assert_eq!(story.broken(), ["Q6"]);
    assert_eq!(story.broken(), NONE, "it is reported once");
}

#[test]
fn q6_replaced_pod_may_end_with_its_grace_period() {
    for (grace, seconds, expected) in [(30, 39, vec![]), (30, 41, vec!["Q6"]), (0, 600, vec![])] {
        let mut story = started();
        story.see(POD, runs("p1", "j", "2"));
        story.see(POD, deleted(runs("p1", "j", "2"), grace));
        story.see(POD, runs("p2", "j", "2"));
        story.wait(seconds);
        assert_eq!(story.broken(), expected, "{grace} s of grace, after {seconds} s");
    }
}

#[test]
fn q6_relabelled_pod_counts_for_its_job() {
    let mut story = started();
    story.see(POD, runs("p1", "j", "2"));
    story.see(POD, orphaned(runs("p1", "j", "2")));
    story.wait(60);
    assert_eq!(story.broken(), NONE, "it is the only one");
    let mut adopted = runs("p1", "other", "2");
    adopted["metadata"]["labels"] = json!({"jobset.sigs.k8s.io/jobset-uid": "s"});
    story.see(POD, adopted);
    story.see(POD, runs("p2", "j", "2"));
    story.wait(11);
    assert_eq!(story.broken(), ["Q6"]);
}

#[test]
fn q6_orphaned_pod_needs_the_quota_of_its_job() {
    for (conditions, expected) in [(ADMITTED, vec![]), (FINISHED, vec!["Q6"])] {
        let mut story = started();
        story.see(POD, runs("p", "j", "2"));
        story.see(POD, orphaned(runs("p", "j", "2")));
        story.see(WORKLOAD, orphaned(workload("w", "j", conditions, "2")));
        story.change(JOB, job("j", false, "berth", json!({})), true);
        story.wait(60);
        assert_eq!(story.broken(), expected, "{conditions:?}");
    }
    // The pod lost its job while no replica led.
    let mut story = started();
    story.see(POD, runs("p", "j", "2"));
    story.judge.nobody_leads(story.now);
    story.wait(1);
    story.see(POD, orphaned(runs("p", "j", "2")));
    story.change(JOB, job("j", false, "berth", json!({})), true);
    story.wait(1);
    story.judge.somebody_leads(story.now);
    story.see(WORKLOAD, orphaned(workload("w", "j", FINISHED, "2")));
    story.wait(60);
    assert_eq!(story.broken(), ["Q6"]);
}

#[test]
fn q6_charged_excess_breaks_nothing() {
    let mut story = started();
    story.see(CLUSTER_QUEUE, charged("4"));
    for name in ["p1", "p2"] {
        story.see(POD, runs(name, "j", "2"));
    }
    story.wait(600);
    assert_eq!(story.broken(), NONE);
    assert_eq!(story.judge.unbalanced(), Vec::new(), "the charge is right");
    // Another workload of its queue holds the quota that is charged there.
    story.see(WORKLOAD, workload("w2", "", ADMITTED, "1"));
    story.wait(9);
    assert_eq!(story.broken(), NONE);
    story.wait(2);
    assert_eq!(story.broken(), ["Q6"]);
    story.see(CLUSTER_QUEUE, charged("6"));
    assert!(!story.judge.unbalanced().is_empty(), "more is charged than runs");
}

#[test]
fn q6_counts_only_while_somebody_leads() {
    let mut story = started();
    story.see(POD, runs("p", "j", "3"));
    story.judge.nobody_leads(story.now);
    story.wait(60);
    assert_eq!(story.broken(), NONE);
    story.judge.somebody_leads(story.now);
    story.wait(11);
    assert_eq!(story.broken(), ["Q6"]);
}

#[test]
fn q6_states_that_a_watch_left_out_break_nothing() {
    let mut story = started();
    story.see(POD, runs("p", "j", "3"));
    story.wait(60);
    story.blind = true;
    story.see(POD, on_node(pod("p", "j", "Succeeded"), "3"));
    story.blind = false;
    assert_eq!(story.broken(), NONE);
}

#[test]
fn q6_pods_of_jobs_without_a_queue_are_free() {
    let unlabelled = |suspend: bool| {
        let mut object = job("j", suspend, kinds::USER, json!({}));
        object["metadata"]["labels"] = json!({});
        object
    };
    // It was stopped, lost its queue label by its user, and runs outside of all quotas.
    let mut story = started();
    story.see(WORKLOAD, workload("w", "j", EVICTED, "2"));
    story.see(JOB, unlabelled(true));
    story.see(JOB, unlabelled(false));
    story.see(POD, runs("p", "j", "3"));
    story.wait(60);
    assert_eq!(story.broken(), NONE);
    // It holds quota still.
    let mut story = started();
    story.see(JOB, unlabelled(false));
    story.see(POD, runs("p", "j", "3"));
    story.wait(60);
    assert_eq!(story.broken(), ["Q6"]);
    // It came into a queue while it ran.
    let mut story = Story::new();
    story.see(JOB, unlabelled(false));
    story.see(POD, runs("p", "j", "3"));
    story.see(WORKLOAD, workload("w", "j", ADMITTED, "2"));
    story.see(JOB, job("j", false, "berth", json!({})));
    story.wait(60);
    assert_eq!(story.broken(), NONE);
}

#[test]
fn q6_resized_pod_needs_quota_for_its_new_size() {
    let mut story = started();
    story.see(POD, runs("p", "j", "2"));
    story.see(POD, runs("p", "j", "3"));
    story.wait(60);
    assert_eq!(story.broken(), ["Q6"], "of a Job");
    let mut story = Story::new();
    story.see(WORKLOAD, workload("w", "p", ADMITTED, "2"));
    let managed = |cpu: &str| {
        let mut pod = orphaned(runs("p", "", cpu));
        pod["metadata"]["labels"] = json!({"kueue.x-k8s.io/managed": "true"});
        pod
    };
    story.see(POD, managed("2"));
    story.see(POD, managed("3"));
    story.wait(60);
    assert_eq!(story.broken(), ["Q6"]);
}

#[test]
fn q6_overhead_and_init_containers_of_a_pod_need_quota() {
    let with = |more: &Value| {
        let mut pod = runs("p", "j", "1");
        for (field, value) in more.as_object().into_iter().flatten() {
            pod["spec"][field] = value.clone();
        }
        pod
    };
    let requests = |cpu: &str| json!({"requests": {"cpu": cpu, "memory": "1Gi"}});
    let lives = [
        with(&json!({"overhead": {"cpu": "1"}})),
        with(&json!({"initContainers": [{"resources": requests("2")}]})),
        with(&json!({"initContainers": [{"restartPolicy": "Always", "resources": requests("1")}]})),
        with(&json!({"resources": requests("2")})),
    ];
    for pod in lives {
        let mut story = started();
        story.see(POD, pod.clone());
        story.wait(60);
        assert_eq!(story.broken(), NONE, "{pod}");
        let mut less = started();
        less.see(WORKLOAD, workload("w", "j", ADMITTED, "1999m"));
        less.see(POD, pod.clone());
        less.wait(60);
        assert_eq!(less.broken(), NONE, "a part may be rounded: {pod}");
        less.see(WORKLOAD, workload("w", "j", ADMITTED, "1900m"));
        less.wait(60);
        assert_eq!(less.broken(), ["Q6"], "{pod}");
    }
}

#[test]
fn q6_slice_holds_quota_for_all_pods() {
    let mut slice = of_pods(workload("b", "j", ADMITTED, "4"), 2, 2);
    slice["metadata"]["annotations"] = json!({"kueue.x-k8s.io/workload-slice-replacement-for": "ns/w"});
    let mut story = started();
    story.see(POD, runs("p1", "j", "2"));
    story.see(WORKLOAD, slice);
    story.see(POD, runs("p2", "j", "2"));
    story.wait(60);
    story.see(WORKLOAD, workload("w", "j", FINISHED, "2"));
    story.wait(60);
    assert_eq!(story.broken(), NONE);
    story.see(POD, runs("p3", "j", "1"));
    story.wait(60);
    assert_eq!(story.broken(), ["Q6"]);
}

#[test]
fn q6_partial_and_reclaimed_quota_is_for_the_pods_left() {
    let given = || of_pods(workload("w", "j", ADMITTED, "4"), 3, 2);
    let mut story = started();
    story.see(WORKLOAD, given());
    for name in ["p1", "p2"] {
        story.see(POD, runs(name, "j", "2"));
    }
    story.wait(60);
    story.see(POD, on_node(pod("p1", "j", "Succeeded"), "2"));
    let mut less = given();
    less["status"]["reclaimablePods"] = json!([{"name": "main", "count": 2}]);
    story.see(WORKLOAD, less);
    story.wait(60);
    assert_eq!(story.broken(), NONE);
    story.see(POD, runs("p3", "j", "2"));
    story.wait(60);
    assert_eq!(story.broken(), ["Q6"]);
}

/// A pod of a group, behind its gate or on a node.
pub(super) fn member(uid: &str, group: &str, cpu: &str, gated: bool) -> Value {
    let mut pod = orphaned(runs(uid, "", cpu));
    let name = "kueue.x-k8s.io/pod-group-name";
    pod["metadata"]["labels"] = json!({"kueue.x-k8s.io/managed": "true", (name): group});
    if gated {
        pod["spec"]["nodeName"] = Value::Null;
        pod["spec"]["schedulingGates"] = json!([{"name": "kueue.x-k8s.io/admission"}]);
    }
    pod
}

#[test]
fn q6_pod_counts_for_the_group_it_started_in() {
    let mut story = Story::new();
    let mut group = of_pods(orphaned(workload("g", "", ADMITTED, "4")), 2, 2);
    group["metadata"]["annotations"] = json!({"kueue.x-k8s.io/is-group-workload": "true"});
    // While it waits its user may put it into another group.
    story.see(POD, member("p1", "other", "2", true));
    for uid in ["p1", "p2"] {
        story.see(POD, member(uid, "g", "2", true));
    }
    story.wait(60);
    story.see(WORKLOAD, group);
    for uid in ["p1", "p2"] {
        story.see(POD, member(uid, "g", "2", false));
    }
    story.wait(60);
    assert_eq!(story.broken(), NONE);
    story.see(POD, member("p2", "other", "2", false));
    story.see(POD, member("p3", "g", "2", true));
    story.wait(60);
    assert_eq!(story.broken(), NONE, "the third one waits");
    story.see(POD, member("p3", "g", "2", false));
    story.wait(60);
    assert_eq!(story.broken(), ["Q6"]);
}

#[test]
fn q6_pods_of_jobsets_and_training_jobs_count_for_owner() {
    let labelled = |uid: &str, label: &str, owner: &str| {
        let mut pod = runs(uid, "child", "1");
        pod["metadata"]["labels"] = json!({(label): owner, "kueue.x-k8s.io/podset": "main"});
        pod
    };
    let cases = [("jobset.sigs.k8s.io/jobset-uid", "s"), ("berth.dev/training-job-uid", "t")];
    for (label, owner) in cases {
        let mut story = Story::new();
        story.see(JOBSET, job_set(true, "kueue"));
        story.see(WORKLOAD, of_pods(workload("w", owner, ADMITTED, "2"), 2, 2));
        if owner == "s" {
            story.see(JOBSET, job_set(false, "kueue"));
        } else {
            story.see(TRAINING_JOB, training());
            story.see(JOB, child());
        }
        for uid in ["p1", "p2"] {
            story.see(POD, labelled(uid, label, owner));
        }
        story.wait(60);
        assert_eq!(story.broken(), NONE, "{label}");
        let mut larger = labelled("p3", label, owner);
        larger["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1500m");
        story.change(POD, labelled("p2", label, owner), true);
        story.see(POD, larger);
        story.wait(9);
        assert_eq!(story.broken(), NONE, "{label}");
        story.wait(2);
        assert_eq!(story.broken(), ["Q6"], "{label}");
    }
}

#[test]
fn q6_pods_of_stopped_job_are_left_to_its_controller() {
    for (released, expected) in [(false, vec![]), (true, vec!["Q6"])] {
        let mut story = started();
        for name in ["p1", "p2"] {
            story.see(POD, runs(name, "j", "2"));
        }
        story.see(JOB, job("j", true, "berth", json!({})));
        if released {
            for name in ["p1", "p2"] {
                story.see(POD, orphaned(runs(name, "j", "2")));
            }
        }
        story.wait(60);
        let broken = story.broken();
        assert_eq!(broken.into_iter().filter(|law| *law != "L3").collect::<Vec<_>>(), expected, "{released}");
    }
}

#[test]
fn q6_pods_of_a_finished_job_need_nothing() {
    let mut story = started();
    story.see(POD, runs("p", "j", "2"));
    story.see(POD, on_node(pod("p", "j", "Succeeded"), "2"));
    story.see(WORKLOAD, workload("w", "j", FINISHED, "2"));
    story.wait(600);
    assert_eq!(story.broken(), NONE);
}
