use super::*;
use crate::author::Leave;
use crate::certs::issue::{authority, leaf};
use crate::certs::served::Served;
use crate::review::UserInfo;
use berth_jobs::pods::OwningSet;
use berth_jobs::training::Accelerators;
use berth_jobs::{Facts, JobType};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

struct Nothing;

impl ClusterFacts for Nothing {
    fn has_kind(&self, _: JobType) -> bool {
        true
    }

    fn facts(&self, _: &str) -> Facts {
        Facts { managed_namespace: true, ..Facts::default() }
    }

    fn governs(&self, _: &str, _: &crate::ObjectMeta, _: &crate::OwnerReference) -> bool {
        false
    }

    fn stateful_set(&self, _: &str, _: &str) -> Option<OwningSet> {
        None
    }

    fn opted_in(&self) -> Option<BTreeMap<&'static str, Value>> {
        None
    }

    fn accelerators(&self) -> Accelerators {
        Accelerators::default()
    }
}

/// Alice may create Jobs, Bob may not, and the right of any other user is unknown.
struct Alice;

impl Authors for Alice {
    fn may_create_jobs(&self, user: UserInfo, namespace: String) -> BoxFuture<'static, Leave> {
        let leave = match user.username.as_str() {
            "alice" => Leave::Given,
            "bob" => Leave::Refused(format!("bob cannot in {namespace}")),
            _ => Leave::Unanswered("who?".to_owned()),
        };
        // The answer about a user's rights takes some milliseconds, like an answer of the API server.
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            leave
        })
    }
}

#[derive(Default)]
struct Counted {
    answered: AtomicUsize,
    refused: AtomicUsize,
}

impl Meter for Counted {
    fn answered(&self, _: &'static str, _: &'static str, _: f64) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    fn refused(&self, _: &'static str) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn expires(&self, _: i64) {}
}

struct Running {
    port: u16,
    trust: Arc<ClientConfig>,
    counted: Arc<Counted>,
    handler: Arc<Handler>,
    stop: watch::Sender<bool>,
    thread: std::thread::JoinHandle<()>,
}

fn start() -> Running {
    start_within(LIMITS)
}

fn start_within(limits: Limits) -> Running {
    let now = Timestamp::now();
    let life = SignedDuration::from_hours(2);
    let ca = authority(now, life).unwrap();
    let served = Arc::new(Served::default());
    served.load(&leaf(&ca, &["localhost".to_owned()], now, life).unwrap()).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let counted = Arc::new(Counted::default());
    let meter = Arc::clone(&counted) as Arc<dyn Meter>;
    let handler = Handler::new(Arc::new(Nothing), meter, Gates::default(), Arc::new(Alice));
    let handler = Arc::new(handler);
    let (stop, stopped) = watch::channel(false);
    let thread = spawn_within(limits, listener, served.tls().unwrap(), Arc::clone(&handler), stopped).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.certificate.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let trust = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let trust = Arc::new(trust.with_root_certificates(roots).with_no_client_auth());
    Running { port, trust, counted, handler, stop, thread }
}

impl Running {
    async fn connect(&self) -> TlsStream<TcpStream> {
        let tcp = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::clone(&self.trust)).connect(name, tcp).await.unwrap()
    }

    /// Status code and body of the answer to the bytes `request`; the server or the client closes the connection.
    async fn exchange(&self, request: &[u8]) -> (u16, String) {
        let mut stream = self.connect().await;
        let _ = stream.write_all(request).await;
        let _ = stream.flush().await;
        let mut bytes = Vec::new();
        let _ = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut bytes)).await;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let code = text.split_whitespace().nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        (code, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
    }

    async fn post(&self, path: &str, body: &[u8]) -> (u16, String) {
        let head = format!(
            "POST {path}?timeout=5s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.exchange(&[head.as_bytes(), body].concat()).await
    }

    fn end(self) {
        self.stop.send_replace(true);
        self.thread.join().unwrap();
    }
}

fn review() -> Vec<u8> {
    let job = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}});
    let request = json!({"uid": "u", "operation": "CREATE", "namespace": "n", "object": job});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string().into_bytes()
}

const PATH: &str = "/mutate-batch-v1-job";

/// Sends a review on an open connection; returns true if the answer is complete.
async fn asks(stream: &mut TlsStream<TcpStream>) -> bool {
    let body = review();
    let head = format!("POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    let _ = stream.write_all(&[head.as_bytes(), body.as_slice()].concat()).await;
    let _ = stream.flush().await;
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return false;
        }
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.split_once("content-length: ").and_then(|(_, rest)| rest.lines().next()?.parse().ok());
        if length == Some(body.len()) {
            return head.starts_with("http/1.1 200");
        }
    }
}

/// Waits for the end of a connection; returns true if it ends within four seconds, which is less than every limit of hyper's.
async fn ends(stream: &mut TlsStream<TcpStream>) -> bool {
    tokio::time::timeout(Duration::from_secs(4), stream.read_to_end(&mut Vec::new())).await.is_ok()
}

/// Answers HTTP/2 pings, and nothing else, until the connection ends.
async fn answers_pings(mut stream: TlsStream<TcpStream>) {
    let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    let _ = stream.flush().await;
    let mut head = [0; 9];
    while stream.read_exact(&mut head).await.is_ok() {
        let mut rest = vec![0; usize::from(head[1]) * 256 + usize::from(head[2])];
        let _ = stream.read_exact(&mut rest).await;
        if (head[3], head[4]) == (6, 0) {
            head[4] = 1;
            let _ = stream.write_all(&[&head[..], rest.as_slice()].concat()).await;
            let _ = stream.flush().await;
        }
    }
}

#[tokio::test]
async fn server_answers_reviews_and_explains_refusals_of_other_requests() {
    let running = start();
    let (code, body) = running.post(PATH, &review()).await;
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, &answer["response"]["uid"]), (200, &json!("u")));
    assert!(answer["response"]["patch"].is_string());
    for (path, body, code, word) in [
        ("/nothing", review(), 404, "nothing"),
        (PATH, b"{".to_vec(), 400, "AdmissionReview"),
        (PATH, Vec::new(), 400, "AdmissionReview"),
    ] {
        let (answered, text) = running.post(path, &body).await;
        assert!(answered == code && text.contains(word) && text.contains("Berth"), "{path}: {answered} {text}");
    }
    let get = format!("GET {PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!(running.exchange(get.as_bytes()).await.0, 405);
    let large = format!("POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", BODY + 1);
    assert_eq!(running.exchange(large.as_bytes()).await.0, 413);
    assert_eq!(running.counted.answered.load(Ordering::Relaxed), 1);
    assert_eq!(running.counted.refused.load(Ordering::Relaxed), 5);
    running.end();
}

/// On the route of TrainingJobs, the answer depends on the check of the author's rights; no other route makes the check.
#[tokio::test]
async fn training_job_author_verdict_decides_the_answer() {
    let running = start();
    for (user, code) in [("alice", None), ("bob", Some(403)), ("carol", Some(503))] {
        let object = json!({"metadata": {"name": "n"}, "spec": {"jobType": "PyTorchJob",
            "schedulingConfig": {"queue": "q"}, "template": {"spec": {"containers": [{"name": "c"}]}}}});
        let request = json!({"uid": "u", "operation": "CREATE", "name": "n", "namespace": "ns", "object": object,
            "userInfo": {"username": user}});
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        let path = "/validate-berth-dev-v1alpha1-trainingjob";
        let (_, body) = running.post(path, review.to_string().as_bytes()).await;
        let answer: Value = serde_json::from_str(&body).unwrap();
        let response = &answer["response"];
        assert_eq!(
            (&response["allowed"], &response["status"]["code"]),
            (&json!(code.is_none()), &json!(code)),
            "{user}"
        );
    }
    running.end();
}

#[tokio::test]
async fn review_of_sixteen_mebibytes_is_answered() {
    let running = start();
    let mut body = review();
    let end = body.len() - 1;
    let filler = format!(",\"more\":\"{}\"", "x".repeat(BODY - body.len() - 10));
    body.splice(end..end, filler.into_bytes());
    assert_eq!(body.len(), BODY);
    assert_eq!(running.post(PATH, &body).await.0, 200);
    running.end();
}

#[tokio::test]
async fn connections_with_random_bytes_do_not_block_reviews() {
    let running = start();
    let mut state: u64 = 7;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let mut idle = Vec::new();
    for round in 0..600 {
        let mut tcp = TcpStream::connect(("127.0.0.1", running.port)).await.unwrap();
        let mut bytes: Vec<u8> = (0..random(300)).map(|_| u8::try_from(random(256)).unwrap()).collect();
        if round % 2 == 0 {
            // Half of the connections begin with the bytes of a valid TLS handshake.
            bytes.splice(0..0, [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]);
        }
        let _ = tcp.write_all(&bytes).await;
        if round % 10 == 0 {
            idle.push(tcp);
        }
    }
    for round in 0..100 {
        let mut stream = running.connect().await;
        let bytes: Vec<u8> = (0..random(300)).map(|_| u8::try_from(random(256)).unwrap()).collect();
        let _ = stream.write_all(&bytes).await;
        if round % 10 == 0 {
            idle.push(stream.into_inner().0);
        }
    }
    assert_eq!(running.post(PATH, &review()).await.0, 200);
    drop(idle);
    running.end();
}

#[tokio::test]
async fn review_in_progress_is_answered_before_shutdown() {
    let running = start();
    let mut stream = running.connect().await;
    let body = review();
    let head = format!("POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    // Once the server has read the beginning of the request's body, the beginning takes room in memory, which shows that the request is under way.
    stream.write_all(&[head.as_bytes(), &body[..1]].concat()).await.unwrap();
    stream.flush().await.unwrap();
    until("it is under way", || running.handler.beginnings.available_permits() < BEGINNINGS).await;
    running.stop.send_replace(true);
    let mut refused = false;
    for _ in 0..1_000 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        refused |= TcpStream::connect(("127.0.0.1", running.port)).await.is_err();
        if refused {
            break;
        }
    }
    assert!(refused, "nobody would serve it");
    stream.write_all(&body[1..]).await.unwrap();
    stream.flush().await.unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    assert!(String::from_utf8_lossy(&bytes).starts_with("HTTP/1.1 200"), "{}", String::from_utf8_lossy(&bytes));
    running.thread.join().unwrap();
}

#[tokio::test]
async fn connection_without_a_review_is_closed_after_its_deadline() {
    // The time limit for a first review is long enough for the TLS handshakes of all three connections on a busy machine.
    let running = start_within(Limits { first: Duration::from_secs(1), ..LIMITS });
    let silent = async { ends(&mut running.connect().await).await };
    let slow = async {
        let mut stream = running.connect().await;
        let _ = stream.write_all(b"POST / HTTP/1.1\r\nHost: ").await;
        let _ = stream.flush().await;
        tokio::time::timeout(Duration::from_secs(8), ends(&mut stream)).await.is_ok()
    };
    let pings = async {
        let stream = running.connect().await;
        tokio::time::timeout(Duration::from_secs(4), answers_pings(stream)).await.is_ok()
    };
    assert_eq!(tokio::join!(silent, slow, pings), (true, true, true));
    assert_eq!(running.counted.refused.load(Ordering::Relaxed), 3);
    running.end();
}

#[tokio::test]
async fn connection_with_reviews_is_kept_until_long_idle() {
    let running = start_within(Limits { first: Duration::from_secs(2), ..LIMITS });
    let mut stream = running.connect().await;
    assert!(asks(&mut stream).await);
    // The connection pauses for longer than a TLS handshake or a first review may take.
    tokio::time::sleep(Duration::from_millis(5500)).await;
    assert!(asks(&mut stream).await, "it has asked in time");
    running.end();
    let running = start_within(Limits { first: Duration::from_secs(2), idle: Duration::from_millis(300), ..LIMITS });
    let mut stream = running.connect().await;
    assert!(asks(&mut stream).await);
    assert!(ends(&mut stream).await);
    assert_eq!(running.counted.refused.load(Ordering::Relaxed), 0);
    running.end();
}

#[tokio::test]
async fn full_server_serves_new_connection_and_closes_most_silent_one() {
    let running = start_within(Limits { connections: 4, ..LIMITS });
    let mut kept = running.connect().await;
    assert!(asks(&mut kept).await);
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(running.connect().await);
    }
    assert_eq!(running.post(PATH, &review()).await.0, 200);
    assert!(ends(&mut silent[0]).await, "it came first of those that asked nothing");
    assert!(asks(&mut kept).await, "it is the oldest, but has asked");
    assert_eq!(running.counted.refused.load(Ordering::Relaxed), 1);
    running.end();

    let running = start_within(Limits { connections: 2, ..LIMITS });
    let mut kept = [running.connect().await, running.connect().await];
    for at in [0, 1, 0] {
        assert!(asks(&mut kept[at]).await);
    }
    assert_eq!(running.post(PATH, &review()).await.0, 200);
    assert!(ends(&mut kept[1]).await, "it is idle for longest");
    assert!(asks(&mut kept[0]).await);
    running.end();
}

/// Opens connections that announce a body of the greatest size, send only the beginning of the body, and stay open.
async fn half_read(running: &Running, connections: usize, sent: usize) -> Vec<TlsStream<TcpStream>> {
    let mut open = Vec::new();
    for _ in 0..connections {
        let mut stream = running.connect().await;
        let head = format!("POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {BODY}\r\n\r\n");
        stream.write_all(&[head.into_bytes(), vec![b' '; sent]].concat()).await.unwrap();
        stream.flush().await.unwrap();
        open.push(stream);
    }
    open
}

/// Waits until `holds` returns true, for ten seconds at most.
async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

#[tokio::test]
async fn announced_body_takes_no_room_and_arriving_body_waits() {
    let running = start();
    let announcing = half_read(&running, 8, 1).await;
    until("one byte each is read", || running.handler.beginnings.available_permits() == BEGINNINGS - 8).await;
    let free = running.handler.beginnings.available_permits();
    assert!(free >= BEGINNINGS - announcing.len(), "one byte each has arrived: {free}");
    assert_eq!(running.handler.large.available_permits(), LARGE);
    assert_eq!(running.post(PATH, &review()).await.0, 200);
    drop(announcing);

    let free = u32::try_from(running.handler.beginnings.available_permits()).unwrap();
    let taken = running.handler.beginnings.acquire_many(free).await.unwrap();
    let counted = Arc::clone(&running.counted);
    let release = async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let answered = counted.answered.load(Ordering::Relaxed);
        drop(taken);
        answered
    };
    let body = review();
    let ((code, _), answered) = tokio::join!(running.post(PATH, &body), release);
    assert_eq!((code, answered), (200, 1), "it was answered when there was room");
    running.end();
}

/// If twenty stalled large bodies each kept a part of the room, none could become complete, and every other body would wait until its time-out.
#[tokio::test]
async fn stalled_large_bodies_do_not_delay_other_reviews() {
    let running = start();
    let slow = half_read(&running, 20, 4 * SMALL).await;
    let read_on = || running.handler.large.available_permits() == LARGE % BODY;
    until("as many as there is room for are read on", read_on).await;
    let begun = Instant::now();
    assert_eq!(running.post(PATH, &review()).await.0, 200);
    assert!(begun.elapsed() < PATIENCE / 2, "a small one took {:?}", begun.elapsed());
    drop(slow);
    let mut large = review();
    large.resize(BODY, b' ');
    assert_eq!(running.post(PATH, &large).await.0, 200, "room is given back");
    running.end();
}
