//! The two Kubernetes clients: one for watches, and one for calls with a time limit. Each client counts its requests and has a single HTTP/2 connection,
//! because a connection for each concurrent request would cost a TLS handshake and buffers.

use crate::metrics::Metrics;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::{Body, Client, ClientBuilder, ConfigExt};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower::{BoxError, Layer, Service, ServiceBuilder};

/// The Kubernetes clients for watches and for calls.
#[derive(Clone)]
pub struct Clients {
    /// Client for watches. HTTP/2 pings and the time-outs of watches end a connection of this client that stays silent.
    pub watch: Client,
    /// Client for calls, which does not retry by itself. A call with this client gets an answer within 30 s or fails.
    pub rpc: Client,
}

/// Time without traffic after which an HTTP/2 ping is sent on the connection to the API server.
const PING: Duration = Duration::from_secs(15);
/// Time limit for the answer to an HTTP/2 ping. Without an answer the connection to the API server is closed, and requests on it have an unknown outcome.
const PONG: Duration = Duration::from_secs(10);

impl Clients {
    /// Makes the client for watches and the client for calls from one configuration.
    ///
    /// # Errors
    /// The certificates or credentials of the configuration cannot be read.
    pub fn new(mut config: Config, version: &str, metrics: &Arc<Metrics>) -> kube::Result<Self> {
        // Compression of answers is off, because it costs CPU in Berth and in the API server, and Berth runs near its API server.
        config.disable_compression = true;
        if let Ok(agent) = http::HeaderValue::from_str(&format!("berth/{version}")) {
            config.headers.push((http::header::USER_AGENT, agent));
        }
        // The clients do not retry: watchers repeat failed watches, and control repeats failed writes.
        config.default_retry = false;
        let mut rpc = config.clone();
        rpc.read_timeout = Some(Duration::from_secs(30));
        rpc.reset_reader_on_write = true;
        let counting = Counting { metrics: Arc::clone(metrics) };
        Ok(Self { watch: client(config, &counting)?, rpc: client(rpc, &counting)? })
    }
}

/// A client of the API server that uses HTTP/2 if the API server supports it.
fn client(config: Config, counting: &Counting) -> kube::Result<Client> {
    // The HTTP client of the crate kube supports proxies, server names and credential plugins, but not HTTP/2.
    if config.proxy_url.is_some() || config.tls_server_name.is_some() || config.auth_info.exec.is_some() {
        return Ok(ClientBuilder::try_from(config)?.with_layer(counting).build());
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // Nagle's algorithm is off, so that a small HTTP/2 frame does not wait for the acknowledgement of the previous frame.
    tcp.set_nodelay(true);
    let tls = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?);
    let mut connector = TimeoutConnector::new(tls.https_or_http().enable_all_versions().wrap_connector(tcp));
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let http = hyper_util::client::legacy::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PONG)
        .http2_keep_alive_while_idle(true)
        .build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(counting)
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}

#[derive(Clone)]
struct Counting {
    metrics: Arc<Metrics>,
}

impl<S> Layer<S> for Counting {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, metrics: Arc::clone(&self.metrics) }
    }
}

struct Counted<S> {
    inner: S,
    metrics: Arc<Metrics>,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.method().clone();
        let (resource, verb) = classify(&method, request.uri().path(), request.uri().query().unwrap_or(""));
        let metrics = Arc::clone(&self.metrics);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let result = answer.await;
            let code = match &result {
                Ok(response) => response.status().as_str().to_owned(),
                Err(_) => "<error>".to_owned(),
            };
            metrics.count(
                "rest_client_requests",
                &[("code", &code), ("method", method.as_str()), ("resource", &resource), ("verb", verb)],
                1,
            );
            result
        })
    }
}

/// Resource (with subresource) and verb of a request, with the names in the API server's own metrics.
fn classify(method: &Method, path: &str, query: &str) -> (String, &'static str) {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let skip = match parts.next() {
        Some("api") => 1,
        Some("apis") => 2,
        _ => return (path.to_owned(), "raw"),
    };
    let parts: Vec<&str> = parts.skip(skip).collect();
    let (resource, rest) = match parts.as_slice() {
        ["namespaces", _, resource, rest @ ..] if !matches!(*resource, "status" | "finalize") => (*resource, rest),
        [resource, rest @ ..] => (*resource, rest),
        [] => return (path.to_owned(), "raw"),
    };
    let resource = match rest {
        [_, sub, ..] => format!("{resource}/{sub}"),
        _ => resource.to_owned(),
    };
    let verb = match *method {
        Method::GET if query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1") => "watch",
        Method::GET if rest.is_empty() => "list",
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH if query.contains("force=true") => "apply",
        Method::PATCH => "patch",
        Method::DELETE if rest.is_empty() => "deletecollection",
        Method::DELETE => "delete",
        _ => "other",
    };
    (resource, verb)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    #[test]
    fn request_is_classified_by_resource_and_verb_like_the_server() {
        let check = |method: Method, path: &str, query: &str, resource: &str, verb: &str| {
            assert_eq!(classify(&method, path, query), (resource.to_owned(), verb_of(verb)), "{method} {path}");
        };
        check(Method::GET, "/api/v1/namespaces", "watch=true&x=1", "namespaces", "watch");
        check(Method::GET, "/api/v1/namespaces/a", "", "namespaces", "get");
        check(Method::GET, "/apis/batch/v1/jobs", "limit=500", "jobs", "list");
        check(Method::PATCH, "/apis/batch/v1/namespaces/a/jobs/j", "fieldManager=x", "jobs", "patch");
        check(
            Method::PATCH,
            "/apis/kueue.x-k8s.io/v1beta2/namespaces/a/workloads/w/status",
            "fieldManager=x&force=true",
            "workloads/status",
            "apply",
        );
        check(Method::POST, "/apis/events.k8s.io/v1/namespaces/a/events", "", "events", "create");
        check(Method::DELETE, "/apis/kueue.x-k8s.io/v1beta2/namespaces/a/workloads/w", "", "workloads", "delete");
        check(Method::GET, "/version", "", "/version", "raw");
    }

    /// Address of a test server that answers every request with 503, and counts the requests by method.
    async fn overloaded(asked: Arc<Mutex<BTreeMap<String, usize>>>) -> http::Uri {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let answer = move |request: Request<axum::body::Body>| {
            *asked.lock().unwrap().entry(request.method().to_string()).or_default() += 1;
            async { (http::StatusCode::SERVICE_UNAVAILABLE, [(http::header::RETRY_AFTER, "0")], "later") }
        };
        tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
        uri
    }

    #[tokio::test]
    async fn write_refused_by_overloaded_server_is_sent_once_per_client() {
        // Berth uses the HTTP client of the crate kube for features that Berth's own HTTP client lacks, such as another TLS server name.
        for server_name in [None, Some("kubernetes.example".to_owned())] {
            let asked = Arc::<Mutex<BTreeMap<String, usize>>>::default();
            let mut config = Config::new(overloaded(Arc::clone(&asked)).await);
            config.tls_server_name = server_name.clone();
            let clients = Clients::new(config, "0", &Arc::new(Metrics::new("test"))).unwrap();
            let methods = [Method::POST, Method::PATCH, Method::PUT, Method::DELETE];
            for method in &methods {
                for client in [&clients.rpc, &clients.watch] {
                    let path = "/apis/batch/v1/namespaces/a/jobs";
                    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
                    let answer = client.send(request).await.unwrap();
                    assert_eq!(answer.status(), 503, "{method} {server_name:?}");
                }
            }
            let once: BTreeMap<String, usize> = methods.iter().map(|method| (method.to_string(), 2)).collect();
            assert_eq!(*asked.lock().unwrap(), once, "by two clients each, {server_name:?}");
        }
    }

    fn verb_of(verb: &str) -> &'static str {
        ["watch", "get", "list", "patch", "apply", "create", "delete", "raw"]
            .into_iter()
            .find(|known| *known == verb)
            .unwrap()
    }
}
