//! The real Kueue: its manager and its minimalkueue, with the CRDs, the webhooks and the chart of the same sources. Tests build and run the real
//! Kueue only if the environment asks for it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::binaries::{self, repository};
use crate::control_plane::ControlPlane;
use crate::manifest::merge;
use crate::own_folder::OwnFolder;
use crate::process::{Guarded, Launch, free_ports};

/// The environment variable that enables tests with the real Kueue.
const ASKED: &str = "KUEUE";
/// Namespace of Kueue's release.
pub const NAMESPACE: &str = "kueue-system";
/// The folder in which Kueue looks for the certificate of its metrics endpoint; no flag and no field of its configuration changes the folder.
const METRICS_CERTIFICATES: &str = "/etc/kueue/metrics/certs";

/// The message of a test that is skipped because the real Kueue is not asked for.
pub const SKIPPED: &str = "skipped: the real Kueue; `make night PART=kueue` builds it from its Go module (KUEUE=1, or KUEUE=folder of a checkout)";

/// Programs and sources of one version of the real Kueue.
#[derive(Clone, Debug)]
pub struct Kueue {
    sources: PathBuf,
    manager: PathBuf,
    minimal: PathBuf,
}

/// The parameters with which Kueue's manager is started.
#[derive(Debug)]
pub struct Start<'a> {
    /// Name of Kueue's process and of its log.
    pub name: &'static str,
    /// Configuration of the manager, without addresses and certificates.
    pub config: Value,
    /// The kubeconfig by which the manager reaches the API server.
    pub kubeconfig: &'a Path,
    /// Port of its webhooks.
    pub webhooks: u16,
    /// Port of its health.
    pub health: u16,
}

impl Kueue {
    /// The Kueue that the environment variable `KUEUE` asks for. With the value 1, Kueue is built in the version that `e2e/kueue/go.mod` requires, if
    /// the cache does not have it; any other value is the path of a checkout with built programs. The result is `None` if the environment variable
    /// `KUEUE` is not set.
    ///
    /// # Errors
    /// Fails if Kueue cannot be built, or if the folder of the checkout does not exist.
    pub fn asked() -> Result<Option<Kueue>> {
        let asked = std::env::var_os(ASKED).filter(|asked| !asked.is_empty());
        asked.map(|asked| if asked == "1" { Self::of_the_module() } else { Self::of_a_checkout(&asked) }).transpose()
    }

    fn of_the_module() -> Result<Kueue> {
        let programs = binaries::kueue()?;
        let [manager, minimal] = ["kueue", "minimalkueue"].map(|name| programs.join(name));
        Ok(Kueue { sources: binaries::kueue_module()?, manager, minimal })
    }

    fn of_a_checkout(folder: &OsStr) -> Result<Kueue> {
        let sources = fs::canonicalize(folder);
        let sources = sources.with_context(|| format!("{ASKED}={} is neither 1 nor a folder", folder.display()))?;
        let [manager, minimal] = ["manager", "minimalkueue"].map(|name| sources.join("bin").join(name));
        Ok(Kueue { sources, manager, minimal })
    }

    /// The folder of Kueue's sources.
    pub fn sources(&self) -> &Path {
        &self.sources
    }

    /// Path of Kueue's manager.
    ///
    /// # Errors
    /// Fails if Kueue's manager is not built.
    pub fn manager(&self) -> Result<&Path> {
        ensure!(
            self.manager.is_file(),
            "there is no {}: `go build -o bin/manager ./cmd/kueue` there",
            self.manager.display()
        );
        Ok(&self.manager)
    }

    /// Path of the program minimalkueue, which Kueue's own benchmarks run: scheduler and core controllers, without jobs and webhooks.
    ///
    /// # Errors
    /// Fails if minimalkueue is not built.
    pub fn minimal(&self) -> Result<&Path> {
        let build = "`go build -o bin/minimalkueue ./test/performance/scheduler/minimalkueue` there";
        ensure!(self.minimal.is_file(), "there is no {}: {build}", self.minimal.display());
        Ok(&self.minimal)
    }

    /// A folder with Kueue's own CRDs and Berth's CRDs of the group berth.dev, none of which has a conversion webhook.
    ///
    /// # Errors
    /// Fails if the CRDs cannot be copied.
    pub fn definitions(&self) -> Result<OwnFolder> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("berth-kueue-crds-{}-{serial}", std::process::id()));
        // A killed test run may have left a folder of this name, because a later process may get the same process id.
        let _ = fs::remove_dir_all(&path);
        let folder = OwnFolder::make(path)?;
        for from in [self.sources.join("config/components/crd/bases"), repository().join("crds")] {
            for entry in fs::read_dir(&from).with_context(|| format!("reading {}", from.display()))? {
                let path = entry?.path();
                let name = path.file_name().and_then(|name| name.to_str()).context("a name")?;
                if name.ends_with(".berth.dev.yaml") || name.starts_with("kueue.x-k8s.io_") {
                    // Files of a Go module are read-only, and a copy that keeps the mode would be read-only, too.
                    fs::write(folder.path().join(name), fs::read(&path)?)?;
                }
            }
        }
        Ok(folder)
    }

    /// Starts Kueue's manager on a control plane; the manager leads or follows.
    ///
    /// # Errors
    /// Fails if Kueue's manager cannot be started, or the certificate of its metrics cannot be read.
    pub fn start(&self, plane: &ControlPlane, start: Start<'_>) -> Result<Guarded> {
        let Start { name, mut config, kubeconfig, webhooks, health } = start;
        let folder = plane.folder().join("kueue");
        fs::create_dir_all(&folder)?;
        plane.serving_certificate_into(&folder)?;
        certificate_of_metrics(&folder, Path::new(METRICS_CERTIFICATES))?;
        let [metrics] = free_ports()?;
        let here = json!({
            "namespace": NAMESPACE,
            "webhook": {"host": "127.0.0.1", "port": webhooks, "certDir": folder.display().to_string()},
            "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")},
            "metrics": {"bindAddress": format!("127.0.0.1:{metrics}")},
            "leaderElection": {"resourceNamespace": NAMESPACE},
        });
        merge(&mut config, &here);
        config["internalCertManagement"] = json!({"enable": false});
        let path = folder.join(format!("{name}.yaml"));
        fs::write(&path, config.to_string())?;
        Guarded::start(Launch {
            name,
            program: self.manager()?,
            args: vec![
                format!("--kubeconfig={}", kubeconfig.display()),
                format!("--config={}", path.display()),
                // Kueue's visibility server is switched off, because it would listen on every address of the machine.
                "--feature-gates=VisibilityOnDemand=false".to_owned(),
            ],
            env: Vec::new(),
            folder: plane.folder(),
            doomed: None,
            restarts: false,
        })
    }
}

/// Copies a certificate to the folder in which Kueue looks for the certificate of its metrics endpoint, unless the folder has one. Readers of the
/// metrics do not check the certificate in these tests.
fn certificate_of_metrics(from: &Path, to: &Path) -> Result<()> {
    const FILES: [&str; 2] = ["tls.key", "tls.crt"];
    if FILES.iter().all(|file| to.join(file).exists()) {
        return Ok(());
    }
    let copy = || -> io::Result<()> {
        fs::create_dir_all(to)?;
        FILES.iter().try_for_each(|file| fs::copy(from.join(file), to.join(file)).map(drop))
    };
    copy().with_context(|| {
        format!("Kueue reads a certificate and its key from {}: put any tls.crt and tls.key there", to.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kueue_checkout_without_programs_is_refused_with_build_commands() {
        let folder = std::env::temp_dir().join(format!("berth-kueue-checkout-{}", std::process::id()));
        let of = || Kueue::of_a_checkout(folder.as_os_str());
        assert!(format!("{:#}", of().unwrap_err()).contains("is neither 1 nor a folder"));
        fs::create_dir_all(folder.join("bin")).unwrap();
        let kueue = of().unwrap();
        assert!(kueue.manager().unwrap_err().to_string().contains("./cmd/kueue"));
        assert!(kueue.minimal().unwrap_err().to_string().contains("./test/performance/scheduler/minimalkueue"));
        fs::write(folder.join("bin/manager"), "").unwrap();
        assert!(kueue.manager().is_ok() && kueue.minimal().is_err());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn metrics_certificate_is_installed_only_where_none_exists() {
        let folder = std::env::temp_dir().join(format!("berth-kueue-metrics-{}", std::process::id()));
        let (from, to) = (folder.join("from"), folder.join("to"));
        fs::create_dir_all(&from).unwrap();
        assert!(format!("{:#}", certificate_of_metrics(&from, &to).unwrap_err()).contains("put any tls.crt"));
        for (file, text) in [("tls.key", "first key"), ("tls.crt", "first")] {
            fs::write(from.join(file), text).unwrap();
        }
        certificate_of_metrics(&from, &to).unwrap();
        fs::write(from.join("tls.crt"), "second").unwrap();
        certificate_of_metrics(&from, &to).unwrap();
        let read = ["tls.key", "tls.crt"].map(|file| fs::read_to_string(to.join(file)).unwrap());
        assert_eq!(read, ["first key", "first"]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
