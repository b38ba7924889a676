//! Cargo commands that build programs and find test programs.
//!
//! Cargo's targets are chosen by name instead of by package, and `--examples` is always set, although no step needs the one example. If targets are chosen by
//! name, Cargo resolves features once for the workspace with its tests, and compiles each dependency once.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use berth_testrun::folders;
use serde_json::Value;

/// A compiled test program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Name of the test program's package, without `berth-`.
    pub(crate) package: String,
    /// Name of the test program's Cargo target.
    pub(crate) target: String,
    /// True if the test program has the unit tests of a library or binary, and not the tests of a folder `tests`.
    pub(crate) unit: bool,
    /// Path of the program.
    pub(crate) path: PathBuf,
    /// Folder of the test program's package, which is the working directory of the tests.
    pub(crate) folder: PathBuf,
}

impl Program {
    /// Name of the test program in the table of steps.
    pub(crate) fn name(&self) -> String {
        let unit = if self.unit { " unit" } else { "" };
        if self.target == self.package || self.target == format!("berth_{}", self.package) {
            format!("{}{unit}", self.package)
        } else {
            format!("{} {}{unit}", self.package, self.target)
        }
    }

    /// The command that runs the test program with Cargo's working directory and environment.
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

/// The command `cargo build` for the targets in `what`.
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

/// Path of a compiled program of this workspace.
pub(crate) fn program(name: &str) -> PathBuf {
    target().join("debug").join(name)
}

/// Test programs in the messages of a build with `--message-format=json-render-diagnostics`.
///
/// # Errors
/// The messages cannot be read.
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
