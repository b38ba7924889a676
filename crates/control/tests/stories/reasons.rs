//! The order in which many waiting Workloads get the reason for their waiting in their status.

use berth_control::write::{EventType, Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job};
use crate::stories::groups::member;
use crate::stories::{one_queue, pod_queue};

/// The greatest number of reasons that control writes at once.
const AT_ONCE: usize = 60;

/// Names of the Workloads whose reasons were written, in the order of the writes.
fn reported_names(cluster: &Cluster) -> Vec<&str> {
    let explains = |purpose: &Purpose| [Purpose::ExplainPending, Purpose::ExplainUnseen].contains(purpose);
    let writes = cluster.writes.iter().filter(|(purpose, _)| explains(purpose));
    writes.map(|(_, key)| key.name.as_str()).collect()
}

#[test]
fn pending_reasons_are_written_to_one_workload_per_class_first() {
    let mut cluster = one_queue("1");
    // Jobs of two classes of equals; no job of either class ever fits.
    for (class, cpu) in [("a", "2"), ("b", "3")] {
        for number in 0..50 {
            let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
            let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
            let sets = json!([{"name": "main", "count": 1, "template": template}]);
            let name = format!("{class}-{number:02}");
            let spec = json!({"queueName": "lq", "active": true, "podSets": sets});
            let metadata = json!({"namespace": "team", "name": name});
            cluster.put(Kind::Workload, json!({"metadata": metadata, "spec": spec}));
        }
    }
    cluster.settle();
    let mut first: Vec<&str> = reported_names(&cluster).into_iter().take(2).map(|name| &name[..1]).collect();
    first.sort_unstable();
    assert_eq!(first, ["a", "b"], "one of each class: {:?}", reported_names(&cluster));
    assert_eq!(reported_names(&cluster).len(), AT_ONCE, "no more than that at one moment");
    cluster.pass(10);
    let mut all = reported_names(&cluster);
    assert_eq!(all.len(), 100);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 100, "each once");
    assert_eq!(cluster.count(Purpose::ExplainPending), 2, "one of each class was looked at");
    cluster.pass(300);
    assert_eq!(reported_names(&cluster).len(), 100, "and nothing again while nothing changes");
}

/// Type, reason and message of the events of a job or pod about its waiting.
fn job_events(cluster: &Cluster, kind: Kind, name: &str) -> Vec<(EventType, String, String)> {
    let waits = ["WaitingForQuota", "ExceedsMaxQuota", "Suspended", "Misconfigured"];
    let is_it = |notice: &&berth_control::write::Notice| {
        (notice.key.kind, notice.key.name.as_str()) == (kind, name) && waits.contains(&notice.reason.as_str())
    };
    let notices = cluster.notices.iter().filter(is_it);
    notices.map(|notice| (notice.event_type, notice.reason.clone(), notice.message.clone())).collect()
}

fn reasons(cluster: &Cluster) -> Vec<String> {
    job_events(cluster, Kind::JOB, "a").into_iter().map(|(_, reason, _)| reason).collect()
}

#[test]
fn waiting_job_gets_event_with_first_pending_reason() {
    let mut cluster = pod_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "2", true));
    cluster.put(Kind::JOB, job("lost", "nowhere", "1", true));
    for name in ["p", "q"] {
        cluster.put(Kind::Pod, member(name, "3", 2, &[]));
    }
    let mut alone = member("alone", "4", 1, &[]);
    for part in ["labels", "annotations"] {
        if let Some(Value::Object(marks)) = alone["metadata"].get_mut(part) {
            marks.retain(|key, _| !key.starts_with("kueue.x-k8s.io/pod-group"));
        }
    }
    cluster.put(Kind::Pod, alone);
    let mut set = crate::stories::names::job_set("s");
    set["spec"]["replicatedJobs"][0]["replicas"] = json!(5);
    cluster.put(Kind::JOB_SET, set);
    cluster.put(Kind::TrainingJob, crate::stories::training::training("t", json!({"resources": {"maxReplicas": 8}})));
    cluster.put(Kind::StatefulSet, crate::stories::groups::set(7));
    cluster.pass(5);
    for (kind, name, event_type, reason, part) in [
        (Kind::JOB, "a", EventType::Normal, "ExceedsMaxQuota", "current podset request (2) > maximum capacity (1)"),
        (Kind::JOB, "lost", EventType::Warning, "Misconfigured", "LocalQueue nowhere doesn't exist"),
        (Kind::Pod, "p", EventType::Normal, "ExceedsMaxQuota", "(6) > maximum capacity (1)"),
        (Kind::Pod, "alone", EventType::Normal, "ExceedsMaxQuota", "(4) > maximum capacity (1)"),
        (Kind::JOB_SET, "s", EventType::Normal, "ExceedsMaxQuota", "(5) > maximum capacity (1)"),
        (Kind::TrainingJob, "t", EventType::Normal, "ExceedsMaxQuota", "(8) > maximum capacity (1)"),
        (Kind::StatefulSet, "web", EventType::Normal, "ExceedsMaxQuota", "(7) > maximum capacity (1)"),
    ] {
        let reported = job_events(&cluster, kind, name);
        assert!(
            matches!(reported.as_slice(), [one] if one.0 == event_type && one.1 == reason && one.2.contains(part)),
            "{name}: {reported:?}"
        );
    }
    assert!(job_events(&cluster, Kind::Pod, "q").is_empty(), "the first pod speaks for the group");
}

#[test]
fn waiting_job_gets_one_event_per_reason_five_minutes_apart() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "2", true));
    cluster.pass(100);
    assert_eq!(reasons(&cluster), ["ExceedsMaxQuota"]);
    // The job is no longer too large, but the queue is full.
    cluster.put(Kind::JOB, job("runs", "lq", "1", true));
    cluster.pass(3);
    let quota = |cpu: &str| {
        json!({"spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
        {"name": "default", "resources": [{"name": "cpu", "nominalQuota": cpu}]}]}]}})
    };
    cluster.edit(Kind::ClusterQueue, "", "cq", &quota("2"));
    cluster.pass(100);
    let found_condition = cluster.condition("a", "QuotaReserved").unwrap();
    assert_eq!(found_condition["reason"], json!("WaitingForQuota"), "its Workload knows it: {found_condition}");
    assert_eq!(reasons(&cluster), ["ExceedsMaxQuota"]);
    cluster.pass(120);
    assert_eq!(reasons(&cluster), ["ExceedsMaxQuota", "WaitingForQuota"]);
    cluster.pass(1000);
    assert_eq!(reasons(&cluster).len(), 2, "{:?}", reasons(&cluster));
}

#[test]
fn pending_reason_events_are_five_minutes_apart_across_a_restart() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "2", true));
    cluster.pass(10);
    cluster.restart();
    cluster.pass(3);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "Hold"}}));
    cluster.pass(100);
    assert_eq!(reasons(&cluster), ["ExceedsMaxQuota"]);
    cluster.pass(300);
    assert_eq!(reasons(&cluster).len(), 2, "{:?}", reasons(&cluster));
}

#[test]
fn pending_reason_event_is_not_repeated_after_restart_or_admission() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "2", true));
    cluster.pass(10);
    cluster.restart();
    cluster.pass(400);
    assert_eq!(reasons(&cluster), ["ExceedsMaxQuota"]);
    // The reason why the job waits changes, and the job is admitted before the next event about the reason is due.
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "Hold"}}));
    cluster.pass(10);
    cluster.edit(Kind::JOB, "team", "a", &json!({"spec": {"template": job("a", "lq", "1", true)["spec"]["template"]}}));
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "None"}}));
    cluster.pass(10);
    assert!(cluster.is("a", "Admitted"), "{:?}", cluster.writes);
    let reported = reasons(&cluster).len();
    cluster.pass(600);
    assert_eq!(reasons(&cluster).len(), reported);
}
