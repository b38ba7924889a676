//! The folders of `examples/`: the files that an example's README applies, and the clean-up of these files' objects.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::binaries::repository;
use crate::control_plane::ControlPlane;

/// The words of an example's README before the command that cleans up.
const CLEAN_UP: &str = "**Clean up.**";
/// Time limit of kubectl for the deletion of each object of a file.
const TIMEOUT: &str = "--timeout=120s";

/// The folders of the examples.
///
/// # Errors
/// Fails if the folders cannot be read.
pub fn folders() -> Result<Vec<PathBuf>> {
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(repository().join("examples"))?.map(|e| Ok(e?.path())).collect::<std::io::Result<_>>()?;
    folders.retain(|path| path.is_dir());
    folders.sort();
    Ok(folders)
}

/// The folder of the example with the name `name`.
pub fn folder(name: &str) -> PathBuf {
    repository().join("examples").join(name)
}

fn readme(folder: &Path) -> Result<String> {
    std::fs::read_to_string(folder.join("README.md")).context("an example has a README.md")
}

/// The files that stand behind the option `-f` in `text`, each file once, in the order of the text.
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

/// The files that the README of an example applies, in the order of the README.
///
/// # Errors
/// Fails if the folder has files that the README does not apply, or has no files.
pub fn files_to_apply(folder: &Path) -> Result<Vec<PathBuf>> {
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

/// The command by which an example's README cleans up: the command deletes the applied files one by one, in the reverse order.
fn delete_command(folder: &Path) -> Result<String> {
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

/// Cleans up an example as its README does. All objects of the example's files must go in time: no object may wait for a finalizer, and no
/// ClusterQueue may wait for quota that is still reserved.
///
/// # Errors
/// Fails if an object of the example remains.
pub async fn clean_up(plane: &ControlPlane, folder: &Path) -> Result<()> {
    let command = delete_command(folder)?;
    // Two examples may have an object in common, which may be gone already.
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
            delete_command(&folder).with_context(|| folder.display().to_string())?;
        }
        Ok(())
    }
}
