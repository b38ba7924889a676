//! Fields that decide whether or where a job may run and that Berth does not support yet. A job with an unsupported field waits, and its message
//! names the field; other jobs of its queue go on, and the job is admitted when the field is gone.

use anyhow::{Result, ensure};
use berth_e2e::kinds::{CLUSTER_QUEUE, JOB, LOCAL_QUEUE, WORKLOAD, condition, condition_object, text};
use berth_e2e::manifest::{Job, merge};
use berth_e2e::scenario::{Scenario, Stage};
use futures::future::try_join_all;
use serde_json::{Value, json};

const TOPOLOGY: &str = "kueue.x-k8s.io/podset-required-topology";
const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";

/// A Workload that is created before the job of the same name; `spec` is merged into its spec, and `set` into its pod set.
fn made_before(job: &Job, spec: &Value, set: &Value) -> Value {
    let job = job.manifest();
    let mut pods = json!({"name": "main", "count": 1, "template": job["spec"]["template"]});
    merge(&mut pods, set);
    let mut object = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"namespace": job["metadata"]["namespace"], "name": job["metadata"]["name"]},
        "spec": {"queueName": "queue", "active": true, "podSets": [pods]},
    });
    merge(&mut object["spec"], spec);
    object
}

/// Waits until the job's Workload has no quota, with the reason `reason` and a message that begins with `message`.
async fn waits(s: &Scenario<'_>, job: &str, reason: &str, message: &str) -> Result<()> {
    s.workload(job, &format!("QuotaReserved=False, {reason}: {message}"), |workload| {
        let found_condition = condition_object(workload, "QuotaReserved").cloned().unwrap_or_default();
        condition(workload, "QuotaReserved") == "False"
            && text(&found_condition, "/reason") == reason
            && text(&found_condition, "/message").starts_with(message)
    })
    .await
    .map(drop)
}

/// Waits until the ClusterQueue's condition Active has the status `status` and a message that contains `message`, and the LocalQueue's condition has
/// the same status.
async fn active(s: &Scenario<'_>, status: &str, message: &str) -> Result<()> {
    s.object_is(CLUSTER_QUEUE, &s.name("cq"), &format!("Active={status}: {message}"), |queue| {
        let found_condition = condition_object(queue, "Active").cloned().unwrap_or_default();
        condition(queue, "Active") == status && text(&found_condition, "/message").contains(message)
    })
    .await?;
    s.object_is(LOCAL_QUEUE, "queue", &format!("Active={status}"), |queue| condition(queue, "Active") == status)
        .await?;
    Ok(())
}

pub(crate) async fn held(stage: &Stage) -> Result<()> {
    let s = stage.scenario("unsupported").await?;
    s.simple_queue("8", &json!({})).await?;
    s.create(s.job("running").endless()).await?;
    s.admitted("running").await?;
    workloads(&s).await?;
    queue(&s).await?;
    s.conclude().await
}

/// Tests four unsupported fields of jobs and Workloads in one queue.
async fn workloads(s: &Scenario<'_>) -> Result<()> {
    let [gates, placed] = ["gates", "placed"].map(|name| s.job(name).label(PREBUILT, name));
    s.create(s.job("topology").pod_annotation(TOPOLOGY, "example.com/rack")).await?;
    let claims = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]});
    s.create(s.job("claims").pod_spec(&claims)).await?;
    let gate = json!({"preemptionGates": [{"name": "example.com/gate"}]});
    s.apply(&made_before(&gates, &gate, &json!({}))).await?;
    s.create(gates.clone()).await?;
    let place = json!({"topologyRequest": {"required": "example.com/rack"}});
    s.apply(&made_before(&placed, &json!({}), &place)).await?;
    s.create(placed.clone()).await?;
    let held = [
        ("topology", "spec.podSets[0].topologyRequest"),
        ("claims", "spec.podSets[0].template.spec.resourceClaims"),
        ("gates", "spec.preemptionGates"),
        ("placed", "spec.podSets[0].topologyRequest"),
    ];
    for (name, field) in held {
        waits(s, name, "Misconfigured", &format!("{field} is not supported yet")).await?;
    }
    // The jobs with unsupported fields do not block other jobs, and no pod of them is created.
    s.create(s.job("free")).await?;
    s.finished("free").await?;
    try_join_all(held.map(|(name, _)| s.stays_pending(name))).await?;
    for (name, _) in held {
        let pods = s.pods_of(name).await?.len();
        ensure!(pods == 0, "job {name} waits and has {pods} pods");
    }
    let annotation = json!({"spec": {"template": {"metadata": {"annotations": {(TOPOLOGY): null}}}}});
    JOB.patch(&s.client, &s.namespace, "topology", &annotation).await?;
    s.finished("topology").await?;
    for (name, job) in [("gates", &gates), ("placed", &placed)] {
        s.apply(&made_before(job, &json!({}), &json!({}))).await?;
        s.finished(name).await?;
        s.remove(name).await?;
        WORKLOAD.delete(&s.client, &s.namespace, name).await?;
    }
    // The API server does not allow to remove the resource claims of a Job, so the Job has to be created again.
    let without = json!({"spec": {"template": {"spec": {"resourceClaims": null}}}});
    let refused = JOB.patch(&s.client, &s.namespace, "claims", &without).await;
    let refused = refused.err().map(|e| format!("{e:#}")).unwrap_or_default();
    ensure!(refused.contains("immutable"), "claims of a Job were taken away: {refused:?}");
    s.remove("claims").await?;
    s.create(s.job("claims")).await?;
    s.finished("claims").await
}

/// Tests an unsupported field of the ClusterQueue itself: the queue admits no Workload, and stops no running Workload.
async fn queue(s: &Scenario<'_>) -> Result<()> {
    let policy = json!({"concurrentAdmissionPolicy": {"migration": {"mode": "TryPreferredFlavors"}}});
    s.simple_queue("8", &policy).await?;
    active(s, "False", "spec.concurrentAdmissionPolicy is not supported").await?;
    s.create(s.job("late")).await?;
    waits(
        s,
        "late",
        "Suspended",
        &format!("ClusterQueue {} is inactive: spec.concurrentAdmissionPolicy is not supported", s.name("cq")),
    )
    .await?;
    s.stays_pending("late").await?;
    let running = s.get_job("running").await?;
    ensure!(running["spec"]["suspend"] == json!(false), "the running job was stopped");
    s.simple_queue("8", &json!({})).await?;
    active(s, "True", "").await?;
    s.finished("late").await
}
