//! The pending workloads of one ClusterQueue, kept by class of equals. A class of equals is parked and woken as a unit, so the cost of a wake-up is the number
//! of classes, not the number of workloads. Under admission fair sharing each LocalQueue has a lane of its own, and the lane with the lowest usage goes first;
//! without admission fair sharing, all workloads are in lane 0.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::PendingReason;
use crate::queue::key::Key;
use crate::queue::sorted::Sorted;
use crate::world::ids::{ClassId, WorkloadId};

/// A member of a class of equals, with its key in the order of the queue.
pub(crate) type Member = (Key, WorkloadId);

/// Members of a class of equals that came, or were tried, after a plan had reported the reason to wait for all members; in most cases there is no such member
/// or only one.
#[derive(Debug, Default)]
pub(crate) enum Unannounced {
    #[default]
    Nobody,
    One(WorkloadId),
    #[expect(clippy::box_collection, reason = "rare, and it would make every class larger")]
    Many(Box<BTreeSet<WorkloadId>>),
}

impl Unannounced {
    fn insert(&mut self, workload: WorkloadId) {
        match self {
            Self::Nobody => *self = Self::One(workload),
            Self::One(one) if *one == workload => {}
            Self::One(one) => *self = Self::Many(Box::new(BTreeSet::from([*one, workload]))),
            Self::Many(many) => {
                many.insert(workload);
            }
        }
    }

    fn remove(&mut self, workload: WorkloadId) {
        match self {
            Self::One(one) if *one == workload => *self = Self::Nobody,
            Self::Nobody | Self::One(_) => {}
            Self::Many(many) => {
                many.remove(&workload);
            }
        }
    }

    fn into_ids(self) -> Vec<WorkloadId> {
        match self {
            Self::Nobody => Vec::new(),
            Self::One(one) => vec![one],
            Self::Many(many) => many.into_iter().collect(),
        }
    }
}

/// Members of one class of equals in one queue.
#[derive(Debug, Default)]
pub(crate) struct ClassQueue {
    /// Members of the class of equals by lane (LocalQueue); a lane without members is left out.
    lanes: Vec<(u32, Sorted<Member>)>,
    /// The reason why the class of equals is parked: an equal workload was found not to fit, and nothing has changed since; `None` while the class is active.
    pub(crate) parked: Option<PendingReason>,
    /// Message to the member of the class of equals that did not fit, so that the class was parked.
    pub(crate) why: Option<Arc<str>>,
    /// Members of the class of equals that came, or were tried, after a plan had reported the reason `announced` for all members.
    unannounced: Unannounced,
    /// Reason to wait that a plan has reported for all members of the class of equals except the members in `unannounced`.
    pub(crate) announced: Option<PendingReason>,
}

impl ClassQueue {
    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.lanes.iter().flat_map(|(_, members)| members.iter())
    }

    pub(crate) fn len(&self) -> usize {
        self.lanes.iter().map(|(_, members)| members.len()).sum()
    }

    fn firsts(&self) -> impl Iterator<Item = (u32, &Member)> {
        self.lanes.iter().filter_map(|(lane, members)| Some((*lane, members.first()?)))
    }

    fn first(&self, lane: u32) -> Option<&Member> {
        self.lanes.iter().find(|(known, _)| *known == lane).and_then(|(_, members)| members.first())
    }
}

/// First member of each active class of equals, by lane (LocalQueue).
#[derive(Debug, Default)]
struct Heads {
    /// Heads of lane 0, the lane without admission fair sharing: they are kept apart because they need no look-up of the lane.
    shared: BTreeMap<Member, ClassId>,
    /// Heads of other lanes.
    others: BTreeMap<u32, BTreeMap<Member, ClassId>>,
}

impl Heads {
    fn insert(&mut self, lane: u32, member: Member, class: ClassId) {
        let heads = if lane == 0 { &mut self.shared } else { self.others.entry(lane).or_default() };
        heads.insert(member, class);
    }

    fn lanes(&self) -> impl Iterator<Item = (u32, &BTreeMap<Member, ClassId>)> {
        std::iter::once((0, &self.shared)).chain(self.others.iter().map(|(lane, heads)| (*lane, heads)))
    }

    /// Makes a parked class of equals active: its first members become heads. Returns true if the class of equals was parked.
    fn wake(&mut self, class: ClassId, queue: &mut ClassQueue) -> bool {
        queue.why = None;
        let parked = queue.parked.take().is_some();
        if parked {
            for (lane, first) in queue.firsts() {
                self.insert(lane, first.clone(), class);
            }
        }
        parked
    }

    fn remove(&mut self, lane: u32, member: &Member) {
        let heads = if lane == 0 { Some(&mut self.shared) } else { self.others.get_mut(&lane) };
        if let Some(heads) = heads {
            // The entry of a LocalQueue's lane without heads is kept, because the lane gets heads again in most cases.
            heads.remove(member);
        }
    }
}

/// Pending workloads of a queue.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    heads: Heads,
    pub(crate) classes: BTreeMap<ClassId, ClassQueue>,
    pub(crate) solo: BTreeSet<WorkloadId>,
    pub(crate) mismatched: BTreeSet<WorkloadId>,
    /// Parked classes of equals that may fit after other workloads were admitted (see `World::is_fickle`).
    pub(crate) fickle: BTreeSet<ClassId>,
    /// Number of all pending workloads that name the queue and are counted in it.
    pub(crate) total: u32,
    /// The workload that waits for its victims and goes first in the queue.
    pub(crate) sticky: Option<WorkloadId>,
    /// The workload that issued preemptions last, under any queueing strategy.
    pub(crate) preemptor: Option<WorkloadId>,
    /// Change counter (epoch) of the cohort tree at the last wake-up of the queue.
    pub(crate) epoch: u64,
    /// Change counter (epoch) of the cohort tree when a head was last taken without a cycle, so that later changes were not taken into account for the head.
    pub(crate) taken_at: Option<u64>,
}

impl Pending {
    /// Adds a member to its class of equals.
    pub(crate) fn push(&mut self, class: ClassId, lane: u32, key: Key, workload: WorkloadId) {
        let queue = self.classes.entry(class).or_default();
        queue.unannounced.insert(workload);
        if let Some(first) = queue.first(lane) {
            self.heads.remove(lane, first);
        }
        match queue.lanes.iter_mut().find(|(known, _)| *known == lane) {
            Some((_, members)) => members.insert((key, workload)),
            None => {
                queue.lanes.reserve_exact(1);
                let mut members = Sorted::default();
                members.insert((key, workload));
                queue.lanes.push((lane, members));
            }
        }
        if queue.parked.is_none()
            && let Some(first) = queue.first(lane)
        {
            self.heads.insert(lane, first.clone(), class);
        }
    }

    /// Records that a member of a class of equals was tried and stays in the class.
    pub(crate) fn stay(&mut self, class: ClassId, workload: WorkloadId) {
        if let Some(queue) = self.classes.get_mut(&class) {
            queue.unannounced.insert(workload);
        }
    }

    /// Takes a member out of its class of equals.
    pub(crate) fn take(&mut self, class: ClassId, lane: u32, key: Key, workload: WorkloadId) {
        let Some(queue) = self.classes.get_mut(&class) else { return };
        if let Some(first) = queue.first(lane) {
            self.heads.remove(lane, first);
        }
        let member = (key, workload);
        if let Some(at) = queue.lanes.iter().position(|(known, _)| *known == lane)
            && let Some((_, members)) = queue.lanes.get_mut(at)
        {
            members.remove(&member);
            if members.is_empty() {
                queue.lanes.remove(at);
            }
        }
        queue.unannounced.remove(workload);
        if queue.parked.is_none()
            && let Some(first) = queue.first(lane)
        {
            self.heads.insert(lane, first.clone(), class);
        }
        // The entry of a class of equals without members is removed, because the id of the class is reused for another class.
        if queue.lanes.is_empty() {
            self.classes.remove(&class);
            self.fickle.remove(&class);
        }
    }

    /// Forgets a preemptor that was admitted, changed or is gone.
    pub(crate) fn forget_preemptor(&mut self, workload: WorkloadId) {
        self.sticky = self.sticky.filter(|id| *id != workload);
        self.preemptor = self.preemptor.filter(|id| *id != workload);
    }

    /// The first active workload of each lane (LocalQueue).
    pub(crate) fn heads(&self) -> impl Iterator<Item = (u32, &Member)> {
        self.heads.lanes().filter_map(|(lane, heads)| Some((lane, heads.first_key_value()?.0)))
    }

    pub(crate) fn has_heads(&self) -> bool {
        self.heads.lanes().any(|(_, heads)| !heads.is_empty())
    }

    /// Whether a class of equals is active: not parked, and with an entry in the queue.
    pub(crate) fn is_active(&self, class: ClassId) -> bool {
        self.classes.get(&class).is_some_and(|queue| queue.parked.is_none())
    }

    /// Parks a class of equals. Returns the members of the class of equals for which the plan still has to report the reason `reason`.
    pub(crate) fn park(&mut self, class: ClassId, reason: PendingReason) -> Vec<WorkloadId> {
        let queue = self.classes.entry(class).or_default();
        for (lane, first) in queue.firsts() {
            self.heads.remove(lane, first);
        }
        queue.parked = Some(reason);
        queue.why = None;
        if queue.announced == Some(reason) {
            return std::mem::take(&mut queue.unannounced).into_ids();
        }
        queue.announced = Some(reason);
        queue.unannounced = Unannounced::Nobody;
        queue.members().map(|(_, workload)| *workload).collect()
    }

    /// Keeps the message to one member of a parked class of equals for the other members of the class.
    pub(crate) fn note_verdict_of_equals(&mut self, class: ClassId, reason: PendingReason, message: &Arc<str>) {
        if let Some(queue) = self.classes.get_mut(&class).filter(|queue| queue.parked == Some(reason)) {
            queue.why = Some(Arc::clone(message));
        }
    }

    /// Parks a class of equals without a report of the reason to its members, because the class is woken before the plan ends; returns true if the class was
    /// active.
    pub(crate) fn pass_over(&mut self, class: ClassId) -> bool {
        let Some(queue) = self.classes.get_mut(&class).filter(|queue| queue.parked.is_none()) else { return false };
        for (lane, first) in queue.firsts() {
            self.heads.remove(lane, first);
        }
        queue.parked = Some(PendingReason::WaitingForQuota);
        true
    }

    /// Makes every parked class of equals active; returns true if there was a parked class.
    pub(crate) fn wake_classes(&mut self) -> bool {
        self.fickle.clear();
        let heads = &mut self.heads;
        let (mut woken, mut is_empty) = (false, false);
        for (class, queue) in &mut self.classes {
            woken |= heads.wake(*class, queue);
            is_empty |= queue.lanes.is_empty();
        }
        if is_empty {
            self.classes.retain(|_, queue| !queue.lanes.is_empty());
        }
        woken
    }

    /// Makes a class of equals active, if it is parked.
    pub(crate) fn wake_class(&mut self, class: ClassId) {
        self.fickle.remove(&class);
        if let Some(queue) = self.classes.get_mut(&class) {
            self.heads.wake(class, queue);
        }
    }

    /// Number of workloads of the queue that will be tried.
    pub(crate) fn active(&self) -> u32 {
        let active: usize = self.classes.values().filter(|queue| queue.parked.is_none()).map(ClassQueue::len).sum();
        u32::try_from(active).unwrap_or(u32::MAX)
    }
}
