//! Machine families times tiers: a ResourceFlavor for each family in each tier in which the table offers the family.

use super::clouds::{Cloud, Nodes, RESERVATION};
use super::table::{Cell, Family, Table, Toleration, fault};
use berth_api::validation::{label_value, qualified_name, subdomain, summary, validate_resource_flavor};
use berth_api::{API_VERSION, CapacityTier, ResourceFlavor, labels};
use berth_jobs::parse_forbidden;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Largest number of labels of a ResourceFlavor; the limit for taints and the limit for tolerations are equal to it.
const MOST: usize = 8;

/// A capacity table with the ResourceFlavors made of it.
#[derive(Debug)]
pub(crate) struct Capacity<'t> {
    /// The capacity table from which the flavors are made.
    pub(crate) table: &'t Table,
    /// Tiers of the table, best first, with the nodes of each tier.
    pub(crate) tiers: Vec<(CapacityTier, Nodes)>,
    /// The ResourceFlavors in the order of families, then tiers.
    pub(crate) flavors: Vec<Value>,
    /// Names of the flavors by index of the family and tier; a family that a tier does not offer has no entry.
    names: BTreeMap<(usize, CapacityTier), String>,
}

impl<'t> Capacity<'t> {
    /// Makes the ResourceFlavors of a capacity table.
    ///
    /// # Errors
    /// The error is one sentence with the line and the field, the value and what is allowed.
    pub(crate) fn of(table: &'t Table) -> Result<Self, String> {
        if table.families.is_empty() {
            return Err("families: there is none; at least one is needed".to_owned());
        }
        let mut capacity = Self { table, tiers: tiers(table)?, flavors: Vec::new(), names: BTreeMap::new() };
        let mut taken: BTreeMap<String, String> = BTreeMap::new();
        let mut families = BTreeSet::new();
        for (index, family) in table.families.iter().enumerate() {
            let path = format!("families[{index}] {:?}", family.name.value);
            let place = &family.name.referenced;
            if !families.insert(&family.name.value) {
                return Err(fault(place, &path, "the name is another family's, too"));
            }
            check_family(family, &capacity.tiers).map_err(|what| fault(place, &path, what))?;
            for (tier, nodes) in &capacity.tiers {
                let cell = family.tiers.get(tier.as_str());
                if cell.is_some_and(|cell| cell.value.offered == Some(false)) {
                    continue;
                }
                let place = cell.map_or(place, |cell| &cell.referenced);
                let path = format!("{path}: tier {tier}");
                let made = flavor(family, *tier, nodes, cell.map(|cell| &cell.value));
                let (name, made) = made.map_err(|what| fault(place, &path, what))?;
                if let Some(other) = taken.insert(name.clone(), path.clone()) {
                    return Err(fault(place, &path, format!("its flavor is called {name:?}, as that of {other}")));
                }
                capacity.names.insert((index, *tier), name);
                capacity.flavors.push(made);
            }
        }
        Ok(capacity)
    }

    /// Name of the flavor of a family, given by its index, in a tier; none if the table does not offer the family in this tier.
    pub(crate) fn flavor_name(&self, family: usize, tier: CapacityTier) -> Option<&str> {
        self.names.get(&(family, tier)).map(String::as_str)
    }
}

/// The tiers of a table: fields of the table's rows replace fields of the cloud's preset.
fn tiers(table: &Table) -> Result<Vec<(CapacityTier, Nodes)>, String> {
    let label = table.capacity_label.as_ref();
    let preset = match (&table.cloud, label) {
        (Some(word), _) => {
            let cloud = Cloud::named(&word.value).map_err(|what| fault(&word.referenced, "cloud", what))?;
            let place = label.map_or(&word.referenced, |label| &label.referenced);
            cloud.tiers(label.map(|label| label.value.as_str())).map_err(|what| fault(place, "capacityLabel", what))?
        }
        (None, Some(label)) => {
            return Err(fault(&label.referenced, "capacityLabel", "is of use with cloud aks or bare-metal only"));
        }
        (None, None) => Vec::new(),
    };
    if table.tiers.is_empty() {
        return if preset.is_empty() {
            Err("tiers: there is none; list them, or name a cloud that has them".to_owned())
        } else {
            Ok(preset)
        };
    }
    let mut tiers: Vec<(CapacityTier, Nodes)> = Vec::new();
    for (index, row) in table.tiers.iter().enumerate() {
        let path = format!("tiers[{index}].name");
        let place = &row.name.referenced;
        let tier = row.name.value.parse::<CapacityTier>().map_err(|what| fault(place, &path, what))?;
        if tiers.iter().any(|(other, _)| *other == tier) {
            return Err(fault(place, &path, format!("{tier} comes twice")));
        }
        let known = preset.iter().find(|(other, _)| *other == tier).map(|(_, nodes)| nodes.clone());
        if let (Some(cloud), None, None) = (&table.cloud, &known, &row.node_labels) {
            let what =
                format!("{} has no label of its own for {tier}: say by nodeLabels which nodes they are", cloud.value);
            return Err(fault(place, &path, what));
        }
        let mut nodes = known.unwrap_or_default();
        nodes.labels = row.node_labels.clone().unwrap_or(nodes.labels);
        nodes.taints = row.node_taints.clone().unwrap_or(nodes.taints);
        nodes.tolerations = row.tolerations.clone().unwrap_or(nodes.tolerations);
        nodes.forbidden = row.forbidden_node_labels.clone().unwrap_or(nodes.forbidden);
        tiers.push((tier, nodes));
    }
    Ok(tiers)
}

fn check_family(family: &Family, tiers: &[(CapacityTier, Nodes)]) -> Result<(), String> {
    if family.resources.is_empty() {
        return Err("resources: there is none; name what quota is counted in, such as nvidia.com/gpu".to_owned());
    }
    let mut seen = BTreeSet::new();
    for resource in &family.resources {
        if let Some(wrong) = qualified_name(resource) {
            return Err(format!("resources: {resource:?}: {wrong}"));
        }
        if !seen.insert(resource) {
            return Err(format!("resources: {resource:?} comes twice"));
        }
    }
    let known: Vec<&str> = tiers.iter().map(|(tier, _)| tier.as_str()).collect();
    match family.tiers.keys().find(|tier| !known.contains(&tier.as_str())) {
        Some(tier) => Err(format!("tiers: {tier:?} is no tier of this table; allowed are {}", known.join(", "))),
        None => Ok(()),
    }
}

/// The ResourceFlavor of a family in a tier, and the flavor's name.
fn flavor(family: &Family, tier: CapacityTier, nodes: &Nodes, cell: Option<&Cell>) -> Result<(String, Value), String> {
    let plain = Cell::default();
    let cell = cell.unwrap_or(&plain);
    let nodes = of_reservation(nodes, tier, cell.reservation.as_deref().or(family.reservation.as_deref()))?;
    let mut node_labels = family.node_labels.clone();
    for (key, value) in nodes.labels {
        match node_labels.get(&key) {
            Some(own) if *own != value && !cell.node_labels.contains_key(&key) => {
                return Err(format!(
                    "nodeLabels: {key} is {own:?} for the family and {value:?} for the tier; say in tiers.{tier}.nodeLabels \
                     which it is"
                ));
            }
            _ => node_labels.insert(key, value),
        };
    }
    node_labels.extend(cell.node_labels.clone());
    let node_taints = joined([&family.node_taints, &nodes.taints, &cell.node_taints]);
    let tolerations = joined([&family.tolerations, &nodes.tolerations, &cell.tolerations]);
    if let Some(wrong) = tolerations.iter().find_map(toleration_fault) {
        return Err(format!("tolerations: {wrong}"));
    }
    let forbidden = match family.node_affinity {
        Some(false) => Vec::new(),
        _ => cell.forbidden_node_labels.clone().unwrap_or(nodes.forbidden),
    };
    check_forbidden(&forbidden, &node_labels)?;
    let name = cell.name.clone().unwrap_or_else(|| format!("{}-{tier}", family.name.value));
    let mut metadata = Map::new();
    if !forbidden.is_empty() {
        metadata.insert("annotations".to_owned(), json!({ labels::FORBIDDEN_NODE_LABELS: forbidden.join(",") }));
    }
    metadata.insert("labels".to_owned(), json!({ labels::CAPACITY_TIER: tier.as_str() }));
    metadata.insert("name".to_owned(), json!(name));
    let mut spec = Map::new();
    let topology = family.topology_name.as_ref().map(|name| json!(name)).unwrap_or_default();
    for (field, value, count) in [
        ("nodeLabels", json!(node_labels), node_labels.len()),
        ("nodeTaints", json!(node_taints), node_taints.len()),
        ("tolerations", json!(tolerations), tolerations.len()),
        ("topologyName", topology, usize::from(family.topology_name.is_some())),
    ] {
        if count > MOST {
            return Err(format!("{field}: {count} with those of family, tier and cell; at most {MOST} are allowed"));
        }
        if count > 0 {
            spec.insert(field.to_owned(), value);
        }
    }
    let made = json!({"apiVersion": API_VERSION, "kind": "ResourceFlavor", "metadata": metadata, "spec": spec});
    check(&made)?;
    Ok((name, made))
}

/// Node labels and taints of a tier with the name of the reservation filled in.
fn of_reservation(nodes: &Nodes, tier: CapacityTier, reservation: Option<&str>) -> Result<Nodes, String> {
    let fill = |text: &String| match reservation {
        _ if !text.contains(RESERVATION) => Ok(text.clone()),
        Some(name) => Ok(text.replace(RESERVATION, name)),
        None => Err(format!(
            "reservation is missing, and the nodes of the tier are told by it: set it to its name, or \
             tiers.{tier}.offered to false"
        )),
    };
    let labels = nodes.labels.iter().map(|(key, value)| Ok::<_, String>((key.clone(), fill(value)?)));
    let taints = nodes.taints.iter().cloned().map(|mut taint| {
        taint.value = taint.value.as_ref().map(fill).transpose()?;
        Ok::<_, String>(taint)
    });
    let tolerations = nodes.tolerations.iter().cloned().map(|mut toleration| {
        toleration.value = toleration.value.as_ref().map(fill).transpose()?;
        Ok::<_, String>(toleration)
    });
    Ok(Nodes {
        labels: labels.collect::<Result<_, String>>()?,
        taints: taints.collect::<Result<_, String>>()?,
        tolerations: tolerations.collect::<Result<_, String>>()?,
        forbidden: nodes.forbidden.iter().map(fill).collect::<Result<_, String>>()?,
    })
}

/// The elements of three lists in order, without duplicates.
fn joined<T: Clone + PartialEq>(lists: [&Vec<T>; 3]) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    for item in lists.into_iter().flatten() {
        if !all.contains(item) {
            all.push(item.clone());
        }
    }
    all
}

/// The first error that the schema of a ResourceFlavor would report for a toleration.
fn toleration_fault(toleration: &Toleration) -> Option<String> {
    let is_set = |field: &Option<String>| field.as_ref().is_some_and(|text| !text.is_empty());
    let exists = toleration.operator.as_deref() == Some("Exists");
    if !is_set(&toleration.key) && !exists {
        return Some("operator must be Exists where key is absent, which tolerates every taint".to_owned());
    }
    if exists && is_set(&toleration.value) {
        let value = toleration.value.as_deref().unwrap_or_default();
        return Some(format!("value is {value:?}; it must be absent where operator is Exists"));
    }
    if toleration.toleration_seconds.is_some() && toleration.effect.as_deref() != Some("NoExecute") {
        return Some("effect must be NoExecute where tolerationSeconds is set".to_owned());
    }
    None
}

/// Checks that each forbidden label is well formed, and that `nodeLabels` selects none of them.
fn check_forbidden(forbidden: &[String], selected: &BTreeMap<String, String>) -> Result<(), String> {
    for entry in forbidden {
        let (key, value) = entry.split_once('=').map_or((entry.as_str(), None), |(key, value)| (key, Some(value)));
        let wrong = qualified_name(key).or_else(|| label_value(value.unwrap_or_default()));
        if let Some(wrong) = wrong {
            return Err(format!("forbiddenNodeLabels: {entry:?}: {wrong}; allowed are key and key=value"));
        }
        if selected.get(key).is_some_and(|own| value.is_none_or(|value| value == own)) {
            return Err(format!("forbiddenNodeLabels: {entry:?} is selected by nodeLabels, so that no node is left"));
        }
    }
    parse_forbidden(&forbidden.join(",")).map(drop).map_err(|what| format!("forbiddenNodeLabels: {what}"))
}

/// Checks that the API server would accept a ResourceFlavor.
fn check(flavor: &Value) -> Result<(), String> {
    let flavor: ResourceFlavor = serde_json::from_value(flavor.clone()).map_err(|error| error.to_string())?;
    let topology = flavor.spec.topology_name.as_deref();
    for (what, name) in [("the flavor", Some(flavor.name())), ("topologyName", topology)] {
        if let Some((name, wrong)) = name.and_then(|name| Some((name, subdomain(name)?))) {
            return Err(format!("{what} is called {name:?}: the name {wrong}"));
        }
    }
    if topology.is_some() && flavor.spec.node_labels.is_empty() {
        return Err("topologyName: at least one of nodeLabels is needed with it".to_owned());
    }
    match validate_resource_flavor(&flavor) {
        faults if faults.is_empty() => Ok(()),
        faults => Err(summary(&faults)),
    }
}
