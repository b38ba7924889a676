//! What a tenant may write into his Jobs.

use anyhow::Result;
use berth_e2e::jobset::JOBSET;
use berth_e2e::kinds::{JOB, POD, text};
use berth_e2e::wait::{self, STEP, Seen};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::tenant::Tenant;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";

/// A Job that borrows all that is lent, with its pod on a node.
pub(crate) fn borrows<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&t.job("t", "2").manifest()).await?;
        t.runs("t", 1).await
    }
    .boxed()
}

/// A Job that asks for more than there is.
pub(crate) fn asks_for_more<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&t.job("x", "5").pods(2).manifest()).await?;
        t.s.pending("x").await.map(drop)
    }
    .boxed()
}

/// A small Job that runs.
pub(crate) fn small<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&t.job("tiny", "10m").manifest()).await?;
        t.runs("tiny", 1).await
    }
    .boxed()
}

/// F1: it is suspended and names no queue any more.
pub(crate) fn leaves_its_queue<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move { t.leave_queue(JOB, "t").await.map(drop) }.boxed()
}

/// F13: it names no queue any more, and runs on.
pub(crate) fn drops_its_queue<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.patch(JOB, "t", &json!({"metadata": {"labels": {QUEUE: null}}})).await?;
        Ok(())
    }
    .boxed()
}

/// F2: it names a Workload that does not exist.
pub(crate) fn names_another_workload<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.patch(JOB, "t", &json!({"spec": {"suspend": true}, "metadata": {"labels": {PREBUILT: "none"}}})).await?;
        Ok(())
    }
    .boxed()
}

/// F3: a waiting Job is its own controller, and un-suspended.
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

/// F3: a running Job becomes its own controller.
pub(crate) fn becomes_its_own_controller<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move { t.put_below((JOB, "t"), (JOB, "t")).await.map(drop) }.boxed()
}

/// F4: a large Job says that a small one which runs controls it.
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

/// F4c: a running Job says later that a small one controls it.
pub(crate) fn moves_below_a_small_one<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&t.job("other", "10m").manifest()).await?;
        t.put_below((JOB, "t"), (JOB, "other")).await.map(drop)
    }
    .boxed()
}

/// F10: it is being deleted, held by a finalizer, and names no queue any more.
pub(crate) fn leaves_while_it_is_deleted<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.patch(JOB, "t", &json!({"metadata": {"finalizers": ["e2e.berth.dev/hold"]}})).await?;
        JOB.delete(&t.client, &t.s.namespace, "t").await?;
        t.patch(JOB, "t", &json!({"metadata": {"labels": {QUEUE: null}}})).await?;
        Ok(())
    }
    .boxed()
}

/// F34: a Job that waits is un-suspended again and again.
pub(crate) fn is_resumed_again_and_again<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        for _ in 0..10 {
            t.patch(JOB, "x", &json!({"spec": {"suspend": false}})).await?;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        Ok(())
    }
    .boxed()
}

/// F5: the pods of a Job lose the labels by which its controller knows them, and it makes others.
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
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
        Ok(())
    }
    .boxed()
}

/// N3: it is deleted, its pods are left behind, and another one comes.
pub(crate) fn leaves_its_pods_behind<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.orphan(JOB, "t").await?;
        wait::until(STEP, "the job is gone", || async {
            let there = JOB.get(&t.s.client, &t.s.namespace, "t").await?.is_some();
            Ok(Seen::when(!there, || "there".to_owned()))
        })
        .await?;
        t.create(&t.job("next", "2").manifest()).await?;
        Ok(())
    }
    .boxed()
}

/// F12: the Workload of a Job can be stored, and its status cannot.
pub(crate) fn is_too_large_to_be_written<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let mut job = t.job("poison", "1m").manifest();
        job["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["x".repeat(1_570_163)]);
        t.create(&job).await?;
        Ok(())
    }
    .boxed()
}

/// V3: it says that a JobSet controls it, which nobody knows.
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

/// Nothing has to be there before.
pub(crate) fn nothing<'a>(_: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async { Ok(()) }.boxed()
}

/// A Job of many small pods, one at once.
pub(crate) fn one_pod_at_once<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&t.job("tiny", "100m").spec(&json!({"completions": 40})).manifest()).await?;
        t.runs("tiny", 1).await
    }
    .boxed()
}

/// Something is written into a running Job that cannot be read, and it is made larger.
pub(crate) fn grows_unreadable<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let wrong = json!({"annotations": {"kueue.x-k8s.io/job-min-parallelism": "high"}});
        t.patch(JOB, "tiny", &json!({"metadata": wrong})).await?;
        t.patch(JOB, "tiny", &json!({"spec": {"parallelism": 30}})).await?;
        Ok(())
    }
    .boxed()
}
