//! The folders of `examples/`: the files that their READMEs apply, and the clean-up of them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::binaries::repository;
use crate::control_plane::ControlPlane;

/// The words of a README before its command to clean up.
const CLEAN_UP: &str = "**Clean up.**";
/// Time for each of the objects of a file to go.
const TIMEOUT: &str = "--timeout=120s";

/// The folders of the examples.
///
/// # Errors
/// If the folders cannot be read.
pub fn folders() -> Result<Vec<PathBuf>> {
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(repository().join("examples"))?.map(|e| Ok(e?.path())).collect::<std::io::Result<_>>()?;
    folders.retain(|path| path.is_dir());
    folders.sort();
    Ok(folders)
}

/// The folder of that name.
pub fn folder(name: &str) -> PathBuf {
    repository().join("examples").join(name)
}

fn readme(folder: &Path) -> Result<String> {
    std::fs::read_to_string(folder.join("README.md")).context("an example has a README.md")
}

/// The files that words name behind `-f`, each once, in their order.
fn named(text: &str) -> Vec<PathBuf> {
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || c == '`').collect();
    let mut files: Vec<PathBuf> = Vec::new();
    for pair in words.windows(2).filter(|pair| pair[0] == "-f") {
        let path = repository().join(pair[1]);
        if !files.contains(&path) {
            files.push(path);
        }
    }
    files
}

/// The files that the README applies, in its order.
///
/// # Errors
/// If the folder has other files, or none.
pub fn told_to_apply(folder: &Path) -> Result<Vec<PathBuf>> {
    let files = named(&readme(folder)?);
    let mut there = 0;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "yaml") {
            ensure!(files.contains(&path), "the README does not tell to apply {}", path.display());
            there += 1;
        }
    }
    ensure!(there > 0, "nothing to apply");
    Ok(files)
}

/// The command by which the README cleans up: it deletes the applied files, one by one in the reverse order.
fn told_to_delete(folder: &Path) -> Result<String> {
    let text = readme(folder)?;
    let (before, after) = text.split_once(CLEAN_UP).with_context(|| format!("the README says {CLEAN_UP}"))?;
    let command = after.split('`').nth(1).context("a command in backquotes")?;
    let command = command.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(command.starts_with("kubectl delete "), "{command}");
    let mut applied = named(before);
    applied.reverse();
    ensure!(
        named(&command) == applied,
        "{command:?} does not delete what was applied, in the reverse order: {applied:?}"
    );
    Ok(command)
}

/// Cleans up as the README of an example does. All objects of its files must go in time: no object waits for a finalizer, and no
/// ClusterQueue for quota that is held.
///
/// # Errors
/// When something stays.
pub async fn clean_up(plane: &ControlPlane, folder: &Path) -> Result<()> {
    let command = told_to_delete(folder)?;
    // Two examples may have an object in common.
    let args = command.split(' ').skip(1).chain(["--ignore-not-found", TIMEOUT]);
    plane.kubectl(&args.collect::<Vec<_>>()).await.with_context(|| format!("cleaning up {}", folder.display()))?;
    println!("example {}: nothing is left", folder.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_readme_deletes_its_files_in_reverse_order() -> Result<()> {
        for folder in folders()? {
            told_to_delete(&folder).with_context(|| folder.display().to_string())?;
        }
        Ok(())
    }
}
