//! Stories of jobs, told on a cluster that fits in a test.

#![allow(unreachable_pub, reason = "the shared module is private to each test")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod cluster;

use berth_control::measure::Measure;
use berth_control::write::{Kind, Outcome, Purpose};
use cluster::{Cluster, cluster_queue, flavor, job, local_queue};
use serde_json::json;

fn one_queue(quota: &str) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({"tier": "reserved"})));
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("default", quota)]));
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    cluster
}

#[test]
fn a_job_is_admitted_runs_and_gives_its_quota_back() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::Job, job("a", "lq", "1", true));
    cluster.settle();
    assert!(cluster.is("a", "Admitted"), "{:?}", cluster.workload_of("a"));
    let spec = &cluster.job("a")["spec"];
    assert_eq!(spec["suspend"], json!(false));
    assert_eq!(spec["template"]["spec"]["nodeSelector"], json!({"tier": "reserved"}));
    cluster.complete("a");
    cluster.settle();
    assert!(cluster.is("a", "Finished"));
    assert_eq!(cluster.condition("a", "Finished").unwrap()["reason"], json!("Succeeded"));
    assert!(cluster.workload_of("a").unwrap()["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty));
    cluster.pass(10);
    let status = &cluster.objects[&Cluster::key(Kind::ClusterQueue, "", "cq")]["status"];
    assert_eq!(status["flavorsReservation"][0]["resources"][0]["total"], json!("0"), "{status}");
    assert_eq!(status["pendingWorkloads"], json!(0));
    let about_the_job = cluster.writes.iter().filter(|(_, key)| matches!(key.kind, Kind::Job | Kind::Workload)).count();
    assert!(about_the_job <= 6, "{:?}", cluster.writes);
}

#[test]
fn what_is_over_is_left_alone_whatever_is_forgotten_of_it() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::Job, job("a", "lq", "1", true));
    cluster.settle();
    cluster.complete("a");
    cluster.settle();
    assert!(cluster.is("a", "Finished"));
    cluster.pass(10);
    let counted = |cluster: &mut Cluster, wanted: &str| {
        let measures = cluster.control.drain_measures();
        let named = measures.iter().filter(|m| matches!(m, Measure::Count { name, .. } if *name == wanted));
        named.count()
    };
    assert_eq!(counted(&mut cluster, "kueue_admitted_workloads"), 1);
    let before = cluster.writes.len();
    let name = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    let label = json!({"metadata": {"labels": {"seen": "again"}}});
    cluster.edit(Kind::Job, "team", "a", &label);
    cluster.edit(Kind::Workload, "team", &name, &label);
    cluster.edit(Kind::Job, "team", "a", &json!({"metadata": {"labels": {"seen": "twice"}}}));
    cluster.pass(10);
    assert_eq!(cluster.writes.len(), before, "{:?}", cluster.writes);
    assert_eq!(counted(&mut cluster, "kueue_admitted_workloads"), 0);
    cluster.delete(&Cluster::key(Kind::Workload, "team", &name));
    cluster.edit(Kind::Job, "team", "a", &label);
    cluster.pass(10);
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(false));
    assert!(cluster.workload_of("a").is_none());
    cluster.put(Kind::Job, job("b", "lq", "1", true));
    cluster.settle();
    assert!(cluster.is("b", "Admitted"));
}

#[test]
fn a_job_that_comes_running_is_suspended_first() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::Job, job("a", "lq", "2", false));
    cluster.settle();
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(true));
    let reserved = cluster.condition("a", "QuotaReserved").unwrap();
    assert_eq!((&reserved["status"], &reserved["reason"]), (&json!("False"), &json!("ExceedsMaxQuota")));
    assert_eq!(
        reserved["message"],
        json!(
            "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, previously considered \
             podsets requests (0) + current podset request (2) > maximum capacity (1)"
        )
    );
}

#[test]
fn the_second_waits_until_the_first_is_over() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::Job, job("a", "lq", "1", true));
    cluster.settle();
    cluster.put(Kind::Job, job("b", "lq", "1", true));
    cluster.settle();
    assert!(!cluster.is("b", "QuotaReserved"));
    assert_eq!(cluster.condition("b", "QuotaReserved").unwrap()["reason"], json!("WaitingForQuota"));
    cluster.complete("a");
    cluster.settle();
    assert!(cluster.is("b", "Admitted"));
}

#[test]
fn a_running_job_resumed_by_hand_without_quota_is_suspended_again() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::Job, job("a", "lq", "1", true));
    cluster.put(Kind::Job, job("b", "lq", "1", true));
    cluster.settle();
    cluster.edit(Kind::Job, "team", "b", &json!({"spec": {"suspend": false}}));
    cluster.settle();
    assert_eq!(cluster.job("b")["spec"]["suspend"], json!(true));
    assert!(!cluster.is("b", "Admitted"));
}

#[test]
fn deactivation_stops_the_job_restores_its_template_and_frees_the_quota() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::Job, job("a", "lq", "1", true));
    cluster.settle();
    let before = job("a", "lq", "1", true)["spec"]["template"].clone();
    let name = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
    cluster.settle();
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(true));
    assert!(!cluster.is("a", "QuotaReserved"), "{}", cluster.workload_of("a").unwrap());
    let template = &cluster.job("a")["spec"]["template"];
    assert_eq!(template["metadata"]["labels"], before["metadata"]["labels"]);
    assert!(template["spec"]["nodeSelector"].as_object().is_none_or(serde_json::Map::is_empty), "{template}");
    assert!(template["metadata"]["annotations"].as_object().is_none_or(serde_json::Map::is_empty), "{template}");
    assert_eq!(cluster.condition("a", "Evicted").unwrap()["reason"], json!("Deactivated"));
    cluster.put(Kind::Job, job("b", "lq", "1", true));
    cluster.settle();
    assert!(cluster.is("b", "Admitted"));
    cluster.complete("b");
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": true}}));
    cluster.settle();
    assert!(cluster.is("a", "Admitted"), "{}", cluster.workload_of("a").unwrap());
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(false));
}

#[test]
fn hold_and_drain_evicts_and_a_restart_brings_the_job_back() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::Job, job("a", "lq", "1", true));
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
fn a_deleted_job_frees_its_quota_in_each_phase() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::Job, job("a", "lq", "1", true));
    cluster.put(Kind::Job, job("b", "lq", "1", true));
    cluster.settle();
    cluster.delete(&Cluster::key(Kind::Job, "team", "a"));
    cluster.settle();
    assert!(cluster.is("b", "Admitted"));
    assert_eq!(cluster.objects.keys().filter(|key| key.kind == Kind::Workload).count(), 1);
    cluster.delete(&Cluster::key(Kind::Job, "team", "b"));
    cluster.settle();
    assert_eq!(cluster.objects.keys().filter(|key| key.kind == Kind::Workload).count(), 0);
}

#[test]
fn a_deleted_jobs_quota_is_in_use_until_its_pods_are_gone() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::Job, job("a", "lq", "1", true));
    cluster.put(Kind::Job, job("b", "lq", "1", true));
    cluster.settle();
    let uid = cluster.job("a")["metadata"]["uid"].as_str().unwrap().to_owned();
    cluster.pods_left.push(uid);
    cluster.delete(&Cluster::key(Kind::Job, "team", "a"));
    cluster.pass(30);
    assert!(!cluster.is("b", "QuotaReserved"), "the pods of a still hold the quota");
    cluster.pods_left.clear();
    cluster.pass(2);
    assert!(cluster.is("b", "Admitted"));
}

#[test]
fn a_queue_may_come_after_its_jobs_and_a_flavor_after_the_queue() {
    let mut cluster = Cluster::new();
    cluster.put(Kind::Job, job("a", "lq", "1", true));
    cluster.settle();
    assert!(cluster.workload_of("a").is_some());
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("default", "1")]));
    cluster.pass(3);
    assert!(!cluster.is("a", "QuotaReserved"));
    let status = &cluster.objects[&Cluster::key(Kind::ClusterQueue, "", "cq")]["status"]["conditions"][0];
    assert_eq!((&status["reason"], &status["status"]), (&json!("FlavorNotFound"), &json!("False")), "{status}");
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({})));
    cluster.settle();
    assert!(cluster.is("a", "Admitted"));
}

#[test]
fn jobs_spill_from_tier_to_tier() {
    let mut cluster = Cluster::new();
    for tier in ["reserved", "spot"] {
        cluster.put(Kind::ResourceFlavor, flavor(tier, json!({"tier": tier})));
    }
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("reserved", "1"), ("spot", "1")]));
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    for name in ["a", "b", "c"] {
        cluster.put(Kind::Job, job(name, "lq", "1", true));
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
fn every_write_may_fail_or_be_lost_and_the_story_ends_the_same() {
    let outcomes = [
        (Outcome::Unknown("reset".into()), true),
        (Outcome::Unknown("reset".into()), false),
        (Outcome::Busy(100), false),
        (Outcome::Conflict, false),
        (Outcome::NotSent, false),
    ];
    let purposes = [
        Purpose::CreateWorkload,
        Purpose::ReserveQuota,
        Purpose::StartJob,
        Purpose::SetPodsReady,
        Purpose::FinishWorkload,
        Purpose::RemoveFinalizer,
        Purpose::SuspendJob,
    ];
    for (outcome, happens) in outcomes {
        for purpose in purposes {
            let mut cluster = one_queue("1");
            cluster.faults.push((purpose, outcome.clone(), happens));
            cluster.put(Kind::Job, job("a", "lq", "1", false));
            cluster.put(Kind::Job, job("b", "lq", "1", false));
            let what = format!("{purpose:?} {outcome:?} {happens}");
            let mut finished = Vec::new();
            for _ in 0..2 {
                cluster.pass(120);
                let running: Vec<&str> =
                    ["a", "b"].into_iter().filter(|name| cluster.job(name)["status"]["active"] == json!(1)).collect();
                assert_eq!(running.len(), 1, "{what}: one job has quota, running {running:?}, {:?}", cluster.writes);
                cluster.complete(running[0]);
                finished.push(running[0]);
            }
            cluster.pass(120);
            for name in ["a", "b"] {
                assert!(cluster.is(name, "Finished"), "{what}: {name} is not finished");
            }
            let before = cluster.writes.len();
            cluster.pass(300);
            assert_eq!(cluster.writes.len(), before, "{what}: quiet at rest, {:?}", &cluster.writes[before..]);
        }
    }
}

#[test]
fn a_conflict_without_a_cause_stops_nothing() {
    for purpose in [Purpose::ReserveQuota, Purpose::StartJob, Purpose::FinishWorkload, Purpose::RemoveFinalizer] {
        let mut cluster = one_queue("1");
        cluster.conflicts_lie = true;
        cluster.faults.extend([(purpose, Outcome::Conflict, false), (purpose, Outcome::Conflict, false)]);
        cluster.put(Kind::Job, job("a", "lq", "1", true));
        cluster.pass(5);
        // While it is in doubt whether the first has the quota, nobody else gets it.
        cluster.put(Kind::Job, job("b", "lq", "1", true));
        cluster.pass(60);
        assert!(cluster.is("a", "Admitted") && !cluster.is("b", "Admitted"), "{purpose:?}: {:?}", cluster.writes);
        assert_eq!(cluster.job("a")["spec"]["suspend"], json!(false), "{purpose:?}");
        cluster.complete("a");
        cluster.pass(60);
        assert!(cluster.is("a", "Finished") && cluster.is("b", "Admitted"), "{purpose:?}: {:?}", cluster.writes);
    }
}

#[test]
fn a_workload_that_is_deleted_by_hand_comes_again() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::Job, job("a", "lq", "1", true));
    cluster.settle();
    let first = cluster.workload_of("a").unwrap()["metadata"].clone();
    cluster.delete(&Cluster::key(Kind::Workload, "team", first["name"].as_str().unwrap()));
    // Its end is seen before the answer to the write that lets it go.
    cluster.pass(10);
    let second = &cluster.workload_of("a").expect("another workload")["metadata"];
    assert_eq!((&second["name"], second["uid"] == first["uid"]), (&first["name"], false));
    assert!(cluster.is("a", "Admitted"), "{:?}", cluster.writes);
}

#[test]
fn a_job_that_finds_its_prebuilt_workload_busy_adopts_it_later() {
    let mut cluster = one_queue("1");
    let mut guest = job("guest", "lq", "1", true);
    let sets = json!([{"name": "main", "count": 1, "template": guest["spec"]["template"]}]);
    guest["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("before");
    let workload = json!({"metadata": {"namespace": "team", "name": "before"},
        "spec": {"queueName": "lq", "active": true, "podSets": sets}});
    cluster.settle();
    cluster.put(Kind::Workload, workload);
    // Its reservation is on its way when the job arrives.
    let under_way = cluster.control.step(cluster.now);
    assert!(under_way.writes.iter().any(|write| write.purpose == Purpose::ReserveQuota));
    cluster.put(Kind::Job, guest);
    let blocked = cluster.control.step(cluster.now);
    assert!(blocked.writes.iter().all(|write| write.purpose != Purpose::AdoptWorkload));
    cluster.take(blocked);
    cluster.take(under_way);
    cluster.settle();
    assert_eq!(cluster.job("guest")["spec"]["suspend"], json!(false), "{:?}", cluster.writes);
}

#[test]
fn what_today_is_refused_is_told_and_not_admitted() {
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
        cluster.put(Kind::Job, job("good", "lq", "1", true));
        cluster.pass(10);
        assert!(cluster.is("good", "Admitted"), "the other one goes on");
        let bad = &cluster.objects[&Cluster::key(Kind::Workload, "team", "bad")]["status"]["conditions"];
        let told = bad.as_array().unwrap().iter().find(|c| c["type"] == "QuotaReserved").unwrap();
        assert_eq!((&told["status"], &told["reason"]), (&json!("False"), &json!("Misconfigured")), "{told}");
        assert!(told["message"].as_str().unwrap().starts_with(expected), "{told}");
    }
}

#[test]
fn a_queue_that_says_something_unknown_admits_nothing() {
    for (kind, name, spec) in [
        (Kind::ClusterQueue, "cq", json!({"stopPolicy": "Perhaps"})),
        (Kind::ClusterQueue, "cq", json!({"queueingStrategy": "LIFO"})),
        (Kind::LocalQueue, "lq", json!({"stopPolicy": "Perhaps"})),
    ] {
        let mut cluster = one_queue("5");
        let namespace = if kind == Kind::LocalQueue { "team" } else { "" };
        cluster.edit(kind, namespace, name, &json!({"spec": spec}));
        cluster.put(Kind::Job, job("a", "lq", "1", true));
        cluster.pass(10);
        assert!(!cluster.is("a", "QuotaReserved"), "{spec}");
        let queue = &cluster.objects[&Cluster::key(kind, namespace, name)]["status"]["conditions"][0];
        assert_eq!(queue["status"], json!("False"), "{spec}: {queue}");
        if kind == Kind::ClusterQueue {
            let message = queue["message"].as_str().unwrap();
            assert!(message.contains("spec.") && message.contains("supported values"), "{spec}: {queue}");
        }
    }
}

#[test]
fn a_new_leader_finds_everything_as_it_is() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::Job, job("a", "lq", "1", true));
    cluster.put(Kind::Job, job("b", "lq", "1", true));
    cluster.pass(10);
    let writes = cluster.writes.len();
    cluster.control.lead(None);
    cluster.pass(60);
    cluster.control.lead(Some(berth_control::write::Term(2)));
    cluster.pass(60);
    assert_eq!(cluster.writes.len(), writes, "{:?}", &cluster.writes[writes..]);
}

#[test]
fn a_changed_limit_range_is_asked_of_those_who_wait() {
    use berth_control::event::{Change, Observation};
    let range = |cpu: &str| {
        let object = json!({"metadata": {"name": "limits", "namespace": "team"}, "spec": {"limits": [
            {"type": "Container", "defaultRequest": {"cpu": cpu}}]}});
        Observation::LimitRange(Change::Apply(serde_json::from_value(object).unwrap()))
    };
    let mut cluster = one_queue("2");
    cluster.control.observe(range("3"), cluster.now);
    let mut object = job("a", "lq", "1", true);
    object["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({});
    cluster.put(Kind::Job, object);
    cluster.settle();
    assert_eq!(cluster.condition("a", "QuotaReserved").unwrap()["reason"], json!("ExceedsMaxQuota"));
    cluster.control.observe(range("2"), cluster.now);
    cluster.settle();
    assert!(cluster.is("a", "Admitted"), "{}", cluster.workload_of("a").unwrap());
    let usage = &cluster.workload_of("a").unwrap()["status"]["admission"]["podSetAssignments"][0]["resourceUsage"];
    assert_eq!(usage["cpu"], json!("2"));
    // What was given stays as it was given.
    cluster.control.observe(range("1"), cluster.now);
    cluster.pass(10);
    let status = &cluster.objects[&Cluster::key(Kind::ClusterQueue, "", "cq")]["status"];
    assert_eq!(status["flavorsReservation"][0]["resources"][0]["total"], json!("2"), "{status}");
}

fn counted(cluster: &mut Cluster, name: &str) -> Vec<(String, u64)> {
    use berth_control::measure::Measure;
    let mut found = std::collections::BTreeMap::<String, u64>::new();
    for measure in cluster.control.drain_measures() {
        let (series, labels, by) = match measure {
            Measure::Count { name, labels, by } => (name, labels, by),
            Measure::Observe { name, labels, .. } => (name, labels, 1),
        };
        if series == name {
            let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            *found.entry(labels.join(",")).or_default() += by;
        }
    }
    found.into_iter().collect()
}

#[test]
fn reservations_admissions_evictions_and_ends_are_counted_once() {
    let run = |name: &str| {
        let mut cluster = one_queue("1");
        cluster.put(Kind::Job, job("a", "lq", "1", true));
        cluster.settle();
        let workload = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
        cluster.edit(Kind::Workload, "team", &workload, &json!({"spec": {"active": false}}));
        cluster.settle();
        cluster.edit(Kind::Workload, "team", &workload, &json!({"spec": {"active": true}}));
        cluster.pass(5);
        cluster.complete("a");
        cluster.pass(5);
        counted(&mut cluster, name)
    };
    let queue = "cluster_queue=cq,priority_class=";
    assert_eq!(run("kueue_quota_reserved_workloads"), [(queue.to_owned(), 2)]);
    assert_eq!(run("kueue_admitted_workloads"), [(queue.to_owned(), 2)]);
    assert_eq!(run("kueue_admission_wait_time_seconds"), [(queue.to_owned(), 2)]);
    assert_eq!(run("kueue_finished_workloads"), [(queue.to_owned(), 1)]);
    assert_eq!(run("kueue_execution_time_seconds"), [(queue.to_owned(), 1)]);
    let evicted = "cluster_queue=cq,reason=Deactivated,underlying_cause=,priority_class=";
    assert_eq!(run("kueue_evicted_workloads"), [(evicted.to_owned(), 1)]);
    assert_eq!(run("kueue_evicted_workloads_once"), [(evicted.to_owned(), 1)]);
    assert_eq!(run("kueue_local_queue_admitted_workloads"), [("name=lq,namespace=team,priority_class=".to_owned(), 2)]);
    assert_eq!(run("kueue_workload_eviction_latency_seconds").len(), 1);
}

#[test]
fn admission_waits_for_the_pods_of_those_before() {
    let mut settings = cluster::settings();
    settings.wait_for_pods_ready.as_mut().unwrap().block_admission = true;
    let mut cluster = Cluster::with(settings);
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({})));
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("default", "9")]));
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    cluster.pods_stay_unready = true;
    cluster.put(Kind::Job, job("a", "lq", "1", true));
    cluster.put(Kind::Job, job("b", "lq", "1", true));
    cluster.pass(5);
    assert!(cluster.is("a", "Admitted") && !cluster.is("b", "QuotaReserved"));
    let reserved = cluster.condition("b", "QuotaReserved").unwrap();
    assert_eq!(reserved["reason"], json!("WaitingForPodsReady"));
    assert_eq!(reserved["message"], json!("waiting for all admitted workloads to be in PodsReady condition"));
    cluster.pods_stay_unready = false;
    cluster.pass(5);
    assert!(cluster.is("a", "PodsReady") && cluster.is("b", "Admitted"));
}

#[test]
fn what_berth_deactivated_goes_after_its_retention_and_what_the_user_did_stays() {
    let mut settings = cluster::settings();
    settings.retain_deactivated_ms = Some(60_000);
    let mut cluster = Cluster::with(settings);
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({})));
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("default", "9")]));
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    let mut limited = job("limited", "lq", "1", true);
    limited["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("10");
    cluster.put(Kind::Job, limited);
    cluster.put(Kind::Job, job("by-user", "lq", "1", true));
    cluster.settle();
    let name = cluster.workload_of("by-user").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
    cluster.pass(30);
    assert!(
        cluster
            .condition("limited", "Evicted")
            .is_some_and(|c| c["reason"] == json!("DeactivatedDueToMaximumExecutionTimeExceeded")),
        "{:?}",
        cluster.workload_of("limited")
    );
    cluster.pass(90);
    assert!(!cluster.objects.contains_key(&Cluster::key(Kind::Job, "team", "limited")));
    assert!(cluster.objects.contains_key(&Cluster::key(Kind::Job, "team", "by-user")));
}

#[test]
fn a_missing_priority_class_is_told_once_and_its_value_is_followed() {
    use berth_control::event::{Change, Observation};
    let class = |value: i32| {
        let object = json!({"metadata": {"name": "high"}, "value": value});
        Observation::WorkloadPriorityClass(Change::Apply(serde_json::from_value(object).unwrap()))
    };
    let mut cluster = one_queue("1");
    let mut object = job("a", "lq", "1", true);
    object["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    cluster.put(Kind::Job, object);
    cluster.pass(20);
    let told = cluster.notices.iter().filter(|notice| notice.reason == "WorkloadPriorityClassNotFound").count();
    assert_eq!((told, cluster.workload_of("a").is_none()), (1, true));
    cluster.control.observe(class(7), cluster.now);
    cluster.settle();
    assert!(cluster.is("a", "Admitted"));
    assert_eq!(cluster.workload_of("a").unwrap()["spec"]["priority"], json!(7));
    cluster.control.observe(class(9), cluster.now);
    cluster.settle();
    assert_eq!(cluster.workload_of("a").unwrap()["spec"]["priority"], json!(9));
    assert!(cluster.is("a", "Admitted"));
}

#[test]
fn stored_objects_that_rules_refuse_stop_nobody_else() {
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
    cluster.put(Kind::Job, job("stuck", "lost", "1", true));
    cluster.put(Kind::Job, job("fine", "lq", "1", true));
    cluster.pass(10);
    assert!(cluster.is("fine", "Admitted") && !cluster.is("stuck", "QuotaReserved"));
    let status = &cluster.objects[&Cluster::key(Kind::ClusterQueue, "", "twice")]["status"];
    let active = &status["conditions"][0];
    assert_eq!(active["status"], json!("False"));
    let message = active["message"].as_str().unwrap();
    assert!(message.contains("nominalQuota") && message.contains("-3"), "{message}");
    assert!(cluster.notices.iter().any(|notice| notice.key.name == "bad" && notice.message.contains("nodeTaints")));
}

/// A queue whose members take back what they lent, one that only borrows, and three jobs of the borrower.
fn lent_out() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({})));
    let mut owner = cluster_queue("owner", Some("all"), &[("default", "2")]);
    owner["spec"]["preemption"] = json!({"reclaimWithinCohort": "Any"});
    cluster.put(Kind::ClusterQueue, owner);
    cluster.put(Kind::ClusterQueue, cluster_queue("guest", Some("all"), &[("default", "0")]));
    cluster.put(Kind::LocalQueue, local_queue("owner", "owner"));
    cluster.put(Kind::LocalQueue, local_queue("guest", "guest"));
    cluster.put(Kind::Job, job("borrower", "guest", "2", true));
    cluster.settle();
    assert!(cluster.is("borrower", "Admitted"));
    cluster
}

#[test]
fn a_victim_is_evicted_once_and_comes_back() {
    let mut cluster = lent_out();
    cluster.put(Kind::Job, job("mine", "owner", "2", true));
    cluster.pass(30);
    assert!(cluster.is("mine", "Admitted") && !cluster.is("borrower", "QuotaReserved"));
    let evictions = cluster.count(Purpose::Evict);
    cluster.delete(&Cluster::key(Kind::Job, "team", "mine"));
    cluster.pass(60);
    assert!(cluster.is("borrower", "Admitted"), "{}", cluster.workload_of("borrower").unwrap());
    assert_eq!((evictions, cluster.count(Purpose::Evict)), (1, 1));
}

#[test]
fn the_quota_of_a_job_stopped_right_after_its_start_waits_for_the_job_controller() {
    let mut cluster = lent_out();
    // The controller has made pods and has not said so yet.
    let key = Cluster::key(Kind::Job, "team", "borrower");
    let uid = cluster.objects[&key]["metadata"]["uid"].as_str().unwrap().to_owned();
    cluster.controller_sleeps = true;
    cluster.edit(
        Kind::Job,
        "team",
        "borrower",
        &json!({"status": {"startTime": null, "active": null, "ready": null, "conditions": [{"type": "Suspended", "status": "True"}]}}),
    );
    cluster.pods_left.push(uid);
    cluster.put(Kind::Job, job("mine", "owner", "2", true));
    cluster.pass(20);
    assert!(cluster.is("borrower", "Evicted"));
    assert_eq!(cluster.job("borrower")["spec"]["suspend"], json!(true));
    assert!(
        cluster.is("borrower", "QuotaReserved"),
        "its pods are there: {}",
        cluster.workload_of("borrower").unwrap()
    );
    assert!(!cluster.is("mine", "QuotaReserved"));
    cluster.pods_left.clear();
    cluster.controller_sleeps = false;
    cluster.pass(20);
    assert!(!cluster.is("borrower", "QuotaReserved") && cluster.is("mine", "Admitted"));
}

/// A queue with one admission check and a job that holds quota; the second value is the name of its Workload.
fn checked() -> (Cluster, String) {
    use berth_control::event::{Change, Observation};
    let mut cluster = Cluster::new();
    let check = json!({"metadata": {"name": "budget"}, "spec": {"controllerName": "example.com/budget"},
        "status": {"conditions": [{"type": "Active", "status": "True", "reason": "Active", "message": "",
            "lastTransitionTime": "2026-11-21T12:00:00Z"}]}});
    let check = Observation::AdmissionCheck(Change::Apply(serde_json::from_value(check).unwrap()));
    cluster.control.observe(check, cluster.now);
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({})));
    let mut queue = cluster_queue("cq", None, &[("default", "1")]);
    queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "budget"}]});
    cluster.put(Kind::ClusterQueue, queue);
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    cluster.put(Kind::Job, job("a", "lq", "1", true));
    cluster.pass(5);
    assert!(cluster.is("a", "QuotaReserved") && !cluster.is("a", "Admitted"), "{:?}", cluster.workload_of("a"));
    let workload = cluster.workload_of("a").unwrap();
    assert_eq!(workload["status"]["admissionChecks"][0]["name"], json!("budget"));
    assert_eq!(workload["status"]["admissionChecks"][0]["state"], json!("Pending"));
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(true));
    let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
    (cluster, name)
}

/// What the check's controller answers.
fn answer(cluster: &mut Cluster, workload: &str, state: &str) {
    let time = cluster.now.to_string();
    let state = json!([{"name": "budget", "state": state, "message": "said so", "lastTransitionTime": time,
        "requeueAfterSeconds": 30}]);
    cluster.edit(Kind::Workload, "team", workload, &json!({"status": {"admissionChecks": state}}));
}

#[test]
fn a_job_starts_when_its_check_is_ready() {
    let (mut cluster, name) = checked();
    answer(&mut cluster, &name, "Ready");
    cluster.pass(5);
    assert!(cluster.is("a", "Admitted"));
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(false));
    cluster.complete("a");
    cluster.pass(5);
    assert!(cluster.is("a", "Finished"));
}

#[test]
fn a_check_that_asks_for_a_retry_sends_the_job_back_for_a_while() {
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
fn a_check_that_rejects_deactivates_the_workload() {
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
fn a_victim_stays_when_its_preemptor_goes_before_it_was_told() {
    let mut cluster = lent_out();
    cluster.faults.push((Purpose::Evict, Outcome::Busy(20_000), false));
    cluster.put(Kind::Job, job("mine", "owner", "2", true));
    cluster.pass(5);
    cluster.delete(&Cluster::key(Kind::Job, "team", "mine"));
    cluster.pass(60);
    assert!(cluster.is("borrower", "Admitted") && !cluster.is("borrower", "Evicted"));
    // The next one finds it as a victim like any other.
    cluster.put(Kind::Job, job("again", "owner", "2", true));
    cluster.pass(30);
    assert!(cluster.is("again", "Admitted") && !cluster.is("borrower", "QuotaReserved"));
}

#[test]
fn an_illegal_queue_stays_inactive_when_its_check_changes() {
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
        cluster.control.observe(check(status), cluster.now);
        cluster.pass(10);
        let status = &cluster.objects[&Cluster::key(Kind::ClusterQueue, "", "cq")]["status"]["conditions"][0];
        assert_eq!(status["status"], json!("False"));
        assert!(status["message"].as_str().unwrap().contains("nominalQuota"), "{status}");
    }
}
