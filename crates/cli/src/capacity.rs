//! `berth flavors`: a small table of machine families and capacity tiers becomes the ResourceFlavors of every pair, and the
//! ClusterQueues with their quotas.
//!
//! Where to start reading: `table.rs` for the form of a table, then `flavors.rs` and `queues.rs`.

pub(crate) mod clouds;
pub(crate) mod flavors;
pub(crate) mod queues;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use crate::flags::FlavorsFlags;
use crate::generated;
use anyhow::anyhow;
use flavors::Capacity;
use serde_json::Value;

/// Reads, makes, writes.
pub(crate) fn run(flags: &FlavorsFlags) -> anyhow::Result<()> {
    let (name, text) = generated::source(&flags.file)?;
    let manifests = manifests(&name, &text).map_err(|error| anyhow!("{}: {error:#}", flags.file.display()))?;
    generated::deliver(&manifests, flags.output.as_deref())
}

/// The manifests of the table in a file.
///
/// # Errors
/// One sentence with the line and the field, the value and what is allowed.
pub(crate) fn manifests(name: &str, text: &str) -> anyhow::Result<String> {
    let objects = objects(text).map_err(|fault| anyhow!(fault))?;
    generated::documents(&[format!("Made by `berth flavors` of {name}: change that, and make this anew.")], objects)
}

/// Flavors, then queues.
fn objects(text: &str) -> Result<Vec<Value>, String> {
    let table = table::read(text)?;
    let capacity = Capacity::of(&table)?;
    let queues = queues::cluster_queues(&capacity)?;
    Ok(capacity.flavors.into_iter().chain(queues).collect())
}
