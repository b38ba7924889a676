//! The webhooks of Jobs: suspension at a Job's creation, defaults, and refusals.

use anyhow::{Context, Result, ensure};
use berth_e2e::jobset::JOBSET;
use berth_e2e::kinds::{JOB, LOCAL_QUEUE, items, text};
use berth_e2e::manifest;
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use berth_e2e::webhooks::{MUTATING, NAMES};
use futures::future::try_join_all;
use kube::api::PostParams;
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const CLASS: &str = "kueue.x-k8s.io/priority-class";

/// Jobs that are created unsuspended are stored suspended at once, and the job controller never starts them before they are admitted.
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
        // The generation counts changes of the spec: no later write had to suspend the Job.
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

/// The message with which a change of a Job is refused.
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
    // A deletion is not reviewed, and neither are the pods of a job that is being deleted.
    s.remove("running").await?;
    s.admitted("waiting").await?;
    s.conclude().await
}

/// Waits until the webhooks of all kinds review objects without a queue in the scenario's namespace, or no longer review them if `expected` is false.
pub(crate) async fn opted_in(s: &Scenario<'_>, expected: bool) -> Result<()> {
    wait::until(STEP, &format!("{} opted in: {expected}", s.namespace), || async {
        let configuration = MUTATING.get(&s.client, "", NAMES[0]).await?.context("the configuration")?;
        let webhooks = items(&configuration, "/webhooks");
        let selectors = webhooks.iter().filter(|w| text(w, "/name").contains("-opted-in."));
        let names: Vec<_> =
            selectors.map(|webhook| items(webhook, "/namespaceSelector/matchExpressions/0/values")).collect();
        let there = |names: &&[Value]| names.iter().any(|name| name.as_str() == Some(&s.namespace));
        let right = names.len() == 5 && names.iter().all(|names| there(names) == expected);
        Ok(Seen::when(right, || format!("{names:?}")))
    })
    .await?;
    // The API server applies a changed webhook configuration a moment later, for all of its webhooks at once.
    let params = PostParams { dry_run: true, ..PostParams::default() };
    wait::until(STEP, &format!("jobs of {} wait: {expected}", s.namespace), || async {
        let job = manifest::Job::new(&s.namespace, "asked", "").spec(&json!({"suspend": false})).manifest();
        let shown = JOB.api(&s.client, &s.namespace).create(&params, &serde_json::from_value(job)?).await?;
        Ok(Seen::when(shown.data["spec"]["suspend"] == json!(expected), || shown.data["spec"].to_string()))
    })
    .await
}

/// A LocalQueue called `default` takes the jobs of its namespace that name no queue.
pub(crate) async fn default_queue(stage: &Stage) -> Result<()> {
    let s = stage.scenario("default-queue-jobs").await?;
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
    // As in Kueue, a job cannot lose its queue's name in a namespace with a LocalQueue `default`, not even while it is suspended.
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

/// A LocalQueue called `default` takes JobSets, too; a JobSet that names its queue in an annotation keeps that queue.
pub(crate) async fn default_queue_of_job_sets(stage: &Stage) -> Result<()> {
    let s = stage.scenario("default-queue-jobset").await?;
    s.simple_queue("1", &json!({})).await?;
    s.apply(&manifest::local_queue(&s.namespace, "default", &s.name("cq"))).await?;
    opted_in(&s, true).await?;
    let set = |name: &str, annotations: Value| {
        json!({"apiVersion": JOBSET.api_version, "kind": JOBSET.kind,
        "metadata": {"namespace": s.namespace, "name": name, "annotations": annotations},
        "spec": {"replicatedJobs": [{"name": "job", "template": {"spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "e2e/none"}]}}}}}]}})
    };
    let plain = s.apply(&set("plain", json!({}))).await?;
    ensure!(plain["metadata"]["labels"][QUEUE] == json!("default"), "labels: {}", plain["metadata"]["labels"]);
    ensure!(plain["spec"]["suspend"] == json!(true), "suspend: {}", plain["spec"]["suspend"]);
    // Berth leaves the Jobs of a JobSet to the controller of JobSets.
    let mut part = manifest::Job::new(&s.namespace, "plain-job-0", "").spec(&json!({"suspend": false})).manifest();
    part["metadata"]["labels"] = json!({"jobset.sigs.k8s.io/jobset-uid": plain["metadata"]["uid"]});
    part["metadata"]["ownerReferences"] = json!([{"apiVersion": JOBSET.api_version, "kind": JOBSET.kind, "name": "plain",
        "uid": plain["metadata"]["uid"], "controller": true}]);
    // A Job that only names the JobSet as its controller is suspended like every other Job.
    let mut forged = part.clone();
    forged["metadata"]["name"] = json!("mine");
    let params = PostParams { dry_run: true, ..PostParams::default() };
    for (job, left) in [(part, true), (forged, false)] {
        let asked = serde_json::from_value(job)?;
        let shown = wait::until(STEP, "the Job would be made", || async {
            // The test's dry run needs the name `plain-job-0` to be free: the controller of JobSets creates that Job as well, and again after each deletion.
            JOB.delete(&s.client, &s.namespace, "plain-job-0").await?;
            let made = JOB.api(&s.client, &s.namespace).create(&params, &asked).await;
            Ok(made.map_or_else(|error| Seen::NotYet(error.to_string()), Seen::Yes))
        })
        .await?;
        let shown = serde_json::to_value(shown)?;
        ensure!(shown["metadata"]["labels"].get(QUEUE).is_none() == left, "labels: {}", shown["metadata"]["labels"]);
        ensure!(shown["spec"]["suspend"] == json!(!left), "suspend: {}", shown["spec"]["suspend"]);
    }
    let named = s.apply(&set("named", json!({QUEUE: "queue"}))).await?;
    ensure!(named["metadata"]["labels"].get(QUEUE).is_none(), "labels: {}", named["metadata"]["labels"]);
    ensure!(named["spec"]["suspend"] == json!(true), "suspend: {}", named["spec"]["suspend"]);
    // A running JobSet keeps its queue, whether it names the queue in a label or in an annotation.
    for (name, names_it_in) in [("plain", "labels"), ("named", "annotations")] {
        let change = json!({"metadata": {names_it_in: {QUEUE: null}}, "spec": {"suspend": false}});
        let patched = JOBSET.patch(&s.client, &s.namespace, name, &change).await;
        let error = format!("{:#}", patched.err().with_context(|| format!("{name} has lost its queue"))?);
        let field = format!("metadata.{names_it_in}[{QUEUE}]");
        let reported = ["vjobset.berth.dev", &*field, "not suspended"];
        ensure!(reported.iter().all(|words| error.contains(words)), "{error}");
    }
    for name in ["plain", "named"] {
        JOBSET.delete(&s.client, &s.namespace, name).await?;
    }
    LOCAL_QUEUE.delete(&s.client, &s.namespace, "default").await?;
    opted_in(&s, false).await?;
    s.conclude().await
}

/// Jobs that name no priority class get the WorkloadPriorityClass called `default`.
pub(crate) async fn default_priority_class(stage: &Stage) -> Result<()> {
    let s = stage.scenario("default-class").await?;
    s.simple_queue("1", &json!({})).await?;
    s.apply(&manifest::priority_class("default", 7)).await?;
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let job = || s.job("plain").spec(&json!({"suspend": false})).run_ms(100);
    wait::until(STEP, "Berth has seen the class", || async {
        let asked = serde_json::from_value(job().manifest())?;
        let shown = JOB.api(&s.client, &s.namespace).create(&params, &asked).await?;
        let labels = shown.metadata.labels.unwrap_or_default();
        Ok(Seen::when(labels.get(CLASS).is_some_and(|name| name == "default"), || format!("{labels:?}")))
    })
    .await?;
    s.create(job()).await?;
    let workload = s.workload("plain", "of the class", |w| w["spec"]["priority"] == json!(7)).await?;
    ensure!(workload["spec"]["priorityClassRef"]["name"] == json!("default"), "{}", workload["spec"]);
    s.apply(&manifest::priority_class("own", 9)).await?;
    let own = s.create(s.job("own").label(CLASS, "own")).await?;
    ensure!(own["metadata"]["labels"][CLASS] == json!("own"), "{}", own["metadata"]["labels"]);
    s.finished("plain").await?;
    s.conclude().await
}

/// Jobs with contradictory fields are refused, and the refusal names the field.
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
    job_set_with_a_misplaced_queue(&s).await?;
    s.conclude().await
}

/// A JobSet that names no queue is not reviewed, unless one of its Jobs names a queue.
async fn job_set_with_a_misplaced_queue(s: &Scenario<'_>) -> Result<()> {
    let containers = json!([{"name": "main", "image": "e2e/none"}]);
    let set = |labels: Value| {
        let pods = json!({"spec": {"restartPolicy": "Never", "containers": containers}});
        let job =
            json!({"metadata": {"labels": labels}, "spec": {"parallelism": 1, "completions": 1, "template": pods}});
        json!({"apiVersion": JOBSET.api_version, "kind": JOBSET.kind,
            "metadata": {"namespace": s.namespace, "name": "misplaced"},
            "spec": {"suspend": true, "replicatedJobs": [{"name": "job", "template": job}]}})
    };
    let error = match s.apply(&set(json!({QUEUE: "queue"}))).await {
        Ok(_) => anyhow::bail!("accepted"),
        Err(error) => format!("{error:#}"),
    };
    let words = format!("must name the queue that spec.replicatedJobs[0].template.metadata.labels[{QUEUE}] names");
    ensure!(error.contains(&words) && error.contains("vjobset.berth.dev"), "{error}");
    s.apply(&set(json!({"team": "a"}))).await?;
    Ok(())
}
