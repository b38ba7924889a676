//! Pod sets of one group (`topologyRequest.podSetGroupName`) get the same flavor of each resource, judged by their summed requests. A pod set without a group
//! gets its flavors independently of other pod sets.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::assign::assignment::{Assignment, Attempt, PodSetResult};
use crate::assign::member::Member;
use crate::assign::mode::Mode;
use crate::assign::node::Tries;
use crate::assign::request::{Oracle, Request};
use crate::assign::scan::Scan;
use crate::explain::why::{Why, more_severe};
use crate::model::PendingReason;
use crate::options::profile::Departure;
use crate::quota::balance::{Units, add_to};
use crate::quota::tree::Tree;
use crate::world::ids::{FlavorId, ResourceId};
use crate::world::store::{Group, Store};

/// Assigns flavors to the pod sets of one group, which get the same flavors. Returns true if a pod set gets no flavor, which ends the search.
pub(super) fn assign_group(
    store: &Store,
    tree: &mut Tree,
    request: &Request<'_>,
    members: &mut [Member<'_>],
    assignment: &mut Assignment,
    oracle: &mut Oracle<'_>,
) -> bool {
    let mut found = find_flavors(store, tree, request, members, assignment, oracle);
    let (shared, last) = (members.len() > 1, members.len().saturating_sub(1));
    let mut failed = false;
    for (at, member) in members.iter_mut().enumerate() {
        let mut result = if at == last { std::mem::take(&mut found) } else { found.clone() };
        result.index = member.index;
        result.count = member.count;
        result.requests = std::mem::take(&mut member.requests);
        if shared {
            let requests = &result.requests;
            result.choices.retain(|choice| requests.iter().any(|(resource, _)| *resource == choice.resource));
        }
        let is_over = result.mode() == Mode::NoFit
            || !(request.options.profile.has(Departure::AllPodSetsGetQuota) || result.requests.is_empty());
        failed |= is_over && result.choices.is_empty();
        assignment.add(store, result, &member.pod_set.spec.name, request.replaced);
    }
    failed
}

/// Finds flavors for all pod sets of a group, with the reasons why the flavors are no plain fit. The result is the first combination of flavors that serves the
/// pods best, among the combinations that can be of one node. If no two flavors contradict each other, only one combination of flavors is tried.
fn find_flavors(
    store: &Store,
    tree: &mut Tree,
    request: &Request<'_>,
    members: &[Member<'_>],
    assignment: &mut Assignment,
    oracle: &mut Oracle<'_>,
) -> PodSetResult {
    let asked = together(members);
    let order = in_turn(store, request, &asked);
    let turns = Turns { members, asked: &asked, order: order.as_deref() };
    let mut tries = Tries::default();
    let mut next = |tries: &mut Tries| {
        let result = combine(store, tree, request, &turns, assignment, (tries, oracle));
        (tries.fitness(), result)
    };
    let mut best = next(&mut tries);
    while tries.advance() {
        let other = next(&mut tries);
        if other.0 > best.0 {
            best = other;
        }
    }
    best.1
}

/// The pod sets of a group with their requests, and the order in which resources are assigned.
struct Turns<'a> {
    members: &'a [Member<'a>],
    asked: &'a [(ResourceId, Units)],
    /// Indexes into the requests `asked` in the order of assignment; `None` if all requests belong to one resource group.
    order: Option<&'a [usize]>,
}

/// Assigns the first combination of flavors that was not tried before.
fn combine(
    store: &Store,
    tree: &mut Tree,
    request: &Request<'_>,
    turns: &Turns<'_>,
    assignment: &mut Assignment,
    (tries, oracle): (&mut Tries, &mut Oracle<'_>),
) -> PodSetResult {
    let Turns { members, asked, order } = *turns;
    let mut result = PodSetResult::default();
    for turn in 0..asked.len() {
        let at = order.and_then(|order| order.get(turn)).copied().unwrap_or(turn);
        let Some((resource, quantity)) = asked.get(at).copied() else { break };
        let Some(group) = request.queue.group_of(resource) else {
            if quantity == 0 || request.options.ignore_undeclared {
                continue;
            }
            result.choices.clear();
            result.reasons = vec![Why::Uncovered(resource)];
            break;
        };
        if result.flavor_of(resource).is_some() {
            continue;
        }
        let progress = request.progress.filter(|_| request.options.gates.flavor_fungibility);
        let first = members.first().map_or(0, |first| first.index);
        let start = progress.map_or(0, |progress| progress.next(first, resource));
        assignment.resumed |= start > 0;
        let excluded = tries.excluded(turn);
        let (assumed, beside) = (&assignment.usage, result.choices.as_slice());
        let scan = Scan { store, request, members, group, resource, start, assumed, beside, excluded: &excluded };
        let found = scan.run(tree, asked, oracle);
        if order.is_some() {
            tries.note(turn, &found);
        }
        merge_attempts(&mut result.attempts, found.attempts, group, resource);
        if found.choices.is_empty() {
            // A pod set gets no flavor at all if one of its resource groups has none: the choices for earlier resource groups are dropped, and the reasons of
            // the group without a flavor are reported.
            result.choices.clear();
            result.reasons = found.reasons;
            break;
        }
        // If two resource groups cover a resource, the choice of the later group replaces the choice of the earlier group.
        result.choices.retain(|old| !found.choices.iter().any(|new| new.resource == old.resource));
        append(&mut result.choices, found.choices);
        append(&mut result.reasons, found.reasons);
    }
    result.attempts.sort_by(|a, b| store.flavor(a.flavor).cmp(store.flavor(b.flavor)));
    result
}

/// Sum of the requests of the pod sets.
fn together<'m>(members: &'m [Member<'_>]) -> Cow<'m, [(ResourceId, Units)]> {
    let [first, others @ ..] = members else { return Cow::Owned(Vec::new()) };
    if others.is_empty() {
        return Cow::Borrowed(&first.requests);
    }
    let mut all = first.requests.clone();
    for (resource, value) in others.iter().flat_map(|member| &member.requests) {
        match all.iter_mut().find(|(known, _)| known == resource) {
            Some((_, sum)) => add_to(sum, *value),
            None => all.push((*resource, *value)),
        }
    }
    Cow::Owned(all)
}

/// The indexes of the requests in the order in which resources are assigned, if that differs from the order of the list. The order of assignment matters if
/// several resource groups are requested, because the first group that fails ends the search and gives the reason. Kueue's order is the order of a hash of the
/// resource names.
fn in_turn(store: &Store, request: &Request<'_>, asked: &[(ResourceId, Units)]) -> Option<Vec<usize>> {
    let group = |(resource, _): &(ResourceId, Units)| {
        request.queue.groups.iter().position(|group| group.covered.contains(resource))
    };
    asked.windows(2).any(|pair| matches!(pair, [a, b] if group(a) != group(b))).then(|| {
        let mut places: Vec<usize> = (0..asked.len()).collect();
        places.sort_by_cached_key(|at| asked.get(*at).map(|(resource, _)| fnv(store.resource(*resource))));
        places
    })
}

/// 64 bits of FNV-1a.
fn fnv(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Appends `new` to `into`, without copying if `into` is empty.
fn append<T>(into: &mut Vec<T>, new: Vec<T>) {
    if into.is_empty() {
        *into = new;
    } else {
        into.extend(new);
    }
}

/// Merges the attempts for one resource into the attempts of the pod set, with the worst result of each flavor.
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
