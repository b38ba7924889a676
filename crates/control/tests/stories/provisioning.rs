//! Capacity that Berth requests from an autoscaler before a job starts: the test simulates the autoscaler.

use berth_control::event::{Change, Observation};
use berth_control::write::{Kind, ObjectKey, Purpose, WriteOutcome};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, flavor, job, local_queue};
use crate::stories::faults::with_every_fault;
use crate::stories::training_figures::found;

pub const CHECK: &str = "asks";

fn configure(cluster: &mut Cluster, spec: Value) {
    let config = json!({"metadata": {"name": "prc", "uid": "prc"}, "spec": spec});
    let config = Observation::ProvisioningRequestConfig(Change::Apply(serde_json::from_value(config).unwrap()));
    cluster.control.observe(config, cluster.now());
}

fn spec(more: &Value) -> Value {
    let mut spec = json!({"provisioningClassName": "queued", "parameters": {"zone": "a"},
        "retryStrategy": {"backoffLimitCount": 2, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800}});
    crate::stories::cluster::merge(&mut spec, more);
    spec
}

/// Adds an admission check for provisioning to a cluster that serves ProvisioningRequests.
fn ask_autoscaler(cluster: &mut Cluster) {
    cluster.control.observe(Observation::ServesProvisioningRequests(true), cluster.now());
    let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "prc"});
    let check = json!({"metadata": {"name": CHECK},
        "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}});
    cluster.put(Kind::AdmissionCheck, check);
}

fn job_with_parameter() -> Value {
    let mut job = job("a", "lq", "1", true);
    job["metadata"]["annotations"] = json!({"provreq.kueue.x-k8s.io/ttl": "10m"});
    job
}

/// A ClusterQueue with an admission check for provisioning, and a job in the queue.
fn asked(more: &Value) -> Cluster {
    asked_with(more, |_| {})
}

/// A ClusterQueue with an admission check for provisioning, and a job in the queue that is created after a change of the cluster.
pub fn asked_with(more: &Value, change: impl FnOnce(&mut Cluster)) -> Cluster {
    let mut cluster = Cluster::new();
    set_up(&mut cluster, more);
    change(&mut cluster);
    cluster.put(Kind::JOB, job_with_parameter());
    cluster.pass(5);
    cluster
}

fn set_up(cluster: &mut Cluster, more: &Value) {
    ask_autoscaler(cluster);
    configure(cluster, spec(more));
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({"tier": "spot"})));
    let mut queue = cluster_queue("cq", None, &[("default", "1")]);
    queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": CHECK}]});
    cluster.put(Kind::ClusterQueue, queue);
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
}

fn all(cluster: &Cluster, kind: Kind) -> Vec<&Value> {
    cluster.objects().iter().filter(|(key, _)| key.kind == kind).map(|(_, object)| object).collect()
}

/// The only ProvisioningRequest of the cluster, whose name must end in the number of the attempt.
fn request(cluster: &Cluster, attempt: u32) -> Value {
    let workload = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    let found = all(cluster, Kind::ProvisioningRequest);
    let names: Vec<&Value> = found.iter().map(|request| &request["metadata"]["name"]).collect();
    assert_eq!(names, [&json!(format!("{workload}-{CHECK}-{attempt}"))], "{:?}", cluster.writes);
    found[0].clone()
}

/// The autoscaler answers a ProvisioningRequest with conditions and their messages.
fn say(cluster: &mut Cluster, request: &Value, conditions: &[(&str, &str, &str)]) {
    let time = cluster.now().to_string();
    let condition = |&(kind, status, message): &(&str, &str, &str)| {
        let mut condition = json!({"type": kind, "status": status, "reason": kind, "message": message});
        condition["lastTransitionTime"] = json!(time);
        condition
    };
    let conditions: Vec<Value> = conditions.iter().map(condition).collect();
    let status = json!({"conditions": conditions, "provisioningClassDetails": {"pool": "p-7"}});
    let name = request["metadata"]["name"].as_str().unwrap();
    cluster.edit(Kind::ProvisioningRequest, "team", name, &json!({"status": status}));
}

fn state(cluster: &Cluster) -> Value {
    cluster.workload_of("a").unwrap()["status"]["admissionChecks"][0].clone()
}

fn messages_of(cluster: &Cluster, reason: &str) -> Vec<String> {
    let about = cluster.notices.iter().filter(|notice| notice.reason == reason);
    about.map(|notice| notice.message.clone()).collect()
}

#[test]
fn job_starts_on_capacity_once_provisioning_request_is_provisioned() {
    let selector = json!([{"key": "pool", "valueFromProvisioningClassDetail": "pool"}]);
    let mut cluster = asked(&json!({"podSetUpdates": {"nodeSelector": selector}}));
    let check = &cluster.objects()[&Cluster::key(Kind::AdmissionCheck, "", CHECK)]["status"]["conditions"][0];
    assert_eq!((&check["status"], &check["reason"]), (&json!("True"), &json!("Active")));
    assert!(cluster.is("a", "QuotaReserved") && !cluster.is("a", "Admitted"));
    let asks = request(&cluster, 1);
    let (uid, name) = (asks["metadata"]["uid"].clone(), asks["metadata"]["name"].as_str().unwrap().to_owned());
    let workload = cluster.workload_of("a").unwrap()["metadata"].clone();
    assert_eq!(asks["metadata"]["ownerReferences"][0]["uid"], workload["uid"]);
    assert_eq!(asks["metadata"]["labels"], json!({"kueue.x-k8s.io/managed": "true"}));
    let template = format!("ppt-{name}-main");
    assert_eq!(
        asks["spec"],
        json!({"provisioningClassName": "queued", "parameters": {"zone": "a", "ttl": "10m"},
        "podSets": [{"podTemplateRef": {"name": template}, "count": 1}]})
    );
    assert_eq!(messages_of(&cluster, "ProvisioningRequestCreated"), [format!("Created ProvisioningRequest: {name:?}")]);
    let templates = all(&cluster, Kind::PodTemplate);
    assert_eq!((templates.len(), &templates[0]["metadata"]["name"]), (1, &json!(template)));
    assert_eq!(templates[0]["metadata"]["ownerReferences"][0]["uid"], uid, "it goes with the request");
    assert_eq!(templates[0]["template"]["spec"]["nodeSelector"], json!({"tier": "spot"}));
    assert_eq!(templates[0]["template"]["spec"]["containers"][0]["image"], json!("i"), "whole");

    say(&mut cluster, &asks, &[("Accepted", "True", ""), ("Provisioned", "False", "in five minutes")]);
    cluster.pass(5);
    assert_eq!(
        (&state(&cluster)["state"], &state(&cluster)["message"]),
        (&json!("Pending"), &json!("in five minutes"))
    );
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(true));
    say(&mut cluster, &asks, &[("Accepted", "True", ""), ("Provisioned", "True", "there")]);
    cluster.pass(5);
    assert!(cluster.is("a", "Admitted"));
    let updated = messages_of(&cluster, "AdmissionCheckUpdated");
    assert_eq!(updated, ["Admission check asks updated state from Pending to Ready with message: there"]);
    let job = cluster.job("a")["spec"].clone();
    assert_eq!(job["suspend"], json!(false));
    let annotations = &job["template"]["metadata"]["annotations"];
    assert_eq!(annotations["autoscaling.x-k8s.io/consume-provisioning-request"], json!(name));
    assert_eq!(annotations["autoscaling.x-k8s.io/provisioning-class-name"], json!("queued"));
    assert_eq!(job["template"]["spec"]["nodeSelector"], json!({"tier": "spot", "pool": "p-7"}));

    // The condition `BookingExpired` of a ProvisioningRequest has no effect on a running job.
    say(&mut cluster, &asks, &[("Provisioned", "True", "there"), ("BookingExpired", "True", "over")]);
    let before = cluster.writes.len();
    cluster.pass(60);
    assert_eq!(cluster.writes.len(), before, "{:?}", &cluster.writes[before..]);
    request(&cluster, 1);
    cluster.complete("a");
    cluster.pass(10);
    assert!(cluster.is("a", "Finished"));
    assert!(all(&cluster, Kind::ProvisioningRequest).is_empty() && all(&cluster, Kind::PodTemplate).is_empty());
}

#[test]
fn failed_provisioning_request_is_retried_with_delay_until_limit() {
    let mut cluster = asked(&json!({}));
    for (attempt, delay) in [(1, 60), (2, 120)] {
        let asks = request(&cluster, attempt);
        let (kind, after) = if attempt == 1 { ("Failed", "failure") } else { ("BookingExpired", "booking expired") };
        say(&mut cluster, &asks, &[("Accepted", "True", ""), (kind, "True", "no machines")]);
        cluster.pass(delay - 5);
        assert_eq!(cluster.condition("a", "Evicted").unwrap()["reason"], json!("AdmissionCheck"));
        assert!(!cluster.is("a", "QuotaReserved"), "its quota is others' meanwhile");
        assert!(all(&cluster, Kind::ProvisioningRequest).is_empty() && all(&cluster, Kind::PodTemplate).is_empty());
        let last = messages_of(&cluster, "AdmissionCheckUpdated").pop().unwrap();
        let message = format!("Retrying after {after}: no machines");
        assert_eq!(last, format!("Admission check asks updated state from Pending to Retry with message: {message}"));
        assert_eq!(state(&cluster)["retryCount"], json!(attempt));
        cluster.pass(15);
        assert!(cluster.is("a", "QuotaReserved"), "attempt {attempt} was {delay} s ago");
    }
    let asks = request(&cluster, 3);
    say(&mut cluster, &asks, &[("Failed", "True", "no machines")]);
    cluster.pass(10);
    let workload = cluster.workload_of("a").unwrap();
    assert_eq!(workload["spec"]["active"], json!(false));
    assert_eq!(cluster.condition("a", "Evicted").unwrap()["reason"], json!("DeactivatedDueToAdmissionCheck"));
    assert!(!cluster.is("a", "QuotaReserved"));
    assert!(all(&cluster, Kind::ProvisioningRequest).is_empty());
}

#[test]
fn revoked_capacity_stops_job_and_deactivates_its_workload() {
    let mut cluster = asked(&json!({}));
    let asks = request(&cluster, 1);
    say(&mut cluster, &asks, &[("Provisioned", "True", "there")]);
    cluster.pass(5);
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(false));
    say(&mut cluster, &asks, &[("Provisioned", "True", "there"), ("CapacityRevoked", "True", "maintenance")]);
    cluster.pass(10);
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(true));
    assert_eq!(cluster.workload_of("a").unwrap()["spec"]["active"], json!(false));
    let annotations = &cluster.job("a")["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations.get("autoscaling.x-k8s.io/consume-provisioning-request"), None, "the user's own template");
    assert!(all(&cluster, Kind::ProvisioningRequest).is_empty());
}

#[test]
fn job_without_managed_resources_needs_no_provisioning_request() {
    let mut cluster = asked(&json!({"managedResources": ["nvidia.com/gpu"]}));
    assert!(cluster.is("a", "Admitted") && all(&cluster, Kind::ProvisioningRequest).is_empty());
    assert_eq!(state(&cluster)["message"], json!("the provisioning request is not needed"));
    cluster.complete("a");
    cluster.pass(5);
    assert!(cluster.is("a", "Finished"));
}

#[test]
fn provisioning_check_is_active_only_while_its_config_exists() {
    let mut cluster = Cluster::new();
    set_up(&mut cluster, &json!({}));
    let gone = json!({"metadata": {"name": "prc", "uid": "prc"}, "spec": {"provisioningClassName": "queued"}});
    let gone = Observation::ProvisioningRequestConfig(Change::Delete(serde_json::from_value(gone).unwrap()));
    let condition = |cluster: &Cluster| {
        cluster.objects()[&Cluster::key(Kind::AdmissionCheck, "", CHECK)]["status"]["conditions"][0].clone()
    };
    cluster.put(Kind::JOB, job_with_parameter());
    cluster.pass(2);
    let first = request(&cluster, 1);
    cluster.control.observe(gone, cluster.now());
    cluster.pass(2);
    assert_eq!(condition(&cluster)["reason"], json!("BadParametersRef"));
    assert_eq!(condition(&cluster)["message"], json!("ProvisioningRequestConfig \"prc\" does not exist"));
    assert_eq!(state(&cluster)["message"], json!("the check is not active"));
    // The earlier ProvisioningRequest has another provisioning class than the changed configuration asks for.
    configure(&mut cluster, spec(&json!({"provisioningClassName": "other"})));
    cluster.pass(5);
    assert_eq!((&condition(&cluster)["status"], &condition(&cluster)["reason"]), (&json!("True"), &json!("Active")));
    let second = request(&cluster, 1);
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    assert_eq!(second["spec"]["provisioningClassName"], json!("other"));
    assert_eq!(all(&cluster, Kind::PodTemplate).len(), 1);
    assert_eq!(
        (&state(&cluster)["state"], &state(&cluster)["message"]),
        (&json!("Pending"), &json!("")),
        "it is active"
    );
    cluster.control.observe(Observation::ServesProvisioningRequests(false), cluster.now());
    cluster.pass(2);
    assert_eq!(condition(&cluster)["reason"], json!("NotServed"));
}

#[test]
fn provisioning_request_is_remade_for_a_new_reservation() {
    let mut cluster = asked(&json!({}));
    let first = request(&cluster, 1);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "Hold"}}));
    cluster.pass(5);
    assert!(!cluster.is("a", "QuotaReserved") && all(&cluster, Kind::ProvisioningRequest).is_empty());
    cluster.put(Kind::ResourceFlavor, flavor("other", json!({"tier": "on-demand"})));
    let groups = cluster_queue("cq", None, &[("other", "1")])["spec"]["resourceGroups"].clone();
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "None", "resourceGroups": groups}}));
    cluster.pass(5);
    let second = request(&cluster, 1);
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    let templates = all(&cluster, Kind::PodTemplate);
    assert_eq!(templates.len(), 1);
    assert_eq!(templates[0]["template"]["spec"]["nodeSelector"], json!({"tier": "on-demand"}));
}

#[test]
fn provisioning_request_outlives_its_reservation_with_cleanup_gate_off() {
    let mut settings = crate::stories::cluster::settings();
    settings.cleanup_provisioning_requests = false;
    let mut cluster = Cluster::with(settings);
    set_up(&mut cluster, &json!({}));
    cluster.put(Kind::JOB, job_with_parameter());
    cluster.pass(5);
    let first = request(&cluster, 1);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "Hold"}}));
    cluster.pass(30);
    assert!(!cluster.is("a", "QuotaReserved"));
    assert_eq!(request(&cluster, 1)["metadata"]["uid"], first["metadata"]["uid"]);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "None"}}));
    cluster.pass(5);
    assert_ne!(request(&cluster, 1)["metadata"]["uid"], first["metadata"]["uid"], "it was for another reservation");
}

#[test]
fn pod_template_of_earlier_reservation_is_made_again() {
    let mut cluster = Cluster::new();
    set_up(&mut cluster, &json!({}));
    // Berth makes the PodTemplate, and cannot make the ProvisioningRequest before the Workload loses its quota reservation.
    let refused = (Purpose::RequestCapacity, WriteOutcome::Busy(600_000), false);
    cluster.faults.push(refused);
    cluster.put(Kind::JOB, job_with_parameter());
    cluster.pass(5);
    assert!(all(&cluster, Kind::ProvisioningRequest).is_empty());
    let first = all(&cluster, Kind::PodTemplate)[0]["metadata"]["uid"].clone();
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "Hold"}}));
    cluster.pass(5);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "None"}}));
    cluster.pass(120);
    request(&cluster, 1);
    let templates = all(&cluster, Kind::PodTemplate);
    assert!(templates.len() == 1 && templates[0]["metadata"]["uid"] != first, "{templates:?}");
}

#[test]
fn capacity_is_requested_once_despite_failed_or_lost_writes() {
    let purposes = [
        Purpose::ReserveQuota,
        Purpose::SyncAdmissionChecks,
        Purpose::ActivateCheck,
        Purpose::PreparePodTemplate,
        Purpose::RequestCapacity,
        Purpose::AnswerCheck,
        Purpose::Evict,
        Purpose::ReleaseQuota,
        Purpose::WithdrawRequest,
        Purpose::SetAdmitted,
        Purpose::StartJob,
    ];
    with_every_fault(Cluster::new, &purposes, |mut cluster, what| {
        set_up(&mut cluster, &json!({}));
        cluster.put(Kind::JOB, job_with_parameter());
        cluster.pass(70);
        let first = request(&cluster, 1);
        say(&mut cluster, &first, &[("Failed", "True", "no machines")]);
        cluster.pass(180);
        let second = request(&cluster, 2);
        say(&mut cluster, &second, &[("Provisioned", "True", "there")]);
        cluster.pass(120);
        assert_eq!(cluster.job("a")["spec"]["suspend"], json!(false), "{what}: {:?}", cluster.writes);
        assert_eq!(request(&cluster, 2)["metadata"]["uid"], second["metadata"]["uid"], "{what}");
        cluster.complete("a");
        cluster.pass(120);
        assert!(cluster.is("a", "Finished"), "{what}");
        assert!(cluster.faults.is_empty(), "{what}: never written");
        let left: Vec<&ObjectKey> = cluster
            .objects()
            .keys()
            .filter(|key| [Kind::ProvisioningRequest, Kind::PodTemplate].contains(&key.kind))
            .collect();
        assert!(left.is_empty(), "{what}: {left:?}");
        let before = cluster.writes.len();
        cluster.pass(300);
        assert_eq!(cluster.writes.len(), before, "{what}: quiet at rest, {:?}", &cluster.writes[before..]);
    });
}

#[test]
fn new_leader_takes_over_existing_provisioning_request() {
    let mut cluster = asked(&json!({}));
    let asks = request(&cluster, 1);
    let before = cluster.writes.len();
    cluster.control.lead(None);
    cluster.restart();
    cluster.control.observe(Observation::ServesProvisioningRequests(true), cluster.now());
    configure(&mut cluster, spec(&json!({})));
    cluster.pass(30);
    assert_eq!(cluster.writes.len(), before, "{:?}", &cluster.writes[before..]);
    say(&mut cluster, &asks, &[("Provisioned", "True", "there")]);
    cluster.pass(5);
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(false));
}

#[test]
fn failed_provisioning_request_moves_tiered_job_to_next_tier() {
    let mut cluster = crate::stories::tiers::tiered_cluster("4");
    ask_autoscaler(&mut cluster);
    configure(&mut cluster, spec(&json!({"retryStrategy": {"backoffBaseSeconds": 1800}})));
    let checks = json!({"admissionChecks": [{"name": CHECK}]});
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"admissionChecksStrategy": checks}}));
    cluster.put(Kind::JOB, crate::stories::tiers::accepting("a", "reserved,on-demand"));
    cluster.pass(5);
    assert_eq!(crate::stories::tiers::flavor_of(&cluster, "a"), json!("reserved"));
    let first = request(&cluster, 1);
    say(&mut cluster, &first, &[("Failed", "True", "no machines")]);
    cluster.pass(30);
    assert_eq!(crate::stories::tiers::flavor_of(&cluster, "a"), json!("on-demand"));
    let second = request(&cluster, 2);
    let template = all(&cluster, Kind::PodTemplate)[0];
    assert_eq!(template["template"]["spec"]["nodeSelector"]["tier"], json!("on-demand"));
    say(&mut cluster, &second, &[("Provisioned", "True", "there")]);
    cluster.pass(5);
    assert!(cluster.is("a", "Admitted"));
}

/// A job with two tiers, for each of which Berth requests capacity from an autoscaler.
fn asked_on_tiers(tiers: Value) -> Cluster {
    let mut cluster = crate::stories::tiers::tiered_cluster("4");
    cluster.put(Kind::QueuePolicy, crate::stories::policies::with_tiers(tiers));
    ask_autoscaler(&mut cluster);
    configure(&mut cluster, spec(&json!({})));
    let checks = json!({"admissionChecks": [{"name": CHECK}]});
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"admissionChecksStrategy": checks}}));
    cluster.put(Kind::JOB, job_with_parameter());
    cluster.pass(5);
    cluster
}

fn fail(cluster: &mut Cluster, attempt: u32) {
    let asks = request(cluster, attempt);
    say(cluster, &asks, &[("Failed", "True", "no machines")]);
}

#[test]
fn tiered_job_is_not_deactivated_by_failed_provisioning_requests() {
    let mut cluster = asked_on_tiers(json!({"backoff": {"initial": "1m", "max": "1m"}}));
    let _ = cluster.control.drain_measures();
    for attempt in 1..=6 {
        fail(&mut cluster, attempt);
        cluster.pass(70);
        assert_eq!(cluster.workload_of("a").unwrap()["spec"]["active"], json!(true), "attempt {attempt}");
    }
    let last = request(&cluster, 7);
    let all = cluster.control.drain_measures();
    let row = |tier: &str, more: &str, value: i64| (format!("cluster_queue=cq tier={tier}{more}"), value);
    let left = |tier: &str| row(tier, " reason=AdmissionCheck", 1);
    let departures = found(&all, "berth_tier_departures");
    assert_eq!(departures.len(), 6, "each is the end of a try: {departures:?}");
    assert!(departures.contains(&left("reserved")) && departures.contains(&left("on-demand")), "{departures:?}");
    let lacked = found(&all, "berth_tier_stock_out_seconds");
    assert_eq!(lacked.len(), 6, "{lacked:?}");
    assert!(lacked.contains(&row("reserved", "", 5)), "since the quota was reserved: {lacked:?}");
    say(&mut cluster, &last, &[("Provisioned", "True", "there")]);
    cluster.pass(5);
    assert!(cluster.is("a", "Admitted"));
}

#[test]
fn provisioning_failures_follow_check_retries_unless_counted_as_stock_out() {
    let mut cluster = asked_on_tiers(json!({"stockOutOn": ["Unschedulable"]}));
    for (attempt, delay) in [(1, 60), (2, 120)] {
        fail(&mut cluster, attempt);
        cluster.pass(delay - 5);
        assert!(!cluster.is("a", "QuotaReserved"), "attempt {attempt}");
        cluster.pass(15);
        assert_eq!(crate::stories::tiers::flavor_of(&cluster, "a"), json!("reserved"), "attempt {attempt}");
    }
    fail(&mut cluster, 3);
    cluster.pass(10);
    assert_eq!(cluster.workload_of("a").unwrap()["spec"]["active"], json!(false));
    assert!(found(&cluster.control.drain_measures(), "berth_tier_departures").is_empty());
}

/// As in Kueue, the attempts at ProvisioningRequests are counted from one again after the admission check was ready or gave up.
#[test]
fn provisioning_attempts_restart_at_one_after_success_or_giving_up() {
    let mut cluster = asked(&json!({}));
    let fails = |cluster: &mut Cluster, attempt: u32| {
        fail(cluster, attempt);
        cluster.pass(190);
        cluster.workload_of("a").unwrap().clone()
    };
    fails(&mut cluster, 1);
    let second = request(&cluster, 2);
    assert_eq!(state(&cluster)["message"], json!(""), "that it was reset is over with the next attempt");
    say(&mut cluster, &second, &[("Provisioned", "True", "there")]);
    cluster.pass(5);
    assert!(cluster.is("a", "Admitted"));
    for policy in ["HoldAndDrain", "None"] {
        cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": policy}}));
        cluster.pass(30);
    }
    for attempt in 1..=2 {
        assert_eq!(fails(&mut cluster, attempt)["spec"]["active"], json!(true), "attempt {attempt}");
    }
    let ended = fails(&mut cluster, 3);
    assert_eq!(ended["spec"]["active"], json!(false));
    let name = ended["metadata"]["name"].as_str().unwrap();
    cluster.edit(Kind::Workload, "team", name, &json!({"spec": {"active": true}}));
    cluster.pass(10);
    assert_eq!(fails(&mut cluster, 1)["spec"]["active"], json!(true), "its first attempt was not the last one");
    request(&cluster, 2);
}

/// The observed state cannot show whether the ProvisioningRequest exists: the admission check neither fails nor makes another request, and stays active.
#[test]
fn unlisted_provisioning_request_is_neither_answered_nor_made_again() {
    let mut cluster = asked(&json!({}));
    let asks = request(&cluster, 1);
    cluster.claim_without(Kind::ProvisioningRequest);
    let before = cluster.writes.len();
    say(&mut cluster, &asks, &[("Accepted", "True", ""), ("Provisioned", "True", "")]);
    cluster.pass(60);
    assert_eq!(&cluster.writes[before..], &[]);
    assert!(!cluster.is("a", "Admitted"));
    cluster.list_again();
    cluster.pass(10);
    assert!(cluster.is("a", "Admitted"), "{:?}", &cluster.writes[before..]);
}
