//! What an admission review must know about the cluster beside the object under review. Kept apart from the view so that a
//! review never waits for a decision.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::LocalQueue;
use berth_api::berth::TrainingJob;
use berth_engine::model::{Selector, SelectorOp};
use berth_jobs::pods::OwningSet;
use berth_jobs::training::{Cards, ROLES, role_names, role_of_child};
use berth_jobs::{DEFAULT_NAME, JobType, KINDS};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

use crate::deltas;
use crate::event::{Change, Observation};
use crate::settings::Settings;
use crate::training_view::has_ended;
use crate::view::{Name, name_of};
use crate::write::Kind;

/// Label by which namespaces are selected by name.
const NAME: &str = berth_api::labels::NAMESPACE_NAME;
/// Never the name of a namespace, since it has dots: an empty list of names is not allowed.
const NOWHERE: &str = "none.berth.dev";

/// Namespaces, which of them have a default LocalQueue, and what pods and Jobs are made of there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surroundings {
    managed: Selector,
    without_queue_name: bool,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    default_queues: BTreeSet<String>,
    default_priority_class: bool,
    /// Pods, Deployments and StatefulSets are managed.
    pods: [bool; 3],
    /// The kinds of job that are managed.
    kinds: BTreeSet<Kind>,
    /// How TrainingJobs ask for cards.
    cards: Cards,
    training: BTreeMap<Name, Training>,
    /// StatefulSets that name a queue.
    sets: BTreeMap<Name, OwningSet>,
    /// Namespaces and LocalQueues have been listed.
    listed: (bool, bool),
}

/// What decides whether a Job is part of a TrainingJob.
#[derive(Clone, Debug, PartialEq)]
struct Training {
    uid: String,
    roles: Vec<String>,
    /// It has ended.
    over: bool,
}

impl Training {
    fn of(job: &TrainingJob) -> Self {
        let over = job.status.as_ref().is_some_and(has_ended);
        Self { uid: job.uid().to_owned(), roles: role_names(job), over }
    }
}

impl Surroundings {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self {
            managed: settings.managed_namespaces.clone(),
            without_queue_name: settings.manage_jobs_without_queue_name,
            pods: [Kind::Pod, Kind::Deployment, Kind::StatefulSet].map(|kind| settings.job_kinds.contains(&kind)),
            kinds: settings.job_kinds.clone(),
            cards: settings.cards.clone(),
            ..Self::default()
        }
    }

    /// How TrainingJobs ask for cards.
    #[must_use]
    pub const fn cards(&self) -> &Cards {
        &self.cards
    }

    /// Whether an observation can matter at all, so that most of them need no lock.
    #[must_use]
    pub const fn concerns(observation: &Observation) -> bool {
        matches!(
            observation,
            Observation::Namespace(_)
                | Observation::LocalQueue(_)
                | Observation::WorkloadPriorityClass(_)
                | Observation::TrainingJob(_)
                | Observation::StatefulSet(_)
        )
    }

    /// Takes note of what a watch saw; true when [`Surroundings::opted_in`] may have changed.
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

    /// What a StatefulSet says of its pods; `None` of one that no watch has shown, or that names no queue.
    #[must_use]
    pub fn stateful_set(&self, namespace: &str, name: &str) -> Option<OwningSet> {
        self.sets.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Whether a Job to be created under that name is part of the TrainingJob of that name and uid, and admitted with it: the Job
    /// has the name of one of its roles.
    #[must_use]
    pub fn governs(&self, namespace: &str, job: &str, (name, uid): (&str, &str)) -> bool {
        let Some(role) = role_of_child(name, job).filter(|role| ROLES.contains(role)) else { return false };
        let whole = self.training.get(&(namespace.to_owned(), name.to_owned()));
        // One that no watch has shown yet may have been admitted meanwhile; of one that does not exist nothing stays.
        let whole = whole.filter(|whole| whole.uid == uid);
        whole.is_none_or(|whole| !whole.over && whole.roles.iter().any(|known| known == role))
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

    /// Whether jobs of that kind are managed.
    #[must_use]
    pub fn has_kind(&self, kind: JobType) -> bool {
        self.kinds.contains(&Kind::Job(kind))
    }

    /// What a job of that namespace meets there. Of a namespace that no watch has shown yet, the name is known.
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

    /// By the plural of a kind, the label selector of the namespaces where its objects are asked about although they name no queue:
    /// all that are managed where the configuration says so, else those that have a default LocalQueue; of a kind that is not managed,
    /// none. `None` before all are listed.
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

    /// Whether all namespaces were listed: before, it is a guess which of them are managed.
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
                    // A label selector cannot say it, and the configuration cannot either.
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

/// The label selector of the namespaces of these names.
fn in_namespaces(names: &[&str]) -> Value {
    json!({"matchExpressions": [{"key": NAME, "operator": "In", "values": names}]})
}

/// Whether a list was completed.
const fn is_list<T>(change: &Change<T>) -> bool {
    matches!(change, Change::Reset(_) | Change::Only(_))
}

#[cfg(test)]
mod tests {
    use berth_engine::model::Requirement;
    use serde_json::from_value;

    use super::*;

    fn not_system() -> Selector {
        Selector(vec![Requirement {
            key: NAME.to_owned(),
            op: SelectorOp::NotIn,
            values: vec!["kube-system".to_owned()],
        }])
    }

    fn fresh(without_queue_name: bool) -> Surroundings {
        Surroundings::new(&Settings {
            managed_namespaces: not_system(),
            manage_jobs_without_queue_name: without_queue_name,
            ..Settings::default()
        })
    }

    fn queue(namespace: &str, name: &str) -> Box<berth_api::LocalQueue> {
        from_value(json!({"metadata": {"namespace": namespace, "name": name}})).expect("queue")
    }

    fn names(surroundings: &Surroundings) -> Value {
        surroundings.selector()["matchExpressions"][0]["values"].clone()
    }

    #[test]
    fn default_queues_opt_their_namespaces_in() {
        let mut all = fresh(false);
        assert_eq!(names(&all), json!([NOWHERE]));
        let queue_of = |namespace: &str| Observation::LocalQueue(Change::Apply(queue(namespace, "default")));
        all.observe(&queue_of("b"));
        all.observe(&queue_of("a"));
        all.observe(&queue_of("kube-system"));
        all.observe(&Observation::LocalQueue(Change::Apply(queue("c", "other"))));
        assert_eq!(names(&all), json!(["a", "b"]));
        assert!(all.facts("a").default_queue && !all.facts("c").default_queue);
        assert!(!all.facts("kube-system").managed_namespace);
        all.observe(&Observation::LocalQueue(Change::Only(vec![
            ("b".into(), "default".into()),
            ("a".into(), "x".into()),
        ])));
        assert_eq!(names(&all), json!(["b"]));
        all.observe(&Observation::LocalQueue(Change::Delete(queue("b", "default"))));
        assert_eq!(names(&all), json!([NOWHERE]));
    }

    #[test]
    fn where_every_job_is_managed_the_configured_selector_is_told() {
        let all = fresh(true);
        assert_eq!(
            all.selector(),
            json!({"matchExpressions": [{"key": NAME, "operator": "NotIn", "values": ["kube-system"]}]})
        );
        assert!(all.facts("x").without_queue_name);
        assert_eq!(all.opted_in(), None, "nothing is listed yet");
        let mut all = all;
        assert!(!all.knows_namespaces() && all.observe(&Observation::Namespace(Change::Only(vec![]))));
        assert!(all.knows_namespaces());
        assert!(all.opted_in().is_none() && all.observe(&Observation::LocalQueue(Change::Only(vec![]))));
        assert!(all.opted_in().is_some() && !all.observe(&Observation::LocalQueue(Change::Only(vec![]))));
    }

    #[test]
    fn nobody_is_asked_about_kinds_that_are_not_managed() {
        let of_pods = [Kind::Pod, Kind::Deployment, Kind::StatefulSet];
        let plurals: BTreeMap<&str, Kind> = Kind::jobs().chain(of_pods).map(|kind| (kind.resource().2, kind)).collect();
        for (plural, kind) in &plurals {
            for without_queue_name in [false, true] {
                let job_kinds = BTreeSet::from([Kind::JOB, *kind]);
                let settings = Settings { managed_namespaces: not_system(), job_kinds, ..Settings::default() };
                let settings = Settings { manage_jobs_without_queue_name: without_queue_name, ..settings };
                let mut all = Surroundings::new(&settings);
                all.observe(&Observation::Namespace(Change::Only(vec![])));
                all.observe(&Observation::LocalQueue(Change::Reset(vec![queue("team", "default")])));
                let told = all.opted_in().expect("all is listed");
                assert!(told.keys().eq(plurals.keys()), "{told:?}");
                for (resource, selector) in told {
                    let managed = resource == "jobs" || resource == *plural;
                    let wanted = if managed { all.selector() } else { in_namespaces(&["none.berth.dev"]) };
                    assert_eq!(selector, wanted, "{resource}, where {plural} are managed");
                }
            }
        }
    }

    #[test]
    fn only_roles_that_a_training_job_has_are_part_of_it() {
        let mut all = fresh(true);
        let mut training = json!({"metadata": {"name": "gpt", "namespace": "n", "uid": "u"}, "spec": {
            "jobType": "MPIJob", "template": {"spec": {"containers": []}}}, "status": {"phase": "Running"}});
        let observe = |all: &mut Surroundings, training: &Value| {
            let job = from_value(training.clone()).expect("training job");
            all.observe(&Observation::TrainingJob(Change::Apply(job)));
        };
        observe(&mut all, &training);
        let governs = |all: &Surroundings, name: &str, owner: &str, uid: &str| all.governs("n", name, (owner, uid));
        assert!(governs(&all, "gpt-worker", "gpt", "u") && governs(&all, "gpt-launcher", "gpt", "u"));
        assert!(!governs(&all, "gpt-ps", "gpt", "u") && !governs(&all, "mine", "gpt", "u"));
        assert!(governs(&all, "new-worker", "new", "v") && !governs(&all, "new-2", "new", "v"), "not seen yet");
        training["status"]["phase"] = json!("Succeeded");
        observe(&mut all, &training);
        assert!(!governs(&all, "gpt-worker", "gpt", "u"), "it is over");
        all.observe(&Observation::TrainingJob(Change::Only(vec![])));
        assert!(all.training.is_empty());
    }

    #[test]
    fn stateful_sets_are_known_by_what_they_say_now() {
        let mut all = fresh(false);
        let set = |queue: &str, replicas: i32| {
            let labels = json!({"kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": "high"});
            from_value(json!({"metadata": {"name": "web", "namespace": "n", "uid": "u", "labels": labels},
                "spec": {"replicas": replicas, "selector": {}, "template": {}}}))
            .expect("a StatefulSet")
        };
        assert_eq!(all.stateful_set("n", "web"), None);
        for (queue, replicas) in [("q", 2), ("r", 0)] {
            let change = Observation::StatefulSet(Change::Apply(set(queue, replicas)));
            assert!(Surroundings::concerns(&change) && !all.observe(&change));
            let known = all.stateful_set("n", "web").expect("it was seen");
            assert_eq!((known.uid.as_str(), known.queue_name.as_deref()), ("u", Some(queue)));
            assert_eq!((known.priority_class.as_deref(), known.replicas), (Some("high"), replicas));
        }
        all.observe(&Observation::StatefulSet(Change::Only(vec![])));
        assert_eq!(all.stateful_set("n", "web"), None);
        all.observe(&Observation::StatefulSet(Change::Reset(vec![set("q", 1)])));
        assert!(all.stateful_set("n", "web").is_some() && all.stateful_set("m", "web").is_none());
        all.observe(&Observation::StatefulSet(Change::Delete(set("q", 1))));
        assert_eq!(all.stateful_set("n", "web"), None);
    }

    #[test]
    fn labels_of_namespaces_and_the_default_class_are_followed() {
        let select = Selector(vec![Requirement { key: "team".into(), op: SelectorOp::Exists, values: vec![] }]);
        let mut all = Surroundings::new(&Settings { managed_namespaces: select, ..Settings::default() });
        let namespace = |labels: Value| from_value(json!({"metadata": {"name": "n", "labels": labels}})).expect("it");
        assert!(!all.facts("n").managed_namespace);
        all.observe(&Observation::Namespace(Change::Apply(namespace(json!({"team": "x"})))));
        assert!(all.facts("n").managed_namespace);
        all.observe(&Observation::Namespace(Change::Apply(namespace(json!({})))));
        assert!(!all.facts("n").managed_namespace);
        let class = || from_value(json!({"metadata": {"name": "default"}, "value": 1})).expect("class");
        all.observe(&Observation::WorkloadPriorityClass(Change::Apply(class())));
        assert!(all.facts("n").default_priority_class);
        all.observe(&Observation::WorkloadPriorityClass(Change::Only(vec![])));
        assert!(!all.facts("n").default_priority_class);
    }
}
