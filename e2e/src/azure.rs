//! The server Azurite, which implements the protocol of Azure Blob Storage, on loopback with its blobs in memory; and a client for it, whose requests
//! are signed with the account's key. Azurite comes from npm and takes 190 MB, so only `make night` runs it (`BERTH_AZURE=1`), and only on a machine
//! that has npm.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use crate::binaries::{cache_folder, repository};
use crate::bucket::exchange;
use crate::process::{Guarded, Launch, free_ports};
use crate::s3::hmac;
use crate::wait::{self, STEP, Seen};

/// The storage account.
pub const ACCOUNT: &str = "berthtest";
/// Key of Azurite's storage account, as bytes.
const KEY: &[u8] = b"not-so-secret-key-of-a-test";
/// Version of the protocol of Azure Blob Storage.
const VERSION: &str = "2023-11-03";
/// Path of Azurite's program in the folder of its npm packages.
const PROGRAM: &str = "node_modules/azurite/dist/src/blob/main.js";

/// The key of the storage account in base64, as a Secret has it.
#[must_use]
pub fn account_key() -> String {
    STANDARD.encode(KEY)
}

/// Path of Azurite's program, which is installed first if the cache lacks it. The result is `None`, and a printed line gives the reason, if this run of the
/// tests must not start Azurite.
///
/// # Errors
/// Fails if Azurite's packages cannot be fetched.
pub async fn program() -> Result<Option<PathBuf>> {
    if std::env::var_os("BERTH_AZURE").is_none_or(|wanted| wanted.is_empty()) {
        println!("skipped: checkpoints in Azurite; `make night` (BERTH_AZURE=1) runs them");
        return Ok(None);
    }
    tokio::task::spawn_blocking(installed).await?
}

fn installed() -> Result<Option<PathBuf>> {
    for needed in ["node", "npm"] {
        let found = Command::new(needed).arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            // The line about a skipped test goes to stderr directly, because the output of a test that passes is not shown.
            let _ = writeln!(std::io::stderr(), "skipped: checkpoints in Azurite, because {needed} is missing here");
            return Ok(None);
        }
    }
    let sources = repository().join("e2e/azurite");
    let names = ["package.json", "package-lock.json"];
    let mut hash = Sha256::new();
    for name in names {
        hash.update(fs::read(sources.join(name)).with_context(|| format!("reading {name}"))?);
    }
    let key: String = hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let cache = cache_folder()?;
    fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
    let (folder, lock) = (cache.join(format!("azurite-{key}")), cache.join("azurite.lock"));
    let lock = File::create(lock).context("the lock of Azurite")?;
    lock.lock().context("waiting for the lock of Azurite")?;
    let (program, complete) = (folder.join(PROGRAM), folder.join("complete"));
    if complete.is_file() {
        return Ok(Some(program));
    }
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    for name in names {
        fs::copy(sources.join(name), folder.join(name)).with_context(|| format!("copying {name}"))?;
    }
    eprintln!("azurite: installing it into {}, once, 190 MB", folder.display());
    let output = Command::new("npm")
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(&folder)
        .stdin(Stdio::null())
        .output()
        .context("starting npm")?;
    ensure!(output.status.success(), "npm ci: {}", String::from_utf8_lossy(&output.stderr));
    File::create(complete).context("the mark of a complete installation")?;
    Ok(Some(program))
}

/// A running Azurite server; it ends when the value is dropped.
#[derive(Debug)]
pub struct Azure {
    /// Address of the account.
    pub endpoint: String,
    /// Name of the only container in the storage account.
    pub container: String,
    client: AzureClient,
    _process: Guarded,
}

impl Azure {
    /// Starts the program at the path `program` and creates a container in it; the log of the server goes to `folder`.
    ///
    /// # Errors
    /// Fails if Azurite does not start.
    pub async fn start(program: &Path, folder: &Path, container: &str) -> Result<Self> {
        let [port] = free_ports()?;
        let process = Guarded::start(Launch {
            name: "azurite",
            program: Path::new("node"),
            args: vec![
                program.display().to_string(),
                "--blobHost".to_owned(),
                "127.0.0.1".to_owned(),
                "--blobPort".to_owned(),
                port.to_string(),
                "--inMemoryPersistence".to_owned(),
                "--silent".to_owned(),
                // Azurite must not check the version of the protocol, because client libraries may use a newer version than Azurite supports.
                "--skipApiVersionCheck".to_owned(),
                "--disableTelemetry".to_owned(),
            ],
            env: vec![("AZURITE_ACCOUNTS".to_owned(), format!("{ACCOUNT}:{}", account_key()))],
            folder,
            doomed: None,
            restarts: false,
        })?;
        let address = format!("127.0.0.1:{port}");
        wait::until(STEP, "Azurite is up", || async {
            let up = tokio::net::TcpStream::connect(&address).await.is_ok();
            Ok(Seen::when(up, || process.tail(3)))
        })
        .await?;
        let client = AzureClient { address: address.clone() };
        let (code, answer) = client.send("PUT", &format!("/{container}"), &[("restype", "container")], "").await?;
        ensure!(code == 201, "creating container {container}: {answer}");
        let endpoint = format!("http://{address}/{ACCOUNT}");
        Ok(Self { endpoint, container: container.to_owned(), client, _process: process })
    }

    /// A client of the server, with the storage account's key.
    #[must_use]
    pub fn client(&self) -> AzureClient {
        self.client.clone()
    }
}

/// A client of an Azurite server, with the account's key.
#[derive(Clone, Debug)]
pub struct AzureClient {
    address: String,
}

impl AzureClient {
    /// Creates a blob with the text `text` at a URI `abfss://container@account.dfs.core.windows.net/path`.
    ///
    /// # Errors
    /// Fails if Azurite refuses the blob.
    pub async fn put(&self, uri: &str, text: &str) -> Result<()> {
        let (code, answer) = self.send("PUT", &path(uri)?, &[], text).await?;
        ensure!(code == 201, "PUT {uri}: {answer}");
        Ok(())
    }

    /// True if the server has a blob at the URI `uri`.
    ///
    /// # Errors
    /// Fails when the server does not say whether the object exists.
    pub async fn has(&self, uri: &str) -> Result<bool> {
        match self.send("HEAD", &path(uri)?, &[], "").await? {
            (200, _) => Ok(true),
            (404, _) => Ok(false),
            (_, answer) => bail!("HEAD {uri}: {answer}"),
        }
    }

    async fn send(&self, method: &str, path: &str, query: &[(&str, &str)], body: &str) -> Result<(u16, String)> {
        let now = Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let request = signed(&self.address, (method, path, query, body), &now);
        exchange(&self.address, &format!("{method} {path}"), &request).await
    }
}

/// The path `/container/blob` on the Azurite server for a URI of Azure Blob Storage.
fn path(uri: &str) -> Result<String> {
    let parts = uri.strip_prefix("abfss://").and_then(|rest| rest.split_once('@'));
    let parts = parts.and_then(|(container, rest)| Some((container, rest.split_once('/')?.1)));
    let (container, name) = parts.with_context(|| format!("{uri} is no URI of Azure Blob Storage"))?;
    Ok(format!("/{container}/{name}"))
}

/// A complete request with its signature, as of the time `now`. The request is given by its method, its path below the account, its query in the
/// order of the names, and its body.
fn signed(address: &str, (method, path, query, body): (&str, &str, &[(&str, &str)], &str), now: &str) -> String {
    let headers = [("x-ms-blob-type", "BlockBlob"), ("x-ms-date", now), ("x-ms-version", VERSION)];
    let signed: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let length = if body.is_empty() { String::new() } else { body.len().to_string() };
    let names: String = query.iter().map(|(name, value)| format!("\n{name}:{value}")).collect();
    // The signed text has an empty line for each of the eight standard headers that the request does not have.
    let blank = "\n".repeat(9);
    let text = format!("{method}\n\n\n{length}{blank}{signed}/{ACCOUNT}/{ACCOUNT}{path}{names}");
    let signature = STANDARD.encode(hmac(KEY, &text));
    let pairs: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let query = if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
    let mut lines = vec![format!("{method} /{ACCOUNT}{path}{query} HTTP/1.1"), format!("Host: {address}")];
    lines.extend(headers.iter().map(|(name, value)| format!("{name}: {value}")));
    lines.push(format!("Authorization: SharedKey {ACCOUNT}:{signature}"));
    lines.push(format!("Content-Length: {}", body.len()));
    lines.push("Connection: close".to_owned());
    format!("{}\r\n\r\n{body}", lines.join("\r\n"))
}
