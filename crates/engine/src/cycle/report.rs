//! Results of scheduling cycles, collected for a plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::assign::assignment::Given;
use crate::explain::why::Finding;
use crate::model::{Admission, Eviction, PodSetAssignment};
use crate::world::ids::{ClassId, NodeId, QueueId, WorkloadId};

/// Results of the cycles of a plan, collected for the plan.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) admissions: Vec<Admission>,
    pub(crate) evictions: Vec<Eviction>,
    /// The last reason why each workload was not admitted.
    pub(crate) findings: FxHashMap<WorkloadId, Finding>,
    pub(crate) leading: Vec<WorkloadId>,
    /// Number of heads that the cycles tried.
    pub(crate) heads: u64,
    /// Roots of cohort trees in which the last cycle changed something, or in which a head was not processed.
    pub(crate) moved: BTreeSet<NodeId>,
    /// Roots of cohort trees in which a head continues with the next flavor, each with the number of scans that the head may make.
    pub(crate) scanning: BTreeMap<NodeId, usize>,
    /// Heads that stay first in their queues and hold up the workloads behind them, although they neither wait for victims nor are in a strict queue, by root
    /// of the cohort tree.
    pub(crate) held_up: BTreeMap<NodeId, Vec<(QueueId, WorkloadId)>>,
    /// Last assignment of each class of equals, by ids and in words.
    pub(crate) given: FxHashMap<ClassId, (Vec<Given>, Arc<[PodSetAssignment]>)>,
    /// Number of heads that needed preemption and lost against other heads, by queue, for metrics.
    pub(crate) skipped_preemptions: BTreeMap<QueueId, u32>,
    /// Number of searches for victims that were repeated because earlier heads had taken victims, by queue and result.
    pub(crate) recomputed: BTreeMap<(QueueId, &'static str), u32>,
}
