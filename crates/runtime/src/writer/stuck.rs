//! Pods of a job that fit on no node, and the events of autoscalers about these pods.

use std::collections::BTreeSet;

use berth_api::labels::POD_SET;
use berth_control::autoscaler::last_refusal;
use berth_control::write::{PodsOf, QueryFailure, StuckPod};
use k8s_openapi::List;
use k8s_openapi::api::core::v1::{Event, Pod, PodCondition};
use kube::client::{Body, Client};
use serde::de::DeserializeOwned;

use super::encoded;
use super::pods::{page, unread};

/// Largest number of a job's pods without a node that the query for stuck pods examines.
const MOST_PODS: usize = 20;
/// Largest number of events that Berth reads about one pod without a node.
const MOST_EVENTS: u32 = 100;
/// Largest number of pod sets for which Berth reads the events of one pod: an autoscaler's refusal for one pod holds for all equal pods.
const MOST_POD_SETS: usize = 4;

/// Pods of a job for which the scheduler found no node; `Busy` if the job's pods cannot be read now.
pub(super) async fn find(client: &Client, namespace: &str, pods: &PodsOf) -> Result<Vec<StuckPod>, QueryFailure> {
    let (mut own, mut from) = (Vec::new(), None::<String>);
    while own.len() < MOST_PODS {
        let how = ("application/json", "spec.nodeName=,status.phase=Pending");
        let page = page::<Pod>(client, (namespace, pods), how, (MOST_PODS, from.as_deref())).await.map_err(unread)?;
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
    Ok(found)
}

/// Adds the refusals of autoscalers to pods for which the scheduler found no node.
pub(super) async fn ask(
    client: &Client,
    namespace: &str,
    pods: &[(String, StuckPod)],
) -> Result<Vec<StuckPod>, QueryFailure> {
    let mut found = Vec::new();
    for (uid, pod) in pods.iter().take(MOST_POD_SETS) {
        found.push(StuckPod { refused: refusal(client, namespace, uid).await, ..pod.clone() });
    }
    Ok(found)
}

/// The scheduler's message about a pod for which it found no node.
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

/// An autoscaler's last event about a pod, if the event says that the pod gets no node. Events about a pod that cannot be read count as absent.
async fn refusal(client: &Client, namespace: &str, uid: &str) -> Option<String> {
    let fields = encoded(&format!("involvedObject.kind=Pod,involvedObject.uid={uid}"));
    let path = format!("/api/v1/namespaces/{}/events", encoded(namespace));
    let request = http::Request::builder()
        .uri(format!("{path}?fieldSelector={fields}&limit={MOST_EVENTS}"))
        .body(Body::empty())
        .ok()?;
    last_refusal(&items::<Event>(client, request).await?)
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
