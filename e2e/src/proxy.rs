//! A reverse proxy between Berth and the API server that injects faults at chosen requests.
//!
//! A fault is a crash between two writes, an answer that never arrives, or an API server that is too busy. Each rule of the proxy injects a fault at
//! the first requests that match the rule. Berth sends plain HTTP/1.1 to the proxy on loopback, with Berth's own token, which the proxy passes on.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::control_plane::{ControlPlane, write_kubeconfig};
use crate::process::listener;
use crate::wait::{self, Seen};

/// A request, as the API server sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Verb of the request, one of `get`, `list`, `watch`, `create`, `update`, `patch`, `apply` and `delete`.
    pub verb: &'static str,
    /// Plural of the requested resource, with the subresource after a slash.
    pub resource: String,
    /// Namespace in the request's path; empty for cluster scope.
    pub namespace: String,
    /// Name of the requested object; empty for collections.
    pub name: String,
    /// Query.
    pub query: String,
    /// Body of the request; null if the request has no body or its body is no JSON.
    pub body: Value,
}

impl Asked {
    /// The description of a request, from its method, path, query and body.
    pub fn of(method: &Method, path: &str, query: &str, body: &[u8]) -> Asked {
        let mut parts = path.split('/').filter(|p| !p.is_empty()).peekable();
        let skip = if parts.peek() == Some(&"api") { 2 } else { 3 };
        let rest: Vec<&str> = parts.skip(skip).collect();
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, subresource, ..] => (*plural, *name, *subresource),
            [] => (path, "", ""),
        };
        let watching = query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1");
        let verb = match *method {
            Method::GET if watching => "watch",
            Method::GET if name.is_empty() => "list",
            Method::GET => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH if query.contains("force=true") => "apply",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "other",
        };
        let resource = if subresource.is_empty() { plural.to_owned() } else { format!("{plural}/{subresource}") };
        let body = serde_json::from_slice(body).unwrap_or_default();
        Asked { verb, resource, namespace: namespace.to_owned(), name: name.to_owned(), query: query.to_owned(), body }
    }

    /// Status that the request's body gives a condition, which is `True` or `False`; empty if the request does not write the condition.
    pub fn condition(&self, type_: &str) -> &str {
        crate::kinds::condition(&self.body, type_)
    }

    /// The value at a JSON pointer of the request's body; null if there is no value.
    pub fn at(&self, pointer: &str) -> &Value {
        self.body.pointer(pointer).unwrap_or(&Value::Null)
    }
}

/// The fault that the proxy injects at a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The proxy kills Berth and does not pass the request on.
    KillBefore,
    /// The proxy passes the request on, then kills Berth before Berth sees the answer.
    KillAfter,
    /// The proxy passes the request on and closes the connection without an answer.
    LoseReply,
    /// The proxy does not pass the request on and closes the connection.
    LoseRequest,
    /// The proxy answers the request with the given status code and does not pass it on.
    Answer(u16),
    /// The proxy passes the request on and holds the answer back for the given time.
    Delay(Duration),
}

type Matches = Box<dyn Fn(&Asked) -> bool + Send + Sync>;

struct Rule {
    matches: Matches,
    fault: Fault,
    left: AtomicU32,
    struck: AtomicU32,
}

/// Counts the faults that a rule has injected. The rule stays in the proxy while it has faults left, even if the counter is dropped.
#[derive(Clone)]
pub struct Armed(Arc<Rule>);

impl Armed {
    /// Number of faults that the rule has begun to inject.
    pub fn struck(&self) -> u32 {
        self.0.struck.load(Ordering::SeqCst)
    }
}

struct Shared {
    client: Client,
    victim: PathBuf,
    rules: Mutex<Vec<Arc<Rule>>>,
    killed: Mutex<Option<Instant>>,
}

/// A running proxy; it ends when the value is dropped.
pub struct Proxy {
    url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy to a control plane. The parameter `victim` is the pid file of the process that the proxy kills.
    ///
    /// # Errors
    /// Fails if no port can be bound.
    pub async fn start(plane: &ControlPlane, victim: &Path) -> Result<Proxy> {
        let path = plane.folder().join("proxy.kubeconfig");
        // The proxy has no credentials of its own: the caller's token decides which requests are allowed.
        write_kubeconfig(&path, plane.url(), &plane.authority(), "nobody", &json!({}))?;
        let mut config =
            Config::from_custom_kubeconfig(Kubeconfig::read_from(&path)?, &KubeConfigOptions::default()).await?;
        config.disable_compression = true;
        config.default_retry = false;
        config.read_timeout = None;
        let listener = listener().context("a port for the proxy")?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let url = format!("http://{}", listener.local_addr()?);
        let client = Client::try_from(config)?;
        let shared = Arc::new(Shared {
            client,
            victim: victim.to_path_buf(),
            rules: Mutex::default(),
            killed: Mutex::default(),
        });
        let task = tokio::spawn(serve(listener, shared.clone()));
        Ok(Proxy { url, shared, task })
    }

    /// Address of the proxy, of the form `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits until the proxy has killed nothing for `span`: a Berth that dies every second never does the work that it delays by a second.
    ///
    /// # Errors
    /// Fails if there is no time without a kill of length `span` within `limit`.
    pub async fn calm(&self, span: Duration, limit: Duration) -> Result<()> {
        wait::until(limit, &format!("no kill for {span:?}"), || async {
            let killed = *self.shared.killed.lock().unwrap_or_else(PoisonError::into_inner);
            let calm = killed.is_none_or(|at| at.elapsed() >= span);
            Ok(Seen::when(calm, || "killed again".to_owned()))
        })
        .await
    }

    /// Adds a rule: the proxy injects the fault at the first `times` requests for which `matches` is true.
    pub fn arm(&self, times: u32, fault: Fault, matches: impl Fn(&Asked) -> bool + Send + Sync + 'static) -> Armed {
        let matches = Box::new(matches);
        let rule = Arc::new(Rule { matches, fault, left: AtomicU32::new(times), struck: AtomicU32::new(0) });
        self.shared.rules.lock().unwrap_or_else(PoisonError::into_inner).push(rule.clone());
        Armed(rule)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(connection(stream, shared.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let shared = shared.clone();
        async move {
            // The request runs in a task of its own: a kill closes the connection to Berth, and the proxy must still complete the fault.
            let task = tokio::spawn(async move { shared.answer(request).await });
            task.await.unwrap_or_else(|e| Err(Cut(e.to_string())))
        }
    });
    // The connection ends with an error whenever a fault closes it.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// The error by which the proxy closes a connection without an answer.
#[derive(Debug)]
struct Cut(String);

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Cut {}

impl Shared {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Cut> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|e| Cut(e.to_string()))?.to_bytes();
        let asked = Asked::of(&head.method, head.uri.path(), head.uri.query().unwrap_or(""), &body);
        let mut onward = Request::new(Body::from(body));
        *onward.method_mut() = head.method;
        *onward.headers_mut() = head.headers;
        onward.headers_mut().remove(header::HOST);
        let path = head.uri.path_and_query().map_or("/", |p| p.as_str());
        *onward.uri_mut() = path.parse().map_err(|e: http::uri::InvalidUri| Cut(e.to_string()))?;
        let Some(rule) = self.rule(&asked) else { return self.pass(onward).await };
        rule.struck.fetch_add(1, Ordering::SeqCst);
        match rule.fault {
            Fault::KillBefore => {
                self.kill().await;
                Err(Cut("killed before".to_owned()))
            }
            Fault::KillAfter => {
                let _ = self.pass(onward).await;
                self.kill().await;
                Err(Cut("killed after".to_owned()))
            }
            Fault::LoseReply => {
                let _ = self.pass(onward).await;
                Err(Cut("reply lost".to_owned()))
            }
            Fault::LoseRequest => Err(Cut("request lost".to_owned())),
            Fault::Answer(code) => Ok(refusal(code)),
            Fault::Delay(time) => {
                let answer = self.pass(onward).await;
                tokio::time::sleep(time).await;
                answer
            }
        }
    }

    /// The first rule that matches the request and has faults left; the number of its faults is reduced by one.
    fn rule(&self, asked: &Asked) -> Option<Arc<Rule>> {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let take = |rule: &&Arc<Rule>| {
            (rule.matches)(asked)
                && rule.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
        };
        rules.iter().find(take).cloned()
    }

    async fn pass(&self, request: Request<Body>) -> Result<Response<Body>, Cut> {
        self.client.send(request).await.map_err(|e| Cut(e.to_string()))
    }

    async fn kill(&self) {
        *self.killed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        let victim = self.victim.clone();
        let killing = move || {
            let pid = std::fs::read_to_string(victim).unwrap_or_default();
            let _ = Command::new("kill").args(["-s", "KILL", pid.trim()]).stderr(Stdio::null()).status();
            Ok::<_, Infallible>(())
        };
        let _ = tokio::task::spawn_blocking(killing).await;
    }
}

/// A refusal in the form that the API server uses.
fn refusal(code: u16) -> Response<Body> {
    let reason = match code {
        409 => "Conflict",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
        "message": format!("the test's proxy answers {code}")});
    let mut response = Response::new(Body::from(status.to_string().into_bytes()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    if code == 429 {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::text;

    #[test]
    fn proxied_request_is_classified_as_the_api_server_does() {
        let read = |method: Method, path: &str, query: &str| {
            let asked = Asked::of(&method, path, query, b"");
            format!("{} {} {}/{}", asked.verb, asked.resource, asked.namespace, asked.name)
        };
        let base = "/apis/kueue.x-k8s.io/v1beta2";
        assert_eq!(
            read(Method::PATCH, &format!("{base}/namespaces/a/workloads/w/status"), "force=true"),
            "apply workloads/status a/w"
        );
        assert_eq!(read(Method::PATCH, &format!("{base}/clusterqueues/q"), ""), "patch clusterqueues /q");
        assert_eq!(read(Method::GET, "/api/v1/namespaces/a/pods", "limit=1"), "list pods a/");
        assert_eq!(read(Method::GET, "/api/v1/namespaces", "watch=true"), "watch namespaces /");
        assert_eq!(read(Method::GET, "/api/v1/namespaces/a", ""), "get namespaces /a");
        assert_eq!(read(Method::POST, "/apis/batch/v1/namespaces/a/jobs", ""), "create jobs a/");
        assert_eq!(text(&Asked::of(&Method::POST, "/x", "", br#"{"kind":"Job"}"#).body, "/kind"), "Job");
    }
}
