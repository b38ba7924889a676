//! HTTP servers for metrics, probes and debugging. Metrics are served over TLS and to permitted users only, unless an administrator switches this protection
//! off.

mod connections;
mod readers;
mod scrape;

use crate::access::Access;
use crate::core_loop::StateQuery;
use crate::differences;
use crate::liveness::Liveness;
use crate::metrics::Metrics;
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::future::BoxFuture;
use rustls::ServerConfig;
use serde_json::Value;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_rustls::TlsAcceptor;

pub use scrape::Scrape;

/// Time without a heartbeat after which the control loop counts as stuck.
const STUCK: Duration = Duration::from_secs(60);
/// Time limit for the control loop's answer to a query.
const PATIENCE: Duration = Duration::from_secs(5);

/// Function that makes a digest of a view built from fresh lists, or fails with a message.
pub type Fresh = Arc<dyn Fn() -> BoxFuture<'static, Result<Value, String>> + Send + Sync>;

/// Function that reports why a part of the process other than the control loop is not ready.
pub type Missing = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// State that the HTTP handlers share.
#[derive(Clone)]
pub struct Context {
    /// Channel for queries to the control loop.
    pub queries: mpsc::Sender<StateQuery>,
    /// Registry of metrics.
    pub metrics: Arc<Metrics>,
    /// Heartbeat and readiness of the control loop.
    pub liveness: Arc<Liveness>,
    /// Function that makes a digest of a view built from fresh lists.
    pub fresh: Fresh,
    /// Function that reports why another part of the process is not ready.
    pub missing: Option<Missing>,
    /// Cached text of `/metrics`.
    pub scrape: Arc<Scrape>,
    /// Semaphore that allows one comparison of control's view with fresh lists at a time.
    pub comparing: Arc<Semaphore>,
}

/// Turns an address in Go's notation (`:8080`) into a socket address; `0` and the empty text switch the server off.
#[must_use]
pub fn address(text: &str) -> Option<String> {
    match text.trim() {
        "" | "0" => None,
        text if text.starts_with(':') => Some(format!("{}{text}", everywhere())),
        text => Some(text.to_owned()),
    }
}

/// The address of all interfaces: the IPv6 address, which also accepts IPv4, if the machine has IPv6.
fn everywhere() -> &'static str {
    if std::net::UdpSocket::bind("[::]:0").is_ok() { "[::]" } else { "0.0.0.0" }
}

/// Binds a TCP listener to an address.
///
/// # Errors
/// The text is no address, or the address is in use; the message has the address.
pub async fn bind(address: &str) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| format!("cannot listen on {address}: {error}"))
}

/// Permission to read metrics.
#[derive(Clone)]
pub enum Guard {
    /// Every client that reaches the port may read metrics, without TLS.
    Open,
    /// Users whom RBAC permits to get `/metrics` may read metrics, with a bearer token and over TLS.
    Secure {
        /// TLS configuration of the metrics server.
        tls: Arc<ServerConfig>,
        /// Authentication and authorization by the API server.
        readers: Access,
    },
}

/// Serves metrics and debug pages until the future is dropped, with at most 64 connections at once and two minutes for each connection.
pub async fn serve_metrics(listener: TcpListener, context: Context, guard: Guard) -> Infallible {
    let figures = Router::new().route("/metrics", get(metrics));
    let (figures, tls) = match guard {
        Guard::Open => (figures, None),
        Guard::Secure { tls, readers } => (readers::only(readers, figures), Some(TlsAcceptor::from(tls))),
    };
    // The debug pages answer only clients on the same machine, and need no token.
    let router = figures.route("/debug/recompute", get(recompute)).with_state(context);
    connections::serve(connections::LIMITS, listener, tls, router).await
}

/// Serves the readiness and liveness probes until the future is dropped, within the connection limits of [`serve_metrics`].
pub async fn serve_health(listener: TcpListener, context: Context, liveness: &str, readiness: &str) -> Infallible {
    let path = |name: &str| format!("/{}", name.trim_start_matches('/'));
    let router =
        Router::new().route(&path(liveness), get(healthz)).route(&path(readiness), get(readyz)).with_state(context);
    connections::serve(connections::LIMITS, listener, None, router).await
}

/// Sends a query to the control loop; `None` if the loop does not answer in time.
pub(crate) async fn ask<T>(
    queries: &mpsc::Sender<StateQuery>,
    query: impl FnOnce(oneshot::Sender<T>) -> StateQuery,
) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    let exchange = async {
        queries.send(query(reply)).await.ok()?;
        answer.await.ok()
    };
    tokio::time::timeout(PATIENCE, exchange).await.ok().flatten()
}

async fn metrics(State(context): State<Context>) -> Response {
    let Some(text) = context.scrape.text(&context.queries, &context.metrics).await else {
        return (StatusCode::INTERNAL_SERVER_ERROR, "the figures could not be put into words\n").into_response();
    };
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let parts = (0..text.len()).filter_map(move |index| text.get(index).cloned()).map(Ok::<_, Infallible>);
    ([(header::CONTENT_TYPE, kind)], Body::from_stream(futures::stream::iter(parts))).into_response()
}

async fn recompute(State(context): State<Context>, ConnectInfo(peer): ConnectInfo<SocketAddr>) -> Response {
    if !peer.ip().to_canonical().is_loopback() {
        return (StatusCode::FORBIDDEN, "only from this machine\n").into_response();
    }
    let Ok(_only) = context.comparing.try_acquire() else {
        return (StatusCode::TOO_MANY_REQUESTS, "another comparison is under way\n").into_response();
    };
    let fresh = (context.fresh)().await;
    let Some(incremental) = ask(&context.queries, StateQuery::Digest).await else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the loop does not answer\n").into_response();
    };
    match fresh {
        Ok(fresh) => {
            let body = differences::report(&incremental, &fresh).to_string();
            ([(header::CONTENT_TYPE, "application/json")], body).into_response()
        }
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error}\n")).into_response(),
    }
}

async fn healthz(State(context): State<Context>) -> Response {
    let age = context.liveness.age();
    if age < STUCK {
        return "ok\n".into_response();
    }
    (StatusCode::INTERNAL_SERVER_ERROR, format!("the loop stands still for {} s\n", age.as_secs())).into_response()
}

async fn readyz(State(context): State<Context>) -> Response {
    let unlisted = context.liveness.unlisted();
    if !context.liveness.ready() {
        let why = unlisted.map(|unlisted| format!(": {unlisted}")).unwrap_or_default();
        let text = format!("objects are not listed yet, or shutting down{why}\n");
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    }
    if let Some(missing) = context.missing.as_ref().and_then(|missing| missing()) {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{missing}\n")).into_response();
    }
    // The Service of the webhooks depends on the answer of the readiness probe, so a missing dispensable kind must not stop the webhooks of all other kinds.
    let but = unlisted.map(|unlisted| format!(", but {unlisted}")).unwrap_or_default();
    format!("ok{but}\n").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn listen_addresses_in_go_form_are_parsed() {
        let everywhere: SocketAddr = address(":8080").expect("an address").parse().expect("of a socket");
        assert!(everywhere.ip().is_unspecified() && everywhere.port() == 8080, "{everywhere}");
        assert_eq!(address("127.0.0.1:1").as_deref(), Some("127.0.0.1:1"));
        assert_eq!(address("[::1]:1").as_deref(), Some("[::1]:1"));
        assert_eq!((address("0"), address("")), (None, None));
    }

    async fn asked(listener: &SocketAddr, path: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(listener).await.expect("a connection");
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("read");
        answer
    }

    /// State of the HTTP handlers for a test: the control loop answers queries at once, and its last heartbeat was `age` ago.
    fn beside_a_loop(age: Duration) -> Context {
        let (queries, mut questions) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Some(StateQuery::Digest(reply)) = questions.recv().await {
                let _ = reply.send(serde_json::json!({}));
            }
        });
        Context {
            queries,
            metrics: Arc::new(Metrics::new("test")),
            liveness: Arc::new(Liveness::of_age(age)),
            fresh: Arc::new(|| async { Ok::<_, String>(serde_json::json!({})) }.boxed()),
            missing: None,
            scrape: Arc::default(),
            comparing: Arc::new(Semaphore::new(1)),
        }
    }

    #[tokio::test]
    async fn recompute_from_another_machine_is_forbidden() {
        for (peer, code) in [
            ("127.0.0.1:40000", StatusCode::OK),
            ("[::1]:40000", StatusCode::OK),
            // A socket for both IPv6 and IPv4 shows an IPv4 client's address in this form.
            ("[::ffff:127.0.0.1]:40000", StatusCode::OK),
            ("[::ffff:10.0.0.7]:40000", StatusCode::FORBIDDEN),
            ("10.0.0.7:40000", StatusCode::FORBIDDEN),
            ("[2001:db8::7]:40000", StatusCode::FORBIDDEN),
        ] {
            let peer: SocketAddr = peer.parse().expect("an address");
            let mut context = beside_a_loop(Duration::ZERO);
            if code == StatusCode::FORBIDDEN {
                context.fresh = Arc::new(|| -> BoxFuture<'static, Result<Value, String>> {
                    panic!("nothing is listed for somebody who may not see it")
                });
            }
            let answer = recompute(State(context), ConnectInfo(peer)).await;
            assert_eq!(answer.status(), code, "{peer}");
        }
    }

    /// A comparison of control's view with fresh lists lists every object of the cluster, so a second request during the comparison is refused and may be
    /// repeated.
    #[tokio::test]
    async fn recompute_during_another_one_is_refused() {
        let context = beside_a_loop(Duration::ZERO);
        let peer = ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 40_000)));
        let busy = Arc::clone(&context.comparing).try_acquire_owned().expect("nobody compares");
        let answer = recompute(State(context.clone()), peer).await;
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        drop(busy);
        assert_eq!(recompute(State(context), peer).await.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn healthz_fails_when_the_core_loop_stands_still() {
        for (age, code) in [(STUCK / 2, StatusCode::OK), (STUCK, StatusCode::INTERNAL_SERVER_ERROR)] {
            let answer = healthz(State(beside_a_loop(age))).await;
            assert_eq!(answer.status(), code, "{age:?}");
        }
        let answer = healthz(State(beside_a_loop(STUCK + Duration::from_secs(30)))).await;
        let body = axum::body::to_bytes(answer.into_body(), 1000).await.expect("a body");
        assert_eq!(body.as_ref(), b"the loop stands still for 90 s\n");
    }

    /// A missing list of a dispensable kind affects only the jobs that need the kind, so the process stays ready for the webhooks of all other kinds.
    #[tokio::test]
    async fn readyz_names_the_kind_that_cannot_be_listed() {
        async fn readiness(context: &Context) -> (StatusCode, String) {
            let answer = readyz(State(context.clone())).await;
            let code = answer.status();
            let body = axum::body::to_bytes(answer.into_body(), 1000).await.expect("a body");
            (code, String::from_utf8(body.to_vec()).expect("a text"))
        }
        let context = beside_a_loop(Duration::ZERO);
        context.liveness.note_unlisted("jobsets", "jobsets is forbidden".to_owned());
        let (code, text) = readiness(&context).await;
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.ends_with(": jobsets cannot be listed: jobsets is forbidden\n"), "{text}");
        assert!(context.liveness.note_listed());
        let expected = "ok, but jobsets cannot be listed: jobsets is forbidden\n";
        assert_eq!(readiness(&context).await, (StatusCode::OK, expected.to_owned()));
        context.liveness.note_works("jobsets");
        assert_eq!(readiness(&context).await, (StatusCode::OK, "ok\n".to_owned()));
    }

    #[tokio::test]
    async fn metrics_server_recognizes_local_peers_and_health_server_lacks_metrics() {
        let context = beside_a_loop(Duration::ZERO);
        let metrics = bind("127.0.0.1:0").await.expect("a port");
        let health = bind("127.0.0.1:0").await.expect("a port");
        let (to_metrics, to_health) = (metrics.local_addr().expect("bound"), health.local_addr().expect("bound"));
        tokio::spawn(serve_metrics(metrics, context.clone(), Guard::Open));
        tokio::spawn(async move { serve_health(health, context, "/healthz", "readyz").await });
        let compared = asked(&to_metrics, "/debug/recompute").await;
        assert!(compared.starts_with("HTTP/1.1 200 OK\r\n") && compared.contains("\"equal\":true"), "{compared}");
        assert!(asked(&to_health, "/healthz").await.ends_with("ok\n"));
        assert!(asked(&to_health, "/readyz").await.starts_with("HTTP/1.1 503 "));
        assert!(asked(&to_health, "/metrics").await.starts_with("HTTP/1.1 404 "));
    }
}
