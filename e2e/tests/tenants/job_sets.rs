//! Attacks on the quota by writes of a tenant into JobSets and their Jobs.

use std::time::Duration;

use anyhow::Result;
use berth_e2e::jobset::JOBSET;
use berth_e2e::kinds::{JOB, condition};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;

use super::jobs::{PREBUILT, QUEUE, lingers};
use super::tenant::Tenant;

/// Creates a JobSet that borrows all quota that other queues lend, and waits until its pod is on a node.
pub(crate) fn borrows<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&t.job_set("js", "2")).await?;
        t.pods_run(1).await
    }
    .boxed()
}

/// Creates a JobSet that borrows all quota that other queues lend; its pod takes some time to end.
pub(crate) fn borrows_and_lingers<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let mut set = t.job_set("js", "2");
        let mut slow = lingers(t, "any", "2").manifest();
        set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"] = slow["spec"]["template"].take();
        t.create(&set).await?;
        t.pods_run(1).await
    }
    .boxed()
}

/// Creates a small JobSet and waits until it runs.
pub(crate) fn small<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&t.job_set("js", "100m")).await?;
        t.pods_run(1).await
    }
    .boxed()
}

/// Creates a JobSet that requests more quota than exists, and waits until its Workload has a reason to wait.
pub(crate) fn asks_for_more<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&t.job_set("js", "5")).await?;
        t.s.workload("js", "waiting with a reason", |w| condition(w, "QuotaReserved") == "False").await.map(drop)
    }
    .boxed()
}

/// Attack F1: the JobSet is suspended and loses its queue's name in one write.
pub(crate) fn leaves_its_queue<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move { t.leave_queue(JOBSET, "js").await.map(drop) }.boxed()
}

/// Attack F2: the JobSet names a Workload that does not exist.
pub(crate) fn names_another_workload<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let other = json!({"spec": {"suspend": true}, "metadata": {"labels": {PREBUILT: "none"}}});
        t.patch(JOBSET, "js", &other).await.map(drop)
    }
    .boxed()
}

/// Attack F10: the JobSet loses its queue's name while it is being deleted and a finalizer keeps it.
pub(crate) fn leaves_while_it_is_deleted<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.patch(JOBSET, "js", &json!({"metadata": {"finalizers": ["e2e.berth.dev/hold"]}})).await?;
        JOBSET.delete(&t.client, &t.s.namespace, "js").await?;
        t.patch(JOBSET, "js", &json!({"metadata": {"labels": {QUEUE: null}}})).await.map(drop)
    }
    .boxed()
}

/// Attack F34: a waiting JobSet is unsuspended again and again.
pub(crate) fn is_resumed_again_and_again<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        for _ in 0..10 {
            t.patch(JOBSET, "js", &json!({"spec": {"suspend": false}})).await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
    .boxed()
}

/// Attack F3: the JobSet becomes its own controller.
pub(crate) fn becomes_its_own_controller<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move { t.put_below((JOBSET, "js"), (JOBSET, "js")).await.map(drop) }.boxed()
}

/// Attack F8: the tenant makes a Job of the JobSet larger.
pub(crate) fn its_job_grows<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.patch(JOB, "js-w-0", &json!({"spec": {"parallelism": 12}})).await?;
        t.patch(JOB, "js-w-0", &json!({"spec": {"parallelism": 12, "completions": 12}})).await?;
        Ok(())
    }
    .boxed()
}

/// Attack F4: a large Job names the small JobSet as its controller.
pub(crate) fn hides_a_large_job<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let mut child = t.job("js-w-1", "5").pods(2).spec(&json!({"suspend": false})).manifest();
        child["metadata"]["ownerReferences"] = t.controlled_by(JOBSET, "js").await?;
        t.create(&child).await?;
        Ok(())
    }
    .boxed()
}

/// Attack N3: the JobSet is deleted, and its Jobs are left behind.
pub(crate) fn leaves_its_jobs_behind<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.orphan(JOBSET, "js").await?;
        Ok(())
    }
    .boxed()
}

/// Attack: a tenant deletes a Job of his JobSet and keeps the Job by a finalizer, so that no controller stops the Job.
pub(crate) fn its_job_is_kept<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
        if t.patch(JOB, "js-w-0", &hold).await? {
            JOB.delete(&t.client, &t.s.namespace, "js-w-0").await?;
        }
        Ok(())
    }
    .boxed()
}

/// Attack F9: the Job of the JobSet is deleted again and again, and is recreated while the pods of the deleted Job end.
pub(crate) fn its_job_is_deleted_again_and_again<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        for _ in 0..6 {
            JOB.delete(&t.client, &t.s.namespace, "js-w-0").await?;
            tokio::time::sleep(Duration::from_millis(1_500)).await;
        }
        Ok(())
    }
    .boxed()
}
