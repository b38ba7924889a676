//! The five binaries of the control plane: built once from `e2e/controlplane/go.mod`, kept in a cache folder.

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

    fn complete(&self) -> bool {
        [self.etcd(), self.api_server(), self.controller_manager(), self.scheduler(), self.kwok()]
            .iter()
            .all(|p| p.is_file())
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

fn ldflags() -> String {
    let (version, major, minor) = KUBERNETES;
    let package = "k8s.io/component-base/version";
    format!("-s -w -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}")
}

/// Folder for the binaries that these sources and flags give.
fn target_folder(module: &Path) -> Result<PathBuf> {
    let mut hash = Sha256::new();
    for name in ["go.mod", "go.sum"] {
        let path = module.join(name);
        hash.update(fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
        hash.update([0]);
    }
    hash.update(ldflags());
    let digest = hash.finalize();
    let key: String = digest.iter().take(6).map(|b| format!("{b:02x}")).collect();
    Ok(cache_folder()?.join(format!("controlplane-{key}")))
}

/// Returns the binaries, building them first when the cache does not have them (about five minutes on two cores).
///
/// Two builders at once are safe: one waits for the other's lock, and the result appears by a rename.
///
/// # Errors
/// When Go is missing, the build fails or the cache cannot be written.
pub fn ensure() -> Result<Binaries> {
    let module = repository().join("e2e/controlplane");
    let binaries = Binaries { folder: target_folder(&module)? };
    if binaries.complete() {
        return Ok(binaries);
    }
    let cache = cache_folder()?;
    fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
    let lock = File::create(cache.join("controlplane.lock")).context("creating the build lock")?;
    if lock.try_lock().is_err() {
        eprintln!("control plane: another process is building it; waiting for its lock");
        lock.lock().context("waiting for the build lock")?;
    }
    if !binaries.complete() {
        build(&module, &cache, &binaries)?;
    }
    Ok(binaries)
}

fn build(module: &Path, cache: &Path, binaries: &Binaries) -> Result<()> {
    let staging = cache.join(format!("building-{}", std::process::id()));
    let _ = fs::remove_dir_all(&staging);
    fs::create_dir_all(&staging)?;
    eprintln!("control plane: building etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok with Go");
    eprintln!("control plane: once, about 5 minutes on 2 cores; result in {}", binaries.folder.display());
    let log_path = cache.join("controlplane-build.log");
    let log = File::create(&log_path)?;
    let mut child = Command::new("go")
        .args(["build", "-trimpath", "-ldflags", &ldflags(), "-o"])
        .arg(format!("{}/", staging.display()))
        .arg("tool")
        .current_dir(module)
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
            eprintln!("control plane: building, {} s, {done} of 5 binaries linked", begun.elapsed().as_secs());
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
    let _ = fs::remove_dir_all(&binaries.folder);
    fs::rename(&staging, &binaries.folder)
        .with_context(|| format!("moving the binaries to {}", binaries.folder.display()))?;
    eprintln!("control plane: built in {} s", begun.elapsed().as_secs());
    if !binaries.complete() {
        bail!("the build left no complete set of binaries in {}", binaries.folder.display());
    }
    Ok(())
}
