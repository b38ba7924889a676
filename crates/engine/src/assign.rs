//! Flavor assignment: which flavor each resource of a workload could have, and how.

pub(crate) mod assignment;
mod groups;
pub(crate) mod matching;
mod mismatch;
mod node;
pub(crate) mod partial;
pub(crate) mod progress;
mod scan;
pub(crate) mod stock;
pub(crate) mod tiers;

use crate::assign::assignment::{Assignment, Granular, Mode, PreemptionPossibility};
use crate::assign::groups::{Member, assign_group};
use crate::assign::scan::Scan;
use crate::explain::why::{more_severe, severity};
use crate::model::{FlavorFungibility, Fungibility, PendingReason, Tier};
use crate::options::Options;
use crate::quota::balance::{INF, Units};
use crate::quota::tree::Tree;
use crate::world::ids::{CellId, FlavorId, QueueId, ResourceId};
use crate::world::slices::Older;
use crate::world::store::{Group, PodSet, Progress, Queue, Store, Workload};

/// Search for victims for one cell: quantity wanted there, giving the possibility and the borrowing level afterwards.
pub(crate) type Oracle<'o> = dyn FnMut(&Store, &mut Tree, CellId, Units) -> (PreemptionPossibility, u32) + 'o;

/// Flavors to which a repeated assignment is held, per pod set.
pub(crate) type Pins = Vec<Vec<(ResourceId, FlavorId)>>;

/// A request for flavors.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) queue: &'a Queue,
    pub(crate) pod_sets: &'a [PodSet],
    /// Reduced counts of partial admission.
    pub(crate) counts: Option<&'a [i64]>,
    pub(crate) progress: Option<&'a Progress>,
    pub(crate) pins: Option<&'a Pins>,
    /// The workload slice that this one replaces: its quota is held already, and its flavors are the only ones.
    pub(crate) replaced: Option<&'a Older>,
    /// The only flavors that may be given.
    pub(crate) allowed: Option<&'a [FlavorId]>,
    /// The tiers that the workload accepts, best first.
    pub(crate) tiers: Option<&'a [Tier]>,
    /// `FlavorFungibility` is on.
    pub(crate) fungible: bool,
    pub(crate) ignore_undeclared: bool,
    pub(crate) fair_sharing: bool,
    /// A flavor fits only where each resource does.
    pub(crate) all_must_fit: bool,
    /// Pods that ask for a kind of capacity get no flavor that says nothing of it beside one that does.
    pub(crate) capacity_pins: bool,
    /// A pod set without requests that count does not end the search for the other pod sets.
    pub(crate) all_pod_sets: bool,
    /// The flavors that a pod is given can be of one node.
    pub(crate) one_node: bool,
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
            all_must_fit: options.departures.all_must_fit,
            capacity_pins: options.departures.capacity_pins,
            all_pod_sets: options.departures.all_pod_sets,
            one_node: options.departures.one_node,
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

/// How many pods of a pod set are asked for: all of them, where no counts are given.
pub(crate) fn count_of(counts: Option<&[i64]>, index: usize, all: i64) -> i64 {
    counts.and_then(|counts| counts.get(index)).copied().unwrap_or(all)
}

/// Request of `count` pods, each of which requests `one`.
pub(crate) fn of_all(one: Units, count: i64) -> Units {
    one.saturating_mul(Units::from(count)).clamp(0, INF)
}

/// Requests of `count` pods, with `pods` where the queue covers it, by resource name.
pub(crate) fn requests(store: &Store, queue: &Queue, pod_set: &PodSet, count: i64) -> Vec<(ResourceId, Units)> {
    let mut requests: Vec<(ResourceId, Units)> =
        pod_set.requests.iter().map(|(resource, one)| (*resource, of_all(*one, count))).collect();
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
                // A group has its turn with the first of its pod sets.
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

/// The same where nobody is to leave for it: only what is free counts.
pub(crate) fn assign_free(store: &Store, tree: &mut Tree, request: &Request<'_>) -> Assignment {
    let mut nobody = |_: &Store, _: &mut Tree, _: CellId, _: Units| (PreemptionPossibility::NoCandidates, 0);
    assign(store, tree, request, &mut nobody)
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
    let members = [Member { index, pod_set, count: pod_set.spec.count, requests: Vec::new() }];
    let scan =
        Scan { store, request, members: &members, group, resource, start: 0, assumed: &[], beside: &[], barred: &[] };
    request.not_accepted(store, pod_set, group, flavor).or_else(|| Some(scan.mismatch(flavor)?.text(store)))
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
