//! The part `packages` of `make night`: cargo-deny checks the rules of `deny.toml` for packages of other projects, and reads the advisories about these
//! packages. cargo-deny is installed once into the cache folder.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use berth_testrun::folders::{self, STAMP, TOOLS, touch};

use super::{Run, itself, logged, shown};
use crate::cargo::cargo;
use crate::lanes::{self, Lanes};
use crate::step::Class;

/// Name of the part of `make night` that checks packages of other projects.
pub(crate) const PART: &str = "packages";
/// Version of cargo-deny to install.
pub(crate) const VERSION: &str = "0.20.2";
/// Beginning of the line about an advisory database that could not be read, in the output of `make night`.
const UNREAD: &str = "skipped: advisories: their database cannot be fetched";

/// The cache folder of the pinned version of cargo-deny.
fn folder() -> Result<PathBuf> {
    Ok(folders::cache()?.join(TOOLS).join(format!("cargo-deny-{VERSION}")))
}

/// The command `cargo-deny` with arguments, in the root of the repository.
fn deny(args: &[&str]) -> Result<Command> {
    let mut command = Command::new(folder()?.join("bin/cargo-deny"));
    command.arg("--locked").args(args).current_dir(folders::repository());
    // With these settings of git, the fetch of an unreachable advisory database neither asks for a password nor stalls for more than a minute.
    command
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_HTTP_LOW_SPEED_LIMIT", "1000")
        .env("GIT_HTTP_LOW_SPEED_TIME", "60");
    Ok(command)
}

/// Installs cargo-deny unless the cache has it. `Ok(false)` if the installation fails.
fn install(run: &Run) -> Result<bool> {
    let folder = folder()?;
    if folder.join(STAMP).is_file() {
        touch(&folder);
        return Ok(true);
    }
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let building = folder.join("building");
    // cargo-deny is built without optimization, which takes a quarter of the time of a release build; such a cargo-deny checks this workspace in seconds. Cargo
    // locks the installation folder of cargo-deny, so that two clones may install cargo-deny at the same time.
    let mut command = cargo(&["install", "--locked", "--debug", "--version", VERSION, "cargo-deny"]);
    command.arg("--root").arg(&folder).arg("--target-dir").arg(&building).env("CARGO_PROFILE_DEV_DEBUG", "0");
    let installed = run.runner.run(shown("install cargo-deny", Class::Compiling, command))?;
    if installed {
        let _ = fs::remove_dir_all(&building);
        fs::write(folder.join(STAMP), VERSION).with_context(|| format!("stamping {}", folder.display()))?;
    }
    Ok(installed)
}

/// Checks all rules of `deny.toml` for packages; `None` if cargo-deny cannot be installed.
///
/// # Errors
/// A step cannot be started.
pub(crate) fn check(run: &Run) -> Result<Option<bool>> {
    if !install(run)? {
        return Ok(None);
    }
    let rules = logged(
        "licences, bans and sources of packages",
        Class::Running,
        deny(&["check", "licenses", "bans", "sources"])?,
    );
    let advisories = logged("advisories about packages", Class::Running, itself(&["advisories"])?);
    let lanes = Lanes { steps: vec![rules, advisories], at_once: 1, is_shared: false };
    lanes::run(&run.runner, vec![lanes]).map(Some)
}

/// Runs `testrun advisories`: fetches the advisory database and checks the packages of `Cargo.lock`. Prints `skipped` if the database cannot be fetched.
/// `Ok(false)` if an advisory applies to a package.
///
/// # Errors
/// cargo-deny cannot be started.
pub(crate) fn advisories() -> Result<bool> {
    let fetched = deny(&["fetch", "db"])?.output().context("starting cargo-deny")?;
    if !fetched.status.success() {
        println!("{}", unread(&String::from_utf8_lossy(&fetched.stderr)));
        return Ok(true);
    }
    let status = deny(&["check", "advisories"])?.status().context("starting cargo-deny")?;
    Ok(status.success())
}

/// The line about an advisory database that could not be read, with the last line of cargo-deny's error output.
fn unread(message: &str) -> String {
    let why = message.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("cargo-deny gives no reason");
    format!("{UNREAD}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Counts;

    #[test]
    fn advisory_database_out_of_reach_is_counted_as_skipped() {
        let message =
            "[ERROR] failed to fetch database\n\nCaused by:\n    fatal: unable to access it: no such host\n\n";
        let counts = Counts::read(&unread(message));
        assert_eq!(
            counts.skipped,
            ["advisories: their database cannot be fetched: fatal: unable to access it: no such host"]
        );
        assert_eq!(Counts::read(&unread("")).skipped.len(), 1);
    }
}
