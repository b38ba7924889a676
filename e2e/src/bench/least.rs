//! The fewest writes that a queueing operator outside of the API server needs for a Job: the wall time of these writes is the time of an operator whose
//! decisions, watches and events cost nothing.
//!
//! A Job that was created suspended needs a Workload, the status that admits the Workload, and the start of the Job; if other Jobs wait for its
//! quota, also the status that finishes the Workload. The benchmark sends these writes without a pause, with Kueue's objects and in Berth's form: no
//! operator runs, no Job waits for quota, and no event, queue status or finalizer is written. The measured time includes the work of the
//! controller-manager for a Job that it sees suspended (a fourth status write, two more events); on a busy machine the Job is started before the
//! controller-manager sees it suspended. A watch of Workloads is open during the measurement, as an operator has one.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use super::feed::Feed;
use super::floor;
use super::jobs::{self, Running};
use super::plane::{self, Bed};
use crate::manifest::Job;

#[derive(Deserialize)]
struct Created {
    metadata: Uid,
    spec: Spec,
}

#[derive(Deserialize)]
struct Uid {
    uid: String,
}

#[derive(Deserialize)]
struct Spec {
    template: Value,
}

/// Runs `count` Jobs by the fewest writes; the Workload of every second Job is finished within the run. Returns the time until all Jobs are complete.
///
/// # Errors
/// Fails if the API server refuses a request or Jobs do not end.
pub async fn run(bed: &Bed, namespace: &str, count: usize) -> Result<Duration> {
    let mut feed = Feed::start(&bed.client, "/apis/kueue.x-k8s.io/v1beta2/workloads").await?;
    let drain = tokio::spawn(async move { while feed.next().await.is_ok() {} });
    let admit = |n: usize| {
        let (client, namespace) = (bed.client.clone(), namespace.to_owned());
        async move { admit(&client, &namespace, n).await }
    };
    let end = |n: usize| {
        let (client, namespace) = (bed.client.clone(), namespace.to_owned());
        async move { if n.is_multiple_of(2) { end(&client, &namespace, n).await } else { Ok(()) } }
    };
    let wall = jobs::complete(bed, Running { namespace, total: count, create: admit, complete: end }).await;
    drain.abort();
    wall
}

async fn admit(client: &Client, namespace: &str, n: usize) -> Result<()> {
    let (job, queue) = (jobs::name(n), jobs::queue(n));
    let path = jobs::path(namespace);
    let body = serde_json::to_vec(&Job::new(namespace, &job, &queue).manifest())?;
    let request = http::Request::post(&path).header(http::header::CONTENT_TYPE, "application/json").body(body)?;
    let created: Created = client.request(request).await.with_context(|| format!("creating job {job}"))?;
    let workload = workload(namespace, n, &created);
    plane::create(client, &format!("{}?fieldManager=kueue", plane::workloads(namespace)), &workload).await?;
    apply_status(client, namespace, n, &admitted(&queue)).await?;
    plane::send(
        client,
        "PATCH",
        &format!("{path}/{job}"),
        "application/merge-patch+json",
        &json!({"spec": {"suspend": false}}),
    )
    .await
}

async fn end(client: &Client, namespace: &str, n: usize) -> Result<()> {
    let mut conditions = admitted(&jobs::queue(n));
    conditions.push(floor::condition("Finished", "True", "Succeeded", "Reached expected number of succeeded pods"));
    apply_status(client, namespace, n, &conditions).await
}

/// Applies all status fields of the field manager `kueue-admission`: the admission and the conditions `conditions`.
async fn apply_status(client: &Client, namespace: &str, n: usize, conditions: &[Value]) -> Result<()> {
    let name = workload_name(n);
    let status = json!({"admission": floor::admission(&jobs::queue(n), "1"), "conditions": conditions});
    let path = format!("{}/{name}/status", plane::workloads(namespace));
    plane::apply(client, &path, "kueue-admission", &floor::status(namespace, &name, &status)).await
}

fn workload_name(n: usize) -> String {
    format!("job-{}-00000", jobs::name(n))
}

/// The Workload that Berth creates for the Job `job`.
fn workload(namespace: &str, n: usize, job: &Created) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {
            "name": workload_name(n), "namespace": namespace,
            "labels": {"kueue.x-k8s.io/job-uid": job.metadata.uid},
            "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": jobs::name(n), "uid": job.metadata.uid,
                "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {
            "active": true, "priority": 0, "queueName": jobs::queue(n),
            "podSets": [{"name": "main", "count": 1, "template": {"spec": job.spec.template["spec"]}}],
        },
    })
}

/// The conditions of an admitted Workload, with Berth's reasons and messages.
fn admitted(queue: &str) -> Vec<Value> {
    vec![
        floor::condition("QuotaReserved", "True", "QuotaReserved", &format!("Quota reserved in ClusterQueue {queue}")),
        floor::condition("Admitted", "True", "Admitted", "The workload is admitted"),
        floor::condition("PodsReady", "False", "WaitForStart", "Not all pods are ready or succeeded"),
    ]
}
