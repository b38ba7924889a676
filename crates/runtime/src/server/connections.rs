//! Connections of an HTTP server, plain or over TLS, few and short, like those of the webhooks: every client that reaches the port may
//! connect, and a probe must get through nevertheless.
//!
//! A connection answers one request. Probes and scrapes come seconds apart and open another one, and so there is none that idles.

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

/// Limits of one server. The slowest answer is a comparison with fresh lists of everything.
pub(super) const LIMITS: Limits =
    Limits { connections: 64, head: Duration::from_secs(5), life: Duration::from_secs(120) };
/// Bytes that are held of what is read and of what is written, per connection.
const BUFFER: usize = 64 * 1024;
/// How long nothing is accepted after accepting failed, most likely for want of file handles.
const BREATH: Duration = Duration::from_millis(100);

/// Handshakes that may begin in a second. They are made on the thread of all I/O, and each costs it as much as hundreds of requests without
/// TLS. Further connections wait in the kernel's queue.
const HANDSHAKES: f64 = 50.0;

/// Limits of connections.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Connections at once. The oldest makes room for a new one; connections that have sent no request go first.
    connections: usize,
    /// From being accepted to the end of the head of the request.
    head: Duration,
    /// From being accepted to the last byte of the answer.
    life: Duration,
}

/// A connection that is served.
struct Open {
    task: AbortHandle,
    since: Instant,
    /// The head of a request has arrived.
    asked: Arc<AtomicBool>,
}

/// Serves until dropped, and closes all connections then; over TLS where `tls` is given.
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
    let whole = async {
        let Some(tls) = tls else { return answer(limits, stream, peer, router, asked).await };
        if let Ok(Ok(stream)) = tokio::time::timeout(limits.head, tls.accept(stream)).await {
            answer(limits, stream, peer, router, asked).await;
        }
    };
    // A connection that ends with an error concerns its client alone.
    let _ = tokio::time::timeout(limits.life, whole).await;
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
