//! After a flood of malformed reviews and of bytes that are no TLS Berth has answered each review, goes on answering, and uses no more memory than
//! before. Every path that the chart's configurations name gets reviews of its own kind; bodies of the largest size are sent to two of the paths.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use berth_e2e::bench::meter::Usage;
use berth_e2e::scenario::Stage;
use berth_e2e::wait::{self, STEP, Seen};
use berth_e2e::webhooks::{self, Reviewed};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::webhook::rotation::{review, trust};

/// Memory in MB that may remain in use after a flood: pages that the allocator keeps, whose number does not grow with the flood.
const LEFT: f64 = 12.0;
/// Size in bytes of the largest body that Berth reads.
const LARGEST: usize = 16 * 1024 * 1024;
/// A path that Berth's webhook server does not have.
const NOWHERE: &str = "/x";

/// Numbers that look random and are the same in every run.
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

/// The review of an object, as the API server sends it to a webhook.
pub(crate) fn admission_review(operation: &str, namespace: &str, object: &Value, old: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u",
        "operation": operation, "namespace": namespace, "object": object, "oldObject": old}})
}

/// A path of the webhooks, and the body of a review that is valid for that path.
struct Target {
    path: String,
    good: String,
}

/// Every path in the chart's webhook configurations, the path of conversions, and a path that does not exist.
fn targets() -> Result<Vec<Target>> {
    let mut all = Vec::new();
    for Reviewed { path, resource } in webhooks::reviewed()? {
        let object = object(&resource).with_context(|| format!("no object to ask {path} about"))?;
        // Mutating webhooks are asked about a creation, and validating webhooks about a change, for which they check the object alone and the change.
        let (operation, old) =
            if path.starts_with("/mutate") { ("CREATE", Value::Null) } else { ("UPDATE", object.clone()) };
        let good = admission_review(operation, "webhook-load", &object, &old).to_string();
        all.push(Target { path, good });
    }
    let older = json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "metadata": {"name": "n"},
        "spec": object("workloads")?["spec"]});
    let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {"uid": "u",
        "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": [older]}});
    all.push(Target { path: "/convert".to_owned(), good: review.to_string() });
    all.push(Target { path: NOWHERE.to_owned(), good: review.to_string() });
    Ok(all)
}

/// An object of a resource, as the resource's webhooks see it.
fn object(resource: &str) -> Result<Value> {
    let template = json!({"metadata": {"labels": {"app": "n"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}});
    let group = json!({"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [
        {"name": "cpu", "nominalQuota": "1"}]}]});
    let spec = match resource {
        "jobs" => json!({"suspend": true, "parallelism": 2, "template": template}),
        "jobsets" => json!({"replicatedJobs": [{"name": "job", "template": {"spec": {"template": template}}}]}),
        "pods" => template["spec"].clone(),
        "deployments" | "statefulsets" => {
            json!({"replicas": 2, "selector": {"matchLabels": {"app": "n"}}, "serviceName": "n", "template": template})
        }
        "workloads" => json!({"queueName": "queue", "podSets": [{"name": "main", "count": 2, "template": template}]}),
        "clusterqueues" => json!({"cohortName": "c", "resourceGroups": [group]}),
        "cohorts" => json!({"parentName": "p", "resourceGroups": [group]}),
        "resourceflavors" => json!({"nodeLabels": {"a": "b"}, "nodeTaints": [{"key": "k", "effect": "NoSchedule"}]}),
        "trainingjobs" => json!({"jobType": "JAXJob", "schedulingConfig": {"queue": "queue"}, "template": template}),
        other => bail!("unknown resource {other}"),
    };
    let labels = json!({"kueue.x-k8s.io/queue-name": "queue"});
    Ok(json!({"metadata": {"name": "n", "namespace": "webhook-load", "labels": labels}, "spec": spec}))
}

/// The ways in which the test makes a valid review malformed.
#[derive(Clone, Copy)]
enum Spoilt {
    /// The JSON body is cut off at a random place.
    CutOff,
    /// The body is not JSON.
    Rubbish,
    /// The body is nested deeper than Berth allows.
    Nested,
    /// The review's object has a value of another type.
    Odd,
}

const WAYS: [Spoilt; 4] = [Spoilt::CutOff, Spoilt::Rubbish, Spoilt::Nested, Spoilt::Odd];

impl Spoilt {
    fn body(self, target: &Target, random: &mut Random) -> Vec<u8> {
        let mut body = target.good.clone().into_bytes();
        match self {
            Self::CutOff => body.truncate(random.below(body.len() - 1)),
            Self::Rubbish => body = random.bytes(2_000),
            // The nested lists replace the first value of the review, which begins after `{"apiVersion":`.
            Self::Nested => body.splice(14..14, std::iter::repeat_n(b'[', 5_000)).for_each(drop),
            Self::Odd => {
                let mut review: Value = serde_json::from_str(&target.good).unwrap_or_default();
                for place in ["/request/object", "/request/oldObject", "/request/objects/0"] {
                    review.pointer_mut(place).into_iter().for_each(|object| odd(object, random));
                }
                body = review.to_string().into_bytes();
            }
        }
        body
    }

    /// A malformed body of the largest size; `None` if the body would still be a review.
    fn largest(self, target: &Target) -> Option<Vec<u8>> {
        let (begins, filling) = match self {
            // The body ends in the middle of an annotation.
            Self::CutOff => {
                let (before, _) = target.good.split_once("\"metadata\":{")?;
                (format!("{before}\"metadata\":{{\"annotations\":{{\"a\":\""), b'x')
            }
            Self::Rubbish => (String::new(), 0xff),
            Self::Nested => ("{\"apiVersion\":".to_owned(), b'['),
            Self::Odd => return None,
        };
        let mut body = begins.into_bytes();
        body.resize(LARGEST, filling);
        Some(body)
    }

    /// Whether an answer fits a malformed body: a body that is still a review is answered with a review, and any other body is refused.
    fn answers(self, target: &Target, answer: &str) -> bool {
        match self {
            Self::Odd if target.path != NOWHERE => {
                answer.starts_with("HTTP/1.1 200") && answer.contains("\"uid\":\"u\"")
            }
            _ => answer.starts_with("HTTP/1.1 4"),
        }
    }
}

/// Replaces a value somewhere in an object by a value of another type.
fn odd(object: &mut Value, random: &mut Random) {
    let below = match object {
        Value::Object(map) if !map.is_empty() && random.below(5) > 0 => {
            let index = random.below(map.len());
            map.values_mut().nth(index)
        }
        Value::Array(list) if !list.is_empty() && random.below(5) > 0 => {
            let index = random.below(list.len());
            list.get_mut(index)
        }
        _ => None,
    };
    match below {
        Some(value) => odd(value, random),
        None => {
            let others =
                [json!(null), json!(-1), json!(1e300), json!("odd"), json!([[]]), json!({"odd": {}}), json!(true)];
            *object = others[random.below(others.len())].clone();
        }
    }
}

/// Result of a flood of requests.
#[derive(Default)]
struct Outcome {
    /// Number of bodies that Berth answered with a review.
    answered: usize,
    /// Paths of the webhook server to which the flood has sent reviews.
    paths: BTreeSet<String>,
}

/// Sends a flood that is half malformed reviews and half bytes that are no TLS. The environment variable `BERTH_FLOOD` is the number of requests in the
/// measured round (3,000 by default).
pub(crate) async fn flood(stage: &Stage, port: u16) -> Result<()> {
    let _alone = crate::webhook::QUIET.write().await;
    let total: usize = std::env::var("BERTH_FLOOD").ok().and_then(|text| text.parse().ok()).unwrap_or(3_000);
    let mut random = Random(1);
    let targets = targets()?;
    // The first round is not measured, because the allocator keeps memory after it.
    round(stage, port, total / 10, &targets, &mut random).await?;
    let before = Usage::of(stage.manager.pid()?)?;
    let begun = Instant::now();
    let outcome = round(stage, port, total, &targets, &mut random).await?;
    let took = begun.elapsed();
    let after = Usage::of(stage.manager.pid()?)?;
    println!(
        "flood: {total} malformed reviews and byte streams on {} paths in {:.1} s, {} of them reviews of odd objects; resident {:.1} MB \
         before, {:.1} MB after",
        targets.len(),
        took.as_secs_f64(),
        outcome.answered,
        before.resident_mb,
        after.resident_mb
    );
    ensure!(after.resident_mb < before.resident_mb + LEFT, "memory grew");
    ensure!(outcome.paths.len() == targets.len(), "of {} paths only {:?} were asked", targets.len(), outcome.paths);
    ensure!(outcome.answered >= total / 20, "{} were reviews of odd objects", outcome.answered);
    // The round of requests has checked the answer to each malformed review, and reads no answer to bytes that are no TLS. Berth's metric
    // `berth_webhook_refused_total` must count the refused reviews and the bytes that are no TLS.
    wait::until(STEP, "those that were turned away are counted", || async {
        let refused = stage.manager.metric("berth_webhook_refused_total", &[]).await?.unwrap_or(0.0);
        Ok(Seen::when(refused >= (total - outcome.answered) as f64 * 0.9, || format!("{refused} were counted")))
    })
    .await?;
    largest(stage, port, &targets).await.context("the largest bodies")?;
    let asked = Instant::now();
    review(&stage.client, "webhook-load", "after-the-flood").await?;
    ensure!(asked.elapsed() < Duration::from_secs(1), "the next review took {:?}", asked.elapsed());
    Ok(())
}

/// Sends malformed bodies of the largest size in two rounds, of which the second must not add memory.
async fn largest(stage: &Stage, port: u16, targets: &[Target]) -> Result<()> {
    let mut resident = Vec::new();
    let begun = Instant::now();
    for _ in 0..2 {
        let mut count = 0;
        for path in ["/mutate-batch-v1-job", "/convert"] {
            let target =
                targets.iter().find(|target| target.path == path).with_context(|| format!("no path {path}"))?;
            for way in WAYS {
                let Some(body) = way.largest(target) else { continue };
                let mut direct = Direct::open(port, trust(&stage.client).await?).await?;
                let answer = tokio::time::timeout(Duration::from_secs(30), direct.ask(path, body)).await??;
                ensure!(way.answers(target, &answer), "{count}, {path}: answered {answer}");
                // Code 400 shows that Berth read the body to its end, and did not refuse it because of its size.
                ensure!(answer.starts_with("HTTP/1.1 400"), "{count}, {path}: answered {answer}");
                count += 1;
            }
        }
        ensure!(count == 6, "{count} bodies were sent");
        // The allocator gives free memory back a moment later.
        tokio::time::sleep(Duration::from_secs(1)).await;
        resident.push(Usage::of(stage.manager.pid()?)?.resident_mb);
    }
    let [first, second] = resident[..] else { bail!("{resident:?}") };
    println!(
        "flood: 12 malformed bodies of {LARGEST} bytes in {:.1} s; resident {first:.1} MB after six, {second:.1} MB after all",
        begun.elapsed().as_secs_f64()
    );
    // The allocator may keep the memory of one body that it did not keep after the first round.
    ensure!(second < first + LEFT + LARGEST as f64 / 1e6, "memory grew");
    Ok(())
}

/// A TLS connection to Berth's webhooks without an API server between.
pub(crate) struct Direct(TlsStream<TcpStream>);

impl Direct {
    pub(crate) async fn open(port: u16, trust: Arc<ClientConfig>) -> Result<Self> {
        let tcp = TcpStream::connect(("127.0.0.1", port)).await?;
        Ok(Self(TlsConnector::from(trust).connect(ServerName::try_from("127.0.0.1")?, tcp).await?))
    }

    /// The complete answer to a review, with its head.
    pub(crate) async fn ask(&mut self, path: &str, body: impl AsRef<[u8]>) -> Result<String> {
        let body = body.as_ref();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
        self.0.write_all(&[head.as_bytes(), body].concat()).await?;
        self.0.flush().await?;
        answer(&mut self.0).await
    }
}

/// Connections to Berth's webhooks without an API server between; each connection is used again.
pub(crate) struct Connections {
    port: u16,
    trust: Arc<ClientConfig>,
    free: Mutex<Vec<Direct>>,
}

impl Connections {
    pub(crate) fn new(port: u16, trust: Arc<ClientConfig>) -> Self {
        Self { port, trust, free: Mutex::default() }
    }

    /// The complete answer to a review, with its head.
    pub(crate) async fn ask(&self, path: &str, body: impl AsRef<[u8]>) -> Result<String> {
        let free = self.free.lock().await.pop();
        let mut direct = match free {
            Some(direct) => direct,
            None => Direct::open(self.port, Arc::clone(&self.trust)).await?,
        };
        let answer = direct.ask(path, body).await?;
        self.free.lock().await.push(direct);
        Ok(answer)
    }
}

/// Reads one complete answer of HTTP/1.1.
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

async fn round(stage: &Stage, port: u16, total: usize, targets: &[Target], random: &mut Random) -> Result<Outcome> {
    let trust = trust(&stage.client).await?;
    let (mut kept, mut outcome) = (None, Outcome::default());
    for number in 0..total {
        if number % 2 == 0 {
            let mut tcp = TcpStream::connect(("127.0.0.1", port)).await?;
            let mut bytes = random.bytes(400);
            if number % 4 == 0 {
                // Every other connection with random bytes begins with the first bytes of a TLS handshake.
                bytes.splice(0..0, [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]);
            }
            let _ = tcp.write_all(&bytes).await;
            continue;
        }
        let target = targets.get(random.below(targets.len())).context("a path")?;
        let way = WAYS[random.below(WAYS.len())];
        let (path, body) = (&target.path, way.body(target, random));
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
        let text = tokio::time::timeout(Duration::from_secs(30), answer(&mut stream)).await??;
        ensure!(way.answers(target, &text), "{number}, {path}: {} was answered {text}", String::from_utf8_lossy(&body));
        outcome.paths.insert(path.clone());
        outcome.answered += usize::from(text.starts_with("HTTP/1.1 200"));
        // After six of seven reviews the test keeps the TLS connection for the next review, but not after a request for a path that does not exist: Berth does
        // not read the body of a request for an unknown path and closes the connection.
        if number % 7 != 0 && path != NOWHERE {
            kept = Some(stream);
        }
    }
    Ok(outcome)
}
