//! Inputs of the engine (`*Spec`, [`Delta`]) and its answers ([`Plan`]).
//!
//! The types of the module `model` are plain data with owned strings, because callers of the engine use them. Inside the engine, names of objects are interned
//! (module `world`).

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

/// A change outside of the engine, for example of an object in the cluster, that [`World::apply`](crate::World::apply) takes in.
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
    /// Recent usage of a LocalQueue (namespace, name), read from the LocalQueue's status: applied once, before the first plan.
    Ledger(String, String, LedgerFigures),
    /// The LocalQueue with this namespace and name is gone.
    RemoveLocalQueue(String, String),
    /// Namespace labels.
    Namespace(String, BTreeMap<String, String>),
    /// Namespace gone.
    RemoveNamespace(String),
    /// A text that no tenant knows or chooses and that stays the same for the life of the cluster: it salts the order of equal workloads
    /// (`docs/departures/0035-equal-times.md`). A new salt orders all workloads anew, so its cost is the number of all workloads; a salt that is known already
    /// costs nothing.
    TieSalt(String),
    /// Create or replace a workload.
    Workload(WorkloadSpec),
    /// The workload with this UID is gone, finished or inactive: its quota is free.
    RemoveWorkload(String),
    /// Usage beyond quota of a job has begun, changed or ended.
    Beyond(BeyondSpec),
    /// A flavor is out of stock until a time, for pods of a shape.
    StockOut(StockOut),
    /// A flavor is in stock again for pods of a shape.
    InStock(String, Shape),
    /// The write of a planned admission or eviction failed: the engine cancels the plan about the workload with this UID.
    Forget(String),
    /// The preemptor of the workload with this UID is gone, and the eviction was not written: the engine cancels the planned eviction, and keeps a planned
    /// admission of the workload, whose write may have been applied.
    Spare(String),
}
