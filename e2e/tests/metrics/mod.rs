//! Tests of the metrics under the real Prometheus: after a story every row of docs/metrics.md has data, with the labels that the row names, and the
//! chart's rules and alerts are evaluated and fire when they should.

mod readers;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use berth_e2e::binaries::repository;
use berth_e2e::control_plane::{ControlPlane, Options};
use berth_e2e::kinds::{self, condition, items, text};
use berth_e2e::manager::ManagerOptions;
use berth_e2e::manifest::{self, Job, cluster_queue, flavor, group, local_queue, quota};
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::prometheus::{self, Prometheus, promtool};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use berth_e2e::webhooks;
use jiff::Timestamp;
use serde_json::{Value, json};

/// A configuration in which all settings that add series of their own are on.
const CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
metrics: {enableClusterQueueResources: true}
integrations: {frameworks: [batch/job, pod]}
fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}
admissionFairSharing: {usageHalfLifeTime: 1m, usageSamplingInterval: 1s}
";

/// Labels that may be empty in all series of a metric, so that Prometheus drops them; in another metric these labels have a value.
const MAY_BE_EMPTY: [&str; 5] = ["cohort", "parent_cohort", "priority_class", "root_cohort", "underlying_cause"];
/// The label `go_version` of Kueue's metrics, which is always empty in Berth's metrics, because Berth is not written in Go.
const EMPTY: &str = "go_version";

/// Series of the metrics by name, with their labels.
type Documented = BTreeMap<String, BTreeSet<String>>;

/// The series in the table of docs/metrics.md; a histogram gives three series.
fn documented() -> Result<Documented> {
    let page = std::fs::read_to_string(repository().join("docs/metrics.md"))?;
    let mut found = Documented::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, _] = cells[..] else { anyhow::bail!("a row of {} columns: {line}", cells.len()) };
        let name = name.trim_matches('`');
        let labels: BTreeSet<String> = labels.split(", ").filter(|l| !l.is_empty()).map(str::to_owned).collect();
        if kind == "histogram" {
            let bucket = labels.iter().cloned().chain(["le".to_owned()]).collect();
            found.insert(format!("{name}_bucket"), bucket);
            for suffix in ["_sum", "_count"] {
                found.insert(format!("{name}{suffix}"), labels.clone());
            }
        } else {
            found.insert(name.to_owned(), labels);
        }
    }
    ensure!(found.len() > 80, "only {} series are documented", found.len());
    Ok(found)
}

/// Differences between docs/metrics.md and the series in Prometheus.
fn differences(documented: &Documented, seen: &[(String, BTreeSet<String>)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut found = Documented::new();
    for (name, labels) in seen {
        found.entry(name.clone()).or_default().extend(labels.iter().cloned());
    }
    for (name, labels) in documented {
        let Some(has) = found.get(name) else {
            wrong.push(format!("{name} has no data"));
            continue;
        };
        let may_lack = |label: &str| label == EMPTY || MAY_BE_EMPTY.contains(&label);
        let lacks: Vec<_> = labels.difference(has).filter(|label| !may_lack(label)).collect();
        let more: Vec<_> = has.difference(labels).collect();
        if !lacks.is_empty() || !more.is_empty() {
            wrong.push(format!("{name} lacks labels {lacks:?} and has {more:?} that are not documented"));
        }
    }
    let has_value = |label: &str| documented.keys().any(|name| found.get(name).is_some_and(|has| has.contains(label)));
    wrong.extend(MAY_BE_EMPTY.iter().filter(|label| !has_value(label)).map(|label| format!("{label} is always empty")));
    let ours = ["kueue_", "berth_", "training_", "rest_client_"];
    let strange =
        found.keys().filter(|name| ours.iter().any(|p| name.starts_with(p)) && !documented.contains_key(*name));
    wrong.extend(strange.map(|name| format!("{name} is not documented")));
    wrong
}

/// Label of a namespace that opens the lending queues to the namespace's jobs.
const OPEN: &str = "e2e.berth.dev/open";

/// Opens the two lending queues to the namespace's jobs, or closes them, by one change of the namespace.
async fn open(s: &Scenario<'_>, open: bool) -> Result<()> {
    let value = if open { json!("yes") } else { Value::Null };
    kinds::NAMESPACE.patch(&s.client, "", &s.namespace, &json!({"metadata": {"labels": {OPEN: value}}})).await.map(drop)
}

/// Two queues reclaim at the same moment the quota that a third queue has borrowed from both, and one of the jobs ends.
async fn reclaimed_by_two(s: &Scenario<'_>) -> Result<()> {
    let (cpu, tree) = (s.name("cpu"), s.name("cohort"));
    s.apply(&flavor(&cpu, &[("e2e/pool", "cpu")])).await?;
    s.apply(&manifest::cohort(&s.name("root"), "", &[])).await?;
    s.apply(&manifest::cohort(&tree, &s.name("root"), &[])).await?;
    s.apply(&manifest::priority_class(&s.name("class"), 10)).await?;
    for (name, nominal) in [("a", "2"), ("b", "2"), ("c", "0")] {
        let selector = if name == "c" { json!({}) } else { json!({"matchLabels": {OPEN: "yes"}}) };
        let more = json!({"cohortName": tree, "preemption": {"reclaimWithinCohort": "Any"},
            "namespaceSelector": selector, "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}});
        let limits = [quota("cpu", nominal).borrowing("4").lending(nominal)];
        s.apply(&cluster_queue(&s.name(name), &[group(&[(&cpu, &limits)])], &more)).await?;
        s.apply(&local_queue(&s.namespace, name, &s.name(name))).await?;
    }
    let job = |name: &str, queue: &str, cpu: &str| {
        let class = ("kueue.x-k8s.io/priority-class", s.name("class"));
        Job::new(&s.namespace, name, queue).cpu(cpu).label(class.0, &class.1)
    };
    s.create(job("borrower", "c", "4").endless()).await?;
    s.workload("borrower", "PodsReady", |w| condition(w, "PodsReady") == "True").await?;
    // The jobs of the two lending queues wait until one change opens their queues, so that one cycle looks for victims for both of them.
    for round in 0..5 {
        let (one, two) = (format!("one-{round}"), format!("two-{round}"));
        open(s, false).await?;
        let short = |name: &str, queue: &str| s.create(job(name, queue, "2").run_ms(1_500));
        futures::try_join!(short(&one, "a"), short(&two, "b"))?;
        futures::try_join!(s.pending(&one), s.pending(&two))?;
        open(s, true).await?;
        s.finished(&one).await?;
        s.finished(&two).await?;
        if s.stage.manager.metric("kueue_preemption_target_recomputations_total", &[]).await?.is_some() {
            return Ok(());
        }
        s.workload("borrower", "back", |w| condition(w, "PodsReady") == "True").await?;
    }
    anyhow::bail!("two preemptors never met in one cycle")
}

/// A job leaves a tier without nodes for the next tier. Returns the time from the creation of the job that changes its tier until it has finished.
async fn down_a_tier(s: &Scenario<'_>) -> Result<Duration> {
    let names = [("reserved", "nowhere"), ("on-demand", "cpu")];
    for (tier, pool) in names {
        let mut object = flavor(&s.name(tier), &[("e2e/pool", pool)]);
        object["metadata"]["labels"] = json!({"berth.dev/capacity-tier": tier});
        s.apply(&object).await?;
    }
    let limits = [quota("cpu", "4")];
    let flavors = names.map(|(tier, _)| s.name(tier));
    let groups = [group(&[(&*flavors[0], &limits), (&*flavors[1], &limits)])];
    s.apply(&cluster_queue(&s.name("tiers"), &groups, &json!({}))).await?;
    s.apply(&local_queue(&s.namespace, "tiers", &s.name("tiers"))).await?;
    let (patience, backoff) = (json!({"reserved": "1s"}), json!({"initial": "8s"}));
    let tiers = json!({"default": ["reserved", "on-demand"], "patience": patience, "backoff": backoff});
    s.apply(&json!({"apiVersion": "berth.dev/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": s.name("policy")},
        "spec": {"clusterQueues": [s.name("tiers")], "capacityTiers": tiers}}))
        .await?;
    let begun = Instant::now();
    s.create(Job::new(&s.namespace, "falls", "tiers").run_ms(500)).await?;
    s.finished("falls").await?;
    Ok(begun.elapsed())
}

/// After the back-off of the tier without nodes is over, a job is held by the stop policy of its LocalQueue for four seconds, is then admitted to that tier,
/// and leaves it again. Returns two times: how long the LocalQueue held the job, and the time from the job's creation to its end.
async fn down_again(s: &Scenario<'_>) -> Result<[Duration; 2]> {
    wait::until(STEP, "the back-off is over", || async {
        let policy = kinds::QUEUE_POLICY.get(&s.client, "", &s.name("policy")).await?.unwrap_or_default();
        let backoffs = items(&policy, "/status/backoffs");
        let until = backoffs.iter().map(|one| text(one, "/until").parse()).collect::<Result<Vec<Timestamp>, _>>()?;
        let over = !until.is_empty() && until.iter().all(|until| *until < Timestamp::now());
        Ok(Seen::when(over, || policy["status"].to_string()))
    })
    .await?;
    let mut queue = local_queue(&s.namespace, "tiers", &s.name("tiers"));
    queue["spec"]["stopPolicy"] = json!("Hold");
    s.apply(&queue).await?;
    wait::until(STEP, "the LocalQueue is on hold", || async {
        let queue = kinds::LOCAL_QUEUE.get(&s.client, &s.namespace, "tiers").await?.unwrap_or_default();
        Ok(Seen::when(condition(&queue, "Active") == "False", || queue["status"].to_string()))
    })
    .await?;
    let begun = Instant::now();
    s.create(Job::new(&s.namespace, "falls-again", "tiers").run_ms(500)).await?;
    s.pending("falls-again").await?;
    let waits = Instant::now();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let held = waits.elapsed();
    queue["spec"]["stopPolicy"] = json!("None");
    s.apply(&queue).await?;
    s.finished("falls-again").await?;
    Ok([held, begun.elapsed()])
}

/// Creates a TrainingJob of one worker that saves checkpoints, in the queue of [`trainings`]; the annotations `life` say how long its pods run.
async fn train(s: &Scenario<'_>, name: &str, class: &str, life: Value) -> Result<()> {
    let metadata = json!({"namespace": s.namespace, "name": name});
    let spec = json!({
        "jobType": "PyTorchJob",
        "resources": {"maxReplicas": 1, "replicaResources": {"cpu": "1"}},
        "schedulingConfig": {"queue": "trainings", "priority": s.name(class)},
        "checkpoint": {"interval": "1h"},
        "template": {"metadata": {"annotations": life}, "spec": {"containers": [{"name": "c", "image": "e2e/none"}]}},
    });
    let object = json!({"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob", "metadata": metadata, "spec": spec});
    s.apply(&object).await.map(drop)
}

/// Waits until `check` holds for a TrainingJob.
async fn training_is(s: &Scenario<'_>, name: &str, what: &str, check: impl Fn(&Value) -> bool) -> Result<()> {
    wait::until(STEP, &format!("training {name} {what}"), || async {
        let job = kinds::TRAINING_JOB.get(&s.client, &s.namespace, name).await?.unwrap_or_default();
        Ok(Seen::when(check(&job), || job["status"].to_string()))
    })
    .await
}

/// Creates a queue with quota for one TrainingJob at a time, and the first TrainingJob in it.
async fn trainings(s: &Scenario<'_>) -> Result<()> {
    let (cpu, queue) = (s.name("training-cpu"), s.name("trainings"));
    s.apply(&flavor(&cpu, &[("e2e/pool", "cpu")])).await?;
    let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    s.apply(&cluster_queue(&queue, &[group(&[(&cpu, &[quota("cpu", "1")])])], &preemption)).await?;
    s.apply(&local_queue(&s.namespace, "trainings", &queue)).await?;
    s.apply(&json!({"apiVersion": "berth.dev/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": s.name("grace")},
        "spec": {"clusterQueues": [queue], "preemption": {"gracePeriod": "1s"}}}))
        .await?;
    for (class, value) in [("low", 1), ("high", 2)] {
        s.apply(&manifest::priority_class(&s.name(class), value)).await?;
    }
    train(s, "yields", "low", json!({"e2e.berth.dev/outcome": "never"})).await?;
    a_training_gives_way(s, "urgent").await
}

/// The first TrainingJob saves a checkpoint, and then gives its quota to another TrainingJob, which ends.
async fn a_training_gives_way(s: &Scenario<'_>, urgent: &str) -> Result<()> {
    let in_phase = |wanted: &'static str| move |job: &Value| text(job, "/status/phase") == wanted;
    training_is(s, "yields", "runs", in_phase("Running")).await?;
    let now = Timestamp::from_second(Timestamp::now().as_second())?;
    let reported = json!({"metadata": {"annotations": {"berth.dev/last-checkpoint-time": now.to_string()}}});
    kinds::TRAINING_JOB.patch(&s.client, &s.namespace, "yields", &reported).await?;
    // Berth must have counted the last checkpoint before it asks the training to save again.
    let saved = |job: &Value| text(job, "/status/checkpoint/latest/time").parse().is_ok_and(|at: Timestamp| at == now);
    training_is(s, "yields", "is seen to have saved", saved).await?;
    train(s, urgent, "high", json!({"e2e.berth.dev/run-ms": "1500"})).await?;
    training_is(s, urgent, "has ended", in_phase("Succeeded")).await
}

/// Repeats all counted events, because a rate needs an increase of its counter after Prometheus' first scrape. Returns the two times that [`down_again`] has
/// measured.
async fn once_more(s: &Scenario<'_>) -> Result<[Duration; 2]> {
    let (durations, ()) = futures::try_join!(down_again(s), a_training_gives_way(s, "urgent-again"))?;
    // One of the two remaining TrainingJobs waits for quota.
    train(s, "later", "low", json!({"e2e.berth.dev/outcome": "never"})).await?;
    Ok(durations)
}

async fn story(stage: &Stage, reader: &str) -> Result<()> {
    let s = stage.scenario("metrics").await?;
    let prometheus = Prometheus::start(stage.plane.folder(), &[stage.manager.metrics_port()], reader).await?;
    let ((), first, ()) = futures::try_join!(reclaimed_by_two(&s), down_a_tier(&s), trainings(&s))?;
    // A pod without an owner waits with its scheduling gate.
    s.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": s.namespace, "name": "alone",
        "labels": {"kueue.x-k8s.io/queue-name": "a"}}, "spec": {"restartPolicy": "Never", "containers": [
            {"name": "c", "image": "e2e/none", "resources": {"requests": {"cpu": "100m"}}}]}}))
        .await?;
    // The amounts that a waiting Workload requests are in the metrics, too.
    s.create(Job::new(&s.namespace, "waits", "a").cpu("9")).await?;
    s.pending("waits").await?;
    let documented = documented()?;
    wait::until(STEP, "every documented series has data, and no other", || async {
        let wrong = differences(&documented, &prometheus.series().await?);
        Ok(Seen::when(wrong.is_empty(), || wrong.join("; ")))
    })
    .await?;
    wait::until(STEP, "all rules were evaluated, nothing fires", || async {
        prometheus.all_up().await?;
        let firing = prometheus.alerts().await?;
        Ok(Seen::when(firing.is_empty(), || firing.join(", ")))
    })
    .await?;
    let [held, second] = once_more(&s).await?;
    values::shown(&prometheus).await?;
    values::of_a_training(&prometheus, &format!("{}/yields", s.namespace)).await?;
    values::of_tiers(&prometheus, &s.name("tiers"), held, first + second - held).await?;
    // A counter must count an event once: an answer of Prometheus is compared with the story.
    let jobs = kinds::JOB.list(&s.client, &s.namespace).await?;
    let done = jobs.iter().filter(|job| text(job, "/metadata/name").starts_with("one-")).count();
    // The pod `alone` was also admitted in queue a.
    let done = done + 1;
    wait::until(STEP, &format!("{done} were admitted in queue a"), || async {
        let query = r#"sum(kueue_admitted_workloads_total{cluster_queue="metrics-a"})"#;
        let admitted = prometheus.ask("query", &[("query", query)]).await?;
        let value = items(&admitted, "/result").first().context("a sum")?["value"][1].clone();
        Ok(Seen::when(value == json!(done.to_string()), || format!("Prometheus says {value}")))
    })
    .await?;
    readers::readers_are_distinguished(stage, reader).await?;
    kinds::POD.delete(&s.client, &s.namespace, "alone").await?;
    let names = [format!("=\"{}", s.name("")), format!("namespace={:?}", s.namespace)];
    ensure!(values::naming(stage, &names).await?.len() > 100, "the story has hardly any series");
    s.conclude().await?;
    values::forgotten(stage, &names).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_metric_series_all_have_data() -> Result<()> {
    let plane = ControlPlane::start(Options::with_crds("metrics")).await?;
    let port = webhooks::port()?;
    webhooks::install(&plane.client(), port, "Fail").await?;
    let reader = readers::admitted(&plane.client()).await?;
    let options = ManagerOptions {
        config: Some(CONFIG.to_owned()),
        webhooks: Some(port),
        reader: Some(reader.clone()),
        ..ManagerOptions::default()
    };
    let pools = [Pool::cpu("cpu", 2, Tier::OnDemand).label("e2e/pool", "cpu")];
    let stage = Stage::on(plane, &pools, options).await?;
    let outcome = match story(&stage, &reader).await {
        Ok(()) => Ok(()),
        Err(e) => Err(anyhow::anyhow!(stage.failure("metrics", &e).await)),
    };
    stage.stop().await;
    outcome
}

/// promtool must find no fault in the chart's rules; each alert fires in a case of its own and names a remedy.
#[tokio::test]
async fn alert_fires_in_its_case_and_names_a_remedy() -> Result<()> {
    let rules = prometheus::rules();
    let (content, message) =
        promtool(&["check", "rules", "--lint=all", "--lint-fatal", &rules.display().to_string()]).await?;
    ensure!(content, "{message}");
    let cases = std::fs::read_to_string(repository().join("e2e/cases/alerts.yaml"))?;
    let path = std::env::temp_dir().join(format!("berth-e2e-alerts-{}.yaml", std::process::id()));
    std::fs::write(&path, cases.replace("[RULES]", &format!("[{}]", rules.display())))?;
    let (content, message) = promtool(&["test", "rules", &path.display().to_string()]).await?;
    std::fs::remove_file(&path)?;
    ensure!(content, "{message}");
    let parsed = kinds::parse(&std::fs::read_to_string(&rules)?)?;
    let groups = parsed.first().context("no rules")?;
    let all = items(groups, "/groups").iter().flat_map(|group| items(group, "/rules"));
    let alerts: Vec<&Value> = all.filter(|rule| rule.get("alert").is_some()).collect();
    ensure!(alerts.len() >= 15, "{} alerts", alerts.len());
    for alert in alerts {
        let name = text(alert, "/alert");
        ensure!(cases.contains(&format!(r#"{{alertname="{name}"}}"#)), "no case in which {name} fires");
        ensure!(!text(alert, "/annotations/summary").is_empty(), "{name} has no summary");
        ensure!(text(alert, "/annotations/description").len() > 80, "{name} does not say what to do");
        ensure!(["critical", "warning", "info"].contains(&text(alert, "/labels/severity")), "{name} has no severity");
    }
    Ok(())
}
