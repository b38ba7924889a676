//! A server on loopback that implements the protocol of Google Cloud Storage, with its objects in memory, and a client for the server. The server
//! asks for no credentials: the tests check the protocol, and not the access control.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use crate::binaries;
use crate::bucket::exchange;
use crate::http::http_get;
use crate::process::{Guarded, Launch, free_ports};
use crate::wait::{self, STEP, Seen};

/// A running server of Google Cloud Storage's protocol; the server ends when the value is dropped.
#[derive(Debug)]
pub struct Gcs {
    /// Address of the store.
    pub endpoint: String,
    /// Name of the only bucket on the server.
    pub bucket: String,
    client: GcsClient,
    _process: Guarded,
}

/// Path of the program of the Google Cloud Storage server, which is built first if the cache does not have it. Tests call [`program`] before they begin to
/// measure time, because the build may take minutes.
///
/// # Errors
/// Fails when Go is missing or the build fails.
pub async fn program() -> Result<PathBuf> {
    tokio::task::spawn_blocking(binaries::gcs).await?
}

/// A key file of a service account, with which a client asks for no tokens.
#[must_use]
pub fn service_account() -> String {
    json!({"type": "service_account", "private_key_id": "1", "private_key": "not-so-secret",
        "client_email": "berth@example.invalid", "disable_oauth": true})
    .to_string()
}

impl Gcs {
    /// Starts a server with the bucket `bucket`; the log of the server goes to `folder`.
    ///
    /// # Errors
    /// Fails if the server cannot be built or does not start.
    pub async fn start(folder: &Path, bucket: &str) -> Result<Self> {
        let program = program().await?;
        let [port] = free_ports()?;
        let process = Guarded::start(Launch {
            name: "gcs",
            program: &program,
            args: vec![
                "-scheme=http".to_owned(),
                "-backend=memory".to_owned(),
                "-host=127.0.0.1".to_owned(),
                format!("-port={port}"),
                // For requests to its public host the server takes the first part of the path as the name of the bucket.
                "-public-host=127.0.0.1".to_owned(),
            ],
            env: Vec::new(),
            folder,
            doomed: None,
            restarts: false,
        })?;
        wait::until(STEP, "the server of Google Cloud Storage is up", || async {
            let answer = http_get(port, "/_internal/healthcheck").await;
            Ok(Seen::when(matches!(answer, Ok((200, _))), || format!("{answer:?} {}", process.tail(3))))
        })
        .await?;
        let address = format!("127.0.0.1:{port}");
        let client = GcsClient { address: address.clone() };
        let body = json!({"name": bucket}).to_string();
        let (code, answer) = client.send("POST", "/storage/v1/b?project=berth", "application/json", &body).await?;
        ensure!(code == 200, "creating bucket {bucket}: {answer}");
        Ok(Self { endpoint: format!("http://{address}"), bucket: bucket.to_owned(), client, _process: process })
    }

    /// A client of the server.
    #[must_use]
    pub fn client(&self) -> GcsClient {
        self.client.clone()
    }
}

/// A client of the server by the JSON API; Berth's library uses the XML API.
#[derive(Clone, Debug)]
pub struct GcsClient {
    address: String,
}

impl GcsClient {
    /// Creates an object with the text `text` at the URI `uri`, of the form `gs://bucket/path`.
    ///
    /// # Errors
    /// Fails if the server refuses the object.
    pub async fn put(&self, uri: &str, text: &str) -> Result<()> {
        let (bucket, name) = parts(uri)?;
        let path = format!("/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}");
        let (code, answer) = self.send("POST", &path, "application/octet-stream", text).await?;
        ensure!(code == 200, "POST {uri}: {answer}");
        Ok(())
    }

    /// True if the server has an object at the URI `uri`.
    ///
    /// # Errors
    /// Fails when the server does not say whether the object exists.
    pub async fn has(&self, uri: &str) -> Result<bool> {
        let (bucket, name) = parts(uri)?;
        match self.send("GET", &format!("/storage/v1/b/{bucket}/o/{name}"), "text/plain", "").await? {
            (200, _) => Ok(true),
            (404, _) => Ok(false),
            (_, answer) => bail!("GET {uri}: {answer}"),
        }
    }

    async fn send(&self, method: &str, path: &str, content_type: &str, body: &str) -> Result<(u16, String)> {
        let lines = [
            format!("{method} {path} HTTP/1.1"),
            format!("Host: {}", self.address),
            format!("Content-Type: {content_type}"),
            format!("Content-Length: {}", body.len()),
            "Connection: close".to_owned(),
        ];
        let request = format!("{}\r\n\r\n{body}", lines.join("\r\n"));
        exchange(&self.address, &format!("{method} {path}"), &request).await
    }
}

/// Bucket and name in a URI of Google Cloud Storage; slashes of the name are escaped.
fn parts(uri: &str) -> Result<(&str, String)> {
    let parts = uri.strip_prefix("gs://").and_then(|rest| rest.split_once('/'));
    let (bucket, name) = parts.with_context(|| format!("{uri} is no URI of Google Cloud Storage"))?;
    Ok((bucket, name.replace('/', "%2F")))
}
