//! Compiled dependencies in the user's cache: a fresh clone copies them into its target folder, and compiles only its own crates.
//!
//! The first successful build of a clone without artifacts makes an entry of the cache. The key of a cache entry has all inputs of the compilation of
//! dependencies: the compiler, the lock file, all manifests, and the flags in the environment. The cache has no artifacts of this workspace, because Cargo
//! gives the artifacts of two clones equal file names and distinguishes these files by times only.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fmt::Write as _;
use std::fs::{self, File, FileTimes};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use berth_testrun::folders::{self, STAMP, TOOLS, touch};
use serde_json::Value;

use crate::cargo::{cargo, target};

/// Folders of `target/debug` that have artifacts of dependencies.
const FOLDERS: [&str; 3] = [".fingerprint", "build", "deps"];
/// Largest size of the cache of compiled dependencies in bytes, unless `BERTH_CACHE_GB` sets another size.
const BOUND: u64 = 10_000_000_000;

/// Names of the artifacts of this workspace: its packages, and the file names of its Cargo targets.
struct Own {
    packages: BTreeSet<String>,
    targets: BTreeSet<String>,
}

impl Own {
    fn read() -> Result<Own> {
        let output = cargo(&["metadata", "--format-version=1", "--no-deps", "--offline"]).output()?;
        ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
        let mut own = Own { packages: BTreeSet::new(), targets: BTreeSet::new() };
        for package in metadata["packages"].as_array().into_iter().flatten() {
            own.packages.extend(package["name"].as_str().map(str::to_owned));
            for target in package["targets"].as_array().into_iter().flatten() {
                own.targets.extend(target["name"].as_str().map(|name| name.replace('-', "_")));
            }
        }
        Ok(own)
    }

    /// Whether an entry of a folder in [`FOLDERS`] belongs to this workspace.
    fn holds(&self, folder: &str, entry: &str) -> bool {
        let name = entry.rsplit_once('-').map_or(entry, |(name, _)| name);
        match folder {
            "deps" => {
                let name = name.replace('-', "_");
                self.targets.contains(&name) || name.strip_prefix("lib").is_some_and(|name| self.targets.contains(name))
            }
            _ => self.packages.contains(name),
        }
    }
}

/// A text with all inputs of the compilation of dependencies.
fn content() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("starting rustc")?;
    let mut content = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut files = vec![PathBuf::from("Cargo.lock"), PathBuf::from("Cargo.toml"), PathBuf::from("e2e/Cargo.toml")];
    for entry in fs::read_dir("crates").context("reading crates")? {
        files.push(entry?.path().join("Cargo.toml"));
    }
    files.sort();
    for file in files.iter().filter(|file| file.is_file()) {
        let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let _ = writeln!(content, "== {}\n{text}", file.display());
    }
    let mut flags: Vec<(String, String)> = env::vars().filter(|(name, _)| is_input(name)).collect();
    flags.sort();
    let _ = writeln!(content, "{flags:?}");
    Ok(content)
}

/// Whether an environment variable is an input of the compilation of dependencies.
fn is_input(variable: &str) -> bool {
    variable.starts_with("CARGO_PROFILE_")
        || ["RUSTFLAGS", "CFLAGS"].iter().any(|flags| variable.contains(flags))
        || ["CC", "AR"].contains(&variable)
}

fn entry(content: &str) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    Ok(folders::cache()?.join("dependencies").join(format!("{:016x}", hasher.finish())))
}

/// Relative paths of all files below a folder, sorted, with sizes in bytes.
fn files(root: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(root.join(&folder)).with_context(|| format!("reading {}", folder.display()))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            let kind = entry.metadata()?;
            if kind.is_dir() {
                waiting.push(path);
            } else {
                found.push((path, kind.len()));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn stamp(root: &Path, content: &str) -> Result<String> {
    let mut stamp = String::new();
    for (path, size) in files(root)?.iter().filter(|(path, _)| path.as_os_str() != STAMP) {
        let _ = writeln!(stamp, "{size} {}", path.display());
    }
    Ok(stamp + content)
}

/// Copies a file with its modification time, by which Cargo compares the ages of files.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to).with_context(|| format!("copying {}", from.display()))?;
    let changed = fs::metadata(from)?.modified()?;
    let file = File::options().write(true).open(to).with_context(|| format!("opening {}", to.display()))?;
    file.set_times(FileTimes::new().set_modified(changed)).with_context(|| format!("dating {}", to.display()))
}

/// Copies the cached dependencies into a target folder without artifacts. `Ok(false)` if nothing was copied.
///
/// The target folder gets all cached dependencies or none: a complete copy is renamed to its place, with the folder of fingerprints last.
///
/// # Errors
/// A file cannot be copied.
pub(crate) fn restore() -> Result<bool> {
    let debug = target().join("debug");
    if debug.join(".fingerprint").is_dir() {
        return Ok(false);
    }
    let content = content()?;
    let entry = entry(&content)?;
    let Ok(stamped) = fs::read_to_string(entry.join(STAMP)) else { return Ok(false) };
    if stamp(&entry, &content).ok().as_deref() != Some(stamped.as_str()) {
        println!("== {} is stale or half written; it is made anew", entry.display());
        let _ = fs::remove_dir_all(&entry);
        return Ok(false);
    }
    let staging = target().join("restoring");
    // The folder `staging` may have the rest of an interrupted copy.
    let _ = fs::remove_dir_all(&staging);
    if let Err(error) = copy_entry(&entry, &staging) {
        // A failed copy is no error, because a process of another clone may remove the cache entry during the copy.
        println!("== compiled dependencies cannot be copied from the cache: {error:#}");
        let _ = fs::remove_dir_all(&staging);
        return Ok(false);
    }
    put(&staging, &debug)?;
    touch(&entry);
    Ok(true)
}

/// Copies the files of a cache entry, except the entry's stamp file.
fn copy_entry(entry: &Path, to: &Path) -> Result<()> {
    for (path, _) in files(entry)?.iter().filter(|(path, _)| path.as_os_str() != STAMP) {
        copy(&entry.join(path), &to.join(path))?;
    }
    Ok(())
}

/// Moves the copied folders of dependencies into the target folder. The folder with fingerprints is moved last, because its existence marks the target folder
/// as filled.
fn put(staging: &Path, debug: &Path) -> Result<()> {
    fs::create_dir_all(debug).with_context(|| format!("creating {}", debug.display()))?;
    for folder in FOLDERS.iter().rev() {
        let to = debug.join(folder);
        let _ = fs::remove_dir_all(&to);
        fs::rename(staging.join(folder), &to).with_context(|| format!("moving {folder} to {}", debug.display()))?;
    }
    fs::remove_dir_all(staging).with_context(|| format!("removing {}", staging.display()))
}

/// Notes that the target folder begins without artifacts.
///
/// # Errors
/// The inputs of the compilation cannot be read, or the note cannot be written.
pub(crate) fn note_beginning() -> Result<()> {
    let note = beginning();
    if let Some(folder) = note.parent() {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    fs::write(&note, content()?).with_context(|| format!("writing {}", note.display()))
}

/// True if the target folder began without artifacts, and the inputs of the compilation have not changed since that time, so that no dependency in the folder
/// has other inputs.
///
/// # Errors
/// The inputs of the compilation cannot be read.
pub(crate) fn began_with_these() -> Result<bool> {
    Ok(fs::read_to_string(beginning()).ok() == Some(content()?))
}

fn beginning() -> PathBuf {
    target().join("testrun/beginning")
}

/// Copies the dependencies of a complete build into the cache, unless the cache has them. `Ok(false)` if nothing was copied.
///
/// # Errors
/// A file cannot be copied.
pub(crate) fn keep() -> Result<bool> {
    let content = content()?;
    let entry = entry(&content)?;
    if entry.join(STAMP).is_file() {
        return Ok(false);
    }
    let parent = entry.parent().context("the entry has no folder")?;
    fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    let staging = parent.join(format!("making-{}", std::process::id()));
    let _ = fs::remove_dir_all(&staging);
    let own = Own::read()?;
    for folder in FOLDERS {
        let from = target().join("debug").join(folder);
        for found in fs::read_dir(&from).with_context(|| format!("reading {}", from.display()))? {
            let found = found?;
            let name = found.file_name().to_string_lossy().into_owned();
            if own.holds(folder, &name) {
                continue;
            }
            let to = staging.join(folder).join(&name);
            if found.metadata()?.is_dir() {
                for (path, _) in files(&found.path())? {
                    copy(&found.path().join(&path), &to.join(&path))?;
                }
            } else {
                copy(&found.path(), &to)?;
            }
        }
    }
    fs::write(staging.join(STAMP), stamp(&staging, &content)?)?;
    let _ = fs::remove_dir_all(&entry);
    fs::rename(&staging, &entry).with_context(|| format!("moving to {}", entry.display()))?;
    Ok(true)
}

/// Removes the least recently used cache entries until the cache is within its size limit, and the rests of killed builds.
///
/// # Errors
/// The cache cannot be read.
pub(crate) fn bound() -> Result<()> {
    let gigabytes = env::var("BERTH_CACHE_GB").ok().and_then(|text| text.parse::<u64>().ok());
    let bound = gigabytes.map_or(BOUND, |gigabytes| gigabytes * 1_000_000_000);
    let mut entries = Vec::new();
    let cache = folders::cache()?;
    for folder in ["dependencies", "go", TOOLS].map(|name| cache.join(name)) {
        for found in fs::read_dir(&folder).into_iter().flatten().flatten().filter(|found| found.path().is_dir()) {
            let path = found.path();
            let size: u64 = files(&path)?.iter().map(|(_, size)| size).sum();
            let stamped = fs::metadata(path.join(STAMP)).and_then(|stamp| stamp.modified());
            entries.push((stamped.unwrap_or(SystemTime::UNIX_EPOCH), size, path));
        }
    }
    let day = Duration::from_secs(86_400);
    for path in superfluous(entries, bound, SystemTime::now() - day) {
        println!(
            "== the cache is above its bound, or this was left by a build that was killed: removing {}",
            path.display()
        );
        let _ = fs::remove_dir_all(&path);
    }
    Ok(())
}

/// Cache entries to remove: the least recently used entries, until the size of the remaining entries is within `bound`. A cache entry without a stamp file (its
/// time is the epoch) may belong to a running build, and is removed only if its folder is older than `before`.
fn superfluous(mut entries: Vec<(SystemTime, u64, PathBuf)>, bound: u64, before: SystemTime) -> Vec<PathBuf> {
    let mut removed = Vec::new();
    entries.retain(|(used, _, path)| {
        let unstamped = *used == SystemTime::UNIX_EPOCH;
        let old = fs::metadata(path).and_then(|folder| folder.modified()).is_ok_and(|changed| changed < before);
        if unstamped && old {
            removed.push(path.clone());
        }
        !unstamped
    });
    entries.sort();
    let mut sum: u64 = entries.iter().map(|(_, size, _)| size).sum();
    for (_, size, path) in entries {
        if sum <= bound {
            break;
        }
        sum -= size;
        removed.push(path);
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_files_of_own_packages_are_distinguished_from_dependencies() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let own = Own { packages: set(&["berth-engine"]), targets: set(&["berth_engine", "laws"]) };
        for (folder, name) in [
            ("deps", "libberth_engine-0123456789abcdef.rlib"),
            ("deps", "laws-0123456789abcdef"),
            ("deps", "laws-0123456789abcdef.d"),
            (".fingerprint", "berth-engine-0123456789abcdef"),
        ] {
            assert!(own.holds(folder, name), "{folder}/{name}");
        }
        for (folder, name) in [
            ("deps", "libserde-0123456789abcdef.rmeta"),
            (".fingerprint", "serde-0123456789abcdef"),
            ("build", "ring-0"),
        ] {
            assert!(!own.holds(folder, name), "{folder}/{name}");
        }
    }

    #[test]
    fn cache_entries_used_longest_ago_are_removed_first() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let entries = vec![(at(3), 40, "c".into()), (at(1), 40, "a".into()), (at(2), 40, "b".into())];
        let none: Vec<PathBuf> = Vec::new();
        assert_eq!(superfluous(entries.clone(), 120, at(0)), none);
        assert_eq!(superfluous(entries.clone(), 100, at(0)), [PathBuf::from("a")]);
        assert_eq!(superfluous(entries, 10, at(0)).len(), 3);
    }

    #[test]
    fn cached_copy_keeps_modification_time_and_stamp_notices_changes() -> Result<()> {
        let folder = env::temp_dir().join(format!("berth-dependencies-{}", std::process::id()));
        let (from, to) = (folder.join("from"), folder.join("a/to"));
        fs::create_dir_all(&folder)?;
        fs::write(&from, "text")?;
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        File::options().write(true).open(&from)?.set_times(FileTimes::new().set_modified(then))?;
        copy(&from, &to)?;
        assert_eq!((fs::metadata(&to)?.modified()?, fs::read_to_string(&to)?), (then, "text".to_owned()));
        let before = stamp(&folder, "")?;
        fs::write(&to, "tex")?;
        assert_ne!(stamp(&folder, "")?, before, "half a file is noticed");
        fs::remove_dir_all(&folder)?;
        Ok(())
    }

    #[test]
    fn restored_dependencies_replace_half_a_copy_and_bring_fingerprints_last() -> Result<()> {
        let folder = env::temp_dir().join(format!("berth-restore-{}", std::process::id()));
        let (staging, debug) = (folder.join("staging"), folder.join("debug"));
        for name in [".fingerprint/serde-1/lib", "build/ring-1/output", "deps/libserde-1.rlib"] {
            copy(&fresh(&folder)?, &staging.join(name))?;
        }
        copy(&fresh(&folder)?, &debug.join("deps/half-1.rlib"))?;
        fs::remove_dir_all(staging.join("build"))?;
        assert!(put(&staging, &debug).is_err(), "a folder is missing");
        assert!(!debug.join(".fingerprint").exists(), "a folder that is not whole counts as empty");
        copy(&fresh(&folder)?, &staging.join("build/ring-1/output"))?;
        copy(&fresh(&folder)?, &staging.join("deps/libserde-1.rlib"))?;
        put(&staging, &debug)?;
        assert!(debug.join(".fingerprint/serde-1/lib").is_file() && debug.join("deps/libserde-1.rlib").is_file());
        assert!(!debug.join("deps/half-1.rlib").exists() && !staging.exists());
        fs::remove_dir_all(&folder)?;
        Ok(())
    }

    /// Makes a source file that a test copies.
    fn fresh(folder: &Path) -> Result<PathBuf> {
        fs::create_dir_all(folder)?;
        let path = folder.join("source");
        fs::write(&path, "text")?;
        Ok(path)
    }

    #[test]
    fn flags_of_compilers_are_inputs_of_dependencies() {
        for name in ["CARGO_PROFILE_DEV_DEBUG", "RUSTFLAGS", "CARGO_TARGET_X_RUSTFLAGS", "CFLAGS_x86_64", "CC"] {
            assert!(is_input(name), "{name}");
        }
        assert!(!is_input("CCACHE_DIR") && !is_input("PATH"));
    }
}
