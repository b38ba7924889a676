//! Results of cycles, for the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::assign::assignment::Given;
use crate::explain::why::Finding;
use crate::model::{Admission, Eviction, PodSetAssignment};
use crate::world::ids::{ClassId, NodeId, QueueId, WorkloadId};

/// Results of cycles, for the plan.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) admissions: Vec<Admission>,
    pub(crate) evictions: Vec<Eviction>,
    /// Last finding per workload, with the order in which they came.
    pub(crate) findings: FxHashMap<WorkloadId, Finding>,
    pub(crate) leading: Vec<WorkloadId>,
    /// Number of heads that were looked at.
    pub(crate) heads: u64,
    /// Roots where something moved in the last cycle, or a head had no turn.
    pub(crate) moved: BTreeSet<NodeId>,
    /// Roots where a head goes on with the next flavor, each with the number of scans that it may make.
    pub(crate) scanning: BTreeMap<NodeId, usize>,
    /// By root: heads that stay first in queues although the workloads behind them should not have to wait.
    pub(crate) held_up: BTreeMap<NodeId, Vec<(QueueId, WorkloadId)>>,
    /// Last assignment of each class, by id and in words.
    pub(crate) given: FxHashMap<ClassId, (Vec<Given>, Arc<[PodSetAssignment]>)>,
    /// Heads that lost against others with their victims: skips per queue, for metrics.
    pub(crate) skipped_preemptions: BTreeMap<QueueId, u32>,
    /// Searches repeated because victims were taken already: queue and result.
    pub(crate) recomputed: BTreeMap<(QueueId, &'static str), u32>,
}
