//! Capacity of pods that are managed themselves: messages of the scheduler about them are at hand, messages of autoscalers are asked for. Pods that
//! leave a tier are deleted; the pods that their owner makes in their place meet the flavor as out of stock.

use std::collections::{BTreeMap, BTreeSet};

use berth_jobs::pods::PodState;
use jiff::Timestamp;

use super::pauses::{next_look, next_question};
use super::tier_assignment::TierAssignment;
use super::tier_assignments::tier_assignments;
use crate::cache::tier_reasons::STOCK_OUT;
use crate::cache::tier_rules::TierRules;
use crate::cache::{Name, WorkloadView};
use crate::context::Context;
use crate::decision::{Decision, Draft};
use crate::moments::{after, seconds_between};
use crate::workload::evict;
use crate::write::{Kind, Purpose, Question, StuckPod};

/// A pod that no node takes.
struct Stuck<'a> {
    pod: &'a PodState,
    since: Timestamp,
    /// The scheduler's message.
    words: &'a str,
    assignment: &'a TierAssignment,
}

/// Watches a workload of pods that was admitted at that time.
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
    let due = |one: &Stuck<'_>| ctx.view.timeline.after(one.since, rules.patience_ms(one.assignment.tier));
    if let Some(late) = stuck.values().find(|one| signals.unschedulable && due(one) <= now) {
        return leave(workload, late, late.words, now);
    }
    let last = ctx.notes_of(workload).capacity().answer_since(admitted);
    let refused = stuck.iter().filter(|_| signals.scale_up_failed).find_map(|(role, one)| {
        let said = last.filter(|answer| answer.at >= one.since)?.stuck.iter().find(|pod| pod.pod_set == **role)?;
        Some((one, said.refused.as_deref()?))
    });
    if let Some((one, words)) = refused {
        return leave(workload, one, words, now);
    }
    let due = stuck.values().map(due).filter(|due| signals.unschedulable && *due > now).min();
    // Without a stuck pod the cause is an image, a volume or a slow start, and no lack of capacity. A pod that gets stuck brings the decision back.
    let pause = next_look(now, patience).max(ctx.view.timeline.after(admitted, patience));
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
        let question = Question::AskAutoscalers { pods: stuck.iter().map(known).collect() };
        let object = workload.object_key();
        return Decision::write(Draft::ask(Purpose::FindStuckPods, object, question));
    }
    Decision::Wait([due, ask].into_iter().flatten().min().unwrap_or(pause))
}

/// Pods that no node takes, one of each role: a failure of one of equal pods holds for all.
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

/// Roles of a workload, admitted at that time and evicted at the other, whose tiers had no more patience.
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
    let whole = workload.whole()?;
    Some((whole.kind, (whole.namespace, whole.name)))
}

/// Whether all of its pods are ready, or have ended.
fn is_up(ctx: &Context<'_>, workload: &WorkloadView) -> bool {
    let pods = &ctx.view.pods;
    match place(workload) {
        Some((Kind::Pod, name)) => pods.get(&name).is_none_or(|pod| pod.ready || pod.ended()),
        Some((_, name)) => pods.group(&name).is_none_or(|group| group.tally.is_ready(workload.sizes())),
        None => true,
    }
}

/// A workload's pods.
fn pods_of<'a>(ctx: &'a Context<'a>, workload: &WorkloadView) -> Vec<&'a PodState> {
    let pods = &ctx.view.pods;
    match place(workload) {
        Some((Kind::Pod, name)) => pods.get(&name).into_iter().collect(),
        Some((_, name)) => pods.members(&name).map(|(_, pod)| pod).collect(),
        None => Vec::new(),
    }
}
