//! The full account of a workload: per flavor and resource what it asks for and what is there, who holds the rest, why they may
//! or may not be preempted for it, and what would help. The condition's message is its short form.

mod obstacle;
mod rights;

use std::sync::Arc;

use crate::assignment::{Assignment, Mode, PodSetResult};
use crate::balance::{Units, Usage, accumulate, amount, in_usage};
use crate::flavors::{self, Request};
use crate::ids::{CellId, QueueId, ResourceId, WorkloadId};
use crate::model::{Amount, Millis, Verdict};
use crate::nominate::{Nominator, contested};
use crate::preempt::Ask;
use crate::preempt::classical::leave;
use crate::store::{Phase, Place, Store, Workload};
use crate::tree::{Tree, Trial};
use crate::why::Why;
use crate::world::World;
use rights::Judged;
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
    /// The ClusterQueue has to select its namespace.
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

/// Whose account it is.
struct Subject<'a> {
    workload: &'a Workload,
    id: WorkloadId,
    queue: QueueId,
    /// It holds no quota.
    waits: bool,
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
        let ahead = cluster_queue.as_deref().filter(|_| waits).map(|name| {
            let (active, parked) = self.pending(name);
            active.iter().chain(&parked).position(|other| other == uid).unwrap_or(0)
        });
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

    /// The accounts of all pod sets. As in an assignment, each is judged on top of what those before it were given in `found`.
    fn cell_accounts(
        &mut self,
        id: WorkloadId,
        queue: QueueId,
        (found, counts): (Option<&Assignment>, Option<&[i64]>),
    ) -> Vec<CellAccount> {
        let mut gone = self.barred(id);
        gone.insert(id);
        let (store, tree, options) = (&self.store, &mut self.tree, &self.options);
        let Some(workload) = store.workload(id) else { return Vec::new() };
        let waits = workload.held().is_none();
        let subject = Subject { workload, id, queue, waits };
        let ask = || Ask::of(store, workload, queue, &gone, options);
        // For what was found, victims are looked for all at once; for what was not, cell by cell.
        let (needs, usage) = match found.filter(|found| found.mode() == Mode::Preempt) {
            Some(found) => contested(store, found, options.departures.pods_count),
            None => (Vec::new(), Usage::new()),
        };
        let whole = Ask { needs: &needs, usage: &usage, ..ask() };
        let judged = if needs.is_empty() { Judged::new() } else { rights::judge(store, tree, options, &whole) };
        let request = Request::of(store, options, workload, queue);
        let mut earlier = Usage::new();
        let mut accounts = Vec::new();
        for (index, pod_set) in store.classes[workload.class].pod_sets.iter().enumerate() {
            let name = pod_set.spec.name.as_str();
            let on_top = |resource: ResourceId, value: Units| match request.replaced.filter(|_| waits) {
                Some(older) => older.less(name, resource, value),
                None => value,
            };
            let all_pods = pod_set.spec.count;
            let pods = counts.and_then(|counts| counts.get(index)).copied().unwrap_or(all_pods);
            let asked = flavors::requests(store, request.queue, pod_set, pods);
            for group in &request.queue.groups {
                let line = request.line(store, pod_set, group);
                let others = group.flavors.iter().filter(|flavor| !line.contains(flavor));
                for flavor in line.iter().chain(others).copied() {
                    for (resource, value) in asked.iter().filter(|(resource, _)| group.covered.contains(resource)) {
                        let Some(cell) = store.find_cell(flavor, *resource) else { continue };
                        let value = on_top(*resource, *value);
                        let together = in_usage(&earlier, cell);
                        let holders = if needs.contains(&cell) {
                            subject.holders(store, tree, &whole, &judged, cell)
                        } else {
                            let one = Ask { needs: &[cell], usage: &[(cell, together.saturating_add(value))], ..ask() };
                            let mut trial = Trial::new(tree);
                            if !waits {
                                leave(store, &mut trial, id, true);
                            }
                            let judged = rights::judge(store, trial.tree_mut(), options, &one);
                            subject.holders(store, trial.tree(), &one, &judged, cell)
                        };
                        let mut account = subject.cell_account(store, tree, (cell, value, together), holders);
                        let mismatch = flavors::why_not(store, &request, index, pod_set, group, flavor);
                        let stock = store.stock_outs.find(store, flavor, pod_set, pods);
                        let share = request.over_share(store, tree, (flavor, *resource), value, &earlier);
                        let share = share.filter(|_| waits);
                        if mismatch.is_some() {
                            account.unblock = Unblock::ChangeRequirements;
                        } else if stock.is_some() && waits {
                            account.unblock = Unblock::Restock;
                        } else if share.is_some() && !matches!(account.unblock, Unblock::RaiseQuota(_)) {
                            account.unblock = Unblock::LimitAllows;
                        }
                        let stock = stock.map(|text| format!("flavor {} {text}", account.flavor));
                        let share = share.map(|amounts| Why::TierShare(flavor, *resource, amounts).text(store));
                        let mismatch = mismatch.or(stock).or(share);
                        accounts.push(CellAccount { pod_set: name.to_owned(), pods, all_pods, mismatch, ..account });
                    }
                }
            }
            let given = found
                .and_then(|found| found.pod_sets.iter().find(|set| set.index == index))
                .into_iter()
                .flat_map(PodSetResult::given);
            for (resource, flavor, value) in given {
                if let Some(cell) = store.find_cell(flavor, resource) {
                    accumulate(&mut earlier, cell, on_top(resource, value));
                }
            }
        }
        accounts
    }
}

impl Subject<'_> {
    /// One cell, of which `asked` is wanted on top of `earlier`.
    fn cell_account(
        &self,
        store: &Store,
        tree: &mut Tree,
        (cell, asked, earlier): (CellId, Units, Units),
        holders: Vec<Holding>,
    ) -> CellAccount {
        let node = store.queues[self.queue].node;
        let names = store.named(cell);
        let (room, maximum) = (tree.raw_available(node, cell), tree.potential(node, cell));
        let (free, debt) = (room.max(0), room.saturating_neg().max(0));
        let own = tree.cell(node, cell);
        let unused = own.nominal.saturating_sub(own.usage).clamp(0, free);
        let together = asked.saturating_add(earlier);
        let lacking = together.saturating_sub(room);
        let unblock = if !self.waits || together <= free {
            Unblock::Nothing
        } else if together > maximum {
            Unblock::RaiseQuota(amount(together.saturating_sub(maximum)))
        } else if together <= self.room_once_gone(store, tree, cell) {
            Unblock::EvictedLeave
        } else {
            Unblock::Release(amount(lacking))
        };
        CellAccount {
            pod_set: String::new(),
            flavor: names.flavor,
            resource: names.resource,
            pods: 0,
            all_pods: 0,
            asked: amount(asked),
            earlier: amount(earlier),
            free: amount(free),
            debt: amount(debt),
            unused: amount(unused),
            borrowable: amount(free.saturating_sub(unused)),
            maximum: amount(maximum),
            mismatch: None,
            holders,
            unblock,
        }
    }

    /// What the queue may use of a cell once those have left who are on their way out: for this workload, or for nobody who waits still.
    fn room_once_gone(&self, store: &Store, tree: &mut Tree, cell: CellId) -> Units {
        let node = store.queues[self.queue].node;
        let queues = Arc::clone(&tree.nodes[tree.root(node)].queues);
        let mut trial = Trial::new(tree);
        for rank in queues.iter().flat_map(|queue| &store.queues[*queue].held.leaving) {
            let preemptor = store.workload(rank.workload).and_then(|other| other.held()?.evicted_for.as_ref());
            let preemptor = preemptor.and_then(|uid| store.by_uid.get(uid)).filter(|other| **other != self.id);
            let is_awaited = preemptor.is_some_and(|other| store.workload(*other).is_some_and(|w| w.held().is_none()));
            if !is_awaited {
                leave(store, &mut trial, rank.workload, true);
            }
        }
        trial.tree().raw_available(node, cell).max(0)
    }

    /// Who else holds some of a cell in the tree, most first.
    fn holders(&self, store: &Store, tree: &Tree, ask: &Ask<'_>, judged: &Judged, cell: CellId) -> Vec<Holding> {
        let older = store.classes[self.workload.class].replaces.as_deref();
        let mut holders = Vec::new();
        for node in tree.bottom_up(tree.root(store.queues[self.queue].node)) {
            let Some(queue) = store.queue_of_node.get(&node).map(|queue| &store.queues[*queue]) else { continue };
            for id in queue.held.iter().filter(|id| *id != self.id) {
                let Some(holder) = store.workload(id) else { continue };
                let Some(held) = holder.held() else { continue };
                let value = in_usage(&held.usage, cell);
                if value <= 0 {
                    continue;
                }
                let is_older = older.is_some_and(|older| older.uid == holder.uid);
                let right = rights::right(store, tree, ask, judged, (id, holder, held));
                holders.push(Holding {
                    uid: holder.uid.to_string(),
                    cluster_queue: queue.name.to_string(),
                    amount: amount(value),
                    priority: holder.priority,
                    right: if is_older && right == Right::Feud { Right::HandingOver } else { right },
                });
            }
        }
        holders.sort_by(|a, b| b.amount.cmp(&a.amount).then_with(|| a.uid.cmp(&b.uid)));
        holders
    }
}

#[cfg(test)]
mod tests;
