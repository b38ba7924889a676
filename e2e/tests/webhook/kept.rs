//! Fields that a job keeps while it holds quota: its suspension, when its manifest is applied again as it is in Git, and the fields by which Berth
//! charges its quota.

use anyhow::{Context, Result, bail, ensure};
use berth_e2e::kinds::{JOB, text};
use berth_e2e::manifest;
use berth_e2e::scenario::{Scenario, Stage};
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";

/// Writes the manifest of a job into a file, as it would be in Git; returns the file's path.
fn file(s: &Scenario<'_>, job: &manifest::Job, name: &str) -> Result<String> {
    let path = s.stage.plane.folder().join(format!("{name}.json"));
    std::fs::write(&path, job.clone().manifest().to_string())?;
    Ok(path.display().to_string())
}

/// Runs a kubectl command that must give a warning; returns the warning. The kubectl command must take effect although it gives a warning.
async fn warned(s: &Scenario<'_>, args: &[&str]) -> Result<String> {
    let args = [args, &["--warnings-as-errors"]].concat();
    match s.stage.plane.kubectl(&args).await {
        Ok(text) => bail!("kubectl {} warns of nothing: {text}", args.join(" ")),
        Err(error) => Ok(format!("{error:#}")),
    }
}

/// Uids of the pods of a running job.
async fn pods(s: &Scenario<'_>, job: &str) -> Result<Vec<String>> {
    let of_job = s.pods_of(job).await?;
    Ok(of_job.iter().map(|pod| text(pod, "/metadata/uid").to_owned()).collect())
}

async fn runs_on(s: &Scenario<'_>, job: &str, before: &[String]) -> Result<String> {
    let now = s.get_job(job).await?;
    ensure!(now["spec"]["suspend"] == json!(false), "{job} is suspended: {now}");
    ensure!(pods(s, job).await? == before, "{job} has other pods than {before:?}");
    Ok(text(&now, "/metadata/resourceVersion").to_owned())
}

/// A manifest with `suspend: true`, as every guide to Kueue has it, is applied again while its job runs.
async fn applied_again(s: &Scenario<'_>) -> Result<()> {
    let path = &file(s, &s.job("again").endless(), "again")?;
    let kubectl = |args: &'static [&'static str]| [args, &["-f", path.as_str()]].concat();
    s.stage.plane.kubectl(&kubectl(&["apply"])).await?;
    let workload = s.admitted("again").await?;
    s.nodes_of("again", 1).await?;
    // After the Job is ready the job controller writes nothing more.
    s.job_is("again", "ready", |job| job["status"]["ready"] == json!(1)).await?;
    let before = pods(s, "again").await?;
    let mut versions = Vec::new();
    for _ in 0..3 {
        let output = warned(s, &kubectl(&["apply"])).await?;
        let stop = format!("patch workload {}", text(&workload, "/metadata/name"));
        ensure!(output.contains("spec.suspend stays false") && output.contains(&stop), "kubectl prints: {output}");
        versions.push(runs_on(s, "again", &before).await?);
    }
    ensure!(versions[1] == versions[2], "each time something is written: {versions:?}");
    let difference = s.stage.plane.kubectl(&kubectl(&["diff"])).await.context("a difference is told")?;
    ensure!(difference.is_empty(), "kubectl diff: {difference}");
    Ok(())
}

/// A manifest is applied again by server-side apply: the API server reports a conflict before it calls any webhook, because Berth has written the
/// field `suspend`. If the apply is forced, Berth's webhook restores the field `suspend`.
async fn applied_again_on_the_server(s: &Scenario<'_>) -> Result<()> {
    let path = &file(s, &s.job("declared").endless(), "declared")?;
    let apply = |more: &[&'static str]| [&["apply", "--server-side"][..], more, &["-f", path.as_str()][..]].concat();
    s.stage.plane.kubectl(&apply(&[])).await?;
    s.admitted("declared").await?;
    s.nodes_of("declared", 1).await?;
    let before = pods(s, "declared").await?;
    let conflict = s.stage.plane.kubectl(&apply(&[])).await.err().context("no conflict")?;
    let message = format!("{conflict:#}");
    ensure!(message.contains("kueue") && message.contains(".spec.suspend"), "kubectl prints: {message}");
    runs_on(s, "declared", &before).await?;
    for force in [&["--force-conflicts"][..], &[]] {
        let message = warned(s, &apply(force)).await?;
        ensure!(message.contains("spec.suspend stays false"), "kubectl prints: {message}");
        runs_on(s, "declared", &before).await?;
    }
    Ok(())
}

/// A manifest with `suspend: false` is applied again while its job waits: the job waits on, and neither form of `kubectl diff` shows a difference.
async fn applied_while_it_waits(s: &Scenario<'_>) -> Result<()> {
    let path = &file(s, &s.job("patient").cpu("99").spec(&json!({"suspend": false})), "patient")?;
    let kubectl = |args: &[&'static str]| [args, &["-f", path.as_str()]].concat();
    s.stage.plane.kubectl(&kubectl(&["apply"])).await?;
    s.pending("patient").await?;
    for args in [&["apply"][..], &["apply", "--server-side", "--force-conflicts"]] {
        let output = warned(s, &kubectl(args)).await?;
        ensure!(output.contains("spec.suspend stays true"), "kubectl prints: {output}");
    }
    for args in [&["diff"][..], &["diff", "--server-side", "--force-conflicts"]] {
        let difference = s.stage.plane.kubectl(&kubectl(args)).await.context("a difference is told")?;
        ensure!(difference.is_empty(), "kubectl {args:?}: {difference}");
    }
    s.remove("patient").await
}

/// A user unsuspends a waiting job: the job does not run even for the short time that Berth would need to see it.
async fn unsuspended(s: &Scenario<'_>) -> Result<()> {
    s.create(s.job("waits").endless()).await?;
    s.pending("waits").await?;
    let before = s.get_job("waits").await?;
    let patch = json!({"spec": {"suspend": false}}).to_string();
    let args = ["-n", s.namespace.as_str(), "patch", "job", "waits", "--type=merge", "-p", patch.as_str()];
    let reported = warned(s, &args).await?;
    ensure!(reported.contains("spec.suspend stays true") && reported.contains("queue"), "kubectl prints: {reported}");
    let after = s.get_job("waits").await?;
    ensure!(after["metadata"]["generation"] == before["metadata"]["generation"], "it was changed: {after}");
    ensure!(after["status"].get("startTime").is_none(), "it was started: {}", after["status"]);
    s.remove("waits").await
}

/// The fields by which Berth charges a job's quota cannot be changed, not even while the job is being deleted.
async fn identity(s: &Scenario<'_>) -> Result<()> {
    let labels = |key: &str, value: Value| json!({"metadata": {"labels": {key: value}}});
    let suspended = |mut patch: Value| {
        patch["spec"] = json!({"suspend": true});
        patch
    };
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "again", "controller": true,
        "uid": s.get_job("again").await?["metadata"]["uid"]});
    let owned = json!({"metadata": {"ownerReferences": [owner]}});
    let refused = |patch: Value, field: &'static str| async move {
        let error = JOB.patch(&s.client, &s.namespace, "again", &patch).await.err();
        let message = format!("{:#}", error.with_context(|| format!("{patch} was accepted"))?);
        ensure!(message.contains(field) && message.contains("until the job has stopped"), "{patch}: {message}");
        anyhow::Ok(())
    };
    refused(suspended(labels(QUEUE, Value::Null)), QUEUE).await?;
    refused(suspended(labels(PREBUILT, json!("none"))), PREBUILT).await?;
    refused(owned.clone(), "metadata.ownerReferences").await?;
    let hold = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    JOB.patch(&s.client, &s.namespace, "again", &hold(json!(["e2e.berth.dev/hold"]))).await?;
    JOB.delete(&s.client, &s.namespace, "again").await?;
    refused(labels(QUEUE, Value::Null), QUEUE).await?;
    refused(labels(QUEUE, json!("other")), QUEUE).await?;
    refused(labels(PREBUILT, json!("none")), PREBUILT).await?;
    refused(owned, "metadata.ownerReferences").await?;
    // No other field of a job delays its deletion.
    JOB.patch(&s.client, &s.namespace, "again", &labels("kueue.x-k8s.io/max-exec-time-seconds", json!("no"))).await?;
    JOB.patch(&s.client, &s.namespace, "again", &hold(Value::Null)).await?;
    s.remove("again").await
}

/// A job gets more pods than it was admitted with: the same write suspends the job, and no pod of the new size is created before there is quota for
/// all pods.
async fn raised(s: &Scenario<'_>) -> Result<()> {
    s.create(s.job("grows").spec(&json!({"parallelism": 1, "completions": 9})).endless()).await?;
    s.admitted("grows").await?;
    s.nodes_of("grows", 1).await?;
    let patched = JOB.patch(&s.client, &s.namespace, "grows", &json!({"spec": {"parallelism": 3}})).await?;
    ensure!(patched["spec"]["suspend"] == json!(true), "it runs on with 3 pods: {}", patched["spec"]);
    s.workload("grows", "waiting for three pods", |w| w["spec"]["podSets"][0]["count"] == json!(3)).await?;
    s.pending("grows").await?;
    let job = s.job_is("grows", "stopped", |job| job["status"]["active"].as_u64().unwrap_or_default() == 0).await?;
    ensure!(job["spec"]["parallelism"] == json!(3), "the raise was undone: {}", job["spec"]);
    s.remove("grows").await
}

pub(crate) async fn story(stage: &Stage) -> Result<()> {
    let s = stage.scenario("kept").await?;
    s.simple_queue("2", &json!({})).await?;
    applied_again(&s).await.context("applied again")?;
    applied_again_on_the_server(&s).await.context("applied again by the server")?;
    applied_while_it_waits(&s).await.context("applied again while it waits")?;
    unsuspended(&s).await.context("un-suspended")?;
    identity(&s).await.context("by what it is counted")?;
    raised(&s).await.context("raised")?;
    s.remove("declared").await?;
    s.conclude().await
}
