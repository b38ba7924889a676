//! L5: stories that break it, each beside stories that keep it.

use serde_json::json;

use super::held::{child, deleted, member, on_node, orphaned, runs, started, training};
use super::{ADMITTED, EVICTED, Story, WAITING, job, job_set, part, workload};
use crate::kinds::{JOB, JOBSET, POD, TRAINING_JOB, WORKLOAD};

const NONE: [&str; 0] = [];
const LEAVING: &[(&str, &str)] = &[("QuotaReserved", "True"), ("Admitted", "True"), ("Evicted", "True")];

#[test]
fn l5_eviction_that_nobody_acts_on_is_reported() {
    for (seconds, expected) in [(19, vec![]), (21, vec!["L5"])] {
        let mut story = started();
        story.see(POD, runs("p", "j", "2"));
        story.wait(60);
        story.see(WORKLOAD, workload("w", "j", LEAVING, "2"));
        story.wait(seconds);
        assert_eq!(story.broken(), expected, "after {seconds} s");
        assert_eq!(story.broken(), NONE, "it is reported once");
    }
}

#[test]
fn l5_eviction_of_orphaned_pods_is_reported() {
    let mut story = started();
    story.see(POD, runs("p", "j", "2"));
    story.see(POD, orphaned(runs("p", "j", "2")));
    story.change(JOB, job("j", false, "berth", json!({})), true);
    story.see(WORKLOAD, orphaned(workload("w", "j", ADMITTED, "2")));
    story.see(WORKLOAD, orphaned(workload("w", "j", LEAVING, "2")));
    story.wait(21);
    assert_eq!(story.broken(), ["L5"]);
}

#[test]
fn l5_pods_may_end_with_their_grace_period() {
    for (seconds, expected) in [(59, vec![]), (61, vec!["L5"])] {
        let mut story = started();
        story.see(POD, runs("p", "j", "2"));
        story.see(WORKLOAD, workload("w", "j", LEAVING, "2"));
        story.see(JOB, job("j", true, "berth", json!({})));
        story.wait(15);
        story.see(POD, deleted(runs("p", "j", "2"), 3600));
        story.wait(3000);
        assert_eq!(story.broken(), NONE, "it ends");
        story.change(POD, deleted(runs("p", "j", "2"), 0), true);
        story.wait(seconds);
        assert_eq!(story.broken(), expected, "the quota is held for {seconds} s more");
    }
}

#[test]
fn l5_release_after_the_last_pod_breaks_nothing() {
    let mut story = started();
    story.see(POD, runs("p", "j", "2"));
    for _ in 0..3 {
        story.see(WORKLOAD, workload("w", "j", LEAVING, "2"));
        story.see(JOB, job("j", true, "berth", json!({})));
        story.change(POD, deleted(runs("p", "j", "2"), 0), true);
        story.wait(5);
        story.see(WORKLOAD, workload("w", "j", EVICTED, "2"));
        story.wait(600);
        story.see(WORKLOAD, workload("w", "j", ADMITTED, "2"));
        story.see(JOB, job("j", false, "berth", json!({})));
        story.see(POD, runs("p", "j", "2"));
        story.wait(600);
    }
    assert_eq!(story.broken(), NONE);
}

#[test]
fn l5_pods_may_save_until_the_announced_time() {
    for (seconds, expected) in [(139, vec![]), (141, vec!["L5"])] {
        let mut story = started();
        story.see(POD, runs("p", "j", "2"));
        let mut leaving = workload("w", "j", LEAVING, "2");
        leaving["status"]["conditions"][2]["lastTransitionTime"] = json!("2026-11-29T12:00:00Z");
        story.see(WORKLOAD, leaving);
        let mut reported = runs("p", "j", "2");
        reported["metadata"]["annotations"] = json!({"berth.dev/stop-at": "2026-11-29T12:02:00Z"});
        story.see(POD, reported);
        story.wait(seconds);
        assert_eq!(story.broken(), expected, "after {seconds} s");
    }
}

#[test]
fn l5_training_job_may_save_before_its_pods_are_notified() {
    for (seconds, leaves, expected) in [(49, false, vec![]), (51, false, vec!["L5"]), (600, true, vec![])] {
        let mut story = Story::new();
        story.see(TRAINING_JOB, training());
        story.see(WORKLOAD, workload("w", "t", ADMITTED, "2"));
        story.see(JOB, child());
        let mut pod = runs("p", "child", "2");
        pod["metadata"]["labels"] = json!({"berth.dev/training-job-uid": "t"});
        story.see(POD, pod);
        story.see(WORKLOAD, workload("w", "t", LEAVING, "2"));
        if leaves {
            // The garbage collector does the rest.
            story.change(JOB, child(), true);
        }
        story.wait(seconds);
        assert_eq!(story.broken(), expected, "after {seconds} s, its Job is gone: {leaves}");
    }
}

#[test]
fn l5_deleted_job_must_stop_unless_foreground_deletion_removes_pods() {
    for (finalizer, expected) in [("example.com/keeps", vec!["L5"]), ("foregroundDeletion", vec![])] {
        let mut story = started();
        story.see(POD, runs("p", "j", "2"));
        let mut going = job("j", false, "berth", json!({}));
        going["metadata"]["deletionTimestamp"] = json!("2026-11-29T12:00:00Z");
        going["metadata"]["finalizers"] = json!([finalizer]);
        story.see(JOB, going);
        story.see(WORKLOAD, workload("w", "j", LEAVING, "2"));
        story.wait(21);
        assert_eq!(story.broken(), expected, "{finalizer}");
    }
}

#[test]
fn l5_pod_of_an_evicted_group_must_be_deleted() {
    let group = |conditions: &[(&str, &str)]| {
        let mut group = orphaned(workload("g", "", conditions, "2"));
        group["metadata"]["annotations"] = json!({"kueue.x-k8s.io/is-group-workload": "true"});
        group
    };
    for (grace, expected) in [(None, vec!["L5"]), (Some(3600), vec![])] {
        let mut story = Story::new();
        story.see(POD, member("p", "g", "2", true));
        story.see(WORKLOAD, group(ADMITTED));
        story.see(POD, member("p", "g", "2", false));
        story.see(POD, member("waits", "g", "2", true));
        story.see(WORKLOAD, group(LEAVING));
        if let Some(grace) = grace {
            story.see(POD, deleted(member("p", "g", "2", false), grace));
        }
        story.wait(21);
        assert_eq!(story.broken(), expected, "grace {grace:?}");
    }
}

#[test]
fn l5_workload_that_never_ran_may_be_evicted() {
    let mut story = Story::new();
    story.see(WORKLOAD, workload("w", "j", WAITING, "2"));
    story.see(WORKLOAD, workload("w", "j", ADMITTED, "2"));
    story.see(WORKLOAD, workload("w", "j", LEAVING, "2"));
    story.wait(600);
    assert_eq!(story.broken(), NONE, "who starts it is not there");
}

#[test]
fn l5_owner_of_another_kind_stops_its_pods_itself() {
    let owned = |conditions: &[(&str, &str)]| {
        let mut object = workload("w", "x", conditions, "2");
        object["metadata"]["ownerReferences"][0]["kind"] = json!("RayJob");
        object
    };
    let mut story = Story::new();
    story.see(WORKLOAD, owned(ADMITTED));
    story.see(POD, runs("p", "x", "2"));
    story.see(WORKLOAD, owned(LEAVING));
    story.wait(600);
    assert_eq!(story.broken(), NONE);
}

#[test]
fn l5_counts_only_while_somebody_leads() {
    let mut story = started();
    story.see(POD, runs("p", "j", "2"));
    story.judge.nobody_leads(story.now);
    story.see(WORKLOAD, workload("w", "j", LEAVING, "2"));
    story.wait(600);
    story.judge.somebody_leads(story.now);
    story.wait(19);
    assert_eq!(story.broken(), NONE);
    story.wait(2);
    assert_eq!(story.broken(), ["L5"]);
}

#[test]
fn l5_life_of_a_jobset_breaks_nothing() {
    let mut story = Story::new();
    story.see(JOBSET, job_set(true, "kueue"));
    story.see(WORKLOAD, workload("w", "s", ADMITTED, "2"));
    story.see(JOBSET, job_set(false, "kueue"));
    story.see(POD, on_node(part("p", true, "Running"), "2"));
    story.wait(60);
    story.see(WORKLOAD, workload("w", "s", LEAVING, "2"));
    story.see(JOBSET, job_set(true, "kueue"));
    story.wait(9);
    story.see(POD, deleted(on_node(part("p", true, "Running"), "2"), 60));
    story.wait(60);
    story.change(POD, deleted(on_node(part("p", true, "Failed"), "2"), 0), true);
    story.wait(5);
    story.see(WORKLOAD, workload("w", "s", EVICTED, "2"));
    story.wait(600);
    assert_eq!(story.broken(), NONE);
}

#[test]
fn l5_evicted_jobset_that_is_not_suspended_is_reported() {
    let mut story = Story::new();
    story.see(JOBSET, job_set(true, "kueue"));
    story.see(WORKLOAD, workload("w", "s", ADMITTED, "2"));
    story.see(JOBSET, job_set(false, "kueue"));
    story.see(POD, on_node(part("p", true, "Running"), "2"));
    story.see(WORKLOAD, workload("w", "s", LEAVING, "2"));
    story.wait(21);
    assert_eq!(story.broken(), ["L5"]);
}
