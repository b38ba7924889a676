//! Whether the capacity of a started workload turns up within the patience of its tier.

use std::collections::BTreeSet;

use berth_api::{CapacityTier, labels};
use berth_engine::model::{Shape, Tier};
use berth_jobs::JobState;
use jiff::Timestamp;

use crate::core::{Control, after, after_seconds, key};
use crate::decide::workload::evict;
use crate::deltas::strip_capacity;
use crate::flight::{Decision, Draft};
use crate::ladder::{Answer, Lack, Pods};
use crate::view::WorkloadView;
use crate::write::{Kind, Purpose, Request, StuckPod};

/// Reason of the eviction of a workload whose capacity never turned up.
pub(crate) const STOCK_OUT: &str = "StockOut";
/// Reason of the eviction of a workload that lost nodes and gets no others.
pub(crate) const RECLAIMED: &str = "CapacityReclaimed";

/// Reason of the eviction of a workload whose job asks for other pods than those for which it holds quota.
pub(crate) const SPEC_CHANGED: &str = "SpecChanged";
/// Reason of the eviction of a workload that goes to a better tier.
pub(crate) const CLIMBED_BACK: &str = "ClimbedBack";
/// Reasons of evictions by which a workload leaves its tier.
pub(crate) const LEAVES_TIER: [&str; 3] = [STOCK_OUT, RECLAIMED, CLIMBED_BACK];

/// Whether a workload that was evicted for a reason is back in its queue as soon as it has stopped.
pub(crate) fn returns_at_once(reason: &str) -> bool {
    matches!(reason, "Preempted" | "NodeFailures" | SPEC_CHANGED) || LEAVES_TIER.contains(&reason)
}

/// Shortest and longest pause between two looks at pods, in milliseconds.
const PAUSE_MS: (i64, i64) = (5_000, 30_000);

/// When pods that have no fault of capacity are looked at again: after the patience of the tier, within bounds.
pub(super) fn next_look(last: Timestamp, patience_ms: i64) -> Timestamp {
    after(last, patience_ms.clamp(PAUSE_MS.0, PAUSE_MS.1))
}

/// When autoscalers are asked again: after an eighth of the patience, within the same bounds.
pub(super) fn next_question(last: Timestamp, patience_ms: i64) -> Timestamp {
    next_look(last, patience_ms / 8)
}

/// What a pod set was given of tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rung {
    pub(crate) pod_set: String,
    pub(crate) flavor: String,
    pub(crate) tier: Tier,
    pub(crate) shape: Shape,
    pub(crate) pods: i64,
}

impl Rung {
    /// Its flavor and tier in a message.
    fn name(&self) -> String {
        format!("flavor {} ({} capacity)", self.flavor, self.tier)
    }

    /// Why it is left whose nodes did not turn up.
    pub(super) fn had_no_nodes(&self, waited: i64) -> String {
        format!("{} had no nodes for all {} pods within {waited}s", self.name(), self.pods)
    }
}

/// Whole seconds of waiting.
pub(super) fn seconds_since(since: Timestamp, now: Timestamp) -> i64 {
    now.as_second().saturating_sub(since.as_second()).max(0)
}

/// The flavors with a tier that a workload holds, each once per pod set.
pub(crate) fn rungs(control: &Control, workload: &WorkloadView) -> Vec<Rung> {
    let mut rungs = Vec::new();
    let given = workload.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    for assignment in given {
        let name = assignment.effective_name();
        let Some(set) = workload.shape.pod_sets.iter().find(|set| set.name == name) else { continue };
        let mut set = set.clone();
        if control.overrides_selectors(workload) {
            strip_capacity(&mut set);
        }
        let flavors: BTreeSet<&String> = assignment.flavors.values().collect();
        for flavor in flavors {
            let Some(tier) = control.capacity_tier_of(flavor).map(crate::deltas::tier) else { continue };
            rungs.push(Rung {
                pod_set: name.to_owned(),
                flavor: flavor.clone(),
                tier,
                shape: Shape::of(&set),
                pods: assignment.count.map_or(set.count, i64::from),
            });
        }
    }
    rungs
}

impl Control {
    /// The tier of a flavor.
    pub(crate) fn capacity_tier_of(&self, flavor: &str) -> Option<CapacityTier> {
        let labels = self.view.flavors.get(flavor)?.metadata.labels.as_ref()?;
        labels.get(berth_api::labels::CAPACITY_TIER)?.parse().ok()
    }
}

/// A started workload that lacks pods.
struct Lacking<'a> {
    /// Label by which its pods name that uid.
    label: &'static str,
    uid: &'a str,
    /// Since when, as far as that was seen.
    lack: Option<Lack>,
}

/// Whether pods are lacking, of a TrainingJob those of any of its Jobs.
fn lacking<'a>(control: &'a Control, workload: &WorkloadView) -> Option<Lacking<'a>> {
    let known = |job: &JobState| control.ladder.lacking.get(&job.uid).copied();
    let lacks = |job: &&JobState| Pods::of(job) == Pods::Lacking;
    if let Some(name) = workload.training_job() {
        let view = control.view.training.get(&name)?;
        let roles = workload.shape.digests.iter();
        let jobs = roles.filter_map(|set| control.view.child_of(&name, &view.uid, &set.name));
        let lacking: Vec<&JobState> = jobs.filter(lacks).collect();
        let first = |a: Lack, b: Lack| Lack { since: a.since.min(b.since), had: a.had || b.had };
        let lack = lacking.iter().filter_map(|job| known(job)).reduce(first);
        return (!lacking.is_empty()).then_some(Lacking { label: labels::TRAINING_JOB_UID, uid: &view.uid, lack });
    }
    let job = control.view.job_of(workload).filter(lacks)?;
    Some(Lacking { label: job.info.uid_label, uid: &job.uid, lack: known(job) })
}

/// Looks after a workload that was admitted at that time.
pub(crate) fn decide(control: &Control, workload: &WorkloadView, admitted: Timestamp, now: Timestamp) -> Decision {
    let Some(rules) = control.tier_rules(workload) else { return Decision::Done };
    if workload.whole().is_some_and(|whole| whole.kind.is_pods()) {
        return super::pods::decide(control, workload, rules, admitted, now);
    }
    // Where nothing is lacking, the job's next change brings us back.
    let Some(Lacking { label, uid, lack }) = lacking(control, workload) else { return Decision::Done };
    let rungs = rungs(control, workload);
    let Some(patience) = rungs.iter().map(|rung| rules.patience_ms(rung.tier)).min() else { return Decision::Done };
    let since = lack.map_or(admitted, |lack| lack.since.max(admitted));
    let due = after(since, patience);
    let signals = rules.signals;
    let last = control.ladder.answers.get(&workload.uid).filter(|answer| answer.at >= since);
    let counts = |answer: &Answer, pod: &StuckPod| {
        signals.scale_up_failed && pod.refused.is_some() || signals.unschedulable && answer.at >= due
    };
    let place = |pod: &StuckPod| rungs.iter().find(|rung| rung.pod_set == pod.pod_set);
    let stuck = last.and_then(|answer| {
        let mut pods = answer.stuck.iter().filter(|pod| counts(answer, pod));
        pods.find_map(|pod| Some((pod, place(pod)?)))
    });
    let Some((pod, rung)) = stuck else {
        let next = match last {
            // Whatever keeps the pods back, it is no lack of capacity: an image, a volume, a slow start, or the pause that the job
            // controller makes before it replaces a pod.
            Some(answer) if answer.at >= due => next_look(answer.at, patience),
            // An autoscaler may say sooner that nothing comes.
            _ if signals.scale_up_failed => due.min(next_question(last.map_or(since, |answer| answer.at), patience)),
            _ => due,
        };
        if next > now {
            return Decision::Wait(next);
        }
        return find_stuck(workload, label, uid);
    };
    leave(workload, (rung, pod), (lack.is_some_and(|lack| lack.had), since), now)
}

/// Asks which pods no node takes.
fn find_stuck(workload: &WorkloadView, label: &'static str, uid: &str) -> Decision {
    Decision::write(Draft {
        purpose: Purpose::FindStuckPods,
        key: key(Kind::Workload, &workload.key()),
        request: Request::FindStuckPods { label, uid: uid.to_owned() },
        based_on: 0,
        notices: Vec::new(),
    })
}

/// Seconds for which the time-out of a TrainingJob waits for an answer about its pods.
const LAST_QUESTION_SECONDS: i64 = 30;

/// A TrainingJob's own time-out is over: before it counts, its pods are asked about, `None` when they lack no nodes. Else one that
/// is not longer than the patience of the tier would come before that each time, and lead to the same tier again.
pub(crate) fn at_timeout(
    control: &Control,
    workload: &WorkloadView,
    (admitted, due): (Timestamp, Timestamp),
    now: Timestamp,
) -> Option<Decision> {
    let signals = control.tier_rules(workload)?.signals;
    let Lacking { label, uid, lack } = lacking(control, workload)?;
    let rungs = rungs(control, workload);
    if rungs.is_empty() || !(signals.unschedulable || signals.scale_up_failed) {
        return None;
    }
    let Some(answer) = control.ladder.answers.get(&workload.uid).filter(|answer| answer.at >= due) else {
        // Who cannot be asked is not waited for.
        return (now < after_seconds(due, LAST_QUESTION_SECONDS)).then(|| find_stuck(workload, label, uid));
    };
    let stuck = answer.stuck.iter().filter(|pod| signals.unschedulable || pod.refused.is_some());
    let found = stuck.filter_map(|pod| Some((rungs.iter().find(|rung| rung.pod_set == pod.pod_set)?, pod))).next()?;
    Some(leave(workload, found, (lack.is_some_and(|lack| lack.had), admitted), now))
}

/// Leaves a tier where that pod gets no node; `had` says whether all pods had some before.
fn leave(
    workload: &WorkloadView,
    (rung, pod): (&Rung, &StuckPod),
    (had, since): (bool, Timestamp),
    now: Timestamp,
) -> Decision {
    let waited = seconds_since(since, now);
    let (reason, message) = match had {
        false => (STOCK_OUT, rung.had_no_nodes(waited)),
        true => (RECLAIMED, format!("{} took nodes back and had no others within {waited}s", rung.name())),
    };
    let words = pod.refused.as_ref().unwrap_or(&pod.message);
    let message = if words.is_empty() { message } else { format!("{message}: {words}") };
    Decision::write(evict(workload, now, (reason, ""), &message))
}
