//! An S3 server on loopback, with its objects as files in a folder, and a client for the server. The client sends the uploads of pods in signed
//! requests, and only the server writes into the folder.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail, ensure};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::bucket::exchange;
use crate::process::listener;

/// The access key with which the client signs its requests.
pub const ACCESS_KEY: &str = "berth-test";
/// Secret key of the client.
pub const SECRET_KEY: &str = "not-so-secret";
/// The region for which requests are signed.
const REGION: &str = "us-east-1";
/// Headers that the signature of a request covers.
const SIGNED: &str = "host;x-amz-content-sha256;x-amz-date";

/// A running S3 server; when the value is dropped, the server ends and its objects are removed.
#[derive(Debug)]
pub struct S3 {
    /// Address of the store.
    pub endpoint: String,
    /// Name of the only bucket on the server.
    pub bucket: String,
    client: S3Client,
    folder: PathBuf,
    task: JoinHandle<()>,
}

impl S3 {
    /// Starts a server with the bucket `bucket`.
    ///
    /// # Errors
    /// Fails if the server's folder cannot be made or the server cannot listen.
    pub async fn start(bucket: &str) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("berth-s3-{bucket}-{}", std::process::id()));
        // A killed run of the tests may have left a folder of this name, because a later run may get the same process id.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join(bucket)).with_context(|| format!("making {}", folder.display()))?;
        let files = FileSystem::new(&folder).map_err(|error| anyhow!("{error:?}"))?;
        let mut builder = S3ServiceBuilder::new(files);
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let service = builder.build();
        let listener = listener()?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?.to_string();
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let connection = http1::Builder::new().serve_connection(TokioIo::new(socket), service.clone());
                tokio::spawn(async move {
                    // A client that closes its connection is no failure of the server.
                    let _ = connection.await;
                });
            }
        });
        let endpoint = format!("http://{address}");
        Ok(Self { endpoint, bucket: bucket.to_owned(), client: S3Client { address }, folder, task })
    }

    /// A client of the server, with the access key.
    #[must_use]
    pub fn client(&self) -> S3Client {
        self.client.clone()
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.task.abort();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A client of the S3 server. A path may have only letters, digits and `-._~/`, which need no escaping.
#[derive(Clone, Debug)]
pub struct S3Client {
    address: String,
}

impl S3Client {
    /// Creates an object with the text `text` at the URI `uri`, of the form `s3://bucket/path`.
    ///
    /// # Errors
    /// Fails if the server refuses the object.
    pub async fn put(&self, uri: &str, text: &str) -> Result<()> {
        let (code, answer) = self.send("PUT", uri, text).await?;
        ensure!(code == 200, "PUT {uri}: {answer}");
        Ok(())
    }

    /// True if the server has an object at the URI `uri`.
    ///
    /// # Errors
    /// Fails when the server does not say whether the object exists.
    pub async fn has(&self, uri: &str) -> Result<bool> {
        match self.send("HEAD", uri, "").await? {
            (200, _) => Ok(true),
            (404, _) => Ok(false),
            (_, answer) => bail!("HEAD {uri}: {answer}"),
        }
    }

    /// Sends a request; returns the status code and the text of the answer.
    async fn send(&self, method: &str, uri: &str, body: &str) -> Result<(u16, String)> {
        let path = uri.strip_prefix("s3:/").with_context(|| format!("{uri} is no URI of S3"))?;
        let now = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let request = signed(&self.address, (method, path, body), &now);
        exchange(&self.address, &format!("{method} {uri}"), &request).await
    }
}

/// A complete request (method, path, body) with its signature (version 4) as of the time `now`.
fn signed(address: &str, (method, path, body): (&str, &str, &str), now: &str) -> String {
    let day = now.split_once('T').map_or(now, |(day, _)| day);
    let digest = hex(&Sha256::digest(body));
    let headers = format!("host:{address}\nx-amz-content-sha256:{digest}\nx-amz-date:{now}\n");
    let canonical = format!("{method}\n{path}\n\n{headers}\n{SIGNED}\n{digest}");
    let scope = format!("{day}/{REGION}/s3/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{now}\n{scope}\n{}", hex(&Sha256::digest(&canonical)));
    let mut key = hmac(format!("AWS4{SECRET_KEY}").as_bytes(), day);
    for part in [REGION, "s3", "aws4_request"] {
        key = hmac(&key, part);
    }
    let signature = hex(&hmac(&key, &text));
    let lines = [
        format!("{method} {path} HTTP/1.1"),
        format!("Host: {address}"),
        format!("x-amz-content-sha256: {digest}"),
        format!("x-amz-date: {now}"),
        format!(
            "Authorization: AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, SignedHeaders={SIGNED}, Signature={signature}"
        ),
        format!("Content-Length: {}", body.len()),
        "Connection: close".to_owned(),
    ];
    format!("{}\r\n\r\n{body}", lines.join("\r\n"))
}

/// HMAC-SHA256 with a key of at most 64 bytes, a limit that all keys of these tests meet.
pub(crate) fn hmac(key: &[u8], text: &str) -> [u8; 32] {
    let mut block = [0_u8; 64];
    for (to, from) in block.iter_mut().zip(key) {
        *to = *from;
    }
    let padded = |with: u8| block.map(|byte| byte ^ with);
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test case 2 of RFC 4231.
    #[test]
    fn hmac_sha256_equals_the_rfc_4231_code() {
        let code = hex(&hmac(b"Jefe", "what do ya want for nothing?"));
        assert_eq!(code, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[tokio::test]
    async fn s3_store_holds_what_is_put_and_refuses_forged_signatures() -> Result<()> {
        let s3 = S3::start("unit").await?;
        s3.client.put("s3://unit/a/b/c.json", "{}").await?;
        assert!(s3.client.has("s3://unit/a/b/c.json").await? && !s3.client.has("s3://unit/a/b/d.json").await?);
        // A signature is valid for one request only: the forged request reuses the signature for another path.
        let now = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let forged = signed(&s3.client.address, ("PUT", "/unit/mine", "x"), &now).replace("/unit/mine", "/unit/yours");
        let (code, answer) = exchange(&s3.client.address, "a forged PUT", &forged).await?;
        assert_eq!(code, 403, "{answer}");
        assert!(!s3.client.has("s3://unit/yours").await?);
        Ok(())
    }
}
