//! GET requests to a server on loopback, plain or over TLS.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::client::Body;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Time limit for one answer.
const LIMIT: Duration = Duration::from_secs(20);

/// Sends a GET request to a port of loopback; returns the status code and the body.
///
/// # Errors
/// Fails when the server does not answer in time.
pub async fn http_get(port: u16, path: &str) -> Result<(u16, String)> {
    let ask = async { ask(TcpStream::connect(("127.0.0.1", port)).await?, port, path).await };
    tokio::time::timeout(LIMIT, ask).await.context("no answer within 20 s")?
}

/// Sends a GET request over TLS to a port of loopback; returns the status code and the body. Any certificate of the server is accepted, and a bearer
/// token is sent if there is one.
///
/// # Errors
/// Fails as [`http_get`] does.
pub async fn https_get(port: u16, path: &str, token: Option<&str>) -> Result<(u16, String)> {
    let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse()?);
    config.accept_invalid_certs = true;
    // The client does not retry after the answer 429 (too many requests), because tests want to see that answer.
    config.default_retry = false;
    let client = kube::Client::try_from(config)?;
    let mut request = http::Request::get(path);
    if let Some(token) = token {
        request = request.header(http::header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Body::empty())?;
    let ask = async {
        let response = client.send(request).await?;
        let code = response.status().as_u16();
        let body = response.into_body().collect_bytes().await?;
        Ok((code, String::from_utf8_lossy(&body).into_owned()))
    };
    tokio::time::timeout(LIMIT, ask).await.context("no answer within 20 s")?
}

async fn ask(mut stream: TcpStream, port: u16, path: &str) -> Result<(u16, String)> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    let answer = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let code = head.split_whitespace().nth(1).and_then(|c| c.parse().ok()).context("no HTTP status")?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Ok((code, if chunked { unchunk(body) } else { body.to_owned() }))
}

fn unchunk(body: &str) -> String {
    let mut text = String::new();
    let mut rest = body;
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || !after.is_char_boundary(size.min(after.len())) {
            break;
        }
        let (chunk, tail) = after.split_at(size.min(after.len()));
        text.push_str(chunk);
        rest = tail.strip_prefix("\r\n").unwrap_or(tail);
    }
    text
}
