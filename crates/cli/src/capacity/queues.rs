//! The resource groups of ClusterQueues, made of quotas by machine family and tier.

use super::flavors::Capacity;
use super::table::{AmountOr, Family, Limits, Queue, Quota, Quotas, fault};
use berth_api::validation::{subdomain, summary, validate_cluster_queue};
use berth_api::{API_VERSION, ClusterQueue};
use berth_control::offline::{self, examine};
use serde_json::{Map, Value, json};
use serde_saphyr::Location;
use std::collections::BTreeSet;

/// Largest number of flavors, and of resources, of a resource group.
const MOST_IN_GROUP: usize = 64;
/// Largest number of resource groups of a ClusterQueue.
const MOST_GROUPS: usize = 16;

/// A resource group: machine families that have equal resources.
struct Group<'t> {
    /// Resources of the group, in the order of its first family.
    resources: &'t [String],
    /// Indices of the group's machine families in the table.
    families: Vec<usize>,
}

/// The ClusterQueues of a capacity table.
///
/// # Errors
/// The error is one sentence with the line and the field, the value and what is allowed.
pub(crate) fn cluster_queues(capacity: &Capacity<'_>) -> Result<Vec<Value>, String> {
    let mut names = BTreeSet::new();
    let mut made = Vec::new();
    for (index, queue) in capacity.table.cluster_queues.iter().enumerate() {
        let path = format!("clusterQueues[{index}] {:?}", queue.name.value);
        if !names.insert(&queue.name.value) {
            return Err(fault(&queue.name.referenced, &path, "the name is another queue's, too"));
        }
        made.push(cluster_queue(capacity, queue, &path)?);
    }
    Ok(made)
}

fn cluster_queue(capacity: &Capacity<'_>, queue: &Queue, path: &str) -> Result<Value, String> {
    let place = &queue.name.referenced;
    let refused = |what: &str| Err(fault(place, path, what));
    if queue.spec.contains_key("resourceGroups") {
        return refused("spec.resourceGroups: they are made of quotas; take them out");
    }
    if queue.spec.get("namespaceSelector").is_none_or(Value::is_null) {
        return refused("spec.namespaceSelector is missing, and without it no namespace may use the queue; {} is all");
    }
    let groups = resource_groups(capacity, &queue.quotas, place, path)?;
    if groups.is_empty() {
        return refused("quotas: there is none; say how much it has, as FAMILY: {TIER: AMOUNT}");
    }
    let mut spec = queue.spec.clone();
    spec.insert("resourceGroups".to_owned(), Value::Array(groups));
    let mut metadata = Map::new();
    if !queue.labels.is_empty() {
        metadata.insert("labels".to_owned(), json!(queue.labels));
    }
    metadata.insert("name".to_owned(), json!(queue.name.value));
    let made = json!({"apiVersion": API_VERSION, "kind": "ClusterQueue", "metadata": metadata, "spec": spec});
    check(&made).map_err(|what| fault(place, path, what))?;
    Ok(made)
}

/// The resource groups of a ClusterQueue's quotas. Families with equal resources share a resource group, whose flavors are ordered by tier, then by family.
///
/// # Errors
/// The error is one sentence with the line and the field, the value and what is allowed.
pub(crate) fn resource_groups(
    capacity: &Capacity<'_>,
    quotas: &Quotas,
    place: &Location,
    path: &str,
) -> Result<Vec<Value>, String> {
    check_names(capacity, quotas, place, path)?;
    let mut made = Vec::new();
    for group in groups(capacity, quotas).map_err(|what| fault(place, path, what))? {
        let mut flavors = Vec::new();
        for (tier, _) in &capacity.tiers {
            for index in &group.families {
                let Some(family) = capacity.table.families.get(*index) else { continue };
                let quota = quotas.get(&family.name.value).and_then(|tiers| tiers.get(tier.as_str()));
                let Some(quota) = quota else { continue };
                let path = format!("{path}: quotas.{}.{tier}", family.name.value);
                let Some(name) = capacity.flavor_name(*index, *tier) else {
                    return Err(fault(&quota.referenced, &path, "the family is not offered in this tier"));
                };
                let resources = resources(&group, family, &quota.value);
                let resources = resources.map_err(|what| fault(&quota.referenced, &path, what))?;
                flavors.push(json!({"name": name, "resources": resources}));
            }
        }
        for (what, count) in [("flavors", flavors.len()), ("resources", group.resources.len())] {
            if count > MOST_IN_GROUP {
                let covered = group.resources.join(", ");
                let what = format!("{count} {what} for {covered}; a resource group has at most {MOST_IN_GROUP}");
                return Err(fault(place, path, what));
            }
        }
        if !flavors.is_empty() {
            made.push(json!({"coveredResources": group.resources, "flavors": flavors}));
        }
    }
    if made.len() > MOST_GROUPS {
        let what = format!("{} resource groups; at most {MOST_GROUPS} are allowed", made.len());
        return Err(fault(place, path, what));
    }
    Ok(made)
}

/// Checks that every family and tier that quotas name exists in the table.
fn check_names(capacity: &Capacity<'_>, quotas: &Quotas, place: &Location, path: &str) -> Result<(), String> {
    let families: Vec<&str> = capacity.table.families.iter().map(|family| family.name.value.as_str()).collect();
    let known: Vec<&str> = capacity.tiers.iter().map(|(tier, _)| tier.as_str()).collect();
    for (family, tiers) in quotas {
        if !families.contains(&family.as_str()) {
            let what = format!("{family:?} is no family of this table; allowed are {}", families.join(", "));
            return Err(fault(place, &format!("{path}: quotas"), what));
        }
        if let Some((tier, quota)) = tiers.iter().find(|(tier, _)| !known.contains(&tier.as_str())) {
            let what = format!("{tier:?} is no tier of this table; allowed are {}", known.join(", "));
            return Err(fault(&quota.referenced, &format!("{path}: quotas.{family}"), what));
        }
    }
    Ok(())
}

/// The machine families for which a queue has quotas, grouped into resource groups.
fn groups<'t>(capacity: &Capacity<'t>, quotas: &Quotas) -> Result<Vec<Group<'t>>, String> {
    let mut groups: Vec<Group<'t>> = Vec::new();
    for (index, family) in capacity.table.families.iter().enumerate() {
        if !quotas.contains_key(&family.name.value) {
            continue;
        }
        let own: BTreeSet<&String> = family.resources.iter().collect();
        let same = |resources: &[String]| resources.iter().collect::<BTreeSet<&String>>() == own;
        if let Some(group) = groups.iter_mut().find(|group| same(group.resources)) {
            group.families.push(index);
            continue;
        }
        for other in &groups {
            if let Some(both) = other.resources.iter().find(|resource| own.contains(resource)) {
                let first = other.families.first().and_then(|index| capacity.table.families.get(*index));
                let name = first.map_or("", |family| family.name.value.as_str());
                let (others, owns) = (other.resources.join(", "), family.resources.join(", "));
                return Err(format!(
                    "quotas: the families {name:?} ({others}) and {:?} ({owns}) share {both}, and a resource may be in one \
                     resource group only: give both the same resources",
                    family.name.value
                ));
            }
        }
        groups.push(Group { resources: &family.resources, families: vec![index] });
    }
    Ok(groups)
}

/// The quotas of one flavor, in the order of its group's resources.
fn resources(group: &Group<'_>, family: &Family, quota: &Quota) -> Result<Vec<Value>, String> {
    let listed = family.resources.join(", ");
    let by_name = match quota {
        AmountOr::Amount(amount) => match group.resources {
            [resource] => return Ok(vec![resource_quota(resource, &AmountOr::Amount(amount.clone()))?]),
            _ => return Err(format!("{amount} of what? Say the amount of each resource: {listed}")),
        },
        AmountOr::Map(by_name) => by_name,
    };
    if let Some(name) = by_name.keys().find(|name| !family.resources.contains(name)) {
        return Err(format!("{name:?} is no resource of the family; allowed are {listed}"));
    }
    let quotas = group.resources.iter().map(|resource| {
        let limits = by_name.get(resource).ok_or_else(|| format!("{resource} is missing; all are needed: {listed}"))?;
        resource_quota(resource, limits)
    });
    quotas.collect()
}

fn resource_quota(resource: &str, quota: &AmountOr<Limits>) -> Result<Value, String> {
    let limits = match quota {
        AmountOr::Amount(amount) => Limits { nominal_quota: amount.clone(), ..Limits::default() },
        AmountOr::Map(limits) => limits.clone(),
    };
    let mut made = Map::new();
    made.insert("name".to_owned(), json!(resource));
    for (field, amount) in [
        ("nominalQuota", Some(&limits.nominal_quota)),
        ("borrowingLimit", limits.borrowing_limit.as_ref()),
        ("lendingLimit", limits.lending_limit.as_ref()),
    ] {
        let Some(amount) = amount else { continue };
        berth_quantity::quota(resource, amount).map_err(|error| format!("{field} of {resource}: {error}"))?;
        made.insert(field.to_owned(), json!(amount));
    }
    Ok(Value::Object(made))
}

/// Checks that the API server would accept a ClusterQueue and know all its fields.
fn check(queue: &Value) -> Result<(), String> {
    if let offline::Manifest::Read { unknown } = examine(queue).map_err(|error| error.to_string())?
        && !unknown.is_empty()
    {
        return Err(format!("{}: a ClusterQueue has no such field", unknown.join(", ")));
    }
    let queue: ClusterQueue = serde_json::from_value(queue.clone()).map_err(|error| error.to_string())?;
    if let Some(wrong) = subdomain(queue.name()) {
        return Err(format!("the name {wrong}"));
    }
    match validate_cluster_queue(&queue) {
        faults if faults.is_empty() => Ok(()),
        faults => Err(summary(&faults)),
    }
}
