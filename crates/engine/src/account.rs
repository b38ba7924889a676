//! The full account of a workload: per flavor and resource what it asks for and what is there, who holds the rest, why they may
//! or may not be preempted for it, and what would help. The condition's message is its short form.

use std::collections::BTreeSet;

use crate::assignment::{Assignment, Mode, PodSetResult};
use crate::balance::{Units, Usage, accumulate, amount, in_usage};
use crate::flavors::{self, Request};
use crate::ids::{CellId, QueueId, ResourceId, WorkloadId};
use crate::model::{Amount, Millis, PreemptionPolicy, Verdict};
use crate::nominate::Nominator;
use crate::preempt::Ask;
use crate::preempt::candidates::satisfies;
use crate::preempt::guard::{is_too_near, protected_until};
use crate::store::{Phase, Place, Workload};
use crate::why::Why;
use crate::world::World;

/// Why a holder of quota may or may not be preempted for a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// It has been evicted already and is leaving.
    Leaving,
    /// The rules allow it; whether it helps depends on what else has to leave.
    MayBePreempted,
    /// `withinClusterQueue` is `Never`.
    WithinQueueNever,
    /// `reclaimWithinCohort` is `Never`.
    ReclaimNever,
    /// Its priority (or age) protects it under the policy.
    Priority,
    /// Its ClusterQueue does not use more than its own quota here.
    WithinItsQuota,
    /// It began a short while ago, and its queue's policy protects it.
    Protected,
    /// Its priority is too near to that of this workload for the policy of its queue.
    TooNear,
    /// It preempted this workload, or one that this workload goes back to, and nothing changed since.
    Feud,
}

impl Right {
    /// In words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Leaving => "has been evicted and is leaving",
            Self::MayBePreempted => "may be preempted",
            Self::WithinQueueNever => "withinClusterQueue is Never",
            Self::ReclaimNever => "reclaimWithinCohort is Never",
            Self::Priority => "is protected by its priority or age",
            Self::WithinItsQuota => "is within the quota of its own ClusterQueue",
            Self::Protected => "began a short while ago and is protected by its queue's policy",
            Self::TooNear => "has a priority too near for the queue's policy",
            Self::Feud => "preempted this workload before, and nothing changed since",
        }
    }
}

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
    pub priority: i32,
    /// Whether it may be preempted.
    pub right: Right,
}

/// What would let a workload have a flavor and resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unblock {
    /// Nothing is in the way.
    Nothing,
    /// This much more has to be released in the cohort.
    Release(Amount),
    /// Quota has to be raised by this much, or the request lowered.
    RaiseQuota(Amount),
    /// The workload's pods or the flavor have to change.
    ChangeRequirements,
    /// Workloads that were evicted have to leave; they hold enough.
    EvictedLeave,
    /// Its capacity, which was not to be had lately, has to turn up.
    Restock,
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
    /// What all its pods ask for; of a workload that waits to grow, what they ask for on top of what it has.
    pub asked: Amount,
    /// What earlier pod sets of the workload, which are judged together with it, take of the same before.
    pub earlier: Amount,
    /// What is free for the ClusterQueue: `unused` and `borrowable` together, as far as limits allow.
    pub free: Amount,
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
    /// Whom it must not preempt.
    barred: BTreeSet<WorkloadId>,
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
    /// Workloads of the queue that go before it; `None` when it is not waiting in a queue.
    pub ahead: Option<usize>,
    /// Not before this time.
    pub not_before: Option<Millis>,
    /// How it could be admitted now, looking at quota alone.
    pub mode: Option<Mode>,
    /// Per pod set, flavor and resource, in the order in which flavors are tried.
    pub cells: Vec<CellAccount>,
}

impl World {
    /// The account of a workload, `None` when it is unknown. Costs a search for victims, and all workloads of its tree for
    /// each flavor and resource.
    pub fn account(&mut self, uid: &str, now: Millis) -> Option<Account> {
        let id = self.store.by_uid.get(uid).copied()?;
        let workload = self.store.workload(id)?;
        let held = workload.held().map(|held| (held.queue, held.evicted));
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
        let mode = found.as_ref().map(Assignment::mode);
        let verdict = self.explain(uid, now);
        let cells = queue.map_or_else(Vec::new, |queue| self.cell_accounts(id, queue, found.as_ref()));
        let holds = held.map(|(_, evicted)| evicted);
        Some(Account { uid: uid.to_owned(), cluster_queue, verdict, holds, ahead, not_before, mode, cells })
    }

    /// What a cycle would assign to a workload that waits, from the first flavor on.
    fn assignable(&mut self, id: WorkloadId, queue: QueueId) -> Option<Assignment> {
        let gone = BTreeSet::new();
        let workload = self.store.workload(id)?;
        let mut nominator = Nominator { store: &self.store, tree: &mut self.tree, options: &self.options, gone: &gone };
        Some(nominator.assign(workload, queue, None, None, None))
    }

    /// The accounts of all pod sets. As in an assignment, each is judged on top of what those before it were given in `found`.
    fn cell_accounts(&self, id: WorkloadId, queue: QueueId, found: Option<&Assignment>) -> Vec<CellAccount> {
        let Some(workload) = self.store.workload(id) else { return Vec::new() };
        let subject = Subject { workload, id, queue, barred: self.barred(id) };
        let class = &self.store.classes[workload.class];
        let waits = workload.held().is_none();
        let request = Request::of(&self.store, &self.options, workload, queue);
        let mut earlier = Usage::new();
        let mut accounts = Vec::new();
        for (index, pod_set) in class.pod_sets.iter().enumerate() {
            let name = pod_set.spec.name.as_str();
            let on_top = |resource: ResourceId, value: Units| match request.replaced.filter(|_| waits) {
                Some(older) => older.less(name, resource, value),
                None => value,
            };
            let asked = flavors::requests(&self.store, request.queue, pod_set, pod_set.spec.count);
            for group in &request.queue.groups {
                let line = request.line(&self.store, pod_set, group);
                let others = group.flavors.iter().filter(|flavor| !line.contains(flavor));
                for flavor in line.iter().chain(others).copied() {
                    for (resource, value) in asked.iter().filter(|(resource, _)| group.covered.contains(resource)) {
                        let Some(cell) = self.store.find_cell(flavor, *resource) else { continue };
                        let value = on_top(*resource, *value);
                        let mismatch = flavors::why_not(&self.store, &request, index, pod_set, group, flavor);
                        let mut account = self.cell_account(&subject, cell, value, in_usage(&earlier, cell));
                        let stock = self.store.stock_outs.find(&self.store, flavor, pod_set, pod_set.spec.count);
                        if mismatch.is_some() {
                            account.unblock = Unblock::ChangeRequirements;
                        } else if stock.is_some() && waits {
                            account.unblock = Unblock::Restock;
                        }
                        let stock = stock.map(|text| format!("flavor {} {text}", account.flavor));
                        let share = request.over_share(&self.store, &self.tree, (flavor, *resource), value, &earlier);
                        let share = share.filter(|_| waits);
                        let share = share.map(|amounts| Why::TierShare(flavor, *resource, amounts).text(&self.store));
                        let mismatch = mismatch.or(stock).or(share);
                        accounts.push(CellAccount { pod_set: name.to_owned(), mismatch, ..account });
                    }
                }
            }
            let given = found.and_then(|found| found.pod_sets.get(index)).into_iter().flat_map(PodSetResult::given);
            for (resource, flavor, value) in given {
                if let Some(cell) = self.store.find_cell(flavor, resource) {
                    accumulate(&mut earlier, cell, on_top(resource, value));
                }
            }
        }
        accounts
    }

    fn cell_account(&self, subject: &Subject<'_>, cell: CellId, asked: Units, earlier: Units) -> CellAccount {
        let node = self.store.queues[subject.queue].node;
        let names = self.store.named(cell);
        let (free, maximum) = (self.tree.available(node, cell), self.tree.potential(node, cell));
        let own = self.tree.cell(node, cell);
        let unused = (own.nominal - own.usage).clamp(0, free);
        let holders = self.holders(subject, cell);
        let leaving: Units =
            holders.iter().filter(|h| h.right == Right::Leaving).map(|h| Units::from(h.amount.get())).sum();
        let together = asked + earlier;
        let lacking = together - free;
        let unblock = if subject.workload.held().is_some() || lacking <= 0 {
            Unblock::Nothing
        } else if together > maximum {
            Unblock::RaiseQuota(amount(together - maximum))
        } else if leaving >= lacking {
            Unblock::EvictedLeave
        } else {
            Unblock::Release(amount(lacking))
        };
        CellAccount {
            pod_set: String::new(),
            flavor: names.flavor,
            resource: names.resource,
            asked: amount(asked),
            earlier: amount(earlier),
            free: amount(free),
            unused: amount(unused),
            borrowable: amount(free - unused),
            maximum: amount(maximum),
            mismatch: None,
            holders,
            unblock,
        }
    }

    fn holders(&self, subject: &Subject<'_>, cell: CellId) -> Vec<Holding> {
        let Subject { workload, id, queue, barred } = subject;
        let (id, queue) = (*id, *queue);
        let node = self.store.queues[queue].node;
        let policy = self.store.queues[queue].spec.as_ref().map(|spec| spec.preemption).unwrap_or_default();
        let policy = policy.of(self.store.classes[workload.class].preempts);
        let nobody = BTreeSet::new();
        let ask = Ask::of(&self.store, workload, queue, &nobody, &self.options);
        let mut holders = Vec::new();
        for other in self.tree.bottom_up(self.tree.root(node)) {
            let Some(other_queue) = self.store.queue_of_node.get(&other).copied() else { continue };
            for victim in self.store.queues[other_queue].held.iter().filter(|victim| *victim != id) {
                let Some(candidate) = self.store.workload(victim) else { continue };
                let Some(held) = candidate.held() else { continue };
                let value = in_usage(&held.usage, cell);
                if value <= 0 {
                    continue;
                }
                let is_own = other_queue == queue;
                let rule = if is_own { policy.within_cluster_queue } else { policy.reclaim_within_cohort };
                let right = if held.evicted {
                    Right::Leaving
                } else if barred.contains(&victim) {
                    Right::Feud
                } else if protected_until(&self.store, held).is_some() {
                    Right::Protected
                } else if is_too_near(&self.store, &ask, candidate.priority) {
                    Right::TooNear
                } else if matches!(rule, PreemptionPolicy::Never | PreemptionPolicy::Unset) {
                    if is_own { Right::WithinQueueNever } else { Right::ReclaimNever }
                } else if !is_own && self.tree.within_quota(other, &[cell]) {
                    Right::WithinItsQuota
                } else if !satisfies(&ask, candidate, rule) {
                    Right::Priority
                } else {
                    Right::MayBePreempted
                };
                holders.push(Holding {
                    uid: candidate.uid.to_string(),
                    cluster_queue: self.store.queues[other_queue].name.to_string(),
                    amount: amount(value),
                    priority: candidate.priority,
                    right,
                });
            }
        }
        holders.sort_by(|a, b| b.amount.cmp(&a.amount).then_with(|| a.uid.cmp(&b.uid)));
        holders
    }
}

#[cfg(test)]
mod tests;
