//! Jobs that are held back by admission gates, that get fewer pods than they request, that are deleted in each phase, unsuspended by hand, created
//! unsuspended, failing, created again, and not managed at all.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{CLUSTER_QUEUE, EVENT, JOB, WORKLOAD, condition, condition_object, text};
use berth_e2e::quota_tree::reserved;
use berth_e2e::scenario::Stage;
use berth_e2e::wait::{self, STEP, Seen};
use serde_json::json;

/// The annotation `kueue.x-k8s.io/admission-gated-by` of a Job names two controllers: the test removes one name after the other with kubectl, as these
/// controllers would, and the Job is admitted only when no name is left.
pub(crate) async fn gated(stage: &Stage) -> Result<()> {
    const GATES: &str = "kueue.x-k8s.io/admission-gated-by";
    let s = stage.scenario("gated").await?;
    s.simple_queue("1", &json!({})).await?;
    s.create(s.job("held").annotation(GATES, "example.com/sizer,example.com/budget")).await?;
    let waits = |names: &'static str| {
        move |workload: &serde_json::Value| {
            let reserved = condition_object(workload, "QuotaReserved").cloned().unwrap_or_default();
            text(&reserved, "/reason") == "AdmissionGated"
                && text(&reserved, "/message") == format!("Admission is gated by: {names}")
        }
    };
    s.workload("held", "gated by both", waits("example.com/sizer,example.com/budget")).await?;
    s.create(s.job("free")).await?;
    s.finished("free").await?;
    let annotate = |change: &'static str| {
        let change = format!("{GATES}{change}");
        async move { s.stage.plane.kubectl(&["-n", "gated", "annotate", "--overwrite", "job/held", &change]).await }
    };
    annotate("=example.com/budget").await?;
    s.workload("held", "gated by one", waits("example.com/budget")).await?;
    s.stays_pending("held").await?;
    annotate("-").await?;
    s.finished("held").await?;
    wait::until(STEP, "the events of both ends of the wait", || async {
        let events = EVENT.list(&s.client, &s.namespace).await?;
        let reasons: Vec<&str> = events.iter().map(|event| text(event, "/reason")).collect();
        let both = ["AdmissionGated", "AdmissionGateCleared"].iter().all(|reason| reasons.contains(reason));
        Ok(Seen::when(both, || format!("{reasons:?}")))
    })
    .await?;
    s.conclude().await
}

/// A job that accepts fewer pods gets as many pods as there is quota for. Such a partially admitted job has the number of pods in its user's manifest again
/// when it is stopped; if it is not stopped, it ends with the number of pods that it got.
pub(crate) async fn fewer_pods(stage: &Stage) -> Result<()> {
    let s = stage.scenario("partial").await?;
    s.simple_queue("4", &json!({})).await?;
    let wide = |name: &str| s.job(name).pods(6).annotation("kueue.x-k8s.io/job-min-parallelism", "2");
    let size = |job: &serde_json::Value| (job["spec"]["parallelism"].as_i64(), job["spec"]["completions"].as_i64());
    s.create(s.job("holder").endless()).await?;
    s.admitted("holder").await?;
    s.create(wide("endless").endless()).await?;
    let workload = s.admitted("endless").await?;
    let given = &workload["status"]["admission"]["podSetAssignments"][0];
    ensure!(given["count"] == json!(3) && given["resourceUsage"]["cpu"] == json!("3"), "{given}");
    let job = s.get_job("endless").await?;
    ensure!(size(&job) == (Some(3), Some(6)), "only an indexed job may change its completions: {}", job["spec"]);
    s.nodes_of("endless", 3).await?;
    let name = text(&workload, "/metadata/name");
    WORKLOAD.patch(&s.client, &s.namespace, name, &json!({"spec": {"active": false}})).await?;
    s.workload("endless", "without quota", |w| condition(w, "QuotaReserved") == "False").await?;
    let stopped = s.get_job("endless").await?;
    ensure!(stopped["spec"]["suspend"] == json!(true) && size(&stopped) == (Some(6), Some(6)), "{}", stopped["spec"]);
    s.object_is(CLUSTER_QUEUE, &s.name("cq"), "one cpu reserved", |q| reserved(q, "total") == 1000).await?;
    // With one cpu more of free quota the stopped job is admitted again with one pod more.
    s.remove("holder").await?;
    WORKLOAD.patch(&s.client, &s.namespace, name, &json!({"spec": {"active": true}})).await?;
    s.job_is("endless", "running with four pods", |j| j["spec"]["suspend"] == json!(false) && size(j).0 == Some(4))
        .await?;
    s.nodes_of("endless", 4).await?;
    s.remove("endless").await?;
    // The completions of an indexed job may follow its reduced parallelism.
    let follow = "kueue.x-k8s.io/job-completions-equal-parallelism";
    let indexed = wide("indexed").annotation(follow, "true").spec(&json!({"completionMode": "Indexed"}));
    s.create(indexed).await?;
    s.finished("indexed").await?;
    let done = s.get_job("indexed").await?;
    ensure!(size(&done) == (Some(4), Some(4)) && done["status"]["succeeded"] == json!(4), "{done}");
    s.object_is(CLUSTER_QUEUE, &s.name("cq"), "nothing reserved", |q| reserved(q, "total") == 0).await?;
    s.conclude().await
}

pub(crate) async fn deleted_in_each_phase(stage: &Stage) -> Result<()> {
    let s = stage.scenario("deleted-phases").await?;
    s.simple_queue("2", &json!({})).await?;
    // The Job is deleted before Berth can create its Workload, in most runs.
    s.create(s.job("at-once")).await?;
    s.remove("at-once").await?;
    s.create(s.job("running").cpu("2").endless().termination_ms(1000)).await?;
    s.admitted("running").await?;
    s.nodes_of("running", 1).await?;
    // A user deletes a Job while it waits.
    s.create(s.job("waiting")).await?;
    s.pending("waiting").await?;
    s.remove("waiting").await?;
    // A user deletes a Job while it runs: the next Job gets the quota only after the deleted Job's slow pod is gone.
    s.create(s.job("next").cpu("2").endless()).await?;
    s.pending("next").await?;
    JOB.delete(&s.client, &s.namespace, "running").await?;
    s.admitted("next").await?;
    let left = s.pods_of("running").await?;
    ensure!(left.is_empty(), "next was admitted while pods of its predecessor were there: {}", left.len());
    // A user deletes a Job while Berth stops it.
    let stop = json!({"stopPolicy": "HoldAndDrain"});
    s.edit_queue(&s.name("cq"), &stop).await?;
    s.remove("next").await?;
    s.edit_queue(&s.name("cq"), &json!({"stopPolicy": "None"})).await?;
    // A user deletes a Job after it has finished.
    s.create(s.job("done")).await?;
    s.finished("done").await?;
    s.remove("done").await?;
    s.object_is(CLUSTER_QUEUE, &s.name("cq"), "nothing reserved", |q| reserved(q, "total") == 0).await?;
    s.conclude().await
}

pub(crate) async fn unsuspended_by_hand(stage: &Stage) -> Result<()> {
    let s = stage.scenario("by-hand").await?;
    s.simple_queue("1", &json!({})).await?;
    s.create(s.job("running").endless()).await?;
    s.admitted("running").await?;
    s.create(s.job("impatient").endless()).await?;
    s.pending("impatient").await?;
    JOB.patch(&s.client, &s.namespace, "impatient", &json!({"spec": {"suspend": false}})).await?;
    s.job_is("impatient", "suspended again", |j| j["spec"]["suspend"] == json!(true)).await?;
    wait::until(STEP, "the impatient job has no pods", || async {
        let pods = s.pods_of("impatient").await?;
        Ok(Seen::when(pods.is_empty(), || format!("{} pods", pods.len())))
    })
    .await?;
    s.stays_pending("impatient").await?;
    s.remove("running").await?;
    s.admitted("impatient").await?;
    s.conclude().await
}

pub(crate) async fn arrives_running(stage: &Stage) -> Result<()> {
    let s = stage.scenario("arrives-running").await?;
    s.simple_queue("1", &json!({})).await?;
    // The jobs run for longer than a job may run without quota (invariant L3), so that they are not over before Berth has suspended them.
    s.create(s.job("first").spec(&json!({"suspend": false})).run_ms(12_000)).await?;
    s.create(s.job("second").spec(&json!({"suspend": false})).run_ms(11_000)).await?;
    s.finished("first").await?;
    s.finished("second").await?;
    s.conclude().await
}

pub(crate) async fn failing(stage: &Stage) -> Result<()> {
    let s = stage.scenario("failing").await?;
    s.simple_queue("1", &json!({})).await?;
    s.create(s.job("bad").pod_annotation("e2e.berth.dev/outcome", "fail")).await?;
    s.create(s.job("good")).await?;
    s.job_is("bad", "Failed", |j| condition(j, "Failed") == "True").await?;
    let workload = s.workload("bad", "Finished", |w| condition(w, "Finished") == "True").await?;
    let finished = condition_object(&workload, "Finished").cloned().unwrap_or_default();
    ensure!(text(&finished, "/reason") == "Failed", "{finished}");
    s.finished("good").await?;
    s.object_is(CLUSTER_QUEUE, &s.name("cq"), "nothing reserved", |q| reserved(q, "total") == 0).await?;
    s.conclude().await
}

pub(crate) async fn created_again(stage: &Stage) -> Result<()> {
    let s = stage.scenario("same-name").await?;
    s.simple_queue("1", &json!({})).await?;
    s.create(s.job("twice").endless()).await?;
    let first = s.admitted("twice").await?;
    // The job controller remembers a Job's expected pods by the Job's name: if a Job is deleted before the controller has seen its pod, the next Job
    // of the same name is blocked for minutes.
    s.nodes_of("twice", 1).await?;
    JOB.delete(&s.client, &s.namespace, "twice").await?;
    wait::until(STEP, "the job is gone", || async {
        let job = JOB.get(&s.client, &s.namespace, "twice").await?;
        Ok(Seen::when(job.is_none(), || "still there".to_owned()))
    })
    .await?;
    s.create(s.job("twice")).await?;
    s.finished("twice").await?;
    let job = s.get_job("twice").await?;
    let workload = s.workload_of("twice").await?.context("the second workload exists")?;
    ensure!(
        text(&workload, "/metadata/uid") != text(&first, "/metadata/uid"),
        "the first job's workload was used again"
    );
    ensure!(text(&workload, "/metadata/ownerReferences/0/uid") == text(&job, "/metadata/uid"), "owned by another uid");
    s.conclude().await
}

pub(crate) async fn without_queue_is_left_alone(stage: &Stage) -> Result<()> {
    let s = stage.scenario("unmanaged").await?;
    let job = |name: &str| berth_e2e::manifest::Job::new(&s.namespace, name, "");
    s.create(job("plain").spec(&json!({"suspend": false}))).await?;
    s.create(job("paused")).await?;
    s.job_is("plain", "Complete", |j| condition(j, "Complete") == "True").await?;
    wait::stays(Duration::from_secs(1), "nothing is done to a job without a queue", || async {
        let paused = s.get_job("paused").await?;
        let workload = s.workload_of("paused").await?;
        let untouched = paused["spec"]["suspend"] == json!(true) && workload.is_none();
        Ok(Seen::when(untouched, || format!("suspend {}, workload {workload:?}", paused["spec"]["suspend"])))
    })
    .await?;
    s.conclude().await
}
