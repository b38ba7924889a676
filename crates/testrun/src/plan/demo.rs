//! `make demo` and `make decide`: the first commands of a newcomer.

use std::env;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use berth_testrun::folders;
use berth_testrun::programs::CONTROL_PLANE;

use super::{Run, logs, shown};
use crate::cargo::{self, program};
use crate::step::Class;
use crate::table;

/// Files of the example `examples/quickstart`, in the order in which they are applied.
const QUICKSTART: [&str; 3] = ["01-flavors.yaml", "02-queues.yaml", "03-jobs.yaml"];

/// Prints Berth's decisions on the quickstart's manifests, without a cluster.
///
/// # Errors
/// A step cannot be started.
pub(crate) fn decide(run: &Run) -> Result<bool> {
    run.runner.expect(2);
    if !run.runner.run(shown("compile berth", Class::Compiling, cargo::build(&["--bin", "berth"])))? {
        return Ok(false);
    }
    let mut command = Command::new(program("berth"));
    command.args(["decide", "-f"]).current_dir(folders::repository());
    command.args(QUICKSTART.map(|file| format!("examples/quickstart/{file}")));
    println!("\n$ berth decide -f examples/quickstart/*.yaml");
    run.runner.run(shown("decide the quickstart offline", Class::Running, command))
}

/// Runs `make demo` until the demo ends or the user presses Ctrl-C.
///
/// # Errors
/// A step cannot be started.
pub(crate) fn demo(run: &Run) -> Result<bool> {
    // Two steps compile and run the demo; two more steps fetch and build the control plane if the cache does not have it.
    run.runner.expect(if CONTROL_PLANE.is_built() { 2 } else { 4 });
    let mut passed = decide(run)?;
    passed &= run.missing_programs(&[CONTROL_PLANE])?;
    passed &= run.runner.run(shown("compile the demo", Class::Compiling, cargo::build(&["--bin", "demo"])))?;
    if !passed {
        return Ok(false);
    }
    let steps = logs().join("steps.txt");
    fs::create_dir_all(logs()).with_context(|| format!("creating {}", logs().display()))?;
    fs::write(&steps, table::table(&run.runner.lines(), run.runner.cores(), run.runner.so_far()))
        .with_context(|| format!("writing {}", steps.display()))?;
    let mut command = Command::new(program("demo"));
    command.env("BERTH_BINARY", program("berth")).env("DEMO_STEPS", steps);
    for name in ["DEMO_ONCE", "DEMO_KUBECONFIG"] {
        if let Some(value) = env::var_os(name) {
            command.env(name, value);
        }
    }
    run.runner.run(shown("demo", Class::Running, command))
}
