//! A simulated cluster in memory for tests: objects as JSON, writes with their preconditions, and controllers. The end-to-end tests use the real API server;
//! the simulated cluster tries a decision in microseconds.

mod deletion;
mod job_controller;
mod job_pods;
mod job_set_controller;
mod kubelet;
pub mod leaders;
mod neighbours;
mod objects;
mod pods;
pub mod rights;
mod trainings;

use std::collections::BTreeMap;

use berth_control::measure::TierMove;
use berth_control::settings::{Settings, WaitForPodsReady};
use berth_control::write::{
    Action, Checkpoint, Kind, LeftPod, Notice, ObjectKey, PodOnNode, PodsLeft, Purpose, Query, QueryAnswer,
    QueryFailure, Subresource, Task, TaskOutcome, Term, Write, WriteOutcome,
};
use berth_control::{Control, Step};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

pub use job_set_controller::{ATTEMPT, PART};
pub use objects::{cluster_queue, flavor, is, job, local_queue, made_before};
pub use trainings::reserved;

pub fn settings() -> Settings {
    Settings {
        wait_for_pods_ready: Some(WaitForPodsReady {
            timeout_ms: 1_800_000,
            recovery_timeout_ms: Some(1_800_000),
            block_admission: false,
            order_by_creation: false,
            backoff_limit_count: None,
            backoff_base_seconds: 60,
            backoff_max_seconds: 3600,
        }),
        local_queue_metrics: true,
        queue_resource_metrics: true,
        ..Settings::default()
    }
}

/// A fault of the API server: the purpose of the write that fails, the outcome that the cluster reports for the write, and true if the write is applied
/// nevertheless.
pub type Fault = (Purpose, WriteOutcome, bool);

pub struct Cluster {
    pub control: Control,
    /// The control of a second replica, which observes the same objects and does not lead.
    standby: Option<Control>,
    pub now: Timestamp,
    pub objects: BTreeMap<ObjectKey, Value>,
    pub writes: Vec<(Purpose, ObjectKey)>,
    pub notices: Vec<Notice>,
    /// The log entries that control has made about moves between capacity tiers.
    pub moves: Vec<TierMove>,
    /// The time of each entry of `moves`.
    pub moved_at: Vec<Timestamp>,
    /// Outcomes that the cluster reports for the next writes of a purpose. A write is applied nevertheless if the bool of its fault is true.
    pub faults: Vec<Fault>,
    /// Answers of the API server to every write of a purpose to objects whose names begin with a prefix; no such write is applied.
    pub answers: Vec<(Purpose, &'static str, WriteOutcome)>,
    /// Purposes whose next write is lost: the API server may apply a lost write at an unexpected time ([`Self::land`]).
    pub loses: Vec<Purpose>,
    /// Writes that were lost, and that the API server has not applied.
    pub lost: Vec<Task>,
    /// True if the API server reports conflicts although no other client has written.
    pub conflicts_lie: bool,
    /// Uids of deleted jobs whose pods still terminate.
    pub pods_left: Vec<String>,
    /// Pods that stay after their job, with the job's uid that is in the label of the pod.
    pub labelled: Vec<(String, ObjectMeta)>,
    /// Pods that a job has left behind, with the uid of the job.
    pub left_behind: Vec<(String, LeftPod)>,
    /// Values of the node selector `tier` for which the cluster has no nodes.
    pub without_nodes: Vec<&'static str>,
    /// Names of the Jobs whose pods keep their nodes.
    pub keep_nodes: Vec<&'static str>,
    /// The pods on each node, by the name of the node.
    pub on_node: BTreeMap<String, Vec<PodOnNode>>,
    /// The message that an autoscaler reports about pods that get no node.
    pub refused_nodes: Option<String>,
    /// Annotations that control has written to pods: the uid of the pods' job, and the annotations.
    pub told_pods: Vec<(String, BTreeMap<String, String>)>,
    /// The checkpoints in stores, by the path that the pods use.
    pub saved: BTreeMap<String, Vec<Checkpoint>>,
    /// How many times control has had a store listed.
    pub looks: usize,
    /// The error with which every reading of a store fails.
    pub store_fault: Option<String>,
    /// True if pods run but do not become ready.
    pub pods_stay_unready: bool,
    /// Number of pods of an elastic Job that get nodes.
    pub nodes: Option<i64>,
    /// Number of pods of TrainingJobs on each node.
    pub pods_per_node: usize,
    /// True if running Jobs, elastic or not, have the number of pods in their current spec, and Berth's pod queries find these pods.
    pub jobs_are_resized: bool,
    /// A kind of which control observes no object, because its replica may not list the kind.
    unlisted: Option<Kind>,
    /// True if the simulated job controller does nothing.
    pub controller_sleeps: bool,
    /// True if the cluster has a controller of JobSets.
    pub job_sets_run: bool,
    /// Fields that a mutating policy of the cluster adds to the spec of each new Job.
    pub adds_to_jobs: Option<Value>,
    /// The time since which pods are counted: an older pod without the label of managed pods does not count.
    pub pods_counted_since: Option<Timestamp>,
    /// True if the watch that a pod leaves reports before the watch that the pod enters.
    pub leaves_first: bool,
    /// The time since which the namespace is being deleted.
    ends: Option<Timestamp>,
    settings: Settings,
    /// Labels of the namespace.
    namespace_labels: Value,
    version: u64,
    uids: u64,
}

impl Cluster {
    pub fn new() -> Self {
        Self::with(settings())
    }

    pub fn with(settings: Settings) -> Self {
        let mut control = Control::new(settings.clone());
        control.count_pods_since(Some("2026-01-01T00:00:00Z".parse().unwrap()));
        control.lead(Some(Term(1)));
        let mut cluster = Self {
            control,
            standby: None,
            now: "2026-11-21T12:00:00Z".parse().unwrap(),
            objects: BTreeMap::new(),
            writes: Vec::new(),
            notices: Vec::new(),
            moves: Vec::new(),
            moved_at: Vec::new(),
            faults: Vec::new(),
            answers: Vec::new(),
            loses: Vec::new(),
            lost: Vec::new(),
            conflicts_lie: false,
            pods_left: Vec::new(),
            labelled: Vec::new(),
            left_behind: Vec::new(),
            without_nodes: Vec::new(),
            keep_nodes: Vec::new(),
            on_node: BTreeMap::new(),
            refused_nodes: None,
            told_pods: Vec::new(),
            saved: BTreeMap::new(),
            looks: 0,
            store_fault: None,
            pods_stay_unready: false,
            nodes: None,
            pods_per_node: 1,
            jobs_are_resized: false,
            unlisted: None,
            controller_sleeps: false,
            job_sets_run: false,
            adds_to_jobs: None,
            pods_counted_since: Some("2026-01-01T00:00:00Z".parse().unwrap()),
            leaves_first: false,
            ends: None,
            settings,
            namespace_labels: json!({"team": "a"}),
            version: 100,
            uids: 0,
        };
        cluster.control.observe(leaders::namespace(&cluster.namespace_labels, None), cluster.now);
        cluster
    }

    pub fn key(kind: Kind, namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { kind, namespace: namespace.into(), name: name.into() }
    }

    /// Creates or replaces an object as a user would.
    pub fn put(&mut self, kind: Kind, object: Value) {
        self.put_as(kind, object, None);
    }

    /// Creates or replaces an object; a new object gets the given uid.
    pub fn put_as(&mut self, kind: Kind, mut object: Value, given: Option<&str>) {
        let metadata = object["metadata"].as_object_mut().unwrap();
        let namespace = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = metadata["name"].as_str().unwrap().to_owned();
        let key = Self::key(kind, &namespace, &name);
        let uid = match self.objects.get(&key) {
            Some(old) => old["metadata"]["uid"].clone(),
            None if given.is_some() => json!(given),
            None => {
                self.uids += 1;
                json!(format!("uid-{}", self.uids))
            }
        };
        metadata.insert("uid".into(), uid);
        metadata.insert("generation".into(), json!(1));
        metadata.insert("creationTimestamp".into(), json!(self.now.to_string()));
        if kind == Kind::Pod {
            pods::reviewed(&mut object);
        }
        self.store(&key, object);
    }

    fn store(&mut self, key: &ObjectKey, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let finalizers = object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        if object["metadata"]["deletionTimestamp"].is_string() && !finalizers {
            self.objects.remove(key);
            if key.kind == Kind::JobPod {
                self.end_job_pod(key, object);
                return;
            }
            self.show(key, &object, true);
            let owns = [Kind::JOB, Kind::JOB_SET, Kind::TrainingJob, Kind::Pod, Kind::StatefulSet, Kind::Workload];
            if owns.contains(&key.kind) || key.kind == Kind::ProvisioningRequest {
                self.collect_garbage(&object["metadata"]["uid"].clone());
            }
            return;
        }
        let old = self.objects.insert(key.clone(), object.clone());
        match (key.kind, old) {
            (Kind::JobPod, Some(old)) => self.show_job_pod(key, &old, &object),
            (Kind::Pod, Some(old)) => self.show_pod(key, &old, &object),
            _ => self.show(key, &object, false),
        }
    }

    /// Runs control and the controllers until control has no more writes for this moment.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            let step = self.control.step(self.now);
            let quiet = step.tasks.is_empty();
            self.take(step);
            let moved = self.job_controller() | self.kubelet() | self.job_set_controller() | self.stop_job_pods();
            if quiet && !moved {
                return;
            }
        }
        panic!("no rest: {:?}", self.writes.iter().rev().take(10).collect::<Vec<_>>());
    }

    /// Lets time pass, and settles the cluster at every moment for which control has set a timer.
    pub fn pass(&mut self, seconds: i64) {
        let end = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
        while self.now < end {
            self.settle();
            let next = self.control.step(self.now).wake_at.unwrap_or(end);
            let least = self.now.checked_add(SignedDuration::from_millis(50)).unwrap();
            self.now = next.clamp(least, end.max(least));
        }
        self.settle();
    }

    /// Performs the writes of a step.
    pub fn take(&mut self, step: Step) {
        step.notices.iter().for_each(|notice| self.names_no_neighbour(&notice.key, &notice.message));
        self.notices.extend(step.notices);
        self.moves.extend(step.moves);
        self.moved_at.resize(self.moves.len(), self.now);
        for task in step.tasks {
            self.writes.push((task.purpose, task.key.clone()));
            rights::must_have(&task);
            if let Some(index) = self.loses.iter().position(|purpose| *purpose == task.purpose) {
                self.loses.remove(index);
                self.give_back(&task, WriteOutcome::Unknown("lost".into()));
                self.lost.push(task);
                continue;
            }
            let meant = |(purpose, name, _): &&(Purpose, &str, WriteOutcome)| {
                *purpose == task.purpose && task.key.name.starts_with(name)
            };
            if let Some((_, _, outcome)) = self.answers.iter().find(meant) {
                self.give_back(&task, outcome.clone());
                continue;
            }
            let fault = self.faults.iter().position(|(purpose, _, _)| *purpose == task.purpose);
            match fault.map(|index| self.faults.remove(index)) {
                Some((_, outcome, true)) => {
                    let _ = self.perform(&task);
                    self.give_back(&task, outcome);
                }
                Some((_, outcome, false)) => {
                    // A conflict means that another client has written in the meantime.
                    if let (WriteOutcome::Conflict, false, Some(object)) =
                        (&outcome, self.conflicts_lie, self.objects.get(&task.key).cloned())
                    {
                        self.store(&task.key.clone(), object);
                    }
                    self.give_back(&task, outcome);
                }
                None => {
                    let outcome = self.perform(&task);
                    self.control.outcome(task.id, outcome, self.now);
                }
            }
        }
    }

    /// The API server applies the lost writes.
    pub fn land(&mut self) -> Vec<TaskOutcome> {
        std::mem::take(&mut self.lost).iter().map(|task| self.perform(task)).collect()
    }

    fn answer(&mut self, object: &ObjectKey, query: &Query) -> Result<QueryAnswer, QueryFailure> {
        Ok(match query {
            Query::ProbePods { pods, most } => {
                let labelled = self.labelled.iter().filter(|(uid, pod)| *uid == pods.uid && pods.has(pod)).count();
                let there = self.active_of(pods) > 0
                    || self.has_job_pods(pods)
                    || self.pods_left.contains(&pods.uid)
                    || labelled > *most;
                QueryAnswer::PodsLeft(if there { PodsLeft::TooMany } else { PodsLeft::Allowed })
            }
            Query::FindStuckPods { pods } => QueryAnswer::Stuck(self.stuck_pods(&pods.uid)),
            Query::FindPodsOnNode => QueryAnswer::OnNode(self.on_node.get(&object.name).cloned().unwrap_or_default()),
            Query::FindLeftPods { uid, .. } => QueryAnswer::Left(self.left_pods(uid)),
            Query::ReadObject => return self.whole(object),
            Query::CountNodes { pods } => QueryAnswer::Nodes(self.nodes_of(&pods.uid)),
            Query::AskAutoscalers { pods } => QueryAnswer::Stuck(self.asked_pods(pods)),
            Query::ListCheckpoints { place } => {
                self.looks += 1;
                let here = place.spec.uri(&place.namespace, &place.job);
                QueryAnswer::Checkpoints(match &self.store_fault {
                    Some(fault) => Err(fault.clone()),
                    None => Ok(self.saved.get(&here).cloned().unwrap_or_default()),
                })
            }
        })
    }

    fn perform(&mut self, task: &Task) -> TaskOutcome {
        match &task.action {
            Action::Write(write) => self.write(&task.key, write).into(),
            Action::Query(query) => TaskOutcome::Answered(self.answer(&task.key, query)),
        }
    }

    fn write(&mut self, key: &ObjectKey, write: &Write) -> WriteOutcome {
        let body = match write {
            Write::Create(body) => {
                if self.objects.contains_key(key) {
                    return WriteOutcome::AlreadyExists;
                }
                let mut object = body.value();
                if let Some(more) = self.adds_to_jobs.as_ref().filter(|_| key.kind == Kind::JOB) {
                    merge(&mut object["spec"], more);
                }
                self.put(key.kind, object);
                return WriteOutcome::Applied { resource_version: self.version.to_string() };
            }
            Write::AnnotatePods { pods, annotations } => {
                self.told_pods.push((pods.uid.clone(), annotations.clone()));
                return WriteOutcome::Applied { resource_version: String::new() };
            }
            Write::DeleteCheckpoints { place, ids } => {
                let here = self.saved.entry(place.spec.uri(&place.namespace, &place.job)).or_default();
                here.retain(|checkpoint| !ids.contains(&checkpoint.id));
                return WriteOutcome::Applied { resource_version: String::new() };
            }
            Write::Delete { uid, .. } if self.end_left(uid) && key.kind == Kind::Pod => {
                return WriteOutcome::Applied { resource_version: String::new() };
            }
            Write::Delete { uid, .. } if self.delete_job_pod(key, uid) => {
                return WriteOutcome::Applied { resource_version: String::new() };
            }
            Write::Delete { uid, owned_first } => {
                return match self.objects.get(key) {
                    Some(object) if object["metadata"]["uid"] == json!(uid) => {
                        self.delete_as(key, *owned_first);
                        let left = self.objects.contains_key(key);
                        WriteOutcome::Applied {
                            resource_version: if left { self.version.to_string() } else { String::new() },
                        }
                    }
                    _ => WriteOutcome::Gone,
                };
            }
            Write::Apply { body, .. } if matches!(key.kind, Kind::Service | Kind::ConfigMap) => {
                self.put(key.kind, body.value());
                return WriteOutcome::Applied { resource_version: self.version.to_string() };
            }
            Write::Apply { body, .. } | Write::Merge { body, .. } => body.value(),
        };
        self.messages_name_no_neighbour(key, &body);
        let Some(old) = self.objects.get(key).cloned() else { return WriteOutcome::Gone };
        for field in ["uid", "resourceVersion"] {
            let wanted = &body["metadata"][field];
            if wanted.is_string() && wanted != &old["metadata"][field] {
                return WriteOutcome::Conflict;
            }
        }
        let mut new = old.clone();
        match write {
            Write::Apply { subresource: Subresource::None, .. } => objects::apply_counts(&mut new, &body),
            Write::Apply { manager, .. } => apply_status(&mut new, &body, manager),
            Write::Merge { subresource: Subresource::Status, .. } => merge(&mut new["status"], &body["status"]),
            Write::Merge { .. } => {
                let mut body = body;
                if let Some(metadata) = body["metadata"].as_object_mut() {
                    metadata.remove("resourceVersion");
                }
                body.as_object_mut().unwrap().remove("status");
                merge(&mut new, &body);
                if new["spec"] != old["spec"] {
                    let generation = old["metadata"]["generation"].as_i64().unwrap_or(1);
                    new["metadata"]["generation"] = json!(generation + 1);
                }
            }
            _ => {}
        }
        if new != old {
            self.store(key, new);
        }
        WriteOutcome::Applied { resource_version: self.version.to_string() }
    }

    pub fn job(&self, name: &str) -> &Value {
        &self.objects[&Self::key(Kind::JOB, "team", name)]
    }

    pub fn workload_of(&self, job: &str) -> Option<&Value> {
        let uid = self.objects.get(&Self::key(Kind::JOB, "team", job))?["metadata"]["uid"].clone();
        self.objects
            .iter()
            .filter(|(key, _)| key.kind == Kind::Workload)
            .map(|(_, object)| object)
            .find(|object| object["metadata"]["ownerReferences"][0]["uid"] == uid)
    }

    pub fn condition(&self, job: &str, kind: &str) -> Option<Value> {
        let list = self.workload_of(job)?["status"]["conditions"].as_array()?.clone();
        list.into_iter().find(|condition| condition["type"] == json!(kind))
    }

    pub fn is(&self, job: &str, kind: &str) -> bool {
        self.condition(job, kind).is_some_and(|condition| condition["status"] == json!("True"))
    }
}

/// Whether the node selector of a Job's pods requests a tier.
fn is_on(job: &Value, tier: &str) -> bool {
    job["spec"]["template"]["spec"]["nodeSelector"]["tier"] == json!(tier)
}

pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        if !patch.is_null() {
            *target = patch.clone();
        }
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let map = target.as_object_mut().unwrap();
    for (field, change) in changes {
        if change.is_null() {
            map.remove(field);
        } else {
            merge(map.entry(field.clone()).or_insert(Value::Null), change);
        }
    }
}

/// Server-side apply of a status for a field manager: the manager's fields are replaced by the fields that the manager sends.
fn apply_status(object: &mut Value, body: &Value, manager: &str) {
    let mut status = object["status"].as_object().cloned().unwrap_or_default();
    let wanted = body["status"].as_object().cloned().unwrap_or_default();
    if manager == "kueue-admission" {
        for field in ["admission", "requeueState", "resourceRequests", "accumulatedPastExecutionTimeSeconds"] {
            status.remove(field);
        }
    }
    for (field, mut value) in wanted {
        if let (Some(new), Some(old)) = (value.as_array_mut(), status.get(&field).and_then(Value::as_array))
            && field == "conditions"
        {
            // Conditions of other managers stay. The manager of admissions sends all its own conditions each time.
            let stays = |kind: &str| manager != "kueue-admission" || kind == "WaitingForReplacementPods";
            let kept = old.iter().filter(|one| stays(one["type"].as_str().unwrap_or_default()));
            let kept: Vec<Value> = kept.filter(|one| !new.iter().any(|n| n["type"] == one["type"])).cloned().collect();
            new.extend(kept);
        }
        assert!(value != json!({}), "an apply of an empty {field} stores null");
        status.insert(field, value);
    }
    object["status"] = Value::Object(status);
}
