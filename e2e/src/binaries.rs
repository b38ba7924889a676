//! The five binaries of the control plane and those of other people's controllers: built once with Go from a `go.mod` of this
//! repository, kept in a cache folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

/// Version that the Kubernetes binaries report; must agree with `go.mod`.
const KUBERNETES: (&str, &str, &str) = ("v1.36.3", "1", "36");

/// How often a line tells that the build is still going on.
const PROGRESS: Duration = Duration::from_secs(15);

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

/// Repository root, known at compile time.
pub fn repository() -> PathBuf {
    let e2e = Path::new(env!("CARGO_MANIFEST_DIR"));
    e2e.parent().map(Path::to_path_buf).unwrap_or_else(|| e2e.to_path_buf())
}

/// `${BERTH_CACHE:-${XDG_CACHE_HOME:-~/.cache}/berth}`.
///
/// # Errors
/// When none of the three variables is set.
pub fn cache_folder() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("BERTH_CACHE").filter(|d| !d.is_empty()) {
        return Ok(PathBuf::from(dir));
    }
    if let Some(dir) = std::env::var_os("XDG_CACHE_HOME").filter(|d| !d.is_empty()) {
        return Ok(PathBuf::from(dir).join("berth"));
    }
    let home = std::env::var_os("HOME").context("none of BERTH_CACHE, XDG_CACHE_HOME and HOME is set")?;
    Ok(PathBuf::from(home).join(".cache/berth"))
}

/// Programs that one `go.mod` of this repository builds as its tools.
struct Module {
    /// Folder of the `go.mod`, from the root.
    path: &'static str,
    /// Name of the folder in the cache, before its digest.
    name: &'static str,
    /// For messages.
    what: &'static str,
    ldflags: String,
    /// Build tags, separated by commas.
    tags: &'static str,
    programs: &'static [&'static str],
}

fn control_plane() -> Module {
    let (version, major, minor) = KUBERNETES;
    let package = "k8s.io/component-base/version";
    Module {
        path: "e2e/controlplane",
        name: "controlplane",
        what: "etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok, about 5 minutes on 2 cores",
        ldflags: format!(
            "-s -w -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
        ),
        tags: "",
        programs: &["server", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"],
    }
}

fn jobset_controller() -> Module {
    Module {
        path: "e2e/jobset",
        name: "jobset",
        what: "the controller of JobSets, about 2 minutes on 2 cores",
        ldflags: "-s -w".to_owned(),
        tags: "",
        programs: &["jobset"],
    }
}

fn fake_gcs_server() -> Module {
    Module {
        path: "e2e/gcs",
        name: "gcs",
        what: "a server of Google Cloud Storage, about 2 minutes on 2 cores",
        ldflags: "-s -w".to_owned(),
        tags: "",
        programs: &["fake-gcs-server"],
    }
}

fn helm_4() -> Module {
    Module {
        path: "e2e/helm",
        name: "helm",
        what: "Helm 4, about 2 minutes on 2 cores",
        ldflags: "-s -w".to_owned(),
        tags: "",
        programs: &["helm"],
    }
}

fn prometheus_tools() -> Module {
    Module {
        path: "e2e/prometheus",
        name: "prometheus",
        what: "Prometheus and promtool, about 5 minutes on 2 cores",
        ldflags: "-s -w".to_owned(),
        // Targets are static: no cloud has to be found.
        tags: "netgo,remove_all_sd",
        programs: &["prometheus", "promtool"],
    }
}

fn helm_3() -> Module {
    Module { path: "e2e/helm3", name: "helm3", what: "Helm 3, about 2 minutes on 2 cores", ..helm_4() }
}

impl Module {
    fn sources(&self) -> PathBuf {
        repository().join(self.path)
    }

    /// Folder for the binaries that these sources and flags give.
    fn target(&self) -> Result<PathBuf> {
        let mut hash = Sha256::new();
        for name in ["go.mod", "go.sum"] {
            let path = self.sources().join(name);
            hash.update(fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
            hash.update([0]);
        }
        hash.update(&self.ldflags);
        hash.update(self.tags);
        let digest = hash.finalize();
        let key: String = digest.iter().take(6).map(|b| format!("{b:02x}")).collect();
        Ok(cache_folder()?.join(format!("{}-{key}", self.name)))
    }

    fn is_in(&self, folder: &Path) -> bool {
        self.programs.iter().all(|program| folder.join(program).is_file())
    }

    /// The folder with the binaries, which are built first when the cache does not have them.
    ///
    /// Two builders at once are safe: one waits for the other's lock, and the result appears by a rename.
    fn ensure(&self) -> Result<PathBuf> {
        let folder = self.target()?;
        if self.is_in(&folder) {
            return Ok(folder);
        }
        let cache = cache_folder()?;
        fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
        let lock = File::create(cache.join(format!("{}.lock", self.name))).context("creating the build lock")?;
        if lock.try_lock().is_err() {
            eprintln!("{}: another process is building it; waiting for its lock", self.name);
            lock.lock().context("waiting for the build lock")?;
        }
        if !self.is_in(&folder) {
            self.build(&cache, &folder)?;
        }
        Ok(folder)
    }

    fn build(&self, cache: &Path, folder: &Path) -> Result<()> {
        let staging = cache.join(format!("building-{}-{}", self.name, std::process::id()));
        let _ = fs::remove_dir_all(&staging);
        fs::create_dir_all(&staging)?;
        let name = self.name;
        eprintln!("{name}: building {}, once; result in {}", self.what, folder.display());
        let log_path = cache.join(format!("{name}-build.log"));
        let log = File::create(&log_path)?;
        let mut child = Command::new("go")
            .args(["build", "-trimpath", "-tags", self.tags, "-ldflags", &self.ldflags, "-o"])
            .arg(format!("{}/", staging.display()))
            .arg("tool")
            .current_dir(self.sources())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting `go build`; Go 1.26 or later must be on PATH")?;
        let begun = Instant::now();
        let mut told = begun;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                let done = fs::read_dir(&staging).map(Iterator::count).unwrap_or(0);
                let all = self.programs.len();
                eprintln!("{name}: building, {} s, {done} of {all} binaries linked", begun.elapsed().as_secs());
            }
            std::thread::sleep(Duration::from_millis(200));
        };
        if !status.success() {
            let text = fs::read_to_string(&log_path).unwrap_or_default();
            let tail: Vec<&str> = text.lines().rev().take(20).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            let _ = fs::remove_dir_all(&staging);
            bail!("`go build` failed ({status}); {}:\n{}", log_path.display(), tail.join("\n"));
        }
        let _ = fs::remove_dir_all(folder);
        fs::rename(&staging, folder).with_context(|| format!("moving the binaries to {}", folder.display()))?;
        eprintln!("{name}: built in {} s", begun.elapsed().as_secs());
        if !self.is_in(folder) {
            bail!("the build left no complete set of binaries in {}", folder.display());
        }
        Ok(())
    }
}

/// Returns the control plane's binaries, building them first when the cache does not have them.
///
/// # Errors
/// When Go is missing, the build fails or the cache cannot be written.
pub fn ensure() -> Result<Binaries> {
    Ok(Binaries { folder: control_plane().ensure()? })
}

/// The controller of JobSets, built as the control plane is.
///
/// # Errors
/// As [`ensure`].
pub fn jobset() -> Result<PathBuf> {
    Ok(jobset_controller().ensure()?.join("jobset"))
}

/// The server of Google Cloud Storage, built as the control plane is.
///
/// # Errors
/// As [`ensure`].
pub fn gcs() -> Result<PathBuf> {
    Ok(fake_gcs_server().ensure()?.join("fake-gcs-server"))
}

/// Helm 4, built as the control plane is.
///
/// # Errors
/// As [`ensure`].
pub fn helm() -> Result<PathBuf> {
    Ok(helm_4().ensure()?.join("helm"))
}

/// The folder with prometheus and promtool, built as the control plane is.
///
/// # Errors
/// As [`ensure`].
pub fn prometheus() -> Result<PathBuf> {
    prometheus_tools().ensure()
}

/// Helm 3, built as the control plane is.
///
/// # Errors
/// As [`ensure`].
pub fn helm3() -> Result<PathBuf> {
    Ok(helm_3().ensure()?.join("helm"))
}

/// The folder of the JobSet controller's module, which has the CRD.
///
/// # Errors
/// As [`module_folder`].
pub fn jobset_module() -> Result<PathBuf> {
    module_folder("jobset", "sigs.k8s.io/jobset")
}

/// The folder of the Prometheus operator's module, which has its CRDs.
///
/// # Errors
/// As [`module_folder`].
pub fn prometheus_operator_module() -> Result<PathBuf> {
    module_folder("prometheus-operator", "github.com/prometheus-operator/prometheus-operator")
}

/// The folder of a module that the `go.mod` in a folder of `e2e` requires.
///
/// # Errors
/// When Go is missing or the module cannot be had.
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
