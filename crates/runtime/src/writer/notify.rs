//! Annotations on all pods of a job, with one patch per pod.

use std::collections::BTreeMap;
use std::pin::pin;

use berth_control::write::{PodsOf, ResourceKind, Subresource, Task, Write, WriteOutcome};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::client::Client;
use serde_json::json;
use tokio::time::Instant;

use super::pods::{Meta, NOT_ENDED, page};
use super::{Target, Writer};
use crate::outcome::{Verb, outcome_of};
use crate::watches::metadata;

/// Largest number of concurrent patches of a job's pods.
const AT_ONCE: usize = 16;

/// Number of pods in a page of the list of a job's pods.
const PAGE: usize = 500;

/// Field manager of the annotations on a job's pods, equal to the field manager of Berth's other merge patches.
const MANAGER: &str = "kueue";

/// A pod to annotate.
struct Pod {
    name: String,
    uid: String,
}

/// Annotates the pods of a job that lack the annotations and have not ended. No patch begins after the time limit of a write, and the next write annotates the
/// remaining pods.
pub(super) async fn annotate(
    writer: &Writer,
    task: &Task,
    pods: &PodsOf,
    annotations: &BTreeMap<String, String>,
) -> WriteOutcome {
    let until = Instant::now() + writer.leadership.deadline();
    let namespace = task.key.namespace.as_str();
    let found = match tokio::time::timeout_at(until, lacking(&writer.client, namespace, pods, annotations)).await {
        Ok(Ok(found)) => found,
        Ok(Err(outcome)) => return outcome,
        Err(_) => return WriteOutcome::Busy(1_000),
    };
    let (mut patches, mut outcomes) = (FuturesUnordered::new(), Vec::new());
    for pod in found {
        if patches.len() >= AT_ONCE {
            outcomes.extend(patches.next().await);
        }
        // Only one patch of a pod at a time waits for the rate limit, so that other writes get their share of the rate.
        let mut turn = pin!(turn(writer, task, until));
        let turn = loop {
            tokio::select! {
                turn = &mut turn => break turn,
                Some(outcome) = patches.next() => outcomes.push(outcome),
            }
        };
        match turn {
            Ok(()) => patches.push(patch(writer, task, pod, annotations)),
            Err(outcome) => {
                outcomes.push(outcome);
                break;
            }
        }
    }
    outcomes.extend(patches.collect::<Vec<WriteOutcome>>().await);
    // A pod that is gone needs no annotation. If patches of pods failed temporarily and others were refused, the outcome is the temporary failure, because a
    // refusal would end the attempts.
    let troubles =
        outcomes.into_iter().filter(|outcome| !matches!(outcome, WriteOutcome::Applied { .. } | WriteOutcome::Gone));
    let trouble = troubles.min_by_key(|outcome| matches!(outcome, WriteOutcome::Refused(_)));
    trouble.unwrap_or(WriteOutcome::Applied { resource_version: String::new() })
}

/// The pods of a job that have not ended and lack one of the annotations.
async fn lacking(
    client: &Client,
    namespace: &str,
    pods: &PodsOf,
    annotations: &BTreeMap<String, String>,
) -> Result<Vec<Pod>, WriteOutcome> {
    let lacks = |pod: &Meta| {
        let known = pod.metadata.annotations.as_ref();
        annotations.iter().any(|(key, value)| known.and_then(|known| known.get(key)) != Some(value))
    };
    let (mut found, mut from) = (Vec::new(), None::<String>);
    loop {
        let asked = page::<Meta>(client, (namespace, pods), (metadata::LIST, NOT_ENDED), (PAGE, from.as_deref())).await;
        let page = match asked {
            Ok(page) => page,
            Err(Some((code, body))) => return Err(outcome_of(Verb::Patch, code, None, &body)),
            Err(None) => return Err(WriteOutcome::Busy(1_000)),
        };
        from = page.next();
        let own = page.items.into_iter().filter(|pod| pods.has(&pod.metadata) && lacks(pod));
        found.extend(
            own.map(|pod| Pod {
                name: pod.metadata.name.unwrap_or_default(),
                uid: pod.metadata.uid.unwrap_or_default(),
            }),
        );
        if from.is_none() {
            return Ok(found);
        }
    }
}

/// Waits for the rate limit before a patch of a pod; the wait fails at the time limit of the write or at the end of the term.
async fn turn(writer: &Writer, task: &Task, until: Instant) -> Result<(), WriteOutcome> {
    tokio::select! {
        biased;
        () = writer.leadership.over(task.term) => Err(WriteOutcome::NotSent),
        () = tokio::time::sleep_until(until) => Err(WriteOutcome::Busy(1_000)),
        () = writer.wait_for_rate() => Ok(()),
    }
}

async fn patch(writer: &Writer, task: &Task, pod: Pod, annotations: &BTreeMap<String, String>) -> WriteOutcome {
    let Pod { name, uid } = pod;
    // The only precondition of the patch is the pod's uid, because kubelets often change pods, and their changes do not matter for an annotation.
    let body = json!({"metadata": {"uid": uid, "annotations": annotations}});
    let write = Write::Merge { manager: MANAGER, subresource: Subresource::None, body: body.into() };
    let target = Target { kind: ResourceKind::Pod, namespace: &task.key.namespace, name: &name };
    writer.request(task.term, &target, &write).await
}
