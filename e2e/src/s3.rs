//! An S3 server on loopback, with its objects as files in a folder: what pods would have uploaded is put there as files.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The key that the server lets in.
pub const ACCESS_KEY: &str = "berth-test";
/// Its secret.
pub const SECRET_KEY: &str = "not-so-secret";

/// A server; it ends when it is dropped, and its objects go.
#[derive(Debug)]
pub struct S3 {
    /// Where it is.
    pub endpoint: String,
    /// Its only bucket.
    pub bucket: String,
    folder: PathBuf,
    task: JoinHandle<()>,
}

impl S3 {
    /// Starts one with a bucket.
    ///
    /// # Errors
    /// When the folder cannot be made or the server cannot listen.
    pub async fn start(bucket: &str) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("berth-s3-{bucket}-{}", std::process::id()));
        fs::create_dir_all(folder.join(bucket)).with_context(|| format!("making {}", folder.display()))?;
        let files = FileSystem::new(&folder).map_err(|error| anyhow!("{error:?}"))?;
        let mut builder = S3ServiceBuilder::new(files);
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let service = builder.build();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let connection = http1::Builder::new().serve_connection(TokioIo::new(socket), service.clone());
                tokio::spawn(async move {
                    // A client that goes is no trouble of the server's.
                    let _ = connection.await;
                });
            }
        });
        Ok(Self { endpoint, bucket: bucket.to_owned(), folder, task })
    }

    /// Puts an object, as a pod would.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn put(&self, path: &str, text: &str) -> Result<()> {
        let path = self.folder.join(&self.bucket).join(path);
        let parent = path.parent().context("a path has a parent")?;
        fs::create_dir_all(parent)?;
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// Whether there is such an object.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        self.folder.join(&self.bucket).join(path).is_file()
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.task.abort();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
