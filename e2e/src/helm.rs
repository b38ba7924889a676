//! The real Helm, with its own folders and kubeconfig.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::binaries::{self, repository};
use crate::control_plane::ControlPlane;
use crate::kinds;

/// Namespace into which the tests install Helm releases.
pub const NAMESPACE: &str = crate::manager::NAMESPACE;

/// Option with the version of the cluster for which Helm renders: a Helm that was built from sources has no default version.
pub const KUBERNETES: &str = "--kube-version=1.36.3";

/// The program Helm with its own folder, for a control plane or for rendering alone.
#[derive(Clone, Debug)]
pub struct Helm {
    program: PathBuf,
    kubeconfig: Option<PathBuf>,
    folder: PathBuf,
}

/// Result of a Helm command.
#[derive(Clone, Debug)]
pub struct HelmOutput {
    /// True if the Helm command succeeded.
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
    /// Helm 4, or Helm 3 if `BERTH_HELM=3` is set (in `make night`), for a control plane or for rendering alone.
    ///
    /// # Errors
    /// Fails if Helm cannot be built.
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

    /// Whether this Helm is Helm 3, which applies objects client-side and deletes objects that a release no longer contains.
    pub fn is_3(&self) -> bool {
        self.program.parent().is_some_and(|folder| folder.display().to_string().contains("helm3"))
    }

    /// Runs a Helm command; a failure of the command is a result, and no error.
    ///
    /// # Errors
    /// Fails if Helm does not start.
    pub async fn run(&self, args: &[&str]) -> Result<HelmOutput> {
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
        Ok(HelmOutput { ok: output.status.success(), out: text(&output.stdout), err: text(&output.stderr) })
    }

    /// Runs a Helm command that must succeed; returns its output.
    ///
    /// # Errors
    /// Fails if the command fails; the message has its output.
    pub async fn ok(&self, args: &[&str]) -> Result<String> {
        let message = self.run(args).await?;
        ensure!(message.ok, "helm {} failed:\n{}{}", args.join(" "), message.err, message.out);
        Ok(message.out)
    }

    /// The objects that the chart renders with the file of values `values`.
    ///
    /// # Errors
    /// Fails as [`Helm::ok`] does.
    pub async fn render(&self, values: &Path) -> Result<Vec<Value>> {
        kinds::parse(&self.render_text(values).await?)
    }

    /// The text that Helm writes when it renders the chart with the file of values `values`.
    ///
    /// # Errors
    /// Fails as [`Helm::ok`] does.
    pub async fn render_text(&self, values: &Path) -> Result<String> {
        let (chart, values) = (chart().display().to_string(), values.display().to_string());
        self.ok(&["template", "berth", &chart, "--namespace", NAMESPACE, KUBERNETES, "--values", &values]).await
    }
}
