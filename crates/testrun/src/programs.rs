//! Programs of other projects that tests run: the control plane, and controllers, servers and tools. Each program of another project is built once with Go from
//! a `go.mod` of this repository, and stored in the cache folder under a digest of its sources. The version of Go is no input of this digest, because programs
//! of different Go versions behave equally.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::folders::{STAMP, cache, repository, touch};

/// Version that the Kubernetes programs report, which must equal the version in `go.mod`.
const KUBERNETES: (&str, &str, &str) = ("v1.36.3", "1", "36");
/// Time between two output lines about a running Go build.
const PROGRESS: Duration = Duration::from_secs(30);

/// Programs of another project that one `go.mod` of this repository names as tools, and that Go builds together.
#[derive(Clone, Copy, Debug)]
pub struct GoModule {
    /// Name of the Go module, and of its folder in `e2e`.
    pub name: &'static str,
    /// Description of the Go module's programs, for messages.
    pub what: &'static str,
    /// Go build tags of the Go module, separated by commas.
    tags: &'static str,
    /// Names of the Go module's programs.
    programs: &'static [&'static str],
}

/// The Go module of the control plane: etcd (whose package is called `server`), kube-apiserver, kube-controller-manager, kube-scheduler and kwok.
pub const CONTROL_PLANE: GoModule = GoModule {
    name: "controlplane",
    what: "etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok",
    tags: "",
    programs: &["server", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"],
};
/// The Go module of the JobSet controller.
pub const JOBSET: GoModule =
    GoModule { name: "jobset", what: "the controller of JobSets", tags: "", programs: &["jobset"] };
/// The Go module of a server that speaks the API of Google Cloud Storage.
pub const GCS: GoModule =
    GoModule { name: "gcs", what: "a server of Google Cloud Storage", tags: "", programs: &["fake-gcs-server"] };
/// The Go module of crane: a client of image registries, and a registry.
pub const CRANE: GoModule =
    GoModule { name: "crane", what: "crane, a client of registries", tags: "", programs: &["crane"] };
/// The module of Helm 4.
pub const HELM: GoModule = GoModule { name: "helm", what: "Helm 4", tags: "", programs: &["helm"] };
/// The module of Helm 3.
pub const HELM_3: GoModule = GoModule { name: "helm3", what: "Helm 3", tags: "", programs: &["helm"] };
/// The Go module of Prometheus and promtool, built without the service discovery of clouds, because the tests use static targets.
pub const PROMETHEUS: GoModule = GoModule {
    name: "prometheus",
    what: "Prometheus and promtool",
    tags: "netgo,remove_all_sd",
    programs: &["prometheus", "promtool"],
};
/// The Go module of the real Kueue: Kueue's manager, and the program of Kueue's own benchmarks.
pub const KUEUE: GoModule = GoModule {
    name: "kueue",
    what: "the manager of the real Kueue, and its minimalkueue",
    tags: "",
    programs: &["kueue", "minimalkueue"],
};

/// All Go modules with programs that tests run.
pub const ALL: [GoModule; 8] = [CONTROL_PLANE, JOBSET, GCS, CRANE, HELM, PROMETHEUS, HELM_3, KUEUE];

/// Go modules of which tests read only the CRDs, and build no program.
pub const CRDS_ONLY: [(&str, &str); 2] =
    [("autoscaler", "k8s.io/autoscaler/cluster-autoscaler/apis"), ("prometheus-operator", PROMETHEUS_OPERATOR)];
/// Go module path of the Prometheus operator.
pub const PROMETHEUS_OPERATOR: &str = "github.com/prometheus-operator/prometheus-operator";

impl GoModule {
    fn sources(&self) -> PathBuf {
        repository().join("e2e").join(self.name)
    }

    fn ldflags(&self) -> String {
        let mut flags = "-s -w".to_owned();
        if self.name == CONTROL_PLANE.name {
            let (version, major, minor) = KUBERNETES;
            for (name, value) in [("gitVersion", version), ("gitMajor", major), ("gitMinor", minor)] {
                let _ = write!(flags, " -X k8s.io/component-base/version.{name}={value}");
            }
        }
        flags
    }

    /// A text with all inputs of the build of the Go module's programs.
    fn content(&self) -> Result<String> {
        let mut content = format!("{}\n{}\n{}\n", self.programs.join(" "), self.tags, self.ldflags());
        for name in ["go.mod", "go.sum"] {
            let path = self.sources().join(name);
            content += &fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        }
        Ok(content)
    }

    /// The cache folder of the Go module's programs; the folder's name ends with a digest of the inputs of the build.
    ///
    /// # Errors
    /// The module or the cache folder cannot be found.
    pub fn folder(&self) -> Result<PathBuf> {
        let mut hasher = DefaultHasher::new();
        self.content()?.hash(&mut hasher);
        Ok(cache()?.join("go").join(format!("{}-{:016x}", self.name, hasher.finish())))
    }

    /// The content of the stamp file of completely built programs: sizes of the programs, and the inputs of the build.
    fn stamp(&self, folder: &Path) -> Option<String> {
        let mut stamp = String::new();
        for program in self.programs {
            let size = fs::metadata(folder.join(program)).ok()?.len();
            let _ = writeln!(stamp, "{program} {size}");
        }
        stamp += &self.content().ok()?;
        Some(stamp)
    }

    /// Whether the cache has complete programs of the Go module that were built from the current inputs. This check of the cache takes milliseconds.
    #[must_use]
    pub fn is_built(&self) -> bool {
        let Some(folder) = self.folder().ok().filter(|folder| self.is_complete(folder)) else { return false };
        touch(&folder);
        true
    }

    fn is_complete(&self, folder: &Path) -> bool {
        let stamp = fs::read_to_string(folder.join(STAMP)).ok();
        stamp.is_some() && stamp == self.stamp(folder)
    }

    /// Fetches the Go modules that the build needs.
    ///
    /// # Errors
    /// Go is not installed, or a module cannot be fetched.
    pub fn fetch(&self) -> Result<()> {
        let status = Command::new("go")
            .args(["list", "-deps", "-tags", self.tags, "tool"])
            .current_dir(self.sources())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .context("starting `go list`; Go 1.26 or later must be on PATH")?;
        ensure!(status.success(), "fetching the modules of {} failed ({status})", self.name);
        Ok(())
    }

    /// The folder with the Go module's programs; if the cache does not have the programs, they are built first.
    ///
    /// Two processes may build the programs of a Go module at once: one process waits for the lock of the other, and a rename makes the built programs visible.
    ///
    /// # Errors
    /// Go is not installed, the build fails, or the cache cannot be written.
    pub fn ensure(&self) -> Result<PathBuf> {
        let folder = self.folder()?;
        if self.is_complete(&folder) {
            touch(&folder);
            return Ok(folder);
        }
        let go = folder.parent().context("the cache folder has no parent")?;
        fs::create_dir_all(go).with_context(|| format!("creating {}", go.display()))?;
        let lock = File::create(go.join(format!("{}.lock", self.name))).context("creating the build lock")?;
        if lock.try_lock().is_err() {
            eprintln!("{}: another process is building it; waiting for its lock", self.name);
            lock.lock().context("waiting for the build lock")?;
        }
        if !self.is_complete(&folder) {
            self.build(go, &folder)?;
        }
        Ok(folder)
    }

    fn build(&self, go: &Path, folder: &Path) -> Result<()> {
        let name = self.name;
        if folder.exists() {
            eprintln!("{name}: {} is incomplete or stale; building it again", folder.display());
        }
        let staging = go.join(format!("building-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&staging);
        fs::create_dir_all(&staging)?;
        eprintln!("{name}: building {}, once; result in {}", self.what, folder.display());
        let log_path = go.join(format!("{name}-build.log"));
        let log = File::create(&log_path)?;
        let mut child = Command::new("go")
            .args(["build", "-trimpath", "-tags", self.tags, "-ldflags", &self.ldflags(), "-o"])
            .arg(format!("{}/", staging.display()))
            .arg("tool")
            .current_dir(self.sources())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting `go build`; Go 1.26 or later must be on PATH")?;
        let begun = Instant::now();
        let mut reported_at = begun;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if reported_at.elapsed() >= PROGRESS {
                reported_at = Instant::now();
                let (done, all) = (fs::read_dir(&staging).map_or(0, Iterator::count), self.programs.len());
                eprintln!("{name}: building, {} s, {done} of {all} programs linked", begun.elapsed().as_secs());
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        if !status.success() {
            let text = fs::read_to_string(&log_path).unwrap_or_default();
            let tail: Vec<&str> = text.lines().rev().take(20).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            let _ = fs::remove_dir_all(&staging);
            bail!("`go build` failed ({status}); {}:\n{}", log_path.display(), tail.join("\n"));
        }
        let stamp = self.stamp(&staging).with_context(|| format!("the build of {name} left no complete set"))?;
        fs::write(staging.join(STAMP), stamp)?;
        let _ = fs::remove_dir_all(folder);
        fs::rename(&staging, folder).with_context(|| format!("moving the programs to {}", folder.display()))?;
        eprintln!("{name}: built in {} s", begun.elapsed().as_secs());
        Ok(())
    }
}

/// The folder of a Go module that the `go.mod` in a folder of `e2e` requires; the module is fetched if it is missing.
///
/// # Errors
/// Go is not installed, or the module cannot be fetched.
pub fn module_folder(folder: &str, module: &str) -> Result<PathBuf> {
    let asked = Command::new("go")
        .args(["mod", "download", "-json", module])
        .current_dir(repository().join("e2e").join(folder))
        .output()
        .context("starting `go mod download`")?;
    let answer: serde_json::Value = serde_json::from_slice(&asked.stdout).context("answer of `go mod download`")?;
    let folder = answer["Dir"].as_str().with_context(|| format!("`go mod download` says {answer}"))?;
    Ok(PathBuf::from(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_program_that_is_incomplete_or_outdated_is_noticed() -> Result<()> {
        let folder = std::env::temp_dir().join(format!("berth-programs-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        assert!(!HELM.is_complete(&folder), "nothing is there");
        fs::write(folder.join("helm"), "program")?;
        assert!(!HELM.is_complete(&folder), "it was not stamped");
        let stamp = HELM.stamp(&folder).context("a stamp")?;
        fs::write(folder.join(STAMP), &stamp)?;
        assert!(HELM.is_complete(&folder));
        fs::write(folder.join("helm"), "prog")?;
        assert!(!HELM.is_complete(&folder), "half of the program is missing");
        fs::write(folder.join("helm"), "program")?;
        fs::write(folder.join(STAMP), stamp.replace("-s -w", "-s"))?;
        assert!(!HELM.is_complete(&folder), "it was built with other flags");
        fs::remove_dir_all(&folder)?;
        Ok(())
    }

    #[test]
    fn go_module_of_each_program_has_sources() -> Result<()> {
        for module in ALL {
            assert!(module.content()?.contains("tool"), "{}", module.name);
        }
        Ok(())
    }
}
