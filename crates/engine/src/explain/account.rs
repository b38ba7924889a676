//! The full account of a workload: per flavor and resource what it asks for and what is there, who holds the rest, why they may
//! or may not be preempted for it, and what would help. The condition's message is its short form.

mod cells;
mod obstacle;
mod rights;

use crate::assign::assignment::{Assignment, Mode};
use crate::cycle::nominate::Nominator;
use crate::model::{Amount, Millis, Verdict};
use crate::world::World;
use crate::world::ids::{QueueId, WorkloadId};
use crate::world::store::{Phase, Place};
pub use rights::Right;

/// Who holds some of what a workload asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Workload UID.
    pub uid: String,
    /// Its ClusterQueue.
    pub cluster_queue: String,
    /// How much it holds.
    pub amount: Amount,
    /// Its effective priority.
    pub priority: i64,
    /// Whether it may be preempted.
    pub right: Right,
}

/// What would let a workload have a flavor and resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unblock {
    /// Nothing is in the way.
    Nothing,
    /// This much more has to be released in the cohort, where it is lent.
    Release(Amount),
    /// Quota has to be raised by this much, or the request lowered.
    RaiseQuota(Amount),
    /// The workload's pods or the flavor have to change.
    ChangeRequirements,
    /// Workloads that were evicted have to leave; they hold enough, and nobody else waits for it.
    EvictedLeave,
    /// It was evicted itself: its pods have to stop, which frees its quota, and then it waits for quota again.
    PodsStop,
    /// The workload with this uid stands before it in its queue and lets nobody pass: it has to start, or to go.
    HeadGoes(String),
    /// It would fit, but the room is kept for others, of its own queue or beside it: they have to start, or to go.
    RoomIsKept,
    /// Its capacity, which was not to be had lately, has to turn up.
    Restock,
    /// Its LocalQueue or ClusterQueue is missing, stopped or inactive, and has to admit again.
    QueueResumes,
    /// Its back-off has to end, at this time.
    BackOffEnds(Millis),
    /// What holds the workload itself back has to end: a gate, a hold, a limit on it. Its condition says which.
    HoldEnds,
    /// An admission check that failed has to be ready.
    CheckReady,
    /// The ClusterQueue has to select its namespace, which has to exist.
    NamespaceMatches,
    /// A limit of the queue's policy is reached: others have to end, or it has to be raised.
    LimitAllows,
}

/// One flavor and resource for one pod set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellAccount {
    /// Pod set.
    pub pod_set: String,
    /// Flavor.
    pub flavor: String,
    /// Resource.
    pub resource: String,
    /// Of how many of its pods this is: of those that were given quota, and of one that waits of all, or of the fewest that it
    /// accepts, where it neither fits with all nor anybody leaves for it.
    pub pods: i64,
    /// How many pods it has.
    pub all_pods: i64,
    /// What these pods ask for; of a workload that waits to grow, what they ask for on top of what it has.
    pub asked: Amount,
    /// What earlier pod sets of the workload, which are judged together with it, take of the same before.
    pub earlier: Amount,
    /// What is free for the ClusterQueue: `unused` and `borrowable` together, as far as limits allow.
    pub free: Amount,
    /// By how much more is in use than there is: as much has to be released before anything is free.
    pub debt: Amount,
    /// What is free of the ClusterQueue's own nominal quota.
    pub unused: Amount,
    /// What may be borrowed on top right now.
    pub borrowable: Amount,
    /// What the ClusterQueue could have if nothing were in use.
    pub maximum: Amount,
    /// Why the flavor is out of question, or out of stock, if it is.
    pub mismatch: Option<String>,
    /// Who holds quota of this flavor and resource in the cohort tree, most first.
    pub holders: Vec<Holding>,
    /// What would help.
    pub unblock: Unblock,
}

/// The account of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// UID.
    pub uid: String,
    /// ClusterQueue, if its LocalQueue leads to one.
    pub cluster_queue: Option<String>,
    /// Why it waits; `None` while it holds quota.
    pub verdict: Option<Verdict>,
    /// It holds quota, and whether it was evicted and has to leave.
    pub holds: Option<bool>,
    /// For whom it was evicted (uid), where that was decided here.
    pub evicted_for: Option<String>,
    /// Workloads of the queue that go before it; `None` when it is not waiting in a queue.
    pub ahead: Option<usize>,
    /// Not before this time.
    pub not_before: Option<Millis>,
    /// How it could be admitted now, looking at quota alone.
    pub mode: Option<Mode>,
    /// What has to happen before it is tried or admitted at all, whatever is free.
    pub obstacle: Option<Unblock>,
    /// Per pod set, flavor and resource, in the order in which flavors are tried.
    pub cells: Vec<CellAccount>,
}

impl World {
    /// The account of a workload, `None` when it is unknown. Costs a few searches for victims, and all workloads of its tree for
    /// each flavor and resource.
    pub fn account(&mut self, uid: &str, now: Millis) -> Option<Account> {
        let id = self.store.by_uid.get(uid).copied()?;
        let workload = self.store.workload(id)?;
        let held = workload.held().map(|held| (held.queue, held.evicted));
        let evicted_for = workload.held().and_then(|held| held.evicted_for.as_deref()).map(str::to_owned);
        let local = &self.store.local_queues[workload.local_queue];
        let queue = held.map_or(local.queue, |(queue, _)| Some(queue));
        let queue = queue.filter(|queue| self.store.queues[*queue].spec.is_some());
        let cluster_queue = queue.map(|queue| self.store.queues[queue].name.to_string());
        let (not_before, waits) = (workload.not_before, matches!(workload.phase, Phase::Pending(Place::Class)));
        let ahead = queue.filter(|_| waits).map(|queue| self.waiting_before(queue, id));
        let found = queue.filter(|_| held.is_none()).and_then(|queue| self.assignable(id, queue));
        let (found, fewer) = found.unzip();
        let counts = fewer.flatten().or_else(|| Some(self.store.workload(id)?.held()?.counts.as_deref()?.to_vec()));
        let mode = found.as_ref().map(Assignment::mode);
        let verdict = self.explain(uid, now);
        let obstacle = self.obstacle(id, mode, now);
        let size = (found.as_ref(), counts.as_deref());
        let mut cells = queue.map_or_else(Vec::new, |queue| self.cell_accounts(id, queue, size));
        for cell in cells.iter_mut().filter(|cell| cell.unblock == Unblock::Nothing) {
            cell.unblock = obstacle.clone().unwrap_or(Unblock::Nothing);
        }
        let (uid, holds) = (uid.to_owned(), held.map(|(_, evicted)| evicted));
        Some(Account { uid, cluster_queue, verdict, holds, evicted_for, ahead, not_before, mode, obstacle, cells })
    }

    /// What a cycle would assign to a workload that waits, from the first flavor on, and in which counts where those are not all.
    fn assignable(&mut self, id: WorkloadId, queue: QueueId) -> Option<(Assignment, Option<Vec<i64>>)> {
        let gone = self.barred(id);
        let workload = self.store.workload(id)?;
        let mut nominator = Nominator { store: &self.store, tree: &mut self.tree, options: &self.options, gone: &gone };
        Some(nominator.in_brief(workload, queue))
    }
}

#[cfg(test)]
mod tests;
