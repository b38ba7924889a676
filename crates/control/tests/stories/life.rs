//! The life of a job: its events, conditions and metrics.

use berth_control::measure::Measure;
use berth_control::write::{Kind, Purpose, TaskId, WriteOutcome};
use serde_json::json;

use crate::stories::cluster::{Cluster, cluster_queue, flavor, job, local_queue};
use crate::stories::one_queue;

#[test]
fn job_is_admitted_runs_and_frees_its_quota_when_finished() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
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
    let status = &cluster.objects()[&Cluster::key(Kind::ClusterQueue, "", "cq")]["status"];
    assert_eq!(status["flavorsReservation"][0]["resources"][0]["total"], json!("0"), "{status}");
    assert_eq!(status["pendingWorkloads"], json!(0));
    let about_the_job =
        cluster.writes.iter().filter(|(_, key)| matches!(key.kind, Kind::Job(_) | Kind::Workload)).count();
    assert!(about_the_job <= 6, "{:?}", cluster.writes);
}

#[test]
fn finished_job_causes_no_writes_after_edits_or_workload_deletion() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
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
    cluster.edit(Kind::JOB, "team", "a", &label);
    cluster.edit(Kind::Workload, "team", &name, &label);
    cluster.edit(Kind::JOB, "team", "a", &json!({"metadata": {"labels": {"seen": "twice"}}}));
    cluster.pass(10);
    assert_eq!(cluster.writes.len(), before, "{:?}", cluster.writes);
    assert_eq!(counted(&mut cluster, "kueue_admitted_workloads"), 0);
    cluster.delete(&Cluster::key(Kind::Workload, "team", &name));
    cluster.edit(Kind::JOB, "team", "a", &label);
    cluster.pass(10);
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(false));
    assert!(cluster.workload_of("a").is_none());
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    cluster.settle();
    assert!(cluster.is("b", "Admitted"));
}

#[test]
fn job_created_unsuspended_is_suspended_and_waits_for_quota() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "2", false));
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
fn second_job_waits_for_quota_until_first_job_completes() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    cluster.settle();
    assert!(!cluster.is("b", "QuotaReserved"));
    assert_eq!(cluster.condition("b", "QuotaReserved").unwrap()["reason"], json!("WaitingForQuota"));
    cluster.complete("a");
    cluster.settle();
    assert!(cluster.is("b", "Admitted"));
}

#[test]
fn job_unsuspended_by_user_without_quota_is_suspended_again() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    cluster.settle();
    cluster.edit(Kind::JOB, "team", "b", &json!({"spec": {"suspend": false}}));
    cluster.settle();
    assert_eq!(cluster.job("b")["spec"]["suspend"], json!(true));
    assert!(!cluster.is("b", "Admitted"));
}

#[test]
fn workload_deactivation_stops_job_restores_template_and_frees_quota() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
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
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    cluster.settle();
    assert!(cluster.is("b", "Admitted"));
    cluster.complete("b");
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": true}}));
    cluster.settle();
    assert!(cluster.is("a", "Admitted"), "{}", cluster.workload_of("a").unwrap());
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(false));
}

/// A condition that is left out of an apply is not deleted if another field manager has written the condition, as Kueue's manager of `PodsReady` has.
#[test]
fn pods_ready_condition_turns_false_and_stays_after_deactivation() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(5);
    assert!(cluster.is("a", "PodsReady"));
    let name = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
    cluster.pass(5);
    let ready = cluster.condition("a", "PodsReady").expect("it stays");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("WaitForStart")));
    assert!(!cluster.is("a", "QuotaReserved"));
}

#[test]
fn deleted_job_frees_its_quota_and_loses_its_workload() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    cluster.settle();
    cluster.delete(&Cluster::key(Kind::JOB, "team", "a"));
    cluster.pass(5);
    assert!(cluster.is("b", "Admitted"));
    assert_eq!(cluster.objects().keys().filter(|key| key.kind == Kind::Workload).count(), 1);
    cluster.delete(&Cluster::key(Kind::JOB, "team", "b"));
    cluster.pass(5);
    assert_eq!(cluster.objects().keys().filter(|key| key.kind == Kind::Workload).count(), 0);
}

#[test]
fn job_deleted_after_start_keeps_quota_until_late_pods_end() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    cluster.settle();
    let uid = cluster.job("a")["metadata"]["uid"].as_str().unwrap().to_owned();
    cluster.delete(&Cluster::key(Kind::JOB, "team", "a"));
    cluster.settle();
    assert!(!cluster.is("b", "QuotaReserved"), "the Job controller has not seen yet that a is gone");
    cluster.pods_left.push(uid);
    cluster.pass(30);
    assert!(!cluster.is("b", "QuotaReserved"), "the pod that it made holds the quota");
    cluster.pods_left.clear();
    cluster.pass(2);
    assert!(cluster.is("b", "Admitted"));
}

#[test]
fn deleted_job_keeps_its_quota_until_its_pods_are_gone() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    cluster.settle();
    cluster.keep_pods_of(Kind::JOB, "a");
    cluster.delete(&Cluster::key(Kind::JOB, "team", "a"));
    cluster.pass(30);
    assert!(!cluster.is("b", "QuotaReserved"), "the pods of a still hold the quota");
    cluster.pods_left.clear();
    cluster.pass(2);
    assert!(cluster.is("b", "Admitted"));
}

#[test]
fn limit_range_change_applies_to_waiting_jobs_only() {
    use berth_control::event::{Change, Observation};
    let range = |cpu: &str| {
        let object = json!({"metadata": {"name": "limits", "namespace": "team"}, "spec": {"limits": [
            {"type": "Container", "defaultRequest": {"cpu": cpu}}]}});
        Observation::LimitRange(Change::Apply(serde_json::from_value(object).unwrap()))
    };
    let mut cluster = one_queue("2");
    cluster.control.observe(range("3"), cluster.now());
    let mut object = job("a", "lq", "1", true);
    object["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({});
    cluster.put(Kind::JOB, object);
    cluster.settle();
    assert_eq!(cluster.condition("a", "QuotaReserved").unwrap()["reason"], json!("ExceedsMaxQuota"));
    cluster.control.observe(range("2"), cluster.now());
    cluster.settle();
    assert!(cluster.is("a", "Admitted"), "{}", cluster.workload_of("a").unwrap());
    let usage = &cluster.workload_of("a").unwrap()["status"]["admission"]["podSetAssignments"][0]["resourceUsage"];
    assert_eq!(usage["cpu"], json!("2"));
    // Quota that a Workload holds does not change with the LimitRange.
    cluster.control.observe(range("1"), cluster.now());
    cluster.pass(10);
    let status = &cluster.objects()[&Cluster::key(Kind::ClusterQueue, "", "cq")]["status"];
    assert_eq!(status["flavorsReservation"][0]["resources"][0]["total"], json!("2"), "{status}");
}

fn counted(cluster: &mut Cluster, name: &str) -> Vec<(String, u64)> {
    use berth_control::measure::Measure;
    let mut found = std::collections::BTreeMap::<String, u64>::new();
    for measure in cluster.control.drain_measures() {
        let (series, labels, by) = match measure {
            Measure::Count { name, labels, by } => (name, labels, by),
            Measure::Observe { name, labels, .. } => (name, labels, 1),
            Measure::Forget { labels } => ("forgotten", labels, 1),
        };
        if series == name {
            let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            *found.entry(labels.join(",")).or_default() += by;
        }
    }
    found.into_iter().collect()
}

#[test]
fn metrics_count_each_reservation_admission_eviction_and_finish_once() {
    let run = |name: &str| {
        let mut cluster = one_queue("1");
        cluster.put(Kind::JOB, job("a", "lq", "1", true));
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
fn admission_is_blocked_until_pods_of_earlier_job_are_ready() {
    let mut settings = crate::stories::cluster::settings();
    settings.wait_for_pods_ready.as_mut().unwrap().block_admission = true;
    let mut cluster = Cluster::with(settings);
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({})));
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("default", "9")]));
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    cluster.pods_stay_unready = true;
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
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
fn retention_deletes_job_deactivated_by_berth_but_not_by_user() {
    let mut settings = crate::stories::cluster::settings();
    settings.retain_deactivated_ms = Some(60_000);
    let mut cluster = Cluster::with(settings);
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({})));
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("default", "9")]));
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    let mut limited = job("limited", "lq", "1", true);
    limited["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("10");
    cluster.put(Kind::JOB, limited);
    cluster.put(Kind::JOB, job("by-user", "lq", "1", true));
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
    assert!(!cluster.objects().contains_key(&Cluster::key(Kind::JOB, "team", "limited")));
    assert!(cluster.objects().contains_key(&Cluster::key(Kind::JOB, "team", "by-user")));
    let events: Vec<_> = cluster.notices.iter().filter(|notice| notice.reason == "Deleted").collect();
    let about = events.iter().map(|notice| (&notice.key, notice.reporter, &*notice.message)).collect::<Vec<_>>();
    let job = Cluster::key(Kind::JOB, "team", "limited");
    let words = "Deleted job: deactivation retention period expired";
    assert_eq!(about, [(&job, "batch/job-kueue-controller", words)]);
}

#[test]
fn deactivated_workload_gets_eviction_event_only_if_it_held_quota() {
    let mut cluster = one_queue("1");
    for name in ["holds", "waits"] {
        cluster.put(Kind::JOB, job(name, "lq", "1", true));
        cluster.pass(3);
    }
    for name in ["waits", "holds"] {
        let workload = cluster.workload_of(name).unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
        cluster.edit(Kind::Workload, "team", &workload, &json!({"spec": {"active": false}}));
        cluster.pass(5);
        assert_eq!(cluster.condition(name, "Evicted").unwrap()["reason"], json!("Deactivated"), "{name}");
        let events = cluster.notices.iter().filter(|notice| notice.reason == "EvictedDueToDeactivated");
        let events: Vec<&str> = events.map(|notice| &*notice.key.name).collect();
        let expected = if name == "holds" { vec![workload.as_str()] } else { Vec::new() };
        assert_eq!(events, expected);
    }
}

#[test]
fn job_waits_for_missing_priority_class_and_follows_its_value() {
    let mut cluster = one_queue("1");
    let mut object = job("a", "lq", "1", true);
    object["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    cluster.put(Kind::JOB, object);
    cluster.pass(20);
    let events_sent = cluster.notices.iter().filter(|notice| notice.reason == "WorkloadPriorityClassNotFound").count();
    assert_eq!((events_sent, cluster.workload_of("a").is_none()), (1, true));
    cluster.set_class("high", 7);
    cluster.settle();
    assert!(cluster.is("a", "Admitted"));
    assert_eq!(cluster.workload_of("a").unwrap()["spec"]["priority"], json!(7));
    cluster.set_class("high", 9);
    cluster.settle();
    assert_eq!(cluster.workload_of("a").unwrap()["spec"]["priority"], json!(9));
    assert!(cluster.is("a", "Admitted"));
}

#[test]
fn workload_creations_under_way_are_limited_to_64() {
    let mut cluster = one_queue("1");
    for number in 0..200 {
        cluster.put(Kind::JOB, job(&format!("job-{number:03}"), "lq", "1", true));
    }
    let creations = |cluster: &mut Cluster| -> Vec<TaskId> {
        let step = cluster.control.step(cluster.now());
        step.tasks.iter().filter(|write| write.purpose == Purpose::CreateWorkload).map(|write| write.id).collect()
    };
    let first = creations(&mut cluster);
    assert_eq!(first.len(), 64, "more would only lie in the writer's queue");
    assert_eq!(creations(&mut cluster), []);
    // Control makes further creations as earlier creations are answered, whatever their outcomes, until every job has a Workload.
    let (mut under_way, mut made) = (first, 64);
    while !under_way.is_empty() {
        for id in under_way {
            let outcome = if id.0 % 2 == 0 {
                WriteOutcome::NotSent
            } else {
                WriteOutcome::Applied { resource_version: "1".into() }
            };
            cluster.control.outcome(id, outcome, cluster.now());
        }
        under_way = creations(&mut cluster);
        assert!(under_way.len() <= 64);
        made += under_way.len();
    }
    assert_eq!(made, 200);
}

#[test]
fn workload_status_shows_resource_requests_only_while_it_waits() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "3", true));
    cluster.settle();
    let requests = |cluster: &Cluster| cluster.workload_of("a").unwrap()["status"]["resourceRequests"].clone();
    assert_eq!(requests(&cluster), json!([{"name": "main", "resources": {"cpu": "3"}}]));
    let groups = cluster_queue("cq", None, &[("default", "3")])["spec"]["resourceGroups"].clone();
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"resourceGroups": groups}}));
    cluster.settle();
    assert!(cluster.is("a", "Admitted"));
    assert_eq!(requests(&cluster), json!(null), "what it was given says it");
}

#[test]
fn orphaned_workload_of_deleted_job_is_finished_and_frees_quota() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    let name = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    // The job is deleted as by `kubectl delete --cascade=orphan`.
    cluster.edit(Kind::Workload, "team", &name, &json!({"metadata": {"ownerReferences": null}}));
    cluster.delete(&Cluster::key(Kind::JOB, "team", "a"));
    cluster.pass(10);
    let left = &cluster.objects()[&Cluster::key(Kind::Workload, "team", &name)];
    let conditions = left["status"]["conditions"].as_array().unwrap();
    let finished = conditions.iter().find(|condition| condition["type"] == json!("Finished")).unwrap();
    assert_eq!((&finished["status"], &finished["reason"]), (&json!("True"), &json!("OwnerNotFound")));
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    cluster.settle();
    assert!(cluster.is("b", "Admitted"), "its quota is free");
}

#[test]
fn job_with_unready_pods_is_evicted_after_recovery_timeout() {
    let mut settings = crate::stories::cluster::settings();
    let wait = settings.wait_for_pods_ready.as_mut().unwrap();
    wait.timeout_ms = 600_000;
    wait.recovery_timeout_ms = Some(60_000);
    let mut cluster = crate::stories::with_queue(Cluster::with(settings), "1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    let shown = |cluster: &Cluster| {
        let condition = cluster.condition("a", "PodsReady").unwrap();
        (condition["status"].as_str().unwrap().to_owned(), condition["reason"].as_str().unwrap().to_owned())
    };
    let is = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
    assert_eq!(shown(&cluster), is("True", "Started"));
    let lose = |cluster: &mut Cluster| {
        cluster.pods_stay_unready = true;
        cluster.edit(Kind::JOB, "team", "a", &json!({"status": {"ready": 0}}));
    };
    lose(&mut cluster);
    cluster.pass(50);
    assert_eq!(shown(&cluster), is("False", "WaitForRecovery"));
    cluster.pods_stay_unready = false;
    cluster.edit(Kind::JOB, "team", "a", &json!({"status": {"ready": 1}}));
    cluster.pass(5);
    assert_eq!(shown(&cluster), is("True", "Recovered"));
    lose(&mut cluster);
    cluster.pass(50);
    assert!(cluster.is("a", "Admitted"), "it has a minute");
    cluster.pass(15);
    let evicted = cluster.condition("a", "Evicted").unwrap();
    assert_eq!(evicted["reason"], json!("PodsReadyTimeout"), "{evicted}");
    let stats = &cluster.workload_of("a").unwrap()["status"]["schedulingStats"]["evictions"];
    assert_eq!(stats[0]["underlyingCause"], json!("WaitForRecovery"), "{stats}");
}

#[test]
fn priority_boost_orders_waiting_jobs_only_with_gate_on() {
    // A sum of a job's priority and priority boost that exceeds 32 bits counts as higher than the largest priority.
    for (gate, base, first) in [(true, 0, "b"), (true, i32::MAX, "b"), (false, 0, "a")] {
        let mut settings = crate::stories::cluster::settings();
        settings.priority_boost = gate;
        let mut cluster = crate::stories::with_queue(Cluster::with(settings), "1");
        cluster.set_class("base", base);
        cluster.put(Kind::JOB, job("holder", "lq", "1", true));
        cluster.settle();
        for name in ["a", "b"] {
            let mut waits = job(name, "lq", "1", true);
            waits["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("base");
            cluster.put(Kind::JOB, waits);
            cluster.pass(2);
        }
        let name = cluster.workload_of("b").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
        let boost = json!({"metadata": {"annotations": {"kueue.x-k8s.io/priority-boost": "5"}}});
        cluster.edit(Kind::Workload, "team", &name, &boost);
        cluster.settle();
        cluster.complete("holder");
        cluster.settle();
        assert!(cluster.is(first, "Admitted"), "gate {gate}, priority {base}: {first} is first");
    }
}
