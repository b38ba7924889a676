//! The program `berth`: the manager, and commands that need no cluster. The program `berth` has no other logic.
//!
//! The manager is only in the program if the feature `manager` is on, which is the default. Where to start reading: the crate `berth-manager` for the
//! manager, the crate `berth-cli` for the other commands.

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

/// Switches off transparent huge pages, for which the allocator asks: with huge pages, a heap of ten megabytes took twenty megabytes. `keep_to_small_pages` is
/// called before everything else, because the kernel keeps the huge pages that exist already.
#[cfg(target_os = "linux")]
fn keep_to_small_pages() {
    // If the kernel cannot switch off huge pages, the program runs with them.
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
