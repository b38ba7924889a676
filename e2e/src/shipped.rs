//! The paths of Berth's shipped binary and of the repository's own tool.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::binaries::repository;

/// Path of the shipped binary, which cargo builds if it is older than its sources. If the environment variable `BERTH_BINARY` names a binary, the tests run
/// that binary, and cargo builds none.
///
/// # Errors
/// Fails if cargo cannot build the binary.
pub fn binary() -> Result<PathBuf> {
    static BUILT: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| build().map_err(|e| format!("{e:#}")));
    built.clone().map_err(|e| anyhow!(e))
}

fn build() -> Result<PathBuf> {
    match std::env::var_os("BERTH_BINARY").filter(|p| !p.is_empty()) {
        Some(path) => Ok(PathBuf::from(path)),
        None => built_by_cargo("berth"),
    }
}

/// Path of the repository's own tool `xtask`. `make test` has built the tool and names its folder in the environment; otherwise cargo builds the tool
/// if it is older than its sources.
///
/// # Errors
/// Fails if cargo cannot build the tool, or if the folder that `make test` names does not have it.
pub fn xtask() -> Result<PathBuf> {
    let Some(folder) = std::env::var_os("TESTRUN_TARGET") else { return built_by_cargo("xtask") };
    let path = PathBuf::from(folder).join("debug/xtask");
    ensure!(path.is_file(), "there is no {}", path.display());
    Ok(path)
}

fn built_by_cargo(program: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    // Test programs are in the folder <target>/<profile>/deps, other programs in <target>/<profile>.
    let folder = own.parent().context("the test program has no folder")?;
    let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // The arguments of cargo are the same as the Makefile's, so that cargo compiles nothing twice.
    cargo.args(["build", "--quiet", "--workspace", "--examples", "--bin", program]).current_dir(repository());
    // Cargo sets the variables `CARGO_PKG_*`, `CARGO_MANIFEST_*` and `OUT_DIR` for a test, and the build must not get them. A build script that reads
    // one of these variables would see a change, so cargo would rebuild its crate and the crates that depend on that crate.
    let reported_by =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") || name == "OUT_DIR";
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(reported_by)) {
        cargo.env_remove(name);
    }
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    if let Some(target) = folder.parent() {
        cargo.env("CARGO_TARGET_DIR", target);
    }
    let output = say_meanwhile(&format!("building {program}"), || cargo.output());
    let output = output.with_context(|| format!("running cargo to build {program}"))?;
    ensure!(output.status.success(), "building {program} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    let path = folder.join(program);
    ensure!(path.is_file(), "cargo built no {}", path.display());
    Ok(path)
}

/// Does work that may take minutes, and prints every 20 seconds that the work goes on.
fn say_meanwhile<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let (done, over) = mpsc::channel::<()>();
    let what = what.to_owned();
    let teller = thread::spawn(move || {
        let start = Instant::now();
        while over.recv_timeout(Duration::from_secs(20)) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{what}: {} s, going on", start.elapsed().as_secs());
        }
    });
    let result = work();
    drop(done);
    let _ = teller.join();
    result
}

/// Whether the binary that `BERTH_BINARY` names is the release build (`make night PART=shipped`): only for the release build the tests check the
/// promised times and memory, because the build of the tests is hardly optimised.
pub fn is_release() -> bool {
    std::env::var_os("BERTH_SHIPPED").is_some()
}
