//! Control without a cluster: objects in, and the decisions and writes of control, performed on objects in memory.
//!
//! Offline control has no job controller and no kubelet: the start or stop of a job is only a change of its object in memory, and no pod ever runs.

mod creation;
mod error;
mod manifest;
mod patch;

use std::collections::BTreeMap;

use berth_api::conversion;
use berth_cache::cluster_facts::ClusterFacts;
use berth_cache::event::{Change, Observation};
use berth_cache::moments::after;
use berth_cache::settings::Settings;
use berth_engine::model as engine;
use berth_jobs::SharedJob;
use berth_reconcile::write::{
    Action, Kind, Notice, ObjectKey, PodsLeft, Purpose, Query, QueryAnswer, QueryFailure, Subresource, Task,
    TaskOutcome, Term, Write, WriteOutcome,
};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use self::patch::{apply_status, edit, merge, with_map};
use crate::controller::Control;

pub use creation::Creation;
pub use error::ObjectError;
pub use manifest::{Manifest, examine};

/// Largest number of steps of control in a run, so that a run ends even if control never stops writing.
const MOST_STEPS: usize = 10_000;
/// Number of failed writes that one call of [`Offline::run`] waits for.
const MOST_RETRIES: usize = 4;

/// A write that was performed on objects in memory, with its object before and after the write.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    /// Purpose of the write.
    pub purpose: Purpose,
    /// Object of the write.
    pub key: ObjectKey,
    /// The object before the write; null if the object did not exist.
    pub before: Value,
    /// The object after the write; null if the object is gone.
    pub after: Value,
    /// Events that were published with the write.
    pub notices: Vec<Notice>,
}

/// Control, and the objects that control writes to.
#[derive(Debug)]
pub struct Offline {
    control: Control,
    /// Facts about the cluster, for reviews of new objects.
    cluster_facts: ClusterFacts,
    /// Number of pods that were created from templates.
    made_pods: usize,
    now: Timestamp,
    objects: BTreeMap<ObjectKey, Value>,
    notices: Vec<Notice>,
    writes: Vec<(Purpose, ObjectKey)>,
    /// Results of writes, if a history is kept.
    history: Option<Vec<Made>>,
    version: u64,
    /// If set, every write of a Workload's status is refused with this text.
    refusal: Option<String>,
    /// Workloads that another client writes to before Berth's next write.
    contested: Vec<ObjectKey>,
    /// True if the API server refused a write because another client wrote first: control decides about the object again.
    conflicted: bool,
}

impl Offline {
    /// Control without a cluster and without any objects; only [`Offline::advance`] and retries of failed writes change its time.
    #[must_use]
    pub fn new(settings: Settings, now: Timestamp) -> Self {
        let cluster_facts = ClusterFacts::new(&settings);
        let mut control = Control::offline(settings);
        control.lead(Some(Term(1)));
        Self {
            control,
            cluster_facts,
            made_pods: 0,
            now,
            objects: BTreeMap::new(),
            notices: Vec::new(),
            writes: Vec::new(),
            history: None,
            version: 0,
            refusal: None,
            contested: Vec::new(),
            conflicted: false,
        }
    }

    /// The present time of the offline run.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Lets time pass; control makes no decision until the next run.
    pub fn advance(&mut self, millis: i64) {
        self.now = after(self.now, millis);
    }

    /// The control of the offline run, for questions about its state.
    pub fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    /// The present objects in memory, of the kinds that Berth writes.
    #[must_use]
    pub fn objects(&self) -> &BTreeMap<ObjectKey, Value> {
        &self.objects
    }

    /// Kubernetes events that were published so far in the offline run.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Purposes and objects of all writes in the offline run until now, in the order of the writes.
    #[must_use]
    pub fn writes(&self) -> &[(Purpose, ObjectKey)] {
        &self.writes
    }

    /// Refuses every later write of a Workload's status with a text.
    pub fn refuse_status_writes(&mut self, text: &str) {
        self.refusal = Some(text.to_owned());
    }

    /// Lets another client write to a Workload just before Berth's next write to that Workload.
    pub fn contest(&mut self, namespace: &str, name: &str) {
        self.contested.push(object_key(Kind::Workload, namespace, name));
    }

    /// Keeps the results of all later writes, and lets control only schedule: callers want the decisions of scheduling cycles, not those of admission checks.
    pub fn keep_history(&mut self) {
        self.control.schedule_only();
        self.history.get_or_insert_default();
    }

    /// The history: results of the writes since the call of [`Offline::keep_history`], in the order of the writes.
    #[must_use]
    pub fn history(&self) -> &[Made] {
        self.history.as_deref().unwrap_or_default()
    }

    /// Writes into a Workload's status why the Workload waits, as control does after a scheduling cycle. `reason` may be absent, although no API server would
    /// accept a condition without a reason. `is_gated` is true for a Workload that waits for its preemption gates.
    pub fn report_pending(&mut self, uid: &str, reason: Option<engine::PendingReason>, message: &str, is_gated: bool) {
        let Some(draft) = self.control.context().explain(uid, reason, message, is_gated, self.now) else { return };
        let Action::Write(write) = draft.action.pack() else { return };
        let outcome = self.write(&draft.key, &write);
        self.writes.push((draft.purpose, draft.key));
        if let WriteOutcome::Applied { .. } = outcome {
            self.notices.extend(draft.notices);
        }
    }

    /// Creates or replaces an object; the object may have any API version that Berth reads. For an object without a uid, a uid is derived from namespace and
    /// name.
    ///
    /// # Errors
    /// The fault of an object of a known kind, the unknown version or the unknown kind.
    pub fn put(&mut self, object: &Value) -> Result<(), ObjectError> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let kind = text("/kind");
        let written = match kind.as_str() {
            "Workload" => Kind::Workload,
            "ClusterQueue" => Kind::ClusterQueue,
            "LocalQueue" => Kind::LocalQueue,
            "Cohort" => Kind::Cohort,
            "ResourceFlavor" => Kind::ResourceFlavor,
            "QueuePolicy" => Kind::QueuePolicy,
            "TrainingJob" => Kind::TrainingJob,
            _ => match Kind::of_job(&kind) {
                Some(kind) => kind,
                None => return self.put_other(&kind, object),
            },
        };
        self.put_as(written, object)
    }

    /// Creates or replaces an object of a kind that Berth watches, also of a kind that [`Offline::put`] ignores.
    ///
    /// # Errors
    /// Names the fault of an object that cannot be read.
    pub fn put_as(&mut self, written: Kind, object: &Value) -> Result<(), ObjectError> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let mut object = object.clone();
        if let (true, Some(fields)) = (text("/apiVersion").starts_with("kueue.x-k8s.io/"), object.as_object_mut()) {
            conversion::to_stored(fields)?;
        }
        let key = object_key(written, &namespace, &name);
        let known = self.objects.get(&key).and_then(|old| old.pointer("/metadata/uid")).cloned();
        let fresh = || match written {
            Kind::Workload => json!(format!("{namespace}/{name}")),
            other => json!(format!("{}/{namespace}/{name}", other.name())),
        };
        // A change of the spec increments the generation, as on an API server.
        let old = self.objects.get(&key);
        let of = |object: &Value| object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        let next = old
            .filter(|old| old.get("spec") != object.get("spec") && of(old) >= of(&object))
            .map(|old| of(old).saturating_add(1));
        edit(&mut object, "metadata", |metadata| {
            metadata.entry("name").or_insert_with(|| json!(name));
            if let Some(next) = next {
                metadata.insert("generation".into(), json!(next));
            }
            if metadata.get("uid").and_then(Value::as_str).is_none_or(str::is_empty) {
                metadata.insert("uid".into(), known.unwrap_or_else(fresh));
            }
        });
        self.store(key, object)
    }

    fn put_other(&mut self, kind: &str, object: &Value) -> Result<(), ObjectError> {
        let observation = match kind {
            "Namespace" => Observation::Namespace(Change::Apply(Box::new(read(object)?))),
            "LimitRange" => Observation::LimitRange(Change::Apply(Box::new(read(object)?))),
            "RuntimeClass" => Observation::RuntimeClass(Change::Apply(Box::new(read(object)?))),
            "PriorityClass" => Observation::PriorityClass(Change::Apply(Box::new(read(object)?))),
            "WorkloadPriorityClass" => Observation::WorkloadPriorityClass(Change::Apply(Box::new(read(object)?))),
            "AdmissionCheck" => Observation::AdmissionCheck(Change::Apply(Box::new(read(object)?))),
            "CheckpointStore" => Observation::CheckpointStore(Change::Apply(Box::new(read(object)?))),
            // No decision depends on Topologies, Nodes and single pods.
            "Topology" | "Node" | "Pod" => return Ok(()),
            other => return Err(ObjectError::UnknownKind(other.to_owned())),
        };
        self.observe(observation);
        Ok(())
    }

    fn observe(&mut self, observation: Observation) {
        // The result of this call, the namespaces in which Berth now manages jobs, is needed by no caller.
        let _ = self.cluster_facts.observe(&observation);
        self.control.observe(observation, self.now);
    }

    /// Deletes an object immediately, with or without finalizers.
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        let key = object_key(kind, namespace, name);
        if let Some(object) = self.objects.remove(&key) {
            // The result of showing the deleted object to control is ignored, because an object that was readable when it was stored is still readable.
            let _ = self.show(&key, &object, true);
        }
    }

    fn store(&mut self, key: ObjectKey, mut object: Value) -> Result<(), ObjectError> {
        self.version = self.version.saturating_add(1);
        let version = json!(self.version.to_string());
        edit(&mut object, "metadata", |metadata| metadata.insert("resourceVersion".into(), version));
        self.show(&key, &object, false)?;
        self.objects.insert(key, object);
        Ok(())
    }

    fn show(&mut self, key: &ObjectKey, object: &Value, gone: bool) -> Result<(), ObjectError> {
        fn change<T: DeserializeOwned>(object: &Value, gone: bool) -> serde_json::Result<Change<Box<T>>> {
            let object = Box::new(read(object)?);
            Ok(if gone { Change::Delete(object) } else { Change::Apply(object) })
        }
        let observation = match key.kind {
            Kind::Job(kind) => {
                let job = SharedJob::from(kind.read(object)?);
                Observation::Job(kind, if gone { Change::Delete(job) } else { Change::Apply(job) })
            }
            Kind::Workload => Observation::Workload(change(object, gone)?),
            Kind::ClusterQueue => Observation::ClusterQueue(change(object, gone)?),
            Kind::LocalQueue => Observation::LocalQueue(change(object, gone)?),
            Kind::Cohort => Observation::Cohort(change(object, gone)?),
            Kind::ResourceFlavor => Observation::ResourceFlavor(change(object, gone)?),
            Kind::QueuePolicy => Observation::QueuePolicy(change(object, gone)?),
            Kind::TrainingJob => Observation::TrainingJob(change(object, gone)?),
            Kind::Pod => Observation::Pod(change(object, gone)?),
            Kind::StatefulSet => Observation::StatefulSet(change(object, gone)?),
            // No watch shows Services, ConfigMaps and objects of the other kinds that Berth only writes.
            Kind::Service
            | Kind::ConfigMap
            | Kind::PodGroup
            | Kind::Deployment
            | Kind::Checkpoints
            | Kind::Node
            | Kind::JobPod
            | Kind::AdmissionCheck
            | Kind::ProvisioningRequest
            | Kind::PodTemplate => return Ok(()),
        };
        self.observe(observation);
        Ok(())
    }

    /// Runs at most `cycles` scheduling cycles and performs the writes that control asks for. Failed writes of an offline run are retried a few times, each
    /// after its back-off.
    pub fn run(&mut self, cycles: u64) {
        self.rest(0);
        self.rest(cycles);
        for _ in 0..MOST_RETRIES {
            let Some(at) = self.control.retry_at(self.now) else { return };
            self.now = at;
            let again = std::mem::take(&mut self.conflicted) || cycles == u64::MAX;
            self.rest(if again { cycles } else { 0 });
        }
    }

    /// Runs steps until control asks for no task at this moment.
    fn rest(&mut self, cycles: u64) {
        let mut left = cycles;
        for _ in 0..MOST_STEPS {
            let step = self.control.step_cycles(self.now, left);
            left = if cycles == u64::MAX { cycles } else { 0 };
            self.notices.extend(step.notices);
            if step.tasks.is_empty() {
                return;
            }
            for task in step.tasks {
                self.writes.push((task.purpose, task.key.clone()));
                let object = |offline: &Self| offline.objects.get(&task.key).cloned().unwrap_or_default();
                let before = self.history.is_some().then(|| object(self));
                let outcome = self.perform(&task);
                self.control.outcome(task.id, outcome, self.now);
                let notices = self.control.take_notices();
                let after = if before.is_some() { object(self) } else { Default::default() };
                if let (Some(history), Some(before)) = (&mut self.history, before) {
                    let (key, notices) = (task.key, notices.clone());
                    history.push(Made { purpose: task.purpose, key, before, after, notices });
                }
                self.notices.extend(notices);
            }
        }
    }

    /// Creation time that an object gets that is created now. The first Workload of a job has the creation time of the job, or of the youngest object that owns
    /// the Workload.
    fn created(&self, kind: Kind, body: &Value) -> Timestamp {
        let owners = |object: &Value| -> Vec<String> {
            let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            let uid = |owner: &Value| owner.get("uid").and_then(Value::as_str).map(str::to_owned);
            owners.into_iter().flatten().filter_map(uid).collect()
        };
        let own = owners(body);
        let is_owned = |object: &Value| owners(object).iter().any(|uid| own.contains(uid));
        let mut workloads = self.objects.iter().filter(|(key, _)| key.kind == Kind::Workload);
        if kind != Kind::Workload || workloads.any(|(_, object)| is_owned(object)) {
            return self.now;
        }
        let text = |object: &Value, path: &str| object.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let is_owner = |object: &&Value| text(object, "/metadata/uid").is_some_and(|uid| own.contains(&uid));
        let times = self.objects.values().filter(is_owner).map(|owner| {
            text(owner, "/metadata/creationTimestamp").and_then(|time| time.parse().ok()).unwrap_or(self.now)
        });
        times.max().unwrap_or(self.now)
    }

    fn perform(&mut self, task: &Task) -> TaskOutcome {
        match &task.action {
            Action::Write(write) => self.write(&task.key, write).into(),
            Action::Query(query) => TaskOutcome::Answered(answer(query, self.objects.get(&task.key))),
        }
    }

    fn write(&mut self, key: &ObjectKey, write: &Write) -> WriteOutcome {
        let applied = |version: u64| WriteOutcome::Applied { resource_version: version.to_string() };
        let (body, subresource) = match write {
            Write::Create(body) => {
                let mut body = match body.value() {
                    Ok(body) => body,
                    Err(error) => return refused(&error.into()),
                };
                let created = json!(self.created(key.kind, &body).to_string());
                edit(&mut body, "metadata", |metadata| metadata.insert("creationTimestamp".into(), created));
                with_map(&mut body, |map| map.insert("kind".into(), key.kind.name().into()));
                return match self.put(&body) {
                    Ok(_) => applied(self.version),
                    Err(error) => refused(&error),
                };
            }
            Write::AnnotatePods { .. } | Write::DeleteCheckpoints { .. } => {
                return WriteOutcome::Applied { resource_version: String::new() };
            }
            Write::Delete { .. } => {
                self.remove(key.kind, &key.namespace, &key.name);
                return WriteOutcome::Applied { resource_version: String::new() };
            }
            Write::Apply { .. } if matches!(key.kind, Kind::Service | Kind::ConfigMap) => {
                return applied(self.version);
            }
            Write::Apply { body, subresource, .. } | Write::Merge { body, subresource, .. } => match body.value() {
                Ok(body) => (body, *subresource),
                Err(error) => return refused(&error.into()),
            },
        };
        let Some(old) = self.objects.get(key).cloned() else { return WriteOutcome::Gone };
        let is_status = subresource == Subresource::Status;
        if let (true, Kind::Workload, Some(text)) = (is_status, key.kind, &self.refusal) {
            return WriteOutcome::Refused(text.clone());
        }
        if let Some(index) = self.contested.iter().position(|contested| contested == key) {
            self.contested.remove(index);
            self.conflicted = true;
            let mut theirs = old.clone();
            let touch = |labels: &mut Map<String, Value>| labels.insert("touched".into(), json!("by-somebody-else"));
            edit(&mut theirs, "metadata", |metadata| with_map(metadata.entry("labels").or_insert(Value::Null), touch));
            return self.store(key.clone(), theirs).map_or_else(|error| refused(&error), |()| WriteOutcome::Conflict);
        }
        let mut new = old.clone();
        match (write, is_status) {
            (Write::Apply { .. }, true) => apply_status(&mut new, &body),
            (_, true) => merge(&mut new, &json!({"status": body.get("status")})),
            (_, false) => {
                let mut body = body;
                if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
                    metadata.remove("resourceVersion");
                }
                merge(&mut new, &body);
            }
        }
        if new == old {
            return applied(self.version);
        }
        self.store(key.clone(), new).map_or_else(|error| refused(&error), |()| applied(self.version))
    }
}

fn object_key(kind: Kind, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey { kind, namespace: namespace.to_owned(), name: name.to_owned() }
}

fn refused(error: &ObjectError) -> WriteOutcome {
    WriteOutcome::Refused(error.to_string())
}

/// Answer to a query of control in an offline run, which has no running pods, nodes and checkpoint stores.
fn answer(query: &Query, object: Option<&Value>) -> Result<QueryAnswer, QueryFailure> {
    Ok(match query {
        Query::ProbePods { .. } => QueryAnswer::PodsLeft(PodsLeft::Allowed),
        Query::FindStuckPods { .. } | Query::AskAutoscalers { .. } => QueryAnswer::Stuck(Vec::new()),
        Query::FindPodsOnNode => QueryAnswer::OnNode(Vec::new()),
        Query::FindLeftPods { .. } => QueryAnswer::Left(Vec::new()),
        Query::CountNodes { .. } => QueryAnswer::Nodes(0),
        Query::ReadObject => QueryAnswer::Object(object.ok_or(QueryFailure::Gone)?.to_string().into()),
        Query::ListCheckpoints { .. } => QueryAnswer::Checkpoints(Ok(Vec::new())),
    })
}

fn read<T: DeserializeOwned>(object: &Value) -> serde_json::Result<T> {
    serde_json::from_value(object.clone())
}
