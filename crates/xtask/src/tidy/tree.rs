//! The files of the repository that the rules of `make tidy` read.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Folder of Kueue's decision cases, which is not checked because the texts in it are Kueue's.
const CASES_OF_KUEUE: &str = "crates/testkit/cases/";

/// The text of each file by path from the root, with `/` as separator. A file of the repository that is not UTF-8 has an empty text.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the repository's files that git tracks or would add, without Kueue's decision cases.
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
            // A symbolic link is not followed and gets an empty text; a file that git lists and that was deleted is left out.
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

    /// All files of the tree, sorted by path.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text of the file at a path of the tree; `None` if the tree has no such file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect() }
    }

    /// A repository for tests with one package, `crates/a`, that has the given sources.
    #[cfg(test)]
    pub(crate) fn of_package(sources: &[(&str, &str)]) -> Self {
        let mut tree = Self::of(&[("crates/a/Cargo.toml", "")]);
        let placed = |(path, text): &(&str, &str)| (format!("crates/a/src/{path}"), (*text).to_owned());
        tree.files.extend(sources.iter().map(placed));
        tree
    }
}
