//! Attacks on the quota by writes of a tenant into pods, and into kinds that are made of pods.

use std::time::Duration;

use anyhow::Result;
use berth_e2e::kinds::{JOB, POD, STATEFUL_SET, condition};
use berth_e2e::manifest;
use berth_e2e::wait::{self, STEP, Seen};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::tenant::Tenant;

/// A pod of the tenant in the LocalQueue that borrows.
fn pod(t: &Tenant<'_>, name: &str, cpu: &str, more: &Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": t.s.namespace, "name": name, "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "e2e/none", "resources": {"requests": {"cpu": cpu}}}]}});
    manifest::merge(&mut pod, more);
    pod
}

/// A pod of a pod group of `total` pods.
fn member(t: &Tenant<'_>, name: &str, cpu: &str, total: u32) -> Value {
    pod(
        t,
        name,
        cpu,
        &json!({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "g"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": total.to_string()}}}),
    )
}

/// Removes the scheduling gates of a pod as the tenant.
async fn ungate(t: &Tenant<'_>, name: &str) -> Result<bool> {
    t.patch(POD, name, &json!({"spec": {"schedulingGates": null}})).await
}

/// Creates a pod that borrows all quota that other queues lend.
pub(crate) fn borrows<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&pod(t, "t", "2", &json!({}))).await?;
        t.pods_run(1).await
    }
    .boxed()
}

/// Creates a pod group of two equal pods and waits until it runs.
pub(crate) fn group<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&member(t, "a", "1", 2)).await?;
        t.create(&member(t, "b", "1", 2)).await?;
        t.pods_run(2).await
    }
    .boxed()
}

/// Creates a pod group of one pod and waits until the pod runs.
pub(crate) fn group_of_one<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&member(t, "p1", "2", 1)).await?;
        t.pods_run(1).await
    }
    .boxed()
}

/// Attack F6: the tenant removes the gates of a pod that is too many or too large for its pod group.
pub(crate) fn excess_is_ungated<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        for (name, cpu) in [("c", "1"), ("large", "5")] {
            if t.create(&member(t, name, cpu, 2)).await? {
                ungate(t, name).await?;
            }
        }
        Ok(())
    }
    .boxed()
}

/// Attack F7: the tenant changes the annotation `kueue.x-k8s.io/role-hash` of a running pod of a group, and creates a second pod in its place.
pub(crate) fn role_is_changed<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        for round in 1..=3 {
            let (old, new) = (format!("p{round}"), format!("p{}", round + 1));
            let bogus = json!({"metadata": {"annotations": {"kueue.x-k8s.io/role-hash": "bogus"}}});
            if let Err(error) = t.patch(POD, &old, &bogus).await {
                // The tenant's patch of the pod also fails if Berth has stopped the pod already, which ends the attack.
                if POD.get(&t.s.client, &t.s.namespace, &old).await?.is_none() {
                    break;
                }
                return Err(error);
            }
            if !t.create(&member(t, &new, "2", 1)).await? {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    }
    .boxed()
}

/// Attack F11: a pod without a group joins a small group while it runs.
pub(crate) fn joins_a_group<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let label = json!({"kueue.x-k8s.io/pod-group-name": "g"});
        let count = json!({"kueue.x-k8s.io/pod-group-total-count": "1"});
        t.patch(
            POD,
            "t",
            &json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-name": "g",
            "kueue.x-k8s.io/pod-group-total-count": "1"}}}),
        )
        .await?;
        t.patch(POD, "t", &json!({"metadata": {"labels": label, "annotations": count}})).await?;
        Ok(())
    }
    .boxed()
}

/// Attack F19: a pod names a Job as its controller that has ended.
pub(crate) fn names_a_job_that_has_ended<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&t.s.job("done").cpu("10m").manifest()).await?;
        wait::until(STEP, "the job is done", || async {
            let job = JOB.get(&t.s.client, &t.s.namespace, "done").await?.unwrap_or_default();
            Ok(Seen::when(condition(&job, "Complete") == "True", || job["status"].to_string()))
        })
        .await?;
        let owners = t.controlled_by(JOB, "done").await?;
        t.create(&pod(t, "forged", "5", &json!({"metadata": {"ownerReferences": owners}}))).await?;
        Ok(())
    }
    .boxed()
}

/// Attack F6: a StatefulSet is scaled beyond its quota, and the tenant removes the gates of its new pods.
pub(crate) fn set_is_scaled_and_ungated<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let pods = pod(t, "any", "1", &json!({}));
        let mut template = json!({"metadata": {"labels": {"app": "s"}}, "spec": pods["spec"]});
        template["spec"]["restartPolicy"] = json!("Always");
        let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"namespace": t.s.namespace, "name": "s", "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
            "spec": {"replicas": 1, "serviceName": "s", "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {"app": "s"}}, "template": template}});
        t.create(&set).await?;
        t.pods_run(1).await?;
        t.scale(STATEFUL_SET, "s", 6).await?;
        for _ in 0..5 {
            for number in 1..6 {
                if POD.get(&t.s.client, &t.s.namespace, &format!("s-{number}")).await?.is_some() {
                    // The pod may be gone between the two requests, so a failure is ignored.
                    let _ = ungate(t, &format!("s-{number}")).await;
                }
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        Ok(())
    }
    .boxed()
}

/// Attack R4: a pod is created while no webhook adds a gate to it.
pub(crate) fn is_let_in<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move { t.create(&pod(t, "in", "2", &json!({}))).await.map(drop) }.boxed()
}

/// Attack R4: a pod that requests more than other queues lend is created without a review.
pub(crate) fn is_let_in_and_large<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move { t.create(&pod(t, "in", "5", &json!({}))).await.map(drop) }.boxed()
}

/// Attack R4: two pods of a group, one of which is too large, are created without a review.
pub(crate) fn group_is_let_in<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&member(t, "a", "1", 2)).await?;
        t.create(&member(t, "b", "5", 2)).await.map(drop)
    }
    .boxed()
}

/// Attack R4: a pod is created without a review, with all fields that a review would have written except for the gate.
pub(crate) fn is_let_in_as_reviewed<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let reviewed = json!({"metadata": {"labels": {"kueue.x-k8s.io/managed": "true"}, "finalizers": ["kueue.x-k8s.io/managed"],
            "annotations": {"kueue.x-k8s.io/role-hash": "main"}}});
        t.create(&pod(t, "in", "2", &reviewed)).await.map(drop)
    }
    .boxed()
}

/// Waits until the pod that was let in is admitted, and checks that it runs on.
pub(crate) fn is_admitted<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.s.workload("in", "Admitted", |workload| condition(workload, "Admitted") == "True").await?;
        t.pods_run(1).await
    }
    .boxed()
}

/// Waits until the pod that was let in is gone.
pub(crate) fn is_gone<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        wait::until(Duration::from_secs(10), "the pod is gone", || async {
            let pod = POD.get(&t.s.client, &t.s.namespace, "in").await?;
            Ok(Seen::when(pod.is_none(), || pod.unwrap_or_default()["status"].to_string()))
        })
        .await
    }
    .boxed()
}
