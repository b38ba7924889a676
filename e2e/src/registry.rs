//! A registry for images on loopback, with crane as its client.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::binaries;
use crate::http::http_get;
use crate::process::{Guarded, Launch, free_ports};
use crate::wait::{self, STEP, Seen};

/// A running registry for images; the registry ends when the value is dropped.
#[derive(Debug)]
pub struct Registry {
    crane: PathBuf,
    address: String,
    /// The folder that crane uses as docker's configuration folder, so that crane reads no user's credentials.
    settings: PathBuf,
    _process: Guarded,
}

impl Registry {
    /// Starts a registry, whose log and blobs go to `folder`.
    ///
    /// # Errors
    /// Fails if crane cannot be built or the registry does not come up.
    pub async fn start(folder: &Path) -> Result<Self> {
        let crane = tokio::task::spawn_blocking(binaries::crane).await??;
        let (settings, blobs) = (folder.join("docker-settings"), folder.join("registry"));
        for new in [&settings, &blobs] {
            fs::create_dir_all(new).with_context(|| format!("creating {}", new.display()))?;
        }
        let [port] = free_ports()?;
        let address = format!("127.0.0.1:{port}");
        let args = ["registry".to_owned(), "serve".to_owned(), format!("--address={address}")];
        let process = Guarded::start(Launch {
            name: "crane-registry",
            program: &crane,
            args: args.into_iter().chain([format!("--disk={}", blobs.display())]).collect(),
            env: Vec::new(),
            folder,
            doomed: Some(&blobs),
            restarts: false,
        })?;
        wait::until(STEP, "the registry is up", || async {
            let answer = http_get(port, "/v2/").await;
            Ok(Seen::when(matches!(answer, Ok((200, _))), || format!("{answer:?} {}", process.tail(3))))
        })
        .await?;
        Ok(Self { crane, address, settings, _process: process })
    }

    /// The full name of the image `name` in the registry.
    #[must_use]
    pub fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// Runs crane; returns crane's output.
    ///
    /// # Errors
    /// Fails if crane fails; the message has its output.
    pub async fn crane(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.crane);
        command.args(args).env("DOCKER_CONFIG", &self.settings).stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output()).await?.context("starting crane")?;
        let printed = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "crane {} failed ({}):\n{printed}", args.join(" "), output.status);
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}
