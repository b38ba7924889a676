//! The shipped binary: the manager, and commands that need no cluster. Otherwise no logic.
//!
//! The feature `manager`, which is on by default, is all that brings the manager in. Where to start reading: `berth-manager` for the manager,
//! `berth-cli` for the other commands.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Berth: admission of batch jobs by quota, in Kueue's API.
#[derive(Debug, Parser)]
#[command(name = "berth", version, about, propagate_version = true)]
#[cfg_attr(not(feature = "manager"), command(after_help = "This program was built without its feature `manager`."))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
#[cfg_attr(feature = "manager", expect(clippy::large_enum_variant, reason = "there is one of it, for a moment"))]
enum Command {
    /// Run the operator.
    #[cfg(feature = "manager")]
    Manager(berth_manager::ManagerFlags),
    #[command(flatten)]
    Offline(berth_cli::Command),
}

fn main() -> ExitCode {
    keep_to_small_pages();
    let done = match Cli::parse().command {
        #[cfg(feature = "manager")]
        Command::Manager(flags) => berth_manager::run(&flags).map(|()| ExitCode::SUCCESS),
        Command::Offline(command) => command.run(),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("berth: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Switches transparent huge pages off, which the allocator asks for: with them a heap of ten megabytes took twenty. It runs first of all,
/// since a huge page that exists stays.
#[cfg(target_os = "linux")]
fn keep_to_small_pages() {
    // A kernel that cannot do without them is no reason to stop.
    let _done = rustix::thread::disable_transparent_huge_pages(true);
}

#[cfg(not(target_os = "linux"))]
fn keep_to_small_pages() {}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_lists_the_manager_only_with_its_feature() {
        let command = Cli::command();
        command.clone().debug_assert();
        let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        let manager = cfg!(feature = "manager").then_some("manager");
        let wanted: Vec<&str> = manager.into_iter().chain(["decide", "flavors", "import"]).collect();
        assert_eq!(names, wanted);
    }
}
