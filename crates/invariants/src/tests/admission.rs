//! Rules at the step by which a Workload gets quota, is admitted or finishes: stories that break them, beside stories that keep them.

use serde_json::{Value, json};

use super::{ADMITTED, EVICTED, FINISHED, Story, WAITING, job, queue, workload};
use crate::kinds::{self, CLUSTER_QUEUE, COHORT, JOB, WORKLOAD};

const NONE: [&str; 0] = [];
const RESERVED: &[(&str, &str)] = &[("QuotaReserved", "True"), ("Admitted", "False")];

/// The object, whose admission that manager wrote.
fn by(manager: &str, mut object: Value) -> Value {
    let status = json!({"f:admission": {}, "f:conditions": {"k:{\"type\":\"Admitted\"}": {}}});
    object["metadata"]["managedFields"] = json!([{"manager": manager, "fieldsV1": {"f:status": status}}]);
    object
}

#[test]
fn q2_admission_into_queue_over_its_quota_is_reported() {
    for (nominal, expected) in [("4", vec![]), ("3", vec!["Q1"]), ("2", vec!["Q2"])] {
        let mut story = Story::new();
        story.see(WORKLOAD, workload("a", "", ADMITTED, "3"));
        story.see(CLUSTER_QUEUE, queue(nominal));
        story.wait(6);
        assert_eq!(story.broken(), NONE, "an edit evicts nobody");
        story.see(WORKLOAD, workload("b", "", ADMITTED, "1"));
        assert_eq!(story.broken(), expected, "quota {nominal}");
    }
    let mut story = Story::new();
    story.see(WORKLOAD, workload("a", "", ADMITTED, "3"));
    story.see(CLUSTER_QUEUE, queue("2"));
    story.see(WORKLOAD, workload("a", "", EVICTED, "3"));
    story.wait(6);
    story.see(WORKLOAD, workload("b", "", ADMITTED, "1"));
    assert_eq!(story.broken(), NONE, "it is over no more");
}

#[test]
fn q5_borrowing_limit_of_middle_cohort_binds_until_moved() {
    let quota = |nominal: &str, limit: Option<&str>| {
        let mut object = queue(nominal);
        if let Some(limit) = limit {
            object["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"] = json!(limit);
        }
        object
    };
    let member = |name: &str, parent: &str, nominal: &str| {
        let mut object = quota(nominal, None);
        object["metadata"]["name"] = json!(name);
        object["spec"]["cohortName"] = json!(parent);
        object
    };
    let middle = |parent: &str| {
        let mut object = quota("2", Some("1"));
        object["metadata"]["name"] = json!("middle");
        object["spec"]["parentName"] = json!(parent);
        object
    };
    for (parent, cpu, expected) in
        [("root", "4", vec![]), ("root", "5", vec!["Q1"]), ("other", "3", vec![]), ("other", "4", vec!["Q1"])]
    {
        let mut story = Story::new();
        story.see(CLUSTER_QUEUE, member("lender", "root", "10"));
        story.see(COHORT, middle("root"));
        story.see(CLUSTER_QUEUE, member("cq", "middle", "1"));
        story.see(COHORT, middle(parent));
        story.wait(6);
        story.see(WORKLOAD, workload("a", "", ADMITTED, cpu));
        assert_eq!(story.broken(), expected, "{cpu} cpus, below {parent}");
    }
}

/// A workload with two pod sets: six workers of which four are enough, and a driver.
fn two_sets(workers: Value, driver: Value) -> Value {
    let mut object = workload("w", "", ADMITTED, "1");
    object["spec"]["podSets"] = json!([
        {"name": "driver", "count": 1, "template": {}}, {"name": "workers", "count": 6, "minCount": 4, "template": {}}]);
    let set = |name: &str, count: Value| json!({"name": name, "count": count, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}});
    object["status"]["admission"]["podSetAssignments"] = json!([set("driver", driver), set("workers", workers)]);
    object
}

#[test]
fn q7_reservation_for_part_of_the_pods_is_reported() {
    let cases = [
        (json!(6), json!(1), vec![]),
        (json!(4), json!(1), vec![]),
        (json!(null), json!(1), vec![]),
        (json!(3), json!(1), vec!["Q7"]),
        (json!(7), json!(1), vec!["Q7"]),
        (json!(6), json!(0), vec!["Q7"]),
    ];
    for (workers, driver, expected) in cases {
        let mut story = Story::new();
        let object = two_sets(workers.clone(), driver.clone());
        story.see(WORKLOAD, by("kueue-admission", object.clone()));
        assert_eq!(story.broken(), expected, "{workers} workers and {driver} drivers");
        let mut story = Story::new();
        story.see(WORKLOAD, by(kinds::USER, object));
        assert_eq!(story.broken(), NONE, "a user wrote it");
    }
}

#[test]
fn q7_reservation_without_one_pod_set_is_reported() {
    for (name, expected) in [("driver", vec![]), ("other", vec!["Q7"]), ("", vec!["Q7"])] {
        let mut object = two_sets(json!(6), json!(1));
        object["status"]["admission"]["podSetAssignments"][0]["name"] = json!(name);
        if name.is_empty() {
            object["status"]["admission"]["podSetAssignments"].as_array_mut().unwrap().remove(0);
        }
        let mut story = Story::new();
        story.see(WORKLOAD, by("kueue-admission", object));
        assert_eq!(story.broken(), expected, "{name:?}");
    }
}

#[test]
fn q7_ended_pods_need_no_quota() {
    for (ended, workers, expected) in [(3, 3, vec![]), (1, 3, vec!["Q7"]), (1, 4, vec![]), (6, 0, vec![])] {
        let mut object = two_sets(json!(workers), json!(1));
        object["status"]["reclaimablePods"] = json!([{"name": "workers", "count": ended}]);
        let mut story = Story::new();
        story.see(WORKLOAD, by("kueue-admission", object));
        assert_eq!(story.broken(), expected, "{ended} have ended, quota for {workers}");
    }
}

#[test]
fn l2_admission_with_open_check_is_reported() {
    let checked = |conditions: &[(&str, &str)], state: &str| {
        let mut object = workload("w", "", conditions, "1");
        object["status"]["admissionChecks"] =
            json!([{"name": "first", "state": "Ready"}, {"name": "second", "state": state}]);
        object
    };
    for (state, expected) in [("Ready", vec![]), ("Pending", vec!["L2"]), ("Retry", vec!["L2"])] {
        let mut story = Story::new();
        story.see(WORKLOAD, by("kueue-admission", checked(RESERVED, "Pending")));
        story.see(WORKLOAD, by("kueue-admission", checked(ADMITTED, state)));
        assert_eq!(story.broken(), expected, "{state}");
    }
    // A check that is asked again takes no admission away by itself.
    let mut story = Story::new();
    story.see(WORKLOAD, by("kueue-admission", checked(ADMITTED, "Ready")));
    story.see(WORKLOAD, by("kueue-admission", checked(ADMITTED, "Pending")));
    assert_eq!(story.broken(), NONE);
    let mut story = Story::new();
    story.see(WORKLOAD, by(kinds::USER, checked(ADMITTED, "Pending")));
    assert_eq!(story.broken(), NONE, "a user wrote it");
}

#[test]
fn l6_finished_workload_that_comes_back_is_reported() {
    for conditions in [WAITING, EVICTED, ADMITTED] {
        let mut story = Story::new();
        story.see(WORKLOAD, workload("w", "", FINISHED, "1"));
        assert_eq!(story.broken(), NONE);
        story.see(WORKLOAD, workload("w", "", conditions, "1"));
        assert_eq!(story.broken(), ["L6"], "{conditions:?}");
    }
    let mut story = Story::new();
    story.see(WORKLOAD, workload("w", "", FINISHED, "1"));
    story.change(WORKLOAD, workload("w", "", FINISHED, "1"), true);
    let mut other = workload("w", "", ADMITTED, "1");
    other["metadata"]["uid"] = json!("w2");
    story.see(WORKLOAD, other);
    assert_eq!(story.broken(), NONE, "it is another workload of that name");
}

#[test]
fn l6_job_started_for_finished_workload_is_reported() {
    for (conditions, expected) in [(ADMITTED, vec![]), (FINISHED, vec!["L6"])] {
        let mut story = Story::new();
        story.see(JOB, job("j", true, kinds::USER, json!({})));
        story.see(WORKLOAD, workload("w", "j", conditions, "1"));
        story.see(JOB, job("j", false, "berth", json!({})));
        assert_eq!(story.broken(), expected, "{conditions:?}");
    }
}
