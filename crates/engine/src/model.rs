//! Inputs of the engine (`*Spec`, [`Delta`]) and its answers ([`Plan`]).
//!
//! Plain data with owned strings: the border of the crate. Inside, names are interned (see `world`).

mod cluster_queue;
mod flavor;
mod labels;
mod local_queue;
mod pod_set;
mod preemption;
mod quota;
mod state;
pub(crate) mod stock;
mod taints;
mod tier;
mod time;
mod workload;

use std::collections::BTreeMap;

pub use berth_quantity::{Amount, Nano};

pub use crate::answers::*;
pub use crate::model::cluster_queue::{
    ClusterQueueSpec, FlavorFungibility, Fungibility, JobLimit, Problem, StopPolicy, Strategy,
};
pub use crate::model::flavor::FlavorSpec;
pub use crate::model::labels::{Requirement, Selector, SelectorOp};
pub use crate::model::local_queue::{LedgerFigures, LocalQueueSpec};
pub use crate::model::pod_set::{PodSetAssignment, PodSetSpec};
pub use crate::model::preemption::{Preemption, PreemptionGuard, PreemptionPolicy, Preempts};
pub use crate::model::quota::{CohortSpec, FlavorQuotas, FlavorResource, Quota, ResourceGroup, WEIGHT_ONE};
pub use crate::model::state::{BeyondSpec, Blocked, Reservation, Surplus, WorkloadState};
pub use crate::model::stock::{Shape, StockOut};
pub use crate::model::taints::{Taint, TaintEffect, Toleration, TolerationOp};
pub use crate::model::tier::Tier;
pub use crate::model::time::Millis;
pub use crate::model::workload::{Replaced, WorkloadSpec};

/// One change of the outside world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// Create or replace a flavor.
    Flavor(FlavorSpec),
    /// Flavor gone.
    RemoveFlavor(String),
    /// Create or replace a cohort object.
    Cohort(CohortSpec),
    /// Cohort object gone.
    RemoveCohort(String),
    /// Create or replace a ClusterQueue.
    ClusterQueue(ClusterQueueSpec),
    /// ClusterQueue gone.
    RemoveClusterQueue(String),
    /// Create or replace a LocalQueue.
    LocalQueue(LocalQueueSpec),
    /// Recent usage of a LocalQueue (namespace, name) from its status: applied once, before the first plan.
    Ledger(String, String, LedgerFigures),
    /// LocalQueue gone (namespace, name).
    RemoveLocalQueue(String, String),
    /// Namespace labels.
    Namespace(String, BTreeMap<String, String>),
    /// Namespace gone.
    RemoveNamespace(String),
    /// Create or replace a workload.
    Workload(WorkloadSpec),
    /// Workload gone, finished or inactive (by UID): its quota is free.
    RemoveWorkload(String),
    /// Usage beyond quota has come, changed or gone.
    Beyond(BeyondSpec),
    /// A flavor is out of stock for some pods until a time.
    StockOut(StockOut),
    /// A flavor is in stock again for pods of a shape.
    InStock(String, Shape),
    /// The write of a planned admission failed: the workload is pending again (by UID).
    Forget(String),
}
