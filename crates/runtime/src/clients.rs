//! The two clients: one that watches with kube's defaults, one for calls that must end. Both count their requests.

use crate::metrics::Metrics;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::Config;
use kube::client::{Body, Client, ClientBuilder};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower::{Layer, Service};

/// The two clients.
#[derive(Clone)]
pub struct Clients {
    /// For watches: no read time-out (the watcher has its own), retries as kube does them.
    pub watch: Client,
    /// For calls: no hidden retry, and an answer within 30 s or an error.
    pub rpc: Client,
}

impl Clients {
    /// Makes both from one configuration.
    ///
    /// # Errors
    /// When the configuration's certificates or credentials cannot be read.
    pub fn new(mut config: Config, version: &str, metrics: &Arc<Metrics>) -> kube::Result<Self> {
        // Compression costs CPU on both sides and the operator runs beside its API server.
        config.disable_compression = true;
        if let Ok(agent) = http::HeaderValue::from_str(&format!("berth/{version}")) {
            config.headers.push((http::header::USER_AGENT, agent));
        }
        let mut rpc = config.clone();
        rpc.default_retry = false;
        rpc.read_timeout = Some(Duration::from_secs(30));
        rpc.reset_reader_on_write = true;
        let counting = Counting { metrics: Arc::clone(metrics) };
        Ok(Self {
            watch: ClientBuilder::try_from(config)?.with_layer(&counting).build(),
            rpc: ClientBuilder::try_from(rpc)?.with_layer(&counting).build(),
        })
    }
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

/// Resource (with subresource) and verb of a request, as the API server's own metrics name them.
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

    #[test]
    fn requests_are_named_as_the_server_names_them() {
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

    fn verb_of(verb: &str) -> &'static str {
        ["watch", "get", "list", "patch", "apply", "create", "delete", "raw"]
            .into_iter()
            .find(|known| *known == verb)
            .unwrap()
    }
}
