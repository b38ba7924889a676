//! The Jobs of a TrainingJob.

use berth_jobs::JobState;
use berth_jobs::training::{ROLES, child_job_name, role_of_child};

use crate::View;
use crate::names::Name;
use crate::object::{Kind, ObjectKey, key};
use crate::training_view::TrainingView;

impl View {
    /// The Job that runs a role of the TrainingJob with the given uid, if the Job exists.
    pub fn child_of(&self, name: &Name, uid: &str, role: &str) -> Option<&JobState> {
        let child = key(Kind::JOB, &(name.0.clone(), child_job_name(&name.1, role)));
        let ours = |job: &&JobState| job.owner.as_ref().is_some_and(|owner| *owner.uid == *uid);
        self.jobs().get(&child).filter(ours)
    }

    /// The TrainingJob of which a Job is a part: the Job has the name of a role of the TrainingJob, and the TrainingJob has not ended. A Job that names a
    /// TrainingJob as its controller, but is not a part of the TrainingJob, is managed like any job of its own.
    pub fn training_of(&self, object: &ObjectKey, job: &JobState) -> Option<&TrainingView> {
        let owner = job.owner.as_ref().filter(|owner| *owner.kind == *Kind::TrainingJob.name())?;
        let role = role_of_child(&owner.name, &object.name).filter(|_| object.kind == Kind::JOB)?;
        let view = self.training().get(&(object.namespace.clone(), owner.name.to_string()));
        let view = view.filter(|view| *view.uid == *owner.uid && !view.is_over())?;
        // A running TrainingJob may have roles that its spec no longer has.
        let stands =
            || self.slice_of(&view.uid).is_some_and(|one| one.shape.digests.iter().any(|set| set.name == role));
        (view.roles.iter().any(|known| known == role) || stands()).then_some(view)
    }

    /// The Jobs that run any role of the TrainingJob with the given uid, including roles that the TrainingJob's spec no longer has.
    pub fn children_of<'a>(&'a self, name: &Name, uid: &'a str) -> impl Iterator<Item = &'a ObjectKey> {
        let first = key(Kind::JOB, &(name.0.clone(), child_job_name(&name.1, "")));
        let prefix = first.clone();
        let below = move |key: &ObjectKey| {
            key.kind == prefix.kind && key.namespace == prefix.namespace && key.name.starts_with(&prefix.name)
        };
        let ours = |job: &JobState| job.owner.as_ref().is_some_and(|owner| *owner.uid == *uid);
        let roles = ROLES.map(|role| child_job_name(&name.1, role));
        let found = self.jobs().range(first..).take_while(move |(key, _)| below(key));
        found.filter(move |(key, job)| roles.contains(&key.name) && ours(job)).map(|(key, _)| key)
    }
}
