//! The webhook server: TLS, limits, and the way from an HTTP request to its route. The server has a thread of its own, so that neither control's
//! decisions nor a flood of other requests delay a review.

use crate::author::Authors;
use crate::routes::{Around, Gates, route};
use crate::{ClusterFacts, Meter};
use http::{Method, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

/// Largest size of one body in bytes: an update has the object twice, and each may be as large as the API server allows.
const BODY: usize = 16 * 1024 * 1024;
/// Largest size in bytes of a small body; nearly all bodies are small.
const SMALL: usize = 64 * 1024;
/// Largest number of bytes in memory, over all small bodies and the beginnings of large ones.
const BEGINNINGS: usize = 32 * 1024 * 1024;
/// Largest number of bytes in memory, over all large bodies. A large body gets room in memory for its announced size before more of the body is read, so that
/// two half-read bodies never block each other. Large bodies have room in memory of their own, so that stalled large bodies do not delay small ones.
const LARGE: usize = 32 * 1024 * 1024;
/// Longest time in which a body may arrive, including the wait for room; a slower body is refused.
const PATIENCE: Duration = Duration::from_secs(5);
/// Limits of connections. Any client that reaches the webhook port may connect, and reviews must be answered nevertheless. API servers keep few
/// connections to a webhook, and close idle connections after 90 seconds, even if they were never used. Berth's time limits for idle connections are
/// longer, so that Berth never closes a connection on which a review is arriving: the API server would not send that review again.
const LIMITS: Limits = Limits { connections: 512, first: Duration::from_secs(120), idle: Duration::from_secs(180) };
/// Longest time of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Interval of pings on a silent HTTP/2 connection, and longest time for the answer to a ping.
const PING: Duration = Duration::from_secs(20);
/// Time in which requests under way on a connection may end before the connection is closed.
const GRACE: Duration = Duration::from_secs(5);
/// Pause after a connection could not be accepted, most likely for lack of file handles.
const BREATH: Duration = Duration::from_millis(100);

/// Limits of connections.
#[derive(Clone, Copy)]
struct Limits {
    /// Largest number of connections; if it is reached, a new connection replaces the one without a review for the longest time.
    connections: usize,
    /// Longest time from the acceptance of a connection to its first complete review.
    first: Duration,
    /// Longest time between two complete reviews on a connection.
    idle: Duration,
}

/// Time of the last complete review on a connection, if there was a review. Only complete reviews count as a sign of life, because any client can
/// begin a review.
type Heard = watch::Sender<Option<Instant>>;

/// Refusal of a request, as HTTP status, the reason as the metric has it, and a text for the client.
type Refusal = (StatusCode, &'static str, String);

/// The state of the webhook server that the answers to reviews need: facts about the cluster, rights of authors, feature gates, and room for bodies.
pub struct Handler {
    /// Facts about the cluster.
    pub cluster_facts: Arc<dyn ClusterFacts>,
    /// Receiver of the metrics.
    pub meter: Arc<dyn Meter>,
    /// The feature gates.
    pub gates: Gates,
    /// Source of users' rights.
    pub authors: Arc<dyn Authors>,
    beginnings: Semaphore,
    large: Semaphore,
}

impl Handler {
    /// A handler.
    #[must_use]
    pub fn new(
        cluster_facts: Arc<dyn ClusterFacts>,
        meter: Arc<dyn Meter>,
        gates: Gates,
        authors: Arc<dyn Authors>,
    ) -> Self {
        let (beginnings, large) = (Semaphore::new(BEGINNINGS), Semaphore::new(LARGE));
        Self { cluster_facts, meter, gates, authors, beginnings, large }
    }

    async fn handle(&self, request: Request<Incoming>, heard: &Heard) -> Response<Full<Bytes>> {
        match self.review(request, heard).await {
            Ok(body) => {
                let mut response = Response::new(Full::new(Bytes::from(body)));
                let json = header::HeaderValue::from_static("application/json");
                response.headers_mut().insert(header::CONTENT_TYPE, json);
                response
            }
            Err((status, why, text)) => {
                self.meter.refused(why);
                let mut response = Response::new(Full::new(Bytes::from(format!("Berth: {text}\n"))));
                *response.status_mut() = status;
                response
            }
        }
    }

    async fn review(&self, request: Request<Incoming>, heard: &Heard) -> Result<Vec<u8>, Refusal> {
        let route = route(request.uri().path())
            .ok_or_else(|| (StatusCode::NOT_FOUND, "path", "there is nothing at this path".to_owned()))?;
        if request.method() != Method::POST {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "method", "reviews are posted".to_owned()));
        }
        if request.body().size_hint().lower() > BODY as u64 {
            return Err(too_large());
        }
        let (bytes, _room) = self.read_body(request.into_body()).await?;
        heard.send_replace(Some(Instant::now()));
        let begun = Instant::now();
        let leave = match route.asks(&bytes) {
            Some((user, namespace)) => Some(self.authors.may_create_jobs(user, namespace).await),
            None => None,
        };
        let around = Around { cluster_facts: &*self.cluster_facts, gates: self.gates, leave };
        let (answer, outcome) =
            route.answer(&bytes, &around).map_err(|error| (StatusCode::BAD_REQUEST, "malformed", error.to_string()))?;
        self.meter.answered(&route.name, outcome, begun.elapsed().as_secs_f64());
        Ok(answer)
    }

    /// Reads the complete body, and returns it with the room that it takes. Until a body is larger than a small body, only the bytes that have arrived take
    /// room in memory.
    async fn read_body(&self, mut body: Incoming) -> Result<(Vec<u8>, Option<SemaphorePermit<'_>>), Refusal> {
        let slow = |_| (StatusCode::REQUEST_TIMEOUT, "slow", "the body did not arrive in time".to_owned());
        let announced = body.size_hint().exact().and_then(|size| usize::try_from(size).ok()).unwrap_or(BODY).min(BODY);
        let until = Instant::now() + PATIENCE;
        let mut bytes = Vec::new();
        let mut room: Option<SemaphorePermit<'_>> = None;
        let mut is_large = false;
        while let Some(frame) = tokio::time::timeout_at(until, body.frame()).await.map_err(slow)? {
            let broken =
                |error: hyper::Error| (StatusCode::BAD_REQUEST, "broken", format!("the body broke off: {error}"));
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            let size = bytes.len() + data.len();
            if size > BODY {
                return Err(too_large());
            }
            if !is_large && size > SMALL {
                // While a large body waits for room in memory, its beginning keeps the room that it has, so that the number of waiting bodies is limited, too.
                room = Some(room_in(&self.large, announced, until).await?);
                is_large = true;
                bytes.reserve_exact(announced.saturating_sub(bytes.len()));
            }
            if !is_large {
                let more = room_in(&self.beginnings, data.len(), until).await?;
                match &mut room {
                    Some(room) => room.merge(more),
                    None => room = Some(more),
                }
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes, room))
    }
}

async fn room_in(of: &Semaphore, size: usize, until: Instant) -> Result<SemaphorePermit<'_>, Refusal> {
    let permit = tokio::time::timeout_at(until, of.acquire_many(u32::try_from(size).unwrap_or(u32::MAX))).await;
    let busy = || (StatusCode::SERVICE_UNAVAILABLE, "busy", "too many reviews at once, try again".to_owned());
    permit.ok().and_then(Result::ok).ok_or_else(busy)
}

fn too_large() -> Refusal {
    (StatusCode::PAYLOAD_TOO_LARGE, "size", format!("a review has at most {BODY} bytes"))
}

/// Starts the server on a thread of its own. The webhook server stops when `stop` becomes true or its sender is dropped: new connections are refused
/// at once, and requests under way are answered.
///
/// # Errors
/// Fails if the thread or its runtime cannot be created, or if the listener cannot be used.
pub fn spawn(
    listener: std::net::TcpListener,
    tls: Arc<ServerConfig>,
    handler: Arc<Handler>,
    stop: watch::Receiver<bool>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    spawn_within(LIMITS, listener, tls, handler, stop)
}

fn spawn_within(
    limits: Limits,
    listener: std::net::TcpListener,
    tls: Arc<ServerConfig>,
    handler: Arc<Handler>,
    stop: watch::Receiver<bool>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("webhook".to_owned()).spawn(move || {
        runtime.block_on(async move {
            match TcpListener::from_std(listener) {
                Ok(listener) => serve(limits, listener, tls, handler, stop).await,
                Err(error) => tracing::error!(%error, "the webhooks cannot listen"),
            }
        });
    })
}

/// A connection that is served.
struct Open {
    task: JoinHandle<()>,
    since: Instant,
    heard: Heard,
}

async fn serve(
    limits: Limits,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    handler: Arc<Handler>,
    mut stop: watch::Receiver<bool>,
) {
    let acceptor = TlsAcceptor::from(tls);
    let mut open: Vec<Open> = Vec::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the webhooks could not accept a connection");
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        open.retain(|one| !one.task.is_finished());
        if open.len() >= limits.connections {
            handler.meter.refused("connections");
            // The oldest connection without a review is closed first (`None` sorts first): the newest connection may be the API server's, and stays
            // open.
            let silent = open.iter().enumerate().min_by_key(|(_, one)| (*one.heard.borrow(), one.since));
            if let Some(at) = silent.map(|(at, _)| at) {
                open.swap_remove(at).task.abort();
            }
        }
        let (since, heard) = (Instant::now(), Heard::new(None));
        let (acceptor, handler) = (acceptor.clone(), Arc::clone(&handler));
        let task = tokio::spawn(connection(limits, stream, acceptor, handler, heard.clone(), stop.clone()));
        open.push(Open { task, since, heard });
    }
    // The listener is closed at once, because a connection that the kernel accepted now would never be answered; a client whose connection is refused
    // tries another replica.
    drop(listener);
    let left = open.into_iter().map(|one| one.task);
    let _ = tokio::time::timeout(GRACE, futures::future::join_all(left)).await;
}

async fn connection(
    limits: Limits,
    stream: TcpStream,
    acceptor: TlsAcceptor,
    handler: Arc<Handler>,
    heard: Heard,
    mut stop: watch::Receiver<bool>,
) {
    let since = Instant::now();
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
        handler.meter.refused("handshake");
        return;
    };
    let (answering, hearing) = (Arc::clone(&handler), heard.clone());
    let service = service_fn(move |request| {
        let (handler, heard) = (Arc::clone(&answering), hearing.clone());
        async move { Ok::<_, Infallible>(handler.handle(request, &heard).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    // hyper's own time limit for request heads would also run between reviews, so it is off; the loop of `connection` closes a connection that sends no
    // complete review in time.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(64 * 1024);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(256)
        .initial_stream_window_size(256 * 1024)
        .initial_connection_window_size(2 * 1024 * 1024)
        .max_header_list_size(64 * 1024);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    loop {
        let last = *heard.borrow();
        let until = last.map_or(since + limits.first, |last| last + limits.idle);
        tokio::select! {
            _ = connection.as_mut() => return,
            _ = stop.wait_for(|stop| *stop) => break,
            () = tokio::time::sleep_until(until) => {}
        }
        let now = *heard.borrow();
        if now.is_none() {
            handler.meter.refused("silent");
        }
        if now == last {
            break;
        }
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(GRACE, connection).await;
}

#[cfg(test)]
mod tests;
