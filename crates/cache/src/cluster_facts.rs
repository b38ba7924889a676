//! Facts about the cluster that an admission review needs in addition to the reviewed object. `ClusterFacts` are separate from the `View`, so that an admission
//! review never waits for a decision of control.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::LocalQueue;
use berth_api::berth::TrainingJob;
use berth_engine::model::{Selector, SelectorOp};
use berth_jobs::pods::OwningSet;
use berth_jobs::training::{Accelerators, ROLES, is_training_job, role_names, role_of_child};
use berth_jobs::{DEFAULT_NAME, JobObject, JobType, KINDS, SharedJob, named_part};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use crate::deltas;
use crate::event::{Change, Observation};
use crate::object::Kind;
use crate::settings::Settings;
use crate::training_view::has_ended;
use crate::{Name, name_of};

/// The label by which a selector selects namespaces by name.
const NAME: &str = berth_api::labels::NAMESPACE_NAME;
/// A text that is never the name of a namespace, because it has dots; a selector may not have an empty list of names.
const NOWHERE: &str = "none.berth.dev";

/// The namespaces, the namespaces with a default LocalQueue, and the owners of pods and Jobs in all namespaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterFacts {
    managed: Selector,
    without_queue_name: bool,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    default_queues: BTreeSet<String>,
    default_priority_class: bool,
    /// For pods, Deployments and StatefulSets, in this order: true if Berth manages objects of the kind.
    pods: [bool; 3],
    /// The managed job kinds.
    kinds: BTreeSet<Kind>,
    /// Resources by which TrainingJobs request accelerators.
    accelerators: Accelerators,
    training: BTreeMap<Name, Training>,
    /// The jobs that consist of Jobs, by kind and name.
    parents: BTreeMap<(JobType, Name), Parent>,
    /// StatefulSets that name a LocalQueue, by namespace and name.
    sets: BTreeMap<Name, OwningSet>,
    /// Two bools: true if the namespaces, and true if the LocalQueues, have been listed.
    listed: (bool, bool),
}

/// The state of a TrainingJob by which a review finds out whether a Job is a part of the TrainingJob.
#[derive(Clone, Debug, PartialEq)]
struct Training {
    uid: String,
    roles: Vec<String>,
    /// True if the TrainingJob has ended.
    over: bool,
}

/// The state of a job that consists of Jobs by which a review finds out whether a Job is a part of the job.
#[derive(Clone, Debug, PartialEq)]
struct Parent {
    uid: String,
    has_queue: bool,
    /// The names of the job's parts, and the number of Jobs of each part.
    parts: Vec<(String, i32)>,
}

impl Parent {
    fn of(job: &dyn JobObject) -> Self {
        let uid = job.metadata().uid.clone().unwrap_or_default();
        Self { uid, has_queue: job.queue_name().is_some(), parts: job.part_names() }
    }

    /// Whether a Job is a part of this JobSet; `rest` is the Job's name after the JobSet's name and a hyphen.
    fn has(&self, rest: &str) -> bool {
        let Some((part, index)) = rest.rsplit_once('-') else { return false };
        let number = index.parse::<i32>().ok().filter(|number| *number >= 0 && number.to_string() == index);
        number.is_some_and(|number| self.parts.iter().any(|(name, count)| name == part && number < *count))
    }

    /// Whether a Job names a part of the job in the label by which the job's controller starts Jobs.
    fn starts(&self, job: &ObjectMeta) -> bool {
        named_part(job).is_some_and(|part| self.parts.iter().any(|(name, _)| name == part))
    }
}

impl Training {
    fn of(job: &TrainingJob) -> Self {
        let over = job.status.as_ref().is_some_and(has_ended);
        Self { uid: job.uid().to_owned(), roles: role_names(job), over }
    }
}

impl ClusterFacts {
    /// The `ClusterFacts` before any observation.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self {
            managed: settings.managed_namespaces.clone(),
            without_queue_name: settings.manage_jobs_without_queue_name,
            pods: [Kind::Pod, Kind::Deployment, Kind::StatefulSet].map(|kind| settings.job_kinds.contains(&kind)),
            kinds: settings.job_kinds.clone(),
            accelerators: settings.accelerators.clone(),
            ..Self::default()
        }
    }

    /// Resources by which TrainingJobs request accelerators.
    #[must_use]
    pub const fn accelerators(&self) -> &Accelerators {
        &self.accelerators
    }

    /// Whether an observation can change the `ClusterFacts`; most observations cannot, and need no lock.
    #[must_use]
    pub const fn concerns(observation: &Observation) -> bool {
        match observation {
            Observation::Namespace(_)
            | Observation::LocalQueue(_)
            | Observation::WorkloadPriorityClass(_)
            | Observation::TrainingJob(_)
            | Observation::StatefulSet(_) => true,
            Observation::Job(kind, _) => kind.info().made_of_jobs,
            _ => false,
        }
    }

    /// Handles an observation; true if the result of [`ClusterFacts::opted_in`] may have changed.
    pub fn observe(&mut self, observation: &Observation) -> bool {
        match observation {
            Observation::Namespace(change) => {
                let first = !self.listed.0 && is_list(change);
                self.listed.0 |= first;
                self.namespace(change) || first
            }
            Observation::LocalQueue(change) => {
                let first = !self.listed.1 && is_list(change);
                self.listed.1 |= first;
                self.local_queue(change) || first
            }
            Observation::TrainingJob(change) => {
                self.training_job(change);
                false
            }
            Observation::StatefulSet(change) => {
                self.stateful_sets(change);
                false
            }
            Observation::Job(kind, change) if kind.info().made_of_jobs => {
                self.parent(*kind, change);
                false
            }
            Observation::WorkloadPriorityClass(change) => {
                match change {
                    Change::Apply(class) if class.name() == DEFAULT_NAME => self.default_priority_class = true,
                    Change::Delete(class) if class.name() == DEFAULT_NAME => self.default_priority_class = false,
                    Change::Apply(_) | Change::Delete(_) => {}
                    Change::Reset(classes) => {
                        self.default_priority_class = classes.iter().any(|class| class.name() == DEFAULT_NAME);
                    }
                    Change::Only(names) => {
                        self.default_priority_class &= names.iter().any(|(_, name)| name == DEFAULT_NAME);
                    }
                }
                false
            }
            _ => false,
        }
    }

    fn local_queue(&mut self, change: &Change<Box<LocalQueue>>) -> bool {
        match change {
            Change::Apply(queue) if queue.name() == DEFAULT_NAME => {
                self.default_queues.insert(queue.namespace().to_owned())
            }
            Change::Delete(queue) if queue.name() == DEFAULT_NAME => self.default_queues.remove(queue.namespace()),
            Change::Apply(_) | Change::Delete(_) => false,
            Change::Reset(queues) => {
                let named = queues.iter().filter(|queue| queue.name() == DEFAULT_NAME);
                self.default_queues = named.map(|queue| queue.namespace().to_owned()).collect();
                true
            }
            Change::Only(names) => {
                let named = names.iter().filter(|(_, name)| name == DEFAULT_NAME);
                let left: BTreeSet<&String> = named.map(|(namespace, _)| namespace).collect();
                let before = self.default_queues.len();
                self.default_queues.retain(|namespace| left.contains(namespace));
                before != self.default_queues.len()
            }
        }
    }

    fn training_job(&mut self, change: &Change<Box<TrainingJob>>) {
        match change {
            Change::Apply(job) => drop(self.training.insert(name_of(&job.metadata), Training::of(job))),
            Change::Delete(job) => drop(self.training.remove(&name_of(&job.metadata))),
            Change::Reset(jobs) => {
                self.training = jobs.iter().map(|job| (name_of(&job.metadata), Training::of(job))).collect();
            }
            Change::Only(names) => {
                let left: BTreeSet<&Name> = names.iter().collect();
                self.training.retain(|name, _| left.contains(name));
            }
        }
    }

    fn parent(&mut self, kind: JobType, change: &Change<SharedJob>) {
        let key = |job: &SharedJob| (kind, name_of(job.metadata()));
        match change {
            Change::Apply(job) => drop(self.parents.insert(key(job), Parent::of(&**job))),
            Change::Delete(job) => drop(self.parents.remove(&key(job))),
            Change::Reset(jobs) => {
                self.parents.retain(|(of, _), _| *of != kind);
                self.parents.extend(jobs.iter().map(|job| (key(job), Parent::of(&**job))));
            }
            Change::Only(names) => {
                let left: BTreeSet<&Name> = names.iter().collect();
                self.parents.retain(|(of, name), _| *of != kind || left.contains(name));
            }
        }
    }

    fn stateful_sets(&mut self, change: &Change<Box<StatefulSet>>) {
        match change {
            Change::Apply(set) => drop(self.sets.insert(name_of(&set.metadata), OwningSet::of(set))),
            Change::Delete(set) => drop(self.sets.remove(&name_of(&set.metadata))),
            Change::Reset(sets) => {
                self.sets = sets.iter().map(|set| (name_of(&set.metadata), OwningSet::of(set))).collect();
            }
            Change::Only(names) => {
                let left: BTreeSet<&Name> = names.iter().collect();
                self.sets.retain(|name, _| left.contains(name));
            }
        }
    }

    /// The state of a StatefulSet for its pods; `None` if no watch has shown the StatefulSet, or if the StatefulSet names no LocalQueue.
    #[must_use]
    pub fn stateful_set(&self, namespace: &str, name: &str) -> Option<OwningSet> {
        self.sets.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Whether a Job is a part of its controlling owner, which starts and stops the Job: the Job has the name of a part of a JobSet, or of a role of a
    /// TrainingJob. The owner reference alone proves nothing, because any client may write an owner reference. A JobSet that is not managed also governs the
    /// Jobs that the JobSet controller starts by a label.
    #[must_use]
    pub fn governs(&self, namespace: &str, job: &ObjectMeta, owner: &OwnerReference) -> bool {
        let rest = role_of_child(&owner.name, job.name.as_deref().unwrap_or_default());
        let name = || (namespace.to_owned(), owner.name.clone());
        if let Some(kind) = JobType::of_owner(owner) {
            if !kind.info().made_of_jobs {
                return false;
            }
            if !self.has_kind(kind) {
                // JobSets are not managed, and the JobSet controller starts and stops their Jobs: the name or the label of a Job decides.
                return rest.is_some() || named_part(job).is_some();
            }
            let is_free = |parent: &Parent| !parent.has_queue && !self.without_queue_name;
            let seen = self.parents.get(&(kind, name())).filter(|parent| parent.uid == owner.uid);
            return seen.is_some_and(|parent| {
                rest.is_some_and(|rest| parent.has(rest)) || is_free(parent) && parent.starts(job)
            });
        }
        let role = rest.filter(|rest| ROLES.contains(rest) && is_training_job(owner));
        // A TrainingJob that no watch has shown yet may have been admitted in the meantime. A Job of a TrainingJob that does not exist is deleted by the
        // garbage collector.
        let parent = || self.training.get(&name()).filter(|parent| parent.uid == owner.uid);
        role.is_some_and(|role| {
            parent().is_none_or(|parent| !parent.over && parent.roles.iter().any(|known| known == role))
        })
    }

    fn namespace(&mut self, change: &Change<Box<Namespace>>) -> bool {
        let read = |namespace: &Namespace| {
            let name = namespace.metadata.name.clone().unwrap_or_default();
            (name, namespace.metadata.labels.clone().unwrap_or_default())
        };
        match change {
            Change::Apply(namespace) => {
                let (name, labels) = read(namespace);
                self.namespaces.insert(name, labels.clone()) != Some(labels)
            }
            Change::Delete(namespace) => self.namespaces.remove(&read(namespace).0).is_some(),
            Change::Reset(namespaces) => {
                self.namespaces = namespaces.iter().map(|one| read(one)).collect();
                true
            }
            Change::Only(names) => {
                let left: BTreeSet<&String> = names.iter().map(|(_, name)| name).collect();
                let before = self.namespaces.len();
                self.namespaces.retain(|name, _| left.contains(name));
                before != self.namespaces.len()
            }
        }
    }

    /// Whether Berth manages jobs of a kind, according to the configuration.
    #[must_use]
    pub fn has_kind(&self, kind: JobType) -> bool {
        self.kinds.contains(&Kind::Job(kind))
    }

    /// The settings of the configuration, and the facts about a namespace, by which a review decides whether Berth manages a job of the namespace. Only the
    /// name is known of a namespace that no watch has shown yet.
    #[must_use]
    pub fn facts(&self, namespace: &str) -> berth_jobs::Facts {
        let [pods, deployments, stateful_sets] = self.pods;
        berth_jobs::Facts {
            unmanaged_kind: false,
            pods,
            deployments,
            stateful_sets,
            managed_namespace: self.manages(namespace),
            without_queue_name: self.without_queue_name,
            default_queue: self.default_queues.contains(namespace),
            default_priority_class: self.default_priority_class,
            governed: false,
        }
    }

    fn manages(&self, namespace: &str) -> bool {
        match self.namespaces.get(namespace) {
            Some(labels) => deltas::matches(&self.managed, labels),
            None => deltas::matches(&self.managed, &BTreeMap::from([(NAME.to_owned(), namespace.to_owned())])),
        }
    }

    /// For each kind, by its plural, the label selector of the namespaces in which the webhook reviews objects that name no LocalQueue. The selector of
    /// `opted_in` selects all managed namespaces if the configuration manages jobs without a LocalQueue, and otherwise the namespaces with a default
    /// LocalQueue; for a kind that is not managed, it selects none. `None` before namespaces and LocalQueues have been listed.
    #[must_use]
    pub fn opted_in(&self) -> Option<BTreeMap<&'static str, Value>> {
        (self.listed == (true, true)).then(|| self.selectors())
    }

    fn selectors(&self) -> BTreeMap<&'static str, Value> {
        let [pods, deployments, stateful_sets] = self.pods;
        let others = [("pods", pods), ("deployments", deployments), ("statefulsets", stateful_sets)];
        let all = KINDS.map(|kind| (kind.info().plural, self.has_kind(kind))).into_iter().chain(others);
        let (chosen, none) = (self.selector(), in_namespaces(&[NOWHERE]));
        all.map(|(plural, managed)| (plural, if managed { chosen.clone() } else { none.clone() })).collect()
    }

    /// Whether all namespaces were listed: before the list, the managed namespaces are not known for certain.
    #[must_use]
    pub const fn knows_namespaces(&self) -> bool {
        self.listed.0
    }

    fn selector(&self) -> Value {
        if self.without_queue_name {
            let terms = self.managed.0.iter().map(|term| {
                let operator = match term.op {
                    SelectorOp::In => "In",
                    SelectorOp::NotIn => "NotIn",
                    SelectorOp::Exists => "Exists",
                    SelectorOp::DoesNotExist => "DoesNotExist",
                    // A Kubernetes label selector cannot express the operators `Gt`, `Lt` and `Illegal`, and the configuration does not accept them in
                    // `managedJobsNamespaceSelector`.
                    SelectorOp::Gt | SelectorOp::Lt | SelectorOp::Illegal => {
                        return json!({"key": NAME, "operator": "In", "values": [NOWHERE]});
                    }
                };
                if term.values.is_empty() {
                    json!({"key": term.key, "operator": operator})
                } else {
                    json!({"key": term.key, "operator": operator, "values": term.values})
                }
            });
            return json!({"matchExpressions": terms.collect::<Vec<_>>()});
        }
        let mut names: Vec<&str> =
            self.default_queues.iter().map(String::as_str).filter(|namespace| self.manages(namespace)).collect();
        if names.is_empty() {
            names.push(NOWHERE);
        }
        in_namespaces(&names)
    }
}

/// The label selector of the namespaces with the given names.
fn in_namespaces(names: &[&str]) -> Value {
    json!({"matchExpressions": [{"key": NAME, "operator": "In", "values": names}]})
}

/// Whether a change that a watch reports is the end of a list of objects.
const fn is_list<T>(change: &Change<T>) -> bool {
    matches!(change, Change::Reset(_) | Change::Only(_))
}

#[cfg(test)]
mod tests;
