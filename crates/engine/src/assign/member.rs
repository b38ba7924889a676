//! A pod set to which flavors are assigned, together with the other pod sets of its group if it has one.

use crate::assign::request::{Request, count_of, requests};
use crate::quota::balance::Units;
use crate::world::ids::ResourceId;
use crate::world::store::{PodSet, Store};

/// A pod set to which flavors are assigned, together with the other pod sets of its group if it has one.
pub(super) struct Member<'a> {
    /// Index of the pod set in the workload.
    pub(super) index: usize,
    pub(super) pod_set: &'a PodSet,
    pub(super) count: i64,
    /// Requests of all pods of the pod set, sorted by resource name.
    pub(super) requests: Vec<(ResourceId, Units)>,
}

impl<'a> Member<'a> {
    pub(super) fn of(store: &Store, request: &Request<'a>, (index, pod_set): (usize, &'a PodSet)) -> Self {
        let count = count_of(request.counts, index, pod_set.spec.count);
        Member { index, pod_set, count, requests: requests(store, request.queue, pod_set, count) }
    }
}
