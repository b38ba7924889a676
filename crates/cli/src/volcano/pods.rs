//! Pods that Volcano schedules: they get their queue, their group and their priority class.

use super::groups::{Group, Key, Origin, group_name};
use super::objects::{Made, Owner, placed, put};
use super::report::Report;
use super::uses::{QUEUE_ANNOTATION, Uses, local_queue};
use crate::decide::manifests::{Manifest, text};
use berth_api::{API_VERSION, labels};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Name of Volcano's scheduler.
pub(super) const SCHEDULER: &str = "volcano";
/// Label and annotation with the queue of a Job's pods.
const JOB_QUEUE: &str = "volcano.sh/queue-name";
/// Label with the Job of a pod.
const JOB_NAME: &str = "volcano.sh/job-name";
/// Values of the PriorityClasses that every cluster has.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// The map of a pod's metadata, labels or annotations, that an entry belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Labels,
    Annotations,
}

impl Section {
    fn field(self) -> &'static str {
        match self {
            Self::Labels => "labels",
            Self::Annotations => "annotations",
        }
    }

    /// The word for one entry.
    fn word(self) -> &'static str {
        match self {
            Self::Labels => "label",
            Self::Annotations => "annotation",
        }
    }
}

/// A label or annotation for a pod: whether it is a label or an annotation, its key, and its value.
type Mark = (Section, &'static str, String);

/// A pod that gets a queue.
struct Pod<'m> {
    manifest: &'m Manifest,
    key: Key,
    queue: String,
    /// Namespace and name of the pod's PodGroup, if it has one.
    group: Option<Key>,
}

/// The pods with their labels, and the priority classes that they need.
pub(super) fn pods<'m>(
    manifests: &[&'m Manifest],
    groups: &mut BTreeMap<Key, Group<'m>>,
    uses: &mut Uses<'m>,
    report: &mut Report,
) -> (Vec<Made<'m>>, BTreeMap<String, &'m Manifest>) {
    let all: Vec<Pod<'m>> =
        manifests.iter().copied().filter_map(|manifest| pod(manifest, groups, uses, report)).collect();
    for pod in &all {
        if let Some(key) = &pod.group
            && let Some(group) = groups.get_mut(key)
        {
            group.pods.insert(pod.key.1.clone());
        }
    }
    let groups: &BTreeMap<Key, Group<'m>> = groups;
    let (mut made, mut classes) = (Vec::new(), BTreeMap::new());
    for pod in &all {
        uses.add(&pod.key.0, &pod.queue, pod.manifest);
        let group = pod.group.as_ref().and_then(|key| groups.get(key).map(|group| (key.1.as_str(), group)));
        let mut wanted = match group {
            Some((name, group)) => marks(name, group),
            None => vec![(Section::Labels, labels::QUEUE_NAME, local_queue(&pod.queue).to_owned())],
        };
        let class = group.and_then(|(_, group)| group.class.as_deref());
        let own = text(&pod.manifest.object, "/spec/priorityClassName");
        if class.is_none_or(|class| class == own) {
            wanted.retain(|(_, key, _)| *key != labels::PRIORITY_CLASS);
        } else if let (Some(class), Some((_, group))) = (class, group) {
            classes.entry(class.to_owned()).or_insert(group.manifest);
        }
        made.extend(marked(pod, &wanted, report));
    }
    (made, classes)
}

/// The labels and annotations that the import gives to the pods of a PodGroup.
fn marks(name: &str, group: &Group<'_>) -> Vec<Mark> {
    let mut marks = vec![(Section::Labels, labels::QUEUE_NAME, local_queue(&group.queue).to_owned())];
    if group.is_gang() {
        marks.push((Section::Labels, labels::POD_GROUP_NAME, name.to_owned()));
    }
    if let Some(class) = &group.class {
        marks.push((Section::Labels, labels::PRIORITY_CLASS, class.clone()));
    }
    if group.is_gang() {
        marks.push((Section::Annotations, labels::POD_GROUP_TOTAL_COUNT, group.total().to_string()));
    }
    marks
}

/// Labels and annotations in words.
fn in_words(marks: &[Mark]) -> String {
    let words = marks.iter().map(|(section, key, value)| format!("the {} {key}: {value:?}", section.word()));
    words.collect::<Vec<_>>().join(", ")
}

/// Reports the groups whose pods the import does not change, with the labels that the pods need.
pub(super) fn note_missing(groups: &BTreeMap<Key, Group<'_>>, report: &mut Report) {
    for ((_, name), group) in groups {
        let found = i64::try_from(group.pods.len()).unwrap_or(i64::MAX);
        match &group.origin {
            Origin::Other(owner) => {
                let why = format!(
                    "its pods belong to {owner}: add the label {}: {} there",
                    labels::QUEUE_NAME,
                    local_queue(&group.queue)
                );
                report.note(group.manifest, "", why);
            }
            Origin::User if found == 0 => {
                let why = format!(
                    "no pod of it is among the documents: give each of its pods {}",
                    in_words(&marks(name, group))
                );
                report.note(group.manifest, "", why);
            }
            Origin::User if group.is_gang() && found < group.minimum => {
                let why = format!(
                    "{found} of its pods are among the documents; the others need {}",
                    in_words(&marks(name, group))
                );
                report.note(group.manifest, "spec.minMember", why);
            }
            Origin::User if group.is_gang() && found > group.minimum => {
                let why = format!("a group of pods has no minimum: its {found} pods start together");
                report.note(group.manifest, "spec.minMember", why);
            }
            Origin::User | Origin::Pod | Origin::Job => {}
        }
    }
}

/// The pod with the queue that the import gives it; `None` if the import gives the pod no queue, for which the report has the reason.
fn pod<'m>(
    manifest: &'m Manifest,
    groups: &BTreeMap<Key, Group<'m>>,
    uses: &Uses<'m>,
    report: &mut Report,
) -> Option<Pod<'m>> {
    let object = &manifest.object;
    let namespace = uses.namespace(object);
    let key = (namespace.clone(), text(object, "/metadata/name"));
    let owner = Owner::controller(object);
    let of_job = manifest.value(&format!("metadata.labels[{JOB_NAME}]")).is_some();
    if of_job || owner.as_ref().is_some_and(Owner::is_volcano_job) {
        return None;
    }
    let queue_paths = [
        format!("metadata.annotations[{QUEUE_ANNOTATION}]"),
        format!("metadata.annotations[{JOB_QUEUE}]"),
        format!("metadata.labels[{JOB_QUEUE}]"),
    ];
    let named = queue_paths.iter().find_map(|path| report.text(manifest, path));
    let group = group_name(object).map(|name| (namespace.clone(), name));
    let is_volcanos = text(object, "/spec/schedulerName") == SCHEDULER;
    if !is_volcanos && named.is_none() && group.is_none() {
        report.note(manifest, "spec.schedulerName", "is not scheduled by Volcano: it is left out");
        return None;
    }
    let phase = text(object, "/status/phase");
    if ["Succeeded", "Failed"].contains(&phase.as_str()) {
        report.note(manifest, "status.phase", "the pod has ended: it is left out");
        return None;
    }
    if let Some(owner) = owner {
        let local = uses.queue(&namespace, named);
        let why = format!(
            "the pod belongs to {} {}: add the label {}: {} there",
            owner.kind,
            owner.name,
            labels::QUEUE_NAME,
            local_queue(&local)
        );
        report.note(manifest, "metadata.ownerReferences", why);
        return None;
    }
    let Some(group) = group else {
        return Some(Pod { manifest, queue: uses.queue(&namespace, named), key, group: None });
    };
    let Some(found) = groups.get(&group) else {
        let why = format!("the PodGroup {}/{} is not among the documents: the pod is left out", group.0, group.1);
        report.note(manifest, "metadata.annotations", why);
        return None;
    };
    match found.origin {
        Origin::User => Some(Pod { manifest, queue: found.queue.clone(), key, group: Some(group) }),
        Origin::Pod => Some(Pod { manifest, queue: found.queue.clone(), key, group: None }),
        Origin::Job | Origin::Other(_) => None,
    }
}

/// The pod with its labels and annotations; `None` for a pod that runs, which cannot wait again.
fn marked<'m>(pod: &Pod<'m>, marks: &[Mark], report: &mut Report) -> Option<Made<'m>> {
    let Pod { manifest, key, .. } = pod;
    if !text(&manifest.object, "/spec/nodeName").is_empty() {
        let why = format!("the pod has a node already: create it again without it, and with {}", in_words(marks));
        report.note(manifest, "spec.nodeName", why);
        return None;
    }
    let mut object = placed(&manifest.object, &key.0);
    for (section, key, value) in marks {
        let path = format!("metadata.{}[{key}]", section.field());
        let given = manifest.value(&path).and_then(Value::as_str);
        if *key == labels::QUEUE_NAME && given.is_some_and(|given| given != value) {
            report.note(manifest, &path, format!("the pod keeps this LocalQueue, and does not get {value}"));
        } else if !put(&mut object, &["metadata", section.field()], key, value) {
            report.fault(manifest, &format!("metadata.{}", section.field()), "a map is needed");
        }
    }
    Some(Made { object, source: Some(pod.manifest) })
}

/// WorkloadPriorityClasses with the values of PriorityClasses.
pub(super) fn priority_classes<'m>(
    wanted: BTreeMap<String, &'m Manifest>,
    classes: &BTreeMap<String, &'m Manifest>,
    report: &mut Report,
) -> Vec<Made<'m>> {
    let mut made = Vec::new();
    for (name, by) in wanted {
        let system = SYSTEM_CLASSES.iter().find(|(class, _)| *class == name).map(|(_, value)| *value);
        let value = match classes.get(&name) {
            Some(class) => {
                let value = class.value("value").and_then(Value::as_i64).filter(|value| i32::try_from(*value).is_ok());
                if value.is_none() {
                    report.fault(class, "value", "a whole number of 32 bits is needed");
                }
                value
            }
            None => system,
        };
        let Some(value) = value else {
            if !classes.contains_key(&name) {
                let why = format!(
                    "the PriorityClass is not among the documents: create a WorkloadPriorityClass {name} with its value"
                );
                report.note(by, "spec.priorityClassName", why);
            }
            continue;
        };
        let metadata = json!({"name": name});
        let object = json!({
            "apiVersion": API_VERSION, "kind": "WorkloadPriorityClass", "metadata": metadata, "value": value,
        });
        made.push(Made { object, source: Some(by) });
    }
    made
}
