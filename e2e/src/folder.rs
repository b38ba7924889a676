//! A folder in place of a bucket: pods save files in the folder, as on a volume that is mounted into the pods and into Berth.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// A folder for checkpoints, which is removed with the folder that contains it.
#[derive(Debug)]
pub struct Folder {
    /// Path of the folder, which is the same for Berth and for pods.
    pub path: String,
    client: FolderClient,
}

impl Folder {
    /// Makes the folder `name` in the folder `parent`.
    ///
    /// # Errors
    /// Fails if the folder cannot be made.
    pub fn make(parent: &Path, name: &str) -> Result<Self> {
        let root = parent.join(name);
        fs::create_dir_all(&root).with_context(|| format!("making {}", root.display()))?;
        Ok(Self { path: root.display().to_string(), client: FolderClient { root } })
    }

    /// A client that writes files into the folder, as pods do.
    #[must_use]
    pub fn client(&self) -> FolderClient {
        self.client.clone()
    }
}

/// A program that writes checkpoint files into a [`Folder`], as a pod does on a mounted volume.
#[derive(Clone, Debug)]
pub struct FolderClient {
    root: PathBuf,
}

impl FolderClient {
    /// Writes a file by its URI, `file:///path`. A reader finds the complete file or no file.
    ///
    /// # Errors
    /// Fails if the URI is outside of the folder, or the file cannot be written.
    pub fn put(&self, uri: &str, text: &str) -> Result<()> {
        let path = self.path(uri)?;
        let part = path.with_extension("part");
        let written = || {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(&part, text)?;
            fs::rename(&part, &path)
        };
        written().with_context(|| format!("writing {}", path.display()))
    }

    /// True if the folder has a file at the URI `uri`.
    ///
    /// # Errors
    /// Fails if the URI is outside of the folder.
    pub fn has(&self, uri: &str) -> Result<bool> {
        Ok(self.path(uri)?.is_file())
    }

    fn path(&self, uri: &str) -> Result<PathBuf> {
        let path = uri.strip_prefix("file://").with_context(|| format!("{uri} is no URI of a file"))?;
        let path = PathBuf::from(path);
        ensure!(path.starts_with(&self.root), "{uri} is not in {}", self.root.display());
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_store_holds_what_is_put_and_refuses_outside_paths() -> Result<()> {
        let parent = std::env::temp_dir().join(format!("berth-folder-{}", std::process::id()));
        let folder = Folder::make(&parent, "checkpoints")?;
        let (client, uri) = (folder.client(), format!("file://{}/a/b/c.json", folder.path));
        client.put(&uri, "{}")?;
        assert!(client.has(&uri)? && !client.has(&format!("file://{}/a/b/d.json", folder.path))?);
        assert_eq!(fs::read_to_string(parent.join("checkpoints/a/b/c.json"))?, "{}");
        assert_eq!(fs::read_dir(parent.join("checkpoints/a/b"))?.count(), 1, "no half of it is left");
        assert!(client.put("file:///elsewhere/c.json", "{}").is_err() && client.has("s3://a/b").is_err());
        fs::remove_dir_all(&parent)?;
        Ok(())
    }
}
