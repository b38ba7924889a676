//! Tests of connections with real sockets: a slow client loses its connection, and a client that sends a request gets its answer.

use super::*;
use axum::body::{Body, Bytes};
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

/// Time far longer than any step of the tests; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time limit that no test reaches.
const NEVER: Duration = Duration::from_secs(3600);
const ASK: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

async fn start(limits: Limits, router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(limits, listener, None, router));
    address
}

async fn open(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// All bytes up to the end of the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
    assert!(read.is_ok(), "the connection stays open");
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn is_open(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    tokio::time::timeout(Duration::from_millis(100), stream.read(&mut byte)).await.is_err()
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello\n" }))
}

#[tokio::test]
async fn connection_ends_after_one_answered_request() {
    let address = start(LIMITS, hello()).await;
    let reported = rest(&mut open(address, ASK).await).await;
    assert!(reported.starts_with("HTTP/1.1 200 OK\r\n") && reported.ends_with("\r\n\r\nhello\n"), "{reported}");
}

#[tokio::test]
async fn connection_without_complete_head_is_closed_after_its_deadline() {
    let limits = Limits { connections: 8, head: Duration::from_millis(200), life: NEVER };
    let address = start(limits, hello()).await;
    for begin in ["", "GET / HT", "GET / HTTP/1.1\r\nHost: a\r\n"] {
        let reported = rest(&mut open(address, begin).await).await;
        assert!(!reported.contains("200 OK"), "{begin:?}: {reported}");
    }
    // The test's client keeps sending bytes, but never the end of its request's head.
    let mut drip = open(address, "GET / HTTP/1.1\r\nA: ").await;
    let dripping = async {
        while drip.write_all(b"b").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, dripping).await.is_ok(), "the connection stays open");
}

#[tokio::test]
async fn connection_with_slow_body_or_reader_ends_after_its_lifetime() {
    let held = Arc::new(());
    let body = Arc::clone(&held);
    // The server's answer is larger than any socket buffer, and continues as long as the client reads.
    let endless = move || {
        let body = Arc::clone(&body);
        let pieces = futures::stream::repeat_with(move || {
            let _held = &body;
            Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 8192]))
        });
        async move { Body::from_stream(pieces) }
    };
    let router = Router::new().route("/", get(endless)).route("/body", post(|body: Bytes| async move { body }));
    let limits = Limits { connections: 8, head: NEVER, life: Duration::from_millis(300) };
    let address = start(limits, router).await;

    let begin = "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nx";
    let reported = rest(&mut open(address, begin).await).await;
    assert!(!reported.contains("200 OK"), "{reported}");

    // While no request is served, the test and the route each hold one reference to the value `held`.
    let idle = Arc::strong_count(&held);
    let mut reader = open(address, ASK).await;
    reader.read_exact(&mut [0; 16]).await.unwrap();
    let let_go = async {
        while Arc::strong_count(&held) > idle {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, let_go).await.is_ok(), "an answer that nobody reads is kept");
}

#[tokio::test]
async fn silent_connections_make_room_for_new_requests() {
    let limits = Limits { connections: 4, head: NEVER, life: NEVER };
    let address = start(limits, hello()).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(open(address, "").await);
    }
    assert!(rest(&mut open(address, ASK).await).await.contains("200 OK"));
    // At most four of the twenty connections stay open, and the connection that has sent a request has replaced the oldest connection.
    for old in &mut silent[..17] {
        assert_eq!(rest(old).await, "");
    }
    for young in &mut silent[17..] {
        assert!(is_open(young).await);
    }
}

#[tokio::test]
async fn connection_with_a_request_outlives_silent_ones_when_full() {
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let hang = move || {
        arrived.send(()).unwrap();
        std::future::pending::<&'static str>()
    };
    let limits = Limits { connections: 4, head: NEVER, life: NEVER };
    let address = start(limits, hello().route("/hang", get(hang))).await;
    let ask = "GET /hang HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut asking = Vec::new();
    for _ in 0..3 {
        asking.push(open(address, ask).await);
        tokio::time::timeout(PATIENCE, arrivals.recv()).await.unwrap().unwrap();
    }
    let mut silent = open(address, "").await;
    assert!(rest(&mut open(address, ASK).await).await.contains("200 OK"));
    assert_eq!(rest(&mut silent).await, "", "the newest, but it has asked nothing");
    for one in &mut asking {
        assert!(is_open(one).await);
    }
    // If all clients have sent a request, the oldest connection is closed.
    asking.push(open(address, ask).await);
    tokio::time::timeout(PATIENCE, arrivals.recv()).await.unwrap().unwrap();
    assert!(rest(&mut open(address, ASK).await).await.contains("200 OK"));
    assert_eq!(rest(&mut asking[0]).await, "");
    assert!(is_open(&mut asking[1]).await);
}
