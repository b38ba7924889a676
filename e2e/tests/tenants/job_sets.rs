//! Writes of a tenant into JobSets and their Jobs.

use std::time::Duration;

use anyhow::Result;
use berth_e2e::jobset::JOBSET;
use berth_e2e::kinds::{JOB, condition};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;

use super::jobs::{PREBUILT, QUEUE, lingers};
use super::tenant::Tenant;

/// A JobSet that borrows all that is lent, with its pod on a node.
pub(crate) fn borrows<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&t.job_set("js", "2")).await?;
        t.pods_run(1).await
    }
    .boxed()
}

/// A JobSet that borrows all that is lent; its pod takes its time to end.
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

/// A small JobSet that runs.
pub(crate) fn small<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&t.job_set("js", "100m")).await?;
        t.pods_run(1).await
    }
    .boxed()
}

/// A JobSet that asks for more than there is.
pub(crate) fn asks_for_more<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.create(&t.job_set("js", "5")).await?;
        t.s.workload("js", "waiting with a reason", |w| condition(w, "QuotaReserved") == "False").await.map(drop)
    }
    .boxed()
}

/// F1: it is suspended and names no queue any more.
pub(crate) fn leaves_its_queue<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move { t.leave_queue(JOBSET, "js").await.map(drop) }.boxed()
}

/// F2: it names a Workload that does not exist.
pub(crate) fn names_another_workload<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let other = json!({"spec": {"suspend": true}, "metadata": {"labels": {PREBUILT: "none"}}});
        t.patch(JOBSET, "js", &other).await.map(drop)
    }
    .boxed()
}

/// F10: it is being deleted, held by a finalizer, and names no queue any more.
pub(crate) fn leaves_while_it_is_deleted<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.patch(JOBSET, "js", &json!({"metadata": {"finalizers": ["e2e.berth.dev/hold"]}})).await?;
        JOBSET.delete(&t.client, &t.s.namespace, "js").await?;
        t.patch(JOBSET, "js", &json!({"metadata": {"labels": {QUEUE: null}}})).await.map(drop)
    }
    .boxed()
}

/// F34: a JobSet that waits is un-suspended again and again.
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

/// F3: it becomes its own controller.
pub(crate) fn becomes_its_own_controller<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move { t.put_below((JOBSET, "js"), (JOBSET, "js")).await.map(drop) }.boxed()
}

/// F8: one of its Jobs is made larger.
pub(crate) fn its_job_grows<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.patch(JOB, "js-w-0", &json!({"spec": {"parallelism": 12}})).await?;
        t.patch(JOB, "js-w-0", &json!({"spec": {"parallelism": 12, "completions": 12}})).await?;
        Ok(())
    }
    .boxed()
}

/// F4: a large Job says that the small JobSet controls it.
pub(crate) fn hides_a_large_job<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        let mut child = t.job("js-w-1", "5").pods(2).spec(&json!({"suspend": false})).manifest();
        child["metadata"]["ownerReferences"] = t.controlled_by(JOBSET, "js").await?;
        t.create(&child).await?;
        Ok(())
    }
    .boxed()
}

/// N3: it is deleted, and its Jobs are left behind.
pub(crate) fn leaves_its_jobs_behind<'a>(t: &'a Tenant<'_>) -> BoxFuture<'a, Result<()>> {
    async move {
        t.orphan(JOBSET, "js").await?;
        Ok(())
    }
    .boxed()
}

/// A tenant deletes a Job of his JobSet and keeps it by a finalizer: no controller stops such a Job.
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

/// F9: its Job is deleted again and again, and made anew while the pods of the one before end.
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
