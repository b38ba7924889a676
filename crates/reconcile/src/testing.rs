//! Fixture for tests of decisions: the state that decisions read, filled from plain objects, and decisions as values to compare. No test of a decision builds
//! the controller.

pub(crate) mod groups;
pub(crate) mod objects;
pub(crate) mod step;

use berth_cache::event::{Change, Observation};
use berth_cache::moments::after_seconds;
use berth_cache::names::Name;
use berth_cache::settings::Settings;
use berth_cache::slim::slim;
use berth_cache::training_view::TrainingView;
use berth_jobs::SharedJob;
use berth_jobs::pods::PodState;
use jiff::Timestamp;
use serde_json::Value;

use crate::capacity::CapacityFallback;
use crate::context::Context;
use crate::decision::Draft;
use crate::notes::Notes;
use crate::observe::pod_change::PodChange;
use crate::observe::quota_rules::QuotaRules;
use crate::provisioning;
use crate::state::in_flight::InFlightWrites;
use crate::state::work_queue::WorkQueue;
use crate::state::{Quota, Reports, Session};
use crate::training_job::checkpoints;
use crate::training_job::trainings::Trainings;
use crate::write::{EventType, Kind, Notice, ObjectKey, Purpose, Query, Term, WORKLOADS, key};

/// Namespace of all objects of the fixture that have a namespace.
pub(crate) const NAMESPACE: &str = "ns";

/// The time of all decisions in tests.
pub(crate) fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(1_800_000_000)
}

/// The time a number of seconds after [`now`].
pub(crate) fn in_seconds(seconds: i64) -> Timestamp {
    after_seconds(now(), seconds)
}

/// The time a number of seconds after [`now`], as text in an object.
pub(crate) fn at(seconds: i64) -> String {
    in_seconds(seconds).to_string()
}

/// Key of an object in the fixture's namespace.
pub(crate) fn named(kind: Kind, name: &str) -> ObjectKey {
    key(kind, &own_name(name))
}

/// Name of an object in the fixture's namespace.
pub(crate) fn own_name(name: &str) -> Name {
    (NAMESPACE.to_owned(), name.to_owned())
}

/// The state that decisions read, in a process that leads.
#[derive(Debug)]
pub(crate) struct State {
    /// The settings of control.
    pub(crate) settings: Settings,
    /// The term in which the process leads.
    pub(crate) session: Session,
    /// The last observed state of every object.
    pub(crate) view: berth_cache::View,
    /// Quota, usage and pending Workloads.
    pub(crate) quota: Quota,
    /// The writes under way.
    pub(crate) in_flight: InFlightWrites,
    /// The notes of control about single objects.
    pub(crate) notes: Notes,
    /// The state of events and statuses that report to users.
    pub(crate) reports: Reports,
    /// The growth of elastic TrainingJobs, and the Jobs that have run each TrainingJob.
    pub(crate) training: Trainings,
    /// The state of the capacity fallback.
    pub(crate) capacity: CapacityFallback,
    work: WorkQueue,
}

impl State {
    /// The state of a managed namespace with a LocalQueue `lq` of the ClusterQueue `cq`, which has ten cpus of the flavor `f`.
    pub(crate) fn new() -> Self {
        Self::with_settings(Settings::default())
    }

    /// The state of [`State::new`] with settings that manage pods, too, by themselves and in groups.
    pub(crate) fn managing_pods() -> Self {
        let mut settings = Settings::default();
        settings.job_kinds.insert(Kind::Pod);
        Self::with_settings(settings)
    }

    /// The state of [`State::new`] with other settings.
    pub(crate) fn with_settings(settings: Settings) -> Self {
        let mut session = Session::default();
        session.set_term(Some(Term(1)));
        let state = Self {
            session,
            view: berth_cache::View::default(),
            quota: Quota::new(&settings),
            in_flight: InFlightWrites::default(),
            notes: Notes::default(),
            reports: Reports::new(&settings),
            training: Trainings::default(),
            capacity: CapacityFallback::default(),
            work: WorkQueue::default(),
            settings,
        };
        state
            .with(objects::namespace())
            .with(objects::flavor("f"))
            .with(objects::cluster_queue("cq", &[("f", 10)]))
            .with(objects::local_queue("lq", "cq"))
    }

    /// The fixture's state with one more object.
    pub(crate) fn with(mut self, object: Value) -> Self {
        self.put(object);
        self
    }

    /// The context for decisions that read the fixture's state.
    pub(crate) fn context(&self) -> Context<'_> {
        Context {
            settings: &self.settings,
            session: &self.session,
            view: &self.view,
            quota: &self.quota,
            in_flight: &self.in_flight,
            notes: &self.notes,
            reports: &self.reports,
            training: &self.training,
            capacity: &self.capacity,
        }
    }

    /// A Workload of the view.
    pub(crate) fn workload(&self, name: &str) -> &berth_cache::WorkloadView {
        self.view.workloads().get(&own_name(name)).unwrap_or_else(|| panic!("no Workload {name}"))
    }

    /// Passes the Workloads of the view to the engine, in the order of their names.
    pub(crate) fn pass_on_workloads(&mut self) {
        let mut names: Vec<Name> = self.view.workloads().keys().collect();
        names.sort_unstable();
        for (namespace, name) in names {
            let spec = self.context().workload_spec(&namespace, &name).unwrap_or_else(|| panic!("no Workload {name}"));
            self.quota.apply(berth_engine::model::Delta::Workload(spec));
        }
    }

    /// Observes an object as a watch would show it. An observed object replaces an older object of its name.
    pub(crate) fn put(&mut self, object: Value) {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, name) = (text("/kind"), (text("/metadata/namespace"), text("/metadata/name")));
        match kind.as_str() {
            "Workload" => {
                let new = slim(&self.settings, &self.view, self.quota.shapes_mut(), read(object));
                self.notes.note_workload(&new);
                self.training.note_workload(self.notes.jobs_mut(), &self.view, &new);
                self.view.put_workload(Box::new(new));
                self.view.note_group_owners(&name);
            }
            "TrainingJob" => {
                let older = self.view.training().get(&name);
                let job = TrainingView::new(read(object), older, &self.settings.accelerators);
                self.view.put_training_job(name, job);
            }
            "Pod" => {
                let pod: k8s_openapi::api::core::v1::Pod = read(object);
                let state = PodState::read(&pod);
                self.pod_change().take_pod(name, state, pod, now());
            }
            "StatefulSet" => {
                let set: k8s_openapi::api::apps::v1::StatefulSet = read(object);
                self.pod_change().put_set(name, Some(&set));
            }
            "CheckpointStore" => {
                checkpoints::put_store(&mut self.view, &mut self.work, &name.1, Some(read(object)));
            }
            "ProvisioningRequestConfig" => {
                provisioning::put_config(&mut self.view, &mut self.work, &name.1, Some(read(object)));
            }
            "ProvisioningRequest" => {
                let object = Some(read(object));
                provisioning::put_request(&mut self.view, &mut self.in_flight, &mut self.work, name, object);
            }
            "PodTemplate" => {
                let object = Some(read(object));
                provisioning::put_template(&mut self.view, &mut self.in_flight, &mut self.work, name, object);
            }
            "QueuePolicy" => {
                self.quota_rules().put_policy(&name.1, Some(read(object)), now());
            }
            other => match Kind::of_job(other) {
                Some(kind) => self.put_job(key(kind, &name), &object),
                None => self.put_rule(other, object),
            },
        }
    }

    /// Observes that the fixture's namespace is being deleted.
    pub(crate) fn end_namespace(&mut self) {
        self.put(objects::deleting(objects::namespace()));
    }

    /// Observes the metadata of a job's pod at a time.
    pub(crate) fn put_job_pod(&mut self, metadata: Value, seen: Timestamp) {
        let text = serde_json::json!({ "metadata": metadata }).to_string();
        let pod = berth_jobs::JobPod::read(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        self.pod_change().observe_job_pods(Change::Apply(pod), seen);
    }

    /// Takes the result of reading a job's pod, at the time of decisions.
    pub(crate) fn read_job_pod(&mut self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        self.pod_change().note_job_pod(&named(Kind::JobPod, name), &pod.to_string(), now());
    }

    /// Begins to read so many large jobs for their Workloads that no other Workload may be created.
    pub(crate) fn fill_creations(&mut self) {
        for number in 0..8 {
            let object = named(Kind::JOB, &format!("large-{number}"));
            let mut draft = Draft::ask(Purpose::ReadJob, object.clone(), Query::ReadObject);
            self.in_flight.start(&mut draft, object);
        }
    }

    /// Notes that a warning with a reason and a message was sent about an object.
    pub(crate) fn note_event(&mut self, object: ObjectKey, reason: &str, message: &str) {
        let notice = Notice {
            key: object,
            uid: String::new(),
            event_type: EventType::Warning,
            reason: reason.to_owned(),
            message: message.to_owned(),
            reporter: WORKLOADS,
        };
        assert!(self.reports.is_news(&notice.key, &notice));
    }

    /// Passes the usage beyond quota of some objects to the engine, as a step of control does.
    pub(crate) fn note_overruns(&mut self, objects: &[ObjectKey]) {
        for object in objects {
            let found = crate::overruns::usage_of(&self.context(), object);
            self.quota.overruns_mut().take(object, found, false, now());
        }
    }

    fn put_job(&mut self, object: ObjectKey, job: &Value) {
        let Kind::Job(kind) = object.kind else { panic!("{object} is no job") };
        let job = SharedJob::from(kind.read(job).unwrap_or_else(|error| panic!("{object}: {error}")));
        let state = job.state(self.view.jobs().get(&object));
        self.training.note_job(self.notes.jobs_mut(), &object, &state);
        self.view.put_job(object, state);
    }

    fn put_rule(&mut self, kind: &str, object: Value) {
        let observation = match kind {
            "Namespace" => Observation::Namespace(Change::Apply(read(object))),
            "ClusterQueue" => Observation::ClusterQueue(Change::Apply(read(object))),
            "LocalQueue" => Observation::LocalQueue(Change::Apply(read(object))),
            "Cohort" => Observation::Cohort(Change::Apply(read(object))),
            "ResourceFlavor" => Observation::ResourceFlavor(Change::Apply(read(object))),
            "AdmissionCheck" => Observation::AdmissionCheck(Change::Apply(read(object))),
            "WorkloadPriorityClass" => Observation::WorkloadPriorityClass(Change::Apply(read(object))),
            "PriorityClass" => Observation::PriorityClass(Change::Apply(read(object))),
            "LimitRange" => Observation::LimitRange(Change::Apply(read(object))),
            "RuntimeClass" => Observation::RuntimeClass(Change::Apply(read(object))),
            other => panic!("no fixture puts a {other:?}"),
        };
        self.quota_rules().observe(observation, now());
    }

    fn pod_change(&mut self) -> PodChange<'_> {
        PodChange {
            settings: &self.settings,
            leads: true,
            view: &mut self.view,
            overruns: self.quota.overruns_mut(),
            in_flight: &mut self.in_flight,
            work: &mut self.work,
            reports: &mut self.reports,
        }
    }

    /// The parts of the state that a change of a queue, flavor or policy updates.
    pub(crate) fn quota_rules(&mut self) -> QuotaRules<'_> {
        QuotaRules {
            settings: &self.settings,
            leads: true,
            view: &mut self.view,
            quota: &mut self.quota,
            in_flight: &mut self.in_flight,
            work: &mut self.work,
            reports: &mut self.reports,
        }
    }
}

/// A JSON object as a value of its type.
pub(crate) fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
    let shown = object.to_string();
    serde_json::from_value(object).unwrap_or_else(|error| panic!("{error}: {shown}"))
}
