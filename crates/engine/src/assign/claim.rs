//! The claim of a preemptor as data: the assignment for which the preemptor issued preemptions. The file `cycle/claims.rs` makes and uses claims.

use std::sync::Arc;

use crate::world::ids::{FlavorId, ResourceId};

/// The only flavors that a repeated assignment may use, for each pod set.
pub(crate) type Pins = Vec<Vec<(ResourceId, FlavorId)>>;

/// The assignment for which a workload issued preemptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Number of pods of each pod set: fewer pods than requested under partial admission.
    pub(crate) counts: Vec<i64>,
    pub(crate) pins: Pins,
    pub(crate) leavers: Vec<Leaver>,
}

/// A victim of a preemption: a workload that was evicted or gives up pods. A `Leaver` names the workload by uid, because ids are reused for other workloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaver {
    pub(crate) uid: Arc<str>,
    pub(crate) reason: &'static str,
    pub(crate) gives_up: Option<i64>,
}
