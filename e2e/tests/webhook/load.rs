//! How long a review and a conversion take under 300 creations a second.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use berth_e2e::jobset::JOBSET;
use berth_e2e::kinds::{CLUSTER_QUEUE, Kind, POD, items, text};
use berth_e2e::manifest::Job;
use berth_e2e::scenario::Stage;
use berth_e2e::wait::{self, STEP, Seen};
use futures::StreamExt;
use kube::Client;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::flood::flood;

/// Namespace of what is created.
const NAMESPACE: &str = "webhook-load";
/// Creations per second, all of them dry runs.
const RATE: u32 = 300;
/// What of it must be reached: on a machine that is busy with something else, the times say nothing.
const REACHED: f64 = 0.9;
/// Seconds of them.
const SECONDS: u32 = 12;
/// How often is measured anew before what is too much counts.
const ROUNDS: u32 = 3;
/// With every so many of them an object is read in its other version, too.
const READ_EVERY: u32 = 6;
/// Handler time that 99 of 100 reviews may take, in seconds.
const P99: f64 = 0.005;
/// The same of conversions.
const CONVERSION: f64 = 0.001;
/// Where the load comes to, and with which outcome: the time that 99 of 100 may take, and how many of 60 creations come there.
const JUDGED: [(&str, &str, f64, u32); 7] = [
    ("mutate-job", "allowed", P99, 36),
    ("validate-job", "allowed", P99, 36),
    ("mutate-pod", "allowed", P99, 18),
    ("validate-pod", "allowed", P99, 18),
    ("mutate-jobset", "allowed", P99, 6),
    ("validate-jobset", "allowed", P99, 6),
    ("convert", "converted", CONVERSION, 60 / READ_EVERY),
];
/// The older version of a kind whose versions differ.
pub(crate) const OLDER_QUEUE: Kind = Kind { api_version: "kueue.x-k8s.io/v1beta1", ..CLUSTER_QUEUE };

pub(crate) async fn story(stage: &mut Stage, port: u16) -> Result<()> {
    let s = stage.scenario(NAMESPACE).await?;
    s.simple_queue("1", &json!({})).await?;
    steady(stage, &s.name("cq")).await?;
    flood(stage, port).await?;
    s.conclude().await
}

/// What is created at that tick: of ten, one JobSet, three pods and six Jobs, all in a queue and none of them waiting by itself.
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

/// A dry run: what is created must come out waiting.
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

/// Dry runs at a steady rate; figures from Berth's own histogram.
async fn steady(stage: &Stage, queue: &str) -> Result<()> {
    for number in 0..10 {
        wait::until(STEP, "dry runs are answered", || async {
            create(&stage.client, asked(number)).await?;
            Ok(Seen::Yes(()))
        })
        .await?;
    }
    // The API server builds its handlers anew after a change of a CRD.
    wait::until(Duration::from_secs(30), "v1beta1 is served", || async {
        let found = OLDER_QUEUE.get(&stage.client, "", queue).await?;
        Ok(Seen::when(found.is_some(), || "the queue is not there".to_owned()))
    })
    .await?;
    let _alone = crate::QUIET.write().await;
    let mut wrong = Vec::new();
    for _ in 0..ROUNDS {
        wrong = measured(stage, queue).await?;
        if wrong.is_empty() {
            return Ok(());
        }
        println!("load: {}", wrong.join("; "));
    }
    bail!("{ROUNDS} times in a row, the last time: {}", wrong.join("; "))
}

/// One round; what of it is too slow.
async fn measured(stage: &Stage, queue: &str) -> Result<Vec<String>> {
    let client = &stage.client;
    let before = stage.manager.metrics().await?;
    let begun = Instant::now();
    let ticks = futures::stream::iter(0..RATE * SECONDS).map(|number| async move {
        tokio::time::sleep_until((begun + Duration::from_secs(1) / RATE * number).into()).await;
        if number % READ_EVERY == 0 {
            ensure!(OLDER_QUEUE.get(client, "", queue).await?.is_some(), "the queue is gone");
        }
        let begun = Instant::now();
        create(client, asked(number)).await?;
        anyhow::Ok(begun.elapsed())
    });
    let answers: Vec<Result<Duration>> = ticks.buffer_unordered(RATE as usize).collect().await;
    let mut latencies: Vec<Duration> = answers.into_iter().collect::<Result<_>>()?;
    latencies.sort();
    let rate = latencies.len() as f64 / begun.elapsed().as_secs_f64();
    let at = |share: f64| latencies.get((latencies.len() as f64 * share) as usize).copied().unwrap_or_default();
    println!(
        "load: {rate:.0} dry runs/s; create p50 {:.1} ms, p99 {:.1} ms",
        at(0.5).as_secs_f64() * 1e3,
        at(0.99).as_secs_f64() * 1e3
    );
    let after = stage.manager.metrics().await?;
    let mut wrong = Vec::new();
    if rate < f64::from(RATE) * REACHED {
        wrong.push(format!("{rate:.0} dry runs/s were reached of {RATE}"));
    }
    for (endpoint, outcome, most, of_60) in JUDGED {
        let found = p99(&before, &after, endpoint, outcome);
        let (count, bound) = found.with_context(|| format!("no histogram of {endpoint} with outcome {outcome}"))?;
        println!("load: {endpoint}: p99 <= {:.2} ms of {count}", bound * 1e3);
        let least = f64::from(RATE * SECONDS / 60 * of_60);
        ensure!(count >= least, "{count} at {endpoint} are counted, and {least} came there");
        if bound > most {
            wrong.push(format!("99 of 100 at {endpoint} take up to {bound} s, and may take {most} s"));
        }
    }
    Ok(wrong)
}

/// Of what one endpoint answered between two looks: how many there were, and the upper bound of the bucket with the 99th percentile.
fn p99(before: &str, after: &str, endpoint: &str, outcome: &str) -> Option<(f64, f64)> {
    let (old, new) = (buckets(before, endpoint, outcome), buckets(after, endpoint, outcome));
    let earlier = |index: usize| old.get(index).map_or(0.0, |(_, count)| *count);
    let between: Vec<(f64, f64)> =
        new.iter().enumerate().map(|(index, (bound, count))| (*bound, count - earlier(index))).collect();
    let (_, all) = *between.last()?;
    let (bound, _) = *between.iter().find(|(_, count)| *count >= all * 0.99)?;
    (all > 0.0).then_some((all, bound))
}

/// The buckets of one endpoint: upper bound, and how many took no longer; the last one is that of all.
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
