//! Stories of the crash table: jobs that need a ProvisioningRequest for their capacity, and queues with a QueuePolicy of their own.

use anyhow::Result;
use berth_e2e::autoscaler::{POD_TEMPLATE, PROVISIONING_REQUEST, SCRIPT};
use berth_e2e::kinds::{JOB, QUEUE_POLICY, condition, items, key, text};
use berth_e2e::manifest::{cluster_queue, flavor, group, local_queue, merge, quota};
use berth_e2e::scenario::Scenario;
use berth_e2e::wait::{self, Seen};
use futures::FutureExt;
use serde_json::{Value, json};

use crate::crash::{PATIENCE, StoryRun, comes};

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

/// A queue of one cpu whose jobs need capacity from the autoscaler; the fields of `more` are merged into its spec.
async fn asking_queue(s: &Scenario<'_>, more: &Value) -> Result<()> {
    let (check, config) = (s.name("check"), s.name("config"));
    s.apply(&json!({"apiVersion": KUEUE, "kind": "ProvisioningRequestConfig", "metadata": {"name": config},
        "spec": {"provisioningClassName": "queued.e2e.berth.dev"}}))
        .await?;
    let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": config});
    s.apply(&json!({"apiVersion": KUEUE, "kind": "AdmissionCheck", "metadata": {"name": check},
        "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}}))
        .await?;
    let mut spec = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": check}]}});
    merge(&mut spec, more);
    s.simple_queue("1", &spec).await
}

/// Waits until a job is complete and Berth has deleted its ProvisioningRequest.
async fn runs_and_withdraws(s: &Scenario<'_>) -> Result<()> {
    comes(s, JOB, "train", "Complete", |job| condition(job, "Complete") == "True").await?;
    s.finished("train").await?;
    wait::until(PATIENCE, "no ProvisioningRequest is left", || async {
        let left = PROVISIONING_REQUEST.list(&s.client, &s.namespace).await?;
        Ok(Seen::when(left.is_empty(), || format!("{:?}", left.iter().map(key).collect::<Vec<_>>())))
    })
    .await
}

/// Story: a job gets its capacity from an autoscaler and runs.
pub(crate) fn asks_for_it<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        asking_queue(s, &json!({})).await?;
        s.create(s.job("train").annotation(SCRIPT, "provisioned")).await?;
        runs_and_withdraws(s).await
    }
    .boxed()
}

/// Story: a user has created a PodTemplate with the name that Berth needs for the PodTemplate of the job.
pub(crate) fn name_is_taken<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        asking_queue(s, &json!({"stopPolicy": "Hold"})).await?;
        s.create(s.job("train").annotation(SCRIPT, "provisioned")).await?;
        let workload = s.workload("train", "there", |_| true).await?;
        let request = format!("{}-{}-1", text(&workload, "/metadata/name"), s.name("check"));
        let name = format!("ppt-{request}-main");
        let theirs = json!({"apiVersion": "v1", "kind": "PodTemplate",
            "metadata": {"namespace": s.namespace, "name": name, "labels": {"kueue.x-k8s.io/managed": "true"}},
            "template": {"spec": {"containers": [{"name": "theirs", "image": "example.invalid/nothing"}]}}});
        let theirs = s.apply(&theirs).await?;
        s.edit_queue(&s.name("cq"), &json!({"stopPolicy": "None"})).await?;
        wait::until(PATIENCE, "the template has made room", || async {
            let found = POD_TEMPLATE.get(&s.client, &s.namespace, &name).await?;
            let gone = found.is_none_or(|found| text(&found, "/metadata/uid") != text(&theirs, "/metadata/uid"));
            Ok(Seen::when(gone, || "it is there".to_owned()))
        })
        .await?;
        runs_and_withdraws(s).await
    }
    .boxed()
}

/// Story: a queue has a QueuePolicy, whose status counts the jobs of the queue.
pub(crate) fn has_a_policy<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        let (tier, queue, policy) = (s.name("flavor"), s.name("cq"), s.name("policy"));
        let mut object = flavor(&tier, &[]);
        object["metadata"]["labels"] = json!({"berth.dev/capacity-tier": "on-demand"});
        s.apply(&object).await?;
        s.apply(&cluster_queue(&queue, &[group(&[(&tier, &[quota("cpu", "1")])])], &json!({}))).await?;
        s.apply(&local_queue(&s.namespace, "queue", &queue)).await?;
        s.apply(&json!({"apiVersion": "berth.dev/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": policy},
            "spec": {"clusterQueues": [queue], "capacityTiers": {"default": ["on-demand"]}}}))
            .await?;
        s.create(s.job("governed").endless()).await?;
        s.admitted("governed").await?;
        comes(s, QUEUE_POLICY, &policy, "Active, and told of the job", |p| {
            let counts = |tier: &Value| text(tier, "/tier") == "on-demand" && tier["admittedWorkloads"] == json!(1);
            condition(p, "Active") == "True" && items(p, "/status/tiers").iter().any(counts)
        })
        .await?;
        s.remove("governed").await
    }
    .boxed()
}
