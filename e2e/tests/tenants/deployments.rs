//! Writes of a tenant into Deployments. Each of their pods is admitted by itself, and their controllers make each pod again that goes.

use std::time::Duration;

use anyhow::{Context, Result};
use berth_e2e::kinds::{DEPLOYMENT, Kind, POD, items, text};
use berth_e2e::wait::{self, STEP, Seen};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::jobs::QUEUE;
use super::tenant::Tenant;

const REPLICA_SET: Kind = Kind { api_version: "apps/v1", kind: "ReplicaSet", plural: "replicasets", namespaced: true };
/// Label of pods that Berth manages.
const MANAGED: &str = "kueue.x-k8s.io/managed";
/// Annotation of pods that wait because of what makes them.
const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";
/// Number of times that the tenant makes a change which a controller undoes.
const ROUNDS: usize = 5;
/// Pause between two of these tries.
const PAUSE: Duration = Duration::from_millis(300);

/// A Deployment of that many pods of a cpu each, in the queue that borrows. Its pods have the label `app` with its name.
fn deployment(t: &Tenant<'_>, name: &str, replicas: u32) -> Value {
    let app = json!({"app": name});
    json!({"apiVersion": DEPLOYMENT.api_version, "kind": DEPLOYMENT.kind,
        "metadata": {"namespace": t.s.namespace, "name": name, "labels": {QUEUE: "queue"}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": app}, "template": {
            "metadata": {"labels": app},
            "spec": {"terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": "e2e/none", "resources": {"requests": {"cpu": "1"}}}]}}}})
}

/// A Deployment that borrows all that is lent, with its pods on nodes.
pub(crate) fn borrows<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&deployment(t, "d", 2)).await?;
        t.pods_run(2).await
    }
    .boxed()
}

/// Metadata of the template of a Deployment or ReplicaSet, as a patch.
fn in_template(metadata: &Value) -> Value {
    json!({"spec": {"template": {"metadata": metadata}}})
}

/// Metadata that takes the queue and Berth's marks out of a template.
fn without_queue() -> Value {
    json!({"labels": {QUEUE: null, MANAGED: null}, "annotations": {PARENT: null}})
}

/// The names of the pods of a Deployment, running ones first.
async fn pods_of(t: &Tenant<'_>, name: &str) -> Result<Vec<String>> {
    let mut pods = POD.list(&t.s.client, &t.s.namespace).await?;
    pods.retain(|pod| text(pod, "/metadata/labels/app") == name);
    pods.sort_by_key(|pod| text(pod, "/spec/nodeName").is_empty());
    Ok(pods.iter().map(|pod| text(pod, "/metadata/name").to_owned()).collect())
}

/// The ReplicaSets of the namespace, by name.
async fn replica_sets(t: &Tenant<'_>) -> Result<Vec<String>> {
    let sets = REPLICA_SET.list(&t.s.client, &t.s.namespace).await?;
    Ok(sets.iter().map(|set| text(set, "/metadata/name").to_owned()).collect())
}

/// Changes the metadata of the template of each ReplicaSet, over which no review goes.
async fn patch_replica_sets(t: &Tenant<'_>, metadata: &Value) -> Result<()> {
    for set in replica_sets(t).await? {
        t.patch(REPLICA_SET, &set, &in_template(metadata)).await?;
    }
    Ok(())
}

/// Deletes a pod of the Deployment, so that another pod is made by the template as it is now.
async fn one_is_made_anew(t: &Tenant<'_>) -> Result<()> {
    if let Some(pod) = pods_of(t, "d").await?.first() {
        POD.delete(&t.client, &t.s.namespace, pod).await?;
    }
    Ok(())
}

/// The template of the Deployment names no queue any more while its pods run; then the Deployment itself does not.
pub(crate) fn leaves_its_queue<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.patch(DEPLOYMENT, "d", &in_template(&without_queue())).await?;
        t.patch(DEPLOYMENT, "d", &json!({"metadata": {"labels": {QUEUE: null}}})).await?;
        one_is_made_anew(t).await?;
        t.scale(DEPLOYMENT, "d", 4).await.map(drop)
    }
    .boxed()
}

/// The Deployment, its template and its pods name another queue while the pods run.
pub(crate) fn names_another_queue<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let other = json!({"labels": {QUEUE: "none"}});
        t.patch(DEPLOYMENT, "d", &in_template(&other)).await?;
        t.patch(DEPLOYMENT, "d", &json!({"metadata": other})).await?;
        for pod in pods_of(t, "d").await? {
            t.patch(POD, &pod, &json!({"metadata": other})).await?;
        }
        one_is_made_anew(t).await
    }
    .boxed()
}

/// The template of its ReplicaSet, over which no review goes, says nothing of queues any more, and its pods are made anew.
pub(crate) fn its_replica_set_forgets_the_queue<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        for _ in 0..ROUNDS {
            patch_replica_sets(t, &without_queue()).await?;
            one_is_made_anew(t).await?;
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }
    .boxed()
}

/// Pods of the Deployment lose the labels by which they are queued, and those by which the ReplicaSet knows them: the ReplicaSet makes others.
pub(crate) fn pods_are_relabelled<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        for _ in 0..ROUNDS {
            for pod in pods_of(t, "d").await? {
                t.patch(POD, &pod, &json!({"metadata": {"labels": {QUEUE: null}}})).await?;
                t.patch(POD, &pod, &json!({"metadata": {"labels": {MANAGED: null}}})).await?;
                t.patch(POD, &pod, &json!({"metadata": {"labels": {"app": "free"}}})).await?;
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }
    .boxed()
}

/// Deletes an object without what it owns, and waits until the objects of a kind have no owner.
async fn orphan(t: &Tenant<'_>, (kind, name): (Kind, &str), owned: Kind) -> Result<()> {
    t.orphan(kind, name).await?;
    wait::until(STEP, &format!("each {} is nobody's", owned.kind), || async {
        let all = owned.list(&t.s.client, &t.s.namespace).await?;
        let kept = all.iter().filter(|one| !items(one, "/metadata/ownerReferences").is_empty()).count();
        Ok(Seen::when(kept == 0, || format!("{kept} have an owner")))
    })
    .await
}

/// The Deployment is deleted, its ReplicaSet and its pods are left behind, and another Deployment comes.
pub(crate) fn leaves_its_pods_behind<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        orphan(t, (DEPLOYMENT, "d"), REPLICA_SET).await?;
        let sets = replica_sets(t).await?;
        let set = sets.first().context("the ReplicaSet of the Deployment")?;
        orphan(t, (REPLICA_SET, set), POD).await?;
        t.create(&deployment(t, "next", 2)).await.map(drop)
    }
    .boxed()
}

/// The Deployment gets more replicas, by its scale and by its spec, and its new pods are un-gated by hand.
pub(crate) fn grows_and_is_ungated<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.scale(DEPLOYMENT, "d", 4).await?;
        t.patch(DEPLOYMENT, "d", &json!({"spec": {"replicas": 6}})).await?;
        for _ in 0..ROUNDS {
            for pod in pods_of(t, "d").await? {
                // The pod may go between the list and the patch.
                let _ = t.patch(POD, &pod, &json!({"spec": {"schedulingGates": null}})).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }
    .boxed()
}

/// Pods say that a StatefulSet, or something that nobody knows, makes them wait: those that run, those of the template and of the ReplicaSet, and one
/// by itself. The Deployment grows meanwhile.
pub(crate) fn forges_the_parent<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        for parent in ["statefulset", "somebody"] {
            let forged = json!({"annotations": {PARENT: parent}});
            for pod in pods_of(t, "d").await? {
                // The pod's controller may replace the pod between the list and the patch.
                let _ = t.patch(POD, &pod, &json!({"metadata": forged})).await;
            }
            t.patch(DEPLOYMENT, "d", &in_template(&forged)).await?;
            patch_replica_sets(t, &forged).await?;
            one_is_made_anew(t).await?;
            let mut own = deployment(t, parent, 1)["spec"]["template"].take();
            own["apiVersion"] = json!("v1");
            own["kind"] = json!("Pod");
            let labels = json!({"app": parent, QUEUE: "queue"});
            let metadata = json!({"namespace": t.s.namespace, "name": format!("forged-by-{parent}"), "labels": labels});
            own["metadata"] = metadata;
            own["metadata"]["annotations"] = forged["annotations"].clone();
            t.create(&own).await?;
        }
        t.scale(DEPLOYMENT, "d", 5).await.map(drop)
    }
    .boxed()
}
