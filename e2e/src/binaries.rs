//! Programs of other projects that tests run: each is built when the cache does not have it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use berth_testrun::folders;
use berth_testrun::programs::{self, GoModule};

pub use berth_testrun::folders::repository;

/// Paths of the control plane's programs.
#[derive(Clone, Debug)]
pub struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    /// etcd; its Go package is called `server`.
    pub fn etcd(&self) -> PathBuf {
        self.folder.join("server")
    }
    /// kube-apiserver.
    pub fn api_server(&self) -> PathBuf {
        self.folder.join("kube-apiserver")
    }
    /// kube-controller-manager.
    pub fn controller_manager(&self) -> PathBuf {
        self.folder.join("kube-controller-manager")
    }
    /// kube-scheduler.
    pub fn scheduler(&self) -> PathBuf {
        self.folder.join("kube-scheduler")
    }
    /// kwok, which plays the nodes and the kubelets.
    pub fn kwok(&self) -> PathBuf {
        self.folder.join("kwok")
    }
    /// The folder that holds all five.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// The user's cache folder.
///
/// # Errors
/// When the environment names none.
pub fn cache_folder() -> Result<PathBuf> {
    folders::cache()
}

fn program(module: &GoModule, name: &str) -> Result<PathBuf> {
    Ok(module.ensure().with_context(|| format!("building {}", module.what))?.join(name))
}

/// The control plane's programs, built first when the cache does not have them.
///
/// # Errors
/// When Go is missing, the build fails or the cache cannot be written.
pub fn ensure() -> Result<Binaries> {
    Ok(Binaries { folder: programs::CONTROL_PLANE.ensure()? })
}

/// The controller of JobSets.
///
/// # Errors
/// As [`ensure`].
pub fn jobset() -> Result<PathBuf> {
    program(&programs::JOBSET, "jobset")
}

/// The server of Google Cloud Storage.
///
/// # Errors
/// As [`ensure`].
pub fn gcs() -> Result<PathBuf> {
    program(&programs::GCS, "fake-gcs-server")
}

/// Program crane, a client of container registries.
///
/// # Errors
/// As [`ensure`].
pub fn crane() -> Result<PathBuf> {
    program(&programs::CRANE, "crane")
}

/// Helm 4.
///
/// # Errors
/// As [`ensure`].
pub fn helm() -> Result<PathBuf> {
    program(&programs::HELM, "helm")
}

/// Helm 3.
///
/// # Errors
/// As [`ensure`].
pub fn helm3() -> Result<PathBuf> {
    program(&programs::HELM_3, "helm")
}

/// The folder with prometheus and promtool.
///
/// # Errors
/// As [`ensure`].
pub fn prometheus() -> Result<PathBuf> {
    programs::PROMETHEUS.ensure()
}

/// The folder with the programs of the real Kueue, `kueue` and `minimalkueue`.
///
/// # Errors
/// As [`ensure`].
pub fn kueue() -> Result<PathBuf> {
    programs::KUEUE.ensure().context("building the real Kueue")
}

/// The folder of Kueue's module, which has its CRDs, its webhooks and its chart.
///
/// # Errors
/// When Go is missing or the module cannot be had.
pub fn kueue_module() -> Result<PathBuf> {
    module_folder("kueue", "sigs.k8s.io/kueue")
}

/// The folder of the JobSet controller's module, which has the CRD.
///
/// # Errors
/// When Go is missing or the module cannot be had.
pub fn jobset_module() -> Result<PathBuf> {
    module_folder("jobset", "sigs.k8s.io/jobset")
}

/// The folder of the Prometheus operator's module, which has its CRDs.
///
/// # Errors
/// As [`jobset_module`].
pub fn prometheus_operator_module() -> Result<PathBuf> {
    module_folder("prometheus-operator", "github.com/prometheus-operator/prometheus-operator")
}

/// The folder of a module that the `go.mod` in a folder of `e2e` requires.
///
/// # Errors
/// As [`jobset_module`].
pub fn module_folder(folder: &str, module: &str) -> Result<PathBuf> {
    programs::module_folder(folder, module)
}
