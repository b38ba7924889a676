//! The rows of docs/compatibility.md about fields, and the reasons of conditions, that no other story covers.

use berth_control::event::{Change, Observation};
use berth_control::write::{Kind, Purpose};
use berth_engine::FairSharing;
use serde_json::{Value, json};

use crate::stories::checks::{answer, checked};
use crate::stories::cluster::{Cluster, cluster_queue, flavor, job, local_queue, merge, settings};
use crate::stories::groups::member;
use crate::stories::tiers::flavor_of;
use crate::stories::{one_queue, pod_queue};

/// Adds two flavors and three priority classes to a cluster.
fn furnished(mut cluster: Cluster) -> Cluster {
    for name in ["first", "second"] {
        cluster.put(Kind::ResourceFlavor, flavor(name, json!({"tier": name})));
    }
    for (class, value) in [("low", 1), ("middle", 2), ("high", 3)] {
        cluster.set_class(class, value);
    }
    cluster
}

/// Creates a ClusterQueue in a Cohort, and a LocalQueue with the name of the ClusterQueue; `more` is merged into the spec of the ClusterQueue.
fn queue(cluster: &mut Cluster, name: &str, cohort: &str, flavors: &[(&str, &str)], more: &Value) {
    let mut queue = cluster_queue(name, Some(cohort), flavors);
    merge(&mut queue["spec"], more);
    cluster.put(Kind::ClusterQueue, queue);
    cluster.put(Kind::LocalQueue, local_queue(name, name));
}

fn of_class(name: &str, queue: &str, cpu: &str, class: &str) -> Value {
    let mut made = job(name, queue, cpu, true);
    made["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
    made
}

/// The status and the reason of a condition.
fn condition_of(conditions: &Value, kind: &str) -> (String, String) {
    let all = conditions.as_array().cloned().unwrap_or_default();
    let one = all.into_iter().find(|one| one["type"] == kind).unwrap_or_default();
    let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

fn words(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

/// The flavor fungibility of a ClusterQueue with the given value in a field.
fn fungibility(field: &str, field_value: Option<&str>) -> Value {
    field_value.map_or_else(|| json!({}), |field_value| json!({"flavorFungibility": {(field): field_value}}))
}

/// Creates a job that takes the first flavor, and later a job of a higher priority, which is admitted, too.
fn an_urgent_one_comes(cluster: &mut Cluster, field_value: Option<&str>) {
    cluster.put(Kind::JOB, of_class("before", "own", "1", "low"));
    cluster.settle();
    assert_eq!(flavor_of(cluster, "before"), "first");
    cluster.put(Kind::JOB, of_class("urgent", "own", "1", "high"));
    cluster.pass(30);
    assert!(cluster.is("urgent", "Admitted"), "{field_value:?}: {:?}", cluster.writes);
}

#[test]
fn flavor_fungibility_decides_whether_next_flavor_is_tried() {
    // In the first flavor the ClusterQueue would have to borrow, and in the second flavor the job fits into the queue's own quota.
    for (field_value, expected) in
        [(None, "first"), (Some("MayStopSearch"), "first"), (Some("TryNextFlavor"), "second")]
    {
        let mut cluster = furnished(Cluster::new());
        let more = fungibility("whenCanBorrow", field_value);
        queue(&mut cluster, "own", "all", &[("first", "0"), ("second", "1")], &more);
        queue(&mut cluster, "pool", "all", &[("first", "1")], &json!({}));
        cluster.put(Kind::JOB, of_class("a", "own", "1", "low"));
        cluster.settle();
        assert_eq!(flavor_of(&cluster, "a"), expected, "{field_value:?}");
    }
    // In the first flavor a Workload would have to be preempted, and the second flavor is free.
    for (field_value, expected, evicted) in
        [(None, "second", 0), (Some("TryNextFlavor"), "second", 0), (Some("MayStopSearch"), "first", 1)]
    {
        let mut cluster = furnished(Cluster::new());
        let mut more = fungibility("whenCanPreempt", field_value);
        more["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
        queue(&mut cluster, "own", "all", &[("first", "1"), ("second", "1")], &more);
        an_urgent_one_comes(&mut cluster, field_value);
        assert_eq!(flavor_of(&cluster, "urgent"), expected, "{field_value:?}");
        assert_eq!(cluster.count(Purpose::Evict), evicted, "{field_value:?}: {:?}", cluster.writes);
    }
}

#[test]
fn workload_conditions_have_kueue_reasons_from_reservation_to_finish() {
    let mut cluster = one_queue("2");
    for name in ["good", "bad"] {
        cluster.put(Kind::JOB, job(name, "lq", "1", true));
    }
    cluster.settle();
    let of = |cluster: &Cluster, job: &str, kind: &str| {
        condition_of(&cluster.workload_of(job).unwrap()["status"]["conditions"], kind)
    };
    for name in ["good", "bad"] {
        assert_eq!(of(&cluster, name, "QuotaReserved"), words("True", "QuotaReserved"), "{name}");
        assert_eq!(of(&cluster, name, "Admitted"), words("True", "Admitted"), "{name}");
        assert_eq!(of(&cluster, name, "Finished"), words("", ""), "{name}");
    }
    cluster.complete("good");
    cluster.fail("bad");
    cluster.pass(5);
    assert_eq!(of(&cluster, "good", "Finished"), words("True", "Succeeded"), "{:?}", cluster.writes);
    assert_eq!(of(&cluster, "bad", "Finished"), words("True", "Failed"), "{:?}", cluster.writes);
}

#[test]
fn flavor_fungibility_preference_decides_between_borrowing_and_preemption() {
    for (preference, flavor, evicted) in [
        (None, "second", false),
        (Some("BorrowingOverPreemption"), "second", false),
        (Some("PreemptionOverBorrowing"), "first", true),
    ] {
        let mut cluster = furnished(Cluster::new());
        let mut more = json!({"preemption": {"withinClusterQueue": "LowerPriority"},
            "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}});
        if let Some(preference) = preference {
            more["flavorFungibility"]["preference"] = json!(preference);
        }
        queue(&mut cluster, "own", "all", &[("first", "1"), ("second", "0")], &more);
        queue(&mut cluster, "pool", "all", &[("second", "1")], &json!({}));
        an_urgent_one_comes(&mut cluster, preference);
        assert_eq!(flavor_of(&cluster, "urgent"), flavor, "{preference:?}");
        assert_eq!(cluster.count(Purpose::Evict) == 1, evicted, "{preference:?}: {:?}", cluster.writes);
    }
}

#[test]
fn borrowing_workload_preempts_only_up_to_max_priority_threshold() {
    for (class, evicted) in [("low", true), ("middle", false)] {
        let mut cluster = furnished(Cluster::new());
        let threshold = json!({"preemption": {"reclaimWithinCohort": "Any",
            "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 1}}});
        queue(&mut cluster, "pool", "all", &[("first", "2")], &json!({}));
        queue(&mut cluster, "asks", "all", &[("first", "0")], &threshold);
        queue(&mut cluster, "holds", "all", &[("first", "0")], &json!({}));
        cluster.put(Kind::JOB, of_class("holder", "holds", "2", class));
        cluster.settle();
        assert!(cluster.is("holder", "Admitted"));
        cluster.put(Kind::JOB, of_class("urgent", "asks", "1", "high"));
        cluster.pass(30);
        assert_eq!(cluster.is("urgent", "Admitted"), evicted, "{class}: {:?}", cluster.writes);
        assert_eq!(cluster.count(Purpose::Evict) == 1, evicted, "{class}: {:?}", cluster.writes);
    }
}

#[test]
fn cohort_status_shows_weighted_share_by_its_own_weight() {
    for (weight, share) in [("1", 500), ("2", 250)] {
        let mut settings = settings();
        settings.engine.fair_sharing = Some(FairSharing::default());
        let mut cluster = furnished(Cluster::with(settings));
        let cohort = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
        cluster.put(Kind::Cohort, cohort("root", json!({})));
        cluster.put(Kind::Cohort, cohort("team", json!({"parentName": "root", "fairSharing": {"weight": weight}})));
        queue(&mut cluster, "pool", "root", &[("first", "4")], &json!({}));
        queue(&mut cluster, "guest", "team", &[("first", "0")], &json!({}));
        let shown = |cluster: &Cluster, kind: Kind, name: &str| {
            cluster.objects()[&Cluster::key(kind, "", name)]["status"]["fairSharing"]["weightedShare"].clone()
        };
        cluster.pass(10);
        assert_eq!(shown(&cluster, Kind::Cohort, "team"), json!(0));
        cluster.put(Kind::JOB, job("borrower", "guest", "2", true));
        cluster.pass(10);
        assert!(cluster.is("borrower", "Admitted"));
        // The ClusterQueue borrows two of the four cpus that its parent Cohort can lend.
        assert_eq!(shown(&cluster, Kind::Cohort, "team"), json!(share), "weight {weight}");
        assert_eq!(shown(&cluster, Kind::ClusterQueue, "guest"), json!(500), "the weight of its cohort is not its own");
    }
}

/// The numbers of pending, reserving and admitted Workloads in the status of a queue.
fn counts(cluster: &Cluster, kind: Kind, namespace: &str, name: &str) -> [i64; 3] {
    let status = &cluster.objects()[&Cluster::key(kind, namespace, name)]["status"];
    ["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"]
        .map(|field| status[field].as_i64().unwrap_or_default())
}

#[test]
fn local_queue_with_new_cluster_queue_counts_no_old_reservation() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::ClusterQueue, cluster_queue("other", None, &[("default", "1")]));
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(10);
    let both = |cluster: &Cluster| {
        [counts(cluster, Kind::ClusterQueue, "", "cq"), counts(cluster, Kind::LocalQueue, "team", "lq")]
    };
    assert_eq!(both(&cluster), [[0, 1, 1]; 2]);
    cluster.edit(Kind::LocalQueue, "team", "lq", &json!({"spec": {"clusterQueue": "other"}}));
    cluster.pass(10);
    assert_eq!(both(&cluster), [[0, 1, 1], [0, 0, 0]]);
    let status = &cluster.objects()[&Cluster::key(Kind::LocalQueue, "team", "lq")]["status"];
    for list in ["flavorsReservation", "flavorsUsage"] {
        assert_eq!(status[list][0]["resources"][0]["total"], json!("0"), "{list}");
    }
}

#[test]
fn queue_status_counts_pending_reserving_and_admitted_workloads() {
    let (mut cluster, workload) = checked();
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    cluster.put(Kind::JOB, job("c", "lq", "1", true));
    cluster.pass(10);
    let both = |cluster: &Cluster| {
        [counts(cluster, Kind::ClusterQueue, "", "cq"), counts(cluster, Kind::LocalQueue, "team", "lq")]
    };
    assert_eq!(both(&cluster), [[2, 1, 0]; 2], "one waits for its check");
    answer(&mut cluster, &workload, "Ready");
    cluster.pass(10);
    assert_eq!(both(&cluster), [[2, 1, 1]; 2]);
    let reserved = |kind: Kind, namespace: &str, name: &str, list: &str| {
        let status = &cluster.objects()[&Cluster::key(kind, namespace, name)]["status"];
        (status[list][0]["name"].clone(), status[list][0]["resources"][0]["total"].clone())
    };
    for list in ["flavorsReservation", "flavorsUsage"] {
        let all = (json!("default"), json!("1"));
        assert_eq!(reserved(Kind::ClusterQueue, "", "cq", list), all, "{list}");
        assert_eq!(reserved(Kind::LocalQueue, "team", "lq", list), all, "{list}");
    }
    cluster.complete("a");
    cluster.pass(10);
    assert_eq!(both(&cluster), [[1, 1, 0]; 2], "the next one waits for its check");
}

#[test]
fn pod_group_condition_shows_wait_for_replacement_and_its_end() {
    let mut cluster = pod_queue("2");
    for name in ["a", "b"] {
        cluster.put(Kind::Pod, member(name, "1", 2, &[]));
    }
    cluster.settle();
    let waits = |cluster: &Cluster| {
        let group = &cluster.objects()[&Cluster::key(Kind::Workload, "team", "g")];
        condition_of(&group["status"]["conditions"], "WaitingForReplacementPods")
    };
    assert_eq!(waits(&cluster), words("", ""), "none has failed");
    cluster.end_pod("a", "Failed");
    cluster.settle();
    assert_eq!(waits(&cluster), words("True", "PodsFailed"));
    cluster.put(Kind::Pod, member("c", "1", 2, &[]));
    cluster.settle();
    assert_eq!(waits(&cluster), words("False", "PodsReady"));
}

#[test]
fn eviction_conditions_turn_false_with_next_quota_reservation() {
    let mut cluster = furnished(one_queue("1"));
    let preempts = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
    cluster.edit(Kind::ClusterQueue, "", "cq", &preempts);
    cluster.put(Kind::JOB, of_class("victim", "lq", "1", "low"));
    cluster.settle();
    cluster.put(Kind::JOB, of_class("urgent", "lq", "1", "high"));
    cluster.pass(30);
    let of_victim = |cluster: &Cluster, kind: &str| {
        condition_of(&cluster.workload_of("victim").unwrap()["status"]["conditions"], kind)
    };
    assert_eq!(of_victim(&cluster, "Evicted"), words("True", "Preempted"));
    assert_eq!(of_victim(&cluster, "Preempted"), words("True", "InClusterQueue"));
    cluster.complete("urgent");
    cluster.pass(30);
    assert!(cluster.is("victim", "Admitted"), "{:?}", cluster.writes);
    for kind in ["Evicted", "Preempted"] {
        assert_eq!(of_victim(&cluster, kind), words("False", "QuotaReserved"), "{kind}");
    }
}

#[test]
fn conflicting_multikueue_checks_make_cluster_queue_inactive() {
    let (multi, provisioning) = ("kueue.x-k8s.io/multikueue", "kueue.x-k8s.io/provisioning-request");
    for (checks, on, reason, why) in [
        (
            &[multi, multi][..],
            json!([]),
            "MultipleMultiKueueAdmissionChecks",
            "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: check-0,check-1",
        ),
        (
            &[multi],
            json!(["first"]),
            "MultiKueueAdmissionCheckAppliedPerFlavor",
            "Cannot specify MultiKueue AdmissionCheck per flavor, found: check-0",
        ),
        (
            &[multi, provisioning],
            json!([]),
            "MultiKueueWithProvisioningRequest",
            "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: check-0, check-1",
        ),
        (&[multi], json!(["second", "first"]), "Ready", ""),
    ] {
        let mut cluster = furnished(Cluster::new());
        cluster.control.observe(Observation::ServesProvisioningRequests(true), cluster.now());
        let config = json!({"metadata": {"name": "prc", "uid": "prc"}, "spec": {"provisioningClassName": "queued"}});
        let config = Observation::ProvisioningRequestConfig(Change::Apply(serde_json::from_value(config).unwrap()));
        cluster.control.observe(config, cluster.now());
        let active = json!({"type": "Active", "status": "True", "reason": "Active", "message": "",
            "lastTransitionTime": "2026-11-21T12:00:00Z"});
        let mut rules = Vec::new();
        for (index, controller) in checks.iter().enumerate() {
            let name = format!("check-{index}");
            rules.push(json!({"name": name, "onFlavors": on}));
            // The check for provisioning has a configuration, because Berth would otherwise report the check as inactive in the first message.
            let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "prc"});
            let check = json!({"metadata": {"name": name},
                "spec": {"controllerName": controller, "parameters": parameters}, "status": {"conditions": [active]}});
            cluster.put(Kind::AdmissionCheck, check);
        }
        queue(
            &mut cluster,
            "cq",
            "all",
            &[("first", "1"), ("second", "1")],
            &json!({"admissionChecksStrategy": {"admissionChecks": rules}}),
        );
        cluster.pass(5);
        let status = &cluster.objects()[&Cluster::key(Kind::ClusterQueue, "", "cq")]["status"];
        let is_ready = why.is_empty();
        let message =
            if is_ready { "Can admit new workloads".to_owned() } else { format!("Can't admit new workloads: {why}.") };
        assert_eq!(
            condition_of(&status["conditions"], "Active"),
            words(if is_ready { "True" } else { "False" }, reason),
            "{status}"
        );
        let text = status["conditions"].to_string();
        assert!(text.contains(&format!("{message:?}")), "{text}");
    }
}

#[test]
fn quota_metrics_exist_only_with_queue_resource_metrics_enabled() {
    for on in [true, false] {
        let mut settings = settings();
        settings.queue_resource_metrics = on;
        let mut cluster = furnished(Cluster::with(settings));
        queue(&mut cluster, "own", "all", &[("first", "1")], &json!({}));
        cluster.put(Kind::JOB, job("runs", "own", "1", true));
        cluster.pass(5);
        let gauges = cluster.control.figures().gauges;
        for name in ["nominal_quota", "resource_reservation", "resource_usage"] {
            let name = format!("kueue_cluster_queue_{name}");
            assert_eq!(gauges.iter().any(|gauge| gauge.name == name), on, "{name}");
        }
        assert!(gauges.iter().any(|gauge| gauge.name == "kueue_admitted_active_workloads"), "others are there");
    }
}
