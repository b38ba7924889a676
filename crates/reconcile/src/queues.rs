//! Statuses and finalizers of ClusterQueues, LocalQueues, ResourceFlavors and AdmissionChecks.

pub(crate) mod figures;
pub(crate) mod schedule;
pub(crate) mod status_write;
pub(crate) mod usage;

use berth_cache::deltas::quantity;
use berth_cache::{Name, WorkloadView, admission_checks};
use berth_jobs::ObjectPatch;
use std::collections::BTreeMap;

use berth_api as api;
use berth_api::conditions::{own_reasons, reasons, types};
use berth_api::json::to_value;
use berth_engine::model as engine;
use berth_quantity::Amount;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::Serialize;
use serde_json::{Value, json};

use crate::context::Context;
use crate::workload::FINALIZER;

use crate::decision::{Decision, Draft};
use crate::queues::status_write::draft;
use crate::workload::columns;
use crate::workload::status::set_in;
use crate::write::{EventType, Kind, Notice, ObjectKey, Purpose, SCHEDULER};

/// The greatest number of flavors that the status of a queue lists, which is as many as a ClusterQueue spec may have; further flavors, of which the queue has
/// no quota any more, are left out.
const MOST_FLAVORS: usize = 64;

/// The usage of each flavor and resource.
pub(crate) type Usage = BTreeMap<(String, String), Amount>;

/// Keeps the finalizer on objects in use, and removes it from unused objects that are being deleted.
pub(crate) fn finalizer(ctx: &Context<'_>, key: &ObjectKey) -> Decision {
    match key.kind {
        Kind::ClusterQueue => match ctx.view.cluster_queues().get(&key.name) {
            // The status of the ClusterQueue says how many workloads hold its quota.
            Some(object) => {
                held(key, &Holder::of(&object.metadata), || ctx.quota.world().cluster_queue_in_use(&key.name))
            }
            None => Decision::Done,
        },
        // A check that no API server has stored, for example a check that `berth decide` has read, has no finalizer that could be written.
        Kind::AdmissionCheck => match ctx.view.checks().get(&key.name).filter(|check| !check.uid.is_empty()) {
            Some(check) => {
                let (uid, resource_version) = (check.uid.as_str(), check.resource_version.as_str());
                let holder = Holder { uid, resource_version, finalizers: &check.finalizers, deleting: check.deleting };
                let users = naming_check(ctx, &key.name);
                let is_reported = check.asks_autoscaler();
                match held(key, &holder, || !users.is_empty()) {
                    // An AdmissionCheck that Berth answers itself reports the waiting deletion in its condition `Active`.
                    Decision::Done if check.deleting && !is_reported && !users.is_empty() => {
                        waits_for(ctx, key, &check.uid, &users)
                    }
                    decision => decision,
                }
            }
            None => Decision::Done,
        },
        _ => match ctx.view.flavors().get(&key.name) {
            Some(object) => {
                let holder = Holder::of(&object.metadata);
                let in_use = || ctx.quota.world().flavor_in_use(&key.name);
                match held(key, &holder, in_use) {
                    Decision::Done if holder.deleting && in_use() => {
                        waits_for(ctx, key, holder.uid, &offering(ctx, &key.name))
                    }
                    decision => decision,
                }
            }
            None => Decision::Done,
        },
    }
}

/// The ClusterQueues that name an admission check.
pub(crate) fn naming_check<'a>(ctx: &'a Context<'a>, check: &str) -> Vec<&'a str> {
    let queues = ctx.view.cluster_queues().iter();
    queues.filter(|(_, queue)| admission_checks::names(&queue.spec, check)).map(|(name, _)| name.as_str()).collect()
}

/// The ClusterQueues that offer a flavor.
fn offering<'a>(ctx: &'a Context<'a>, flavor: &str) -> Vec<&'a str> {
    let offers = |queue: &api::ClusterQueue| {
        queue.spec.resource_groups.iter().flat_map(|group| &group.flavors).any(|offered| offered.name == flavor)
    };
    let queues = ctx.view.cluster_queues().iter();
    queues.filter(|(_, queue)| offers(queue)).map(|(name, _)| name.as_str()).collect()
}

/// The names of the first few ClusterQueues for which a deletion waits, as text.
pub(crate) fn listed(queues: &[&str]) -> String {
    const NAMED: usize = 10;
    let first = queues.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = queues.len().saturating_sub(NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("ClusterQueue{} {first}{rest}", if queues.len() == 1 { "" } else { "s" })
}

/// Sends one event about the ClusterQueues, or about Workloads with quota, for which the deletion of an object waits. The event about a waiting deletion does
/// not name Workloads that hold quota.
fn waits_for(ctx: &Context<'_>, key: &ObjectKey, uid: &str, queues: &[&str]) -> Decision {
    let text = if queues.is_empty() {
        "The deletion waits for workloads that hold quota of it".to_owned()
    } else {
        format!("The deletion waits for {}", listed(queues))
    };
    let event = (own_reasons::DELETION_WAITS, text);
    if !ctx.is_unsent(key, &event) {
        return Decision::Done;
    }
    Decision::event(Notice {
        key: key.clone(),
        uid: uid.to_owned(),
        event_type: EventType::Normal,
        reason: event.0.to_owned(),
        message: event.1,
        reporter: SCHEDULER,
    })
}

/// The part of an object's metadata that its finalizer depends on.
struct Holder<'a> {
    uid: &'a str,
    resource_version: &'a str,
    finalizers: &'a [String],
    deleting: bool,
}

impl<'a> Holder<'a> {
    fn of(metadata: &'a ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.as_deref().unwrap_or_default(),
            resource_version: metadata.resource_version.as_deref().unwrap_or_default(),
            finalizers: metadata.finalizers.as_deref().unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
        }
    }
}

fn held(key: &ObjectKey, holder: &Holder<'_>, in_use: impl FnOnce() -> bool) -> Decision {
    let named = holder.finalizers.iter().map(String::as_str);
    let has = named.clone().any(|name| name == FINALIZER);
    let (purpose, wanted): (Purpose, Vec<&str>) = match (holder.deleting, has) {
        (false, false) => (Purpose::AddFinalizer, named.chain([FINALIZER]).collect()),
        (true, true) if !in_use() => (Purpose::RemoveFinalizer, named.filter(|name| *name != FINALIZER).collect()),
        _ => return Decision::Done,
    };
    let patch = ObjectPatch::of_version(holder.uid, holder.resource_version).finalizers(wanted);
    Decision::write(Draft::merge(purpose, key.clone(), patch, 0))
}

/// Reports the faults of flavors and cohorts by an event, because these kinds have no condition for their faults.
pub(crate) fn faults(ctx: &Context<'_>, key: &ObjectKey) -> Decision {
    let found = match key.kind {
        Kind::ResourceFlavor => ctx.view.flavors().get(&key.name).map(|object| {
            let unusable = berth_cache::deltas::flavor(object, ctx.settings.refuse_invalid).unusable;
            (&object.metadata, unusable.unwrap_or_default())
        }),
        Kind::Cohort => ctx
            .view
            .cohorts()
            .get(&key.name)
            .map(|object| (&object.metadata, api::validation::summary(&api::validation::validate_cohort(object)))),
        _ => None,
    };
    match found {
        Some((metadata, text)) if !text.is_empty() => Decision::event(Notice {
            key: key.clone(),
            uid: metadata.uid.clone().unwrap_or_default(),
            event_type: EventType::Warning,
            reason: reasons::MISCONFIGURED.into(),
            message: text,
            reporter: SCHEDULER,
        }),
        _ => Decision::Done,
    }
}

/// The status write of a ClusterQueue, LocalQueue, Cohort or QueuePolicy; `None` if the status has not changed.
pub(crate) fn status(ctx: &Context<'_>, key: &ObjectKey, now: Timestamp) -> Option<Draft> {
    match key.kind {
        Kind::ClusterQueue => cluster_queue(ctx, key, now),
        Kind::LocalQueue => local_queue(ctx, key, now),
        Kind::Cohort => cohort(ctx, key),
        Kind::QueuePolicy => crate::policies::status::status(ctx, key, now),
        _ => None,
    }
}

/// The weighted share of a ClusterQueue or Cohort in its parent; `None` without fair sharing.
fn fair_share(ctx: &Context<'_>, name: &str, is_queue: bool) -> Option<api::FairSharingStatus> {
    ctx.settings.engine.fair_sharing.as_ref()?;
    let share = ctx.quota.world().share(name, is_queue, &BTreeMap::new())?;
    Some(api::FairSharingStatus { weighted_share: share.share.rounded() })
}

fn cohort(ctx: &Context<'_>, key: &ObjectKey) -> Option<Draft> {
    let object = ctx.view.cohorts().get(&key.name)?;
    let old = object.status.clone().unwrap_or_default();
    let new = api::CohortStatus { fair_sharing: fair_share(ctx, &key.name, false) };
    if new == old {
        return None;
    }
    Some(draft(key, &object.metadata, json!({"fairSharing": new.fair_sharing}), [&[], &[]]))
}

/// The Workloads of a LocalQueue that hold quota of the ClusterQueue that the LocalQueue names. A Workload may hold quota of another ClusterQueue, if the
/// LocalQueue named that one before.
pub(crate) fn holding<'a>(ctx: &'a Context<'a>, name: &'a Name) -> impl Iterator<Item = &'a WorkloadView> {
    let named = ctx.view.local_queues().get(name).and_then(|object| object.spec.cluster_queue.as_deref());
    let named = named.filter(|named| ctx.view.cluster_queues().contains_key(*named));
    ctx.view.workloads().holding(name).filter(move |workload| named.is_some() && workload.holds() == named)
}

/// The number and the usage of the admitted Workloads among the Workloads that hold quota.
fn admitted_usage<'a>(ctx: &'a Context<'a>, holding: impl Iterator<Item = &'a WorkloadView>) -> (i32, Usage) {
    // The quota of a slice that another slice has replaced counts for the other slice.
    let counts = |workload: &&WorkloadView| workload.is(types::ADMITTED) && !ctx.is_handed_over(workload);
    let admitted: Vec<&WorkloadView> = holding.filter(counts).collect();
    let count = i32::try_from(admitted.len()).unwrap_or(i32::MAX);
    (count, usage_of(admitted.into_iter(), ctx.settings.reclaimable_pods))
}

/// The usage of several Workloads together.
pub(crate) fn usage_of<'a>(workloads: impl Iterator<Item = &'a WorkloadView>, reclaims: bool) -> Usage {
    let mut usage = Usage::new();
    workloads.for_each(|workload| add_usage(&mut usage, workload, reclaims));
    usage
}

/// The usage of a flavor and resource.
pub(crate) fn used(usage: &Usage, cell: &engine::CellUsage) -> Amount {
    usage.get(&(cell.flavor.clone(), cell.resource.clone())).copied().unwrap_or_default()
}

fn add_usage(usage: &mut Usage, workload: &WorkloadView, reclaims: bool) {
    let Some(admission) = &workload.status.admission else { return };
    let pods = |name: &str| workload.pods(name, reclaims);
    let held =
        berth_cache::deltas::reservation(admission, pods, (engine::Millis(0), None), (false, false, false), None);
    for set in held.pod_sets {
        for (resource, amount) in set.usage {
            if let Some(flavor) = set.flavors.get(&resource) {
                let cell = usage.entry((flavor.clone(), resource)).or_default();
                *cell = cell.add(amount);
            }
        }
    }
}

fn condition_parts(readiness: &engine::Readiness) -> (bool, &str, &str) {
    (readiness.active, readiness.reason, readiness.message.as_str())
}

fn cluster_queue(ctx: &Context<'_>, key: &ObjectKey, now: Timestamp) -> Option<Draft> {
    let object = ctx.view.cluster_queues().get(&key.name)?;
    let figures = ctx.quota.world().figures(&key.name)?;
    let (admitted, usage) = admitted_usage(ctx, ctx.view.workloads().reserving(&key.name));
    let old = object.status.clone().unwrap_or_default();
    let mut conditions: Vec<Condition> = old.conditions.clone();
    let mut readiness = ctx.quota.world().readiness(&key.name)?;
    if object.metadata.deletion_timestamp.is_some() && figures.reserving > 0 {
        readiness.message.push_str(&format!(
            "; {} workload(s) hold its quota: kubectl get workloads -A --field-selector status.admission.clusterQueue={}",
            figures.reserving, key.name
        ));
    }
    let generation = object.metadata.generation.unwrap_or_default();
    set_in(&mut conditions, types::ACTIVE, condition_parts(&readiness), generation, now);
    let cell = |cell: &engine::CellUsage, total: Amount, borrowed: Amount| api::ResourceUsage {
        name: cell.resource.clone(),
        total: Some(quantity(&cell.resource, total)),
        borrowed: Some(quantity(&cell.resource, borrowed)),
    };
    let flavors = |cell: &dyn Fn(&engine::CellUsage) -> api::ResourceUsage| {
        let groups = by_flavor(&figures.reservation, cell).into_iter();
        groups.map(|(name, resources)| api::FlavorUsage { name, resources }).collect()
    };
    // Usage beyond quota counts as used, and is borrowed from no other ClusterQueue.
    let beyond = ctx.quota.world().beyond(&key.name);
    let beyond = |reserved: &engine::CellUsage| {
        let is_same = |at: &engine::FlavorResource| at.flavor == reserved.flavor && at.resource == reserved.resource;
        beyond.iter().find(|(at, _)| is_same(at)).map_or(Amount::ZERO, |(_, amount)| *amount)
    };
    let mut new = api::ClusterQueueStatus {
        conditions,
        pending_workloads: count(figures.pending_active.saturating_add(figures.pending_inadmissible)),
        reserving_workloads: count(figures.reserving),
        admitted_workloads: Some(admitted),
        flavors_reservation: flavors(&|usage| cell(usage, usage.total, usage.borrowed)),
        flavors_usage: flavors(&|reserved| {
            let (total, beyond) = (used(&usage, reserved), beyond(reserved));
            let nominal = reserved.total.sub(beyond).sub(reserved.borrowed);
            let over =
                if reserved.borrowed > Amount::ZERO { total.sub(nominal).max(Amount::ZERO) } else { Amount::ZERO };
            cell(reserved, total.add(beyond), over)
        }),
        fair_sharing: fair_share(ctx, &key.name, true),
        berth_used: old.berth_used.clone(),
    };
    if new == old {
        return None;
    }
    // The field `status.berthUsed` of a ClusterQueue follows from the usage and the spec, and is never the only change of a write, because the API server does
    // not store the field if Kueue's definition is installed.
    new.berth_used = columns::used(&ctx.settings.accelerators, &object.spec, &figures.reservation);
    let mut status = explicit(&new);
    if let Some(map) = status.as_object_mut() {
        for field in ["fairSharing", "berthUsed"] {
            map.entry(field).or_insert(Value::Null);
        }
    }
    Some(draft(key, &object.metadata, status, [&old.conditions, &new.conditions]))
}

fn count(value: u32) -> Option<i32> {
    i32::try_from(value).ok()
}

/// The results of the function `cell` for each flavor and resource with usage, grouped by flavor in the order of `cells`.
fn by_flavor<R>(cells: &[engine::CellUsage], cell: impl Fn(&engine::CellUsage) -> R) -> Vec<(String, Vec<R>)> {
    let mut flavors: Vec<(String, Vec<R>)> = Vec::new();
    for usage in cells {
        let resource = cell(usage);
        match flavors.iter_mut().find(|(flavor, _)| *flavor == usage.flavor) {
            Some((_, resources)) => resources.push(resource),
            None => flavors.push((usage.flavor.clone(), vec![resource])),
        }
    }
    flavors.truncate(MOST_FLAVORS);
    flavors
}

/// A status as JSON with all its lists. A merge patch deletes no omitted field: an empty list must be written as such, or the old list would stay.
fn explicit(status: &impl Serialize) -> Value {
    let mut value = to_value(status);
    if let Some(map) = value.as_object_mut() {
        for field in ["flavorsReservation", "flavorsUsage", "conditions"] {
            map.entry(field).or_insert_with(|| json!([]));
        }
    }
    value
}

fn local_queue(ctx: &Context<'_>, key: &ObjectKey, now: Timestamp) -> Option<Draft> {
    let name = (key.namespace.clone(), key.name.clone());
    let object = ctx.view.local_queues().get(&name)?;
    let figures = ctx.quota.world().local_queue_figures(&key.namespace, &key.name)?;
    let (admitted, usage) = admitted_usage(ctx, holding(ctx, &name));
    let old = object.status.clone().unwrap_or_default();
    let mut conditions: Vec<Condition> = old.conditions.clone();
    let readiness = ctx.quota.world().local_queue_readiness(&key.namespace, &key.name)?;
    let generation = object.metadata.generation.unwrap_or_default();
    set_in(&mut conditions, types::ACTIVE, condition_parts(&readiness), generation, now);
    let cell = |cell: &engine::CellUsage, total: Amount| api::LocalQueueResourceUsage {
        name: cell.resource.clone(),
        total: Some(quantity(&cell.resource, total)),
    };
    let flavors = |cell: &dyn Fn(&engine::CellUsage) -> api::LocalQueueResourceUsage| {
        let groups = by_flavor(&figures.reservation, cell).into_iter();
        groups.map(|(name, resources)| api::LocalQueueFlavorUsage { name, resources }).collect()
    };
    let new = api::LocalQueueStatus {
        conditions,
        pending_workloads: count(figures.pending_active.saturating_add(figures.pending_inadmissible)),
        reserving_workloads: count(figures.reserving),
        admitted_workloads: Some(admitted),
        flavors_reservation: flavors(&|usage| cell(usage, usage.total)),
        flavors_usage: flavors(&|reserved| cell(reserved, used(&usage, reserved))),
        fair_sharing: crate::queues::usage::fair_sharing(ctx, &name).or_else(|| old.fair_sharing.clone()),
    };
    if new == old {
        return None;
    }
    Some(draft(key, &object.metadata, explicit(&new), [&old.conditions, &new.conditions]))
}

#[cfg(test)]
mod tests;
