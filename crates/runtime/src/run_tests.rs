//! Tests of the complete runtime with an API server that has only CustomResourceDefinitions.

use super::*;
use crate::metrics::Gauges;
use crate::options::Election;
use axum::body::Body;
use berth_control::Step;
use berth_control::event::Observation;
use berth_control::write::{TaskId, TaskOutcome, Term};
use serde_json::{Value, json};
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A controller that decides nothing.
struct Idle;

impl Controller for Idle {
    fn tick(&mut self, _: Timestamp, _: Duration) {}
    fn observe(&mut self, _: Observation, _: Timestamp) {}
    fn count_pods_since(&mut self, _: Option<Timestamp>) {}
    fn lead(&mut self, _: Option<Term>) {}
    fn outcome(&mut self, _: TaskId, _: TaskOutcome, _: Timestamp) {}
    fn step(&mut self, _: Timestamp) -> Step {
        Step::default()
    }
    fn record(&mut self, _: &Metrics, _: Duration) {}
    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
    fn recompute(&self) -> Value {
        Value::Null
    }
    fn held(&self) -> Value {
        Value::Null
    }
}

/// Address of a test API server whose CustomResourceDefinitions have the given stored versions; `asked` records the requests about other objects.
async fn storing(versions: Value, asked: Arc<Mutex<Vec<String>>>) -> http::Uri {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let answer = move |request: http::Request<Body>| {
        let path = request.uri().path().to_owned();
        let definition = path.contains("/customresourcedefinitions/");
        let body = if definition { json!({"status": {"storedVersions": versions}}) } else { json!({}) };
        if !definition {
            asked.lock().unwrap().push(path);
        }
        let code = if definition { http::StatusCode::OK } else { http::StatusCode::NOT_FOUND };
        async move { (code, body.to_string()) }
    };
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
    uri
}

async fn ready(port: u16) -> bool {
    let Ok(mut stream) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await else { return false };
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.starts_with("HTTP/1.1 200")
}

/// Runs the runtime until the runtime requests the Lease, for `most` at most. Returns whether the runtime requested the Lease, and whether the runtime was
/// ready. A ready runtime runs two seconds longer, in which it might request the Lease.
async fn runs(versions: Value, most: Duration) -> (bool, bool) {
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let config = Config::new(storing(versions, Arc::clone(&asked)).await);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = Options {
        election: Some(Election {
            namespace: "n".into(),
            name: "l".into(),
            lease_duration: Duration::from_secs(3),
            renew_deadline: Duration::from_secs(2),
            retry_period: Duration::from_millis(100),
            counts_pods: false,
        }),
        metrics_address: None,
        health_address: Some(format!("127.0.0.1:{port}")),
        readiness_path: "readyz".into(),
        liveness_path: "healthz".into(),
        write_rate: None,
        write_burst: 1.0,
        event_rate: 1.0,
        event_burst: 1.0,
        writes_in_flight: 1,
        namespace: None,
        version: "0".into(),
    };
    let metrics = Arc::new(Metrics::new("test"));
    let beside = Beside {
        metrics,
        hook: None,
        metrics_tls: None,
        missing: None,
        wanted: Wanted::default(),
        dump: Arc::default(),
    };
    let (mut leased, mut was_ready) = (false, false);
    let mut until = Instant::now() + most;
    let shutdown = async {
        while !leased && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if !was_ready && ready(port).await {
                was_ready = true;
                until = Instant::now() + Duration::from_secs(2);
            }
            leased = asked.lock().unwrap().iter().any(|path| path.contains("/leases"));
        }
    };
    run(config, options, || Idle, beside, shutdown).await.unwrap();
    (leased, was_ready)
}

#[tokio::test]
async fn process_with_old_stored_versions_serves_without_taking_the_lease() {
    let (leased, was_ready) = runs(json!(["v1beta1", "v1beta2"]), Duration::from_secs(20)).await;
    assert!(!leased, "it would take the lease");
    assert!(was_ready, "nobody reaches its webhooks");
    let (leased, was_ready) = runs(json!(["v1beta2"]), Duration::from_secs(20)).await;
    assert!(leased);
    assert!(!was_ready, "nothing was listed");
}
