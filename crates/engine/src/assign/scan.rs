//! The scan over the flavors of a resource group, for pod sets that get one of the flavors together.

use crate::assign::assignment::{Attempt, Choice};
use crate::assign::claim::Pins;
use crate::assign::member::Member;
use crate::assign::mode::{Granular, Mode, PreemptionPossibility};
use crate::assign::preference::{Level, is_preferred, should_try_next};
use crate::assign::request::{Oracle, Request};
use crate::assign::tiers::listed;
use crate::explain::why::{Why, more_severe};
use crate::model::{FlavorFungibility, PendingReason, PreemptionPolicy};
use crate::options::profile::Departure;
use crate::quota::balance::{Units, in_usage};
use crate::quota::tree::Tree;
use crate::world::ids::{CellId, FlavorId, ResourceId};
use crate::world::store::{Group, Store};

/// The scan over the flavors of one resource group.
pub(super) struct Scan<'a> {
    pub(super) store: &'a Store,
    pub(super) request: &'a Request<'a>,
    /// Pod sets that get one flavor together; there is at least one pod set.
    pub(super) members: &'a [Member<'a>],
    pub(super) group: &'a Group,
    pub(super) resource: ResourceId,
    pub(super) start: usize,
    /// Usage of the flavors that earlier pod sets of the workload are given.
    pub(super) assumed: &'a [(CellId, Units)],
    /// Flavors that the pods are given for resources of other groups.
    pub(super) beside: &'a [Choice],
    /// Flavors that were tried before, together with the same choices of earlier resource groups.
    pub(super) excluded: &'a [FlavorId],
}

/// Result of a scan.
#[derive(Default)]
pub(super) struct Found {
    pub(super) choices: Vec<Choice>,
    pub(super) reasons: Vec<Why>,
    pub(super) attempts: Vec<Attempt>,
    /// True if a flavor was skipped because of the flavors that the pods are given for other resource groups.
    pub(super) is_narrowed: bool,
}

impl Found {
    /// Records a flavor that is ruled out before its quota is checked.
    fn rule_out(&mut self, flavor: FlavorId, reason: Why, code: PendingReason) {
        self.reasons.push(reason.clone());
        let (reasons, no_fit) = (vec![reason], Some(code));
        self.attempts.push(Attempt { flavor, mode: Mode::NoFit, borrow: 0, possibility: None, reasons, no_fit });
    }
}

impl<'a> Scan<'a> {
    pub(super) fn run(&self, tree: &mut Tree, requests: &[(ResourceId, Units)], oracle: &mut Oracle<'_>) -> Found {
        let policy = self.request.queue.spec.as_ref().map(|spec| spec.fungibility).unwrap_or_default();
        let Some(first) = self.members.first() else { return Found::default() };
        let line = self.request.line(self.store, first.pod_set, self.group);
        // The list of flavors may have become shorter since the last scan; in this case the scan begins anew.
        let start = if self.start < line.len() { self.start } else { 0 };
        let flavors = line.len().saturating_sub(start);
        let mut found = Found { attempts: Vec::with_capacity(flavors.min(4)), ..Found::default() };
        if line.is_empty() {
            let accepted = listed(self.request.tiers_of(first.pod_set).unwrap_or_default());
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
                    // Pods whose affinity is invalid get no flavor, not even a flavor that was tried earlier in the scan.
                    found.choices.clear();
                    return found;
                }
                continue;
            }
            if self.excluded.contains(&flavor) {
                found.is_narrowed = true;
                found.rule_out(flavor, Self::tried_before(self.store, flavor), PendingReason::NoMatchingFlavor);
                continue;
            }
            if let Some(reason) = self.of_another_node(flavor) {
                found.is_narrowed = true;
                found.rule_out(flavor, reason, PendingReason::NoMatchingFlavor);
                continue;
            }
            if let Some(reason) = self.out_of_stock(flavor) {
                found.rule_out(flavor, reason, PendingReason::OutOfStock);
                continue;
            }
            let (level, choices, attempt) = self.try_flavor(tree, flavor, requests, &policy, oracle);
            found.reasons.extend(attempt.reasons.iter().cloned());
            found.attempts.push(attempt);
            let (stop, is_better) = if self.request.options.gates.flavor_fungibility {
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
            // A scan that finds no flavor needs a reason, because a pod set without flavors and reasons counts as a fit that uses no quota.
            found.reasons.push(Why::Mismatch(format!("no flavor has {}", self.store.resource(self.resource)).into()));
        }
        let exhausted = last.is_some_and(|at| at.saturating_add(1) == line.len());
        let tried = if exhausted { -1 } else { last.and_then(|at| i32::try_from(at).ok()).unwrap_or(-1) };
        // Without FlavorFungibility the recorded progress of a scan is always 0, which reads as if the second flavor came next.
        let tried = if self.request.options.gates.flavor_fungibility { tried } else { 0 };
        for choice in &mut found.choices {
            choice.tried = tried;
        }
        // If preemption is preferred to borrowing, the best flavor may count as a fit although one of its resources needs preemption.
        let fits = || found.choices.iter().all(|choice| choice.mode == Mode::Fit);
        if best.0 == Granular::Fit && (!self.request.options.profile.has(Departure::AllResourcesFit) || fits()) {
            found.reasons.clear();
        }
        found
    }

    fn is_pinned(&self, flavor: FlavorId) -> bool {
        let pinned = |pins: &Pins, member: &Member<'_>| {
            pins.get(member.index).is_some_and(|pins| pins.contains(&(self.resource, flavor)))
        };
        self.request.pins.is_none_or(|pins| self.members.iter().any(|member| pinned(pins, member)))
    }

    fn out_of_stock(&self, flavor: FlavorId) -> Option<Why> {
        let out = |member: &Member<'a>| self.store.stock_outs.find(self.store, flavor, member.pod_set, member.count);
        Some(Why::OutOfStock(flavor, self.members.iter().find_map(out)?.into()))
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
        for (resource, asked) in requests.iter().copied().filter(|(resource, _)| self.group.covered.contains(resource))
        {
            let mut value = asked;
            let names = self.members.iter().map(|member| member.pod_set.spec.name.as_str());
            for (old, name) in self.request.replaced.into_iter().flat_map(|old| names.clone().map(move |n| (old, n))) {
                if let Some(why) = old.mismatch(self.store, name, resource, flavor) {
                    attempt.reasons.push(why);
                    attempt.no_fit = more_severe(attempt.no_fit, Some(PendingReason::NoMatchingFlavor));
                    level.0 = Granular::NoFit;
                    break;
                }
                value = old.less(name, resource, value);
            }
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
                // The loop over resources goes on, so that the reasons about the other resources are collected, too.
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
        let total = assumed.saturating_add(value);
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
        let why = Why::Lacks(flavor, resource, total.saturating_sub(available));
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
            spec.preemption.borrow_within_cohort || (self.request.options.fair_sharing.is_some() && reclaims)
        })
    }
}
