//! The steps of each target of the Makefile.

pub(crate) mod demo;
pub(crate) mod image;
pub(crate) mod inner;
pub(crate) mod night;
pub(crate) mod packages;
pub(crate) mod test;

use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use berth_testrun::folders;
use berth_testrun::programs::{self, GoModule};

use crate::budgets::{Budgets, Start};
use crate::cargo;
use crate::dependencies;
use crate::runner::Runner;
use crate::step::{Class, Output, Step};
use crate::suites::{self, Suite};

/// State of a run of `testrun` that the steps of all Makefile targets share.
pub(crate) struct Run {
    /// Runner that starts and measures commands.
    pub(crate) runner: Runner,
    /// State of Cargo's target folder and of the cache at the beginning of the run.
    pub(crate) start: Start,
    /// Time budgets of steps; the steps with the largest budgets begin first.
    pub(crate) budgets: Budgets,
}

/// File in [`logs`] in which laws write their numbers of seeds.
pub(crate) const SEEDS_FILE: &str = "seeds";

/// Folder of the logs of steps.
pub(crate) fn logs() -> PathBuf {
    cargo::target().join("testrun")
}

/// A step whose output is shown on the terminal.
pub(crate) fn shown(name: &str, class: Class, command: Command) -> Step {
    Step { name: name.to_owned(), class, command, output: Output::Shown, tests: None }
}

/// A step whose output goes to a log file; the log is shown on the terminal if the step fails.
pub(crate) fn logged(name: &str, class: Class, command: Command) -> Step {
    let log = logs().join(format!("{}.log", name.replace([' ', '/'], "-")));
    Step { name: name.to_owned(), class, command, output: Output::Logged(log), tests: None }
}

/// Command that runs `testrun` itself with the given arguments, so that the work of this command is measured as a process.
fn itself(args: &[&str]) -> Result<Command> {
    let mut command = Command::new(env::current_exe().context("the path of testrun")?);
    command.args(args);
    Ok(command)
}

/// The standard output of a command without spaces at its ends; a failed command may give an empty text.
fn output(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).current_dir(folders::repository()).output();
    Ok(String::from_utf8_lossy(&output.with_context(|| format!("starting {program}"))?.stdout).trim().to_owned())
}

/// File with the priority of a session, on a kernel that shares the processor by sessions. On a kernel that schedules by sessions, the nice value of a process
/// counts only within its session, so that without a write to this file a clone in another terminal would lose half of the machine to this process.
const SESSION_PRIORITY: &str = "/proc/self/autogroup";

/// A command with the lowest scheduling priority, in a session of its own if the kernel shares the processor by sessions.
fn in_the_background(command: &Command) -> Command {
    let mut nice = if Path::new(SESSION_PRIORITY).exists() {
        let script = format!("echo 19 > {SESSION_PRIORITY}; exec nice -n 19 \"$@\"");
        let mut session = Command::new("setsid");
        session.args(["sh", "-c", &script, "sh"]);
        session
    } else {
        let mut nice = Command::new("nice");
        nice.args(["-n", "19"]);
        nice
    };
    nice.arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    nice
}

impl Run {
    /// Fetches and builds the programs of other projects that the cache does not have.
    ///
    /// # Errors
    /// A step cannot be started.
    pub(crate) fn programs(&self, modules: &[GoModule]) -> Result<bool> {
        self.runner.expect(2 * modules.iter().filter(|module| !module.is_built()).count());
        self.missing_programs(modules)
    }

    /// Fetches and builds missing programs like [`Run::programs`], without announcing the number of steps.
    fn missing_programs(&self, modules: &[GoModule]) -> Result<bool> {
        let missing: Vec<&GoModule> = modules.iter().filter(|module| !module.is_built()).collect();
        let mut passed = true;
        for module in &missing {
            let step =
                shown(&format!("download {}", module.name), Class::Downloading, itself(&["fetch", module.name])?);
            passed &= self.runner.run(step)?;
        }
        for module in &missing {
            let step = shown(&format!("build {}", module.name), Class::Compiling, itself(&["build", module.name])?);
            passed &= self.runner.run(step)?;
        }
        Ok(passed)
    }

    /// Fetches the Go modules whose CRDs the tests read.
    fn definitions(&self) -> Result<bool> {
        self.runner.run(shown("download CRDs", Class::Downloading, itself(&["fetch", "crds"])?))
    }

    /// Builds every program and test of the workspace, and returns the test suites; `None` if the build fails.
    pub(crate) fn everything(&self) -> Result<Option<Vec<Suite>>> {
        let messages = logs().join("everything.json");
        let command = cargo::build(&["--lib", "--bins", "--tests", "--message-format=json-render-diagnostics"]);
        // Compilation runs at low priority while another clone runs end-to-end tests, which may measure times.
        let command = if is_machine_taken()? { in_the_background(&command) } else { command };
        let step = Step {
            name: "compile everything".to_owned(),
            class: Class::Compiling,
            command,
            output: Output::Read(messages.clone()),
            tests: None,
        };
        if !self.runner.run(step)? {
            return Ok(None);
        }
        suites::of(&cargo::test_programs(&messages)?).map(Some)
    }

    /// Copies the compiled dependencies into the cache if this clone's target folder began without artifacts; an earlier `make demo` may have filled this
    /// folder. The dependencies of an older target folder are not copied, because the folder may have dependencies of other lock files.
    fn keep(&self) -> Result<()> {
        if dependencies::began_with_these()? && dependencies::keep()? {
            println!("== compiled dependencies are kept for the next clone");
        }
        Ok(())
    }

    /// The step that runs a test suite.
    fn suite(&self, suite: &Suite) -> Step {
        let mut command = suite.command();
        if suite.is_end_to_end() {
            // An end-to-end test gets the path of the compiled program `berth`, so that no test builds the program again.
            command.env("BERTH_BINARY", cargo::program("berth")).env("TESTRUN_TARGET", cargo::target());
        }
        Step { tests: Some(suite.tests.len()), ..logged(&suite.name, Class::Running, command) }
    }

    /// Sorts steps by time budget, the largest first; steps without a budget come before all other steps.
    fn longest_first(&self, steps: &mut [Step]) {
        let seconds = |step: &Step| self.budgets.of(&step.name, self.start).unwrap_or(f64::INFINITY);
        steps.sort_by(|a, b| seconds(b).total_cmp(&seconds(a)));
    }
}

/// File that a clone locks while it runs end-to-end tests.
fn machine_lock() -> Result<File> {
    let path = folders::cache()?.join("end-to-end.lock");
    File::create(&path).with_context(|| format!("creating {}", path.display()))
}

/// True if another clone runs end-to-end tests now.
fn is_machine_taken() -> Result<bool> {
    Ok(machine_lock()?.try_lock().is_err())
}

/// Runs the command `testrun fetch` or `testrun build` for a Go module.
///
/// # Errors
/// The module does not exist, or cannot be fetched or built.
pub(crate) fn programs_of_others(verb: &str, name: &str) -> Result<()> {
    if name == "crds" {
        return programs::CRDS_ONLY
            .iter()
            .try_for_each(|(folder, module)| programs::module_folder(folder, module).map(drop));
    }
    let module = programs::ALL.iter().find(|module| module.name == name);
    let module = module.with_context(|| format!("there is no module {name:?}"))?;
    if verb == "fetch" { module.fetch() } else { module.ensure().map(drop) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn background_command_has_lowest_process_and_session_priority() {
        let shown = |command: &mut Command| {
            let output = command.output().expect("the command runs");
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).expect("text").trim().to_owned()
        };
        assert_eq!(shown(&mut in_the_background(&Command::new("nice"))), "19");
        if Path::new(SESSION_PRIORITY).exists() {
            let mut read = Command::new("cat");
            read.arg(SESSION_PRIORITY);
            let session = shown(&mut in_the_background(&read));
            assert!(session.ends_with(" nice 19"), "{session}");
        }
    }
}
