//! Folders that hold keys or tokens: no other user may read them, and each folder is removed when its owner in the program is dropped.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A folder that only the user who made it can enter. Dropping the value removes the folder.
#[derive(Debug)]
pub struct OwnFolder {
    path: PathBuf,
    kept: bool,
}

impl OwnFolder {
    /// Makes a new folder; if the folder exists already, because another process left it, it is not used.
    ///
    /// # Errors
    /// Fails if the folder cannot be made.
    pub fn make(path: PathBuf) -> Result<Self> {
        DirBuilder::new().mode(0o700).create(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Self { path, kept: false })
    }

    /// Path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the folder to the caller, who must remove it.
    #[must_use]
    pub fn keep(mut self) -> PathBuf {
        self.kept = true;
        self.path.clone()
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        if !self.kept {
            // A failed removal of the folder is ignored, because a destructor has no caller to whom it could report the failure.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Writes a new file that only the user of this process can read.
///
/// # Errors
/// Fails if the file exists already or cannot be written.
pub fn write_secret(path: &Path, text: &str) -> Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).map_or(0, |found| found.permissions().mode() & 0o777)
    }

    #[test]
    fn secret_file_is_private_and_removed_with_its_folder() -> Result<()> {
        let path = std::env::temp_dir().join(format!("berth-own-folder-{}", std::process::id()));
        let folder = OwnFolder::make(path.clone())?;
        let secret = folder.path().join("token");
        write_secret(&secret, "t")?;
        assert_eq!((mode(&path), mode(&secret)), (0o700, 0o600));
        assert!(write_secret(&secret, "u").is_err(), "no file of somebody else is written to");
        assert!(OwnFolder::make(path.clone()).is_err(), "no folder of somebody else is used");
        drop(folder);
        assert!(!path.exists());
        let kept = OwnFolder::make(path)?.keep();
        assert!(kept.is_dir());
        fs::remove_dir(&kept)?;
        Ok(())
    }
}
