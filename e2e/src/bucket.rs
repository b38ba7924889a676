//! Buckets of three protocols (S3, Google Cloud Storage and Azure) and a folder, under one interface: a server on loopback, and a client that writes
//! to the server as pods would.
//!
//! The client's requests never go through the libraries that Berth uses, so that the tests do not depend on these libraries.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::azure::{Azure, AzureClient};
use crate::folder::{Folder, FolderClient};
use crate::gcs::{Gcs, GcsClient};
use crate::s3::{ACCESS_KEY, S3, S3Client, SECRET_KEY};

/// Time limit for one request to the server of a bucket.
const LIMIT: Duration = Duration::from_secs(20);

/// A store for checkpoints: a server with one bucket, which ends when the value is dropped, or a folder.
pub enum Bucket {
    /// A server with the API of S3.
    S3(S3),
    /// A server with the API of Google Cloud Storage.
    Gcs(Gcs),
    /// A server with the API of Azure Blob Storage.
    Azure(Azure),
    /// A folder.
    Folder(Folder),
}

impl Bucket {
    /// The part of a CheckpointStore's spec that names the bucket.
    #[must_use]
    pub fn spec(&self) -> Value {
        match self {
            Self::S3(s3) => json!({"s3": {"bucket": s3.bucket, "endpoint": s3.endpoint}}),
            Self::Gcs(gcs) => json!({"gcs": {"bucket": gcs.bucket, "endpoint": gcs.endpoint}}),
            Self::Azure(azure) => json!({"azure": {"account": crate::azure::ACCOUNT, "container": azure.container,
                "endpoint": azure.endpoint}}),
            Self::Folder(folder) => json!({"fileSystem": {"path": folder.path}}),
        }
    }

    /// URI of the bucket, as pods get it in their environment.
    #[must_use]
    pub fn uri(&self) -> String {
        match self {
            Self::S3(s3) => format!("s3://{}", s3.bucket),
            Self::Gcs(gcs) => format!("gs://{}", gcs.bucket),
            Self::Azure(azure) => {
                format!("abfss://{}@{}.dfs.core.windows.net", azure.container, crate::azure::ACCOUNT)
            }
            Self::Folder(folder) => format!("file://{}", folder.path),
        }
    }

    /// A client of the bucket, with credentials of the server.
    #[must_use]
    pub fn client(&self) -> BucketClient {
        match self {
            Self::S3(s3) => BucketClient::S3(s3.client()),
            Self::Gcs(gcs) => BucketClient::Gcs(gcs.client()),
            Self::Azure(azure) => BucketClient::Azure(azure.client()),
            Self::Folder(folder) => BucketClient::Folder(folder.client()),
        }
    }
}

/// Content of a Secret with Berth's credentials for the servers of all three protocols.
#[must_use]
pub fn credentials() -> Value {
    json!({
        "accessKeyId": ACCESS_KEY,
        "secretAccessKey": SECRET_KEY,
        "serviceAccountKey": crate::gcs::service_account(),
        "accountKey": crate::azure::account_key(),
    })
}

/// A client of a bucket or folder. A path may contain only letters, digits and `-._~/`.
#[derive(Clone, Debug)]
pub enum BucketClient {
    /// For S3.
    S3(S3Client),
    /// For Google Cloud Storage.
    Gcs(GcsClient),
    /// For Azure Blob Storage.
    Azure(AzureClient),
    /// For a folder.
    Folder(FolderClient),
}

impl From<&S3> for BucketClient {
    fn from(s3: &S3) -> Self {
        Self::S3(s3.client())
    }
}

impl From<&Bucket> for BucketClient {
    fn from(bucket: &Bucket) -> Self {
        bucket.client()
    }
}

impl BucketClient {
    /// Creates an object with the text `text` at the URI `uri`, which has the form that pods know.
    ///
    /// # Errors
    /// Fails if the server refuses the object.
    pub async fn put(&self, uri: &str, text: &str) -> Result<()> {
        match self {
            Self::S3(client) => client.put(uri, text).await,
            Self::Gcs(client) => client.put(uri, text).await,
            Self::Azure(client) => client.put(uri, text).await,
            Self::Folder(client) => client.put(uri, text),
        }
    }

    /// True if the bucket has an object at the URI `uri`.
    ///
    /// # Errors
    /// Fails when the server does not say whether the object exists.
    pub async fn has(&self, uri: &str) -> Result<bool> {
        match self {
            Self::S3(client) => client.has(uri).await,
            Self::Gcs(client) => client.has(uri).await,
            Self::Azure(client) => client.has(uri).await,
            Self::Folder(client) => client.has(uri),
        }
    }
}

/// Sends a complete request, which ends its connection; returns the status code and the text of the answer. The parameter `what` names the request in
/// error messages.
pub(crate) async fn exchange(address: &str, what: &str, request: &str) -> Result<(u16, String)> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await?;
        anyhow::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let answer = tokio::time::timeout(LIMIT, exchange).await.with_context(|| what.to_owned())??;
    let code = answer.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    Ok((code.with_context(|| format!("{what}: no HTTP status in {answer:?}"))?, answer))
}
