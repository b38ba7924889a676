//! The status of a QueuePolicy: the ClusterQueues to which the policy applies, the jobs in each tier, and the flavors that are out of stock.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::CapacityTier;
use berth_api::berth::{QueuePolicyStatus, TierStatus};
use berth_api::conditions::{own_reasons, reasons, types};
use berth_cache::policy_rules::Policy;
use jiff::Timestamp;
use serde_json::json;

use crate::context::Context;
use crate::decision::Draft;
use crate::queues::status_write::draft;
use crate::workload::status::set_in;
use crate::write::ObjectKey;

/// The greatest number of fields without effect that the message of a status names.
const MOST_REPORTED: usize = 3;

/// The status write of a policy; `None` if the status has not changed.
pub(crate) fn status(ctx: &Context<'_>, key: &ObjectKey, now: Timestamp) -> Option<Draft> {
    let policy = ctx.view.policies().get(&key.name)?;
    let old = policy.object.status.clone().unwrap_or_default();
    let governed: BTreeSet<&String> = ctx
        .view
        .claims()
        .iter()
        .filter(|(_, claim)| claim.of.iter().any(|policy| **policy == key.name))
        .map(|(queue, _)| queue)
        .collect();
    let mut conditions = old.conditions.clone();
    let generation = policy.object.metadata.generation.unwrap_or_default();
    let (active, reason, message) = active_condition(ctx, policy, &key.name, &governed);
    set_in(&mut conditions, types::ACTIVE, (active, reason, &message), generation, now);
    let new = QueuePolicyStatus {
        conditions,
        tiers: if policy.object.spec.capacity_tiers.is_some() { tiers(ctx, &governed) } else { Vec::new() },
        backoffs: ctx.capacity.stock().shown(&flavors(ctx, &governed), now),
        cluster_queues: governed.into_iter().cloned().collect(),
    };
    if new == old {
        return None;
    }
    // A merge patch deletes no omitted field: an empty list must be written as such, or the old list would stay.
    Some(draft(
        key,
        &policy.object.metadata,
        json!({
            "conditions": new.conditions, "clusterQueues": new.cluster_queues, "tiers": new.tiers,
            "backoffs": new.backoffs,
        }),
        [&old.conditions, &new.conditions],
    ))
}

/// The condition `Active` of a QueuePolicy (status, reason and message), which is true if all fields of the policy have effect on the ClusterQueues that it
/// claims.
fn active_condition(
    ctx: &Context<'_>,
    policy: &Policy,
    name: &str,
    governed: &BTreeSet<&String>,
) -> (bool, &'static str, String) {
    if let Some(Err(problem)) = &policy.selector {
        return (false, own_reasons::INVALID_SELECTOR, problem.clone());
    }
    let lost = ctx.view.claims().iter().flat_map(|(queue, claim)| {
        let own = claim.lost.iter().filter(|lost| *lost.policy == *name);
        own.map(move |lost| format!("ClusterQueue {queue}: {}", lost.text))
    });
    let lost: Vec<String> = lost.collect();
    if !lost.is_empty() {
        let mut message = lost.iter().take(MOST_REPORTED).cloned().collect::<Vec<_>>().join("; ");
        if lost.len() > MOST_REPORTED {
            message.push_str(&format!("; and {} more", lost.len().saturating_sub(MOST_REPORTED)));
        }
        return (false, own_reasons::CONFLICT, message);
    }
    let missing = policy.object.spec.cluster_queues.iter().filter(|queue| !governed.contains(queue));
    let missing: Vec<&str> = missing.map(String::as_str).collect();
    if missing.is_empty() {
        return (true, reasons::ACTIVE, format!("Governs {} ClusterQueue(s)", governed.len()));
    }
    (
        false,
        own_reasons::CLUSTER_QUEUE_NOT_FOUND,
        format!("spec.clusterQueues names {}, which do not exist", missing.join(", ")),
    )
}

/// The flavors that any of the ClusterQueues offers.
fn flavors<'a>(ctx: &'a Context<'a>, queues: &BTreeSet<&String>) -> BTreeSet<&'a str> {
    let queues = queues.iter().filter_map(|queue| ctx.view.cluster_queues().get(*queue));
    let groups = queues.flat_map(|queue| &queue.spec.resource_groups);
    groups.flat_map(|group| &group.flavors).map(|flavor| flavor.name.as_str()).collect()
}

/// The number of admitted Workloads of the ClusterQueues in each tier.
fn tiers(ctx: &Context<'_>, queues: &BTreeSet<&String>) -> Vec<TierStatus> {
    let mut counts: BTreeMap<CapacityTier, i32> = CapacityTier::ALL.into_iter().map(|tier| (tier, 0)).collect();
    let admitted = queues.iter().flat_map(|queue| ctx.view.workloads().reserving(queue));
    for workload in admitted.filter(|workload| workload.is(types::ADMITTED)) {
        for tier in ctx.tiers_held(workload) {
            let count = counts.entry(tier).or_default();
            *count = count.saturating_add(1);
        }
    }
    let status = |(tier, count): (CapacityTier, i32)| TierStatus { tier: tier.to_string(), admitted_workloads: count };
    counts.into_iter().map(status).collect()
}

#[cfg(test)]
mod tests;
