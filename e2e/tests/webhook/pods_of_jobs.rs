//! The labels and owner references by which Berth charges the pods of jobs stay until the pods have ended, whoever removes them; all other fields may
//! change.

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{JOB, POD, WORKLOAD, text};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use serde_json::{Value, json};

/// The name of a job's only pod.
async fn pod_of(s: &Scenario<'_>, job: &str) -> Result<String> {
    s.nodes_of(job, 1).await?;
    let pods = s.pods_of(job).await?;
    Ok(text(pods.first().context("no pod")?, "/metadata/name").to_owned())
}

/// The message with which a change of a pod is refused.
async fn refused(s: &Scenario<'_>, pod: &str, change: &Value) -> Result<String> {
    let answer = POD.patch(&s.client, &s.namespace, pod, change).await;
    let error = format!("{:#}", answer.err().with_context(|| format!("stored: {change}"))?);
    ensure!(error.contains("vpod-of-job.berth.dev") && error.contains("until the pod has ended"), "{change}: {error}");
    Ok(error)
}

pub(crate) async fn keep_what_they_are_counted_by(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("pods-of-jobs").await?;
    let s = &scenario;
    s.simple_queue("2", &json!({})).await?;
    s.create(s.job("runs").endless()).await?;
    let pod = pod_of(s, "runs").await?;
    for key in ["kueue.x-k8s.io/podset", "batch.kubernetes.io/controller-uid", "controller-uid", "job-name"] {
        let error = refused(s, &pod, &json!({"metadata": {"labels": {key: null}}})).await?;
        ensure!(error.contains(&format!("metadata.labels[{key}]")), "{error}");
    }
    refused(s, &pod, &json!({"metadata": {"labels": {"kueue.x-k8s.io/managed": "true"}}})).await?;
    refused(s, &pod, &json!({"metadata": {"annotations": {"kueue.x-k8s.io/workload": "other"}}})).await?;
    refused(s, &pod, &json!({"metadata": {"ownerReferences": null}})).await?;
    let shown = POD.get(&s.client, &s.namespace, &pod).await?.context("the pod is gone")?;
    let mut renamed = shown["metadata"]["ownerReferences"].clone();
    renamed[0]["name"] = json!("other");
    refused(s, &pod, &json!({"metadata": {"ownerReferences": renamed}})).await?;
    refused(s, &pod, &json!({"metadata": {"finalizers": null}})).await?;
    let own = json!({"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}});
    POD.patch(&s.client, &s.namespace, &pod, &own).await?;

    // Kubernetes' controllers may remove the owner reference nevertheless: the Job is deleted without its pods, and Berth follows the pod by its
    // labels.
    s.stage.plane.kubectl(&["-n", &s.namespace, "delete", "job", "runs", "--cascade=orphan"]).await?;
    wait::until(STEP, "the pod has no controller, and the job is gone", || async {
        let pod = POD.get(&s.client, &s.namespace, &pod).await?.unwrap_or_default();
        let gone = JOB.get(&s.client, &s.namespace, "runs").await?.is_none();
        Ok(Seen::when(gone && pod["metadata"]["ownerReferences"].is_null(), || pod["metadata"].to_string()))
    })
    .await?;
    refused(s, &pod, &json!({"metadata": {"labels": {"batch.kubernetes.io/controller-uid": null}}})).await?;
    // The Workload has no owner now, and Berth would delete it after nothing of the job runs.
    s.delete_all(&[POD, WORKLOAD]).await?;
    scenario.conclude().await
}
