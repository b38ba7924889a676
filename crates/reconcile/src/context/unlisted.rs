//! Kinds whose objects cannot be listed, so that control decides nothing about these objects.

use berth_cache::{Name, WorkloadView};
use berth_jobs::pods::STATEFUL_SET_FRAMEWORK;
use serde_json::Value;

use crate::context::Context;
use crate::job::unlisted_above;
use crate::write::{Kind, ObjectKey};

impl<'a> Context<'a> {
    /// The resource that cannot be listed for a kind, and the reason.
    fn unlisted(&self, kind: Kind) -> Option<(&'a str, &'a str)> {
        let ((_, resource), why) = self.view.unlisted().iter().find(|((of, _), _)| *of == kind)?;
        Some((resource.as_str(), why.as_str()))
    }

    /// Whether objects of a kind, or resources that belong to them, cannot be listed.
    pub(crate) fn is_unlisted(&self, kind: Kind) -> bool {
        self.view.is_unlisted(kind)
    }

    /// Whether control makes no decision about an object, because the object's kind cannot be listed.
    pub(crate) fn is_unlisted_object(&self, object: &ObjectKey) -> bool {
        if self.view.unlisted().is_empty() {
            return false;
        }
        match object.kind {
            Kind::PodGroup => self.unlisted_pods(&(object.namespace.clone(), object.name.clone())).is_some(),
            Kind::Checkpoints => self.is_unlisted(Kind::TrainingJob),
            kind => self.is_unlisted(kind),
        }
    }

    /// The kind that cannot be listed, among the kinds that control needs for the pods of a group.
    fn unlisted_pods(&self, group: &Name) -> Option<Kind> {
        match self.is_unlisted(Kind::Pod) {
            true => Some(Kind::Pod),
            false => Some(Kind::StatefulSet).filter(|kind| self.is_unlisted(*kind) && self.is_of_set(group)),
        }
    }

    /// Whether the pods of a group belong to a StatefulSet, as far as the pods or the group's Workload show it.
    fn is_of_set(&self, group: &Name) -> bool {
        let mut pods = self.view.pods().members(group);
        let rare = self.view.workloads().get(group).and_then(|workload| workload.rare.as_ref());
        let is_set = |owner: &Value| owner.get("kind").and_then(Value::as_str) == Some(Kind::StatefulSet.name());
        pods.any(|(_, pod)| pod.parent.as_deref() == Some(STATEFUL_SET_FRAMEWORK))
            || rare.is_some_and(|rare| rare.owners.iter().any(is_set))
    }

    /// The reason why nothing is known about the job of a Workload, as text for the user; `None` if the job's kind is listed.
    pub(crate) fn unlisted_owner(&self, workload: &WorkloadView) -> Option<String> {
        if self.view.unlisted().is_empty() {
            return None;
        }
        let kind = match workload.owner_key() {
            Some(owner_key) if owner_key.kind == Kind::PodGroup => self.unlisted_pods(&workload.key()),
            Some(owner_key) if self.is_unlisted(owner_key.kind) => Some(owner_key.kind),
            Some(owner_key) => unlisted_above(self, &owner_key, self.view.job_of(workload)?),
            // The owner reference of the Workload was removed, and the job may be of any kind.
            None if workload.owner.is_none() && workload.job_uid.is_some() && !workload.is_finished() => {
                Kind::jobs().chain([Kind::TrainingJob, Kind::Pod]).find(|kind| self.is_unlisted(*kind))
            }
            None => None,
        };
        let (resource, why) = self.unlisted(kind?)?;
        Some(format!("Berth cannot list {resource}, and waits until it can: {why}"))
    }
}
