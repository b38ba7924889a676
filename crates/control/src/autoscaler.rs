//! What autoscalers say of a pod in their events: that it gets no node for want of capacity, or that one comes.
//!
//! Known are the cluster autoscaler (also as GKE and AKS run it) and Karpenter (also as EKS Auto Mode runs it). What they say of a node
//! group or a claim is not looked at: a pod that gets no node for that is told so itself.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;

/// The cluster autoscaler's, of a pod for which it makes a node group larger.
const TRIGGERED: &str = "TriggeredScaleUp";
/// GKE's, of a pod that fits a node pool which could not be made larger.
const FAILED: &str = "FailedScaleUp";
/// The cluster autoscaler's, of a pod for which it makes no node group larger, with a reason for every group.
const NOT_TRIGGERED: &str = "NotTriggerScaleUp";
/// Reasons of node groups that have no more to give: what a group has to give is looked at before what the pod wants of it.
const NOTHING_TO_GIVE: [&str; 5] = [
    "backoff after failed scale-up",
    "max node group size reached",
    // Of the whole cluster: `max cluster nvidia.com/gpu limit reached`, before 1.16 of a group: `max limit reached`.
    " limit reached",
    "max total nodes in cluster reached",
    "exceeded quota: ",
];

/// Who speaks for Karpenter.
const KARPENTER: [&str; 2] = ["karpenter", "eks-auto-mode/compute"];
/// Karpenter's, of a pod for which it makes a node or has one.
const NOMINATED: &str = "Nominated";
/// Karpenter's, of a pod for which it makes none, with a reason for every NodePool; the scheduler has the same word.
const FAILED_SCHEDULING: &str = "FailedScheduling";
/// Reasons of NodePools that have no more to give. An offering is an instance type in a zone and capacity type; those that the cloud does
/// not have now are none, and limits are looked at before what the pod wants.
const NO_OFFERING: [&str; 5] = [
    "had a required offering",
    "has the required offering",
    "all available instance types exceed limits for",
    "node limits have been exhausted for",
    "filtered out all available instance types",
];
/// In the requirements of a pod whose volumes or spread constraints contradict each other: no offering will ever do.
const NO_ZONE: &str = "topology.kubernetes.io/zone DoesNotExist";
/// Between Karpenter's reasons.
const REASONS_END: &str = "; ";

/// What an autoscaler said last in these events of one pod, where it was that it gets no node for want of capacity. That it fits no
/// machine, whatever there were of them, is no such word.
#[must_use]
pub fn last_refusal(events: &[Event]) -> Option<String> {
    let words = events.iter().filter_map(|event| Some((said_at(event), verdict(event)?)));
    words.max_by_key(|(at, _)| *at)?.1.map(str::to_owned)
}

fn said_at(event: &Event) -> Option<Timestamp> {
    let repeated = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    let first = event.event_time.as_ref().map(|time| time.0);
    [repeated, last, first].into_iter().flatten().max()
}

/// Whether an event is an autoscaler's word on whether the pod gets a node: that it does not and why, or that one comes.
fn verdict(event: &Event) -> Option<Option<&str>> {
    let (reason, message) = (event.reason.as_deref()?, event.message.as_deref().unwrap_or_default());
    let source = event.source.as_ref().and_then(|source| source.component.as_deref());
    let speaker = event.reporting_component.as_deref().filter(|name| !name.is_empty()).or(source);
    let karpenter = speaker.is_some_and(|name| KARPENTER.contains(&name));
    match reason {
        TRIGGERED => Some(None),
        NOMINATED if karpenter => Some(None),
        FAILED => Some(Some(message)),
        NOT_TRIGGERED => says_one_of(message, &NOTHING_TO_GIVE).then_some(Some(message)),
        FAILED_SCHEDULING if karpenter => {
            let lacks = |reason: &str| says_one_of(reason, &NO_OFFERING) && !reason.contains(NO_ZONE);
            message.split(REASONS_END).any(lacks).then_some(Some(message))
        }
        _ => None,
    }
}

fn says_one_of(text: &str, words: &[&str]) -> bool {
    words.iter().any(|words| text.contains(words))
}

#[cfg(test)]
#[path = "autoscaler_tests.rs"]
mod tests;
