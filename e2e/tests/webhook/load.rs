//! How long a review takes under 300 a second, and what a flood of malformed ones and of TLS rubbish leaves behind.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use berth_e2e::bench::meter::Usage;
use berth_e2e::scenario::Stage;
use futures::StreamExt;
use rustls::pki_types::ServerName;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::rotation::{review, trust};

/// Reviews per second.
const RATE: u32 = 300;
/// Seconds of them.
const SECONDS: u32 = 12;
/// Handler time that 99 of 100 reviews may take, in seconds.
const P99: f64 = 0.005;
/// What a flood may leave behind, in MB: pages that the allocator keeps, not what grows with the flood.
const LEFT: f64 = 12.0;

pub(crate) async fn story(stage: &mut Stage, port: u16) -> Result<()> {
    let s = stage.scenario("webhook-load").await?;
    s.simple_queue("1", &json!({})).await?;
    steady(stage).await?;
    flood(stage, port).await?;
    s.conclude().await
}

/// Dry runs at a steady rate; figures from Berth's own histogram.
async fn steady(stage: &Stage) -> Result<()> {
    let client = &stage.client;
    let begun = Instant::now();
    let ticks = futures::stream::iter(0..RATE * SECONDS).map(|number| async move {
        tokio::time::sleep_until((begun + Duration::from_secs(1) / RATE * number).into()).await;
        let asked = Instant::now();
        review(client, "webhook-load", &format!("asked-{number}")).await?;
        anyhow::Ok(asked.elapsed())
    });
    let answers: Vec<Result<Duration>> = ticks.buffer_unordered(RATE as usize).collect().await;
    let mut latencies: Vec<Duration> = answers.into_iter().collect::<Result<_>>()?;
    latencies.sort();
    let rate = latencies.len() as f64 / begun.elapsed().as_secs_f64();
    let at = |share: f64| latencies.get((latencies.len() as f64 * share) as usize).copied().unwrap_or_default();
    let text = stage.manager.metrics().await?;
    let (bound, count) = p99(&text, "mutate-job").context("the histogram of mutate-job")?;
    println!(
        "load: {rate:.0} dry runs/s; create p50 {:.1} ms, p99 {:.1} ms; handler p99 <= {:.2} ms of {count} reviews",
        at(0.5).as_secs_f64() * 1e3,
        at(0.99).as_secs_f64() * 1e3,
        bound * 1e3
    );
    ensure!(count >= f64::from(RATE * SECONDS), "{count} reviews are counted");
    ensure!(bound <= P99, "99 of 100 reviews take up to {bound} s");
    Ok(())
}

/// Upper bound of the bucket that holds the 99th percentile, and the number of reviews.
fn p99(text: &str, endpoint: &str) -> Option<(f64, f64)> {
    let label = format!("endpoint=\"{endpoint}\"");
    let outcome = "outcome=\"allowed\"";
    let of = |name: &str| {
        let name = name.to_owned();
        let wanted = label.clone();
        text.lines().filter(move |line| line.starts_with(&name) && line.contains(&wanted) && line.contains(outcome))
    };
    let value = |line: &str| line.rsplit_once(' ')?.1.parse::<f64>().ok();
    let count = of("berth_webhook_duration_seconds_count").next().and_then(value)?;
    of("berth_webhook_duration_seconds_bucket")
        .filter_map(|line| {
            let bound = line.split("le=\"").nth(1)?.split('"').next()?;
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
            (value(line)? >= count * 0.99).then_some(bound)
        })
        .min_by(f64::total_cmp)
        .map(|bound| (bound, count))
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
    let paths = ["/mutate-batch-v1-job", "/validate-batch-v1-job", "/validate-kueue-x-k8s-io-v1beta2-workload", "/x"];
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
            _ => body.splice(20..20, std::iter::repeat_n(b'[', 5_000)).for_each(drop),
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
