//! The claim of a preemptor as data; `cycle/claims.rs` makes and uses it.

use std::sync::Arc;

use crate::world::ids::{FlavorId, ResourceId};

/// Flavors to which a repeated assignment is held, per pod set.
pub(crate) type Pins = Vec<Vec<(ResourceId, FlavorId)>>;

/// The assignment that a workload issued preemptions for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Pods of each pod set: fewer than asked for under partial admission.
    pub(crate) counts: Vec<i64>,
    pub(crate) pins: Pins,
    pub(crate) leavers: Vec<Leaver>,
}

/// A workload that was evicted or gives up pods. It is named by uid because ids are reused for other workloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaver {
    pub(crate) uid: Arc<str>,
    pub(crate) reason: &'static str,
    pub(crate) gives_up: Option<i64>,
}
