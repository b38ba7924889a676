//! Jobs with admission gates (annotation admission-gated-by) or preemption gates, and the metrics of waiting jobs.

use berth_control::measure::Measure;
use berth_control::settings::Settings;
use berth_control::write::{EventType, Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::checks::{answer, rely_on_budget};
use crate::stories::cluster::{Cluster, flavor, job, local_queue, made_before, settings};
use crate::stories::{one_queue, with_queue};

const GATES: &str = "kueue.x-k8s.io/admission-gated-by";

fn gated(mut object: Value, names: &str) -> Value {
    object["metadata"]["annotations"] = json!({ GATES: names });
    object
}

fn says(cluster: &Cluster, name: &str) -> (String, String) {
    let condition = cluster.condition(name, "QuotaReserved").unwrap_or_default();
    let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("message"))
}

fn messages_of(cluster: &Cluster, reason: &str) -> Vec<(EventType, String)> {
    let notices = cluster.notices.iter().filter(|notice| notice.reason == reason);
    notices.map(|notice| (notice.event_type, notice.message.clone())).collect()
}

#[test]
fn gated_job_is_admitted_when_its_last_admission_gate_clears() {
    let mut cluster = one_queue("2");
    cluster.put(Kind::JOB, gated(job("held", "lq", "1", true), "a.io/one,b.io/two"));
    cluster.put(Kind::JOB, job("free", "lq", "1", true));
    cluster.settle();
    assert!(cluster.is("free", "Admitted"), "it stands in nobody's way");
    assert_eq!(says(&cluster, "held"), ("AdmissionGated".into(), "Admission is gated by: a.io/one,b.io/two".into()));
    let event = "Workload admission is gated by: a.io/one,b.io/two".to_owned();
    assert_eq!(messages_of(&cluster, "AdmissionGated"), [(EventType::Normal, event)]);
    let annotated = |names: Value| json!({"metadata": {"annotations": {GATES: names}}});
    cluster.edit(Kind::JOB, "team", "held", &annotated(json!("b.io/two")));
    cluster.settle();
    assert_eq!(cluster.workload_of("held").unwrap()["metadata"]["annotations"][GATES], json!("b.io/two"));
    assert_eq!(says(&cluster, "held").1, "Admission is gated by: b.io/two");
    cluster.edit(Kind::JOB, "team", "held", &annotated(Value::Null));
    cluster.settle();
    assert!(cluster.is("held", "Admitted"), "{}", cluster.workload_of("held").unwrap());
    let event = "Admission gate cleared, workload is now admissible".to_owned();
    assert_eq!(messages_of(&cluster, "AdmissionGateCleared"), [(EventType::Normal, event)]);
    let written = cluster.writes.len();
    cluster.pass(60);
    assert!(cluster.writes.len() <= written + 4, "queue statuses at most: {:?}", &cluster.writes[written..]);
}

#[test]
fn ungated_job_without_free_quota_waits_like_any_pending_job() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("first", "lq", "1", true));
    cluster.settle();
    cluster.put(Kind::JOB, gated(job("held", "lq", "1", true), "a.io/one"));
    cluster.settle();
    cluster.edit(Kind::JOB, "team", "held", &json!({"metadata": {"annotations": {GATES: ""}}}));
    let mut on_the_way = Vec::new();
    loop {
        let step = cluster.control.step(cluster.now());
        if step.tasks.is_empty() {
            break;
        }
        cluster.take(step);
        on_the_way.push(says(&cluster, "held"));
    }
    let free = ("PendingEvaluation".to_owned(), "AdmissionGatedBy cleared, waiting for quota reservation".to_owned());
    assert!(on_the_way.contains(&free), "{on_the_way:?}");
    assert_eq!(messages_of(&cluster, "AdmissionGateCleared").len(), 1);
    cluster.pass(120);
    assert_eq!(says(&cluster, "held").0, "WaitingForQuota");
    assert_eq!(messages_of(&cluster, "AdmissionGateCleared").len(), 1);
    cluster.complete("first");
    cluster.pass(5);
    assert!(cluster.is("held", "Admitted"));
}

#[test]
fn gated_job_is_admitted_when_admission_gates_are_disabled() {
    let mut settings = settings();
    settings.admission_gates = false;
    let mut cluster = with_queue(Cluster::with(settings), "1");
    cluster.put(Kind::JOB, gated(job("a", "lq", "1", true), "a.io/one"));
    cluster.settle();
    assert!(cluster.is("a", "Admitted"));
}

#[test]
fn prebuilt_workload_keeps_its_own_admission_gates() {
    let mut cluster = one_queue("1");
    let mut workload = json!({"metadata": {"namespace": "team", "name": "before"},
        "spec": {"queueName": "lq", "active": true, "podSets": [{"name": "main", "count": 1, "template":
            job("x", "lq", "1", true)["spec"]["template"]}]}});
    workload["metadata"]["annotations"] = json!({GATES: "a.io/one"});
    cluster.put(Kind::Workload, workload);
    let mut made = job("a", "lq", "1", true);
    made["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("before");
    cluster.put(Kind::JOB, made);
    cluster.settle();
    assert_eq!(says(&cluster, "a").0, "AdmissionGated");
    cluster.edit(Kind::Workload, "team", "before", &json!({"metadata": {"annotations": {GATES: null}}}));
    cluster.settle();
    assert!(cluster.is("a", "Admitted"), "{}", cluster.workload_of("a").unwrap());
}

#[test]
fn gated_pods_and_training_jobs_get_no_quota_until_cleared() {
    let mut cluster = crate::stories::pod_queue("9");
    cluster.put(Kind::Pod, gated(crate::stories::pods::pod("p", "1"), "a.io/one"));
    cluster.put(Kind::TrainingJob, gated(crate::stories::training::training("t", json!({})), "a.io/one,b.io/two"));
    cluster.settle();
    let reserved = |cluster: &Cluster| cluster.count(Purpose::ReserveQuota);
    assert_eq!((reserved(&cluster), messages_of(&cluster, "AdmissionGated").len()), (0, 2), "{:?}", cluster.writes);
    let free = json!({"metadata": {"annotations": {GATES: null}}});
    cluster.edit(Kind::Pod, "team", "p", &free);
    cluster.settle();
    assert_eq!(reserved(&cluster), 1);
    cluster.edit(Kind::TrainingJob, "team", "t", &json!({"metadata": {"annotations": {GATES: "a.io/one"}}}));
    cluster.settle();
    assert_eq!(reserved(&cluster), 1);
    cluster.edit(Kind::TrainingJob, "team", "t", &free);
    cluster.settle();
    assert_eq!(reserved(&cluster), 2, "{:?}", cluster.writes);
}

fn unadmitted(cluster: &Cluster, metric: &str) -> Vec<(String, f64)> {
    let figures = cluster.control.figures();
    let found = figures.gauges.into_iter().filter(|gauge| gauge.name == metric);
    let label = |(key, value): &(&str, String)| format!("{key}={value}");
    found.map(|gauge| (gauge.labels.iter().map(label).collect::<Vec<_>>().join(","), gauge.value)).collect()
}

#[test]
fn unadmitted_workloads_metric_counts_pending_jobs_by_cause() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("runs", "lq", "1", true));
    cluster.settle();
    cluster.put(Kind::JOB, gated(job("held", "lq", "1", true), "a.io/one"));
    cluster.put(Kind::JOB, job("large", "lq", "2", true));
    cluster.pass(5);
    let queue = |cause: &str| format!("cluster_queue=cq,reason=NoReservation,underlying_cause={cause}");
    let expected = [(queue("AdmissionGated"), 1.0), (queue("ExceedsMaxQuota"), 1.0)];
    assert_eq!(unadmitted(&cluster, "kueue_unadmitted_workloads"), expected);
    let expected = expected.map(|(labels, count)| (format!("name=lq,namespace=team,{labels}"), count));
    assert_eq!(unadmitted(&cluster, "kueue_local_queue_unadmitted_workloads"), expected);
    cluster.edit(Kind::JOB, "team", "held", &json!({"metadata": {"annotations": {GATES: null}}}));
    cluster.complete("runs");
    cluster.pass(5);
    assert_eq!(unadmitted(&cluster, "kueue_unadmitted_workloads"), [(queue("ExceedsMaxQuota"), 1.0)]);
}

#[test]
fn gated_job_counts_as_pending_only_after_gate_clears() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, gated(job("held", "lq", "3", true), "a.io/one"));
    cluster.put(Kind::JOB, job("large", "lq", "2", true));
    let counted = |cluster: &Cluster| {
        let of = |kind: Kind, namespace: &str, name: &str| {
            cluster.objects()[&Cluster::key(kind, namespace, name)]["status"]["pendingWorkloads"].clone()
        };
        let sum = |metric: &str| unadmitted(cluster, metric).iter().map(|(_, value)| value).sum::<f64>();
        let metrics =
            ["kueue_pending_workloads", "kueue_local_queue_pending_workloads", "kueue_cluster_queue_resource_pending"];
        (of(Kind::ClusterQueue, "", "cq"), of(Kind::LocalQueue, "team", "lq"), metrics.map(sum))
    };
    cluster.pass(10);
    assert_eq!(says(&cluster, "held").0, "AdmissionGated");
    assert_eq!(counted(&cluster), (json!(1), json!(1), [1.0, 1.0, 2.0]));
    cluster.edit(Kind::JOB, "team", "held", &json!({"metadata": {"annotations": {GATES: null}}}));
    cluster.pass(10);
    assert_eq!(counted(&cluster), (json!(2), json!(2), [2.0, 2.0, 5.0]));
}

#[test]
fn pending_workload_without_unadmitted_observation_shows_older_kueue_reasons() {
    let mut cluster = with_queue(Cluster::with(Settings { observe_unadmitted: false, ..settings() }), "1");
    cluster.put(Kind::JOB, job("runs", "lq", "1", true));
    cluster.settle();
    cluster.put(Kind::JOB, job("large", "lq", "2", true));
    cluster.pass(5);
    assert_eq!(says(&cluster, "large").0, "Pending");
    assert_eq!(cluster.condition("large", "Admitted"), None, "it never was admitted");
    // Berth makes the event with the reason `Pending` twice: about the Workload and about its job.
    assert_eq!((messages_of(&cluster, "Pending").len(), messages_of(&cluster, "ExceedsMaxQuota").len()), (2, 0));
    cluster.pass(120);
    assert_eq!(cluster.count(Purpose::ExplainPending), 1, "it knows");

    let name = cluster.workload_of("runs").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
    cluster.pass(10);
    assert_eq!(says(&cluster, "runs").0, "Pending");
    assert_eq!(cluster.condition("runs", "Admitted").unwrap_or_default()["reason"], json!("NoReservation"));

    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "Hold"}}));
    cluster.pass(70);
    assert_eq!(says(&cluster, "large"), ("Inadmissible".into(), "ClusterQueue cq is inactive".into()));
}

#[test]
fn reservation_without_unadmitted_observation_sets_no_admitted_condition() {
    let mut cluster = Cluster::with(Settings { observe_unadmitted: false, ..settings() });
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({})));
    rely_on_budget(&mut cluster, &[("default", "1")], json!([]));
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(5);
    assert!(cluster.is("a", "QuotaReserved"));
    assert_eq!(cluster.condition("a", "Admitted"), None);
    let name = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    answer(&mut cluster, &name, "Ready");
    cluster.pass(5);
    assert!(cluster.is("a", "Admitted"));
    answer(&mut cluster, &name, "Retry");
    cluster.pass(10);
    let admitted = cluster.condition("a", "Admitted").unwrap_or_default();
    assert_eq!((&admitted["status"], &admitted["reason"]), (&json!("False"), &json!("NoReservationUnsatisfiedChecks")));
}

fn observed(cluster: &mut Cluster, metric: &str) -> Vec<(String, i64)> {
    let measures = cluster.control.drain_measures().into_iter().filter_map(|measure| match measure {
        Measure::Observe { name, labels, millis } if name == metric => {
            let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            Some((labels.join(","), millis))
        }
        _ => None,
    });
    measures.collect()
}

#[test]
fn workload_creation_latency_is_measured_only_for_unchanged_jobs() {
    let metric = "kueue_workload_creation_latency_seconds";
    let mut cluster = crate::stories::pod_queue("9");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.set_now(cluster.now().checked_add(jiff::SignedDuration::from_millis(1500)).unwrap());
    cluster.settle();
    assert_eq!(observed(&mut cluster, metric), [("job_kind=Job".to_owned(), 1500)]);
    // The job was created running: Berth's suspension of this job is a change of the job, so that no latency of the Workload's creation is measured.
    cluster.put(Kind::JOB, job("b", "lq", "1", false));
    cluster.edit(Kind::JOB, "team", "b", &json!({"metadata": {"generation": 2}}));
    cluster.settle();
    assert_eq!(observed(&mut cluster, metric), []);
    cluster.put(Kind::Pod, crate::stories::pods::pod("p", "1"));
    cluster.settle();
    // The creation time of a pod has full seconds only, so that the fraction of the second in which the pod is created counts as latency.
    assert_eq!(observed(&mut cluster, metric), [("job_kind=Pod".to_owned(), 500)]);
}

#[test]
fn scheduling_gate_removal_is_measured_once_per_pod() {
    let metric = "kueue_pod_scheduling_gate_removal_seconds";
    let mut cluster = crate::stories::pod_queue("9");
    cluster.put(Kind::Pod, crate::stories::pods::pod("p", "1"));
    cluster.settle();
    let labels = "name=kueue.x-k8s.io/admission,cluster_queue=cq,is_group=false".to_owned();
    assert_eq!(observed(&mut cluster, metric), [(labels, 0)]);
    cluster.pass(5);
    assert_eq!(observed(&mut cluster, metric), []);
}

/// The reason and the status of the condition `BlockedOnPreemptionGates`, and the position of the preemption gate.
fn blocked(cluster: &Cluster) -> (String, String) {
    let condition = cluster.condition("urgent", "BlockedOnPreemptionGates").unwrap_or_default();
    let gates = cluster.workload_of("urgent").expect("its Workload")["status"]["preemptionGates"].clone();
    assert!(gates.as_array().is_none_or(|gates| gates.len() <= 1), "{gates}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (format!("{} {}", text(&condition["status"]), text(&condition["reason"])), text(&gates[0]["position"]))
}

#[test]
fn workload_with_closed_preemption_gate_preempts_only_after_it_opens() {
    let mut cluster = with_queue(Cluster::with(Settings { preemption_gates: true, ..settings() }), "1");
    let preempts = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
    cluster.edit(Kind::ClusterQueue, "", "cq", &preempts);
    cluster.put(Kind::JOB, job("low", "lq", "1", true));
    cluster.pass(3);
    let mut urgent = job("urgent", "lq", "1", true);
    let mut workload = made_before(&urgent["spec"]["template"]);
    workload["spec"]["priority"] = json!(100);
    workload["spec"]["preemptionGates"] = json!([{"name": "example.com/gate"}]);
    cluster.put(Kind::Workload, workload);
    urgent["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("before");
    cluster.put(Kind::JOB, urgent);
    cluster.pass(600);
    assert!(cluster.is("low", "Admitted"), "nobody is preempted for who is gated");
    assert_eq!(blocked(&cluster), ("True PreemptionGated".to_owned(), "Closed".to_owned()));
    assert_eq!(says(&cluster, "urgent").0, "AdmissionGated");
    assert_eq!(cluster.count(Purpose::SyncPreemptionGates), 1);

    // The client that opens the preemption gate writes the status of the Workload.
    let mut opened = cluster.workload_of("urgent").unwrap().clone();
    opened["status"]["preemptionGates"][0]["position"] = json!("Open");
    cluster.put(Kind::Workload, opened);
    cluster.pass(10);
    assert!(cluster.is("low", "Preempted"), "{:?}", cluster.workload_of("low"));
    assert!(cluster.is("urgent", "Admitted"), "{:?}", cluster.workload_of("urgent"));
    assert_eq!(blocked(&cluster), ("False QuotaReserved".to_owned(), "Open".to_owned()));
}
