//! How long a review and a conversion take under 300 creations a second, and what a flood of malformed ones and of TLS rubbish leaves
//! behind.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use berth_e2e::bench::meter::Usage;
use berth_e2e::jobset::JOBSET;
use berth_e2e::kinds::{CLUSTER_QUEUE, Kind, POD, items, text};
use berth_e2e::manifest::Job;
use berth_e2e::scenario::Stage;
use berth_e2e::wait::{self, STEP, Seen};
use futures::StreamExt;
use kube::Client;
use kube::api::PostParams;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::rotation::{review, trust};

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
/// What a flood may leave behind, in MB: pages that the allocator keeps, not what grows with the flood.
const LEFT: f64 = 12.0;

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

/// Numbers that look random and are the same every time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % end.max(1)
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most)).map(|_| u8::try_from(self.below(256)).unwrap_or(0)).collect()
    }
}

/// Half malformed reviews, half byte streams that are no TLS. `BERTH_FLOOD` is the number of both.
async fn flood(stage: &Stage, port: u16) -> Result<()> {
    let total: usize = std::env::var("BERTH_FLOOD").ok().and_then(|text| text.parse().ok()).unwrap_or(3_000);
    let mut random = Random(1);
    // What the first of them make the allocator keep is not what this is about.
    round(stage, port, total / 10, &mut random).await?;
    let before = Usage::of(stage.manager.pid()?)?;
    let begun = Instant::now();
    round(stage, port, total, &mut random).await?;
    let took = begun.elapsed();
    let after = Usage::of(stage.manager.pid()?)?;
    println!(
        "flood: {total} malformed reviews and byte streams in {:.1} s; resident {:.1} MB before, {:.1} MB after",
        took.as_secs_f64(),
        before.resident_mb,
        after.resident_mb
    );
    ensure!(after.resident_mb < before.resident_mb + LEFT, "memory grew");
    let refused = stage.manager.metric("berth_webhook_refused_total", &[]).await?.unwrap_or(0.0);
    ensure!(refused >= total as f64 * 0.9, "{refused} were counted as turned away");
    let asked = Instant::now();
    review(&stage.client, "webhook-load", "after-the-flood").await?;
    ensure!(asked.elapsed() < Duration::from_secs(1), "the next review took {:?}", asked.elapsed());
    Ok(())
}

/// One whole answer of HTTP/1.1.
async fn answer(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Result<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.context("a length")?.trim().parse()? {
                return Ok(text);
            }
        }
        ensure!(stream.read_buf(&mut bytes).await? > 0, "the answer broke off: {text}");
    }
}

async fn round(stage: &Stage, port: u16, total: usize, random: &mut Random) -> Result<()> {
    let good = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "CREATE", "namespace": "webhook-load", "object": {"metadata": {}, "spec": {}}}});
    let good = good.to_string().into_bytes();
    let paths = [
        "/mutate-batch-v1-job",
        "/validate-batch-v1-job",
        "/validate-kueue-x-k8s-io-v1beta2-workload",
        "/convert",
        "/x",
    ];
    let trust = trust(&stage.client).await?;
    let mut kept = None;
    for number in 0..total {
        if number % 2 == 0 {
            let mut tcp = TcpStream::connect(("127.0.0.1", port)).await?;
            let mut bytes = random.bytes(400);
            if number % 4 == 0 {
                // A handshake that begins well.
                bytes.splice(0..0, [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]);
            }
            let _ = tcp.write_all(&bytes).await;
            continue;
        }
        let mut body = good.clone();
        match number % 3 {
            0 => body.truncate(random.below(body.len() - 1)),
            1 => body = random.bytes(2_000),
            // In place of the first value, which begins after `{"apiVersion":`.
            _ => body.splice(14..14, std::iter::repeat_n(b'[', 5_000)).for_each(drop),
        }
        let path = paths[random.below(paths.len())];
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
        let mut stream = match kept.take() {
            Some(stream) => stream,
            None => {
                let tcp = TcpStream::connect(("127.0.0.1", port)).await?;
                TlsConnector::from(trust.clone()).connect(ServerName::try_from("127.0.0.1")?, tcp).await?
            }
        };
        stream.write_all(&[head.as_bytes(), &body].concat()).await?;
        stream.flush().await?;
        let text = tokio::time::timeout(Duration::from_secs(5), answer(&mut stream)).await??;
        ensure!(text.starts_with("HTTP/1.1 4"), "{number}: {text}");
        // Some connections are used again. Of a path that does not exist the body is not read, so that the connection ends.
        if number % 7 != 0 && path != "/x" {
            kept = Some(stream);
        }
    }
    Ok(())
}
