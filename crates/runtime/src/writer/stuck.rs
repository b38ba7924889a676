//! Which pods of a job no node takes, and what autoscalers say of them.

use std::collections::BTreeSet;

use berth_api::labels::POD_SET;
use berth_control::write::{Outcome, PodsOf, StuckPod};
use jiff::Timestamp;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::{Event, Pod, PodCondition};
use kube::client::{Body, Client};
use serde::de::DeserializeOwned;

use super::encoded;
use super::pods::page;

/// So many pods without a node are looked at.
const MOST_PODS: usize = 20;
/// So many events about one pod are looked at.
const MOST_EVENTS: u32 = 100;
/// Of so many pod sets one pod's events are looked at: what fails for one of equal pods fails for all.
const MOST_POD_SETS: usize = 4;

/// What the cluster autoscaler says of a pod for which it added a node.
const TRIGGERED: &str = "TriggeredScaleUp";
/// What it says (in this reason) of node groups that would do, and have none to give.
const NOT_TRIGGERED: (&str, [&str; 2]) =
    ("NotTriggerScaleUp", ["backoff after failed scale-up", "max node group size reached"]);
/// GKE's, of a pod for which adding a node failed.
const FAILED: &str = "FailedScaleUp";
/// Karpenter's, when no instance type of the kind that the pod selects is to be had.
const NO_OFFERING: (&str, &str, &str) = ("karpenter", "FailedScheduling", "had a required offering");

/// Which pods of a job are on no node and the scheduler found none for; `Busy` when that cannot be read now.
pub(super) async fn find(client: &Client, namespace: &str, pods: &PodsOf) -> Outcome {
    let (mut own, mut from) = (Vec::new(), None::<String>);
    while own.len() < MOST_PODS {
        let how = ("application/json", "spec.nodeName=,status.phase=Pending");
        let Ok(page) = page::<Pod>(client, (namespace, pods), how, (MOST_PODS, from.as_deref())).await else {
            return Outcome::Busy(1_000);
        };
        from = page.next();
        own.extend(page.items.into_iter().filter(|pod| pods.has(&pod.metadata)));
        if from.is_none() {
            break;
        }
    }
    let mut asked = BTreeSet::new();
    let mut found = Vec::new();
    for pod in own.iter().take(MOST_PODS) {
        let Some(mut stuck) = stuck(pod) else { continue };
        let uid = pod.metadata.uid.as_deref().filter(|uid| !uid.is_empty());
        if let Some(uid) = uid.filter(|_| asked.len() < MOST_POD_SETS && asked.insert(stuck.pod_set.clone())) {
            stuck.refused = refusal(client, namespace, uid).await;
        }
        found.push(stuck);
    }
    Outcome::Stuck(found)
}

/// What autoscalers say of pods that are known to be on no node.
pub(super) async fn ask(client: &Client, namespace: &str, pods: &[(String, StuckPod)]) -> Outcome {
    let mut found = Vec::new();
    for (uid, pod) in pods.iter().take(MOST_POD_SETS) {
        found.push(StuckPod { refused: refusal(client, namespace, uid).await, ..pod.clone() });
    }
    Outcome::Stuck(found)
}

/// What the scheduler says of a pod that it found no node for.
fn stuck(pod: &Pod) -> Option<StuckPod> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let unschedulable = |condition: &&PodCondition| {
        let (kind, status) = (condition.type_.as_str(), condition.status.as_str());
        (kind, status, condition.reason.as_deref()) == ("PodScheduled", "False", Some("Unschedulable"))
    };
    let condition = conditions.iter().find(unschedulable)?;
    let pod_set = pod.metadata.labels.as_ref().and_then(|labels| labels.get(POD_SET)).cloned().unwrap_or_default();
    Some(StuckPod { pod_set, message: condition.message.clone().unwrap_or_default(), refused: None })
}

/// What an autoscaler said last of a pod, where it was that it gets no node. Events that cannot be read say nothing.
async fn refusal(client: &Client, namespace: &str, uid: &str) -> Option<String> {
    let fields = encoded(&format!("involvedObject.kind=Pod,involvedObject.uid={uid}"));
    let path = format!("/api/v1/namespaces/{}/events", encoded(namespace));
    let request = http::Request::builder()
        .uri(format!("{path}?fieldSelector={fields}&limit={MOST_EVENTS}"))
        .body(Body::empty())
        .ok()?;
    last_word(&items::<Event>(client, request).await?)
}

fn last_word(events: &[Event]) -> Option<String> {
    let words = events.iter().filter_map(|event| Some((said_at(event), verdict(event)?)));
    words.max_by_key(|(at, _)| *at)?.1.map(str::to_owned)
}

fn said_at(event: &Event) -> Option<Timestamp> {
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    last.or_else(|| event.event_time.as_ref().map(|time| time.0))
}

/// Whether an event is an autoscaler's word on whether the pod gets a node: that it does not and why, or that one comes.
fn verdict(event: &Event) -> Option<Option<&str>> {
    let (reason, message) = (event.reason.as_deref()?, event.message.as_deref().unwrap_or_default());
    let component = event.source.as_ref().and_then(|source| source.component.as_deref());
    let component = event.reporting_component.as_deref().filter(|name| !name.is_empty()).or(component);
    let (karpenter, unscheduled, no_offering) = NO_OFFERING;
    match reason {
        TRIGGERED => Some(None),
        FAILED => Some(Some(message)),
        _ if reason == NOT_TRIGGERED.0 => {
            NOT_TRIGGERED.1.iter().any(|words| message.contains(words)).then_some(Some(message))
        }
        _ if reason == unscheduled && component == Some(karpenter) => {
            message.contains(no_offering).then_some(Some(message))
        }
        _ => None,
    }
}

async fn items<K: DeserializeOwned + k8s_openapi::ListableResource>(
    client: &Client,
    request: http::Request<Body>,
) -> Option<Vec<K>> {
    let response = client.send(request).await.ok()?;
    let success = response.status().is_success();
    let body = response.into_body().collect_bytes().await.ok()?;
    serde_json::from_slice::<List<K>>(&body).ok().filter(|_| success).map(|list| list.items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn word(said: &[(&str, &str, &str, &str)]) -> Option<String> {
        let event = |(at, component, reason, message): &(&str, &str, &str, &str)| {
            serde_json::from_value(json!({"metadata": {}, "involvedObject": {}, "reason": reason, "message": message,
                "lastTimestamp": format!("2026-01-01T00:00:{at}Z"), "source": {"component": component}}))
            .unwrap()
        };
        last_word(&said.iter().map(event).collect::<Vec<Event>>())
    }

    #[test]
    fn the_last_word_of_an_autoscaler_counts() {
        let failed = ("02", "cluster-autoscaler", "FailedScaleUp", "out of resources");
        let triggered = |at| (at, "cluster-autoscaler", "TriggeredScaleUp", "pod triggered scale-up");
        assert_eq!(word(&[]), None);
        assert_eq!(word(&[triggered("01"), failed]), Some("out of resources".to_owned()));
        assert_eq!(word(&[failed, triggered("03")]), None, "it tries another group");
        let backoff = "pod didn't trigger scale-up: 1 in backoff after failed scale-up";
        assert_eq!(word(&[("01", "cluster-autoscaler", "NotTriggerScaleUp", backoff)]), Some(backoff.to_owned()));
        let full = "pod didn't trigger scale-up: 2 max node group size reached";
        assert_eq!(word(&[("01", "cluster-autoscaler", "NotTriggerScaleUp", full)]), Some(full.to_owned()));
        let selector = "pod didn't trigger scale-up: 3 node(s) didn't match Pod's node affinity/selector";
        assert_eq!(
            word(&[("01", "cluster-autoscaler", "NotTriggerScaleUp", selector)]),
            None,
            "it may be made by others"
        );
        let offering = "no instance type met the scheduling requirements or had a required offering";
        assert_eq!(word(&[("01", "karpenter", "FailedScheduling", offering)]), Some(offering.to_owned()));
        let elsewhere =
            "no instance type which had enough resources and the required offering met the scheduling requirements";
        assert_eq!(word(&[("01", "karpenter", "FailedScheduling", elsewhere)]), None, "the pod fits no such machine");
        assert_eq!(word(&[("01", "default-scheduler", "FailedScheduling", offering)]), None);
        assert_eq!(word(&[("01", "kubelet", "Failed", "ImagePullBackOff")]), None);
    }
}
