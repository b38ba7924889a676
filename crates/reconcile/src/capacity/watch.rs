//! Watches the capacity of a started Workload: nodes have to come within the patience of the Workload's tier.

use std::collections::BTreeSet;

use berth_cache::moments::{after_seconds, seconds_between};
use berth_cache::tier_rules::{BackoffRules, TierRules};
use berth_cache::timeline::Timeline;
use berth_cache::{Name, WorkloadView};
use berth_jobs::JobState;
use jiff::Timestamp;

use crate::capacity::capacity_notes::Answer;
use crate::capacity::lack::{Lack, WantedPods};
use crate::capacity::pauses::{PAUSE_MS, next_look, next_question};
use crate::capacity::tier_assignment::TierAssignment;
use crate::capacity::tier_assignments::tier_assignments;
use crate::context::Context;
use crate::decision::{Decision, Draft};
use crate::training_job::restarts::reported_start;
use crate::workload::evict;
use crate::write::{Purpose, Query, StuckPod};
pub(crate) use berth_cache::tier_reasons::{RECLAIMED, STOCK_OUT, returns_at_once};

/// The lack of pods of a started Workload, with the time since which pods are lacking as far as this was observed; `None` if no pods are lacking. A TrainingJob
/// lacks pods if one of its Jobs does.
fn lacking(ctx: &Context<'_>, workload: &WorkloadView) -> Option<Option<Lack>> {
    let known = |job: &JobState| ctx.notes.jobs().of(&job.uid).lack();
    let lacks = |job: &&JobState| WantedPods::of(job) == WantedPods::Lacking;
    if let Some(name) = workload.training_job() {
        let view = ctx.view.training().get(&name)?;
        let roles = workload.shape.digests.iter();
        let jobs = roles.filter_map(|set| ctx.view.child_of(&name, &view.uid, &set.name));
        let lacking: Vec<&JobState> = jobs.filter(lacks).collect();
        let first = |a: Lack, b: Lack| Lack { since: a.since.min(b.since), had: a.had || b.had };
        let lack = lacking.iter().filter_map(|job| known(job)).reduce(first);
        return (!lacking.is_empty()).then_some(lack);
    }
    let job = ctx.view.job_of(workload).filter(lacks)?;
    Some(known(job))
}

/// The time at which a started Workload lost pods; `None` if the Workload lacks no pod, or never had all its pods.
pub(super) fn lost_at(ctx: &Context<'_>, workload: &WorkloadView) -> Option<Timestamp> {
    lacking(ctx, workload)?.filter(|lack| lack.had).map(|lack| lack.since)
}

/// A started Workload that lacks pods, with the facts for a decision.
struct LackingPods<'a> {
    lack: Option<Lack>,
    assignments: Vec<TierAssignment>,
    rules: &'a TierRules,
    since: Timestamp,
    last: Option<&'a Answer>,
    timeline: &'a Timeline,
}

impl<'a> LackingPods<'a> {
    /// The pods that a Workload lacks that was admitted at the time `admitted`; `None` if no pods are lacking, or the Workload holds no flavor with a tier.
    fn at(ctx: &'a Context<'a>, workload: &WorkloadView, admitted: Timestamp) -> Option<Self> {
        let rules = ctx.tier_rules(workload)?;
        let lack = lacking(ctx, workload)?;
        let assignments = tier_assignments(ctx, workload);
        if assignments.is_empty() {
            return None;
        }
        let since = lack.map_or(admitted, |lack| lack.since.max(admitted));
        let since = ctx.added_to(workload).map_or(since, |added| added.since.max(since));
        let last = ctx.notes_of(workload).capacity().answer_since(since);
        Some(Self { lack, assignments, rules, since, last, timeline: ctx.view.timeline() })
    }

    /// The time at which the patience for a tier assignment is over.
    fn due(&self, assignment: &TierAssignment) -> Timestamp {
        self.timeline.after(self.since, self.rules.patience_ms(assignment.tier))
    }

    /// Whether a pod of a tier assignment has lacked a node for longer than the patience of the tier.
    fn is_late(&self, assignment: &TierAssignment) -> bool {
        self.rules.signals.unschedulable && self.last.is_some_and(|answer| answer.at >= self.due(assignment))
    }

    /// Pods that get no node, with the tier assignment of their pod set.
    fn nowhere(&self) -> impl Iterator<Item = (&TierAssignment, &'a StuckPod)> {
        let place = |pod: &StuckPod| self.assignments.iter().find(|assignment| assignment.pod_set == pod.pod_set);
        self.last.into_iter().flat_map(|answer| &answer.stuck).filter_map(move |pod| Some((place(pod)?, pod)))
    }

    /// The first pod that is known to get no node, with the tier assignment of its pod set.
    fn stuck(&self) -> Option<(&TierAssignment, &'a StuckPod)> {
        let fails = self.rules.signals.scale_up_failed;
        self.nowhere().find(|(assignment, pod)| (fails && pod.refused.is_some()) || self.is_late(assignment))
    }

    /// The time of the next question about the Workload's pods.
    fn next(&self) -> Option<Timestamp> {
        let asked = self.last.map(|answer| answer.at);
        let next = |assignment: &TierAssignment| {
            let (due, patience) = (self.due(assignment), self.rules.patience_ms(assignment.tier));
            match asked {
                // The pods are not unready for lack of capacity, but because of an image, a volume, a slow start, or the pause of the job controller before it
                // replaces a pod.
                Some(at) if at >= due => next_look(at, patience),
                // An autoscaler may report earlier that no node will come.
                _ if self.rules.signals.scale_up_failed => {
                    due.min(next_question(asked.unwrap_or(self.since), patience))
                }
                _ => due,
            }
        };
        self.assignments.iter().map(next).min()
    }
}

/// The pod sets of a Workload whose patience was over between its admission and its eviction.
pub(super) fn late(
    ctx: &Context<'_>,
    workload: &WorkloadView,
    (admitted, evicted): (Timestamp, Timestamp),
) -> BTreeSet<String> {
    if workload.owner_key().is_some_and(|owner_key| owner_key.kind.is_pods()) {
        return super::pods::late(ctx, workload, (admitted, evicted));
    }
    let look = LackingPods::at(ctx, workload, admitted);
    let late = look.iter().flat_map(|look| look.nowhere().filter(|(assignment, _)| look.is_late(assignment)));
    late.map(|(assignment, _)| assignment.pod_set.clone()).collect()
}

/// Watches a Workload whose run began at the time `begun`.
pub fn decide(ctx: &Context<'_>, workload: &WorkloadView, begun: Timestamp, now: Timestamp) -> Decision {
    let Some(rules) = ctx.tier_rules(workload) else { return Decision::Done };
    if let Some(decision) = super::reclaim::decide(ctx, workload, begun, now) {
        return decision;
    }
    if workload.owner_key().is_some_and(|owner_key| owner_key.kind.is_pods()) {
        return super::pods::decide(ctx, workload, rules, begun, now);
    }
    // If no pods are lacking, the next change of the job causes another decision.
    let Some(look) = LackingPods::at(ctx, workload, begun) else { return Decision::Done };
    let Some((assignment, pod)) = look.stuck() else {
        if let Some(next) = look.next().filter(|next| *next > now) {
            return Decision::Wait(next);
        }
        return find_stuck(ctx, workload);
    };
    if ctx.added_to(workload).is_some_and(|added| added.keeps().is_some()) {
        // The workers that have nodes continue, and the TrainingJob gives up the added workers.
        return Decision::Done;
    }
    leave(workload, (assignment, pod), (look.lack.is_some_and(|lack| lack.had), look.since), now)
}

/// The reason why workers that were added to a TrainingJob are given up again: no node takes their pods.
pub(crate) fn no_nodes_for_added(ctx: &Context<'_>, workload: &WorkloadView) -> Option<String> {
    ctx.added_to(workload)?;
    let look = LackingPods::at(ctx, workload, reported_start(workload)?)?;
    let (assignment, pod) = look.stuck()?;
    let waited = seconds_between(look.since, look.last?.at);
    Some(in_words(assignment.had_no_nodes(waited), pod))
}

/// The tier assignment of workers that were added to a TrainingJob and get no nodes according to the last answer about its pods, with the time since which the
/// workers lack nodes, and the back-off.
pub fn growth_without_nodes(ctx: &Context<'_>, name: &Name) -> Option<(TierAssignment, Timestamp, BackoffRules)> {
    let workload = ctx.view.workloads().get(name)?;
    let added = ctx.added_to(workload).filter(|added| added.keeps().is_some())?;
    let look = LackingPods::at(ctx, workload, reported_start(workload)?)?;
    Some((look.stuck()?.0.clone(), added.since, look.rules.backoff))
}

/// The query for the pods of a Workload that no node takes.
pub(crate) fn find_stuck(ctx: &Context<'_>, workload: &WorkloadView) -> Decision {
    let query = Query::FindStuckPods { pods: ctx.training.pods_of(workload) };
    Decision::write(Draft::ask(Purpose::FindStuckPods, workload.object_key(), query))
}

/// Seconds for which the time-out of a TrainingJob waits for an answer about its pods.
const LAST_QUESTION_SECONDS: i64 = 30;

/// Decides about a TrainingJob whose own time-out is over: before the time-out counts, Berth queries which pods of the job no node takes; `None` if the pods
/// lack no nodes. Without that query, a time-out that is not longer than the patience of the tier would always end first, and the job would get the same tier
/// again.
pub(crate) fn at_timeout(
    ctx: &Context<'_>,
    workload: &WorkloadView,
    (admitted, due): (Timestamp, Timestamp),
    now: Timestamp,
) -> Option<Decision> {
    let signals = ctx.tier_rules(workload)?.signals;
    let lack = lacking(ctx, workload)?;
    let assignments = tier_assignments(ctx, workload);
    if assignments.is_empty() || !(signals.unschedulable || signals.scale_up_failed) {
        return None;
    }
    let Some(answer) = ctx.notes_of(workload).capacity().answer_since(due) else {
        // If no answer about the TrainingJob's pods comes in time, the time-out counts without an answer.
        return (now < after_seconds(due, LAST_QUESTION_SECONDS)).then(|| find_stuck(ctx, workload));
    };
    let stuck = answer.stuck.iter().filter(|pod| signals.unschedulable || pod.refused.is_some());
    let found = stuck
        .filter_map(|pod| Some((assignments.iter().find(|assignment| assignment.pod_set == pod.pod_set)?, pod)))
        .next()?;
    Some(leave(workload, found, (lack.is_some_and(|lack| lack.had), admitted), now))
}

/// True if all pods of a gang whose time is over have nodes, as far as that is known; `None` if Berth has to ask about the pods.
pub(crate) fn have_nodes(ctx: &Context<'_>, workload: &WorkloadView, due: Timestamp, now: Timestamp) -> Option<bool> {
    let Some(answer) = ctx.notes_of(workload).capacity().answer_since(due) else {
        // If no answer about the gang's pods comes in time, the time-out counts without an answer.
        return (now >= after_seconds(due, LAST_QUESTION_SECONDS)).then_some(false);
    };
    if !answer.stuck.is_empty() {
        return Some(false);
    }
    // The answer that all pods have nodes becomes outdated, because a pod may lose its node, and the pod that replaces it may get no node.
    (now < next_look(answer.at, PAUSE_MS.1)).then_some(true)
}

/// The time since which a started Workload lacks pods, if the capacity fallback does not watch all pod sets of the Workload.
pub(crate) fn lacks_unwatched(ctx: &Context<'_>, workload: &WorkloadView) -> Option<Timestamp> {
    let lack = lacking(ctx, workload)??;
    let watched = watched_sets(ctx, workload);
    let all = workload.shape.digests.iter().all(|set| watched.contains(&set.name));
    (!all).then_some(lack.since)
}

/// The pod sets with a tier, for which the patience is limited.
fn watched_sets(ctx: &Context<'_>, workload: &WorkloadView) -> BTreeSet<String> {
    let rules = ctx.tier_rules(workload).filter(|rules| rules.signals.unschedulable);
    let assignments = rules.map(|_| tier_assignments(ctx, workload)).unwrap_or_default();
    assignments.into_iter().map(|assignment| assignment.pod_set).collect()
}

/// Queries from time to time which pods of a Workload get no node. The argument `leaves` gets the scheduler's message about the first pod for which the
/// capacity fallback would not evict the Workload, from an answer that is not older than `due`.
pub(crate) fn leave_unwatched(
    ctx: &Context<'_>,
    workload: &WorkloadView,
    (due, now): (Timestamp, Timestamp),
    leaves: impl FnOnce(String) -> Decision,
) -> Decision {
    let Some(answer) = ctx.notes_of(workload).capacity().answer_since(due) else {
        return find_stuck(ctx, workload);
    };
    let watched = watched_sets(ctx, workload);
    if let Some(pod) = answer.stuck.iter().find(|pod| !watched.contains(&pod.pod_set)) {
        return leaves(in_words(String::new(), pod));
    }
    let next = next_look(answer.at, PAUSE_MS.1);
    if next > now { Decision::Wait(next) } else { find_stuck(ctx, workload) }
}

/// Evicts a Workload from a tier in which a pod gets no node; `had` is true if all pods had nodes before.
fn leave(
    workload: &WorkloadView,
    (assignment, pod): (&TierAssignment, &StuckPod),
    (had, since): (bool, Timestamp),
    now: Timestamp,
) -> Decision {
    let waited = seconds_between(since, now);
    let (reason, message) = match had {
        false => (STOCK_OUT, assignment.had_no_nodes(waited)),
        true => (RECLAIMED, format!("{} took nodes back and had no others within {waited}s", assignment.name())),
    };
    Decision::write(evict(workload, now, (reason, ""), &in_words(message, pod)))
}

/// A message with the text of an autoscaler about the pod, or otherwise of the scheduler.
fn in_words(message: String, pod: &StuckPod) -> String {
    let words = pod.refused.as_ref().unwrap_or(&pod.message);
    match (message.is_empty(), words.is_empty()) {
        (_, true) => message,
        (true, false) => words.clone(),
        (false, false) => format!("{message}: {words}"),
    }
}

#[cfg(test)]
mod tests;
