//! Details of the promises: each story that breaks one stands beside a story that keeps it.

use serde_json::{Value, json};

use super::{ADMITTED, EVICTED, FINISHED, Story, WAITING, job, job_set, part, pod, queue, workload};
use crate::kinds::{self, CLUSTER_QUEUE, COHORT, JOB, JOBSET, LOCAL_QUEUE, POD, TRAINING_JOB, WORKLOAD};

const NONE: [&str; 0] = [];

/// A template with one container and that cpu request.
fn template(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}})
}

/// A Job with that cpu request and that number of pods.
fn asking(suspend: bool, manager: &str, cpu: &str, pods: u32) -> Value {
    let mut object = job("j", suspend, manager, json!({}));
    object["spec"]["template"] = template(cpu);
    object["spec"]["parallelism"] = json!(pods);
    object
}

/// A workload of the job, admitted with `given` of `asked` pods.
fn made_for(cpu: &str, asked: u32, given: u32) -> Value {
    let mut object = workload("w", "j", ADMITTED, "1");
    object["spec"]["podSets"] = json!([{"name": "main", "count": asked, "template": template(cpu)}]);
    object["status"]["admission"]["podSetAssignments"][0]["count"] = json!(given);
    object
}

#[test]
fn l1_job_started_for_other_pods_than_admitted_is_reported() {
    let cases = [
        ("1", 2, made_for("1000m", 2, 2), vec![]),
        ("2", 2, made_for("1", 2, 2), vec!["L1"]),
        ("1", 3, made_for("1", 2, 2), vec!["L1"]),
        // Partial admission: Berth has to start it with fewer pods.
        ("1", 4, made_for("1", 4, 2), vec!["L1"]),
        ("1", 2, made_for("1", 4, 2), vec![]),
    ];
    for (cpu, pods, workload, expected) in cases {
        let mut story = Story::new();
        story.see(JOB, asking(true, kinds::USER, cpu, pods));
        story.see(WORKLOAD, workload.clone());
        story.see(JOB, asking(false, "berth", cpu, pods));
        assert_eq!(story.broken(), expected, "{pods} pods of {cpu} under {}", workload["spec"]);
    }
    // Some of the Workload's pods had ended when it was admitted again.
    let mut again = made_for("1", 3, 2);
    again["status"]["reclaimablePods"] = json!([{"name": "main", "count": 1}]);
    let mut story = Story::new();
    story.see(JOB, asking(true, kinds::USER, "1", 3));
    story.see(WORKLOAD, again);
    story.see(JOB, asking(false, "berth", "1", 3));
    assert_eq!(story.broken(), NONE);
}

#[test]
fn l1_jobset_started_for_more_pods_than_admitted_is_reported() {
    for (replicas, expected) in [(1, vec![]), (2, vec!["L1"])] {
        let mut story = Story::new();
        let set = |suspend: bool| {
            let mut set = job_set(suspend, "kueue");
            set["spec"]["replicatedJobs"][0]["replicas"] = json!(replicas);
            set
        };
        story.see(JOBSET, set(true));
        story.see(WORKLOAD, workload("w", "s", ADMITTED, "1"));
        story.see(JOBSET, set(false));
        assert_eq!(story.broken(), expected, "{replicas} replicas");
    }
}

#[test]
fn l1_start_under_deleted_or_foreign_workload_is_reported() {
    for (deleting, seconds, expected) in [(false, 6, vec![]), (true, 4, vec![]), (true, 6, vec!["L1"])] {
        let mut story = Story::new();
        story.see(JOB, job("j", true, kinds::USER, json!({})));
        let mut held = workload("w", "j", ADMITTED, "1");
        if deleting {
            held["metadata"]["deletionTimestamp"] = json!("2026-11-21T12:00:00Z");
        }
        story.see(WORKLOAD, held);
        story.wait(seconds);
        story.see(JOB, job("j", false, "berth", json!({})));
        assert_eq!(story.broken(), expected, "deleting: {deleting}, {seconds} s before");
    }
    let mut story = Story::new();
    story.see(JOB, job("new", true, kinds::USER, json!({})));
    story.see(WORKLOAD, workload("w", "old", ADMITTED, "1"));
    story.see(JOB, job("new", false, "berth", json!({})));
    assert_eq!(story.broken(), ["L1"], "the workload is that of another job of its name");
}

#[test]
fn l1_training_job_child_without_admission_is_reported() {
    let child = || {
        let mut child = job("child", false, "berth", json!({}));
        child["metadata"]["labels"] = json!({});
        child["metadata"]["ownerReferences"] = json!([{"controller": true, "uid": "t"}]);
        child
    };
    for (conditions, expected) in [(WAITING, vec!["L1"]), (EVICTED, vec!["L1"]), (ADMITTED, vec![])] {
        let mut story = Story::new();
        story.see(TRAINING_JOB, json!({"metadata": {"namespace": "ns", "name": "t", "uid": "t"}}));
        story.see(WORKLOAD, workload("w", "t", conditions, "1"));
        story.see(JOB, child());
        assert_eq!(story.broken(), expected, "{conditions:?}");
    }
    let mut story = Story::new();
    story.see(JOB, child());
    assert_eq!(story.broken(), NONE, "its owner is no TrainingJob");
}

#[test]
fn c1_admission_of_two_leaders_beyond_quota_is_reported() {
    let mut story = Story::new();
    story.see(WORKLOAD, workload("a", "", WAITING, "3"));
    story.see(WORKLOAD, workload("b", "", WAITING, "3"));
    story.see(WORKLOAD, workload("a", "", ADMITTED, "3"));
    assert_eq!(story.broken(), NONE);
    story.see(WORKLOAD, workload("b", "", ADMITTED, "3"));
    assert_eq!(story.broken(), ["Q1"]);
}

#[test]
fn q1_usage_beyond_lending_limit_in_a_cohort_is_reported() {
    let member = |name: &str, lending: Option<&str>| {
        let mut queue = queue("4");
        queue["metadata"]["name"] = json!(name);
        queue["spec"]["cohortName"] = json!("root");
        if let Some(limit) = lending {
            queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["lendingLimit"] = json!(limit);
        }
        queue
    };
    for (lending, expected) in [(None, vec![]), (Some("1"), vec!["Q1"])] {
        let mut story = Story::new();
        story.see(CLUSTER_QUEUE, member("cq", None));
        story.see(CLUSTER_QUEUE, member("other", lending));
        story.wait(10);
        story.see(WORKLOAD, workload("a", "", ADMITTED, "6"));
        assert_eq!(story.broken(), expected, "the other lends at most {lending:?}");
    }
}

#[test]
fn l3_unadmitted_jobset_or_pods_of_suspended_one_are_reported() {
    for (seconds, expected) in [(9, vec![]), (11, vec!["L3"])] {
        let mut story = Story::new();
        story.see(JOBSET, job_set(false, kinds::USER));
        story.wait(seconds);
        assert_eq!(story.broken(), expected, "loose for {seconds} s");
    }
    // Its controller has to suspend its Jobs first.
    for (seconds, expected) in [(29, vec![]), (31, vec!["L3"])] {
        let mut story = Story::new();
        story.see(JOBSET, job_set(true, "kueue"));
        story.see(POD, part("p", false, "Running"));
        story.wait(seconds);
        assert_eq!(story.broken(), expected, "suspended for {seconds} s");
    }
}

#[test]
fn l3_counts_only_while_somebody_leads() {
    let mut story = Story::new();
    story.see(JOB, job("j", false, kinds::USER, json!({})));
    story.wait(5);
    story.judge.nobody_leads(story.now);
    story.judge.nobody_leads(story.now);
    story.wait(60);
    assert_eq!(story.broken(), NONE, "nobody is there to suspend it");
    story.judge.somebody_leads(story.now);
    story.wait(4);
    assert_eq!(story.broken(), NONE);
    story.wait(2);
    assert_eq!(story.broken(), ["L3"], "11 seconds in all");
}

#[test]
fn l3_unadmitted_job_is_reported_even_after_its_suspension() {
    for (seconds, expected) in [(9, vec![]), (11, vec!["L3"])] {
        let mut story = Story::new();
        story.see(JOB, job("j", false, kinds::USER, json!({})));
        story.wait(seconds);
        story.see(JOB, job("j", true, "berth", json!({})));
        assert_eq!(story.broken(), expected, "suspended after {seconds} s");
    }
}

#[test]
fn l4_reclaimable_pod_that_still_runs_is_reported() {
    for (over, expected) in [("Running", vec!["L4"]), ("Succeeded", vec![])] {
        let mut story = Story::new();
        story.see(JOB, asking(true, kinds::USER, "1", 2));
        story.see(WORKLOAD, made_for("1", 2, 2));
        story.see(JOB, asking(false, "berth", "1", 2));
        story.see(POD, pod("p1", "j", "Running"));
        story.see(POD, pod("p2", "j", over));
        let mut less = made_for("1", 2, 2);
        less["status"]["reclaimablePods"] = json!([{"name": "main", "count": 1}]);
        story.see(WORKLOAD, less);
        assert_eq!(story.broken(), expected, "the second pod is {over}");
    }
}

#[test]
fn l7_spec_field_not_restored_at_suspension_is_reported() {
    let waits = |field: &str, value: Value| {
        let mut story = Story::new();
        let with = |suspend: bool, manager: &str, value: Value| {
            let mut object = job("j", suspend, manager, json!({}));
            object["spec"][field] = value;
            object
        };
        story.see(JOB, with(true, kinds::USER, json!(3)));
        story.see(WORKLOAD, workload("w", "j", ADMITTED, "1"));
        story.see(JOB, with(false, "berth", json!(1)));
        story.see(JOB, with(true, "berth", value));
        story.see(WORKLOAD, workload("w", "j", EVICTED, "1"));
        story.broken()
    };
    for field in ["completions", "backoffLimit"] {
        assert_eq!(waits(field, json!(3)), NONE, "{field} is back");
        assert_eq!(waits(field, json!(1)), ["L7"], "{field} is as Berth left it");
    }
}

#[test]
fn l7_jobset_node_selector_not_restored_is_reported() {
    for (selector, expected) in [(json!({}), vec![]), (json!({"tier": "spot"}), vec!["L7"])] {
        let set = |suspend: bool, selector: &Value| {
            let mut set = job_set(suspend, "kueue");
            let template = json!({"spec": {"nodeSelector": selector}});
            set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"] = template;
            set
        };
        let mut story = Story::new();
        story.see(JOBSET, set(true, &Value::Null));
        story.see(WORKLOAD, workload("w", "s", ADMITTED, "1"));
        story.see(JOBSET, set(false, &json!({"tier": "spot"})));
        story.see(JOBSET, set(true, &selector));
        story.see(WORKLOAD, workload("w", "s", EVICTED, "1"));
        assert_eq!(story.broken(), expected, "node selector {selector}");
    }
}

#[test]
fn l7_job_set_that_is_being_deleted_waits_for_nothing() {
    for (deleted, expected) in [(json!("2026-01-01T00:00:00Z"), vec![]), (Value::Null, vec!["L7"])] {
        let set = |suspend: bool, selector: Value| {
            let mut set = job_set(suspend, "kueue");
            set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"] =
                json!({"spec": {"nodeSelector": selector}});
            set
        };
        let mut story = Story::new();
        story.see(JOBSET, set(true, Value::Null));
        story.see(WORKLOAD, workload("w", "s", ADMITTED, "1"));
        story.see(JOBSET, set(false, json!({"tier": "spot"})));
        let mut stopped = set(true, json!({"tier": "spot"}));
        stopped["metadata"]["deletionTimestamp"] = deleted.clone();
        if deleted.is_null() {
            stopped["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
        }
        story.see(JOBSET, stopped);
        story.see(WORKLOAD, workload("w", "s", EVICTED, "1"));
        assert_eq!(story.broken(), expected, "deleted {deleted}");
    }
}

#[test]
fn l7_change_may_stay_only_if_the_user_made_it() {
    let written = |manager: &str, time: &str, parallelism: u32, suspend: bool| {
        let mut object = job("j", suspend, manager, json!({}));
        object["spec"]["parallelism"] = json!(parallelism);
        let fields = json!({"f:spec": {"f:suspend": {}}});
        object["metadata"]["managedFields"] = json!([{"manager": manager, "time": time, "fieldsV1": fields}]);
        object
    };
    for (manager, expected) in [(kinds::USER, vec![]), ("berth", vec!["L7"])] {
        let mut story = Story::new();
        story.see(JOB, written(kinds::USER, "12:00:00", 1, true));
        story.see(WORKLOAD, workload("w", "j", ADMITTED, "1"));
        story.see(JOB, written("berth", "12:00:01", 1, false));
        story.see(JOB, written(manager, "12:00:05", 2, false));
        story.see(JOB, written("berth", "12:00:09", 2, true));
        story.see(WORKLOAD, workload("w", "j", EVICTED, "1"));
        assert_eq!(story.broken(), expected, "edited by {manager}");
    }
}

#[test]
fn l8_workload_labelled_for_another_uid_is_reported() {
    for (uid, expected) in [("j", vec![]), ("older", vec!["L8"])] {
        let mut story = Story::new();
        let mut object = workload("w", "j", WAITING, "1");
        object["metadata"]["labels"] = json!({"kueue.x-k8s.io/job-uid": uid});
        story.see(WORKLOAD, object);
        assert_eq!(story.broken(), expected, "labelled for {uid}");
    }
}

/// A LocalQueue of that name for the ClusterQueue, with that number of waiting workloads in its status.
fn local_queue(name: &str, pending: usize, stop: &str) -> Value {
    json!({"metadata": {"namespace": "ns", "name": name}, "spec": {"clusterQueue": "cq", "stopPolicy": stop},
        "status": {"pendingWorkloads": pending}})
}

fn with_pending(pending: usize) -> Value {
    let mut object = queue("4");
    object["status"] = json!({"pendingWorkloads": pending});
    object
}

fn wrong(story: &Story) -> Vec<String> {
    story.judge.unbalanced().into_iter().map(|(key, _)| key).collect()
}

#[test]
fn q3_wrong_count_of_pending_workloads_is_reported() {
    let mut story = Story::new();
    story.see(LOCAL_QUEUE, local_queue("lq", 2, "None"));
    story.see(WORKLOAD, workload("a", "", WAITING, "1"));
    story.see(WORKLOAD, workload("b", "", EVICTED, "1"));
    let mut inactive = workload("c", "", WAITING, "1");
    inactive["spec"]["active"] = json!(false);
    story.see(WORKLOAD, inactive);
    story.see(CLUSTER_QUEUE, with_pending(2));
    assert_eq!(wrong(&story), NONE);
    story.see(CLUSTER_QUEUE, with_pending(1));
    assert_eq!(wrong(&story), ["cq"]);
    story.see(CLUSTER_QUEUE, with_pending(2));
    story.see(LOCAL_QUEUE, local_queue("lq", 3, "None"));
    assert_eq!(wrong(&story), ["ns/lq"]);
    // A stopped LocalQueue has them, and does not feed the ClusterQueue.
    story.see(LOCAL_QUEUE, local_queue("lq", 2, "Hold"));
    assert_eq!(wrong(&story), ["cq"]);
    story.see(CLUSTER_QUEUE, with_pending(0));
    assert_eq!(wrong(&story), NONE);
    story.see(WORKLOAD, workload("b", "", FINISHED, "1"));
    assert_eq!(wrong(&story), ["ns/lq"], "it waits no more");
}

#[test]
fn q3_workload_held_back_is_not_counted_as_pending() {
    let waiting = || workload("a", "", WAITING, "1");
    let with_condition = |kind: &str, status: &str, reason: &str| {
        let mut object = waiting();
        object["status"]["conditions"] = json!([{"type": kind, "status": status, "reason": reason}]);
        object
    };
    let mut gated = waiting();
    gated["metadata"]["annotations"] = json!({"kueue.x-k8s.io/admission-gated-by": "a.io/one"});
    let on_hold = with_condition("QuotaReserved", "False", "OnHold");
    let replaced = with_condition("WaitingForReplacementPods", "True", "PodsFailed");
    for (object, pending) in [(waiting(), 1), (gated, 0), (on_hold, 0), (replaced, 0)] {
        let mut story = Story::new();
        story.see(LOCAL_QUEUE, local_queue("lq", pending, "None"));
        story.see(CLUSTER_QUEUE, with_pending(pending));
        story.see(WORKLOAD, object.clone());
        assert_eq!(wrong(&story), NONE, "{object}");
        story.see(CLUSTER_QUEUE, with_pending(1 - pending));
        assert_eq!(wrong(&story), ["cq"], "{object}");
    }
}

#[test]
fn q3_borrowed_amount_must_equal_usage_above_nominal_quota() {
    let member = |borrowed: &str| {
        let mut object = queue("4");
        object["spec"]["cohortName"] = json!("root");
        let resources = json!([{"name": "cpu", "total": "5", "borrowed": borrowed}]);
        let flavors = json!([{"name": "f", "resources": resources}]);
        object["status"] = json!({"flavorsReservation": flavors, "flavorsUsage": flavors, "reservingWorkloads": 1,
            "admittedWorkloads": 1});
        object
    };
    let mut story = Story::new();
    story.see(WORKLOAD, workload("a", "", ADMITTED, "5"));
    story.see(CLUSTER_QUEUE, member("1"));
    assert_eq!(wrong(&story), NONE);
    story.see(CLUSTER_QUEUE, member("0"));
    assert_eq!(wrong(&story), ["cq", "cq"], "of what is reserved, and of what is used");
    let mut alone = member("1");
    alone["spec"]["cohortName"] = json!("");
    story.see(CLUSTER_QUEUE, alone);
    assert_eq!(wrong(&story), ["cq", "cq"], "there is nobody to borrow from");
}

#[test]
fn q3_share_of_a_cohort_without_usage_is_reported() {
    let cohort = |share: i64| json!({"metadata": {"name": "root"}, "spec": {}, "status": {"fairSharing": {"weightedShare": share}}});
    let mut story = Story::new();
    let mut member = queue("4");
    member["spec"]["cohortName"] = json!("root");
    story.see(CLUSTER_QUEUE, member);
    story.see(COHORT, cohort(0));
    assert_eq!(wrong(&story), NONE);
    story.see(COHORT, cohort(250));
    assert_eq!(wrong(&story), ["root"]);
    story.see(WORKLOAD, workload("a", "", ADMITTED, "4"));
    assert!(!wrong(&story).contains(&"root".to_owned()), "something below it is used");
}

#[test]
fn revisions_that_a_list_left_out_are_not_judged() {
    let mut story = Story::new();
    story.see(JOB, job("j", true, kinds::USER, json!({})));
    story.blind = true;
    // The admission in between was not shown.
    story.see(JOB, job("j", false, "berth", json!({})));
    story.see(WORKLOAD, workload("w", "j", FINISHED, "1"));
    story.blind = false;
    assert_eq!(story.broken(), NONE);
    story.see(WORKLOAD, workload("a", "", ADMITTED, "3"));
    story.see(WORKLOAD, workload("b", "", ADMITTED, "3"));
    assert_eq!(story.broken(), ["Q1"], "it sees again");
}

/// The JobSet's controller writes no status while the JobSet controls a Job without the number of an attempt, and Berth charges by the old status.
#[test]
fn q3_job_set_with_uncounted_job_may_be_charged() {
    for (attempt, expected) in [(Some("0"), vec!["cq"; 2]), (None, vec![])] {
        let mut story = Story::new();
        story.see(JOBSET, job_set(false, "kueue"));
        let mut child = job("child", false, kinds::USER, json!({}));
        child["metadata"]["ownerReferences"] = json!([{"controller": true, "uid": "s"}]);
        if let Some(attempt) = attempt {
            child["metadata"]["labels"] = json!({"jobset.sigs.k8s.io/restart-attempt": attempt});
        }
        story.see(JOB, child);
        story.see(WORKLOAD, workload("w", "s", ADMITTED, "1"));
        let mut object = queue("4");
        let flavors = json!([{"name": "f", "resources": [{"name": "cpu", "total": "2"}]}]);
        object["status"] = json!({"flavorsReservation": flavors, "flavorsUsage": flavors, "reservingWorkloads": 1,
            "admittedWorkloads": 1});
        story.see(CLUSTER_QUEUE, object);
        assert_eq!(wrong(&story), expected, "attempt {attempt:?}");
    }
}

/// A JobSet has given back the quota of an ended pod, and the Job of that pod runs again: its LocalQueue counts the pod, and no other pod beyond quota.
#[test]
fn q3_local_queue_counts_pods_that_run_again() {
    for (again, expected) in [(true, vec![]), (false, vec!["ns/lq"; 2])] {
        let mut story = Story::new();
        story.see(JOBSET, job_set(false, "kueue"));
        let mut object = workload("w", "s", ADMITTED, "2");
        object["spec"]["podSets"][0]["count"] = json!(2);
        object["status"]["admission"]["podSetAssignments"][0]["count"] = json!(2);
        object["status"]["reclaimablePods"] = json!([{"name": "main", "count": 1}]);
        story.see(WORKLOAD, object);
        for name in ["s-one", "s-two"].into_iter().take(if again { 2 } else { 1 }) {
            let mut pod = part(name, true, "Running");
            pod["spec"] =
                json!({"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]});
            story.see(POD, pod);
        }
        let mut local = local_queue("lq", 0, "None");
        let flavors = json!([{"name": "f", "resources": [{"name": "cpu", "total": "2"}]}]);
        local["status"]["flavorsReservation"] = flavors.clone();
        local["status"]["flavorsUsage"] = flavors;
        local["status"]["reservingWorkloads"] = json!(1);
        local["status"]["admittedWorkloads"] = json!(1);
        story.see(LOCAL_QUEUE, local);
        let found: Vec<String> = wrong(&story).into_iter().filter(|key| key == "ns/lq").collect();
        assert_eq!(found, expected, "runs again: {again}");
    }
}
