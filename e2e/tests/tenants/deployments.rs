//! Attacks on the quota by writes of a tenant into Deployments and their ReplicaSets. Berth admits each pod of a Deployment by itself, and the ReplicaSet
//! creates another pod for each pod that is deleted.

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
/// Annotation of a pod whose Deployment or StatefulSet Berth manages: the kind of that parent, because of which the pod waits for quota.
const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";
/// Number of times that the tenant repeats a change that a controller undoes.
const ROUNDS: usize = 5;
/// Pause before the tenant repeats a change that a controller undoes.
const PAUSE: Duration = Duration::from_millis(300);

/// A Deployment of `replicas` pods of one cpu each in the LocalQueue that borrows. The Deployment's pods have the label `app` with the Deployment's name.
fn deployment(t: &Tenant<'_>, name: &str, replicas: u32) -> Value {
    let app = json!({"app": name});
    json!({"apiVersion": DEPLOYMENT.api_version, "kind": DEPLOYMENT.kind,
        "metadata": {"namespace": t.s.namespace, "name": name, "labels": {QUEUE: "queue"}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": app}, "template": {
            "metadata": {"labels": app},
            "spec": {"terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": "e2e/none", "resources": {"requests": {"cpu": "1"}}}]}}}})
}

/// Creates the Deployment `d`, which borrows all quota that other queues lend, and waits until its two pods are on nodes.
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

/// Metadata for a merge patch that removes the queue's name and Berth's own label and annotation from a pod template.
fn without_queue() -> Value {
    json!({"labels": {QUEUE: null, MANAGED: null}, "annotations": {PARENT: null}})
}

/// The names of the pods of a Deployment; pods with a node come before pods without one.
async fn pods_of(t: &Tenant<'_>, name: &str) -> Result<Vec<String>> {
    let mut pods = POD.list(&t.s.client, &t.s.namespace).await?;
    pods.retain(|pod| text(pod, "/metadata/labels/app") == name);
    pods.sort_by_key(|pod| text(pod, "/spec/nodeName").is_empty());
    Ok(pods.iter().map(|pod| text(pod, "/metadata/name").to_owned()).collect())
}

/// The names of all ReplicaSets in the tenant's namespace.
async fn replica_sets(t: &Tenant<'_>) -> Result<Vec<String>> {
    let sets = REPLICA_SET.list(&t.s.client, &t.s.namespace).await?;
    Ok(sets.iter().map(|set| text(set, "/metadata/name").to_owned()).collect())
}

/// Changes the metadata of each ReplicaSet's pod template as the tenant; Berth has no webhook that reviews ReplicaSets.
async fn patch_replica_sets(t: &Tenant<'_>, metadata: &Value) -> Result<()> {
    for set in replica_sets(t).await? {
        t.patch(REPLICA_SET, &set, &in_template(metadata)).await?;
    }
    Ok(())
}

/// Deletes a pod of the Deployment as the tenant, so that the ReplicaSet creates another pod from its present template.
async fn one_is_made_anew(t: &Tenant<'_>) -> Result<()> {
    if let Some(pod) = pods_of(t, "d").await?.first() {
        POD.delete(&t.client, &t.s.namespace, pod).await?;
    }
    Ok(())
}

/// Attack: the tenant removes the queue's name from the Deployment's pod template while its pods run, then from the Deployment itself, and scales the
/// Deployment up.
pub(crate) fn leaves_its_queue<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.patch(DEPLOYMENT, "d", &in_template(&without_queue())).await?;
        t.patch(DEPLOYMENT, "d", &json!({"metadata": {"labels": {QUEUE: null}}})).await?;
        one_is_made_anew(t).await?;
        t.scale(DEPLOYMENT, "d", 4).await.map(drop)
    }
    .boxed()
}

/// Attack: the tenant writes the name of another queue into the Deployment, its pod template and its pods while the pods run.
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

/// Attack: the tenant removes the queue's name from the template of the Deployment's ReplicaSet, which no webhook reviews, and deletes pods, so that the
/// ReplicaSet creates new ones.
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

/// Attack: the tenant removes from the Deployment's pods the labels by which Berth queues them, and changes the label by which the ReplicaSet selects them, so
/// that the ReplicaSet creates other pods.
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

/// Deletes an object as the tenant without its dependants, and waits until all objects of the kind `owned` have no owner.
async fn orphan(t: &Tenant<'_>, (kind, name): (Kind, &str), owned: Kind) -> Result<()> {
    t.orphan(kind, name).await?;
    wait::until(STEP, &format!("each {} is nobody's", owned.kind), || async {
        let all = owned.list(&t.s.client, &t.s.namespace).await?;
        let kept = all.iter().filter(|one| !items(one, "/metadata/ownerReferences").is_empty()).count();
        Ok(Seen::when(kept == 0, || format!("{kept} have an owner")))
    })
    .await
}

/// Attack: the tenant deletes the Deployment and its ReplicaSet, leaves the pods behind, and creates another Deployment.
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

/// Attack: the tenant gives the Deployment more replicas, by the subresource `scale` and by the spec, and removes the scheduling gates of the new pods.
pub(crate) fn grows_and_is_ungated<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.scale(DEPLOYMENT, "d", 4).await?;
        t.patch(DEPLOYMENT, "d", &json!({"spec": {"replicas": 6}})).await?;
        for _ in 0..ROUNDS {
            for pod in pods_of(t, "d").await? {
                // The pod may be gone between the list and the patch, so a failed patch is ignored.
                let _ = t.patch(POD, &pod, &json!({"spec": {"schedulingGates": null}})).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }
    .boxed()
}

/// Attack: the tenant writes another kind of parent (StatefulSet, or an unknown kind) into Berth's annotation of running pods, of the templates of Deployment
/// and ReplicaSet, and of a new pod without an owner. At the end the tenant scales the Deployment up.
pub(crate) fn forges_the_parent<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        for parent in ["statefulset", "somebody"] {
            let forged = json!({"annotations": {PARENT: parent}});
            for pod in pods_of(t, "d").await? {
                // The pod's controller may replace the pod between the list and the patch, so a failed patch is ignored.
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
