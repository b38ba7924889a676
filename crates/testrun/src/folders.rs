//! Paths of the repository and of the user's cache folder.

use std::env;
use std::fs::{File, FileTimes};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};

/// File that marks a complete cache entry and lists its content. The stamp file is written last, and its modification time is the time of the cache entry's
/// last use.
pub const STAMP: &str = "stamp";

/// Folder of the cache with tools that Cargo installs, one folder for each version of a tool.
pub const TOOLS: &str = "tools";

/// Sets the last-use time of a cache entry to now, so that the cache's size limit removes other entries first.
pub fn touch(entry: &Path) {
    if let Ok(file) = File::options().write(true).open(entry.join(STAMP)) {
        // A cache entry whose time cannot be set is still usable.
        let _ = file.set_times(FileTimes::new().set_modified(SystemTime::now()));
    }
}

/// The root of the repository, known at compile time.
#[must_use]
pub fn repository() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own).to_path_buf()
}

/// The cache folder: The user's cache folder of Berth's test tools: `${BERTH_CACHE:-${XDG_CACHE_HOME:-~/.cache}/berth}`.
///
/// # Errors
/// None of the three environment variables is set.
pub fn cache() -> Result<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = set("BERTH_CACHE") {
        return Ok(folder);
    }
    if let Some(folder) = set("XDG_CACHE_HOME") {
        return Ok(folder.join("berth"));
    }
    let home = set("HOME").context("none of BERTH_CACHE, XDG_CACHE_HOME and HOME is set")?;
    Ok(home.join(".cache/berth"))
}
