//! `berth flavors` turns a small table of machine families and capacity tiers into a ResourceFlavor for every family in every tier, and into ClusterQueues with
//! their quotas.
//!
//! `table.rs` defines the form of a table; `flavors.rs` and `queues.rs` make the objects.

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

/// Reads a capacity table, and writes the manifests made of the table.
pub(crate) fn run(flags: &FlavorsFlags) -> anyhow::Result<()> {
    let (name, text) = generated::source(&flags.file)?;
    let manifests = manifests(&name, &text).map_err(|error| anyhow!("{}: {error:#}", flags.file.display()))?;
    generated::deliver(&manifests, flags.output.as_deref())
}

/// The manifests made of the text of a capacity table.
///
/// # Errors
/// The error is one sentence with the line and the field, the value and what is allowed.
pub(crate) fn manifests(name: &str, text: &str) -> anyhow::Result<String> {
    let objects = objects(text).map_err(|fault| anyhow!(fault))?;
    generated::documents(&[format!("Made by `berth flavors` of {name}: change that, and make this anew.")], objects)
}

/// The objects made of a capacity table, of which the ResourceFlavors come before the ClusterQueues.
fn objects(text: &str) -> Result<Vec<Value>, String> {
    let table = table::read(text)?;
    let capacity = Capacity::of(&table)?;
    let queues = queues::cluster_queues(&capacity)?;
    Ok(capacity.flavors.into_iter().chain(queues).collect())
}
