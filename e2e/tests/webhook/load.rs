//! The time of a review and of a conversion under 300 creations a second. Some creations are dry runs, as many as the API server answers on this
//! machine; for each other creation the test itself sends the reviews that the API server would have sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use berth_e2e::jobset::JOBSET;
use berth_e2e::kinds::{CLUSTER_QUEUE, Kind, POD, items, text};
use berth_e2e::manager::sum_of;
use berth_e2e::manifest::Job;
use berth_e2e::scenario::Stage;
use berth_e2e::shipped;
use berth_e2e::test_clock;
use berth_e2e::wait::{self, STEP, Seen};
use futures::StreamExt;
use kube::Client;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::webhook::flood::{self, Connections};
use crate::webhook::rotation::trust;

/// Namespace of the created objects.
const NAMESPACE: &str = "webhook-load";
/// Number of creations per second.
const RATE: u32 = 300;
/// Number of dry runs that the API server processes at once. For further creations the test sends only the reviews: two cores that do nothing but dry runs
/// answer 100 to 290 dry runs a second, and leave no time to Berth, whose times the test measures.
const AT_ONCE: usize = 2;
/// Number of creations, of a hundred, that must have been dry runs at the API server.
const SERVED: u32 = 10;
/// The part of the rate `RATE` that must be reached: on a machine that is busy with other work, the measured times mean nothing.
const REACHED: f64 = 0.9;
/// Time in seconds for which the test creates objects.
const SECONDS: u32 = 12;
/// Largest number of rounds of measurements: the test fails if a time is too long in each of these rounds.
const ROUNDS: u32 = 3;
/// An object is read in its other API version beside every sixth creation.
const READ_EVERY: u32 = 6;
/// A large object is converted beside every thirtieth creation, because its conversion takes as much time as many small ones.
const LARGE_EVERY: u32 = 30;
/// Number of pod sets of a wide Workload: as many as a Workload may have.
const POD_SETS: usize = 18;
/// Number of topology domains of the pods of a large Workload.
const DOMAINS: usize = 4_000;
/// Time in seconds that Berth's handler may take for 99 of 100 reviews, in the release build.
const P99: f64 = 0.005;
/// Time in seconds that Berth's handler may take for 99 of 100 conversions.
const CONVERSION: f64 = 0.001;
/// Time in seconds that Berth's handler may take for 99 of 100 conversions of Workloads with the most pod sets: 1 ms was measured, and the rest is
/// room for slower machines.
const WIDE: f64 = 0.0025;
/// Time in seconds that Berth's handler may take for 99 of 100 conversions of Workloads with thousands of domains, which have 300 KB in v1beta1: 2.5
/// ms was measured.
const PLACED: f64 = 0.01;
/// Factor on the times for the build of the tests, which is hardly optimised: that build takes up to three times as long for a large object.
const UNOPTIMISED: f64 = 2.5;
/// Endpoints of Berth's webhooks, each with the outcome, the time that 99 of 100 reviews may take, and the number of reviews for 60 creations.
const JUDGED: [(&str, &str, f64, u32); 6] = [
    ("mutate-job", "allowed", P99, 36),
    ("validate-job", "allowed", P99, 36),
    ("mutate-pod", "allowed", P99, 18),
    ("validate-pod", "allowed", P99, 18),
    ("mutate-jobset", "allowed", P99, 6),
    ("validate-jobset", "allowed", P99, 6),
];
/// The kind ClusterQueue in its version v1beta1, whose fields differ from those of v1beta2.
pub(crate) const OLDER_QUEUE: Kind = Kind { api_version: "kueue.x-k8s.io/v1beta1", ..CLUSTER_QUEUE };

pub(crate) async fn story(stage: &mut Stage, port: u16) -> Result<()> {
    let s = stage.scenario(NAMESPACE).await?;
    s.simple_queue("1", &json!({})).await?;
    ready(stage, &s.name("cq")).await?;
    let direct = Arc::new(Connections::new(port, trust(&stage.client).await?));
    let queue = Read::Queue(s.name("cq"));
    let small = Beside { what: "a ClusterQueue".to_owned(), read: queue, every: READ_EVERY, most: CONVERSION };
    steady(stage, &direct, &small).await?;
    for (what, workload, every, most) in
        [("18 pod sets", wide(), READ_EVERY, WIDE), ("4,000 domains", placed(), LARGE_EVERY, PLACED)]
    {
        let older = converted(&direct, &question(OLDER_QUEUE.api_version, &workload)).await?;
        for (to, object) in [(OLDER_QUEUE.api_version, &workload), (CLUSTER_QUEUE.api_version, &older)] {
            let read = Read::Direct(question(to, object), to);
            steady(stage, &direct, &Beside { what: format!("{what} to {to}"), read, every, most }).await?;
        }
    }
    flood::flood(stage, port).await?;
    s.conclude().await
}

/// The object that the creation `number` creates: of ten objects one is a JobSet, three are pods and six are Jobs; all of them name a queue, and none
/// of them is suspended or has a gate.
fn asked(number: u32) -> Value {
    let name = format!("asked-{number}");
    let metadata = json!({"namespace": NAMESPACE, "name": name, "labels": {"kueue.x-k8s.io/queue-name": "queue"}});
    let container = json!({"name": "main", "image": "e2e/none", "resources": {"requests": {"cpu": "1"}}});
    let pods = json!({"restartPolicy": "Never", "containers": [container]});
    match number % 10 {
        0 => json!({"apiVersion": JOBSET.api_version, "kind": JOBSET.kind, "metadata": metadata, "spec": {
            "replicatedJobs": [{"name": "job", "template": {"spec": {"template": {"spec": pods}}}}]}}),
        1..=3 => json!({"apiVersion": POD.api_version, "kind": POD.kind, "metadata": metadata, "spec": pods}),
        _ => Job::new(NAMESPACE, &name, "queue").spec(&json!({"suspend": false})).manifest(),
    }
}

/// Creates an object by a dry run: the API server's answer must have it suspended or gated.
async fn create(client: &Client, object: Value) -> Result<()> {
    let kind = Kind::of(&object)?;
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let created = kind.api(client, NAMESPACE).create(&params, &serde_json::from_value(object)?).await?;
    let mut gates = items(&created.data, "/spec/schedulingGates").iter();
    let gated = gates.any(|gate| text(gate, "/name") == "kueue.x-k8s.io/admission");
    let suspended = created.data["spec"]["suspend"] == json!(true);
    ensure!(gated || suspended, "a {} does not wait: {}", kind.kind, created.data["spec"]);
    Ok(())
}

/// Sends the reviews of a creation directly to Berth, as the API server would send them.
async fn reviewed(direct: &Connections, object: &Value) -> Result<()> {
    let kind = Kind::of(object)?;
    let resource = match kind.kind {
        "JobSet" => "jobset-x-k8s-io-v1alpha2-jobset",
        "Pod" => "-v1-pod",
        _ => "batch-v1-job",
    };
    let review = flood::admission_review("CREATE", NAMESPACE, object, &Value::Null).to_string();
    for (verb, answers) in [("mutate", "\"patchType\""), ("validate", "\"allowed\":true")] {
        let answer = direct.ask(&format!("/{verb}-{resource}"), &review).await?;
        ensure!(answer.contains(answers), "{verb} of a {}: {answer}", kind.kind);
    }
    Ok(())
}

/// A conversion that the test requests beside the dry runs.
enum Read {
    /// A read of a small ClusterQueue through the API server.
    Queue(String),
    /// A conversion review with the wanted version, for an object that would disturb the test's queues if it were stored.
    Direct(String, &'static str),
}

/// A kind of conversion that the test requests beside the creations, with the number of creations for each conversion and the time that 99 of 100 conversions
/// may take.
struct Beside {
    /// Name of the conversion in the printed figures.
    what: String,
    read: Read,
    every: u32,
    most: f64,
}

impl Read {
    async fn once(&self, client: &Client, direct: &Connections) -> Result<()> {
        match self {
            Self::Queue(name) => {
                ensure!(OLDER_QUEUE.get(client, "", name).await?.is_some(), "the queue is gone");
            }
            Self::Direct(review, to) => {
                let answer = direct.ask("/convert", review).await?;
                // The answer of a complete conversion has no field under the name (`slices` or `domains`) that only the other API version of a Workload uses.
                let left = if *to == OLDER_QUEUE.api_version { "\"slices\"" } else { "\"domains\"" };
                let converted = answer.contains("\"status\":\"Success\"") && !answer.contains(left);
                ensure!(converted, "a Workload is not converted: {}", answer.chars().take(2_000).collect::<String>());
            }
        }
        Ok(())
    }
}

/// The conversion review that asks for an object in the version `to`.
fn question(to: &str, object: &Value) -> String {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "u", "desiredAPIVersion": to, "objects": [object]}})
    .to_string()
}

/// The object in the answer to the conversion review `question`.
async fn converted(direct: &Connections, question: &str) -> Result<Value> {
    let answer = direct.ask("/convert", question).await?;
    let (_, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
    let answer: Value = serde_json::from_str(body)?;
    answer.pointer("/response/convertedObjects/0").cloned().with_context(|| format!("nothing is converted: {answer}"))
}

/// A Workload whose pod sets each have the fields that a pod of a job has: a container, its variables and its requests.
fn workload(sets: usize, status: Value) -> Value {
    let variables: Vec<Value> =
        (0..40).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "some value of it"})).collect();
    let container =
        json!({"name": "main", "image": "e2e/none", "env": variables, "resources": {"requests": {"cpu": "1"}}});
    let sets: Vec<Value> = (0..sets)
        .map(|n| json!({"name": format!("set-{n}"), "count": 1, "template": {"spec": {"containers": [container]}}}))
        .collect();
    json!({"apiVersion": CLUSTER_QUEUE.api_version, "kind": "Workload",
        "metadata": {"namespace": NAMESPACE, "name": "large"},
        "spec": {"queueName": "queue", "podSets": sets}, "status": status})
}

/// A Workload with `POD_SETS` pod sets, the most that a Workload may have.
fn wide() -> Value {
    let given: Vec<Value> = (0..POD_SETS)
        .map(
            |n| json!({"name": format!("set-{n}"), "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}}),
        )
        .collect();
    workload(POD_SETS, json!({"admission": {"clusterQueue": "queue", "podSetAssignments": given}}))
}

/// A Workload whose pods are assigned to thousands of topology domains.
fn placed() -> Value {
    let roots = |per: usize| (0..DOMAINS).map(|n| format!("{:04}", n / per)).collect::<Vec<_>>();
    let level = |prefix: &str, per: usize| json!({"individual": {"prefix": prefix, "roots": roots(per)}});
    let slice = json!({"domainCount": DOMAINS, "podCounts": {"universal": 1},
        "valuesPerLevel": [level("block-", 400), level("rack-", 20), level("gke-cluster-pool-node-", 1)]});
    let assignment = json!({"levels": ["block", "rack", "kubernetes.io/hostname"], "slices": [slice]});
    let given = json!([{"name": "set-0", "count": DOMAINS, "topologyAssignment": assignment}]);
    workload(1, json!({"admission": {"clusterQueue": "queue", "podSetAssignments": given}}))
}

/// Waits until the API server answers dry runs, and serves v1beta1.
async fn ready(stage: &Stage, queue: &str) -> Result<()> {
    for number in 0..10 {
        wait::until(STEP, "dry runs are answered", || async {
            create(&stage.client, asked(number)).await?;
            Ok(Seen::Yes(()))
        })
        .await?;
    }
    // The API server replaces its handlers after a change of a CRD.
    wait::until(Duration::from_secs(90), "v1beta1 is served", || async {
        let found = OLDER_QUEUE.get(&stage.client, "", queue).await?;
        Ok(Seen::when(found.is_some(), || "the queue is not there".to_owned()))
    })
    .await
}

/// Creates objects at a steady rate, and judges the times in Berth's own histogram.
async fn steady(stage: &Stage, direct: &Connections, beside: &Beside) -> Result<()> {
    let _alone = crate::webhook::QUIET.write().await;
    let mut wrong = Vec::new();
    for _ in 0..ROUNDS {
        wrong = measured(stage, direct, beside).await?;
        if wrong.is_empty() {
            return Ok(());
        }
        println!("load: {}", wrong.join("; "));
    }
    bail!("{ROUNDS} times in a row, the last time: {}", wrong.join("; "))
}

/// Runs one round of creations; returns the times that are too long.
async fn measured(stage: &Stage, direct: &Connections, beside: &Beside) -> Result<Vec<String>> {
    let client = &stage.client;
    let before = stage.manager.metrics().await?;
    let begun = Instant::now();
    let (server, served) = (&Semaphore::new(AT_ONCE), &AtomicU32::new(0));
    let ticks = futures::stream::iter(0..RATE * SECONDS).map(|number| async move {
        tokio::time::sleep_until((begun + Duration::from_secs(1) / RATE * number).into()).await;
        if number % beside.every == 0 {
            beside.read.once(client, direct).await?;
        }
        match server.try_acquire() {
            Ok(_permit) => {
                create(client, asked(number)).await?;
                served.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => reviewed(direct, &asked(number)).await?,
        }
        anyhow::Ok(())
    });
    let answers: Vec<Result<()>> = ticks.buffer_unordered(RATE as usize).collect().await;
    answers.into_iter().collect::<Result<()>>()?;
    let seconds = begun.elapsed().as_secs_f64();
    let (rate, served) = (f64::from(RATE * SECONDS) / seconds, served.load(Ordering::Relaxed));
    println!("load: {rate:.0} creations/s, {:.0} of them dry runs", f64::from(served) / seconds);
    ensure!(served >= RATE * SECONDS / 100 * SERVED, "the API server answered {served} dry runs");
    let after = stage.manager.metrics().await?;
    let mut wrong = Vec::new();
    let slower = test_clock::of_cores();
    println!("load: {}", test_clock::summary());
    if rate < f64::from(RATE) * REACHED / slower {
        wrong.push(format!("{rate:.0} creations/s were reached of {RATE}"));
    }
    let conversion = ("convert", "converted", beside.most, 60 / beside.every);
    for (endpoint, outcome, most, of_60) in JUDGED.into_iter().chain([conversion]) {
        let found = p99(&before, &after, endpoint, outcome);
        let (count, bound) = found.with_context(|| format!("no histogram of {endpoint} with outcome {outcome}"))?;
        let what = if endpoint == "convert" { format!(" of {}", beside.what) } else { String::new() };
        let labels = [format!("endpoint=\"{endpoint}\""), format!("outcome=\"{outcome}\"")];
        let seconds = |text| sum_of(text, "berth_webhook_duration_seconds_sum", &labels.each_ref().map(String::as_str));
        let spent = seconds(&after).unwrap_or_default() - seconds(&before).unwrap_or_default();
        println!(
            "load: {endpoint}{what}: p99 <= {:.2} ms of {count}, {:.2} ms on average",
            bound * 1e3,
            spent / count * 1e3
        );
        let least = f64::from(RATE * SECONDS / 60 * of_60);
        ensure!(count >= least, "{count} at {endpoint} are counted, and {least} came there");
        let most = slower * if shipped::is_release() { most } else { most * UNOPTIMISED };
        if bound > most {
            wrong.push(format!("99 of 100 at {endpoint}{what} take up to {bound} s, and may take {most} s"));
        }
    }
    Ok(wrong)
}

/// Answers of one endpoint between two readings of the metrics: their number, and the upper bound of the bucket with the 99th percentile.
fn p99(before: &str, after: &str, endpoint: &str, outcome: &str) -> Option<(f64, f64)> {
    let (old, new) = (buckets(before, endpoint, outcome), buckets(after, endpoint, outcome));
    let earlier = |index: usize| old.get(index).map_or(0.0, |(_, count)| *count);
    let between: Vec<(f64, f64)> =
        new.iter().enumerate().map(|(index, (bound, count))| (*bound, count - earlier(index))).collect();
    let (_, all) = *between.last()?;
    let (bound, _) = *between.iter().find(|(_, count)| *count >= all * 0.99)?;
    (all > 0.0).then_some((all, bound))
}

/// The histogram buckets of one endpoint: the upper bound, and the number of answers that took no longer; the last bucket counts all answers.
fn buckets(text: &str, endpoint: &str, outcome: &str) -> Vec<(f64, f64)> {
    let labels = [format!("endpoint=\"{endpoint}\""), format!("outcome=\"{outcome}\"")];
    let own = |line: &&str| {
        line.starts_with("berth_webhook_duration_seconds_bucket") && labels.iter().all(|label| line.contains(&**label))
    };
    let read = |line: &str| {
        let bound = line.split(['{', ',']).find_map(|label| label.strip_prefix("le=\""))?.split('"').next()?;
        let bound: f64 = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
        let count: f64 = line.rsplit_once(' ')?.1.parse().ok()?;
        Some((bound, count))
    };
    let mut found: Vec<(f64, f64)> = text.lines().filter(own).filter_map(read).collect();
    found.sort_by(|one, other| one.0.total_cmp(&other.0));
    found
}
