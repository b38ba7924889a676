//! Programs of other projects that tests run; each program is built if the cache does not have it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use berth_testrun::folders;
use berth_testrun::programs::{self, GoModule};

pub use berth_testrun::folders::repository;

/// Paths of the programs of a control plane.
#[derive(Clone, Debug)]
pub struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    /// Path of etcd, whose Go package is called `server`.
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
    /// Path of kwok, which simulates the nodes and the kubelets.
    pub fn kwok(&self) -> PathBuf {
        self.folder.join("kwok")
    }
    /// The folder that holds all five programs of the control plane.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// The user's cache folder for Berth, in which tests keep the programs of other projects that they have built.
///
/// # Errors
/// Fails if the environment names no cache folder.
pub fn cache_folder() -> Result<PathBuf> {
    folders::cache()
}

fn program(module: &GoModule, name: &str) -> Result<PathBuf> {
    Ok(module.ensure().with_context(|| format!("building {}", module.what))?.join(name))
}

/// The control plane's programs, which are built first if the cache does not have them.
///
/// # Errors
/// Fails if Go is missing, the build fails, or the cache cannot be written.
pub fn ensure() -> Result<Binaries> {
    Ok(Binaries { folder: programs::CONTROL_PLANE.ensure()? })
}

/// Path of the controller of JobSets.
///
/// # Errors
/// Fails as [`ensure`] does.
pub fn jobset() -> Result<PathBuf> {
    program(&programs::JOBSET, "jobset")
}

/// Path of the server that implements Google Cloud Storage.
///
/// # Errors
/// Fails as [`ensure`] does.
pub fn gcs() -> Result<PathBuf> {
    program(&programs::GCS, "fake-gcs-server")
}

/// Path of crane, a client of container registries.
///
/// # Errors
/// Fails as [`ensure`] does.
pub fn crane() -> Result<PathBuf> {
    program(&programs::CRANE, "crane")
}

/// Helm 4.
///
/// # Errors
/// Fails as [`ensure`] does.
pub fn helm() -> Result<PathBuf> {
    program(&programs::HELM, "helm")
}

/// Helm 3.
///
/// # Errors
/// Fails as [`ensure`] does.
pub fn helm3() -> Result<PathBuf> {
    program(&programs::HELM_3, "helm")
}

/// The folder with prometheus and promtool.
///
/// # Errors
/// Fails as [`ensure`] does.
pub fn prometheus() -> Result<PathBuf> {
    programs::PROMETHEUS.ensure()
}

/// The folder with the programs `kueue` and `minimalkueue` of the real Kueue.
///
/// # Errors
/// Fails as [`ensure`] does.
pub fn kueue() -> Result<PathBuf> {
    programs::KUEUE.ensure().context("building the real Kueue")
}

/// The folder of Kueue's Go module, which has Kueue's CRDs, webhooks and chart.
///
/// # Errors
/// Fails if Go is missing or the Go module cannot be downloaded.
pub fn kueue_module() -> Result<PathBuf> {
    module_folder("kueue", "sigs.k8s.io/kueue")
}

/// The folder of the JobSet controller's Go module, which has the CRD of JobSets.
///
/// # Errors
/// Fails if Go is missing or the Go module cannot be downloaded.
pub fn jobset_module() -> Result<PathBuf> {
    module_folder("jobset", "sigs.k8s.io/jobset")
}

/// The folder of the Prometheus operator's Go module, which has the CRDs of that operator.
///
/// # Errors
/// Fails as [`jobset_module`] does.
pub fn prometheus_operator_module() -> Result<PathBuf> {
    module_folder("prometheus-operator", "github.com/prometheus-operator/prometheus-operator")
}

/// The folder of a Go module that is required by the `go.mod` in the folder `folder` of `e2e`.
///
/// # Errors
/// Fails as [`jobset_module`] does.
pub fn module_folder(folder: &str, module: &str) -> Result<PathBuf> {
    programs::module_folder(folder, module)
}
