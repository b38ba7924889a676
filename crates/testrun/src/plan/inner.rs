//! `make unit` and `make scenario`: the unit tests of one crate, or some end-to-end scenarios.

use anyhow::{Result, ensure};
use berth_testrun::programs::CONTROL_PLANE;

use super::{Run, shown};
use crate::cargo::{self, cargo};
use crate::step::Class;

/// Runs the unit tests of one library.
///
/// # Errors
/// The repository has no crate of this name.
pub(crate) fn unit(run: &Run, of: &str) -> Result<bool> {
    let folder = berth_testrun::folders::repository().join("crates").join(of);
    ensure!(folder.is_dir(), "OF={of}: there is no crates/{of}");
    let package = format!("berth-{of}");
    run.runner.run(shown(
        &format!("unit tests of {of}"),
        Class::Running,
        cargo(&["test", "--locked", "-p", &package, "--lib"]),
    ))
}

/// Runs the scenarios of one end-to-end suite; only the scenarios whose names contain a given text run.
///
/// # Errors
/// A step cannot be started.
pub(crate) fn scenario(run: &Run, suite: &str, scenario: &str) -> Result<bool> {
    let mut passed = run.programs(&[CONTROL_PLANE])?;
    let step = shown("compile", Class::Compiling, cargo::build(&["--bin", "berth", "--test", "e2e"]));
    passed &= run.runner.run(step)?;
    let ran = cargo::target().join("testrun/scenarios");
    std::fs::create_dir_all(cargo::target().join("testrun"))?;
    let _ = std::fs::remove_file(&ran);
    let mut command =
        cargo(&["test", "--locked", "--workspace", "--test", "e2e", "--", &format!("{suite}::"), "--nocapture"]);
    command.env("SCENARIO", scenario).env("SCENARIO_RAN", &ran).env("BERTH_BINARY", cargo::program("berth"));
    passed &= run.runner.run(shown(&format!("scenarios of {suite}"), Class::Running, command))?;
    let any = std::fs::metadata(&ran).is_ok_and(|file| file.len() > 0);
    ensure!(any || scenario.is_empty() || !passed, "no scenario of {suite} is called like {scenario:?}");
    Ok(passed)
}
