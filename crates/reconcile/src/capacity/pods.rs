//! Capacity of single pods and pod groups: the scheduler's messages are in the statuses of the pods, and messages of autoscalers are read on demand. Pods that
//! leave a tier are deleted; for the pods that their owner makes in their place, the flavor is out of stock.

use std::collections::{BTreeMap, BTreeSet};

use berth_cache::moments::{after, seconds_between};
use berth_cache::tier_reasons::STOCK_OUT;
use berth_cache::tier_rules::TierRules;
use berth_cache::{Name, WorkloadView};
use berth_jobs::pods::PodState;
use jiff::Timestamp;

use super::pauses::{next_look, next_question};
use super::tier_assignment::TierAssignment;
use super::tier_assignments::tier_assignments;
use crate::context::Context;
use crate::decision::{Decision, Draft};
use crate::workload::evict;
use crate::write::{Kind, Purpose, Query, StuckPod};

/// A pod that no node takes.
struct Stuck<'a> {
    pod: &'a PodState,
    since: Timestamp,
    /// The scheduler's message about the pod.
    words: &'a str,
    assignment: &'a TierAssignment,
}

/// Watches a Workload of pods that was admitted at the time `admitted`.
pub(super) fn decide(
    ctx: &Context<'_>,
    workload: &WorkloadView,
    rules: &TierRules,
    admitted: Timestamp,
    now: Timestamp,
) -> Decision {
    let assignments = tier_assignments(ctx, workload);
    let Some(patience) = assignments.iter().map(|assignment| rules.patience_ms(assignment.tier)).min() else {
        return Decision::Done;
    };
    let signals = rules.signals;
    if !(signals.unschedulable || signals.scale_up_failed) || is_up(ctx, workload) {
        return Decision::Done;
    }
    let stuck = stuck_of(ctx, workload, &assignments, admitted);
    let due = |one: &Stuck<'_>| ctx.view.timeline().after(one.since, rules.patience_ms(one.assignment.tier));
    if let Some(late) = stuck.values().find(|one| signals.unschedulable && due(one) <= now) {
        return leave(workload, late, late.words, now);
    }
    let last = ctx.notes_of(workload).capacity().answer_since(admitted);
    let refused = stuck.iter().filter(|_| signals.scale_up_failed).find_map(|(role, one)| {
        let text = last.filter(|answer| answer.at >= one.since)?.stuck.iter().find(|pod| pod.pod_set == **role)?;
        Some((one, text.refused.as_deref()?))
    });
    if let Some((one, words)) = refused {
        return leave(workload, one, words, now);
    }
    let due = stuck.values().map(due).filter(|due| signals.unschedulable && *due > now).min();
    // If no pod is stuck, the cause is an image, a volume or a slow start, and not a lack of capacity. A pod for which the scheduler finds no node later causes
    // another decision about its Workload.
    let pause = next_look(now, patience).max(ctx.view.timeline().after(admitted, patience));
    let ask = stuck.values().filter(|_| signals.scale_up_failed).map(|one| {
        let asked = last.map_or(one.since, |answer| answer.at.max(one.since));
        next_question(asked, rules.patience_ms(one.assignment.tier))
    });
    let ask = ask.min();
    if ask.is_some_and(|at| at <= now) {
        let known = |(role, one): (&&str, &Stuck<'_>)| {
            let pod = StuckPod { pod_set: (*role).to_owned(), message: one.words.to_owned(), refused: None };
            (one.pod.uid.to_string(), pod)
        };
        let query = Query::AskAutoscalers { pods: stuck.iter().map(known).collect() };
        let object = workload.object_key();
        return Decision::write(Draft::ask(Purpose::FindStuckPods, object, query));
    }
    Decision::Wait([due, ask].into_iter().flatten().min().unwrap_or(pause))
}

/// Pods that no node takes, one of each role, because equal pods of a role fail alike.
fn stuck_of<'a>(
    ctx: &'a Context<'a>,
    workload: &WorkloadView,
    assignments: &'a [TierAssignment],
    admitted: Timestamp,
) -> BTreeMap<&'a str, Stuck<'a>> {
    let mut stuck: BTreeMap<&str, Stuck<'_>> = BTreeMap::new();
    for pod in pods_of(ctx, workload) {
        let Some(words) = pod.unschedulable.as_deref().filter(|_| pod.runs() && !pod.bound) else { continue };
        let Some(assignment) = assignments.iter().find(|assignment| assignment.pod_set == pod.role()) else { continue };
        let since = Timestamp::from_second(pod.created).unwrap_or(admitted).max(admitted);
        if stuck.get(pod.role()).is_none_or(|known| since < known.since) {
            stuck.insert(pod.role(), Stuck { pod, since, words, assignment });
        }
    }
    stuck
}

/// The roles of a Workload whose patience was over between its admission and its eviction.
pub(super) fn late(
    ctx: &Context<'_>,
    workload: &WorkloadView,
    (admitted, evicted): (Timestamp, Timestamp),
) -> BTreeSet<String> {
    let Some(rules) = ctx.tier_rules(workload).filter(|rules| rules.signals.unschedulable) else {
        return BTreeSet::new();
    };
    let assignments = tier_assignments(ctx, workload);
    let stuck = stuck_of(ctx, workload, &assignments, admitted);
    let late = stuck.values().filter(|one| after(one.since, rules.patience_ms(one.assignment.tier)) <= evicted);
    late.map(|one| one.assignment.pod_set.clone()).collect()
}

fn leave(workload: &WorkloadView, stuck: &Stuck<'_>, words: &str, now: Timestamp) -> Decision {
    let message = format!("{}: {words}", stuck.assignment.had_no_nodes(seconds_between(stuck.since, now)));
    Decision::write(evict(workload, now, (STOCK_OUT, ""), &message))
}

fn place(workload: &WorkloadView) -> Option<(Kind, Name)> {
    let owner_key = workload.owner_key()?;
    Some((owner_key.kind, (owner_key.namespace, owner_key.name)))
}

/// Whether all pods of a Workload are ready, or have ended.
fn is_up(ctx: &Context<'_>, workload: &WorkloadView) -> bool {
    let pods = ctx.view.pods();
    match place(workload) {
        Some((Kind::Pod, name)) => pods.get(&name).is_none_or(|pod| pod.ready || pod.ended()),
        Some((_, name)) => pods.group(&name).is_none_or(|group| group.tally.is_ready(workload.sizes())),
        None => true,
    }
}

/// The pods of a Workload.
fn pods_of<'a>(ctx: &'a Context<'a>, workload: &WorkloadView) -> Vec<&'a PodState> {
    let pods = ctx.view.pods();
    match place(workload) {
        Some((Kind::Pod, name)) => pods.get(&name).into_iter().collect(),
        Some((_, name)) => pods.members(&name).map(|(_, pod)| pod).collect(),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
