//! Jobs: suspended when they are created, defaults, and what is refused.

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{JOB, LOCAL_QUEUE, items, text};
use berth_e2e::manifest;
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use berth_e2e::webhooks::{MUTATING, NAMES};
use futures::future::try_join_all;
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// Jobs that arrive unsuspended are never seen so, and the job controller never starts them before they are admitted.
pub(crate) async fn suspended_without_a_race(stage: &Stage) -> Result<()> {
    let s = &stage.scenario("no-race").await?;
    s.simple_queue("2", &json!({})).await?;
    s.create(s.job("running").cpu("2").endless()).await?;
    s.admitted("running").await?;
    let names: Vec<String> = (0..30).map(|number| format!("eager-{number:02}")).collect();
    try_join_all(names.iter().map(|name| async move {
        let created = s.create(s.job(name).spec(&json!({"suspend": false})).run_ms(100)).await?;
        ensure!(created["spec"]["suspend"] == json!(true), "{name} was stored as {}", created["spec"]["suspend"]);
        anyhow::Ok(())
    }))
    .await?;
    for name in &names {
        let workload = s.pending(name).await?;
        let job = s.get_job(name).await?;
        // The generation counts changes of the spec: nobody had to suspend it afterwards.
        ensure!(job["metadata"]["generation"] == json!(1), "{name} was changed: {}", job["metadata"]);
        ensure!(job["status"].get("startTime").is_none(), "{name} was started: {}", job["status"]);
        ensure!(workload["spec"]["podSets"][0]["count"] == json!(1), "{workload}");
    }
    s.remove("running").await?;
    for name in &names {
        s.finished(name).await?;
    }
    let scenario = Scenario { stage, client: s.client.clone(), namespace: s.namespace.clone() };
    scenario.conclude().await
}

/// The refusal of a change.
async fn refusal(s: &Scenario<'_>, job: &str, patch: Value) -> Result<String> {
    match JOB.patch(&s.client, &s.namespace, job, &patch).await {
        Ok(_) => anyhow::bail!("{patch} was accepted"),
        Err(error) => Ok(format!("{error:#}")),
    }
}

pub(crate) async fn labels_of_a_running_job(stage: &Stage) -> Result<()> {
    let s = stage.scenario("labels-locked").await?;
    s.simple_queue("1", &json!({})).await?;
    s.apply(&manifest::local_queue(&s.namespace, "other", &s.name("cq"))).await?;
    s.create(s.job("running").endless()).await?;
    s.admitted("running").await?;
    s.create(s.job("waiting").endless()).await?;
    s.pending("waiting").await?;
    let label = |key: &str, value: Value| json!({"metadata": {"labels": {key: value}}});
    for (key, value) in [
        (QUEUE, json!("other")),
        (QUEUE, Value::Null),
        ("kueue.x-k8s.io/max-exec-time-seconds", json!("60")),
        ("kueue.x-k8s.io/priority-class", json!("some")),
        ("kueue.x-k8s.io/prebuilt-workload-name", json!("some")),
    ] {
        let error = refusal(&s, "running", label(key, value)).await?;
        ensure!(error.contains(&format!("metadata.labels[{key}]")) && error.contains("not suspended"), "{error}");
    }
    JOB.patch(&s.client, &s.namespace, "running", &label("team", json!("a"))).await?;
    JOB.patch(&s.client, &s.namespace, "waiting", &label(QUEUE, json!("other"))).await?;
    s.workload("waiting", "in its new queue", |w| text(w, "/spec/queueName") == "other").await?;
    // A deletion waits for nothing, and neither does what runs on its way out.
    s.remove("running").await?;
    s.admitted("waiting").await?;
    s.conclude().await
}

/// Namespaces that the webhook for jobs without a queue name is asked about.
async fn opted_in(s: &Scenario<'_>, expected: bool) -> Result<()> {
    wait::until(STEP, &format!("{} opted in: {expected}", s.namespace), || async {
        let configuration = MUTATING.get(&s.client, "", NAMES[0]).await?.context("the configuration")?;
        let webhooks = items(&configuration, "/webhooks");
        let webhook = webhooks.iter().find(|w| text(w, "/name").contains("-opted-in.")).context("the webhook")?;
        let names = items(webhook, "/namespaceSelector/matchExpressions/0/values");
        let there = names.iter().any(|name| name.as_str() == Some(&s.namespace));
        Ok(Seen::when(there == expected, || format!("{names:?}")))
    })
    .await?;
    // The API server hears of its configuration a moment later.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    Ok(())
}

/// A LocalQueue called `default` takes the jobs of its namespace that name none.
pub(crate) async fn default_queue(stage: &Stage) -> Result<()> {
    let s = stage.scenario("default-queue").await?;
    s.simple_queue("1", &json!({})).await?;
    let plain = |name: &str| manifest::Job::new(&s.namespace, name, "").spec(&json!({"suspend": false}));
    let before = s.create(plain("before")).await?;
    ensure!(before["spec"]["suspend"] == json!(false), "{}", before["spec"]["suspend"]);
    s.apply(&manifest::local_queue(&s.namespace, "default", &s.name("cq"))).await?;
    opted_in(&s, true).await?;
    let created = s.create(plain("taken")).await?;
    ensure!(created["metadata"]["labels"][QUEUE] == json!("default"), "labels: {}", created["metadata"]["labels"]);
    ensure!(created["spec"]["suspend"] == json!(true), "suspend: {}", created["spec"]["suspend"]);
    s.finished("taken").await?;
    // Kueue has no queue taken away there, not even of a suspended job.
    s.create(s.job("full").endless()).await?;
    s.admitted("full").await?;
    s.create(s.job("waiting")).await?;
    s.pending("waiting").await?;
    let error = refusal(&s, "waiting", json!({"metadata": {"labels": {QUEUE: null}}})).await?;
    ensure!(error.contains(&format!("metadata.labels[{QUEUE}]")), "{error}");
    LOCAL_QUEUE.delete(&s.client, &s.namespace, "default").await?;
    opted_in(&s, false).await?;
    let after = s.create(plain("after")).await?;
    ensure!(after["spec"]["suspend"] == json!(false), "{}", after["spec"]["suspend"]);
    s.conclude().await
}

/// Jobs that cannot be meant are refused, and the refusal names the field.
pub(crate) async fn refused(stage: &Stage) -> Result<()> {
    let s = stage.scenario("refused-jobs").await?;
    let annotated = |key: &str, value: &str| {
        let mut job = s.job("bad").pods(5).manifest();
        job["metadata"]["annotations"] = json!({key: value});
        job
    };
    let template = |key: &str, value: &str| s.job("bad").pods(5).pod_annotation(key, value).manifest();
    let labelled = |key: &str, value: &str| s.job("bad").label(key, value).manifest();
    let cases = [
        (labelled(QUEUE, "A_b"), format!("metadata.labels[{QUEUE}]")),
        (labelled("kueue.x-k8s.io/max-exec-time-seconds", "0"), "max-exec-time-seconds".to_owned()),
        (annotated("kueue.x-k8s.io/job-min-parallelism", "5"), "job-min-parallelism".to_owned()),
        (annotated("kueue.x-k8s.io/job-min-parallelism", "two"), "job-min-parallelism".to_owned()),
        (annotated("kueue.x-k8s.io/job-completions-equal-parallelism", "true"), "Indexed".to_owned()),
        (annotated("kueue.x-k8s.io/admission-gated-by", "plain"), "domain prefix".to_owned()),
        (template("kueue.x-k8s.io/podset-required-topology", "a b"), "spec.template.metadata.annotations".to_owned()),
        (template("kueue.x-k8s.io/podset-slice-size", "2"), "podset-slice-size".to_owned()),
    ];
    for (job, word) in &cases {
        let error = match s.apply(job).await {
            Ok(_) => anyhow::bail!("accepted: {job}"),
            Err(error) => format!("{error:#}"),
        };
        ensure!(error.contains(word.as_str()) && error.contains("vjob.berth.dev"), "{word} not in {error}");
    }
    let good = annotated("kueue.x-k8s.io/job-min-parallelism", "4");
    s.apply(&good).await?;
    s.conclude().await
}
