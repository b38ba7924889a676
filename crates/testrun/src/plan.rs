//! The steps of `make test` and `make demo`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::cargo::{self, cargo};
use crate::runner::{Class, Output, Runner, Step};

const BUILD: [&str; 4] = ["build", "--locked", "--workspace", "--examples"];

fn shown(name: &str, class: Class, command: Command) -> Step {
    Step { name: name.to_owned(), class, command, output: Output::Shown }
}

fn build(runner: &Runner, program: &str) -> Result<bool> {
    let mut args = BUILD.to_vec();
    args.extend(["--bin", program]);
    runner.run(shown(&format!("compile {program}"), Class::Compiling, cargo(&args)))
}

fn program(name: &str) -> Command {
    Command::new(cargo::programs().join(name))
}

fn logs() -> PathBuf {
    cargo::target().join("testrun")
}

fn tests(runner: &Runner, name: &str, args: &[&str], nocapture: bool) -> Result<bool> {
    let messages = logs().join(format!("{name}.json"));
    let mut all = vec!["test", "--locked", "--workspace", "--no-run", "--message-format=json-render-diagnostics"];
    all.extend(args);
    let step = Step {
        name: format!("compile {name}"),
        class: Class::Compiling,
        command: cargo(&all),
        output: Output::Read(messages.clone()),
    };
    if !runner.run(step)? {
        return Ok(false);
    }
    let mut passed = true;
    for program in cargo::test_programs(&messages)? {
        let mut command = program.command();
        if nocapture {
            command.arg("--nocapture");
        }
        let output = Output::Logged(logs().join(format!("{}.log", program.name().replace(' ', "-"))));
        passed &= runner.run(Step { name: program.name(), class: Class::Running, command, output })?;
    }
    Ok(passed)
}

fn go_modules(runner: &Runner) -> Result<bool> {
    let mut passed = true;
    for module in ["controlplane", "jobset", "helm", "prometheus", "gcs"] {
        let mut command = Command::new("sh");
        command.args(["-c", "exec go list -deps tool >/dev/null"]).current_dir(format!("e2e/{module}"));
        passed &= runner.run(shown(&format!("download {module}"), Class::Downloading, command))?;
    }
    Ok(passed)
}

fn names(folders: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for folder in folders {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_test = path.extension().is_some_and(|e| e == "rs") || path.join("main.rs").is_file();
            if let Some(stem) = path.file_stem().filter(|_| is_test) {
                found.extend(["--test".to_owned(), stem.to_string_lossy().into_owned()]);
            }
        }
    }
    found
}

/// Everything that a change must pass.
pub(crate) fn test(runner: &Runner) -> Result<bool> {
    let mut passed = build(runner, "xtask")?;
    let mut tidy = program("xtask");
    tidy.arg("tidy");
    passed &= runner.run(shown("house rules", Class::Running, tidy))?;
    passed &= runner.run(shown("format", Class::Running, cargo(&["fmt", "--all", "--check"])))?;
    let clippy = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
    passed &= runner.run(shown("clippy", Class::Compiling, cargo(&clippy)))?;
    let crates: Vec<String> = std::fs::read_dir("crates")?
        .flatten()
        .map(|entry| entry.path().join("tests").display().to_string())
        .collect();
    let folders: Vec<&str> = crates.iter().map(String::as_str).collect();
    let names_of_tests = names(&folders);
    let mut args = vec!["--lib", "--bins"];
    args.extend(names_of_tests.iter().map(String::as_str));
    passed &= tests(runner, "unit tests", &args, false)?;
    let doctests = Step {
        name: "doctests".to_owned(),
        class: Class::Compiling,
        command: cargo(&["test", "--locked", "--workspace", "--doc"]),
        output: Output::Logged(logs().join("doctests.log")),
    };
    passed &= runner.run(doctests)?;
    passed &= build(runner, "berth-testkit")?;
    let cases = ["conformance", "../shared/conformance", "--known"];
    let mut letter = program("berth-testkit");
    letter.args(cases).arg("crates/testkit/known-differences.txt");
    passed &= runner.run(shown("conformance to the letter", Class::Running, letter))?;
    let mut shipped = program("berth-testkit");
    shipped.args(cases).args(["crates/testkit/differences-as-shipped.txt", "--as-shipped"]);
    passed &= runner.run(shown("conformance as shipped", Class::Running, shipped))?;
    passed &= control_plane(runner)?;
    let suites = names(&["e2e/tests"]);
    let args: Vec<&str> = suites.iter().map(String::as_str).collect();
    passed &= tests(runner, "end-to-end tests", &args, true)?;
    passed &= build(runner, "demo")?;
    let mut once = program("demo");
    once.env("DEMO_ONCE", "1");
    passed &= runner.run(shown("demo", Class::Running, once))?;
    Ok(passed)
}

fn control_plane(runner: &Runner) -> Result<bool> {
    let mut passed = build(runner, "berth")?;
    passed &= build(runner, "controlplane")?;
    passed &= go_modules(runner)?;
    passed &= runner.run(shown("build control plane", Class::Compiling, program("controlplane")))?;
    Ok(passed)
}

/// The demo once.
pub(crate) fn demo(runner: &Runner) -> Result<bool> {
    let mut passed = control_plane(runner)?;
    passed &= build(runner, "demo")?;
    let mut once = program("demo");
    once.env("DEMO_ONCE", "1");
    passed &= runner.run(shown("demo", Class::Running, once))?;
    Ok(passed)
}
