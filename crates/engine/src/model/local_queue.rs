//! LocalQueues, and their recent usage.

use std::collections::BTreeMap;

use crate::model::{Millis, Nano, StopPolicy};

/// A LocalQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalQueueSpec {
    /// Namespace.
    pub namespace: String,
    /// Object name.
    pub name: String,
    /// `spec.clusterQueue`.
    pub cluster_queue: String,
    /// `spec.stopPolicy`.
    pub stop: StopPolicy,
    /// Weight of the LocalQueue in admission fair sharing (`fairSharing.weight`), in nano units.
    pub weight: i64,
}

/// Recent usage of a LocalQueue under admission fair sharing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerFigures {
    /// Recent usage by resource (`consumedResources`), in billionths of a unit of the resource, because usage that decays becomes smaller than any unit.
    pub consumed: BTreeMap<String, Nano>,
    /// `lastUpdate`.
    pub at: Millis,
}
