//! The real Helm, with folders and a kubeconfig of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::binaries::{self, repository};
use crate::control_plane::ControlPlane;
use crate::kinds;

/// Namespace that releases are installed into.
pub const NAMESPACE: &str = crate::manager::NAMESPACE;

/// Version of the cluster that is rendered for: a Helm that was not released knows none.
pub const KUBERNETES: &str = "--kube-version=1.36.3";

/// One Helm.
#[derive(Clone, Debug)]
pub struct Helm {
    program: PathBuf,
    kubeconfig: Option<PathBuf>,
    folder: PathBuf,
}

/// Result of a command.
#[derive(Clone, Debug)]
pub struct Said {
    /// True when it succeeded.
    pub ok: bool,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// The chart.
pub fn chart() -> PathBuf {
    repository().join("charts/berth")
}

impl Helm {
    /// Helm 4, or Helm 3 where `BERTH_HELM=3` says so (`make night`), for a control plane or for rendering alone.
    ///
    /// # Errors
    /// If Helm cannot be built.
    pub async fn new(plane: Option<&ControlPlane>) -> Result<Helm> {
        let third = std::env::var("BERTH_HELM").is_ok_and(|version| version == "3");
        let program =
            tokio::task::spawn_blocking(move || if third { binaries::helm3() } else { binaries::helm() }).await??;
        let folder = match plane {
            Some(plane) => plane.folder().join("helm"),
            None => std::env::temp_dir().join(format!("berth-e2e-helm-{}", std::process::id())),
        };
        Ok(Helm { program, kubeconfig: plane.map(|plane| plane.kubeconfig().to_path_buf()), folder })
    }

    /// Whether it is Helm 3, which applies from the client's side and deletes what a release no longer owns.
    pub fn is_3(&self) -> bool {
        self.program.parent().is_some_and(|folder| folder.display().to_string().contains("helm3"))
    }

    /// Runs a command; a failure of it is a result, too.
    ///
    /// # Errors
    /// If Helm does not start.
    pub async fn run(&self, args: &[&str]) -> Result<Said> {
        let mut command = Command::new(&self.program);
        command.args(args).current_dir(repository()).stdin(Stdio::null());
        for (name, place) in [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")]
        {
            command.env(name, self.folder.join(place));
        }
        match &self.kubeconfig {
            Some(path) => command.env("KUBECONFIG", path),
            None => command.env_remove("KUBECONFIG"),
        };
        let output = tokio::task::spawn_blocking(move || command.output()).await?.context("starting helm")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Said { ok: output.status.success(), out: text(&output.stdout), err: text(&output.stderr) })
    }

    /// Runs a command that must succeed; its output.
    ///
    /// # Errors
    /// If the command fails; the message has its output.
    pub async fn ok(&self, args: &[&str]) -> Result<String> {
        let said = self.run(args).await?;
        ensure!(said.ok, "helm {} failed:\n{}{}", args.join(" "), said.err, said.out);
        Ok(said.out)
    }

    /// The objects that the chart renders with a file of values.
    ///
    /// # Errors
    /// As [`Helm::ok`].
    pub async fn render(&self, values: &Path) -> Result<Vec<Value>> {
        kinds::parse(&self.render_text(values).await?)
    }

    /// As [`Helm::render`], as the text that Helm writes.
    ///
    /// # Errors
    /// As [`Helm::ok`].
    pub async fn render_text(&self, values: &Path) -> Result<String> {
        let (chart, values) = (chart().display().to_string(), values.display().to_string());
        self.ok(&["template", "berth", &chart, "--namespace", NAMESPACE, KUBERNETES, "--values", &values]).await
    }
}
