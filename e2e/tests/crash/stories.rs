//! Stories of the crash table: actions of users that make Berth do each kind of write.

use berth_e2e::kinds::{COHORT, JOB, LOCAL_QUEUE, POD, WORKLOAD, condition, condition_object, items, text};
use berth_e2e::manifest::{cohort, group, local_queue, quota};
use berth_e2e::scenario::Scenario;
use berth_e2e::wait::{self, STEP, Seen};
use futures::FutureExt;
use serde_json::{Value, json};

use crate::crash::{StoryRun, comes};

/// Story: two jobs run one after the other.
pub(crate) fn plain<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("1", &json!({})).await?;
        s.create(s.job("one").run_ms(300)).await?;
        s.create(s.job("two")).await?;
        s.finished("one").await?;
        s.finished("two").await
    }
    .boxed()
}

/// Story: a job runs in a queue of a cohort, and the status of the Cohort shows its share.
pub(crate) fn shares_a_cohort<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.apply(&cohort(&s.name("cohort"), "", &[])).await?;
        s.simple_queue("1", &json!({"cohortName": s.name("cohort")})).await?;
        s.create(s.job("one")).await?;
        s.finished("one").await?;
        let share = |cohort: &Value| cohort["status"]["fairSharing"]["weightedShare"].is_number();
        comes(s, COHORT, &s.name("cohort"), "told its share", share).await
    }
    .boxed()
}

/// Story: a job's pods become ready and stay ready.
pub(crate) fn stays_ready<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("1", &json!({})).await?;
        s.create(s.job("steady").endless()).await?;
        s.workload("steady", "PodsReady", |w| condition(w, "PodsReady") == "True").await?;
        s.remove("steady").await
    }
    .boxed()
}

/// Story: a job waits until its queue gets a larger quota.
pub(crate) fn too_big_at_first<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("1", &json!({})).await?;
        s.create(s.job("big").cpu("2")).await?;
        s.pending("big").await?;
        let groups = [group(&[(&s.name("flavor"), &[quota("cpu", "2")])])];
        s.edit_queue(&s.name("cq"), &json!({"resourceGroups": groups})).await?;
        s.finished("big").await
    }
    .boxed()
}

/// Story: a job arrives unsuspended while the queue is full.
pub(crate) fn arrives_running<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("1", &json!({})).await?;
        s.create(s.job("first").endless()).await?;
        s.admitted("first").await?;
        s.create(s.job("eager").spec(&json!({"suspend": false})).endless()).await?;
        s.job_is("eager", "suspended", |j| j["spec"]["suspend"] == json!(true)).await?;
        s.remove("first").await?;
        s.admitted("eager").await?;
        s.remove("eager").await
    }
    .boxed()
}

/// Story: a running job is stopped because its queue is drained, its pods take some time to end, and the job runs again.
pub(crate) fn drained<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("2", &json!({})).await?;
        s.create(s.job("running").pods(2).endless().termination_ms(300)).await?;
        s.admitted("running").await?;
        s.nodes_of("running", 2).await?;
        s.edit_queue(&s.name("cq"), &json!({"stopPolicy": "HoldAndDrain"})).await?;
        s.workload("running", "quota released", |w| condition(w, "QuotaReserved") == "False").await?;
        s.job_is("running", "suspended", |j| j["spec"]["suspend"] == json!(true)).await?;
        s.edit_queue(&s.name("cq"), &json!({"stopPolicy": "None"})).await?;
        s.admitted("running").await?;
        s.nodes_of("running", 2).await?;
        s.remove("running").await
    }
    .boxed()
}

/// Story: a job runs for longer than its time limit.
pub(crate) fn runs_out_of_time<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("1", &json!({})).await?;
        s.create(s.job("long").label("kueue.x-k8s.io/max-exec-time-seconds", "1").endless()).await?;
        // The reason of the condition Evicted shows that the job ran: the test may miss the second in which it runs.
        s.workload("long", "deactivated for its time and without quota", |w| {
            w["spec"]["active"] == json!(false)
                && condition(w, "QuotaReserved") == "False"
                && condition_object(w, "Evicted")
                    .is_some_and(|c| text(c, "/reason") == "DeactivatedDueToMaximumExecutionTimeExceeded")
        })
        .await?;
        s.job_is("long", "suspended", |j| j["spec"]["suspend"] == json!(true)).await?;
        // The quota of the deactivated job is free for the next job.
        s.create(s.job("next")).await?;
        s.finished("next").await
    }
    .boxed()
}

/// Story: a job that has run for longer than its time limit is deleted some time later.
pub(crate) fn goes_after_its_time<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("1", &json!({})).await?;
        s.create(s.job("long").label("kueue.x-k8s.io/max-exec-time-seconds", "1").endless()).await?;
        wait::until(STEP, "the job and its Workload are gone", || async {
            let job = JOB.get(&s.client, &s.namespace, "long").await?.is_some();
            let workload = s.workload_of("long").await?.is_some();
            Ok(Seen::when(!job && !workload, || format!("job: {job}, Workload: {workload}")))
        })
        .await?;
        s.create(s.job("next")).await?;
        s.finished("next").await
    }
    .boxed()
}

/// Story: a user moves a waiting job to another queue.
pub(crate) fn moves_to_another_queue<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("1", &json!({})).await?;
        s.apply(&local_queue(&s.namespace, "other", &s.name("cq"))).await?;
        LOCAL_QUEUE.patch(&s.client, &s.namespace, "queue", &json!({"spec": {"stopPolicy": "Hold"}})).await?;
        s.object_is(LOCAL_QUEUE, "queue", "Active=False", |q| condition(q, "Active") == "False").await?;
        s.create(s.job("mover")).await?;
        s.workload("mover", "there", |_| true).await?;
        let label = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}});
        JOB.patch(&s.client, &s.namespace, "mover", &label).await?;
        s.finished("mover").await
    }
    .boxed()
}

/// Story: a job names a Workload that was created before the job.
pub(crate) fn brings_its_workload<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("1", &json!({})).await?;
        let job = s.job("guest").label("kueue.x-k8s.io/prebuilt-workload-name", "made-before");
        let template = job.manifest()["spec"]["template"].clone();
        s.apply(&json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"namespace": s.namespace, "name": "made-before"},
            "spec": {"queueName": "queue", "active": true, "podSets": [{"name": "main", "count": 1, "template": template}]},
        }))
        .await?;
        s.create(job).await?;
        s.finished("guest").await?;
        s.remove("guest").await?;
        WORKLOAD.delete(&s.client, &s.namespace, "made-before").await
    }
    .boxed()
}

/// Story: a job has fewer pods left than it began with, and another job waits for their quota.
pub(crate) fn shrinks<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("2", &json!({})).await?;
        s.create(s.job("waves").endless().spec(&json!({"parallelism": 2, "completions": 3}))).await?;
        s.admitted("waves").await?;
        s.nodes_of("waves", 2).await?;
        s.create(s.job("next")).await?;
        // The last pod runs until the Workload reports the other pods as reclaimable.
        end_pods(s, "waves").await?;
        s.workload("waves", "told of a pod that is over", |w| !items(w, "/status/reclaimablePods").is_empty()).await?;
        s.finished("next").await?;
        s.nodes_of("waves", 3).await?;
        end_pods(s, "waves").await?;
        s.finished("waves").await
    }
    .boxed()
}

/// Lets the present pods of a job succeed.
async fn end_pods(s: &Scenario<'_>, job: &str) -> anyhow::Result<()> {
    let ends = json!({"metadata": {"annotations": {"e2e.berth.dev/outcome": "succeed"}}});
    for pod in s.pods_of(job).await? {
        POD.patch(&s.client, &s.namespace, text(&pod, "/metadata/name"), &ends).await?;
    }
    Ok(())
}

/// Story: a user makes a running job larger; Berth stops the job, which waits for quota for its new requests.
pub(crate) fn changes_its_size<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("2", &json!({})).await?;
        let created = s.create(s.job("grows").spec(&json!({"completions": 2})).endless()).await?;
        let first = s.admitted("grows").await?;
        // The test waits for the job's pod, because a job that is stopped before the job controller has seen its start may get a pod afterwards.
        s.nodes_of("grows", 1).await?;
        s.stage.observer.user_edited(text(&created, "/metadata/uid"));
        JOB.patch(&s.client, &s.namespace, "grows", &json!({"spec": {"parallelism": 2}})).await?;
        wait::until(STEP, "the job runs with two pods under another workload", || async {
            let job = s.get_job("grows").await?;
            let workload = s.workload_of("grows").await?.unwrap_or_default();
            let other = text(&workload, "/metadata/uid") != text(&first, "/metadata/uid");
            let admitted = condition(&workload, "Admitted") == "True";
            let there = other && admitted && job["spec"]["suspend"] == json!(false);
            Ok(Seen::when(there, || {
                format!("other workload: {other}, {}, {}", workload["status"], job["spec"]["suspend"])
            }))
        })
        .await?;
        s.nodes_of("grows", 2).await?;
        s.remove("grows").await
    }
    .boxed()
}

/// Story: a running job is deleted, and the next job waits until the deleted job's pods are gone.
pub(crate) fn deleted_while_it_runs<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("1", &json!({})).await?;
        s.create(s.job("gone").endless().termination_ms(700)).await?;
        s.admitted("gone").await?;
        s.nodes_of("gone", 1).await?;
        s.create(s.job("next")).await?;
        s.pending("next").await?;
        JOB.delete(&s.client, &s.namespace, "gone").await?;
        s.finished("next").await
    }
    .boxed()
}
