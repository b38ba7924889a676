//! Helpers for cases about queues: pending and parked Workloads, past usage, outcomes; and cases of kind `queue-timestamp`.

use crate::amounts::amounts;
use crate::case::Case;
use crate::diff::{Diff, sorted};
use crate::scene::{Scene, key_of, text};
use berth_engine::steps::Outcome;
use berth_engine::{Delta, LedgerFigures, Millis, PendingReason};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Workloads by ClusterQueue.
pub type ByQueue = BTreeMap<String, Vec<String>>;

/// Pending Workloads by ClusterQueue, first the active ones, then the parked ones. ClusterQueues without pending Workloads are left out of both maps.
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

/// Number of ClusterQueues from which a head was taken and not requeued, because Kueue counts such a head of a ClusterQueue as an active Workload.
pub fn in_flight(scene: &mut Scene) -> u32 {
    let mut all = 0_u32;
    for queue in scene.cluster_queues() {
        let world = scene.offline.control().world();
        let (active, parked) = world.pending(&queue);
        let seen = u32::try_from(active.len().saturating_add(parked.len())).unwrap_or(u32::MAX);
        let known = world
            .figures(&queue)
            .map_or(0, |figures| figures.pending_active.saturating_add(figures.pending_inadmissible));
        all = all.saturating_add(u32::from(known > seen));
    }
    all
}

/// Makes parked Workloads active again in these ClusterQueues and their cohort trees, or in all ClusterQueues if the list is empty.
pub fn requeue_parked(scene: &mut Scene, cluster_queues: &[String]) {
    let queues = if cluster_queues.is_empty() { scene.cluster_queues() } else { cluster_queues.to_vec() };
    let now = Millis(scene.offline.now().as_millisecond());
    for queue in queues {
        scene.offline.control().world().steps().retry_parked(&queue, now);
    }
    scene.offline.control().look_again();
}

/// Past usage of a LocalQueue.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LocalQueueUsage {
    /// Past usage by resource.
    pub consumed_resources: BTreeMap<String, String>,
    /// Time at which the past usage was computed.
    pub last_update: Option<String>,
}

/// Past usage of LocalQueues, by `namespace/name`.
pub type Usages = BTreeMap<String, LocalQueueUsage>;

/// Writes the past usage of LocalQueues into their statuses, where Kueue keeps it. Returns the past usage of the LocalQueues that the case does not have.
pub fn lay_local_usage(case: &mut Case, usages: &Usages) -> Usages {
    let mut absent = Usages::new();
    for (key, usage) in usages {
        let is_it = |object: &&mut Value| text(object, "/kind") == "LocalQueue" && key_of(object) == *key;
        let at = usage.last_update.clone().or_else(|| case.now.clone());
        let Some(Value::Object(queue)) = case.objects.iter_mut().find(is_it) else {
            absent.insert(key.clone(), usage.clone());
            continue;
        };
        let status = json!({"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": {
            "consumedResources": usage.consumed_resources,
            "lastUpdate": at.unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned())}}});
        queue.insert("status".to_owned(), status);
    }
    absent
}

/// Gives the engine the past usage of LocalQueues that the case names but does not have.
///
/// # Errors
/// A quantity or time cannot be read.
pub fn keep_usage(scene: &mut Scene, absent: &Usages) -> Result<(), String> {
    for (key, usage) in absent {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let at = match &usage.last_update {
            Some(text) => text.parse().map_err(|error| format!("input.localQueueUsage: {text:?}: {error}"))?,
            None => scene.offline.now(),
        };
        let figures = LedgerFigures {
            consumed: amounts(&usage.consumed_resources)?
                .into_iter()
                .map(|(name, amount)| (name.clone(), berth_quantity::to_nano(&name, amount)))
                .collect(),
            at: Millis(Timestamp::as_millisecond(at)),
        };
        let delta = Delta::Ledger(namespace.to_owned(), name.to_owned(), figures);
        scene.offline.control().world().apply(delta).map_err(|refusal| refusal.to_string())?;
    }
    Ok(())
}

/// The outcome of a head, from Kueue's word for the outcome.
///
/// # Errors
/// The word is no outcome of a Workload in Kueue's tests.
pub fn outcome(reason: &str) -> Result<Outcome, String> {
    // Kueue's pending migration of a Workload counts as a pending preemption: both wait until another Workload has gone.
    let reason = if reason == "PendingMigration" { Outcome::PendingPreemption.as_str() } else { reason };
    let outcomes = [
        Outcome::Generic,
        Outcome::NoFit,
        Outcome::PreemptionNoCandidates,
        Outcome::FailedAfterNomination,
        Outcome::NamespaceMismatch,
        Outcome::PendingPreemption,
        Outcome::PreemptionFailed,
        Outcome::PreemptionGated,
    ];
    outcomes.into_iter().find(|outcome| outcome.as_str() == reason).ok_or_else(|| format!("unknown reason {reason:?}"))
}

/// The engine's pending reason with this name.
///
/// # Errors
/// The engine has no pending reason with this name.
pub fn pending_reason(name: &str) -> Result<PendingReason, String> {
    let named = PendingReason::ALL.into_iter().find(|reason| reason.as_str() == name);
    named.ok_or_else(|| format!("reason {name} is not one of the engine's"))
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

/// Judges a case of kind `queue-timestamp`: the time by which a Workload is ordered.
///
/// # Errors
/// A field of the case cannot be read.
pub fn timestamp(case: &Case) -> Result<Diff, String> {
    let input: TimestampInput = case.input()?;
    let expect: TimestampExpect = case.expect()?;
    let mut diff = Diff::default();
    for (order, want) in [("Eviction", expect.timestamp.eviction), ("Creation", expect.timestamp.creation)] {
        let mut case = case.clone();
        case.config.pods_ready_requeuing_timestamp = Some(order.to_owned());
        let mut scene = Scene::new(&case)?;
        let (namespace, name) = input.workload.split_once('/').unwrap_or_default();
        let spec = scene.offline.control().workload_spec(namespace, name);
        let queued = spec.and_then(|spec| Timestamp::from_millisecond(spec.queued_at.0).ok());
        if let Some(want) = want {
            let want: Timestamp = want.parse().map_err(|error| format!("expect.timestamp: {error}"))?;
            diff.eq(&format!("timestamp/{order}"), &Some(want), &queued);
        }
    }
    Ok(diff)
}
