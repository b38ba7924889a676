//! Jobs, pods and pod groups without a decision, with the reason.

use super::manifests::{Manifest, named, shown, text};
use super::pods::Pods;
use super::{Decision, job_kind};
use berth_api::labels;
use berth_control::offline::Offline;
use berth_control::write::{EventType, Kind, Notice, ObjectKey};
use berth_jobs::pods::group_name;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The pods of a pod group.
#[derive(Debug, Default)]
struct Group<'a> {
    members: Vec<&'a ObjectKey>,
    /// Number of pods of the group that have not failed.
    there: usize,
    /// Intended size of the pod group, as the first of its pods declares.
    total: Option<usize>,
}

/// Facts that explain why a job or pod has no Workload.
struct Without<'a> {
    pods: &'a Pods,
    /// The last warning event about each object.
    warnings: BTreeMap<&'a ObjectKey, &'a Notice>,
    groups: BTreeMap<(String, String), Group<'a>>,
}

/// A line for each job without a decision. A job that another job of the manifests owns gets no line in the output, and the pods of a pod group share one line.
pub(super) fn lines(offline: &Offline, objects: &[Manifest], pods: &Pods, decisions: &[Decision]) -> Vec<String> {
    let jobs = decisions.iter().filter_map(|decision| decision.job_kind.zip(decision.job.as_deref()));
    let decided: BTreeSet<(&str, &str)> = jobs.collect();
    // The Workload of a pod group has the name of the pod group. A Workload of another job kind that has the pod group's name is not the Workload of the pod
    // group.
    let of_groups = [Kind::PodGroup.name(), Kind::StatefulSet.name()];
    let groups = decisions.iter().filter(|decision| decision.job_kind.is_some_and(|kind| of_groups.contains(&kind)));
    let groups: BTreeSet<&str> = groups.map(|decision| decision.workload.as_str()).collect();
    let given: BTreeSet<String> = objects.iter().map(|manifest| named(&manifest.object)).collect();
    let without = Without::of(offline, pods);
    let mut output = BTreeSet::new();
    let mut lines = Vec::new();
    for Manifest { object, .. } in objects {
        let Some(kind) = job_kind(&text(object, "/kind")) else { continue };
        let key =
            ObjectKey { kind, namespace: text(object, "/metadata/namespace"), name: text(object, "/metadata/name") };
        let place = format!("{}/{}", key.namespace, key.name);
        let is_decided = decided.contains(&(kind.name(), place.as_str())) || pods.parent(&key).is_some();
        if is_decided || pods.is_refused(&key) || is_part(object, &given) {
            continue;
        }
        let Some(group) = group_of(&key, object).filter(|_| pods.why_left(&key).is_none()) else {
            lines.push(format!("{}: {}", named(object), without.why(&key, object)));
            continue;
        };
        let is_new = output.insert((key.namespace.clone(), group.clone()));
        if is_new && !groups.contains(format!("{}/{group}", key.namespace).as_str()) {
            let why = without.why_no_group(&key.namespace, &group);
            lines.push(format!("{}: {why}", shown(Kind::PodGroup.name(), &key.namespace, &group)));
        }
    }
    lines
}

/// The name of the pod group that a pod names, or that the pod template of a Deployment or StatefulSet names.
fn group_of(key: &ObjectKey, object: &Value) -> Option<String> {
    let path = match key.kind {
        Kind::Pod => "/metadata",
        Kind::Deployment | Kind::StatefulSet => "/spec/template/metadata",
        _ => return None,
    };
    let metadata = serde_json::from_value(object.pointer(path)?.clone()).ok()?;
    group_name(&metadata).map(str::to_owned)
}

/// Whether another job of the manifests owns this object.
fn is_part(object: &Value, given: &BTreeSet<String>) -> bool {
    let namespace = text(object, "/metadata/namespace");
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let mut wholes = owners.into_iter().flatten().filter(|owner| job_kind(&text(owner, "/kind")).is_some());
    wholes.any(|owner| given.contains(&shown(&text(owner, "/kind"), &namespace, &text(owner, "/name"))))
}

impl<'a> Without<'a> {
    fn of(offline: &'a Offline, pods: &'a Pods) -> Self {
        let warnings = offline.notices().iter().filter(|notice| notice.event_type == EventType::Warning);
        let mut groups: BTreeMap<(String, String), Group<'a>> = BTreeMap::new();
        for (key, object) in offline.objects().iter().filter(|(key, _)| key.kind == Kind::Pod) {
            let Some(name) = group_of(key, object) else { continue };
            let group = groups.entry((key.namespace.clone(), name)).or_default();
            let notes = object.pointer("/metadata/annotations");
            let total = notes.and_then(|notes| notes.get(labels::POD_GROUP_TOTAL_COUNT)).and_then(Value::as_str);
            group.total = group.total.or_else(|| total?.parse().ok());
            group.there += usize::from(text(object, "/status/phase") != "Failed");
            group.members.push(key);
        }
        Self { pods, warnings: warnings.map(|notice| (&notice.key, notice)).collect(), groups }
    }

    fn warning(&self, key: &ObjectKey) -> Option<String> {
        self.warnings.get(key).map(|notice| format!("{}: {}", notice.reason, notice.message))
    }

    /// The reason why a job or a pod has no Workload.
    fn why(&self, key: &ObjectKey, object: &Value) -> String {
        if let Some(why) = self.pods.why_left(key) {
            return why.to_owned();
        }
        let first = self.pods.first(key);
        if let Some(warning) = self.warning(key).or_else(|| self.warning(first?)) {
            return warning;
        }
        let why = match key.kind {
            Kind::Deployment | Kind::StatefulSet
                if object.pointer("/spec/replicas").and_then(Value::as_i64).is_some_and(|replicas| replicas <= 0) =>
            {
                "it has no replicas"
            }
            Kind::TrainingJob => "it has no Workload (over, or not managed)",
            Kind::Pod | Kind::Deployment | Kind::StatefulSet => {
                "it has no Workload (over, not waiting for one, or for one that somebody else makes)"
            }
            _ => "it has no Workload (no queue name, or not suspended yet)",
        };
        why.to_owned()
    }

    /// The reason why the pods of a pod group have no Workload.
    fn why_no_group(&self, namespace: &str, name: &str) -> String {
        let none = Group::default();
        let group = self.groups.get(&(namespace.to_owned(), name.to_owned())).unwrap_or(&none);
        let lacking = group.total.filter(|total| group.there < *total);
        let incomplete = lacking.map(|total| format!("{} of {total} pods are there", group.there));
        let warned = || group.members.iter().find_map(|pod| self.warning(pod));
        let why = incomplete.or_else(warned);
        why.unwrap_or_else(|| "it has no Workload (over, or waiting for one that somebody else makes)".to_owned())
    }
}
