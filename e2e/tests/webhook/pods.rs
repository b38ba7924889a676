//! Pods, Deployments and StatefulSets that name no queue, in a namespace with a LocalQueue called `default`.

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{DEPLOYMENT, Kind, LOCAL_QUEUE, POD, STATEFUL_SET, WORKLOAD, condition, text};
use berth_e2e::manifest;
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use kube::Client;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::webhook::blast::{a_pod_of, gated, runs};
use crate::webhook::{jobs, tables};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// A pod that runs until it is deleted, and names no queue.
fn pod(s: &Scenario<'_>, name: &str) -> Value {
    let container = json!({"name": "main", "image": "e2e/none", "resources": {"requests": {"cpu": "300m"}}});
    json!({"apiVersion": POD.api_version, "kind": POD.kind,
        "metadata": {"namespace": s.namespace, "name": name, "annotations": {"e2e.berth.dev/outcome": "never"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}})
}

/// A Deployment or a StatefulSet with one pod, neither of which names a queue.
fn parent(s: &Scenario<'_>, kind: Kind, name: &str) -> Value {
    let container = json!({"name": "main", "image": "e2e/none", "resources": {"requests": {"cpu": "300m"}}});
    let mut object = json!({"apiVersion": kind.api_version, "kind": kind.kind,
        "metadata": {"namespace": s.namespace, "name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}}});
    if kind == STATEFUL_SET {
        object["spec"]["serviceName"] = json!(name);
    }
    object
}

/// The name of the queue in an object's label.
fn queue(object: &Value) -> &str {
    object["metadata"]["labels"][QUEUE].as_str().unwrap_or_default()
}

/// The pod that the API server would store.
async fn shown(s: &Scenario<'_>, pod: &Value) -> Result<Value> {
    shown_to(&s.client, s, pod).await
}

/// The pod as the API server would store it after all webhooks, found by a dry run of its creation by the client `client`.
async fn shown_to(client: &Client, s: &Scenario<'_>, pod: &Value) -> Result<Value> {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let created = POD.api(client, &s.namespace).create(&params, &serde_json::from_value(pod.clone())?).await?;
    Ok(serde_json::to_value(created)?)
}

/// Checks that Berth leaves pods alone that are admitted with their owners, that have their nodes already, or that a kubelet runs by itself.
async fn left_alone(s: &Scenario<'_>) -> Result<()> {
    let with = |more: Value| {
        let mut pod = pod(s, "shown");
        manifest::merge(&mut pod, &more);
        pod
    };
    let of = |api_version: &str, kind: &str| {
        let owner =
            json!({"apiVersion": api_version, "kind": kind, "name": "owner", "uid": "owner", "controller": true});
        with(json!({"metadata": {"ownerReferences": [owner]}}))
    };
    let mirror =
        with(json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "0"}}, "spec": {"nodeName": "cpu-0"}}));
    let job_controller = s.stage.plane.client_as("system:serviceaccount:kube-system:job-controller").await?;
    let of_job = of("batch/v1", "Job");
    for (client, left) in [(&job_controller, &of_job), (&s.client, &of("apps/v1", "DaemonSet")), (&s.client, &mirror)] {
        let shown = shown_to(client, s, left).await?;
        ensure!(!gated(&shown) && queue(&shown).is_empty(), "{shown}");
    }
    // A user's pod that names a Job as its controller is refused, because Berth would leave the pod to the Job's quota, and so the pod would run without quota.
    let refused = shown(s, &of_job).await.err().context("a pod with a Job as its controller was accepted")?;
    let error = format!("{refused:#}");
    for words in ["mpod-opted-in.berth.dev", "metadata.ownerReferences", "is made by the Job controller alone"] {
        ensure!(error.contains(words), "{error}");
    }
    for given in [of("apps/v1", "ReplicaSet"), of("example.com/v1", "Job")] {
        let shown = shown(s, &given).await?;
        ensure!(gated(&shown) && queue(&shown) == "default", "{shown}");
    }
    Ok(())
}

/// An object that Berth gave a queue keeps it.
async fn queues_stay(s: &Scenario<'_>) -> Result<()> {
    let without = json!({"metadata": {"labels": {QUEUE: null}}});
    s.apply(&pod(s, "waiting")).await?;
    s.workload("waiting", "pending", |w| condition(w, "QuotaReserved") == "False").await?;
    let refused = POD.patch(&s.client, &s.namespace, "waiting", &without).await.err();
    let error = format!("{:#}", refused.context("a pod has lost its queue")?);
    ensure!(error.contains("vpod.berth.dev") && error.contains(&format!("metadata.labels[{QUEUE}]")), "{error}");
    for (kind, name) in [(DEPLOYMENT, "web"), (STATEFUL_SET, "numbered")] {
        let replaced = kind.patch(&s.client, &s.namespace, name, &without).await?;
        ensure!(queue(&replaced) == "default", "{name}: {}", replaced["metadata"]["labels"]);
    }
    Ok(())
}

/// A LocalQueue called `default` takes pods, Deployments and StatefulSets that name no queue. Deployments and StatefulSets that existed before the
/// LocalQueue get its name for the pods that they create later.
pub(crate) async fn default_queue(stage: &Stage) -> Result<()> {
    let s = stage.scenario("default-queue-pods").await?;
    s.simple_queue("1", &json!({})).await?;
    s.apply(&parent(&s, DEPLOYMENT, "early")).await?;
    a_pod_of(&s, "early", "running", runs).await?;
    s.apply(&manifest::local_queue(&s.namespace, "default", &s.name("cq"))).await?;
    jobs::opted_in(&s, true).await?;

    let plain = s.apply(&pod(&s, "plain")).await?;
    ensure!(queue(&plain) == "default" && gated(&plain), "{plain}");
    let web = s.apply(&parent(&s, DEPLOYMENT, "web")).await?;
    let template = &web["spec"]["template"];
    ensure!(queue(&web) == "default" && queue(template) == "default", "{web}");
    let numbered = s.apply(&parent(&s, STATEFUL_SET, "numbered")).await?;
    let template = &numbered["spec"]["template"];
    ensure!(queue(&numbered) == "default" && queue(template).is_empty(), "{numbered}");
    let waits = &template["metadata"]["annotations"]["kueue.x-k8s.io/pod-suspending-parent"];
    ensure!(waits == "statefulset", "{template}");
    s.object_is(POD, "plain", "running", runs).await?;
    a_pod_of(&s, "web", "running in its queue", |pod| runs(pod) && queue(pod) == "default").await?;
    a_pod_of(&s, "numbered", "running", runs).await?;
    let workloads = WORKLOAD.list(&s.client, &s.namespace).await?;
    let queues: Vec<&str> = workloads.iter().map(|workload| text(workload, "/spec/queueName")).collect();
    ensure!(queues == ["default"; 3], "{queues:?}");

    left_alone(&s).await?;
    queues_stay(&s).await?;
    let change = json!({"metadata": {"annotations": {"a": "b"}}});
    let early = DEPLOYMENT.patch(&s.client, &s.namespace, "early", &change).await?;
    ensure!(queue(&early).is_empty() && queue(&early["spec"]["template"]).is_empty(), "{early}");
    for pod in POD.list(&s.client, &s.namespace).await? {
        if text(&pod, "/metadata/labels/app") == "early" {
            ensure!(runs(&pod) && queue(&pod).is_empty(), "it runs as before: {pod}");
            POD.delete(&s.client, &s.namespace, text(&pod, "/metadata/name")).await?;
        }
    }
    a_pod_of(&s, "early", "waiting in the queue", |pod| gated(pod) && queue(pod) == "default").await?;

    tables::clear(&s).await?;
    wait::until(STEP, "no pods are left", || async {
        let left = POD.list(&s.client, &s.namespace).await?.len();
        Ok(Seen::when(left == 0, || format!("{left} pods")))
    })
    .await?;
    LOCAL_QUEUE.delete(&s.client, &s.namespace, "default").await?;
    jobs::opted_in(&s, false).await?;
    let after = s.apply(&pod(&s, "after")).await?;
    ensure!(queue(&after).is_empty() && !gated(&after), "{after}");
    POD.delete(&s.client, &s.namespace, "after").await?;
    s.conclude().await
}
