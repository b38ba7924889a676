//! Whether the capacity of pods that are managed themselves turns up: what the scheduler says of them is at hand, and autoscalers
//! are not asked. Pods that
//! leave a tier are deleted; what their owner makes in their place meets the flavor as out of stock.

use berth_jobs::pods::PodState;
use jiff::Timestamp;

use super::rules::TierRules;
use super::watch::{PAUSE_MS, STOCK_OUT, rungs};
use crate::core::{Control, after};
use crate::decide::workload::evict;
use crate::flight::Decision;
use crate::view::{Name, WorkloadView};
use crate::write::Kind;

/// Looks after a workload of pods that was admitted at that time.
pub(super) fn decide(
    control: &Control,
    workload: &WorkloadView,
    rules: &TierRules,
    admitted: Timestamp,
    now: Timestamp,
) -> Decision {
    let rungs = rungs(control, workload);
    let Some(patience) = rungs.iter().map(|rung| rules.patience_ms(rung.tier)).min() else { return Decision::Done };
    if !rules.signals.unschedulable || is_up(control, workload) {
        return Decision::Done;
    }
    let due = after(admitted, patience);
    if due > now {
        return Decision::Wait(due);
    }
    let without = |pod: &PodState| {
        let made = Timestamp::from_second(pod.created).unwrap_or(admitted).max(admitted);
        let stuck = pod.runs() && !pod.bound && after(made, patience) <= now;
        let words = pod.unschedulable.as_deref().filter(|_| stuck)?.to_owned();
        let rung = rungs.iter().find(|rung| rung.pod_set == pod.role())?;
        Some((made, words, rung))
    };
    let Some((since, words, rung)) = pods_of(control, workload, without) else {
        // An image, a volume, a slow start: no lack of capacity.
        return Decision::Wait(after(now, patience.clamp(PAUSE_MS.0, PAUSE_MS.1)));
    };
    let waited = now.as_second().saturating_sub(since.as_second()).max(0);
    let what = format!("flavor {} ({} capacity)", rung.flavor, rung.tier);
    let message = format!("{what} had no nodes for all {} pods within {waited}s: {words}", rung.pods);
    Decision::write(evict(workload, now, (STOCK_OUT, ""), &message))
}

fn place(workload: &WorkloadView) -> Option<(Kind, Name)> {
    let whole = workload.whole()?;
    Some((whole.kind, (whole.namespace, whole.name)))
}

/// All of them are ready, or have ended.
fn is_up(control: &Control, workload: &WorkloadView) -> bool {
    let pods = &control.view.pods;
    match place(workload) {
        Some((Kind::Pod, name)) => pods.get(&name).is_none_or(|pod| pod.ready || pod.ended()),
        Some((_, name)) => pods.group(&name).is_none_or(|group| group.tally.is_ready(workload.sizes())),
        None => true,
    }
}

/// The first of a workload's pods about which there is something to say.
fn pods_of<T>(control: &Control, workload: &WorkloadView, say: impl Fn(&PodState) -> Option<T>) -> Option<T> {
    let pods = &control.view.pods;
    let (kind, name) = place(workload)?;
    if kind == Kind::Pod {
        return say(pods.get(&name)?);
    }
    pods.members(&name).find_map(|(_, pod)| say(pod))
}
