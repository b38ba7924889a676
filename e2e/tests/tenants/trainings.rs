//! Attacks on the quota by writes of a tenant into TrainingJobs and their Jobs.

use std::time::Duration;

use anyhow::Result;
use berth_e2e::kinds::{JOB, TRAINING_JOB};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::tenant::Tenant;

/// Creates a TrainingJob that borrows all quota that other queues lend; its pods have the annotations `annotations` and a grace period of `grace`
/// seconds.
async fn run(t: &Tenant<'_>, annotations: Value, grace: u32) -> Result<()> {
    let pods = json!({"metadata": {"annotations": annotations},
        "spec": {"terminationGracePeriodSeconds": grace, "containers": [{"name": "main", "image": "train"}]}});
    t.create(&json!({"apiVersion": TRAINING_JOB.api_version, "kind": TRAINING_JOB.kind,
        "metadata": {"namespace": t.s.namespace, "name": "t"},
        "spec": {"jobType": "PyTorchJob", "resources": {"maxReplicas": 2, "replicaResources": {"cpu": "1"}},
            "schedulingConfig": {"queue": "queue"}, "template": pods}}))
        .await?;
    t.pods_run(2).await
}

/// Creates a TrainingJob that borrows all quota that other queues lend, and waits until its pods are on nodes.
pub(crate) fn borrows<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    run(t, json!({"e2e.berth.dev/outcome": "never"}), 1).boxed()
}

/// Creates a TrainingJob that borrows all quota that other queues lend; its pods have a grace period of a minute and end after twenty seconds.
pub(crate) fn borrows_and_lingers<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    run(t, json!({"e2e.berth.dev/outcome": "never", "e2e.berth.dev/termination-ms": "20000"}), 60).boxed()
}

/// Attack F9: the Job of the TrainingJob is deleted again and again, and is recreated while the pods of the deleted Job end.
pub(crate) fn its_job_is_deleted_again_and_again<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        for _ in 0..4 {
            JOB.delete(&t.client, &t.s.namespace, "t-worker").await?;
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        Ok(())
    }
    .boxed()
}

/// Attack: the Job of the TrainingJob becomes its own controller, so that the TrainingJob does not control it any more.
pub(crate) fn its_job_names_another_controller<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move { t.put_below((JOB, "t-worker"), (JOB, "t-worker")).await.map(drop) }.boxed()
}

/// Attack: the tenant makes the Job of the TrainingJob larger.
pub(crate) fn its_job_grows<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.patch(JOB, "t-worker", &json!({"spec": {"parallelism": 20, "completions": 20}})).await?;
        Ok(())
    }
    .boxed()
}
