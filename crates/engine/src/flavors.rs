//! Flavor assignment (kueue.md 6.5): which flavor each resource of a workload could have, and how.

mod mismatch;

use std::collections::BTreeSet;

use crate::assignment::{Assignment, Attempt, Choice, Granular, Mode, PodSetResult, PreemptionPossibility};
use crate::balance::{INF, Units, accumulate, in_usage};
use crate::ids::{CellId, FlavorId, QueueId, ResourceId};
use crate::model::{FlavorFungibility, Fungibility, PendingReason, PreemptionPolicy, Tier};
use crate::options::Options;
use crate::slices::Older;
use crate::store::{Group, PodSet, Progress, Queue, Store, Workload};
use crate::tiers::listed;
use crate::tree::Tree;
use crate::why::{Why, more_severe, severity};

/// Search for victims for one cell: quantity wanted there, giving the possibility and the borrowing level afterwards.
pub(crate) type Oracle<'o> = dyn FnMut(&Store, &mut Tree, CellId, Units) -> (PreemptionPossibility, u32) + 'o;

/// Flavors to which a repeated assignment is held, per pod set.
pub(crate) type Pins = Vec<Vec<(ResourceId, FlavorId)>>;

/// What to assign.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) queue: &'a Queue,
    pub(crate) pod_sets: &'a [PodSet],
    /// Reduced counts of partial admission.
    pub(crate) counts: Option<&'a [i64]>,
    pub(crate) progress: Option<&'a Progress>,
    pub(crate) pins: Option<&'a Pins>,
    /// What it takes the place of: held already, and in these flavors only.
    pub(crate) replaced: Option<&'a Older>,
    /// The only flavors that may be given.
    pub(crate) allowed: Option<&'a [FlavorId]>,
    /// The tiers that the workload accepts, best first.
    pub(crate) tiers: Option<&'a [Tier]>,
    /// `FlavorFungibility` is on.
    pub(crate) fungible: bool,
    pub(crate) ignore_undeclared: bool,
    pub(crate) fair_sharing: bool,
}

impl<'a> Request<'a> {
    /// A workload in full size in a queue, from the first flavor on.
    pub(crate) fn of(store: &'a Store, options: &Options, workload: &Workload, queue: QueueId) -> Self {
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
            fungible: options.gates.flavor_fungibility,
            ignore_undeclared: options.ignore_undeclared,
            fair_sharing: options.fair_sharing.is_some(),
        }
    }
}

/// Mode and borrowing level of one flavor.
type Level = (Granular, u32);

/// Whether `a` is to be preferred to `b`.
pub(crate) fn is_preferred(a: Level, b: Level, preemption_over_borrowing: bool) -> bool {
    if a.0 == Granular::NoFit || b.0 == Granular::NoFit {
        return a.0 != Granular::NoFit;
    }
    let (a_viable, b_viable) = (a.0 != Granular::NoCandidates, b.0 != Granular::NoCandidates);
    if a_viable != b_viable {
        return a_viable;
    }
    if preemption_over_borrowing {
        if a.1 != b.1 { a.1 < b.1 } else { a.0 > b.0 }
    } else if a.0 != b.0 {
        a.0 > b.0
    } else {
        a.1 < b.1
    }
}

fn should_try_next(level: Level, policy: &FlavorFungibility) -> bool {
    match level.0 {
        Granular::NoFit | Granular::NoCandidates => true,
        Granular::Preempt | Granular::Reclaim if policy.when_can_preempt == Fungibility::TryNextFlavor => true,
        _ => level.1 > 0 && policy.when_can_borrow == Fungibility::TryNextFlavor,
    }
}

/// Requests of `count` pods, with `pods` where the queue covers it, by resource name.
pub(crate) fn requests(store: &Store, queue: &Queue, pod_set: &PodSet, count: i64) -> Vec<(ResourceId, Units)> {
    let mut requests: Vec<(ResourceId, Units)> =
        pod_set.requests.iter().map(|(resource, one)| (*resource, (one * Units::from(count)).clamp(0, INF))).collect();
    if queue.group_of(store.pods).is_some() {
        requests.retain(|(resource, _)| *resource != store.pods);
        requests.push((store.pods, Units::from(count)));
        requests.sort_by(|a, b| store.resource(a.0).cmp(store.resource(b.0)));
    }
    requests
}

/// Assigns flavors to all pod sets. Costs flavors × resources, and a search per cell that needs preemption.
pub(crate) fn assign(store: &Store, tree: &mut Tree, request: &Request<'_>, oracle: &mut Oracle<'_>) -> Assignment {
    let mut assignment = Assignment { pod_sets: Vec::with_capacity(request.pod_sets.len()), ..Assignment::default() };
    for (index, pod_set) in request.pod_sets.iter().enumerate() {
        let count = request.counts.and_then(|c| c.get(index)).copied().unwrap_or(pod_set.spec.count);
        let result = assign_pod_set(store, tree, request, index, count, &mut assignment, oracle);
        let failed = result.mode() == Mode::NoFit && result.choices.is_empty();
        assignment.usage.reserve_exact(result.choices.len());
        for choice in &result.choices {
            assignment.borrowing = assignment.borrowing.max(choice.borrow);
            if let Some(cell) = store.find_cell(choice.flavor, choice.resource) {
                let asked = result.requests.iter().find(|(r, _)| *r == choice.resource).map_or(0, |(_, v)| *v);
                let less = |older: &Older| older.less(&pod_set.spec.name, choice.resource, asked);
                accumulate(&mut assignment.usage, cell, request.replaced.map_or(asked, less));
            }
        }
        assignment.pod_sets.push(result);
        if failed {
            break;
        }
    }
    if assignment.mode() == Mode::NoFit {
        assignment.no_fit = no_fit_reason(request.queue, &assignment);
    }
    assignment
}

/// The same where nobody is to leave for it: only what is free counts.
pub(crate) fn assign_free(store: &Store, tree: &mut Tree, request: &Request<'_>) -> Assignment {
    let mut nobody = |_: &Store, _: &mut Tree, _: CellId, _: Units| (PreemptionPossibility::NoCandidates, 0);
    assign(store, tree, request, &mut nobody)
}

fn assign_pod_set(
    store: &Store,
    tree: &mut Tree,
    request: &Request<'_>,
    index: usize,
    count: i64,
    assignment: &mut Assignment,
    oracle: &mut Oracle<'_>,
) -> PodSetResult {
    let Some(pod_set) = request.pod_sets.get(index) else { return PodSetResult::default() };
    let mut result =
        PodSetResult { count, requests: requests(store, request.queue, pod_set, count), ..PodSetResult::default() };
    for index_of_request in 0..result.requests.len() {
        let Some((resource, quantity)) = result.requests.get(index_of_request).copied() else { break };
        let Some(group) = request.queue.group_of(resource) else {
            if quantity == 0 || request.ignore_undeclared {
                continue;
            }
            result.choices.clear();
            result.attempts.clear();
            result.reasons = vec![Why::Uncovered(resource)];
            break;
        };
        if result.flavor_of(resource).is_some() {
            continue;
        }
        let progress = request.progress.filter(|_| request.fungible);
        let start = progress.map_or(0, |progress| progress.next(index, resource));
        assignment.resumed |= start > 0;
        let scan = Scan { store, request, pod_set, index, count, group, resource, start, assumed: &assignment.usage };
        let found = scan.run(tree, &result.requests, oracle);
        if found.choices.is_empty() {
            // The group that failed is what counts, whatever was found for others before.
            result.attempts = found.attempts;
            result.choices.clear();
            result.reasons = found.reasons;
            break;
        }
        merge_attempts(&mut result.attempts, found.attempts, group, resource);
        append(&mut result.choices, found.choices);
        append(&mut result.reasons, found.reasons);
    }
    result.attempts.sort_by(|a, b| store.flavor(a.flavor).cmp(store.flavor(b.flavor)));
    result
}

/// Appends without copying where there is nothing yet.
fn append<T>(into: &mut Vec<T>, new: Vec<T>) {
    if into.is_empty() {
        *into = new;
    } else {
        into.extend(new);
    }
}

/// Why a pod set can not run on a flavor of a group, whatever the quota.
pub(crate) fn why_not(
    store: &Store,
    request: &Request<'_>,
    index: usize,
    pod_set: &PodSet,
    group: &Group,
    flavor: FlavorId,
) -> Option<String> {
    if request.allowed.is_some_and(|allowed| !allowed.contains(&flavor)) {
        return Some(format!("flavor {} is not among the allowed ones", store.flavor(flavor)));
    }
    let resource = group.covered.first().copied()?;
    let count = pod_set.spec.count;
    let scan = Scan { store, request, pod_set, index, count, group, resource, start: 0, assumed: &[] };
    request.not_accepted(store, pod_set, group, flavor).or_else(|| Some(scan.mismatch(flavor)?.text(store)))
}

/// The scan over the flavors of one resource group.
struct Scan<'a> {
    store: &'a Store,
    request: &'a Request<'a>,
    pod_set: &'a PodSet,
    index: usize,
    count: i64,
    group: &'a Group,
    resource: ResourceId,
    start: usize,
    assumed: &'a [(CellId, Units)],
}

#[derive(Default)]
struct Found {
    choices: Vec<Choice>,
    reasons: Vec<Why>,
    attempts: Vec<Attempt>,
}

impl Found {
    /// A flavor that is not even looked at for quota.
    fn rule_out(&mut self, flavor: FlavorId, reason: Why, code: PendingReason) {
        self.reasons.push(reason.clone());
        let (reasons, no_fit) = (vec![reason], Some(code));
        self.attempts.push(Attempt { flavor, mode: Mode::NoFit, borrow: 0, possibility: None, reasons, no_fit });
    }
}

impl Scan<'_> {
    fn run(&self, tree: &mut Tree, requests: &[(ResourceId, Units)], oracle: &mut Oracle<'_>) -> Found {
        let policy = self.request.queue.spec.as_ref().map(|spec| spec.fungibility).unwrap_or_default();
        let line = self.request.line(self.store, self.pod_set, self.group);
        // The flavors may have become fewer since the last scan: then it begins anew.
        let start = if self.start < line.len() { self.start } else { 0 };
        let flavors = line.len() - start;
        let mut found = Found { attempts: Vec::with_capacity(flavors.min(4)), ..Found::default() };
        if line.is_empty() {
            let accepted = listed(self.request.tiers_of(self.pod_set).unwrap_or_default());
            let text = format!("no flavor is of an accepted tier ({accepted})");
            found.reasons.push(Why::Mismatch(text.into_boxed_str()));
        }
        let mut best: Level = (Granular::NoFit, u32::MAX);
        let mut last = None;
        for (at, flavor) in line.iter().copied().enumerate().skip(start) {
            last = Some(at);
            if !self.is_pinned(flavor) {
                found.reasons.push(Why::Unpinned(flavor, self.resource));
                continue;
            }
            if self.request.allowed.is_some_and(|allowed| !allowed.contains(&flavor)) {
                let text = format!(
                    "skipping flavor {} due to WorkloadAllowedResourceFlavorAnnotation annotation",
                    self.store.flavor(flavor)
                );
                found.reasons.push(Why::Mismatch(text.into_boxed_str()));
                continue;
            }
            if let Some(reason) = self.mismatch(flavor) {
                let illegal = matches!(reason, Why::Illegal(_));
                found.rule_out(flavor, reason, PendingReason::NoMatchingFlavor);
                if illegal {
                    // Pods that cannot be understood get nothing, not even a flavor before this one.
                    found.choices.clear();
                    return found;
                }
                continue;
            }
            if let Some(reason) = self.out_of_stock(flavor) {
                found.rule_out(flavor, reason, PendingReason::OutOfStock);
                continue;
            }
            let (level, choices, attempt) = self.try_flavor(tree, flavor, requests, &policy, oracle);
            found.reasons.extend(attempt.reasons.iter().cloned());
            found.attempts.push(attempt);
            let (stop, is_better) = if self.request.fungible {
                let stop = !should_try_next(level, &policy);
                (stop, stop || is_preferred(level, best, policy.preemption_over_borrowing))
            } else {
                (level.0 == Granular::Fit, level.0 > best.0)
            };
            if is_better {
                best = level;
                found.choices = choices;
            }
            if stop {
                break;
            }
        }
        if found.choices.is_empty() && found.reasons.is_empty() {
            // Without a reason it would count as a fit that uses nothing.
            found.reasons.push(Why::Mismatch(format!("no flavor has {}", self.store.resource(self.resource)).into()));
        }
        let exhausted = last.is_some_and(|at| at + 1 == line.len());
        let tried = if exhausted { -1 } else { last.and_then(|at| i32::try_from(at).ok()).unwrap_or(-1) };
        for choice in &mut found.choices {
            choice.tried = tried;
        }
        // With preemption preferred to borrowing the worst level may hide a resource that needs preemption.
        if best.0 == Granular::Fit && found.choices.iter().all(|choice| choice.mode == Mode::Fit) {
            found.reasons.clear();
        }
        found
    }

    fn is_pinned(&self, flavor: FlavorId) -> bool {
        self.request
            .pins
            .is_none_or(|pins| pins.get(self.index).is_some_and(|pins| pins.contains(&(self.resource, flavor))))
    }

    fn out_of_stock(&self, flavor: FlavorId) -> Option<Why> {
        let text = self.store.stock_outs.find(self.store, flavor, self.pod_set, self.count)?;
        Some(Why::OutOfStock(flavor, text.into()))
    }

    fn try_flavor(
        &self,
        tree: &mut Tree,
        flavor: FlavorId,
        requests: &[(ResourceId, Units)],
        policy: &FlavorFungibility,
        oracle: &mut Oracle<'_>,
    ) -> (Level, Vec<Choice>, Attempt) {
        let mut level: Level = (Granular::Fit, 0);
        let mut attempt =
            Attempt { flavor, mode: Mode::Fit, borrow: 0, possibility: None, reasons: Vec::new(), no_fit: None };
        let mut choices = Vec::with_capacity(requests.len());
        let name = self.pod_set.spec.name.as_str();
        for (resource, asked) in requests.iter().copied().filter(|(resource, _)| self.group.covered.contains(resource))
        {
            if let Some(why) = self.request.replaced.and_then(|old| old.mismatch(self.store, name, resource, flavor)) {
                attempt.reasons.push(why);
                attempt.no_fit = more_severe(attempt.no_fit, Some(PendingReason::NoMatchingFlavor));
                level.0 = Granular::NoFit;
            }
            let value = self.request.replaced.map_or(asked, |old| old.less(name, resource, asked));
            let (mode, borrow, reason) = self.quota(tree, flavor, resource, value, oracle);
            if let Some((why, no_fit)) = reason {
                attempt.reasons.push(why);
                attempt.no_fit = more_severe(attempt.no_fit, no_fit);
            }
            attempt.borrow = attempt.borrow.max(borrow);
            if is_preferred(level, (mode, borrow), policy.preemption_over_borrowing) {
                level = (mode, borrow);
            }
            if level.0 == Granular::NoFit {
                // What else is missing is told, too.
                continue;
            }
            let hopeless = mode == Granular::NoCandidates;
            choices.push(Choice { resource, flavor, mode: mode.mode(), borrow, tried: -1, hopeless });
        }
        if level.0 == Granular::NoFit {
            choices.clear();
        }
        attempt.mode = level.0.mode();
        attempt.possibility = level.0.possibility();
        (level, choices, attempt)
    }

    fn quota(
        &self,
        tree: &mut Tree,
        flavor: FlavorId,
        resource: ResourceId,
        value: Units,
        oracle: &mut Oracle<'_>,
    ) -> (Granular, u32, Option<(Why, Option<PendingReason>)>) {
        let (store, queue) = (self.store, self.request.queue);
        let Some(cell) = store.find_cell(flavor, resource) else { return (Granular::NoFit, 0, None) };
        let assumed = in_usage(self.assumed, cell);
        let total = assumed + value;
        let potential = tree.potential(queue.node, cell);
        if total > potential {
            let why = Why::Exceeds(flavor, resource, [assumed, value, potential]);
            return (Granular::NoFit, 0, Some((why, Some(PendingReason::ExceedsMaxQuota))));
        }
        if let Some(amounts) = self.request.over_share(store, tree, (flavor, resource), value, self.assumed) {
            let [_, value, most] = amounts;
            let code = if value > most { PendingReason::ExceedsMaxQuota } else { PendingReason::WaitingForQuota };
            return (Granular::NoFit, 0, Some((Why::TierShare(flavor, resource, amounts), Some(code))));
        }
        let (borrow, may_reclaim) = tree.height_that_fits(queue.node, cell, total);
        let available = tree.available(queue.node, cell);
        if total <= available {
            return (Granular::Fit, borrow, None);
        }
        let why = Why::Lacks(flavor, resource, total - available);
        if tree.cell(queue.node, cell).nominal >= total || may_reclaim || self.can_preempt_while_borrowing() {
            let (possibility, borrow) = oracle(store, tree, cell, total);
            let mode = match possibility {
                PreemptionPossibility::NoCandidates => Granular::NoCandidates,
                PreemptionPossibility::Preempt => Granular::Preempt,
                PreemptionPossibility::Reclaim => Granular::Reclaim,
            };
            return (mode, borrow, Some((why, None)));
        }
        (Granular::NoFit, borrow, Some((why, Some(PendingReason::WaitingForQuota))))
    }

    fn can_preempt_while_borrowing(&self) -> bool {
        self.request.queue.spec.as_ref().is_some_and(|spec| {
            let reclaims = spec.preemption.reclaim_within_cohort != PreemptionPolicy::Never;
            spec.preemption.borrow_within_cohort || (self.request.fair_sharing && reclaims)
        })
    }
}

/// Folds the attempts for one resource into those of the pod set: per flavor the worst of all.
fn merge_attempts(into: &mut Vec<Attempt>, new: Vec<Attempt>, group: &Group, resource: ResourceId) {
    if into.is_empty() {
        *into = new;
        return;
    }
    if new.is_empty() {
        return;
    }
    let present: BTreeSet<FlavorId> = new.iter().map(|attempt| attempt.flavor).collect();
    for attempt in new {
        let Some(old) = into.iter_mut().find(|old| old.flavor == attempt.flavor) else {
            into.push(attempt);
            continue;
        };
        old.mode = old.mode.min(attempt.mode);
        old.borrow = old.borrow.max(attempt.borrow);
        old.possibility = match (old.possibility, attempt.possibility) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        old.no_fit = more_severe(old.no_fit, attempt.no_fit);
        old.reasons.extend(attempt.reasons);
    }
    for old in into.iter_mut() {
        if group.flavors.contains(&old.flavor) && !present.contains(&old.flavor) {
            old.mode = Mode::NoFit;
            old.no_fit = Some(PendingReason::NoMatchingFlavor);
            old.reasons.push(Why::NotProvided(old.flavor, resource));
        }
    }
}

/// Over the flavors of a group the mildest reason counts, over groups and pod sets the most severe.
fn no_fit_reason(queue: &Queue, assignment: &Assignment) -> Option<PendingReason> {
    let mut overall = None;
    for pod_set in assignment.pod_sets.iter().filter(|p| p.mode() == Mode::NoFit) {
        if pod_set.attempts.is_empty() {
            overall = more_severe(overall, Some(PendingReason::NoMatchingFlavor));
            continue;
        }
        for group in &queue.groups {
            let mildest = pod_set
                .attempts
                .iter()
                .filter(|attempt| attempt.mode == Mode::NoFit && group.flavors.contains(&attempt.flavor))
                .map(|attempt| attempt.no_fit)
                .min_by_key(|reason| severity(*reason));
            overall = more_severe(overall, mildest.flatten());
        }
    }
    overall
}
