//! Jobs that are managed without a queue, and the fields that a Workload takes over from its job and from its priority class.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use berth_e2e::jobset::JOBSET;
use berth_e2e::kinds::{JOB, Kind, POD, WORKLOAD_PRIORITY_CLASS, condition, items, text};
use berth_e2e::manager;
use berth_e2e::manifest::{Job, priority_class};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use kube::api::PostParams;
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const CLASS: &str = "kueue.x-k8s.io/priority-class";
const GATE: &str = "kueue.x-k8s.io/admission";

/// The spec of a pod whose container requests little cpu.
fn pods() -> Value {
    json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "e2e/none", "resources": {"requests": {"cpu": "100m"}}}]})
}

/// A JobSet of one pod that is not suspended.
pub(super) fn job_set(s: &Scenario<'_>, name: &str, labels: &Value) -> Value {
    json!({"apiVersion": JOBSET.api_version, "kind": JOBSET.kind,
        "metadata": {"namespace": s.namespace, "name": name, "labels": labels},
        "spec": {"suspend": false, "replicatedJobs": [{"name": "job", "template": {"spec": {"template": {"spec": pods()}}}}]}})
}

/// A JobSet without a queue: the webhook stores it suspended, and it starts after it names a queue.
async fn job_set_without_queue(s: &Scenario<'_>) -> Result<()> {
    let plain = job_set(s, "plain-set", &json!({}));
    let params = PostParams { dry_run: true, ..PostParams::default() };
    // The API server learns a moment later that Berth manages the new namespace.
    wait::until(STEP, "JobSets without a queue are suspended when they are created", || async {
        let asked = serde_json::from_value(plain.clone())?;
        let shown = JOBSET.api(&s.client, &s.namespace).create(&params, &asked).await?;
        Ok(Seen::when(shown.data["spec"]["suspend"] == json!(true), || shown.data["spec"]["suspend"].to_string()))
    })
    .await?;
    s.apply(&plain).await?;
    let workload = s.workload("plain-set", "made", |_| true).await?;
    ensure!(workload["spec"].get("queueName").is_none_or(|name| name == ""), "{}", workload["spec"]["queueName"]);
    wait::stays(Duration::from_millis(1_500), "the JobSet waits", || async {
        let set = JOBSET.get(&s.client, &s.namespace, "plain-set").await?.unwrap_or_default();
        Ok(Seen::when(set["spec"]["suspend"] == json!(true), || set["spec"]["suspend"].to_string()))
    })
    .await?;
    let named = json!({"metadata": {"labels": {QUEUE: "queue"}}});
    JOBSET.patch(&s.client, &s.namespace, "plain-set", &named).await?;
    s.workload("plain-set", "Admitted", |w| condition(w, "Admitted") == "True").await?;
    s.object_is(JOBSET, "plain-set", "started", |set| set["spec"]["suspend"] == json!(false)).await?;
    JOBSET.delete(&s.client, &s.namespace, "plain-set").await
}

/// A pod without a queue: the webhook stores it with a scheduling gate, and it starts after it names a queue.
async fn pod_without_queue(s: &Scenario<'_>) -> Result<()> {
    let gated = |pod: &Value| items(pod, "/spec/schedulingGates").iter().any(|gate| text(gate, "/name") == GATE);
    let metadata =
        json!({"namespace": s.namespace, "name": "plain-pod", "annotations": {"e2e.berth.dev/run-ms": "300"}});
    let plain = json!({"apiVersion": POD.api_version, "kind": POD.kind, "metadata": metadata, "spec": pods()});
    let stored = s.apply(&plain).await?;
    ensure!(gated(&stored), "{stored}");
    let workload = s.workload("plain-pod", "made", |_| true).await?;
    ensure!(workload["spec"].get("queueName").is_none_or(|name| name == ""), "{}", workload["spec"]["queueName"]);
    wait::stays(Duration::from_millis(1_500), "the pod waits", || async {
        let pod = POD.get(&s.client, &s.namespace, "plain-pod").await?.unwrap_or_default();
        Ok(Seen::when(gated(&pod), || pod["spec"].to_string()))
    })
    .await?;
    let named = json!({"metadata": {"labels": {QUEUE: "queue"}}});
    POD.patch(&s.client, &s.namespace, "plain-pod", &named).await?;
    s.object_is(POD, "plain-pod", "succeeded", |pod| text(pod, "/status/phase") == "Succeeded").await?;
    POD.delete(&s.client, &s.namespace, "plain-pod").await
}

/// In a namespace that Berth manages, a job that names no queue waits until it names one.
pub(crate) async fn without_queue(stage: &Stage) -> Result<()> {
    let s = stage.scenario("without-queue").await?;
    s.simple_queue("1", &json!({})).await?;
    s.create(Job::new(&s.namespace, "plain", "")).await?;
    let workload = s.workload("plain", "made", |_| true).await?;
    ensure!(workload["spec"].get("queueName").is_none_or(|name| name == ""), "{}", workload["spec"]["queueName"]);
    s.stays_pending("plain").await?;
    JOB.patch(&s.client, &s.namespace, "plain", &json!({"metadata": {"labels": {QUEUE: "queue"}}})).await?;
    s.finished("plain").await?;
    job_set_without_queue(&s).await?;
    pod_without_queue(&s).await?;
    s.conclude().await
}

/// In a namespace that Berth does not manage, jobs run as they are.
pub(crate) async fn left_alone(stage: &Stage) -> Result<()> {
    let s = stage.scenario("left-alone").await?;
    s.simple_queue("0", &json!({})).await?;
    for (name, queue) in [("plain", ""), ("queued", "queue")] {
        s.create(Job::new(&s.namespace, name, queue).spec(&json!({"suspend": false}))).await?;
        s.job_is(name, "Complete", |job| condition(job, "Complete") == "True").await?;
        let workload = s.workload_of(name).await?;
        ensure!(workload.is_none(), "{name} has a Workload: {workload:?}");
    }
    for (name, labels) in [("plain-set", json!({})), ("queued-set", json!({QUEUE: "queue"}))] {
        s.apply(&job_set(&s, name, &labels)).await?;
    }
    wait::stays(Duration::from_millis(1_500), "JobSets are left as they are", || async {
        let sets = JOBSET.list(&s.client, &s.namespace).await?;
        let touched: Vec<&str> = sets
            .iter()
            .filter(|set| set["spec"]["suspend"] != json!(false))
            .map(|set| text(set, "/metadata/name"))
            .collect();
        Ok(Seen::when(sets.len() == 2 && touched.is_empty(), || format!("{touched:?} of {} are suspended", sets.len())))
    })
    .await?;
    for name in ["plain-set", "queued-set"] {
        let workload = s.workload_of(name).await?;
        ensure!(workload.is_none(), "{name} has a Workload: {workload:?}");
        JOBSET.delete(&s.client, &s.namespace, name).await?;
    }
    s.conclude().await
}

/// Only the configuration file sets the addresses of the metrics and of the probe, the lease, and the rate of writes. Every scenario on the control plane of
/// the suite `life` shows that the manager has the two addresses, because the tests send requests to them.
pub(crate) async fn configured_by_file(stage: &Stage) -> Result<()> {
    const JOBS: usize = 8;
    let s = stage.scenario("told-by-file").await?;
    s.simple_queue("8", &json!({})).await?;
    // A manager is ready before it leads, so the test waits for the leader.
    manager::wait_for_leader(&s.client).await?;
    let lease = Kind::of(&json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}))?;
    let held = lease.list(&s.client, manager::NAMESPACE).await?;
    let names: Vec<&str> = held.iter().map(|lease| text(lease, "/metadata/name")).collect();
    ensure!(names == ["e2e-lease"], "leases: {held:?}");
    let begun = Instant::now();
    let names: Vec<String> = (0..JOBS).map(|index| format!("job-{index}")).collect();
    for name in &names {
        s.create(s.job(name).endless()).await?;
    }
    for name in &names {
        s.admitted(name).await?;
    }
    // Each job needs three writes of Berth (creation of its Workload, reservation of its quota, and its start), and Berth may make ten writes a second. Without
    // the configured limit on the rate of writes, Berth's writes for the eight jobs take about half a second.
    let (took, least) = (begun.elapsed(), Duration::from_secs(2));
    ensure!(took >= least, "{} writes took {took:?}, and must take {least:?} at least", 3 * JOBS);
    s.conclude().await
}

/// The labels that the configuration names are copied from a Job, a JobSet and a pod to their Workloads, and other labels are not.
pub(crate) async fn labels_copied(stage: &Stage) -> Result<()> {
    const PROJECT: &str = "e2e.berth.dev/project";
    const OTHER: &str = "e2e.berth.dev/other";
    let s = stage.scenario("labels-copied").await?;
    s.simple_queue("2", &json!({})).await?;
    s.create(s.job("first").label(PROJECT, "vision").label(OTHER, "x")).await?;
    let labels = json!({QUEUE: "queue", PROJECT: "vision", OTHER: "x"});
    s.apply(&job_set(&s, "set", &labels)).await?;
    let annotations = json!({"e2e.berth.dev/run-ms": "300"});
    s.apply(&json!({"apiVersion": POD.api_version, "kind": POD.kind, "spec": pods(),
        "metadata": {"namespace": s.namespace, "name": "pod", "labels": labels, "annotations": annotations}}))
        .await?;
    for name in ["first", "set", "pod"] {
        let workload = s.workload(name, "Admitted", |w| condition(w, "Admitted") == "True").await?;
        let labels = &workload["metadata"]["labels"];
        ensure!(labels[PROJECT] == "vision" && labels.get(OTHER).is_none(), "{name}: {labels}");
    }
    s.finished("first").await?;
    s.object_is(POD, "pod", "succeeded", |pod| text(pod, "/status/phase") == "Succeeded").await?;
    POD.delete(&s.client, &s.namespace, "pod").await?;
    JOBSET.delete(&s.client, &s.namespace, "set").await?;
    s.conclude().await
}

/// Priority classes: the class `default` for jobs that name no class, a class whose value changes, and a change of a waiting job's class.
pub(crate) async fn priority_classes(stage: &Stage) -> Result<()> {
    let s = stage.scenario("classes").await?;
    s.simple_queue("1", &json!({})).await?;
    let (low, high) = (s.name("low"), s.name("high"));
    s.apply(&priority_class(&low, 10)).await?;
    s.apply(&priority_class(&high, 100)).await?;
    let of = |workload: &Value, class: &str, value: i32| {
        workload["spec"]["priority"] == json!(value) && workload["spec"]["priorityClassRef"]["name"] == json!(class)
    };
    s.create(s.job("holder").label(CLASS, &high).endless()).await?;
    s.admitted("holder").await?;
    let created = s.create(s.job("plain").endless()).await?;
    ensure!(created["metadata"]["labels"][CLASS] == "default", "{}", created["metadata"]["labels"]);
    s.workload("plain", "the priority of the class `default`", |w| of(w, "default", 5)).await?;
    s.create(s.job("climber").label(CLASS, &low).endless()).await?;
    s.workload("climber", "the priority of its class", |w| of(w, &low, 10)).await?;
    // A new value of a WorkloadPriorityClass changes the priority of a waiting and of a running Workload of the class.
    for (class, value, job) in [(&low, 20, "climber"), (&high, 200, "holder")] {
        WORKLOAD_PRIORITY_CLASS.patch(&s.client, "", class, &json!({"value": value})).await?;
        s.workload(job, "the new value of its class", |w| of(w, class, value)).await?;
    }
    JOB.patch(&s.client, &s.namespace, "plain", &json!({"metadata": {"labels": {CLASS: high}}})).await?;
    s.workload("plain", "the priority of its new class", |w| of(w, &high, 200)).await?;
    s.remove("holder").await?;
    s.admitted("plain").await?;
    s.pending("climber").await?;
    for job in ["plain", "climber"] {
        s.remove(job).await?;
    }
    wait::stays(Duration::from_millis(500), "nothing comes back", || async {
        Ok(Seen::when(s.workload_of("plain").await?.is_none(), String::new))
    })
    .await?;
    s.conclude().await
}
