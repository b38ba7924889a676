//! The repository, and the user's cache folder.

use std::env;
use std::fs::{File, FileTimes};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};

/// File of an entry of the cache that says what the entry holds. It is written last, and dated when the entry is used.
pub const STAMP: &str = "stamp";

/// Folder of the cache with tools that Cargo installs, a folder for each version.
pub const TOOLS: &str = "tools";

/// Notes that an entry of the cache is used now, so that the bound of the cache removes others first.
pub fn touch(entry: &Path) {
    if let Ok(file) = File::options().write(true).open(entry.join(STAMP)) {
        // An entry that cannot be dated can be used nevertheless.
        let _ = file.set_times(FileTimes::new().set_modified(SystemTime::now()));
    }
}

/// The root of the repository, known at compile time.
#[must_use]
pub fn repository() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own).to_path_buf()
}

/// `${BERTH_CACHE:-${XDG_CACHE_HOME:-~/.cache}/berth}`.
///
/// # Errors
/// When none of the three variables is set.
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
