//! Queues, and the conditions that report errors of queues.

use berth_control::write::Kind;
use berth_engine::model::WorkloadState;
use serde_json::json;

use crate::stories::cluster::{Cluster, cluster_queue, flavor, job, local_queue, settings};
use crate::stories::provisioning::{CHECK, asked_with};
use crate::stories::{one_queue, with_queue};

#[test]
fn job_evicted_by_hold_and_drain_returns_when_queue_restarts() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    cluster.settle();
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(true));
    assert_eq!(cluster.condition("a", "Evicted").unwrap()["reason"], json!("ClusterQueueStopped"));
    assert_eq!(cluster.condition("a", "Requeued").unwrap()["status"], json!("False"));
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "None"}}));
    cluster.settle();
    assert!(cluster.is("a", "Admitted"), "{}", cluster.workload_of("a").unwrap());
    assert_eq!(cluster.condition("a", "Evicted").unwrap()["status"], json!("False"));
}

#[test]
fn job_is_admitted_once_its_late_queue_and_flavor_exist() {
    let mut cluster = Cluster::new();
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    assert!(cluster.workload_of("a").is_some());
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("default", "1")]));
    cluster.pass(3);
    assert!(!cluster.is("a", "QuotaReserved"));
    let status = &cluster.objects()[&Cluster::key(Kind::ClusterQueue, "", "cq")]["status"]["conditions"][0];
    assert_eq!((&status["reason"], &status["status"]), (&json!("FlavorNotFound"), &json!("False")), "{status}");
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({})));
    cluster.settle();
    assert!(cluster.is("a", "Admitted"));
}

#[test]
fn jobs_fill_first_flavor_then_next_and_last_job_waits() {
    let mut cluster = Cluster::new();
    for tier in ["reserved", "spot"] {
        cluster.put(Kind::ResourceFlavor, flavor(tier, json!({"tier": tier})));
    }
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("reserved", "1"), ("spot", "1")]));
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    for name in ["a", "b", "c"] {
        cluster.put(Kind::JOB, job(name, "lq", "1", true));
    }
    cluster.settle();
    let mut tiers: Vec<String> = ["a", "b", "c"]
        .iter()
        .map(|name| cluster.job(name)["spec"]["template"]["spec"]["nodeSelector"]["tier"].to_string())
        .collect();
    tiers.sort();
    assert_eq!(tiers, ["\"reserved\"", "\"spot\"", "null"]);
}

#[test]
fn stored_invalid_workload_is_reported_misconfigured_and_not_admitted() {
    let cases = [
        (json!({"count": -3}), "spec.podSets[0].count: Invalid value: \"-3\""),
        (json!({"template": {"spec": {"containers": []}}}), "spec.podSets[0].template.spec.containers"),
        (
            json!({"template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "-1"}}}]}}}),
            "spec.podSets[0].template.spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\"",
        ),
    ];
    for (change, expected) in cases {
        let mut cluster = one_queue("5");
        let mut set = json!({"name": "main", "count": 1, "template": {"spec": {"containers": [
            {"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}});
        for (field, value) in change.as_object().unwrap() {
            set[field] = value.clone();
        }
        let spec = json!({"queueName": "lq", "active": true, "podSets": [set]});
        cluster.put(Kind::Workload, json!({"metadata": {"namespace": "team", "name": "bad"}, "spec": spec}));
        cluster.put(Kind::JOB, job("good", "lq", "1", true));
        cluster.pass(10);
        assert!(cluster.is("good", "Admitted"), "the other one goes on");
        let bad = &cluster.objects()[&Cluster::key(Kind::Workload, "team", "bad")]["status"]["conditions"];
        let reported = bad.as_array().unwrap().iter().find(|c| c["type"] == "QuotaReserved").unwrap();
        assert_eq!(
            (&reported["status"], &reported["reason"]),
            (&json!("False"), &json!("Misconfigured")),
            "{reported}"
        );
        assert!(reported["message"].as_str().unwrap().starts_with(expected), "{reported}");
    }
}

#[test]
fn queue_with_unknown_field_value_is_inactive_and_admits_nothing() {
    for (kind, name, spec) in [
        (Kind::ClusterQueue, "cq", json!({"stopPolicy": "Perhaps"})),
        (Kind::ClusterQueue, "cq", json!({"queueingStrategy": "LIFO"})),
        (Kind::LocalQueue, "lq", json!({"stopPolicy": "Perhaps"})),
    ] {
        let mut cluster = one_queue("5");
        let namespace = if kind == Kind::LocalQueue { "team" } else { "" };
        cluster.edit(kind, namespace, name, &json!({"spec": spec}));
        cluster.put(Kind::JOB, job("a", "lq", "1", true));
        cluster.pass(10);
        assert!(!cluster.is("a", "QuotaReserved"), "{spec}");
        let queue = &cluster.objects()[&Cluster::key(kind, namespace, name)]["status"]["conditions"][0];
        assert_eq!(queue["status"], json!("False"), "{spec}: {queue}");
        if kind == Kind::ClusterQueue {
            let message = queue["message"].as_str().unwrap();
            assert!(message.contains("spec.") && message.contains("supported values"), "{spec}: {queue}");
        }
    }
}

#[test]
fn stored_invalid_flavor_and_cluster_queue_stop_no_other_job() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::ResourceFlavor, {
        let mut bad = flavor("bad", json!({}));
        bad["spec"]["nodeTaints"] = json!([{"key": "not a key!", "effect": "NoSchedule"}]);
        bad
    });
    let mut twice = cluster_queue("twice", None, &[("default", "1")]);
    twice["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!("-3");
    cluster.put(Kind::ClusterQueue, twice);
    cluster.put(Kind::LocalQueue, local_queue("lost", "twice"));
    cluster.put(Kind::JOB, job("stuck", "lost", "1", true));
    cluster.put(Kind::JOB, job("fine", "lq", "1", true));
    cluster.pass(10);
    assert!(cluster.is("fine", "Admitted") && !cluster.is("stuck", "QuotaReserved"));
    let status = &cluster.objects()[&Cluster::key(Kind::ClusterQueue, "", "twice")]["status"];
    let active = &status["conditions"][0];
    assert_eq!(active["status"], json!("False"));
    let message = active["message"].as_str().unwrap();
    assert!(message.contains("nominalQuota") && message.contains("-3"), "{message}");
    assert!(cluster.notices.iter().any(|notice| notice.key.name == "bad" && notice.message.contains("nodeTaints")));
}

#[test]
fn invalid_cluster_queue_stays_inactive_when_its_check_changes() {
    use berth_control::event::{Change, Observation};
    let check = |status: &str| {
        let check = json!({"metadata": {"name": "budget"}, "spec": {"controllerName": "example.com/budget"},
            "status": {"conditions": [{"type": "Active", "status": status, "reason": "Active", "message": "",
                "lastTransitionTime": "2026-11-21T12:00:00Z"}]}});
        Observation::AdmissionCheck(Change::Apply(serde_json::from_value(check).unwrap()))
    };
    let mut cluster = Cluster::new();
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({})));
    let mut queue = cluster_queue("cq", None, &[("default", "-1")]);
    queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "budget"}]});
    cluster.put(Kind::ClusterQueue, queue);
    for status in ["False", "True"] {
        cluster.control.observe(check(status), cluster.now());
        cluster.pass(10);
        let status = &cluster.objects()[&Cluster::key(Kind::ClusterQueue, "", "cq")]["status"]["conditions"][0];
        assert_eq!(status["status"], json!("False"));
        assert!(status["message"].as_str().unwrap().contains("nominalQuota"), "{status}");
    }
}

#[test]
fn parked_workload_is_reconsidered_when_evicted_or_requeued_condition_changes() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "2", true));
    cluster.pass(5);
    let name = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    let revision = |cluster: &Cluster| cluster.control.workload_spec("team", &name).unwrap().revision;
    let say = |cluster: &mut Cluster, kind: &str, status: &str, message: &str| {
        let mut conditions = cluster.workload_of("a").unwrap()["status"]["conditions"].as_array().unwrap().clone();
        conditions.retain(|condition| condition["type"] != kind);
        conditions.push(json!({"type": kind, "status": status, "reason": "Preempted", "message": message,
            "lastTransitionTime": "2026-11-21T12:00:00Z"}));
        cluster.edit(Kind::Workload, "team", &name, &json!({"status": {"conditions": conditions}}));
    };
    let mut seen = vec![revision(&cluster)];
    say(&mut cluster, "QuotaReserved", "False", "something else");
    assert_eq!(revision(&cluster), seen[0], "why it waits is told after each look");
    for (kind, status, message) in
        [("Evicted", "True", "by one"), ("Evicted", "True", "by two"), ("Requeued", "True", "at last")]
    {
        say(&mut cluster, kind, status, message);
        let now = revision(&cluster);
        assert!(!seen.contains(&now), "{kind} {message}");
        seen.push(now);
    }
}

#[test]
fn reservation_without_count_covers_pods_of_spec_minus_reclaimable() {
    let mut cluster = one_queue("3");
    let mut wide = job("a", "lq", "1", true);
    wide["spec"]["parallelism"] = json!(3);
    wide["spec"]["completions"] = json!(3);
    cluster.put(Kind::JOB, wide);
    cluster.pass(5);
    let workload = cluster.workload_of("a").unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
    let mut given = workload["status"]["admission"]["podSetAssignments"].clone();
    given[0].as_object_mut().unwrap().remove("count");
    let status = json!({"admission": {"podSetAssignments": given}, "reclaimablePods": [{"name": "main", "count": 1}]});
    cluster.edit(Kind::Workload, "team", &name, &json!({"status": status}));
    let spec = cluster.control.workload_spec("team", &name).unwrap();
    let WorkloadState::Reserved(held) = spec.state else { panic!("{spec:?}") };
    assert_eq!((held.pod_sets[0].count, held.pod_sets[0].usage["cpu"].get()), (2, 2000));
}

#[test]
fn reservation_with_unreadable_usage_is_counted_by_pods_with_event() {
    let mut cluster = one_queue("3");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(5);
    let workload = cluster.workload_of("a").unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
    let mut given = workload["status"]["admission"]["podSetAssignments"].clone();
    given[0]["resourceUsage"]["cpu"] = json!("much");
    cluster.edit(Kind::Workload, "team", &name, &json!({"status": {"admission": {"podSetAssignments": given}}}));
    cluster.pass(5);
    let spec = cluster.control.workload_spec("team", &name).unwrap();
    let WorkloadState::Reserved(held) = spec.state else { panic!("{spec:?}") };
    assert_eq!(held.pod_sets[0].usage["cpu"].get(), 1000);
    assert_eq!(cluster.notices.iter().filter(|notice| notice.reason == "UnreadableUsage").count(), 1);
}

#[test]
fn unknown_node_affinity_operator_matches_no_flavor() {
    let mut cluster = one_queue("1");
    let wanted = |operator: &str| {
        let mut wanted = job("a", "lq", "1", true);
        let term = json!({"matchExpressions": [{"key": "tier", "operator": operator, "values": ["reserved"]}]});
        wanted["spec"]["template"]["spec"]["affinity"] =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
        wanted
    };
    cluster.put(Kind::JOB, wanted("Sometimes"));
    cluster.pass(5);
    let reserved = cluster.condition("a", "QuotaReserved").unwrap();
    assert_eq!((&reserved["status"], &reserved["reason"]), (&json!("False"), &json!("NoMatchingFlavor")), "{reserved}");
    cluster.delete(&Cluster::key(Kind::JOB, "team", "a"));
    cluster.pass(5);
    cluster.put(Kind::JOB, wanted("In"));
    cluster.pass(5);
    assert!(cluster.is("a", "Admitted"), "{:?}", cluster.workload_of("a"));
}

#[test]
fn local_queue_active_condition_says_why_it_takes_no_jobs() {
    let mut cluster = one_queue("1");
    let mut active = |kind: Kind, name: &str, patch: serde_json::Value| {
        cluster.edit(kind, if kind == Kind::LocalQueue { "team" } else { "" }, name, &patch);
        cluster.pass(10);
        let object = &cluster.objects()[&Cluster::key(Kind::LocalQueue, "team", "lq")];
        let all = object["status"]["conditions"].as_array().unwrap();
        let one = all.iter().find(|one| one["type"] == "Active").unwrap();
        ["status", "reason", "message"].map(|field| one[field].as_str().unwrap().to_owned())
    };
    let ready = ["True", "Ready", "Can submit new workloads to localQueue"];
    assert_eq!(active(Kind::LocalQueue, "lq", json!({})), ready);
    let stop = |policy: &str| json!({"spec": {"stopPolicy": policy}});
    assert_eq!(active(Kind::LocalQueue, "lq", stop("Hold")), ["False", "Stopped", "LocalQueue is stopped"]);
    assert_eq!(active(Kind::LocalQueue, "lq", stop("None")), ready);
    let no_queue = "Can't submit new workloads to clusterQueue";
    assert_eq!(active(Kind::ClusterQueue, "cq", stop("Hold")), ["False", "ClusterQueueIsInactive", no_queue]);
    assert_eq!(active(Kind::ClusterQueue, "cq", stop("None")), ready);
    let elsewhere = json!({"spec": {"clusterQueue": "nowhere"}});
    assert_eq!(active(Kind::LocalQueue, "lq", elsewhere), ["False", "ClusterQueueDoesNotExist", no_queue]);
}

/// Another client adds a condition to the LocalQueue, and the watch does not show the condition yet.
fn add_unseen_condition(cluster: &mut Cluster) {
    let key = Cluster::key(Kind::LocalQueue, "team", "lq");
    let mut object = cluster.objects()[&key].clone();
    object["metadata"]["resourceVersion"] = json!("5000");
    object["status"]["conditions"].as_array_mut().unwrap().push(json!({"type": "Theirs", "status": "True",
        "reason": "Because", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}));
    cluster.store_unseen(&key, object);
}

fn conditions_of_queue(cluster: &Cluster) -> Vec<(String, String)> {
    let object = &cluster.objects()[&Cluster::key(Kind::LocalQueue, "team", "lq")];
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let all = object["status"]["conditions"].as_array().unwrap().iter();
    all.map(|condition| (text(&condition["type"]), text(&condition["status"]))).collect()
}

#[test]
fn foreign_local_queue_conditions_survive_status_writes() {
    let pair = |kind: &str, status: &str| (kind.to_owned(), status.to_owned());
    let mut cluster = one_queue("1");
    cluster.pass(3);
    // Berth's write of the figures in a queue's status does not change the conditions in the status.
    add_unseen_condition(&mut cluster);
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(3);
    let object = &cluster.objects()[&Cluster::key(Kind::LocalQueue, "team", "lq")];
    assert_eq!(object["status"]["reservingWorkloads"], json!(1), "{object}");
    assert_eq!(conditions_of_queue(&cluster), [pair("Active", "True"), pair("Theirs", "True")]);

    // Berth's write of a queue's condition is based on the observed list of conditions, which another client may have changed in the meantime.
    let mut cluster = one_queue("1");
    cluster.pass(3);
    add_unseen_condition(&mut cluster);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "Hold"}}));
    cluster.pass(3);
    assert_eq!(conditions_of_queue(&cluster), [pair("Active", "True"), pair("Theirs", "True")], "a conflict");
    cluster.edit(Kind::LocalQueue, "team", "lq", &json!({"metadata": {"labels": {"seen": "now"}}}));
    cluster.pass(10);
    assert_eq!(conditions_of_queue(&cluster), [pair("Active", "False"), pair("Theirs", "True")]);
    let writes = cluster.writes.len();
    cluster.pass(120);
    assert_eq!(cluster.writes.len(), writes, "quiet at rest: {:?}", &cluster.writes[writes..]);
}

/// Simulates that a user deletes an object with a finalizer: the object stays, and is marked as deleted.
pub fn mark_deleted(cluster: &mut Cluster, kind: Kind, name: &str) {
    let object = cluster.objects()[&Cluster::key(kind, "", name)].clone();
    assert!(!object["metadata"]["finalizers"].as_array().unwrap().is_empty(), "{object}");
    cluster.edit(kind, "", name, &json!({"metadata": {"deletionTimestamp": "2026-11-21T12:10:00Z"}}));
    cluster.pass(5);
}

pub fn waits(cluster: &Cluster, kind: Kind) -> Vec<String> {
    let events = cluster.notices.iter().filter(|notice| notice.reason == "DeletionWaits" && notice.key.kind == kind);
    events.map(|notice| notice.message.clone()).collect()
}

#[test]
fn deleted_flavor_and_cluster_queue_report_what_keeps_them() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(5);
    mark_deleted(&mut cluster, Kind::ResourceFlavor, "default");
    cluster.pass(60);
    assert_eq!(waits(&cluster, Kind::ResourceFlavor), ["The deletion waits for ClusterQueue cq"]);
    mark_deleted(&mut cluster, Kind::ClusterQueue, "cq");
    let conditions = &cluster.objects()[&Cluster::key(Kind::ClusterQueue, "", "cq")]["status"]["conditions"];
    let message = conditions[0]["message"].as_str().unwrap();
    let words =
        "; 1 workload(s) hold its quota: kubectl get workloads -A --field-selector status.admission.clusterQueue=cq";
    assert!(message.ends_with(words), "{message}");
}

#[test]
fn deleted_admission_check_names_cluster_queues_that_use_it() {
    let (mut cluster, _) = crate::stories::checks::checked();
    mark_deleted(&mut cluster, Kind::AdmissionCheck, "budget");
    cluster.pass(60);
    assert_eq!(waits(&cluster, Kind::AdmissionCheck), ["The deletion waits for ClusterQueue cq"]);
}

#[test]
fn job_without_queue_reports_that_it_names_none() {
    let mut settings = settings();
    settings.manage_jobs_without_queue_name = true;
    let mut cluster = with_queue(Cluster::with(settings), "1");
    let mut free = job("a", "lq", "1", true);
    free["metadata"]["labels"] = json!({});
    cluster.put(Kind::JOB, free);
    let mut lost = local_queue("lost", "cq");
    lost["spec"] = json!({});
    cluster.put(Kind::LocalQueue, lost);
    cluster.put(Kind::JOB, job("b", "lost", "1", true));
    cluster.pass(5);
    for (name, message) in [
        ("a", "no LocalQueue is named: a job names one in the label kueue.x-k8s.io/queue-name"),
        ("b", "LocalQueue lost names no ClusterQueue"),
    ] {
        let found_condition = cluster.condition(name, "QuotaReserved").unwrap();
        assert_eq!(
            (&found_condition["reason"], &found_condition["message"]),
            (&json!("Misconfigured"), &json!(message)),
            "{name}"
        );
    }
}

/// If Berth itself answers an admission check, the reason why the check's deletion waits is in the check's condition; for checks of other controllers, an event
/// has this text.
#[test]
fn deleted_check_of_berth_names_its_queues_in_condition() {
    let mut cluster = asked_with(&json!({}), |_| {});
    mark_deleted(&mut cluster, Kind::AdmissionCheck, CHECK);
    cluster.pass(10);
    let key = Cluster::key(Kind::AdmissionCheck, "", CHECK);
    let condition = &cluster.objects()[&key]["status"]["conditions"][0];
    let words = "The admission check is active; its deletion waits for ClusterQueue cq";
    assert_eq!((&condition["status"], &condition["message"]), (&json!("True"), &json!(words)), "{condition}");
    assert_eq!(waits(&cluster, Kind::AdmissionCheck), [""; 0], "its condition says so");
}
