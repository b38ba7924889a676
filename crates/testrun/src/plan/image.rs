//! `make image`: a statically linked release build, in an archive that container engines, kind and registries accept.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use berth_testrun::folders;

use super::{Run, output, shown};
use crate::cargo::{self, cargo, program, target};
use crate::step::{Class, Step};

/// File name of the image archive in the target folder.
const ARCHIVE: &str = "berth-image.tar";

/// The target triple of the image's release build. With an explicit target, Cargo links only the program statically, and links build scripts and macros as
/// usual.
fn triple() -> String {
    format!("{}-unknown-linux-gnu", env::consts::ARCH)
}

/// Path of the program that goes into the image.
pub(crate) fn binary() -> PathBuf {
    target().join(triple()).join("release/berth")
}

/// Compiler flags of the image's build, in Cargo's own encoding, in which paths may have spaces.
fn flags(repository: &str, crates: Option<&str>, set: &str) -> String {
    // The flags `--remap-path-prefix` keep paths of the building machine out of the program.
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned(), format!("--remap-path-prefix={repository}=berth")];
    flags.extend(crates.map(|folder| format!("--remap-path-prefix={folder}=crates")));
    flags.extend(set.split_whitespace().map(str::to_owned));
    flags.join("\u{1f}")
}

/// The folder in which Cargo stores the sources of crates.
fn crates() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cargo = set("CARGO_HOME").or_else(|| Some(set("HOME")?.join(".cargo")))?;
    Some(cargo.join("registry/src"))
}

/// The step that builds the program of the image.
pub(crate) fn release() -> Step {
    let mut command = cargo(&["build", "--locked", "--release", "--package", "berth", "--target", &triple()]);
    let crates = crates().map(|folder| folder.display().to_string());
    let set = env::var("RUSTFLAGS").unwrap_or_default();
    let flags = flags(&folders::repository().display().to_string(), crates.as_deref(), &set);
    command.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", flags);
    // The commit and its date are inputs of the build, so that builds of one commit give equal programs at any time. A work tree with changes and an unpacked
    // archive of the sources have no commit, so their builds have neither input.
    let git = |args: &[&str]| output("git", args).unwrap_or_default();
    if git(&["status", "--porcelain", "--untracked-files=no"]).is_empty() {
        for (variable, form) in [("BERTH_GIT_COMMIT", "--format=%H"), ("BERTH_BUILD_DATE", "--format=%cI")] {
            let value = git(&["log", "-1", form]);
            if !value.is_empty() {
                command.env(variable, value);
            }
        }
    }
    shown("compile the release build", Class::Compiling, command)
}

/// Builds the program and writes the image archive. An empty `name` gives the image the default name of the chart.
///
/// # Errors
/// A step cannot be started.
pub(crate) fn image(run: &Run, name: &str) -> Result<bool> {
    run.runner.expect(3);
    let xtask = shown("compile xtask", Class::Compiling, cargo::build(&["--bin", "xtask"]));
    if !run.runner.run(xtask)? || !run.runner.run(release())? {
        return Ok(false);
    }
    let mut write = Command::new(program("xtask"));
    write.arg("image").arg("--binary").arg(binary()).arg("--out").arg(target().join(ARCHIVE));
    if !name.is_empty() {
        write.args(["--name", name]);
    }
    run.runner.run(shown("write the image", Class::Running, write))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_rustflags_keep_paths_with_spaces_and_given_flags() {
        let flags = flags("/a folder/berth", Some("/c"), " -Copt-level=2  -g");
        let flags: Vec<&str> = flags.split('\u{1f}').collect();
        assert_eq!(
            flags,
            [
                "-Ctarget-feature=+crt-static",
                "--remap-path-prefix=/a folder/berth=berth",
                "--remap-path-prefix=/c=crates",
                "-Copt-level=2",
                "-g"
            ]
        );
    }
}
