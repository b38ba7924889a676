//! Events about a job and its Workload from their creation to their end: object, type and reason. The expected lists of events are equal to the events that
//! Kueue makes.

use berth_control::write::{EventType, Kind};
use serde_json::json;

use crate::stories::cluster::{Cluster, job};
use crate::stories::groups::member;
use crate::stories::{one_queue, pod_queue};

/// An event: the kind of its object, its type, and its reason.
type EventKey = (Kind, EventType, &'static str);

const CREATED: EventKey = (Kind::JOB, EventType::Normal, "CreatedWorkload");
const JOB_WAITS: EventKey = (Kind::JOB, EventType::Normal, "WaitingForQuota");
const WAITS: EventKey = (Kind::Workload, EventType::Warning, "WaitingForQuota");
const UPDATED: EventKey = (Kind::JOB, EventType::Normal, "UpdatedWorkload");
const RESERVED: EventKey = (Kind::Workload, EventType::Normal, "QuotaReserved");
const ADMITTED: EventKey = (Kind::Workload, EventType::Normal, "Admitted");
const STARTED: EventKey = (Kind::JOB, EventType::Normal, "Started");
const STOPPED: EventKey = (Kind::JOB, EventType::Normal, "Stopped");
const DELETED: EventKey = (Kind::JOB, EventType::Normal, "DeletedWorkload");
const FINISHED: EventKey = (Kind::JOB, EventType::Normal, "FinishedWorkload");

/// Different events about jobs, pods and Workloads since the notice `start`, in the order of their first occurrence.
fn events_since(cluster: &Cluster, start: usize) -> Vec<(Kind, EventType, &str)> {
    let mut all: Vec<(Kind, EventType, &str)> = Vec::new();
    for notice in &cluster.notices[start..] {
        let one = (notice.key.kind, notice.event_type, notice.reason.as_str());
        if [Kind::JOB, Kind::Pod, Kind::Workload].contains(&one.0) && !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

/// The texts of the events of a reason.
fn texts<'a>(cluster: &'a Cluster, reason: &str) -> Vec<&'a str> {
    cluster.notices.iter().filter(|notice| notice.reason == reason).map(|notice| notice.message.as_str()).collect()
}

#[test]
fn job_emits_events_of_kueue_from_creation_to_finish() {
    let mut cluster = one_queue("2");
    cluster.put(Kind::JOB, job("holder", "lq", "2", true));
    cluster.settle();
    let start = cluster.notices.len();
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(5);
    let containers = job("a", "lq", "2", true)["spec"]["template"]["spec"]["containers"].clone();
    cluster.edit(Kind::JOB, "team", "a", &json!({"spec": {"template": {"spec": {"containers": containers}}}}));
    cluster.pass(5);
    assert_eq!(events_since(&cluster, start), [CREATED, WAITS, JOB_WAITS, UPDATED]);
    let name = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    let words = format!("Updated not matching Workload for suspended job: team/{name}");
    assert_eq!(texts(&cluster, "UpdatedWorkload"), [words]);
    cluster.complete("holder");
    cluster.pass(5);
    let start = cluster.notices.iter().position(|notice| notice.reason == "FinishedWorkload").unwrap() + 1;
    cluster.complete("a");
    cluster.pass(5);
    assert_eq!(events_since(&cluster, start), [RESERVED, ADMITTED, STARTED, FINISHED]);
    assert_eq!(texts(&cluster, "FinishedWorkload")[1], format!("Workload 'team/{name}' is declared finished"));
}

#[test]
fn running_job_with_edited_pod_count_emits_deleted_workload_event() {
    let mut cluster = one_queue("2");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(5);
    let name = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.edit(Kind::JOB, "team", "a", &json!({"spec": {"parallelism": 2, "completions": 2}}));
    cluster.pass(20);
    assert_eq!(events_since(&cluster, 0), [CREATED, RESERVED, ADMITTED, STARTED, STOPPED, DELETED]);
    assert_eq!(texts(&cluster, "DeletedWorkload"), [format!("Deleted not matching Workload: team/{name}")]);
}

#[test]
fn workload_beyond_maximum_execution_time_emits_warning_event() {
    let mut cluster = one_queue("1");
    let mut limited = job("a", "lq", "1", true);
    limited["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("10");
    cluster.put(Kind::JOB, limited);
    cluster.pass(30);
    let exceeded = (Kind::Workload, EventType::Warning, "MaximumExecutionTimeExceeded");
    let evicted = "EvictedDueToDeactivatedDueToMaximumExecutionTimeExceeded";
    let evicted = (Kind::Workload, EventType::Normal, evicted);
    assert_eq!(events_since(&cluster, 0), [CREATED, RESERVED, ADMITTED, STARTED, exceeded, evicted, STOPPED]);
    assert_eq!(texts(&cluster, "MaximumExecutionTimeExceeded"), ["The maximum execution time (10s) exceeded"]);
}

#[test]
fn workload_update_for_new_priority_class_or_gate_emits_event() {
    const GATES: &str = "kueue.x-k8s.io/admission-gated-by";
    let mut cluster = one_queue("1");
    for (class, value) in [("low", 1), ("high", 9)] {
        cluster.set_class(class, value);
    }
    cluster.put(Kind::JOB, job("holder", "lq", "1", true));
    let mut object = job("a", "lq", "1", true);
    object["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("low");
    object["metadata"]["annotations"] = json!({GATES: "example.com/a,example.com/b"});
    cluster.put(Kind::JOB, object);
    cluster.pass(5);
    let name = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    let high = json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}});
    cluster.edit(Kind::JOB, "team", "a", &high);
    cluster.pass(5);
    cluster.edit(Kind::JOB, "team", "a", &json!({"metadata": {"annotations": {GATES: "example.com/b"}}}));
    cluster.pass(5);
    assert_eq!(cluster.workload_of("a").unwrap()["spec"]["priority"], json!(9));
    let class = format!("Updated workload priority class: team/{name}");
    assert_eq!(texts(&cluster, "UpdatedWorkload"), [&*class, "Updated workload AdmissionGatedBy to \"example.com/b\""]);
}

#[test]
fn pod_group_emits_events_of_kueue_from_creation_to_finish() {
    let mut cluster = pod_queue("2");
    cluster.put(Kind::Pod, member("a", "1", 2, &[]));
    cluster.put(Kind::Pod, member("b", "1", 2, &[]));
    cluster.settle();
    let of_pod = |reason| (Kind::Pod, EventType::Normal, reason);
    let begun = [of_pod("CreatedWorkload"), RESERVED, ADMITTED, of_pod("Started")];
    assert_eq!(events_since(&cluster, 0), begun);
    let start = cluster.notices.len();
    cluster.end_pod("a", "Failed");
    cluster.settle();
    cluster.put(Kind::Pod, member("c", "1", 2, &[]));
    cluster.settle();
    cluster.end_pod("b", "Succeeded");
    cluster.end_pod("c", "Succeeded");
    cluster.settle();
    let owners = (Kind::Workload, EventType::Normal, "OwnerReferencesAdded");
    let mut message = events_since(&cluster, start);
    // The order of the two events about the pod that is added to the group depends on which write of control is answered first: the start of the pod, or the
    // owner reference.
    message.sort_by_key(|(_, _, reason)| *reason);
    assert_eq!(message, [of_pod("FinishedWorkload"), owners, of_pod("Started")]);
    assert_eq!(texts(&cluster, "OwnerReferencesAdded"), ["Added 1 owner reference(s)"]);
    assert_eq!(texts(&cluster, "FinishedWorkload"), ["Workload 'team/g' is declared finished"]);
}
