//! A simulated cluster in memory for tests: objects as JSON, writes with their preconditions, and controllers. The end-to-end tests use the real API server;
//! the simulated cluster tries a decision in microseconds.

mod deletion;
mod job_controller;
mod job_pods;
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
    QueryFailure, Task, TaskOutcome, Term, Write, WriteOutcome,
};
use berth_control::{Control, Step};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::api_server::{ApiServer, GarbageCollection};
use crate::controllers::JobSetController;
use crate::watch;

pub use crate::api_server::merge;
pub use crate::controllers::{ATTEMPT, PART};
pub use crate::manifests::{cluster_queue, flavor, job, local_queue, made_before};
pub use objects::is;
pub use trainings::reserved;

/// Settings of most stories: figures of LocalQueues and of resources, and half an hour until pods are ready.
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

/// A fault of the API server: the purpose of the write that fails, the outcome that the cluster reports for the write, and a bool that is true if the write is
/// applied nevertheless.
pub type Fault = (Purpose, WriteOutcome, bool);

/// The cluster: an API server, its controllers and nodes, one control that leads, and faults of the writes.
#[expect(clippy::struct_excessive_bools, reason = "switches of a test, each on or off")]
pub struct Cluster {
    api: ApiServer,
    /// The control of the leader.
    pub control: Control,
    /// The control of a second replica, which observes the same objects and does not lead.
    standby: Option<Control>,
    /// Purposes and objects of all writes so far.
    pub writes: Vec<(Purpose, ObjectKey)>,
    /// Events that were published.
    pub notices: Vec<Notice>,
    /// The log entries that control has made about moves between capacity tiers.
    pub moves: Vec<TierMove>,
    /// The time of each move between capacity tiers in `moves`.
    pub moved_at: Vec<Timestamp>,
    /// Outcomes that the cluster reports for the next writes of a purpose. A write is applied nevertheless if the bool of its fault is true.
    pub faults: Vec<Fault>,
    /// Answers of the API server to every write of a purpose to objects whose names begin with a prefix; no such write is applied.
    pub answers: Vec<(Purpose, &'static str, WriteOutcome)>,
    /// Purposes whose next write is lost: the API server may apply a lost write at an unexpected time ([`Self::apply_writes`]).
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
    pub annotated_pods: Vec<(String, BTreeMap<String, String>)>,
    /// The checkpoints in stores, by the path that the pods use.
    pub saved: BTreeMap<String, Vec<Checkpoint>>,
    /// The number of listings of checkpoint stores that control has requested.
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
    /// The time since which pods are counted: an older pod without the label of managed pods does not count.
    pub pods_counted_since: Option<Timestamp>,
    /// True if the watch that a pod leaves reports before the watch that the pod enters.
    pub leaves_first: bool,
    /// The time since which the namespace is being deleted.
    ends: Option<Timestamp>,
    settings: Settings,
    /// Labels of the namespace.
    namespace_labels: Value,
}

impl Cluster {
    /// A cluster with [`settings`].
    #[expect(clippy::new_without_default, reason = "a cluster with the settings of most stories is no neutral value")]
    pub fn new() -> Self {
        Self::with(settings())
    }

    /// A cluster without objects, in which control leads.
    pub fn with(settings: Settings) -> Self {
        let mut control = Control::new(settings.clone());
        control.count_pods_since(Some("2026-01-01T00:00:00Z".parse().unwrap()));
        control.lead(Some(Term(1)));
        let now = "2026-11-21T12:00:00Z".parse().unwrap();
        let mut cluster = Self {
            api: ApiServer::new(now, GarbageCollection::AtOnce),
            control,
            standby: None,
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
            annotated_pods: Vec::new(),
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
            pods_counted_since: Some("2026-01-01T00:00:00Z".parse().unwrap()),
            leaves_first: false,
            ends: None,
            settings,
            namespace_labels: json!({"team": "a"}),
        };
        cluster.control.observe(watch::namespace("team", &cluster.namespace_labels, None), now);
        cluster
    }

    /// The key of an object; cluster-scoped objects have an empty namespace.
    pub fn key(kind: Kind, namespace: &str, name: &str) -> ObjectKey {
        ApiServer::key(kind, namespace, name)
    }

    /// All stored objects.
    pub const fn objects(&self) -> &BTreeMap<ObjectKey, Value> {
        self.api.objects()
    }

    /// Present time of the simulated cluster.
    pub const fn now(&self) -> Timestamp {
        self.api.now()
    }

    /// Sets the time of the cluster; no controller runs in between.
    pub const fn set_now(&mut self, now: Timestamp) {
        self.api.set_now(now);
    }

    /// Creates or replaces an object as a user would.
    pub fn put(&mut self, kind: Kind, object: Value) {
        self.put_as(kind, object, None);
    }

    /// Creates or replaces an object; a new object gets the given uid.
    pub fn put_as(&mut self, kind: Kind, object: Value, given: Option<&str>) {
        self.api.put_as(kind, object, given);
        self.deliver();
    }

    /// Removes an object without a revision, so that no watch shows the removal.
    pub fn forget(&mut self, key: &ObjectKey) -> Option<Value> {
        self.api.forget(key)
    }

    /// Stores a state that no watch shows, as another client may have written the state a moment ago.
    pub fn store_unseen(&mut self, key: &ObjectKey, object: Value) {
        self.api.store_unseen(key, object);
    }

    /// Sets the fields that a mutating policy of the cluster adds to the spec of each new Job.
    pub fn add_to_jobs(&mut self, fields: Option<Value>) {
        self.api.add_to_jobs(fields);
    }

    fn store(&mut self, key: &ObjectKey, object: Value) {
        self.api.store(key, object);
        self.deliver();
    }

    /// Runs control and the controllers until control has no more writes for this moment.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            let step = self.control.step(self.now());
            let quiet = step.tasks.is_empty();
            self.take(step);
            let moved = self.job_controller() | self.kubelet() | self.job_sets() | self.stop_job_pods();
            if quiet && !moved {
                return;
            }
        }
        panic!("no rest: {:?}", self.writes.iter().rev().take(10).collect::<Vec<_>>());
    }

    /// Runs the JobSet controller once for each JobSet; true if the controller wrote.
    fn job_sets(&mut self) -> bool {
        if !self.job_sets_run || self.controller_sleeps {
            return false;
        }
        let moved = JobSetController(&mut self.api).look();
        self.deliver();
        moved
    }

    /// Lets time pass, and settles the cluster at every moment for which control has set a timer.
    pub fn pass(&mut self, seconds: i64) {
        let end = self.now().checked_add(SignedDuration::from_secs(seconds)).unwrap();
        while self.now() < end {
            self.settle();
            let next = self.control.step(self.now()).wake_at.unwrap_or(end);
            let least = self.now().checked_add(SignedDuration::from_millis(50)).unwrap();
            self.set_now(next.clamp(least, end.max(least)));
        }
        self.settle();
    }

    /// Performs the writes of a step.
    pub fn take(&mut self, step: Step) {
        step.notices.iter().for_each(|notice| self.names_no_neighbour(&notice.key, &notice.message));
        self.notices.extend(step.notices);
        self.moves.extend(step.moves);
        self.moved_at.resize(self.moves.len(), self.now());
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
                let outcome = outcome.clone();
                self.give_back(&task, outcome);
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
                        (&outcome, self.conflicts_lie, self.objects().get(&task.key).cloned())
                    {
                        self.store(&task.key.clone(), object);
                    }
                    self.give_back(&task, outcome);
                }
                None => {
                    let outcome = self.perform(&task);
                    self.control.outcome(task.id, outcome, self.now());
                }
            }
        }
    }

    /// Lets the API server apply the lost writes, and returns their outcomes.
    pub fn apply_writes(&mut self) -> Vec<TaskOutcome> {
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
            Query::ReadObject => return self.read_object(object),
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
        match write {
            Write::AnnotatePods { pods, annotations } => {
                self.annotated_pods.push((pods.uid.clone(), annotations.clone()));
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
                return match self.objects().get(key) {
                    Some(object) if object["metadata"]["uid"] == json!(uid) => {
                        self.delete_as(key, *owned_first);
                        let left = self.objects().contains_key(key);
                        WriteOutcome::Applied {
                            resource_version: if left { self.api.version().to_string() } else { String::new() },
                        }
                    }
                    _ => WriteOutcome::Gone,
                };
            }
            Write::Create(_) => {}
            Write::Apply { .. } if matches!(key.kind, Kind::Service | Kind::ConfigMap) => {}
            Write::Apply { body, .. } | Write::Merge { body, .. } => {
                self.messages_name_no_neighbour(key, &body.value().expect("a JSON body"));
            }
        }
        let outcome = self.api.perform(key, write).expect("a write to an object");
        self.deliver();
        outcome
    }

    /// A Job of namespace `team`, which must exist.
    pub fn job(&self, name: &str) -> &Value {
        &self.objects()[&Self::key(Kind::JOB, "team", name)]
    }

    /// The Workload of a Job.
    pub fn workload_of(&self, job: &str) -> Option<&Value> {
        let uid = self.objects().get(&Self::key(Kind::JOB, "team", job))?["metadata"]["uid"].clone();
        self.objects()
            .iter()
            .filter(|(key, _)| key.kind == Kind::Workload)
            .map(|(_, object)| object)
            .find(|object| object["metadata"]["ownerReferences"][0]["uid"] == uid)
    }

    /// A condition of the Workload of a Job.
    pub fn condition(&self, job: &str, kind: &str) -> Option<Value> {
        let list = self.workload_of(job)?["status"]["conditions"].as_array()?.clone();
        list.into_iter().find(|condition| condition["type"] == json!(kind))
    }

    /// Whether a condition of a Job's Workload is true.
    pub fn is(&self, job: &str, kind: &str) -> bool {
        self.condition(job, kind).is_some_and(|condition| condition["status"] == json!("True"))
    }
}

/// Whether the node selector of a Job's pods requests a capacity tier.
fn is_on(job: &Value, tier: &str) -> bool {
    job["spec"]["template"]["spec"]["nodeSelector"]["tier"] == json!(tier)
}
