//! The server: TLS, limits, and from a request to a route. It has a thread of its own, so that neither a decision nor a flood
//! of anything else delays a review.

use crate::routes::{Around, Gates, route};
use crate::{Meter, Surroundings};
use http::{Method, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::Request;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// Bytes of one body: an update carries the object twice, and each may be as large as the API server lets it be.
const BODY: usize = 16 * 1024 * 1024;
/// KiB of bodies that are held at once; who comes then waits, and is turned away after [`PATIENCE`].
const BODIES: u32 = 64 * 1024;
/// How long a body may wait for its place, and how long it may take to arrive.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections at once. API servers keep few and use them for long.
const CONNECTIONS: usize = 512;
/// How long a handshake or the head of a request may take.
const HEAD: Duration = Duration::from_secs(5);
/// Pings on a silent HTTP/2 connection, and patience for the answer.
const PING: Duration = Duration::from_secs(20);
/// How long what is under way may take once the server is told to stop.
const GRACE: Duration = Duration::from_secs(5);
/// How long nothing is accepted after accepting failed, most likely for want of file handles.
const BREATH: Duration = Duration::from_millis(100);

/// What answers reviews.
pub struct Handler {
    /// The cluster.
    pub surroundings: Arc<dyn Surroundings>,
    /// Figures.
    pub meter: Arc<dyn Meter>,
    /// What is switched on.
    pub gates: Gates,
    room: Semaphore,
}

impl Handler {
    /// A handler.
    #[must_use]
    pub fn new(surroundings: Arc<dyn Surroundings>, meter: Arc<dyn Meter>, gates: Gates) -> Self {
        Self { surroundings, meter, gates, room: Semaphore::new(BODIES as usize) }
    }

    async fn handle(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        match self.review(request).await {
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

    async fn review(&self, request: Request<Incoming>) -> Result<Vec<u8>, (StatusCode, &'static str, String)> {
        let route = route(request.uri().path())
            .ok_or_else(|| (StatusCode::NOT_FOUND, "path", "there is nothing at this path".to_owned()))?;
        if request.method() != Method::POST {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "method", "reviews are posted".to_owned()));
        }
        let too_large = || (StatusCode::PAYLOAD_TOO_LARGE, "size", format!("a review has at most {BODY} bytes"));
        let length = request.body().size_hint().upper().and_then(|bytes| usize::try_from(bytes).ok());
        if length.is_some_and(|length| length > BODY) {
            return Err(too_large());
        }
        // A body that does not say how long it is may become as long as any.
        let kib = u32::try_from(length.unwrap_or(BODY).div_ceil(1024)).unwrap_or(BODIES);
        let busy = || (StatusCode::SERVICE_UNAVAILABLE, "busy", "too many reviews at once, try again".to_owned());
        let place = tokio::time::timeout(PATIENCE, self.room.acquire_many(kib.max(1))).await;
        let _place = place.ok().and_then(Result::ok).ok_or_else(busy)?;
        let body = tokio::time::timeout(PATIENCE, Limited::new(request.into_body(), BODY).collect()).await;
        let bytes = match body {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
            Ok(Err(error)) => return Err((StatusCode::BAD_REQUEST, "broken", format!("the body broke off: {error}"))),
            Err(_) => return Err((StatusCode::REQUEST_TIMEOUT, "slow", "the body did not arrive in time".to_owned())),
        };
        let begun = Instant::now();
        let around = Around { surroundings: &*self.surroundings, gates: self.gates };
        let (answer, outcome) =
            route.answer(&bytes, &around).map_err(|error| (StatusCode::BAD_REQUEST, "malformed", error.to_string()))?;
        self.meter.answered(route.name, outcome, begun.elapsed().as_secs_f64());
        Ok(answer)
    }
}

/// Starts the server on a thread of its own. It stops when `stop` turns true or its sender is gone: no new connections, and
/// what is under way is answered.
///
/// # Errors
/// When the thread or its runtime cannot be made, or the listener not be used.
pub fn spawn(
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
                Ok(listener) => serve(listener, tls, handler, stop).await,
                Err(error) => tracing::error!(%error, "the webhooks cannot listen"),
            }
        });
    })
}

async fn serve(listener: TcpListener, tls: Arc<ServerConfig>, handler: Arc<Handler>, mut stop: watch::Receiver<bool>) {
    let acceptor = TlsAcceptor::from(tls);
    let open = Arc::new(Semaphore::new(CONNECTIONS));
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
        let Ok(permit) = Arc::clone(&open).try_acquire_owned() else {
            handler.meter.refused("connections");
            continue;
        };
        let (acceptor, handler, stop) = (acceptor.clone(), Arc::clone(&handler), stop.clone());
        tokio::spawn(async move {
            connection(stream, acceptor, handler, stop).await;
            drop(permit);
        });
    }
    // Whoever still has a connection gets it back.
    let all = u32::try_from(CONNECTIONS).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(GRACE, open.acquire_many(all)).await;
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, handler: Arc<Handler>, mut stop: watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HEAD, acceptor.accept(stream)).await else {
        handler.meter.refused("handshake");
        return;
    };
    let service = service_fn(move |request| {
        let handler = Arc::clone(&handler);
        async move { Ok::<_, Infallible>(handler.handle(request).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(64 * 1024);
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
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

#[cfg(test)]
mod tests;
