//! Cargo: builds programs and finds the tests among them.
//!
//! Targets are chosen by name and never by package, and examples (there are none) are asked for: so Cargo resolves features once, for all
//! of the workspace with its tests, and compiles each dependency once.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use berth_testrun::folders;
use serde_json::Value;

/// A test program that was built.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Package without `berth-`.
    pub(crate) package: String,
    /// Name of the target.
    pub(crate) target: String,
    /// True: it holds the unit tests of a library or program, and not a folder of tests.
    pub(crate) unit: bool,
    /// Path of the program.
    pub(crate) path: PathBuf,
    /// Folder of the package, in which Cargo runs its tests.
    pub(crate) folder: PathBuf,
}

impl Program {
    /// Name in the table.
    pub(crate) fn name(&self) -> String {
        let unit = if self.unit { " unit" } else { "" };
        if self.target == self.package || self.target == format!("berth_{}", self.package) {
            format!("{}{unit}", self.package)
        } else {
            format!("{} {}{unit}", self.package, self.target)
        }
    }

    /// The command that runs it as Cargo would.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// The command `cargo` with arguments, in the root of the repository.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(folders::repository());
    command
}

/// A command that builds the targets in `what`.
pub(crate) fn build(what: &[&str]) -> Command {
    let mut command = cargo(&["build", "--locked", "--workspace", "--examples"]);
    command.args(what);
    command
}

/// Cargo's target folder.
pub(crate) fn target() -> PathBuf {
    let set = env::var_os("CARGO_TARGET_DIR").filter(|folder| !folder.is_empty());
    folders::repository().join(set.map_or_else(|| PathBuf::from("target"), PathBuf::from))
}

/// A program of this workspace.
pub(crate) fn program(name: &str) -> PathBuf {
    target().join("debug").join(name)
}

/// Test programs among the messages of a build with `--message-format=json-render-diagnostics`.
///
/// # Errors
/// When the messages cannot be read.
pub(crate) fn test_programs(messages: &Path) -> Result<Vec<Program>> {
    let text = std::fs::read_to_string(messages).with_context(|| format!("reading {}", messages.display()))?;
    let mut programs = Vec::new();
    for line in text.lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let is_test = message.pointer("/profile/test") == Some(&Value::Bool(true));
        let Some(path) = message["executable"].as_str().filter(|_| is_test) else { continue };
        let manifest = Path::new(message["manifest_path"].as_str().context("artifact without manifest_path")?);
        let folder = manifest.parent().context("manifest without a folder")?.to_path_buf();
        let package = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let target = message.pointer("/target/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let kind = message.pointer("/target/kind/0").and_then(Value::as_str).unwrap_or_default();
        programs.push(Program { package, target, unit: kind != "test", path: PathBuf::from(path), folder });
    }
    Ok(programs)
}
