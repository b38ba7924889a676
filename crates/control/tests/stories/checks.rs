//! Admission checks of a Workload between its quota reservation and its start.

use berth_control::write::{Kind, Notice};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, flavor, job, local_queue};

/// Sets the flavors of the ClusterQueue, and the admission check `budget` for the flavors in `on`, or for all flavors if `on` is empty.
pub fn rely_on_budget(cluster: &mut Cluster, flavors: &[(&str, &str)], on: Value) {
    let check = json!({"metadata": {"name": "budget"}, "spec": {"controllerName": "example.com/budget"},
        "status": {"conditions": [{"type": "Active", "status": "True", "reason": "Active", "message": "",
            "lastTransitionTime": "2026-11-21T12:00:00Z"}]}});
    cluster.put(Kind::AdmissionCheck, check);
    let mut queue = cluster_queue("cq", None, flavors);
    queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "budget", "onFlavors": on}]});
    match cluster.objects().contains_key(&Cluster::key(Kind::ClusterQueue, "", "cq")) {
        true => cluster.edit(Kind::ClusterQueue, "", "cq", &queue),
        false => cluster.put(Kind::ClusterQueue, queue),
    }
}

/// A ClusterQueue with one admission check, and a job that holds quota; the second value is the name of the job's Workload.
pub fn checked() -> (Cluster, String) {
    let mut cluster = Cluster::new();
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({})));
    rely_on_budget(&mut cluster, &[("default", "1")], json!([]));
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(5);
    assert!(cluster.is("a", "QuotaReserved") && !cluster.is("a", "Admitted"), "{:?}", cluster.workload_of("a"));
    let workload = cluster.workload_of("a").unwrap();
    assert_eq!(workload["status"]["admissionChecks"][0]["name"], json!("budget"));
    assert_eq!(workload["status"]["admissionChecks"][0]["state"], json!("Pending"));
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(true));
    let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
    (cluster, name)
}

/// The controller of the admission check writes its answer to the Workload.
pub fn answer(cluster: &mut Cluster, workload: &str, state: &str) {
    let time = cluster.now().to_string();
    let state = json!([{"name": "budget", "state": state, "message": "said so", "lastTransitionTime": time,
        "requeueAfterSeconds": 30}]);
    cluster.edit(Kind::Workload, "team", workload, &json!({"status": {"admissionChecks": state}}));
}

#[test]
fn job_with_reservation_starts_when_admission_check_is_ready() {
    let (mut cluster, name) = checked();
    answer(&mut cluster, &name, "Ready");
    cluster.pass(5);
    assert!(cluster.is("a", "Admitted"));
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(false));
    cluster.complete("a");
    cluster.pass(5);
    assert!(cluster.is("a", "Finished"));
}

/// Messages of the events about admission checks for a job or pod.
fn check_events(cluster: &Cluster, kind: Kind, name: &str) -> Vec<String> {
    let about = |notice: &&Notice| notice.reason == "UpdatedAdmissionCheck" && notice.key.kind == kind;
    let about = cluster.notices.iter().filter(|notice| about(notice) && notice.key.name == name);
    about.map(|notice| notice.message.clone()).collect()
}

#[test]
fn job_waiting_for_admission_check_gets_its_message_once() {
    let (mut cluster, name) = checked();
    assert_eq!(check_events(&cluster, Kind::JOB, "a"), [""; 0], "it has not said anything");
    answer(&mut cluster, &name, "Pending");
    cluster.pass(60);
    assert_eq!(check_events(&cluster, Kind::JOB, "a"), ["budget: said so"]);
    answer(&mut cluster, &name, "Ready");
    cluster.pass(5);
    assert!(cluster.is("a", "Admitted"));
    assert_eq!(check_events(&cluster, Kind::JOB, "a").len(), 1);
}

#[test]
fn pods_waiting_for_admission_check_get_event_with_its_message() {
    let mut cluster = crate::stories::pod_queue("2");
    rely_on_budget(&mut cluster, &[("default", "2")], json!([]));
    cluster.put(Kind::Pod, crate::stories::pods::pod("single", "1"));
    cluster.put(Kind::Pod, crate::stories::groups::member("one-of-all", "1", 1, &[]));
    cluster.pass(5);
    let all = cluster.objects().keys().filter(|key| key.kind == Kind::Workload).map(|key| key.name.clone());
    let all: Vec<String> = all.collect();
    for name in &all {
        assert!(cluster.workload_is(name, "QuotaReserved") && !cluster.workload_is(name, "Admitted"));
        answer(&mut cluster, name, "Pending");
    }
    cluster.pass(5);
    assert_eq!(all.len(), 2);
    for name in ["single", "one-of-all"] {
        assert_eq!(check_events(&cluster, Kind::Pod, name), ["budget: said so"], "{name}");
    }
}

#[test]
fn pending_workload_lists_checks_that_apply_to_every_flavor() {
    let (mut cluster, _) = checked();
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    cluster.pass(5);
    let listed = |cluster: &Cluster, job: &str| -> Vec<(Value, Value)> {
        let checks = cluster.workload_of(job).unwrap()["status"]["admissionChecks"].as_array().cloned();
        checks.into_iter().flatten().map(|check| (check["name"].clone(), check["state"].clone())).collect()
    };
    let budget = (json!("budget"), json!("Pending"));
    assert!(!cluster.is("b", "QuotaReserved"));
    assert_eq!(listed(&cluster, "b"), std::slice::from_ref(&budget));
    // The admission check is for one of two flavors, and may not apply to a Workload that has no flavor yet.
    cluster.put(Kind::ResourceFlavor, flavor("other", json!({})));
    rely_on_budget(&mut cluster, &[("default", "1"), ("other", "0")], json!(["default"]));
    cluster.pass(5);
    assert_eq!((listed(&cluster, "a"), listed(&cluster, "b")), (vec![budget.clone()], Vec::new()));
    rely_on_budget(&mut cluster, &[("default", "1"), ("other", "0")], json!(["default", "other"]));
    cluster.pass(5);
    assert_eq!(listed(&cluster, "b"), [budget]);
    cluster.pass(120);
    let writes = cluster.writes.len();
    cluster.pass(120);
    assert_eq!(cluster.writes.len(), writes, "quiet at rest: {:?}", &cluster.writes[writes..]);
}

#[test]
fn job_without_resource_requests_is_admitted_without_admission_checks() {
    let (mut cluster, _) = checked();
    let mut idle = job("idle", "lq", "1", true);
    idle["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({});
    cluster.put(Kind::JOB, idle);
    cluster.pass(5);
    assert!(cluster.is("idle", "Admitted"), "{:?}", cluster.workload_of("idle"));
    let checks = cluster.workload_of("idle").unwrap()["status"]["admissionChecks"].as_array().cloned();
    assert!(checks.unwrap_or_default().is_empty());
    assert_eq!(cluster.job("idle")["spec"]["suspend"], json!(false));
}

#[test]
fn job_with_check_in_retry_is_evicted_and_requeued_later() {
    let (mut cluster, name) = checked();
    answer(&mut cluster, &name, "Retry");
    cluster.pass(10);
    assert_eq!(cluster.condition("a", "Evicted").unwrap()["reason"], json!("AdmissionCheck"));
    assert!(!cluster.is("a", "QuotaReserved"));
    let check = &cluster.workload_of("a").unwrap()["status"]["admissionChecks"][0];
    assert_eq!((&check["state"], &check["retryCount"]), (&json!("Pending"), &json!(1)));
    assert_eq!(check["message"], json!("Reset to Pending after eviction. Previously: Retry"));
    cluster.pass(40);
    assert!(cluster.is("a", "QuotaReserved") && !cluster.is("a", "Admitted"));
    answer(&mut cluster, &name, "Ready");
    cluster.pass(5);
    assert!(cluster.is("a", "Admitted"));
}

#[test]
fn workload_with_rejected_admission_check_is_deactivated_and_evicted() {
    let (mut cluster, name) = checked();
    answer(&mut cluster, &name, "Rejected");
    cluster.pass(10);
    let workload = cluster.workload_of("a").unwrap();
    assert_eq!(workload["spec"]["active"], json!(false));
    assert_eq!(cluster.condition("a", "Evicted").unwrap()["reason"], json!("DeactivatedDueToAdmissionCheck"));
    assert!(!cluster.is("a", "QuotaReserved"));
    assert!(cluster.notices.iter().any(|notice| notice.reason == "AdmissionCheckRejected"));
}

#[test]
fn workload_evicted_by_check_under_hold_reserves_quota_after_hold() {
    let (mut cluster, name) = checked();
    let stop = |cluster: &mut Cluster, policy: &str| {
        cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": policy}}));
    };
    stop(&mut cluster, "Hold");
    answer(&mut cluster, &name, "Retry");
    cluster.pass(60);
    assert!(!cluster.is("a", "QuotaReserved"));
    stop(&mut cluster, "None");
    cluster.pass(60);
    assert!(cluster.is("a", "QuotaReserved"), "{:?}", cluster.workload_of("a"));
}

#[test]
fn provisioning_check_retry_unlike_others_moves_job_to_next_tier() {
    use berth_control::event::{Change, Observation};
    for (controller, expected) in
        [("kueue.x-k8s.io/provisioning-request", "on-demand"), ("example.com/budget", "reserved")]
    {
        let mut cluster = crate::stories::tiers::tiered_cluster("4");
        let check = json!({"metadata": {"name": "budget"}, "spec": {"controllerName": controller},
            "status": {"conditions": [{"type": "Active", "status": "True", "reason": "Active", "message": "",
                "lastTransitionTime": "2026-11-21T12:00:00Z"}]}});
        let check = Observation::AdmissionCheck(Change::Apply(serde_json::from_value(check).unwrap()));
        cluster.control.observe(check, cluster.now());
        let checks = json!({"admissionChecks": [{"name": "budget"}]});
        cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"admissionChecksStrategy": checks}}));
        cluster.put(Kind::JOB, crate::stories::tiers::accepting("a", "reserved,on-demand"));
        cluster.pass(5);
        assert_eq!(crate::stories::tiers::flavor_of(&cluster, "a"), json!("reserved"));
        let workload = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
        answer(&mut cluster, &workload, "Retry");
        cluster.pass(60);
        assert_eq!(crate::stories::tiers::flavor_of(&cluster, "a"), json!(expected), "{controller}");
    }
}

#[test]
fn deleted_admission_check_stays_until_no_cluster_queue_names_it() {
    let (mut cluster, _) = checked();
    let key = Cluster::key(Kind::AdmissionCheck, "", "budget");
    let finalizers = |cluster: &Cluster| cluster.objects()[&key]["metadata"]["finalizers"].clone();
    assert_eq!(finalizers(&cluster), json!(["kueue.x-k8s.io/resource-in-use"]));
    cluster.delete(&key);
    cluster.pass(30);
    assert!(cluster.objects().contains_key(&key), "a queue names it");
    assert!(cluster.is("a", "QuotaReserved"), "and may rely on it");
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"admissionChecksStrategy": null}}));
    cluster.settle();
    assert!(!cluster.objects().contains_key(&key), "{:?}", cluster.writes.last());
    assert!(cluster.is("a", "Admitted"), "nothing is left to wait for: {:?}", cluster.workload_of("a"));
}

#[test]
fn deleted_admission_check_goes_with_last_cluster_queue_naming_it() {
    let (mut cluster, _) = checked();
    let key = Cluster::key(Kind::AdmissionCheck, "", "budget");
    cluster.delete(&key);
    cluster.delete(&Cluster::key(Kind::JOB, "team", "a"));
    cluster.delete(&Cluster::key(Kind::ClusterQueue, "", "cq"));
    cluster.pass(30);
    assert!(!cluster.objects().contains_key(&key), "{:?}", cluster.writes.last());
}

/// A ClusterQueue that is full, and a job `b` that waits for quota and whose admission check answers before quota is free; the second value is the name of the
/// Workload of `b`.
fn answered_early(state: &str) -> (Cluster, String) {
    let (mut cluster, _) = checked();
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    cluster.pass(5);
    let name = cluster.workload_of("b").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    answer(&mut cluster, &name, state);
    cluster.pass(5);
    (cluster, name)
}

#[test]
fn pending_workload_with_rejected_check_is_deactivated_until_reactivated() {
    let (mut cluster, name) = answered_early("Rejected");
    assert_eq!(cluster.workload_of("b").unwrap()["spec"]["active"], json!(false));
    let evicted = cluster.condition("b", "Evicted").unwrap();
    let words = "The workload is deactivated due to AdmissionCheck in Rejected state: \"budget\" (said so)";
    assert_eq!((&evicted["reason"], &evicted["message"]), (&json!("DeactivatedDueToAdmissionCheck"), &json!(words)));
    // The user of the job `b` may activate the Workload again.
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": true}}));
    cluster.pass(5);
    let check = cluster.workload_of("b").unwrap()["status"]["admissionChecks"][0].clone();
    assert_eq!(check["state"], json!("Pending"), "{check}");
    assert_eq!(cluster.workload_of("b").unwrap()["spec"]["active"], json!(true));
}

#[test]
fn pending_workload_with_check_in_retry_waits_for_requeue_delay() {
    let (mut cluster, _) = answered_early("Retry");
    let workload = cluster.workload_of("b").unwrap();
    let check = &workload["status"]["admissionChecks"][0];
    assert_eq!((&check["state"], &check["retryCount"]), (&json!("Pending"), &json!(1)), "{check}");
    assert!(workload["status"]["requeueState"]["requeueAt"].is_string(), "{}", workload["status"]);
    let found_condition = cluster.condition("b", "Requeued").unwrap();
    assert_eq!(
        found_condition["message"],
        json!("AdmissionCheck in Retry state: \"budget\" (said so)"),
        "the check is named"
    );
    // Quota is free before the wait that the admission check has requested is over.
    cluster.delete(&Cluster::key(Kind::JOB, "team", "a"));
    cluster.pass(10);
    assert!(!cluster.is("b", "QuotaReserved"), "{:?}", cluster.writes);
    cluster.pass(30);
    assert!(cluster.is("b", "QuotaReserved"), "{:?}", cluster.writes);
}
