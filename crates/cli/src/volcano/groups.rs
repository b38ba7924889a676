//! PodGroups of Volcano, by the origin of their pods.

use super::objects::Owner;
use super::queues::{annotations_without_counterpart, fields};
use super::report::Report;
use super::uses::Uses;
use crate::decide::manifests::{Manifest, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// Beginning of the names of PodGroups that Volcano makes for single pods and for pods of a controller.
const MADE: &str = "podgroup";
/// Fields of a PodGroup's spec that the import reads.
const FIELDS: [&str; 3] = ["minMember", "queue", "priorityClassName"];
/// Number of characters of a uid.
const UID_LENGTH: usize = 36;

/// Namespace and name of a PodGroup, pod or Job.
pub(super) type Key = (String, String);

/// The origin of a PodGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A user wrote the PodGroup, to which pods belong by their annotation.
    User,
    /// Volcano made the PodGroup for a single pod.
    Pod,
    /// Volcano made the PodGroup for one of Volcano's Jobs, and the import reads the Job instead of the PodGroup.
    Job,
    /// The PodGroup belongs to an object of another kind, which the text names as `kind name`.
    Other(String),
}

/// A PodGroup of Volcano.
#[derive(Debug)]
pub(super) struct Group<'m> {
    /// The PodGroup's manifest, for file and line in messages.
    pub(super) manifest: &'m Manifest,
    /// Name of the PodGroup's queue.
    pub(super) queue: String,
    /// The PodGroup's `minMember`: smallest number of pods that start together.
    pub(super) minimum: i64,
    /// Name of the PodGroup's PriorityClass.
    pub(super) class: Option<String>,
    /// The origin of the group.
    pub(super) origin: Origin,
    /// Names of the PodGroup's pods among the documents, without pods that have ended.
    pub(super) pods: BTreeSet<String>,
}

impl<'m> Group<'m> {
    /// Reads a PodGroup. Fields of a PodGroup without a counterpart in Kueue are reported if a user wrote the PodGroup.
    pub(super) fn read(
        manifest: &'m Manifest,
        (namespace, name): &Key,
        jobs: &BTreeSet<Key>,
        uses: &mut Uses<'m>,
        report: &mut Report,
    ) -> Self {
        let origin = origin(manifest, namespace, name, jobs);
        let named = report.text(manifest, "spec.queue");
        let queue = uses.queue(namespace, named);
        uses.add(namespace, &queue, manifest);
        if origin == Origin::User {
            for field in fields(manifest, "spec").filter(|field| !FIELDS.contains(field)) {
                report.note(manifest, &format!("spec.{field}"), reason(field));
            }
            annotations_without_counterpart(manifest, report);
        }
        let class = report.text(manifest, "spec.priorityClassName");
        Self { manifest, queue, minimum: minimum(manifest, report), class, origin, pods: BTreeSet::new() }
    }

    /// Whether the pods of the group start together. A PodGroup whose `minMember` is at most 1 is no gang, because each of its pods may start as soon as it has
    /// quota.
    pub(super) fn is_gang(&self) -> bool {
        self.minimum > 1
    }

    /// Number of pods of the group: a group of Kueue has no minimum, and all its pods start together.
    pub(super) fn total(&self) -> i64 {
        self.minimum.max(i64::try_from(self.pods.len()).unwrap_or(i64::MAX))
    }
}

fn minimum(manifest: &Manifest, report: &mut Report) -> i64 {
    let Some(value) = manifest.value("spec.minMember").filter(|value| !value.is_null()) else { return 0 };
    let read = value.as_i64().filter(|number| (0..=i64::from(i32::MAX)).contains(number));
    if read.is_none() {
        report.fault(manifest, "spec.minMember", "a whole number from 0 to 2147483647 is needed");
    }
    read.unwrap_or_default()
}

fn origin(manifest: &Manifest, namespace: &str, name: &str, jobs: &BTreeSet<Key>) -> Origin {
    let is_jobs = |name: &str| jobs.contains(&(namespace.to_owned(), name.to_owned()));
    match Owner::first(&manifest.object) {
        Some(owner) if owner.is_volcano_job() => Origin::Job,
        Some(owner) if owner.group.is_empty() && owner.kind == "Pod" => Origin::Pod,
        Some(owner) => Origin::Other(format!("{} {}", owner.kind, owner.name)),
        None if is_jobs(name) || without_uid(name).is_some_and(is_jobs) => Origin::Job,
        None if without_uid(name).is_some_and(|rest| rest == MADE) => Origin::Pod,
        None => Origin::User,
    }
}

/// The name of a PodGroup without the uid at its end, with which Volcano ends names that it makes.
fn without_uid(name: &str) -> Option<&str> {
    let (rest, uid) = name.split_at_checked(name.len().checked_sub(UID_LENGTH)?)?;
    let is_uid = uid.split('-').map(str::len).eq([8_usize, 4, 4, 4, 12]);
    let letters = uid.bytes().all(|letter| letter.is_ascii_hexdigit() || letter == b'-');
    rest.strip_suffix('-').filter(|_| is_uid && letters)
}

fn reason(field: &str) -> &'static str {
    match field {
        "minResources" => "no counterpart: Berth counts the requests of the pods",
        "minTaskMember" => "no counterpart: all pods of a group start together",
        "networkTopology" => "no counterpart: Berth does not assign topology domains yet",
        "subGroupPolicy" => "no counterpart: a group has no subgroups",
        _ => "no counterpart",
    }
}

/// Namespaces and names of the Jobs among the documents.
pub(super) fn keys(jobs: &[&Manifest], uses: &Uses<'_>) -> BTreeSet<Key> {
    let jobs = jobs.iter().map(|job| &job.object).filter(|job| text(job, "/kind") == "Job");
    jobs.map(|job| (uses.namespace(job), text(job, "/metadata/name"))).collect()
}

/// The value of a pod's annotation that names its PodGroup.
pub(super) fn group_name(pod: &Value) -> Option<String> {
    let annotations = pod.pointer("/metadata/annotations")?;
    let name = |key: &str| annotations.get(key)?.as_str().filter(|name| !name.is_empty()).map(str::to_owned);
    ["scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"].into_iter().find_map(name)
}
