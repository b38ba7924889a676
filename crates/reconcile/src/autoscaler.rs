//! Events of autoscalers about a pod: the pod gets no node for lack of capacity, or a node for the pod is created.
//!
//! The known autoscalers are the cluster autoscaler (also as GKE and AKS run it) and Karpenter (also as EKS Auto Mode runs it). Events about a node group or a
//! NodeClaim are not read: a pod that gets no node because of a node group or NodeClaim has an event of its own.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;

/// Event reason of the cluster autoscaler for a pod for which the cluster autoscaler enlarges a node group.
const TRIGGERED: &str = "TriggeredScaleUp";
/// Event reason of GKE for a pod that fits a node pool which could not be enlarged.
const FAILED: &str = "FailedScaleUp";
/// Event reason of the cluster autoscaler for a pod for which no node group is enlarged; the message has a cause for every node group.
const NOT_TRIGGERED: &str = "NotTriggerScaleUp";
/// Texts of the cluster autoscaler for a node group that cannot be enlarged for lack of capacity. The cluster autoscaler checks the limits of a node group
/// before it checks whether the pod fits.
const NOTHING_TO_GIVE: [&str; 5] = [
    "backoff after failed scale-up",
    "max node group size reached",
    // The cluster autoscaler's message about a limit of the cluster has this end, as in `max cluster nvidia.com/gpu limit reached`. Before version 1.16 of the
    // cluster autoscaler, its message about a limit of a node group had this end, too: `max limit reached`.
    " limit reached",
    "max total nodes in cluster reached",
    "exceeded quota: ",
];

/// Components that report Karpenter's events.
const KARPENTER: [&str; 2] = ["karpenter", "eks-auto-mode/compute"];
/// Karpenter's event reason for a pod for which Karpenter creates a node or has a node.
const NOMINATED: &str = "Nominated";
/// Karpenter's event reason for a pod for which Karpenter creates no node, with a cause for every NodePool; the scheduler uses the same reason.
const FAILED_SCHEDULING: &str = "FailedScheduling";
/// Texts of Karpenter for a NodePool that can create no node for lack of capacity. An offering of Karpenter is an instance type in a zone and capacity type. An
/// instance type that the cloud has run out of is no offering, and Karpenter checks the limits of a NodePool before the needs of the pod.
const NO_OFFERING: [&str; 5] = [
    "had a required offering",
    "has the required offering",
    "all available instance types exceed limits for",
    "node limits have been exhausted for",
    "filtered out all available instance types",
];
/// Part of the requirements of a pod whose volumes or spread constraints contradict each other: no offering will ever match such a pod.
const NO_ZONE: &str = "topology.kubernetes.io/zone DoesNotExist";
/// Separator between the causes in a message of Karpenter.
const REASONS_END: &str = "; ";

/// Message of the latest event by which an autoscaler decides about one pod, if that event says that the pod gets no node for lack of capacity. Events that say
/// that the pod fits no machine type are ignored.
#[must_use]
pub fn last_refusal(events: &[Event]) -> Option<String> {
    let words = events.iter().filter_map(|event| Some((time_of(event), verdict(event)?)));
    words.max_by_key(|(at, _)| *at)?.1.map(str::to_owned)
}

fn time_of(event: &Event) -> Option<Timestamp> {
    let repeated = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    let first = event.event_time.as_ref().map(|time| time.0);
    [repeated, last, first].into_iter().flatten().max()
}

/// Decision of an autoscaler in an event: the message if the pod gets no node, `Some(None)` if a node is created for the pod, and `None` for any other event.
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
