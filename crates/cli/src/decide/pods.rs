//! Pods, Deployments and StatefulSets in `berth decide`: the objects and their pods are created as in a cluster, and the outcome of each creation is kept.

use super::manifests::{Manifest, named, refused, text};
use berth_control::offline::{Creation, Offline};
use berth_control::write::{Kind, ObjectKey};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The kinds in the order in which objects are created: a StatefulSet sets fields of its pods, and a Deployment gets the pods that are missing.
const KINDS: [Kind; 3] = [Kind::StatefulSet, Kind::Pod, Kind::Deployment];

/// Outcome of the creation of the manifests' Pods, Deployments and StatefulSets in `berth decide`.
#[derive(Debug, Default)]
pub(super) struct Pods {
    /// Errors of the objects that the webhook refuses.
    pub(super) invalid: Vec<String>,
    /// Messages about Deployments that get fewer pods than their replicas.
    pub(super) assumed: Vec<String>,
    /// The Deployment of each pod, or its StatefulSet if the StatefulSet's pods are no pod group.
    parents: BTreeMap<ObjectKey, ObjectKey>,
    /// The first pod of each Deployment and StatefulSet.
    firsts: BTreeMap<ObjectKey, ObjectKey>,
    refused: BTreeSet<ObjectKey>,
    /// Pods, Deployments and StatefulSets that Berth does not manage, with the reason.
    left: BTreeMap<ObjectKey, String>,
}

/// The kind of an object, if the object is a Pod, Deployment or StatefulSet.
pub(super) fn kind(object: &Value) -> Option<Kind> {
    let name = text(object, "/kind");
    KINDS.into_iter().find(|kind| kind.name() == name)
}

impl Pods {
    /// Creates the pods, Deployments and StatefulSets of the manifests.
    pub(super) fn create(offline: &mut Offline, objects: &[Manifest]) -> anyhow::Result<Self> {
        let mut all = Self::default();
        let mut faults = Vec::new();
        let places = objects.iter().enumerate();
        // If several manifests describe one object, only the last of them counts.
        let last: BTreeMap<String, usize> = places.clone().map(|(at, given)| (named(&given.object), at)).collect();
        for wanted in KINDS {
            for (at, manifest) in places.clone() {
                let object = &manifest.object;
                if kind(object) != Some(wanted) || last.get(&named(object)) != Some(&at) {
                    continue;
                }
                match offline.create(wanted, object) {
                    Ok(creation) => all.note(wanted, manifest, creation),
                    Err(error) => faults.push(manifest.fault_at(error.path(), &error)),
                }
            }
        }
        refused(&faults)?;
        Ok(all)
    }

    fn note(&mut self, kind: Kind, manifest: &Manifest, creation: Creation) {
        let object = &manifest.object;
        let namespace = text(object, "/metadata/namespace");
        let key = ObjectKey { kind, namespace: namespace.clone(), name: text(object, "/metadata/name") };
        match creation {
            Creation::Managed { pods, left_out } => {
                if left_out > 0 {
                    let taken = pods.len();
                    self.assumed.push(format!(
                        "{}: it has no replicas beyond {taken}; it asks for {left_out} more",
                        named(object)
                    ));
                }
                for name in pods {
                    let pod = ObjectKey { kind: Kind::Pod, namespace: namespace.clone(), name };
                    self.firsts.entry(key.clone()).or_insert_with(|| pod.clone());
                    self.parents.insert(pod, key.clone());
                }
            }
            Creation::Unmanaged(why) => drop(self.left.insert(key, why)),
            Creation::Refused(faults) => {
                self.invalid.extend(faults.iter().map(|fault| manifest.fault(&fault.to_string())));
                self.refused.insert(key);
            }
        }
    }

    /// The Deployment or StatefulSet to which a pod belongs.
    pub(super) fn parent(&self, pod: &ObjectKey) -> Option<&ObjectKey> {
        self.parents.get(pod)
    }

    /// The first pod of a Deployment or StatefulSet.
    pub(super) fn first(&self, parent: &ObjectKey) -> Option<&ObjectKey> {
        self.firsts.get(parent)
    }

    /// The reason why Berth does not manage an object, if there is one.
    pub(super) fn why_left(&self, key: &ObjectKey) -> Option<&str> {
        self.left.get(key).map(String::as_str)
    }

    /// Whether the webhook refuses the object.
    pub(super) fn is_refused(&self, key: &ObjectKey) -> bool {
        self.refused.contains(key)
    }
}
