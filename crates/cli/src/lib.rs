//! The commands `berth decide`, `berth flavors` and `berth import` of Berth, which need no cluster.
//!
//! The crate `berth-cli` has no client of a cluster, so `berth import volcano --from-cluster` runs kubectl. [`Command`] lists the commands; `decide.rs`
//! implements `berth decide`, `capacity.rs` `berth flavors`, and `axlearn_quota.rs` and `volcano.rs` `berth import`.

mod axlearn_quota;
mod capacity;
mod decide;
mod flags;
mod generated;
mod volcano;

pub use flags::{DecideFlags, FlavorsFlags, ImportFlags};

use clap::Subcommand;
use flags::Import;
use std::process::ExitCode;

/// A command with its flags.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say what Berth would do with the objects in manifests, without a cluster.
    Decide(DecideFlags),
    /// Write the ResourceFlavors and ClusterQueues of a table of machine families and capacity tiers.
    Flavors(FlavorsFlags),
    /// Write manifests for what another system has.
    Import(ImportFlags),
}

impl Command {
    /// Runs the command to its end.
    ///
    /// # Errors
    /// The error is one message for the user that names the file or flag at fault.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Decide(flags) => decide::run(flags),
            Self::Flavors(flags) => capacity::run(flags).map(|()| ExitCode::SUCCESS),
            Self::Import(flags) => match &flags.what {
                Import::AxlearnQuota(flags) => axlearn_quota::run(flags).map(|()| ExitCode::SUCCESS),
                Import::Volcano(flags) => volcano::run(flags),
            },
        }
    }
}

/// A test's command line with one of the commands.
#[cfg(test)]
#[derive(Debug, clap::Parser)]
pub(crate) struct Line {
    #[command(subcommand)]
    pub(crate) command: Command,
}
