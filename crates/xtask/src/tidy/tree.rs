//! The files of the repository.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Folder of Kueue's decision cases, whose texts are Kueue's.
const CASES_OF_KUEUE: &str = "crates/testkit/cases/";

/// Path, from the root and with `/`, to text. A file that is no text has an empty one.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// The files that git tracks or would add, without Kueue's decision cases.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("git ls-files")?;
        ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
        let names = String::from_utf8(output.stdout).context("names of files")?;
        let mut files = BTreeMap::new();
        for name in names.split('\0').filter(|name| !name.is_empty() && !name.starts_with(CASES_OF_KUEUE)) {
            // A link is not followed; a file that git still lists may be gone.
            let path = root.join(name);
            if path.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
                let bytes = std::fs::read(&path).with_context(|| format!("read {name}"))?;
                files.insert(name.to_owned(), String::from_utf8(bytes).unwrap_or_default());
            } else if path.symlink_metadata().is_ok() {
                files.insert(name.to_owned(), String::new());
            }
        }
        Ok(Self { files })
    }

    /// All files in the order of their paths.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text of a file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect() }
    }

    /// A repository with one package, `crates/a`, whose sources these are.
    #[cfg(test)]
    pub(crate) fn of_package(sources: &[(&str, &str)]) -> Self {
        let mut tree = Self::of(&[("crates/a/Cargo.toml", "")]);
        let placed = |(path, text): &(&str, &str)| (format!("crates/a/src/{path}"), (*text).to_owned());
        tree.files.extend(sources.iter().map(placed));
        tree
    }
}
