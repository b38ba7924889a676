//! Connections of an HTTP server, plain or over TLS. The number and the lifetime of connections are limited, as in the webhook server, because every client
//! that reaches the port may connect, and a probe must still get an answer.
//!
//! A connection of the HTTP server answers one request, so no connection idles; probes and scrapes come seconds apart and open new connections.

use crate::rate::Bucket;
use axum::Router;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

/// Connection limits of the servers for metrics and for probes. The slowest answer of these servers is a comparison of control's view with fresh lists of all
/// kinds.
pub(super) const LIMITS: Limits =
    Limits { connections: 64, head: Duration::from_secs(5), life: Duration::from_secs(120) };
/// Size of the read buffer and of the write buffer of a connection, in bytes.
const BUFFER: usize = 64 * 1024;
/// Pause after the server failed to accept a connection, most likely for lack of file handles.
const BREATH: Duration = Duration::from_millis(100);

/// Largest number of TLS handshakes that begin in a second. Handshakes run on the thread of all I/O, and each costs as much as hundreds of requests without
/// TLS. Connections beyond this number wait in the kernel's queue.
const HANDSHAKES: f64 = 50.0;

/// Limits of a server's connections.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Largest number of connections. At the limit, a new connection closes the oldest connection; connections that have sent no request are closed first.
    connections: usize,
    /// Time limit from the accept of a connection to the end of the head of its request.
    head: Duration,
    /// Time limit from the accept of a connection to the last byte of the answer.
    life: Duration,
}

/// An open connection.
struct Open {
    task: AbortHandle,
    since: Instant,
    /// True if the head of the connection's request has arrived.
    asked: Arc<AtomicBool>,
}

/// Serves HTTP connections until the future is dropped, which closes all connections; uses TLS if `tls` is given.
pub(super) async fn serve(
    limits: Limits,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
) -> Infallible {
    let mut handshakes = Bucket::new(tls.as_ref().map(|_| HANDSHAKES), HANDSHAKES, Instant::now());
    let mut tasks = JoinSet::new();
    let mut open: Vec<Open> = Vec::new();
    loop {
        while let Err(pause) = handshakes.take(Instant::now()) {
            tokio::time::sleep(pause).await;
        }
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection for metrics or probes could not be accepted");
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        while tasks.try_join_next().is_some() {}
        open.retain(|one| !one.task.is_finished());
        if open.len() >= limits.connections {
            let silent = open.iter().enumerate().min_by_key(|(_, one)| (one.asked.load(Ordering::Relaxed), one.since));
            if let Some(at) = silent.map(|(at, _)| at) {
                open.swap_remove(at).task.abort();
            }
        }
        let (since, asked) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let task = tasks.spawn(connection(limits, stream, peer, tls.clone(), router.clone(), Arc::clone(&asked)));
        open.push(Open { task, since, asked });
    }
}

async fn connection(
    limits: Limits,
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    router: Router,
    asked: Arc<AtomicBool>,
) {
    let _ = stream.set_nodelay(true);
    let connection = async {
        let Some(tls) = tls else { return answer(limits, stream, peer, router, asked).await };
        if let Ok(Ok(stream)) = tokio::time::timeout(limits.head, tls.accept(stream)).await {
            answer(limits, stream, peer, router, asked).await;
        }
    };
    // An error of a connection is ignored, because it concerns the connection's client only.
    let _ = tokio::time::timeout(limits.life, connection).await;
}

async fn answer(
    limits: Limits,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: SocketAddr,
    router: Router,
    asked: Arc<AtomicBool>,
) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(ConnectInfo(peer));
        router.clone().oneshot(request)
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head).keep_alive(false).max_buf_size(BUFFER);
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

#[cfg(test)]
mod tests;
