//! Invalid objects of the manifests: errors of Cohorts and ResourceFlavors that the API server or the webhook would report and that no condition shows, names
//! of absent objects, cycles of Cohorts, and duplicate objects.

use super::manifests::{Manifest, named, text};
use berth_api::labels::FORBIDDEN_NODE_LABELS;
use berth_api::validation::{FieldError, subdomain, validate_cohort, validate_resource_flavor};
use berth_api::{ClusterQueue, Cohort, ResourceFlavor, ResourceGroup};
use berth_control::offline::Offline;
use berth_control::write::{Kind, ObjectKey};
use berth_jobs::parse_forbidden;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Largest number of names that a message lists.
const LISTED: usize = 20;
/// Largest number of labels, of taints and of tolerations of a ResourceFlavor, from its schema.
const OF_FLAVOR: usize = 8;
/// Largest number of resource groups of a ClusterQueue or Cohort, from the schema.
const GROUPS: usize = 16;
/// Largest number of resources, and of flavors, of a resource group, from the schema.
const OF_GROUP: usize = 64;

/// Objects of the manifests that the checked object can refer to.
struct Others<'a> {
    objects: &'a BTreeMap<ObjectKey, Value>,
    flavors: BTreeSet<&'a str>,
    /// Name of the parent of each Cohort.
    parents: BTreeMap<&'a str, &'a str>,
}

/// Errors of invalid objects, one line each, with the object, the field, the value and the allowed values. The lines about invalid objects are in the order of
/// the manifests.
pub(super) fn lines(offline: &Offline, manifests: &[Manifest]) -> Vec<String> {
    let others = Others::of(offline);
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for manifest in manifests {
        *times.entry(named(&manifest.object)).or_default() += 1;
    }
    let mut left = times.clone();
    let mut lines = Vec::new();
    for manifest in manifests {
        let object = named(&manifest.object);
        let left = left.entry(object.clone()).or_default();
        *left = left.saturating_sub(1);
        if *left > 0 {
            // An object that a later manifest describes again is not checked here, because the later manifest replaces the object.
            continue;
        }
        let faults = others.faults(&manifest.object, times.get(&object).copied().unwrap_or_default());
        lines.extend(faults.iter().map(|fault| manifest.fault(&fault.to_string())));
    }
    lines
}

/// The assumption about parents of Cohorts that no manifest describes: Kueue and Berth treat a parent Cohort that does not exist as a Cohort without quota of
/// its own.
pub(super) fn assumed_cohorts(offline: &Offline) -> Vec<String> {
    let others = Others::of(offline);
    let absent: BTreeSet<&str> =
        others.parents.values().copied().filter(|parent| !others.has(Kind::Cohort, parent)).collect();
    let assumed =
        |name| format!("Cohort {name}: it is not in the manifests, so it has no quota and no parent of its own");
    absent.into_iter().map(assumed).collect()
}

impl<'a> Others<'a> {
    fn of(offline: &'a Offline) -> Self {
        let objects = offline.objects();
        let of_kind = |kind: Kind| objects.iter().filter(move |(key, _)| key.kind == kind);
        let parent = |(key, object): (&'a ObjectKey, &'a Value)| {
            let parent = object.pointer("/spec/parentName").and_then(Value::as_str).filter(|name| !name.is_empty())?;
            Some((key.name.as_str(), parent))
        };
        Self {
            objects,
            flavors: of_kind(Kind::ResourceFlavor).map(|(key, _)| key.name.as_str()).collect(),
            parents: of_kind(Kind::Cohort).filter_map(parent).collect(),
        }
    }

    fn key(kind: Kind, name: &str) -> ObjectKey {
        ObjectKey { kind, namespace: String::new(), name: name.to_owned() }
    }

    fn has(&self, kind: Kind, name: &str) -> bool {
        self.objects.contains_key(&Self::key(kind, name))
    }

    /// A cluster-scoped object, in the stored version.
    fn get<T: DeserializeOwned>(&self, kind: Kind, name: &str) -> Option<T> {
        serde_json::from_value(self.objects.get(&Self::key(kind, name))?.clone()).ok()
    }

    fn faults(&self, object: &Value, times: usize) -> Vec<FieldError> {
        let name = text(object, "/metadata/name");
        let mut faults: Vec<FieldError> = illegal_name("metadata.name", &name).into_iter().collect();
        if times > 1 {
            let message = format!("is given {times} times, of which the last one counts; a name belongs to one object");
            faults.push(FieldError::new("metadata.name", &name, message));
        }
        match text(object, "/kind").as_str() {
            "ResourceFlavor" => {
                faults.extend(self.get::<ResourceFlavor>(Kind::ResourceFlavor, &name).iter().flat_map(flavor));
            }
            "Cohort" => {
                if let Some(cohort) = self.get::<Cohort>(Kind::Cohort, &name) {
                    faults.extend(validate_cohort(&cohort));
                    let parent = cohort.spec.parent_name.as_deref().unwrap_or_default();
                    faults.extend(above("spec.parentName", parent));
                    faults.extend(self.cycle(&name).map(|cycle| {
                        let message = format!(
                            "leads back to it ({cycle}), and none of them gives quota; it must be a Cohort that is not below \
                             this one, or none"
                        );
                        FieldError::new("spec.parentName", parent, message)
                    }));
                    self.groups(&cohort.spec.resource_groups, &mut faults);
                }
            }
            // The checks cover only a ClusterQueue's Cohort and resource groups, because its condition `Active` reports its other errors.
            "ClusterQueue" => {
                if let Some(queue) = self.get::<ClusterQueue>(Kind::ClusterQueue, &name) {
                    faults.extend(above("spec.cohortName", queue.spec.cohort_name.as_deref().unwrap_or_default()));
                    self.groups(&queue.spec.resource_groups, &mut faults);
                }
            }
            _ => {}
        }
        faults
    }

    /// The cycle of parents that contains this Cohort, if there is one.
    fn cycle(&self, name: &str) -> Option<String> {
        let mut way = vec![name];
        let mut at = name;
        // A Cohort that leads into a cycle without being in the cycle is never reached again, so the number of steps is bounded.
        for _ in 0..self.parents.len() {
            at = self.parents.get(at)?;
            way.push(at);
            if at == name {
                return Some(listed(&way, " -> "));
            }
        }
        None
    }

    /// Schema errors about resource groups, and errors about flavors that do not exist.
    fn groups(&self, groups: &[ResourceGroup], faults: &mut Vec<FieldError>) {
        let path = "spec.resourceGroups";
        faults.extend(count(path, groups.len(), 0, GROUPS));
        for (at, group) in groups.iter().enumerate() {
            let path = format!("{path}[{at}]");
            faults.extend(count(&format!("{path}.coveredResources"), group.covered_resources.len(), 1, OF_GROUP));
            faults.extend(count(&format!("{path}.flavors"), group.flavors.len(), 1, OF_GROUP));
            for (at, flavor) in group.flavors.iter().enumerate() {
                let path = format!("{path}.flavors[{at}]");
                faults.extend(count(&format!("{path}.resources"), flavor.resources.len(), 1, OF_GROUP));
                if !self.flavors.contains(flavor.name.as_str()) {
                    let there: Vec<&str> = self.flavors.iter().copied().collect();
                    let there = if there.is_empty() { "there is none".to_owned() } else { listed(&there, ", ") };
                    let message = format!("is no ResourceFlavor; those that exist: {there}");
                    faults.push(FieldError::new(format!("{path}.name"), &flavor.name, message));
                }
            }
        }
    }
}

/// Errors of a ResourceFlavor that need no other object.
fn flavor(flavor: &ResourceFlavor) -> Vec<FieldError> {
    let spec = &flavor.spec;
    let mut faults = validate_resource_flavor(flavor);
    faults.extend(count("spec.nodeLabels", spec.node_labels.len(), 0, OF_FLAVOR));
    faults.extend(count("spec.nodeTaints", spec.node_taints.len(), 0, OF_FLAVOR));
    faults.extend(count("spec.tolerations", spec.tolerations.len(), 0, OF_FLAVOR));
    if let Some(topology) = spec.topology_name.as_deref().filter(|_| spec.node_labels.is_empty()) {
        let message = "at least one of spec.nodeLabels is required when it is set";
        faults.push(FieldError::new("spec.topologyName", topology, message));
    }
    let annotations = flavor.metadata.annotations.as_ref();
    if let Some(text) = annotations.and_then(|annotations| annotations.get(FORBIDDEN_NODE_LABELS))
        && let Err(wrong) = parse_forbidden(text)
    {
        faults.push(FieldError::new(format!("metadata.annotations[{FORBIDDEN_NODE_LABELS}]"), text, wrong.to_string()));
    }
    faults
}

/// Error about the name of a parent Cohort; an empty name is allowed.
fn above(path: &str, name: &str) -> Option<FieldError> {
    if name.is_empty() { None } else { illegal_name(path, name) }
}

fn illegal_name(path: &str, name: &str) -> Option<FieldError> {
    subdomain(name).map(|wrong| FieldError::new(path, name, wrong))
}

fn count(path: &str, found: usize, least: usize, most: usize) -> Option<FieldError> {
    let message = format!("is the number of entries; {least} to {most} are allowed");
    (!(least..=most).contains(&found)).then(|| FieldError::new(path, found.to_string(), message))
}

/// The first names of a list, and the number of the other names.
fn listed(names: &[&str], between: &str) -> String {
    let first: Vec<&str> = names.iter().copied().take(LISTED).collect();
    match names.len().saturating_sub(LISTED) {
        0 => first.join(between),
        more => format!("{} and {more} more", first.join(between)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{QUEUES, decided_text, given, lines};
    use crate::decide::{answer, latest};
    use crate::flags::Output;
    use berth_jobs::training::Accelerators;

    const COHORT: &str = "apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort";
    const FLAVOR: &str = "apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor";

    fn invalid(objects: &str) -> Vec<String> {
        lines(&decided_text(&given(objects)).unwrap(), "invalid")
    }

    #[test]
    fn valid_queues_and_cohorts_are_not_reported_as_invalid() {
        let cohorts = format!(
            "---\n{{{COHORT}, metadata: {{name: all}}}}\n---\n{{{COHORT}, metadata: {{name: a}}, spec: {{parentName: all}}}}\n"
        );
        assert_eq!(invalid(&format!("{QUEUES}{cohorts}")), [""; 0]);
    }

    #[test]
    fn invalid_cohort_is_reported_with_field_value_and_allowed() {
        let group = |flavor: &str, quota: &str| {
            format!(
                "resourceGroups: [{{coveredResources: [cpu], flavors: [{{name: {flavor}, resources: [{{name: cpu, {quota}}}]}}]}}]"
            )
        };
        for (spec, expected) in [
            (
                "parentName: a".to_owned(),
                "Cohort a: spec.parentName: Invalid value: \"a\": leads back to it (a -> a), and none of them gives quota; it must \
                 be a Cohort that is not below this one, or none",
            ),
            (
                "parentName: A_b".to_owned(),
                "Cohort a: spec.parentName: Invalid value: \"A_b\": must consist of lower case alphanumeric characters, '-' or '.', \
                 and must start and end with an alphanumeric character",
            ),
            (
                "fairSharing: {weight: \"-1\"}".to_owned(),
                "Cohort a: spec.fairSharing.weight: Invalid value: \"-1\": must be greater than or equal to 0",
            ),
            (
                group("standard", "nominalQuota: 1, borrowingLimit: 1"),
                "Cohort a: spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit: Invalid value: \"1\": must be nil when \
                 parent is empty",
            ),
            (
                group("gone", "nominalQuota: 1"),
                "Cohort a: spec.resourceGroups[0].flavors[0].name: Invalid value: \"gone\": is no ResourceFlavor; those that \
                 exist: standard",
            ),
            (
                "resourceGroups: [{coveredResources: [], flavors: [{name: standard, resources: []}]}]".to_owned(),
                "Cohort a: spec.resourceGroups[0].coveredResources: Invalid value: \"0\": is the number of entries; 1 to 64 are \
                 allowed",
            ),
        ] {
            let found = invalid(&format!("{QUEUES}{{{COHORT}, metadata: {{name: a}}, spec: {{{spec}}}}}\n"));
            assert_eq!(found.first().map(String::as_str), Some(expected), "{found:?}");
        }
    }

    #[test]
    fn cohort_cycle_is_reported_and_makes_queues_below_it_inactive() {
        let cohort = |name: &str, parent: &str| {
            format!("---\n{{{COHORT}, metadata: {{name: {name}}}, spec: {{parentName: {parent}}}}}\n")
        };
        let queues = QUEUES.replace("  namespaceSelector: {}", "  cohortName: below\n  namespaceSelector: {}");
        let objects = format!("{queues}{}{}{}", cohort("a", "b"), cohort("b", "a"), cohort("below", "a"));
        let found = invalid(&objects);
        assert_eq!(found.len(), 2, "{found:?}");
        let begin = |name: &str, parent: &str| {
            format!(
                "Cohort {name}: spec.parentName: Invalid value: \"{parent}\": leads back to it ({name} -> {parent} -> {name})"
            )
        };
        assert!(found[0].starts_with(&begin("a", "b")) && found[1].starts_with(&begin("b", "a")), "{found:?}");
        let inactive = lines(&decided_text(&given(&objects)).unwrap(), "inactive");
        assert!(inactive[0].starts_with("ClusterQueue all: ") && inactive[0].contains("cycle"), "{inactive:?}");
    }

    #[test]
    fn cohort_parent_missing_in_the_manifests_is_assumed() {
        let cohort = format!("{{{COHORT}, metadata: {{name: a}}, spec: {{parentName: far}}}}\n");
        let output = decided_text(&given(&format!("{QUEUES}{cohort}"))).unwrap();
        assert_eq!(lines(&output, "invalid"), [""; 0]);
        let assumed = "Cohort far: it is not in the manifests, so it has no quota and no parent of its own";
        assert_eq!(lines(&output, "assumed"), [assumed]);
    }

    #[test]
    fn invalid_resource_flavor_is_reported_with_field_value_and_allowed() {
        for (object, expected) in [
            (
                "metadata: {name: F}",
                "ResourceFlavor F: metadata.name: Invalid value: \"F\": must consist of lower case alphanumeric characters, '-' or \
                 '.', and must start and end with an alphanumeric character",
            ),
            (
                "metadata: {name: f}, spec: {nodeTaints: [{key: a, effect: Never}]}",
                "ResourceFlavor f: spec.nodeTaints[0].effect: Invalid value: \"Never\": supported values: \"NoSchedule\", \
                 \"PreferNoSchedule\", \"NoExecute\"",
            ),
            (
                "metadata: {name: f}, spec: {nodeTaints: [{key: a, effect: NoExecute}, {key: a, effect: NoExecute}]}",
                "ResourceFlavor f: spec.nodeTaints[1]: Invalid value: \"a:NoExecute\": taints must be unique by key and effect pair",
            ),
            (
                "metadata: {name: f}, spec: {topologyName: racks}",
                "ResourceFlavor f: spec.topologyName: Invalid value: \"racks\": at least one of spec.nodeLabels is required when it \
                 is set",
            ),
            (
                "metadata: {name: f}, spec: {nodeLabels: {l1: a, l2: a, l3: a, l4: a, l5: a, l6: a, l7: a, l8: a, l9: a}}",
                "ResourceFlavor f: spec.nodeLabels: Invalid value: \"9\": is the number of entries; 0 to 8 are allowed",
            ),
        ] {
            assert_eq!(invalid(&format!("{QUEUES}{{{FLAVOR}, {object}}}\n")), [expected]);
        }
        for (key, of) in [("berth.dev/capacity-tier", "labels"), ("berth.dev/forbidden-node-labels", "annotations")] {
            let found = invalid(&format!("{QUEUES}{{{FLAVOR}, metadata: {{name: f, {of}: {{{key}: a b}}}}}}\n"));
            let begin = format!("ResourceFlavor f: metadata.{of}[{key}]: Invalid value: \"a b\": ");
            assert!(found.len() == 1 && found[0].starts_with(&begin), "{found:?}");
        }
    }

    #[test]
    fn object_given_twice_is_reported_and_the_last_one_counts() {
        let flavor = |spec: &str| format!("---\n{{{FLAVOR}, metadata: {{name: f}}, spec: {{{spec}}}}}\n");
        let broken = flavor("nodeTaints: [{key: a, effect: Never}]");
        let found = invalid(&format!("{QUEUES}{broken}{}", flavor("")));
        let twice = "ResourceFlavor f: metadata.name: Invalid value: \"f\": is given 2 times, of which the last one counts; a name \
                     belongs to one object";
        assert_eq!(found, [twice]);
        assert_eq!(invalid(&format!("{QUEUES}{}{broken}", flavor(""))).len(), 2, "the last one is broken");
    }

    #[test]
    fn invalid_object_is_reported_in_text_and_yaml_output() {
        let objects = given(&QUEUES.replace("{name: standard}}", "{name: other}}"));
        let line = "ClusterQueue all: spec.resourceGroups[0].flavors[0].name: Invalid value: \"standard\": is no ResourceFlavor; \
                    those that exist: other";
        assert_eq!(lines(&decided_text(&objects).unwrap(), "invalid"), [line]);
        let output = answer(&objects, "", Accelerators::default(), latest(&objects), Output::Yaml).unwrap();
        let output: serde_json::Value = serde_saphyr::from_str(&output).unwrap();
        assert_eq!(output["invalid"], serde_json::json!([format!("given.yaml:11: {line}")]));
    }
}
