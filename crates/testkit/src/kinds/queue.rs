//! Queues: order, what is parked, timestamps.

use super::cycle::LocalQueueUsage;
use crate::case::Case;
use crate::diff::{Diff, sorted};
use crate::scene::{Scene, key_of, text};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Workloads by ClusterQueue.
pub type ByQueue = BTreeMap<String, Vec<String>>;

/// Pending workloads by ClusterQueue: those that will be tried, and those that are parked. Queues without any are left out.
pub fn pending(scene: &mut Scene) -> (ByQueue, ByQueue) {
    let (mut left, mut parked) = (ByQueue::new(), ByQueue::new());
    for queue in scene.cluster_queues() {
        let (active, waiting) = scene.offline.control().world().pending(&queue);
        for (map, uids) in [(&mut left, active), (&mut parked, waiting)] {
            if !uids.is_empty() {
                map.insert(queue.clone(), sorted(&scene.names(&uids)));
            }
        }
    }
    (left, parked)
}

/// Lets everything parked be tried again: in these ClusterQueues and their trees, or everywhere.
pub fn requeue_parked(scene: &mut Scene, cluster_queues: &[String]) {
    let queues = if cluster_queues.is_empty() { scene.cluster_queues() } else { cluster_queues.to_vec() };
    for queue in queues {
        scene.offline.control().world().retry_parked(&queue);
    }
    scene.offline.control().look_again();
}

/// Writes the use of a LocalQueue so far into its status, where Kueue keeps it.
///
/// # Errors
/// No such LocalQueue.
pub fn lay_local_usage(case: &mut Case, key: &str, usage: &LocalQueueUsage) -> Result<(), String> {
    let is_it = |object: &&mut Value| text(object, "/kind") == "LocalQueue" && key_of(object) == key;
    let queue = case.objects.iter_mut().find(is_it).ok_or_else(|| format!("input: no LocalQueue {key}"))?;
    let at = usage.last_update.clone().or_else(|| case.now.clone());
    let status = json!({"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": {
        "consumedResources": usage.consumed_resources,
        "lastUpdate": at.unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned())}}});
    if let Value::Object(queue) = queue {
        queue.insert("status".to_owned(), status);
    }
    Ok(())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimestampInput {
    workload: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct ByOrder {
    eviction: Option<String>,
    creation: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimestampExpect {
    timestamp: ByOrder,
}

/// Kind `queue-timestamp`.
///
/// # Errors
/// What cannot be read.
pub fn timestamp(case: &Case) -> Result<Diff, String> {
    let input: TimestampInput = case.input()?;
    let expect: TimestampExpect = case.expect()?;
    let mut diff = Diff::default();
    for (order, want) in [("Eviction", expect.timestamp.eviction), ("Creation", expect.timestamp.creation)] {
        let mut case = case.clone();
        case.config.pods_ready_requeuing_timestamp = Some(order.to_owned());
        let mut scene = Scene::new(&case)?;
        let (namespace, name) = input.workload.split_once('/').unwrap_or_default();
        let told = scene.offline.control().told(namespace, name);
        let queued = told.and_then(|told| Timestamp::from_millisecond(told.queued_at.0).ok());
        if let Some(want) = want {
            let want: Timestamp = want.parse().map_err(|error| format!("expect.timestamp: {error}"))?;
            diff.eq(&format!("timestamp/{order}"), &Some(want), &queued);
        }
    }
    Ok(diff)
}
