//! Attacks on the quota by writes of a tenant into Jobs.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use berth_e2e::jobset::JOBSET;
use berth_e2e::kinds::{JOB, POD, condition, text};
use berth_e2e::manifest::Job;
use berth_e2e::wait::{self, STEP, Seen};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::tenant::Tenant;

pub(super) const QUEUE: &str = "kueue.x-k8s.io/queue-name";
pub(super) const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";
/// Time that the pods of the Job [`lingers`] take to end.
pub(crate) const LINGERS: Duration = Duration::from_secs(20);

/// Creates a Job that borrows all quota that other queues lend, and waits until its pod is on a node.
pub(crate) fn borrows<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&t.job("t", "2").manifest()).await?;
        t.runs("t", 1).await
    }
    .boxed()
}

/// Creates a Job that requests more quota than exists, and waits until it is pending.
pub(crate) fn asks_for_more<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&t.job("x", "5").pods(2).manifest()).await?;
        t.s.pending("x").await.map(drop)
    }
    .boxed()
}

/// Creates a small Job and waits until it runs.
pub(crate) fn small<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&t.job("tiny", "10m").manifest()).await?;
        t.runs("tiny", 1).await
    }
    .boxed()
}

/// Attack F1: the Job is suspended and loses its queue's name in one write.
pub(crate) fn leaves_its_queue<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move { t.leave_queue(JOB, "t").await.map(drop) }.boxed()
}

/// Attack F13: the Job loses its queue's name while it runs on.
pub(crate) fn drops_its_queue<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.patch(JOB, "t", &json!({"metadata": {"labels": {QUEUE: null}}})).await?;
        Ok(())
    }
    .boxed()
}

/// Attack F2: the Job names a Workload that does not exist.
pub(crate) fn names_another_workload<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.patch(JOB, "t", &json!({"spec": {"suspend": true}, "metadata": {"labels": {PREBUILT: "none"}}})).await?;
        Ok(())
    }
    .boxed()
}

/// Attack F3: a waiting Job becomes its own controller and is unsuspended.
pub(crate) fn controls_itself<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let own = t.controlled_by(JOB, "x").await?;
        let both = json!({"metadata": {"ownerReferences": own}, "spec": {"suspend": false}});
        if !t.patch(JOB, "x", &both).await? {
            t.patch(JOB, "x", &json!({"metadata": {"ownerReferences": own}})).await?;
            t.patch(JOB, "x", &json!({"spec": {"suspend": false}})).await?;
        }
        Ok(())
    }
    .boxed()
}

/// Attack F3: a running Job becomes its own controller.
pub(crate) fn becomes_its_own_controller<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move { t.put_below((JOB, "t"), (JOB, "t")).await.map(drop) }.boxed()
}

/// Attack F4: a large Job names a small running Job as its controller.
pub(crate) fn hides_below_a_small_one<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let mut child = t.job("child", "5").pods(2).manifest();
        child["metadata"]["ownerReferences"] = t.controlled_by(JOB, "tiny").await?;
        if t.create(&child).await? {
            t.patch(JOB, "child", &json!({"spec": {"suspend": false}})).await?;
        }
        Ok(())
    }
    .boxed()
}

/// Attack F4d: a large Job names a small running Job as its controller, and the small Job ends while the large Job waits.
pub(crate) fn outlives_a_small_one<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        hides_below_a_small_one(t).await?;
        let ends = json!({"metadata": {"annotations": {"e2e.berth.dev/outcome": "succeed"}}});
        for pod in t.s.pods_of("tiny").await? {
            t.patch(POD, text(&pod, "/metadata/name"), &ends).await?;
        }
        t.s.job_is("tiny", "Complete", |job| condition(job, "Complete") == "True").await.map(drop)
    }
    .boxed()
}

/// Attack F4c: a Job names a small Job as its controller while it runs.
pub(crate) fn moves_below_a_small_one<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&t.job("other", "10m").manifest()).await?;
        t.put_below((JOB, "t"), (JOB, "other")).await.map(drop)
    }
    .boxed()
}

/// Attack F10: the Job loses its queue's name while it is being deleted and a finalizer keeps it.
pub(crate) fn leaves_while_it_is_deleted<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.patch(JOB, "t", &json!({"metadata": {"finalizers": ["e2e.berth.dev/hold"]}})).await?;
        JOB.delete(&t.client, &t.s.namespace, "t").await?;
        t.patch(JOB, "t", &json!({"metadata": {"labels": {QUEUE: null}}})).await?;
        Ok(())
    }
    .boxed()
}

/// Attack F34: a waiting Job is unsuspended again and again.
pub(crate) fn is_resumed_again_and_again<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        for _ in 0..10 {
            t.patch(JOB, "x", &json!({"spec": {"suspend": false}})).await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
    .boxed()
}

/// Creates a Job of two pods that borrows all quota that other queues lend; its pods take some time to end.
pub(crate) fn borrows_and_lingers<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&lingers(t, "t", "1").pods(2).manifest()).await?;
        t.runs("t", 2).await
    }
    .boxed()
}

/// Creates a Job that requests more quota than exists; its pods take some time to end.
pub(crate) fn asks_for_more_and_lingers<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&lingers(t, "x", "3").manifest()).await?;
        t.s.pending("x").await.map(drop)
    }
    .boxed()
}

/// A Job whose pods have a grace period of a minute and need the time [`LINGERS`] of it to end.
pub(crate) fn lingers(t: &Tenant<'_>, name: &str, cpu: &str) -> Job {
    t.job(name, cpu).pod_spec(&json!({"terminationGracePeriodSeconds": 60})).termination_ms(20_000)
}

/// Attack F9: each pod of the Job is deleted as soon as it has a node, and is replaced while it ends.
pub(crate) fn deletes_its_pods<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        // The job controller waits ten seconds before it replaces the deleted pods.
        for _ in 0..28 {
            for pod in t.s.pods_of("t").await? {
                if pod.pointer("/metadata/deletionTimestamp").is_none() && !text(&pod, "/spec/nodeName").is_empty() {
                    POD.delete(&t.client, &t.s.namespace, text(&pod, "/metadata/name")).await?;
                }
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }
    .boxed()
}

/// Attack F5: the pods of a Job lose the labels by which the job controller finds them, and the controller creates other pods.
pub(crate) fn pods_lose_their_labels<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let names =
            ["batch.kubernetes.io/controller-uid", "controller-uid", "batch.kubernetes.io/job-name", "job-name"];
        let nothing: serde_json::Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), Value::Null)).collect();
        for _ in 0..3 {
            for pod in t.s.pods_of("t").await? {
                t.patch(POD, text(&pod, "/metadata/name"), &json!({"metadata": {"labels": nothing}})).await?;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }
    .boxed()
}

/// Attack F18: the pod of the Job is made larger in place, with a right that the role `edit` does not have.
pub(crate) fn pods_are_resized<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.may("pods/resize", &["get", "patch"]).await?;
        for pod in t.s.pods_of("t").await? {
            t.resize(text(&pod, "/metadata/name"), "5").await?;
        }
        Ok(())
    }
    .boxed()
}

/// Attack N3: the Job is deleted, its pods are left behind, and another Job is created.
pub(crate) fn leaves_its_pods_behind<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.orphan(JOB, "t").await?;
        // The deleted Job goes when its Workload can be written, which is impossible while Berth is down.
        wait::until(STEP, "its pods are nobody's", || async {
            let pods = POD.list(&t.s.client, &t.s.namespace).await?;
            let owned = pods.iter().filter(|pod| !pod["metadata"]["ownerReferences"].is_null()).count();
            Ok(Seen::when(owned == 0, || format!("{owned} pods have an owner")))
        })
        .await?;
        t.create(&t.job("next", "2").manifest()).await?;
        Ok(())
    }
    .boxed()
}

/// Attack N3: the pods of a deleted Job are left behind, and two Jobs name the Workload that holds these pods' quota: a Job of the same size, and a
/// smaller one.
pub(crate) fn leaves_its_pods_and_names_their_workload<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let workload = t.s.workload_of("t").await?.context("the Workload of the Job")?;
        let name = text(&workload, "/metadata/name").to_owned();
        leaves_its_pods_behind(t).await?;
        for (job, cpu) in [("same", "2"), ("smaller", "1")] {
            let mut named = t.job(job, cpu).manifest();
            named["metadata"]["labels"][PREBUILT] = json!(name);
            t.create(&named).await?;
        }
        Ok(())
    }
    .boxed()
}

/// Attack F12: the Job is so large that its Workload can be stored, but the Workload's status cannot.
pub(crate) fn is_too_large_to_be_written<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let mut job = t.job("poison", "1m").manifest();
        job["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["x".repeat(1_570_163)]);
        ensure!(!t.create(&job).await? || !t.reviewed, "a Job of 1.57 MB is stored");
        Ok(())
    }
    .boxed()
}

/// Attack V3: a Job names a JobSet as its controller that does not exist.
pub(crate) fn names_an_unknown_job_set<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let mut job = t.job("set-w-0", "5").pods(2).spec(&json!({"suspend": false})).manifest();
        job["metadata"]["ownerReferences"] = json!([{"apiVersion": JOBSET.api_version, "kind": JOBSET.kind, "name": "set",
            "uid": "11111111-2222-3333-4444-555555555555", "controller": true}]);
        job["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] = json!("set");
        t.create(&job).await?;
        Ok(())
    }
    .boxed()
}

/// Does nothing: the preparation of an attack for which the tenant needs no objects beforehand.
pub(crate) fn nothing<'a>(_: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async { Ok(()) }.boxed()
}

/// Creates a Job of many small pods that run one at a time.
pub(crate) fn one_pod_at_once<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&t.job("tiny", "100m").spec(&json!({"completions": 40})).manifest()).await?;
        t.runs("tiny", 1).await
    }
    .boxed()
}

/// Attack: an annotation that Berth cannot read is written into a running Job, and the Job is made larger.
pub(crate) fn grows_unreadable<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let wrong = json!({"annotations": {"kueue.x-k8s.io/job-min-parallelism": "high"}});
        t.patch(JOB, "tiny", &json!({"metadata": wrong})).await?;
        t.patch(JOB, "tiny", &json!({"spec": {"parallelism": 30}})).await?;
        Ok(())
    }
    .boxed()
}
