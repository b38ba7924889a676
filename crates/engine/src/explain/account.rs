//! The full account of a workload, for each flavor and resource: the request, the free quota, the workloads that hold the rest of the quota, whether each
//! holder may be preempted for the workload, and the change that would help. The message of the workload's condition is a short form of the account.

mod cells;
mod obstacle;
mod rights;

use crate::assign::assignment::Assignment;
use crate::assign::mode::Mode;
use crate::cycle::nominate::Nominator;
use crate::model::{Amount, Millis, Verdict};
use crate::world::World;
use crate::world::ids::{QueueId, WorkloadId};
use crate::world::store::{Phase, Place};
pub use rights::Right;

/// A workload that holds quota of a flavor and resource that the workload of the account requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Workload UID.
    pub uid: String,
    /// ClusterQueue of the workload that holds quota.
    pub cluster_queue: String,
    /// Amount that it holds.
    pub amount: Amount,
    /// Effective priority of the workload that holds quota.
    pub priority: i64,
    /// Rule by which the workload that holds quota may or may not be preempted.
    pub right: Right,
}

/// The change that would let a workload have the requested quota of a flavor and resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unblock {
    /// No change is needed.
    Nothing,
    /// Other workloads have to release this amount in the cohort from which the queue can borrow it.
    Release(Amount),
    /// Quota has to be raised by this amount, or the request has to be lowered by it.
    RaiseQuota(Amount),
    /// The requirements of the workload's pods, or the flavor, have to change, because they do not match.
    ChangeRequirements,
    /// Workloads that were evicted have to leave: their quota is enough, and no other workload waits for it.
    EvictedLeave,
    /// The workload itself was evicted, and its pods have to stop. When the pods have stopped, the workload's quota is free, and the workload waits for quota
    /// again.
    PodsStop,
    /// The head of the queue, with this uid, blocks the workloads behind it: the head has to start or to be deleted.
    HeadGoes(String),
    /// The workload would fit, but its quota is kept for other workloads of its queue or cohort, which have to start or to be deleted.
    RoomIsKept,
    /// The stock-out of the flavor has to end.
    Restock,
    /// The LocalQueue or ClusterQueue of the workload is missing, stopped or inactive, and has to admit again.
    QueueResumes,
    /// The requeue back-off of the workload has to end; the value is the time of its end.
    BackOffEnds(Millis),
    /// A gate, a hold or a limit on the workload itself has to end. The condition of the workload says which gate, hold or limit it is.
    HoldEnds,
    /// An admission check of the workload that failed has to become ready.
    CheckReady,
    /// The workload's namespace has to exist, and the ClusterQueue has to select it.
    NamespaceMatches,
    /// A limit of the queue's policy is reached: other workloads have to end, or the limit has to be raised.
    LimitAllows,
}

/// The account of one flavor and resource for one pod set of a workload: why the pod set has no quota there, and what would help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellAccount {
    /// Pod set.
    pub pod_set: String,
    /// Flavor.
    pub flavor: String,
    /// Resource.
    pub resource: String,
    /// Number of pods of the pod set for which the account explains the quota. The account of a workload with quota covers the pods that were given quota. The
    /// account of a pending workload covers all its pods, or its smallest accepted counts if all pods together neither fit nor find victims.
    pub pods: i64,
    /// Number of all pods of the pod set.
    pub all_pods: i64,
    /// Request of the pods that the account covers; for a pending replacement slice, the part that its old slice does not hold yet.
    pub asked: Amount,
    /// Amount that earlier pod sets of the workload take of the same flavor and resource, because all pod sets are judged together.
    pub earlier: Amount,
    /// Amount that is free for the ClusterQueue: the sum of `unused` and `borrowable`, as far as limits allow.
    pub free: Amount,
    /// Usage above the available quota: other workloads have to release this amount before any quota is free.
    pub debt: Amount,
    /// Free part of the ClusterQueue's own nominal quota.
    pub unused: Amount,
    /// Amount that the ClusterQueue may borrow now in addition to its own free quota.
    pub borrowable: Amount,
    /// Amount that the ClusterQueue could have if no quota were in use.
    pub maximum: Amount,
    /// Reason why the flavor does not match the pod set, is out of stock or is above the share of its tier; `None` if there is no such reason.
    pub mismatch: Option<String>,
    /// Workloads that hold quota of the flavor and resource in the cohort tree, the largest amount first.
    pub holders: Vec<Holding>,
    /// The change that would let the pod set have the flavor and resource.
    pub unblock: Unblock,
}

/// The account of a workload: why it waits for quota, who holds the quota, and what would help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// UID.
    pub uid: String,
    /// ClusterQueue of the workload, if its LocalQueue leads to a ClusterQueue.
    pub cluster_queue: Option<String>,
    /// Reason why the workload waits; `None` while it holds quota.
    pub verdict: Option<Verdict>,
    /// True if the workload holds quota and was evicted, so that it has to leave; `None` if it holds no quota.
    pub holds: Option<bool>,
    /// UID of the preemptor for which the workload was evicted, if the engine planned the eviction.
    pub evicted_for: Option<String>,
    /// Number of workloads of the queue that go before the workload; `None` if the workload does not wait in a queue.
    pub ahead: Option<usize>,
    /// Earliest time at which the workload is tried.
    pub not_before: Option<Millis>,
    /// Mode in which the workload could be admitted now, if quota alone counted.
    pub mode: Option<Mode>,
    /// Change that is needed before the workload is tried or admitted at all, whatever quota is free.
    pub obstacle: Option<Unblock>,
    /// Accounts of each pod set, flavor and resource, in the order in which flavors are tried.
    pub cells: Vec<CellAccount>,
}

impl World {
    /// The account of a workload, which explains why it waits; `None` if the workload is unknown. Cost of `account`: a scan over the flavors, the number of
    /// pending workloads of the ClusterQueue, and for each pod set, flavor and resource a pass over the workloads that hold quota in the cohort tree, with a
    /// search for victims if a ClusterQueue has bounds of preemption.
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

    /// The assignment that a cycle would find for a pending workload with a scan from the first flavor on, and its counts if they are reduced.
    fn assignable(&mut self, id: WorkloadId, queue: QueueId) -> Option<(Assignment, Option<Vec<i64>>)> {
        let gone = self.not_preemptible(id);
        let workload = self.store.workload(id)?;
        let mut nominator = Nominator { store: &self.store, tree: &mut self.tree, options: &self.options, gone: &gone };
        Some(nominator.in_brief(workload, queue))
    }
}

#[cfg(test)]
mod tests;
