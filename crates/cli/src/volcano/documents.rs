//! The documents of an import by their meaning, in the order of files and lines.

use super::objects::{BATCH, OutputKey, authored, group, output_key};
use super::pods::SCHEDULER;
use super::report::Report;
use super::uses::{QUEUE_ANNOTATION, local_queue};
use crate::decide::manifests::{Manifest, text};
use berth_api::{berth, labels};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// API group of Volcano's queues and pod groups.
const SCHEDULING: &str = "scheduling.volcano.sh";
/// End of the API groups of Volcano.
const VOLCANO: &str = "volcano.sh";

/// Documents of the import, sorted by their kinds. A document of a kind that the import does not read is named in the report.
#[derive(Debug, Default)]
pub(super) struct Documents<'m> {
    pub(super) queues: Vec<&'m Manifest>,
    pub(super) pod_groups: Vec<&'m Manifest>,
    /// Jobs and CronJobs of Volcano.
    pub(super) jobs: Vec<&'m Manifest>,
    pub(super) pods: Vec<&'m Manifest>,
    pub(super) namespaces: Vec<&'m Manifest>,
    pub(super) flavors: Vec<&'m Manifest>,
    /// PriorityClasses of Kubernetes.
    classes: Vec<&'m Manifest>,
    /// Objects of Kueue and Berth, which an earlier import may have made.
    ours: Vec<&'m Manifest>,
}

impl<'m> Documents<'m> {
    /// Sorts the documents.
    pub(super) fn of(manifests: &'m [Manifest], report: &mut Report) -> Self {
        let mut all: Vec<&Manifest> = manifests.iter().collect();
        all.sort_by(|one, other| one.position("").cmp(&other.position("")));
        let mut documents = Self::default();
        for manifest in all {
            let object = &manifest.object;
            let (group, kind) = (group(object), text(object, "/kind"));
            let (list, version) = match (group.as_str(), kind.as_str()) {
                (SCHEDULING, "Queue") => (&mut documents.queues, "v1beta1"),
                (SCHEDULING, "PodGroup") => (&mut documents.pod_groups, "v1beta1"),
                (BATCH, "Job" | "CronJob") => (&mut documents.jobs, "v1alpha1"),
                ("", "Pod") => (&mut documents.pods, ""),
                ("", "Namespace") => (&mut documents.namespaces, ""),
                ("scheduling.k8s.io", "PriorityClass") => (&mut documents.classes, ""),
                (berth_api::GROUP, "ResourceFlavor") => {
                    documents.flavors.push(manifest);
                    (&mut documents.ours, "")
                }
                (berth_api::GROUP | berth::GROUP, _) => (&mut documents.ours, ""),
                _ => {
                    foreign(manifest, &group, report);
                    continue;
                }
            };
            let read = format!("{group}/{version}");
            if !version.is_empty() && text(object, "/apiVersion") != read {
                report.fault(manifest, "apiVersion", format!("{read} is read"));
            }
            if text(object, "/metadata/name").is_empty() {
                report.fault(manifest, "metadata.name", "a name is needed; generateName is not enough");
            }
            list.push(manifest);
        }
        documents
    }

    /// The PriorityClasses by name.
    pub(super) fn priority_classes(&self, report: &mut Report) -> BTreeMap<String, &'m Manifest> {
        by_name(&self.classes, |class| text(&class.object, "/metadata/name"), report)
    }

    /// Names of the ClusterQueues among the documents.
    pub(super) fn cluster_queues(&self) -> BTreeSet<String> {
        let queues = self.ours.iter().filter(|manifest| text(&manifest.object, "/kind") == "ClusterQueue");
        queues.map(|manifest| text(&manifest.object, "/metadata/name")).collect()
    }

    /// Reports the objects of Kueue and Berth that the output does not have, or has with another content.
    pub(super) fn compare(&self, objects: &BTreeMap<OutputKey, Value>, report: &mut Report) {
        for &manifest in &self.ours {
            match objects.get(&output_key(&manifest.object)) {
                Some(made) if *made == authored(&manifest.object) => {}
                Some(_) => {
                    report.note(manifest, "", "the import makes another content of this object, which replaces it")
                }
                None => report.note(manifest, "", "is left out: the import does not make this object"),
            }
        }
    }
}

/// Reports a document of a kind that the import does not read.
fn foreign(manifest: &Manifest, group: &str, report: &mut Report) {
    let scheduler = manifest.value("spec.template.spec.schedulerName").and_then(Value::as_str);
    let named = ["metadata.annotations", "spec.template.metadata.annotations"]
        .into_iter()
        .find_map(|path| manifest.value(&format!("{path}[{QUEUE_ANNOTATION}]"))?.as_str());
    if scheduler == Some(SCHEDULER) || named.is_some() {
        let local = local_queue(named.unwrap_or("default"));
        let why = format!("is left out: add the label {}: {local} to it", labels::QUEUE_NAME);
        report.note(manifest, "", why);
    } else if group.ends_with(VOLCANO) {
        report.note(manifest, "", "no counterpart: the import does not read this kind of Volcano");
    } else {
        report.note(manifest, "", "is left out: its kind has no part in queues");
    }
}

/// Documents by a key. Two documents that have one key and different contents are reported as a fault.
pub(super) fn by_name<'m, K: Ord>(
    manifests: &[&'m Manifest],
    key: impl Fn(&Manifest) -> K,
    report: &mut Report,
) -> BTreeMap<K, &'m Manifest> {
    let mut found: BTreeMap<K, &'m Manifest> = BTreeMap::new();
    for &manifest in manifests {
        let other = *found.entry(key(manifest)).or_insert(manifest);
        if other.object != manifest.object {
            let why = format!("the name is given with another content at {}, too", other.place_of("metadata.name"));
            report.fault(manifest, "metadata.name", why);
        }
    }
    found
}
