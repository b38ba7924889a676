//! Writes of a tenant into TrainingJobs and their Jobs.

use anyhow::Result;
use berth_e2e::kinds::{JOB, TRAINING_JOB};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;

use super::tenant::Tenant;

/// A TrainingJob that borrows all that is lent, with its pods on nodes.
pub(crate) fn borrows<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let pods = json!({"metadata": {"annotations": {"e2e.berth.dev/outcome": "never"}},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": "train"}]}});
        t.create(&json!({"apiVersion": TRAINING_JOB.api_version, "kind": TRAINING_JOB.kind,
            "metadata": {"namespace": t.s.namespace, "name": "t"},
            "spec": {"jobType": "PyTorchJob", "resources": {"maxReplicas": 2, "replicaResources": {"cpu": "1"}},
                "schedulingConfig": {"queue": "queue"}, "template": pods}}))
            .await?;
        t.pods_run(2).await
    }
    .boxed()
}

/// Its Job becomes its own controller, so that nobody would stop it.
pub(crate) fn its_job_names_another_controller<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move { t.put_below((JOB, "t-worker"), (JOB, "t-worker")).await.map(drop) }.boxed()
}

/// Its Job is made larger.
pub(crate) fn its_job_grows<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.patch(JOB, "t-worker", &json!({"spec": {"parallelism": 20, "completions": 20}})).await?;
        Ok(())
    }
    .boxed()
}
