//! The cells of an account. A cell of an account is about one pod set, flavor and resource: it has the request, the free quota, the workloads that hold the
//! rest of the quota, and the change that would help.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::rights::{self, Judged};
use super::{CellAccount, Holding, Right, Unblock};
use crate::assign;
use crate::assign::assignment::{Assignment, PodSetResult};
use crate::assign::mode::Mode;
use crate::assign::request::{Request, requests};
use crate::cycle::nominate::contested;
use crate::explain::why::Why;
use crate::options::Options;
use crate::options::profile::Departure;
use crate::preempt::ask::Ask;
use crate::preempt::trials::leave;
use crate::quota::balance::{Units, Usage, accumulate, amount, in_usage};
use crate::quota::tree::{Tree, Trial};
use crate::world::World;
use crate::world::ids::{CellId, FlavorId, QueueId, ResourceId, WorkloadId};
use crate::world::store::{Group, PodSet, Store, Workload};

/// The workload for which an account is made.
struct Subject<'a> {
    store: &'a Store,
    options: &'a Options,
    workload: &'a Workload,
    id: WorkloadId,
    /// True while the workload of the account holds no quota.
    waits: bool,
    /// Request of the workload for flavor assignment.
    request: Request<'a>,
    /// The workload's query to the search for victims, without cells yet.
    ask: Ask<'a>,
}

/// A pod set of the workload of the account.
struct Part<'a> {
    index: usize,
    pod_set: &'a PodSet,
    /// Number of pods of the pod set for which the account explains the quota.
    pods: i64,
    /// Usage of the flavors that earlier pod sets of the workload were given.
    earlier: &'a [(CellId, Units)],
}

/// Request of a pod set in one flavor and resource.
struct Wanted<'a> {
    group: &'a Group,
    flavor: FlavorId,
    resource: ResourceId,
    cell: CellId,
    asked: Units,
    /// Amount that earlier pod sets of the workload take of the same flavor and resource.
    earlier: Units,
}

impl Wanted<'_> {
    const fn together(&self) -> Units {
        self.asked.saturating_add(self.earlier)
    }
}

/// The search for victims for all cells that an assignment found and that lack quota. A separate search is made for each cell that the assignment did not find
/// or that does not lack quota.
struct Contest {
    needs: Vec<CellId>,
    usage: Usage,
    judged: Judged,
}

impl Contest {
    fn of(subject: &Subject<'_>, tree: &mut Tree, found: Option<&Assignment>) -> Self {
        let pods_count = subject.options.profile.has(Departure::PodsCountForVictims);
        let (needs, usage) = match found.filter(|found| found.mode() == Mode::Preempt) {
            Some(found) => contested(subject.store, found, pods_count),
            None => (Vec::new(), Usage::new()),
        };
        let contest = Self { needs, usage, judged: Judged::new() };
        if contest.needs.is_empty() {
            return contest;
        }
        let judged = rights::judge(subject.store, tree, subject.options, &contest.ask(subject));
        Self { judged, ..contest }
    }

    fn ask<'a>(&'a self, subject: &'a Subject<'_>) -> Ask<'a> {
        Ask { needs: &self.needs, usage: &self.usage, ..subject.ask }
    }
}

impl World {
    /// The accounts of all pod sets of a workload. As in an assignment, each pod set is judged on top of the usage of earlier pod sets in `found`.
    pub(super) fn cell_accounts(
        &mut self,
        id: WorkloadId,
        queue: QueueId,
        (found, counts): (Option<&Assignment>, Option<&[i64]>),
    ) -> Vec<CellAccount> {
        let mut gone = self.not_preemptible(id);
        gone.insert(id);
        let Some(subject) = Subject::of(&self.store, &self.options, (id, queue), &gone) else { return Vec::new() };
        let tree = &mut self.tree;
        let contest = Contest::of(&subject, tree, found);
        let mut earlier = Usage::new();
        let mut accounts = Vec::new();
        for (index, pod_set) in subject.request.pod_sets.iter().enumerate() {
            let pods = counts.and_then(|counts| counts.get(index)).copied().unwrap_or(pod_set.spec.count);
            let part = Part { index, pod_set, pods, earlier: &earlier };
            subject.add_accounts(tree, &contest, &part, &mut accounts);
            let given = found.and_then(|found| found.pod_sets.iter().find(|set| set.index == index));
            for (resource, flavor, value) in given.into_iter().flat_map(PodSetResult::given) {
                if let Some(cell) = subject.store.find_cell(flavor, resource) {
                    accumulate(&mut earlier, cell, subject.on_top(pod_set, resource, value));
                }
            }
        }
        accounts
    }
}

impl<'a> Subject<'a> {
    fn of(
        store: &'a Store,
        options: &'a Options,
        (id, queue): (WorkloadId, QueueId),
        gone: &'a BTreeSet<WorkloadId>,
    ) -> Option<Self> {
        let workload = store.workload(id)?;
        Some(Self {
            store,
            options,
            workload,
            id,
            waits: workload.held().is_none(),
            request: Request::of(store, options, workload, queue),
            ask: Ask::of(store, workload, queue, gone, options),
        })
    }

    /// The part of the request beyond the usage of the slice that the workload replaces.
    fn on_top(&self, pod_set: &PodSet, resource: ResourceId, value: Units) -> Units {
        match self.request.replaced.filter(|_| self.waits) {
            Some(older) => older.less(&pod_set.spec.name, resource, value),
            None => value,
        }
    }

    /// Adds the accounts of the cells of one pod set, in the order in which flavors are tried.
    fn add_accounts(&self, tree: &mut Tree, contest: &Contest, part: &Part<'_>, accounts: &mut Vec<CellAccount>) {
        let asked = requests(self.store, self.request.queue, part.pod_set, part.pods);
        for group in &self.request.queue.groups {
            let line = self.request.line(self.store, part.pod_set, group);
            let others = group.flavors.iter().filter(|flavor| !line.contains(flavor));
            for flavor in line.iter().chain(others).copied() {
                for (resource, value) in asked.iter().filter(|(resource, _)| group.covered.contains(resource)) {
                    let Some(cell) = self.store.find_cell(flavor, *resource) else { continue };
                    let asked = self.on_top(part.pod_set, *resource, *value);
                    let earlier = in_usage(part.earlier, cell);
                    let wanted = Wanted { group, flavor, resource: *resource, cell, asked, earlier };
                    let holders = self.holders_of(tree, contest, &wanted);
                    let mut account = self.quota_account(tree, part, &wanted, holders);
                    self.hinder(tree, part, &wanted, &mut account);
                    accounts.push(account);
                }
            }
        }
    }

    /// The workloads that hold the rest of a cell's quota, each with the verdict of the search for victims.
    fn holders_of(&self, tree: &mut Tree, contest: &Contest, wanted: &Wanted<'_>) -> Vec<Holding> {
        let cell = wanted.cell;
        if contest.needs.contains(&cell) {
            return self.holders(tree, &contest.ask(self), &contest.judged, cell);
        }
        let one = Ask { needs: &[cell], usage: &[(cell, wanted.together())], ..self.ask };
        let mut trial = Trial::new(tree);
        if !self.waits {
            leave(self.store, &mut trial, self.id, true);
        }
        let judged = rights::judge(self.store, trial.tree_mut(), self.options, &one);
        self.holders(trial.tree(), &one, &judged, cell)
    }

    /// Workloads of the cohort tree, other than the workload of the account, that hold usage of a cell, the largest amount first.
    fn holders(&self, tree: &Tree, ask: &Ask<'_>, judged: &Judged, cell: CellId) -> Vec<Holding> {
        let store = self.store;
        let older = store.classes[self.workload.class].replaces.as_deref();
        let mut holders = Vec::new();
        for node in tree.bottom_up(tree.root(self.request.queue.node)) {
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
                    right: if is_older && right == Right::RepeatedPreemption { Right::HandingOver } else { right },
                });
            }
        }
        holders.sort_by(|a, b| b.amount.cmp(&a.amount).then_with(|| a.uid.cmp(&b.uid)));
        holders
    }

    /// The account of one flavor and resource, as far as quota alone decides.
    fn quota_account(
        &self,
        tree: &mut Tree,
        part: &Part<'_>,
        wanted: &Wanted<'_>,
        holders: Vec<Holding>,
    ) -> CellAccount {
        let (node, cell) = (self.request.queue.node, wanted.cell);
        let names = self.store.named(cell);
        let (room, maximum) = (tree.raw_available(node, cell), tree.potential(node, cell));
        let (free, debt) = (room.max(0), room.saturating_neg().max(0));
        let own = tree.cell(node, cell);
        let unused = own.nominal.saturating_sub(own.usage).clamp(0, free);
        let together = wanted.together();
        let lacking = together.saturating_sub(room);
        let unblock = if !self.waits || together <= free {
            Unblock::Nothing
        } else if together > maximum {
            Unblock::RaiseQuota(amount(together.saturating_sub(maximum)))
        } else if together <= self.room_once_gone(tree, cell) {
            Unblock::EvictedLeave
        } else {
            Unblock::Release(amount(lacking))
        };
        CellAccount {
            pod_set: part.pod_set.spec.name.clone(),
            flavor: names.flavor,
            resource: names.resource,
            pods: part.pods,
            all_pods: part.pod_set.spec.count,
            asked: amount(wanted.asked),
            earlier: amount(wanted.earlier),
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

    /// Quota of a cell for the queue after evicted workloads have left. Victims of another preemptor that still waits are not counted as having left.
    fn room_once_gone(&self, tree: &mut Tree, cell: CellId) -> Units {
        let (store, node) = (self.store, self.request.queue.node);
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

    /// Adds the reason why the flavor does not match the pod set, is out of stock or is above the share of its tier, and the change that would help.
    fn hinder(&self, tree: &Tree, part: &Part<'_>, wanted: &Wanted<'_>, account: &mut CellAccount) {
        let (store, request) = (self.store, &self.request);
        let Wanted { group, flavor, resource, asked, .. } = *wanted;
        if let Some(text) = assign::why_not(store, request, part.index, part.pod_set, group, flavor) {
            account.mismatch = Some(text);
            account.unblock = Unblock::ChangeRequirements;
        } else if let Some(text) = store.stock_outs.find(store, flavor, part.pod_set, part.pods) {
            account.mismatch = Some(format!("flavor {} {text}", account.flavor));
            if self.waits {
                account.unblock = Unblock::Restock;
            }
        } else if self.waits
            && let Some(amounts) = request.over_share(store, tree, (flavor, resource), asked, part.earlier)
        {
            account.mismatch = Some(Why::TierShare(flavor, resource, amounts).text(store));
            if !matches!(account.unblock, Unblock::RaiseQuota(_)) {
                account.unblock = Unblock::LimitAllows;
            }
        }
    }
}
