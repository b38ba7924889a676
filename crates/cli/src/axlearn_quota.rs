//! `berth import axlearn-quota` turns AxLearn's quota file into flavors by tier, a cohort with a ClusterQueue for each project, LocalQueues, and RoleBindings
//! for the members of projects.
//!
//! The conversion starts in [`convert`]; `quota_file.rs` reads the file, and `shares.rs` turns fractions into quota.

mod kinds;
mod members;
mod projects;
mod quota_file;
mod shares;
#[cfg(test)]
mod tests;

use crate::capacity::flavors::Capacity;
use crate::capacity::queues;
use crate::capacity::table::{AmountOr, Cell, Family, Queue, Quotas, Table, TierRow, Toleration, made};
use crate::flags::AxlearnQuotaFlags;
use crate::generated;
use anyhow::anyhow;
use berth_api::validation::{subdomain, summary, validate_cohort};
use berth_api::{API_VERSION, CapacityTier, Cohort, labels};
use kinds::ResourceKind;
use projects::{Project, name_of};
use quota_file::QuotaFile;
use serde_json::{Map, Value, json};
use shares::{shares, weights};
use std::collections::{BTreeMap, BTreeSet};

/// API group of the RoleBindings that the import writes.
const RBAC: &str = "rbac.authorization.k8s.io";
/// The ClusterRole for users of queues that Berth's chart creates; the RoleBindings of the import refer to this role.
const ROLE: &str = "kueue-batch-user-role";

/// The Kubernetes objects that the import makes of a quota file.
#[derive(Debug)]
struct Converted {
    objects: Vec<Value>,
    /// Parts of the quota file that the import could not convert, one sentence each.
    warnings: Vec<String>,
}

/// Amounts of one AxLearn resource type by tier.
struct Pool<'f> {
    /// AxLearn's name of the resource type.
    name: &'f str,
    /// Name of the machine family, with which the names of the flavors of this type begin.
    family: String,
    kind: ResourceKind,
    /// Total amount of the AxLearn resource type by capacity tier, in units of the Kubernetes resource. The map has no entry for a tier of the quota file that
    /// does not name this resource type.
    totals: BTreeMap<CapacityTier, i128>,
}

/// Reads the quota file, converts the file, and writes the manifests. Parts of the quota file that cannot be converted are also named as warnings on the
/// standard error.
pub(crate) fn run(flags: &AxlearnQuotaFlags) -> anyhow::Result<()> {
    let (name, text) = generated::source(&flags.file)?;
    let converted = convert(flags, &text).map_err(|fault| anyhow!("{}: {fault}", flags.file.display()))?;
    for warning in &converted.warnings {
        eprintln!("berth: warning: {warning}");
    }
    generated::deliver(&manifests(&name, converted)?, flags.output.as_deref())
}

fn manifests(name: &str, converted: Converted) -> anyhow::Result<String> {
    let mut comments = vec![format!("Made by `berth import axlearn-quota` of {name}.")];
    comments.extend(converted.warnings.into_iter().map(|warning| format!("Warning: {warning}.")));
    generated::documents(&comments, converted.objects)
}

/// Converts the text of a quota file into Kubernetes objects.
fn convert(flags: &AxlearnQuotaFlags, text: &str) -> Result<Converted, String> {
    if let Some(wrong) = subdomain(&flags.cohort) {
        return Err(format!("--cohort {:?}: the name {wrong}", flags.cohort));
    }
    let file = quota_file::read(text)?;
    let (tiers, mut warnings) = tiers(flags, &file)?;
    let pools = pools(flags, &file, &tiers)?;
    let (projects, given) = projects::projects(&file, flags)?;
    warnings.extend(file.unknown.iter().cloned());
    warnings.extend(given);
    warnings.extend(without_total(&projects, &pools));
    let (by_project, rest) = quotas(&projects, &pools);
    let mut order: Vec<CapacityTier> = Vec::new();
    for tier in tiers {
        if !order.contains(&tier) {
            order.push(tier);
        }
    }
    let table = table(flags, &pools, &order, &projects, by_project)?;
    let capacity = Capacity::of(&table)?;
    let mut objects = Vec::new();
    if flags.create_namespaces {
        let namespaces: BTreeSet<&String> = projects.iter().map(|project| &project.namespace).collect();
        objects.extend(namespaces.into_iter().map(|name| namespace(name)));
    }
    objects.extend(capacity.flavors.iter().cloned());
    let path = "total_resources";
    let groups = queues::resource_groups(&capacity, &rest, &serde_saphyr::Location::UNKNOWN, path)?;
    if !groups.is_empty() {
        let names: Vec<&str> = rest.keys().map(String::as_str).collect();
        let what = names.join(", ");
        warnings.push(format!("no project has a fraction of {what}; the cohort {} lends it to all", flags.cohort));
    }
    objects.push(cohort(&flags.cohort, groups)?);
    objects.extend(queues::cluster_queues(&capacity)?);
    objects.extend(projects.iter().map(local_queue));
    objects.extend(projects.iter().filter(|project| !project.users.is_empty()).map(role_binding));
    Ok(Converted { objects, warnings })
}

/// The capacity tier of each tier of the quota file, and warnings about tiers of the file that get the same capacity tier.
fn tiers(flags: &AxlearnQuotaFlags, file: &QuotaFile) -> Result<(Vec<CapacityTier>, Vec<String>), String> {
    let count = file.tiers.len();
    let words: Vec<&str> = match (flags.tiers.as_slice(), count) {
        // Without the flag `--tiers`, a quota file's first tier is `reserved` and its second tier `spot`, because AxLearn's bastion runs tier 0 in the
        // reservation and all other tiers on spot nodes.
        ([], 1) => vec!["reserved"],
        ([], 2) => vec!["reserved", "spot"],
        (words, _) => words.iter().map(String::as_str).collect(),
    };
    if words.len() != count {
        return Err(format!(
            "--tiers names {} tiers, and the file has {count}; name one for each, best first, of reserved, on-demand and \
             spot",
            words.len()
        ));
    }
    let tiers = words.iter().map(|word| word.parse::<CapacityTier>().map_err(|what| format!("--tiers: {what}")));
    let tiers = tiers.collect::<Result<Vec<_>, String>>()?;
    let mut given = Vec::new();
    for tier in CapacityTier::ALL {
        let same = tiers.iter().enumerate().filter(|(_, other)| **other == tier);
        let same: Vec<String> = same.map(|(index, _)| index.to_string()).collect();
        if same.len() > 1 {
            given.push(format!("tiers {} of the file are all {tier}: their totals are added up", same.join(", ")));
        }
    }
    Ok((tiers, given))
}

/// The resource types for which the quota file has an amount, with totals in the unit of the Kubernetes resource that pods request.
fn pools<'f>(flags: &AxlearnQuotaFlags, file: &'f QuotaFile, tiers: &[CapacityTier]) -> Result<Vec<Pool<'f>>, String> {
    let reported = kinds::from_flags(&flags.types)?;
    let names: BTreeSet<&String> = file.tiers.iter().flat_map(BTreeMap::keys).collect();
    let listed = names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    let of_types = reported.keys().map(|name| ("--type", name.as_str()));
    let of_reservations = flags.reservation.iter().filter_map(|option| option.split_once('='));
    for (option, name) in of_types.chain(of_reservations.map(|(name, _)| ("--reservation", name))) {
        if !names.iter().any(|known| known.as_str() == name) {
            return Err(format!("{option} {name}: the file has no such type; allowed are {listed}"));
        }
    }
    if names.is_empty() {
        return Err("total_resources: no tier has any type; at least one is needed, such as v4 = 1024".to_owned());
    }
    let mut families: BTreeMap<String, &str> = BTreeMap::new();
    let mut pools = Vec::new();
    for name in names {
        let kind = reported.get(name).cloned().or_else(|| kinds::known(name)).ok_or_else(|| kinds::unknown(name))?;
        let family = name_of(name)?;
        if let Some(other) = families.insert(family.clone(), name) {
            return Err(format!("the types {other:?} and {name:?} would both be called {family:?}"));
        }
        let mut totals = BTreeMap::new();
        for (index, (tier, given)) in tiers.iter().zip(&file.tiers).enumerate() {
            let Some(total) = given.get(name) else { continue };
            if total.amount % kind.units != 0 {
                return Err(format!(
                    "line {}: total_resources[{index}].{name} is {}; a multiple of {} is needed, since each {} counts as {}",
                    total.line, total.amount, kind.units, kind.resource, kind.units
                ));
            }
            *totals.entry(*tier).or_insert(0) += total.amount / kind.units;
        }
        pools.push(Pool { name, family, kind, totals });
    }
    Ok(pools)
}

/// Warnings about fractions of a resource type that `total_resources` does not name.
fn without_total(projects: &[Project], pools: &[Pool<'_>]) -> Vec<String> {
    let named = projects.iter().flat_map(|project| project.fractions.keys().map(move |kind| (kind, &project.name)));
    let lost = named.filter(|(kind, _)| !pools.iter().any(|pool| pool.name == kind.as_str()));
    lost.map(|(kind, project)| format!("project_resources.{project}.{kind}: total_resources has no {kind}")).collect()
}

/// Quotas by project, and the amounts of resource types of which no project has a fraction.
fn quotas(projects: &[Project], pools: &[Pool<'_>]) -> (Vec<Quotas>, Quotas) {
    let amount = |amount: i128| made(AmountOr::Amount(amount.to_string()));
    let mut by_project = vec![Quotas::new(); projects.len()];
    let mut rest = Quotas::new();
    for pool in pools {
        let fractions = projects.iter().map(|project| project.fractions.get(pool.name).copied().unwrap_or_default());
        let weights = weights(&fractions.collect::<Vec<_>>());
        let totals: Vec<i128> = pool.totals.values().copied().collect();
        for (tier, parts) in pool.totals.keys().zip(shares(&totals, &weights)) {
            for (quotas, part) in by_project.iter_mut().zip(parts) {
                quotas.entry(pool.family.clone()).or_default().insert(tier.to_string(), amount(part));
            }
        }
        if weights.iter().all(|weight| *weight == 0) {
            let left = pool.totals.iter().map(|(tier, total)| (tier.to_string(), amount(*total)));
            rest.insert(pool.family.clone(), left.collect());
        }
    }
    (by_project, rest)
}

/// The converted quota as a capacity table, the input of `berth flavors`.
fn table(
    flags: &AxlearnQuotaFlags,
    pools: &[Pool<'_>],
    tiers: &[CapacityTier],
    projects: &[Project],
    quotas: Vec<Quotas>,
) -> Result<Table, String> {
    let preset = flags.cloud.tiers(flags.capacity_label.as_deref());
    let preset = preset.map_err(|what| format!("--capacity-label: {what}"))?;
    if let Some(tier) = tiers.iter().find(|tier| !preset.iter().any(|(known, _)| known == *tier)) {
        let known: Vec<&str> = preset.iter().map(|(tier, _)| tier.as_str()).collect();
        let (cloud, known) = (flags.cloud.as_str(), known.join(", "));
        return Err(format!(
            "--tiers: {cloud} has no {tier} nodes that are told by a label of their own; allowed are {known}"
        ));
    }
    let mut families = Vec::new();
    for pool in pools {
        let mut cells = BTreeMap::new();
        for tier in tiers.iter().filter(|tier| !pool.totals.contains_key(tier)) {
            cells.insert(tier.to_string(), made(Cell { offered: Some(false), ..Cell::default() }));
        }
        let reservation = reservation(&flags.reservation, pool.name);
        let of_reservation = |tier: &CapacityTier| {
            preset.iter().any(|(known, nodes)| known == tier && nodes.are_of_a_named_reservation())
        };
        if reservation.is_none() && pool.totals.keys().any(of_reservation) {
            return Err(format!(
                "--reservation is missing: nodes of reservations on {} are told by its name; give --reservation NAME, or \
                 --reservation {}=NAME for one type",
                flags.cloud.as_str(),
                pool.name
            ));
        }
        families.push(Family {
            name: made(pool.family.clone()),
            node_labels: pool.kind.labels.clone(),
            node_taints: Vec::new(),
            tolerations: toleration(&pool.kind.resource).into_iter().collect(),
            topology_name: None,
            resources: vec![pool.kind.resource.clone()],
            reservation,
            // AxLearn's jobs are JobSets, which cannot be given a required node affinity.
            node_affinity: Some(false),
            tiers: cells,
        });
    }
    let row = |tier: &CapacityTier| TierRow {
        name: made(tier.to_string()),
        node_labels: None,
        node_taints: None,
        tolerations: None,
        forbidden_node_labels: None,
    };
    let queue = |(project, quotas): (&Project, Quotas)| Queue {
        name: made(project.name.clone()),
        labels: BTreeMap::new(),
        spec: queue_spec(&flags.cohort, &project.namespace),
        quotas,
    };
    Ok(Table {
        cloud: Some(made(flags.cloud.as_str().to_owned())),
        capacity_label: flags.capacity_label.clone().map(made),
        tiers: tiers.iter().map(row).collect(),
        families,
        cluster_queues: projects.iter().zip(quotas).map(queue).collect(),
        ..Table::default()
    })
}

/// The name of the reservation of a resource type: the option for this type wins over the option for all types.
fn reservation(options: &[String], kind: &str) -> Option<String> {
    let own = options.iter().filter_map(|option| option.split_once('=')).rfind(|(name, _)| *name == kind);
    let all = || options.iter().rfind(|option| !option.contains('=')).cloned();
    own.map(|(_, reservation)| reservation.to_owned()).or_else(all)
}

/// The toleration for the taint of nodes with accelerators: the taint's key is the name of the resource.
fn toleration(resource: &str) -> Option<Toleration> {
    resource.contains('/').then(|| Toleration {
        key: Some(resource.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoSchedule".to_owned()),
        ..Toleration::default()
    })
}

/// The spec of a project's ClusterQueue. As in AxLearn, a project borrows idle quota without limit, and the owner of the quota takes the quota back by
/// preemption.
fn queue_spec(cohort: &str, namespace: &str) -> Map<String, Value> {
    let selector = json!({"matchLabels": { labels::NAMESPACE_NAME: namespace }});
    let preemption = json!({"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"});
    let fields = [("cohortName", json!(cohort)), ("namespaceSelector", selector), ("preemption", preemption)];
    fields.into_iter().map(|(field, value)| (field.to_owned(), value)).collect()
}

fn cohort(name: &str, groups: Vec<Value>) -> Result<Value, String> {
    let spec = if groups.is_empty() { json!({}) } else { json!({"resourceGroups": groups}) };
    let made = json!({"apiVersion": API_VERSION, "kind": "Cohort", "metadata": {"name": name}, "spec": spec});
    let cohort: Cohort = serde_json::from_value(made.clone()).map_err(|error| error.to_string())?;
    match validate_cohort(&cohort) {
        faults if faults.is_empty() => Ok(made),
        faults => Err(format!("cohort {name}: {}", summary(&faults))),
    }
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn local_queue(project: &Project) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "LocalQueue",
        "metadata": {"name": project.local_queue, "namespace": project.namespace},
        "spec": {"clusterQueue": project.name},
    })
}

fn role_binding(project: &Project) -> Value {
    let subject = |user: &String| json!({"apiGroup": RBAC, "kind": "User", "name": user});
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "RoleBinding",
        "metadata": {"name": format!("{}-batch-user", project.name), "namespace": project.namespace},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": ROLE},
        "subjects": project.users.iter().map(subject).collect::<Vec<_>>(),
    })
}
