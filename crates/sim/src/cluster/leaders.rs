//! Operator processes that lead one after the other, and the objects that they observe.

use berth_control::Control;
use berth_control::event::{Change, Observation, Unlisted};
use berth_control::write::{Kind, ObjectKey, Term};
use serde_json::Value;

use super::Cluster;
use crate::watch::{FirstReport, namespace, observation, observations};

/// The error with which the API server refuses the list of a kind.
pub const FORBIDDEN: &str = "they are forbidden";

fn unlisted(kind: Kind, why: Option<&str>) -> Observation {
    let resource = format!("{}s", kind.name().to_lowercase());
    Observation::Unlisted(Unlisted { resource, kind: Some(kind), why: why.map(str::to_owned) })
}

/// The observation that ends the list of a kind that could not be listed for a while.
fn only(kind: Kind, names: Vec<(String, String)>) -> Observation {
    match kind {
        Kind::Job(kind) => Observation::Job(kind, Change::Only(names)),
        Kind::TrainingJob => Observation::TrainingJob(Change::Only(names)),
        Kind::Pod => Observation::Pod(Change::Only(names)),
        Kind::StatefulSet => Observation::StatefulSet(Change::Only(names)),
        Kind::ProvisioningRequest => Observation::ProvisioningRequest(Change::Only(names)),
        kind => panic!("{kind:?} is always listed"),
    }
}

impl Cluster {
    /// The control of a new process that knows only the objects that it lists; the objects of the kind `last` are listed last.
    fn listed(&self, last: Option<Kind>) -> Control {
        let mut control = Control::new(self.settings.clone());
        control.count_pods_since(self.pods_counted_since);
        control.observe(namespace("team", &self.namespace_labels, self.ends), self.now());
        let (late, soon): (Vec<_>, Vec<_>) = self.objects().iter().partition(|(key, _)| Some(key.kind) == last);
        let all = soon.into_iter().chain(late).filter(|(key, _)| Some(key.kind) != self.unlisted);
        for observation in all.filter_map(|(key, object)| observation(key, object, false)) {
            control.observe(observation, self.now());
        }
        control
    }

    /// Replaces the labels of the namespace, as an administrator does.
    pub fn label_namespace(&mut self, labels: &Value) {
        self.namespace_labels = labels.clone();
        let now = self.now();
        for control in [Some(&mut self.control), self.standby.as_mut()].into_iter().flatten() {
            control.observe(namespace("team", labels, self.ends), now);
        }
    }

    /// Lets the configuration of the next process manage only these job kinds.
    pub fn manage_only(&mut self, kinds: &[Kind]) {
        self.settings.job_kinds = kinds.iter().copied().collect();
    }

    /// Deletes the namespace, as a user does: its pods are deleted first, and no other object is deleted while a pod is left.
    pub fn end_namespace(&mut self) {
        let now = self.now();
        self.ends = Some(now);
        for control in [Some(&mut self.control), self.standby.as_mut()].into_iter().flatten() {
            control.observe(namespace("team", &self.namespace_labels, self.ends), now);
        }
        let pods: Vec<ObjectKey> = self.objects().keys().filter(|key| key.kind == Kind::Pod).cloned().collect();
        for pod in pods {
            self.delete(&pod);
        }
    }

    /// Makes another replica the leader, which knows only the objects that it lists.
    pub fn restart(&mut self) {
        self.restart_hearing_last(None);
    }

    /// Makes another replica the leader, which lists the objects of one kind last.
    pub fn restart_hearing_last(&mut self, kind: Option<Kind>) {
        self.control = self.listed(kind);
        self.control.lead(Some(Term(2)));
    }

    /// Makes another replica the leader, which may not list the objects of a kind.
    pub fn restart_without(&mut self, kind: Kind) {
        self.unlisted = Some(kind);
        self.control = self.listed(None);
        self.control.observe(unlisted(kind, Some(FORBIDDEN)), self.now());
        self.control.lead(Some(Term(2)));
    }

    /// Lets the process lead again without the right to list a kind: the process knows only the objects of that kind that it observed before.
    pub fn claim_without(&mut self, kind: Kind) {
        self.unlisted = Some(kind);
        self.control.lead(None);
        self.control.observe(unlisted(kind, Some(FORBIDDEN)), self.now());
        self.control.lead(Some(Term(2)));
    }

    /// Lets the process list the missing kind again.
    pub fn list_again(&mut self) {
        let Some(kind) = self.unlisted.take() else { return };
        let all: Vec<_> = self.objects().iter().filter(|(key, _)| key.kind == kind).collect();
        let names = all.iter().map(|(key, _)| (key.namespace.clone(), key.name.clone())).collect();
        let seen = all.into_iter().filter_map(|(key, object)| observation(key, object, false));
        let last = [only(kind, names), unlisted(kind, None)];
        for observation in seen.chain(last).collect::<Vec<_>>() {
            self.control.observe(observation, self.now());
        }
    }

    /// Adds a standby replica, which observes all later changes of objects.
    pub fn stand_by(&mut self) {
        self.standby = Some(self.listed(None));
    }

    /// Makes the standby replica the leader.
    pub fn fail_over(&mut self) {
        self.control = self.standby.take().expect("somebody stands by");
        self.control.lead(Some(Term(2)));
    }

    /// Shows all new revisions of objects to the leader and the standby replica.
    pub(super) fn deliver(&mut self) {
        let first = if self.leaves_first { FirstReport::Left } else { FirstReport::Joined };
        let now = self.now();
        for revision in self.api.take_revisions() {
            if Some(revision.key.kind) == self.unlisted {
                continue;
            }
            for control in [Some(&mut self.control), self.standby.as_mut()].into_iter().flatten() {
                for observation in observations(&revision, first) {
                    control.observe(observation, now);
                }
            }
        }
    }
}
