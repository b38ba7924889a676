//! Flavor assignment: which flavor each resource of a workload could have, and in which mode (fit, preemption).

pub(crate) mod assignment;
pub(crate) mod claim;
mod groups;
mod growth;
pub(crate) mod matching;
mod member;
mod mismatch;
pub(crate) mod mode;
mod node;
pub(crate) mod partial;
pub(crate) mod preference;
pub(crate) mod progress;
mod promotion;
pub(crate) mod request;
mod scan;
pub(crate) mod stock;
mod tiers;

use crate::assign::assignment::Assignment;
use crate::assign::groups::assign_group;
use crate::assign::member::Member;
use crate::assign::mode::{Mode, PreemptionPossibility};
use crate::assign::request::{Oracle, Request};
use crate::assign::scan::Scan;
use crate::explain::why::{more_severe, severity};
use crate::model::PendingReason;
use crate::quota::balance::Units;
use crate::quota::tree::Tree;
use crate::world::ids::{CellId, FlavorId};
use crate::world::store::{Group, PodSet, Queue, Store};

/// Assigns flavors to all pod sets of a request. The cost of `assign` is the number of flavors times the number of resources, and a search for victims for each
/// cell that needs preemption.
pub(crate) fn assign(store: &Store, tree: &mut Tree, request: &Request<'_>, oracle: &mut Oracle<'_>) -> Assignment {
    let mut assignment = Assignment { pod_sets: Vec::with_capacity(request.pod_sets.len()), ..Assignment::default() };
    let pod_sets = || request.pod_sets.iter().enumerate();
    for (index, pod_set) in pod_sets() {
        let failed = match &pod_set.spec.group {
            None => {
                let mut alone = [Member::of(store, request, (index, pod_set))];
                assign_group(store, tree, request, &mut alone, &mut assignment, oracle)
            }
            Some(name) => {
                let together = pod_sets().filter(|(_, other)| other.spec.group.as_ref() == Some(name));
                let mut members: Vec<Member<'_>> = together.map(|set| Member::of(store, request, set)).collect();
                // A group of pod sets is assigned when the loop comes to the first of its pod sets.
                members.first().is_some_and(|first| first.index == index)
                    && assign_group(store, tree, request, &mut members, &mut assignment, oracle)
            }
        };
        if failed {
            break;
        }
    }
    if assignment.mode() == Mode::NoFit {
        assignment.no_fit = no_fit_reason(request.queue, &assignment);
    }
    assignment
}

/// Assigns flavors without preemption: only free quota counts.
pub(crate) fn assign_free(store: &Store, tree: &mut Tree, request: &Request<'_>) -> Assignment {
    let mut nobody = |_: &Store, _: &mut Tree, _: CellId, _: Units| (PreemptionPossibility::NoCandidates, 0);
    assign(store, tree, request, &mut nobody)
}

/// Reason why a pod set can not run on a flavor of a resource group, whatever the quota.
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
    let members = [Member { index, pod_set, count: pod_set.spec.count, requests: Vec::new() }];
    let scan =
        Scan { store, request, members: &members, group, resource, start: 0, assumed: &[], beside: &[], excluded: &[] };
    request.not_accepted(store, pod_set, group, flavor).or_else(|| Some(scan.mismatch(flavor)?.text(store)))
}

/// The reason why nothing fits: the mildest reason over the flavors of a resource group, and the most severe reason over the groups and pod sets.
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
