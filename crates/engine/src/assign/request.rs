//! Requests for flavors, and the amounts that are requested.

use crate::assign::claim::Pins;
use crate::assign::mode::PreemptionPossibility;
use crate::model::Tier;
use crate::options::Options;
use crate::quota::balance::{INF, Units};
use crate::quota::tree::Tree;
use crate::world::ids::{CellId, FlavorId, QueueId, ResourceId};
use crate::world::slices::older::Older;
use crate::world::store::{PodSet, Progress, Queue, Store, Workload};

/// Search for victims for one quota cell: the arguments give the amount that is wanted in the cell, and the result is the possibility and the borrowing level
/// afterwards.
pub(crate) type Oracle<'o> = dyn FnMut(&Store, &mut Tree, CellId, Units) -> (PreemptionPossibility, u32) + 'o;

/// A request for flavors.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) queue: &'a Queue,
    pub(crate) pod_sets: &'a [PodSet],
    /// Number of pods of each pod set if partial admission reduces the workload; `None` for all pods.
    pub(crate) counts: Option<&'a [i64]>,
    pub(crate) progress: Option<&'a Progress>,
    pub(crate) pins: Option<&'a Pins>,
    /// The workload slice that this workload replaces: the quota of the old slice is held already, and only its flavors may be given.
    pub(crate) replaced: Option<&'a Older>,
    /// The only flavors that the workload may be given.
    pub(crate) allowed: Option<&'a [FlavorId]>,
    /// The tiers that the workload accepts, the best tier first.
    pub(crate) tiers: Option<&'a [Tier]>,
    pub(crate) options: &'a Options,
}

impl<'a> Request<'a> {
    /// The request of a workload in full size in a queue, which is scanned from the first flavor on.
    pub(crate) fn of(store: &'a Store, options: &'a Options, workload: &Workload, queue: QueueId) -> Self {
        let class = &store.classes[workload.class];
        Self {
            queue: &store.queues[queue],
            pod_sets: &class.pod_sets,
            counts: None,
            progress: None,
            pins: None,
            replaced: store.grows_from(workload, queue),
            allowed: class.allowed.as_deref(),
            tiers: class.tiers.as_deref(),
            options,
        }
    }
}

/// Number of pods of a pod set that are requested: all pods if `counts` is `None`.
pub(crate) fn count_of(counts: Option<&[i64]>, index: usize, all: i64) -> i64 {
    counts.and_then(|counts| counts.get(index)).copied().unwrap_or(all)
}

/// Request of `count` pods, each of which requests `one`.
pub(crate) fn of_all(one: Units, count: i64) -> Units {
    one.saturating_mul(Units::from(count)).clamp(0, INF)
}

/// Requests of `count` pods, sorted by resource name; with the resource `pods` if the queue covers it.
pub(crate) fn requests(store: &Store, queue: &Queue, pod_set: &PodSet, count: i64) -> Vec<(ResourceId, Units)> {
    let mut requests: Vec<(ResourceId, Units)> =
        pod_set.requests.iter().map(|(resource, one)| (*resource, of_all(*one, count))).collect();
    if queue.group_of(store.pods).is_some() {
        requests.retain(|(resource, _)| *resource != store.pods);
        requests.push((store.pods, Units::from(count)));
        requests.sort_by(|a, b| store.resource(a.0).cmp(store.resource(b.0)));
    }
    requests
}
